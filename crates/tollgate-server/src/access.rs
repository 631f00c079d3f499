//! Access control: who sends a request, and what they may visit.
//!
//! | who | proved by | may visit |
//! |---|---|---|
//! | a person | the person's secret, as the cookie that it was exchanged for or as a bearer token | everything but `/mcp` |
//! | an agent | its own bearer token | `/mcp`, under the token's name |
//! | a monitoring program | its own bearer token; on loopback nothing | `/health` and `/metrics` |
//!
//! The secret is in the address that `serve` prints. The first visit exchanges it for a cookie and leads to the same page
//! without it, so that it stays neither in the address bar nor in the history. Everything that is not listed here belongs
//! to the person.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Form, FromRequest, Query, Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, REFERRER_POLICY, RETRY_AFTER,
    SET_COOKIE, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::post;
use base64::Engine as _;
use serde::Deserialize;
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::name::Agent;

use crate::connections::{Connection, keeping};
use crate::fault_response::FaultResponse;
use crate::guesses::Guesses;
use crate::hosts::Hosts;
use crate::secret::{Secret, same};
use crate::tokens::{TokenFile, TokenScope};

/// Who may visit a server, besides everybody who may see its figures.
#[derive(Debug)]
pub struct Credentials {
    /// The person's secret.
    pub person: Secret,
    /// The tokens of agents and monitoring programs.
    pub tokens: Option<TokenFile>,
    /// An agent whose token is valid while this server runs.
    pub agent: Option<(Agent, Secret)>,
}

/// Who sends a request. Requests that reach a page or an endpoint carry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Visitor {
    /// A person, in one browser. The id differs from browser to browser and is not secret.
    Person(String),
    Agent(Agent),
    Monitor,
}

impl Visitor {
    /// What their requests are counted under. An agent's name cannot contain a space.
    fn name(&self) -> &str {
        match self {
            Self::Person(_) => "the person",
            Self::Agent(agent) => agent.as_str(),
            Self::Monitor => "the monitor",
        }
    }
}

/// The parts of the server that different visitors may visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    Mcp,
    Figures,
    /// Where a person types the secret.
    Login,
    /// Everything else.
    People,
}

impl Area {
    fn of(path: &str) -> Self {
        match path {
            "/mcp" => Self::Mcp,
            "/health" | "/metrics" => Self::Figures,
            LOGIN => Self::Login,
            _ => Self::People,
        }
    }
}

/// Why a request was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessDenial {
    /// It does not say who sends it, or proves it with a wrong token.
    Unknown,
    /// Its sender may not visit this.
    NotYours,
}

/// Lets visitors in.
pub(crate) struct Access {
    hosts: Hosts,
    /// Whether only programs on this machine can reach the server.
    is_local: bool,
    credentials: Credentials,
    cookie: String,
    guesses: Guesses,
}

impl Access {
    /// For a server with this address. `names` are additional host names of the server, without a port.
    pub(crate) fn new(
        address: SocketAddr,
        names: impl IntoIterator<Item = String>,
        credentials: Credentials,
    ) -> Self {
        Self {
            hosts: Hosts::new(address, names),
            is_local: address.ip().is_loopback(),
            credentials,
            // The browser shares its cookies among all ports of the machine, so each server needs a name of its own.
            cookie: format!("tollgate-{}", address.port()),
            guesses: Guesses::new(),
        }
    }

    /// Limits the routes to visitors who may visit them.
    pub(crate) fn guard(self: Arc<Self>, router: Router) -> Router {
        let login = Router::new().route(LOGIN, post(login)).with_state(self.clone());
        router.merge(login).layer(axum::middleware::from_fn_with_state(self, admit))
    }

    /// Who sends a request with these headers.
    async fn visitor(&self, headers: &HeaderMap) -> Result<Option<Visitor>> {
        if let Some(given) = headers.get(AUTHORIZATION) {
            let given = given.to_str().unwrap_or_default().split_once(' ');
            let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            return match given {
                Some((_, token)) => self.bearer(token.trim()).await,
                None => Ok(None),
            };
        }
        Ok(self.person_with_cookie(headers))
    }

    async fn bearer(&self, token: &str) -> Result<Option<Visitor>> {
        let given = Digest::of(token.as_bytes());
        self.guesses.judge(given, self.owner(given)).await
    }

    /// Whose secret has this hash.
    async fn owner(&self, given: Digest) -> Result<Option<Visitor>> {
        if same(&self.credentials.person.hash(), &given) {
            return Ok(Some(Visitor::Person(BEARER.to_owned())));
        }
        if let Some((agent, secret)) = &self.credentials.agent
            && same(&secret.hash(), &given)
        {
            return Ok(Some(Visitor::Agent(agent.clone())));
        }
        let Some(tokens) = self.credentials.tokens.clone() else { return Ok(None) };
        let found = tokio::task::spawn_blocking(move || tokens.find(&given)).await;
        let found = found.map_err(|_| Fault::invalid("internal error in the server"))??;
        Ok(found.map(|token| match token.opens {
            TokenScope::Mcp => Visitor::Agent(token.name),
            TokenScope::Figures => Visitor::Monitor,
        }))
    }

    /// Whether this is the person's secret.
    async fn is_secret(&self, given: &str) -> bool {
        let given = Digest::of(given.as_bytes());
        let check = async { Ok::<_, Fault>(same(&self.credentials.person.hash(), &given).then_some(())) };
        self.guesses.judge(given, check).await.is_ok_and(|found| found.is_some())
    }

    fn person_with_cookie(&self, headers: &HeaderMap) -> Option<Visitor> {
        let given = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
        let pairs = given.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
        // Another server on this machine may have set a cookie of the same name, so look at all of them.
        let mut values = pairs.filter(|(name, _)| *name == self.cookie).map(|(_, value)| value);
        values.find_map(|value| {
            let (session, signature) = value.split_once('.')?;
            let signature: Digest = signature.parse().ok()?;
            same(&self.signed(session), &signature).then(|| Visitor::Person(session.to_owned()))
        })
    }

    fn signed(&self, session: &str) -> Digest {
        self.credentials.person.sign(&format!("session {session}"))
    }

    /// A cookie for a new session. Nobody who sees it learns the secret.
    fn new_cookie(&self) -> Result<String> {
        let session = Secret::random()?;
        let (name, session) = (&self.cookie, session.reveal());
        Ok(format!("{name}={session}.{}; Path=/; HttpOnly; SameSite=Strict", self.signed(session)))
    }

    /// Whether this visitor may visit this area.
    fn may_visit(&self, area: Area, visitor: Option<&Visitor>) -> Result<(), AccessDenial> {
        match (area, visitor) {
            (Area::Login, _)
            | (Area::Mcp, Some(Visitor::Agent(_)))
            | (Area::Figures, Some(Visitor::Person(_) | Visitor::Monitor))
            | (Area::People, Some(Visitor::Person(_))) => Ok(()),
            (Area::Figures, _) if self.is_local => Ok(()),
            (_, Some(_)) => Err(AccessDenial::NotYours),
            (_, None) => Err(AccessDenial::Unknown),
        }
    }
}

/// The session of a person who sends the secret with each request.
const BEARER: &str = "bearer";

/// The form in which a person types the secret.
const LOGIN: &str = "/login";

/// A login form arrives in one piece. A sender that takes longer only occupies a connection.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

async fn admit(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    if let Err(wrong) = access.hosts.check(request.uri(), request.headers()) {
        return wrong.into_response();
    }
    let area = Area::of(request.uri().path());
    if area == Area::Figures && access.is_local {
        return next.run(request).await;
    }
    if let Some(token) = secret_in(request.uri())
        && (area, request.method()) == (Area::People, &Method::GET)
    {
        let page = without_secret(request.uri());
        if access.person_with_cookie(request.headers()).is_some() {
            return private(Redirect::to(&page));
        }
        return match access.is_secret(&token).await {
            true => welcome(&access, &page),
            false => ask_for_the_secret("The token in this address is wrong, or the server was restarted."),
        };
    }
    let visitor = match access.visitor(request.headers()).await {
        Ok(visitor) => visitor,
        Err(fault) => return FaultResponse(fault).into_response(),
    };
    match access.may_visit(area, visitor.as_ref()) {
        Ok(()) => {
            let Some(visitor) = visitor else { return next.run(request).await };
            let connection = request.extensions().get::<Connection>();
            let Some(proved) = connection.and_then(|connection| connection.prove(visitor.name())) else {
                return busy();
            };
            request.extensions_mut().insert(visitor);
            keeping(next.run(request).await, proved)
        }
        Err(denied) => deny(area, denied, request.headers()),
    }
}

fn busy() -> Response {
    let sentence = "too many requests in progress: wait for an answer before you send the next request\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], sentence).into_response()
}

#[derive(Deserialize)]
struct GivenSecret {
    token: String,
}

fn secret_in(uri: &Uri) -> Option<String> {
    Query::<GivenSecret>::try_from_uri(uri).ok().map(|Query(given)| given.token)
}

/// The path and the query, without the secret.
fn without_secret(uri: &Uri) -> String {
    // A path with two slashes at its start would be the address of another server.
    let path = if uri.path().starts_with("//") { "/" } else { uri.path() };
    let pairs = uri.query().unwrap_or_default().split('&');
    let rest: Vec<&str> = pairs.filter(|pair| pair.split('=').next() != Some("token")).collect();
    if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) }
}

async fn login(State(access): State<Arc<Access>>, request: Request) -> Response {
    match tokio::time::timeout(LOGIN_TIMEOUT, Form::<GivenSecret>::from_request(request, &())).await {
        Ok(Ok(Form(form))) if access.is_secret(form.token.trim()).await => welcome(&access, "/"),
        Ok(Ok(_)) => ask_for_the_secret("This token is wrong."),
        Ok(Err(rejection)) => rejection.into_response(),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the form did not arrive in time\n").into_response(),
    }
}

/// Starts a session and leads to this page.
fn welcome(access: &Access, page: &str) -> Response {
    let cookie = match access.new_cookie() {
        Ok(cookie) => cookie,
        Err(fault) => return FaultResponse(fault).into_response(),
    };
    private(([(SET_COOKIE, cookie)], Redirect::to(page)))
}

/// An answer to an address that holds a secret: nobody may keep it or pass the address on.
fn private(answer: impl IntoResponse) -> Response {
    ([(CACHE_CONTROL, "no-store"), (REFERRER_POLICY, "no-referrer")], answer).into_response()
}

fn deny(area: Area, denied: AccessDenial, headers: &HeaderMap) -> Response {
    let wants_a_page = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"));
    let sentence = match (area, denied) {
        (Area::Mcp, AccessDenial::Unknown) => {
            "`/mcp` needs the token of an agent: run `tollgate token add NAME` in the workspace, then send \
             `Authorization: Bearer TOKEN`\n"
        }
        (Area::Mcp, AccessDenial::NotYours) => {
            "`/mcp` is for agents, and this is not the token of an agent: run `tollgate token add NAME` in the workspace, \
             then send that token\n"
        }
        (Area::Figures, _) => {
            "`/health` and `/metrics` need a token beyond loopback: run `tollgate token add NAME --monitor` in the \
             workspace, then send `Authorization: Bearer TOKEN`\n"
        }
        (Area::People | Area::Login, AccessDenial::NotYours) => {
            "this page is for people, and this is the token of a program: the token of an agent opens only `/mcp`\n"
        }
        (Area::People | Area::Login, AccessDenial::Unknown) if wants_a_page => {
            return ask_for_the_secret(
                "Open the address that <code>tollgate serve</code> printed, or paste the token from it.",
            );
        }
        (Area::People | Area::Login, AccessDenial::Unknown) => {
            "this page needs the person's token: open the address that `tollgate serve` printed\n"
        }
    };
    match denied {
        AccessDenial::Unknown => {
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], sentence).into_response()
        }
        AccessDenial::NotYours => (StatusCode::FORBIDDEN, sentence).into_response(),
    }
}

/// The style of the login page. It is in the page, because everything else on the server needs the secret.
const LOGIN_STYLE: &str = ":root{color-scheme:light dark}\
    body{margin:0;min-height:100vh;display:grid;place-items:center;font:15px/1.5 system-ui,'Liberation Sans',sans-serif;\
    background:#f6f7f9;color:#1b1f27}\
    main{box-sizing:border-box;width:min(26rem,calc(100vw - 2rem));padding:1.6rem 1.8rem 1.8rem;background:#fff;\
    border:1px solid #e1e4ea;border-radius:12px;box-shadow:0 8px 30px rgb(20 25 40/8%)}\
    h1{margin:0 0 .4rem;font-size:1.3rem;letter-spacing:-.02em}p{margin:0 0 1rem;color:#596273}\
    label{display:block;font-size:.85rem;color:#596273;margin-bottom:.2rem}\
    input{box-sizing:border-box;width:100%;font:inherit;padding:.45rem .6rem;border:1px solid #c8ced8;border-radius:7px;\
    background:transparent;color:inherit}\
    button{margin-top:.9rem;width:100%;font:inherit;font-weight:600;padding:.5rem;border:0;border-radius:7px;\
    background:#1f4fd8;color:#fff;cursor:pointer}\
    :focus-visible{outline:2px solid #1f4fd8;outline-offset:2px}code{font-size:.92em}\
    @media(prefers-color-scheme:dark){body{background:#12151b;color:#e7eaf0}main{background:#1a1e26;border-color:#2a303b}\
    p,label{color:#a0a9b9}input{border-color:#3d4554}button{background:#8fb1ff;color:#0d1530}}";

/// The login page loads nothing and runs no script. Its style is allowed by its hash.
static LOGIN_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash =
        base64::engine::general_purpose::STANDARD.encode(Digest::of(LOGIN_STYLE.as_bytes()).as_bytes());
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
});

fn ask_for_the_secret(sentence: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>tollgate: token</title><style>{LOGIN_STYLE}</style><main><h1>tollgate</h1><p>{sentence}</p>\
         <form method=\"post\" action=\"{LOGIN}\"><label for=\"token\">Token</label> \
         <input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"current-password\" required autofocus> \
         <button>Log in</button></form></main></html>\n"
    );
    let headers = [
        (CONTENT_SECURITY_POLICY, LOGIN_POLICY.as_str()),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "same-origin"),
        (WWW_AUTHENTICATE, "Bearer"),
    ];
    (StatusCode::UNAUTHORIZED, headers, Html(page)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(listen: &str) -> Access {
        let person = Secret::chosen("the-person-1234567890-abc".into()).unwrap();
        let blue = Secret::chosen("the-agent-1234567890-abcd".into()).unwrap();
        let agent = Some(("blue".parse().unwrap(), blue));
        Access::new(listen.parse().unwrap(), [], Credentials { person, tokens: None, agent })
    }

    fn with(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    fn who(access: &Access, headers: &HeaderMap) -> Option<Visitor> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(access.visitor(headers)).unwrap()
    }

    #[test]
    fn everybody_visits_only_their_own_area() {
        let (person, agent) = (Visitor::Person("x".into()), Visitor::Agent("blue".parse().unwrap()));
        let visitors = [Some(&person), Some(&agent), Some(&Visitor::Monitor), None];
        use AccessDenial::{NotYours, Unknown};
        for (listen, path, wanted) in [
            ("127.0.0.1:1", "/mcp", [Err(NotYours), Ok(()), Err(NotYours), Err(Unknown)]),
            ("127.0.0.1:1", "/health", [Ok(()); 4]),
            ("127.0.0.1:1", "/metrics", [Ok(()); 4]),
            ("127.0.0.1:1", "/", [Ok(()), Err(NotYours), Err(NotYours), Err(Unknown)]),
            ("127.0.0.1:1", "/approvals", [Ok(()), Err(NotYours), Err(NotYours), Err(Unknown)]),
            ("127.0.0.1:1", "/tasks/x.md/approve", [Ok(()), Err(NotYours), Err(NotYours), Err(Unknown)]),
            ("127.0.0.1:1", "/mcp/", [Ok(()), Err(NotYours), Err(NotYours), Err(Unknown)]),
            ("0.0.0.0:1", "/mcp", [Err(NotYours), Ok(()), Err(NotYours), Err(Unknown)]),
            ("0.0.0.0:1", "/health", [Ok(()), Err(NotYours), Ok(()), Err(Unknown)]),
            ("[::1]:1", "/metrics", [Ok(()); 4]),
        ] {
            let access = access(listen);
            let answers = visitors.map(|visitor| access.may_visit(Area::of(path), visitor));
            assert_eq!(answers, wanted, "{listen} {path}");
        }
    }

    #[test]
    fn a_bearer_token_says_who_it_is() {
        let access = access("127.0.0.1:7311");
        let bearer = |value: &str| who(&access, &with(AUTHORIZATION, value));
        assert_eq!(bearer("Bearer the-person-1234567890-abc"), Some(Visitor::Person("bearer".into())));
        assert_eq!(bearer("bearer the-agent-1234567890-abcd"), Some(Visitor::Agent("blue".parse().unwrap())));
        for wrong in ["", "the-agent-1234567890-abcd", "Basic the-agent-1234567890-abcd", "Bearer", "Bearer "]
        {
            assert_eq!(bearer(wrong), None, "{wrong}");
        }
        assert_eq!(bearer("Bearer the-agent-1234567890-abc"), None);
    }

    #[test]
    fn a_cookie_is_valid_for_its_session_and_its_server_only() {
        let (ours, other) = (access("127.0.0.1:7311"), access("127.0.0.1:7312"));
        let cookie = ours.new_cookie().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains("the-person"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_ne!(ours.new_cookie().unwrap(), cookie, "each browser has its own");
        let with_cookie = |access: &Access, value: &str| access.person_with_cookie(&with(COOKIE, value));
        let session = pair.split(['=', '.']).nth(1).unwrap();
        assert_eq!(with_cookie(&ours, pair), Some(Visitor::Person(session.into())));
        assert_eq!(
            with_cookie(&ours, &format!("a=b; tollgate-7311=x; {pair}")),
            Some(Visitor::Person(session.into()))
        );
        assert_eq!(with_cookie(&other, pair), None);
        for wrong in [format!("{pair}0"), pair.replace(session, "mine"), "tollgate-7311=.".into()] {
            assert_eq!(with_cookie(&ours, &wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_secret_is_removed_from_the_address() {
        for (address, wanted) in [
            ("/?token=x", "/"),
            ("/approvals?task=a%26b.md&token=x", "/approvals?task=a%26b.md"),
            ("/ledger?token=x&text=y", "/ledger?text=y"),
            ("//evil.example/?token=x", "/"),
        ] {
            let uri: Uri = address.parse().unwrap();
            assert_eq!(secret_in(&uri).as_deref(), Some("x"), "{address}");
            assert_eq!(without_secret(&uri), wanted, "{address}");
        }
        assert_eq!(secret_in(&Uri::from_static("/?tokens=x")), None);
    }
}

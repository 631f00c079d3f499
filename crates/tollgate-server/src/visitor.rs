//! Access control for HTTP.
//!
//! A server on loopback can be reached by every program on the machine, including browsers, which run code of other sites.
//! So the `Host` must be a name of this server: a page that points its own name at 127.0.0.1 has another one. If the
//! request has an `Origin`, as requests from browsers do, it must be ours, too. Beyond loopback a token is required as
//! well. Programs send it with each request; a person types it once, and the browser keeps a cookie made from it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Form, Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN, SET_COOKIE, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::post;
use serde::Deserialize;
use tollgate::digest::Digest;

/// The visitors that one server lets in.
#[derive(Debug, Clone)]
pub struct Visitors {
    hosts: Vec<String>,
    token: Option<String>,
}

/// The server would be open to the network without a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenNeeded;

impl std::fmt::Display for TokenNeeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a server that listens beyond loopback needs a token")
    }
}

impl std::error::Error for TokenNeeded {}

/// Why a request was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDenied {
    /// The `Host` is missing or is not a name of this server.
    Host,
    /// The `Origin` is another site.
    Origin,
    /// The token is missing or wrong.
    Token,
}

impl Visitors {
    /// For a server with this address. `names` are additional host names of the server, without a port.
    pub fn new(
        listen: SocketAddr,
        names: impl IntoIterator<Item = String>,
        token: Option<String>,
    ) -> Result<Self, TokenNeeded> {
        let token = token.filter(|token| !token.is_empty());
        if !listen.ip().is_loopback() && token.is_none() {
            return Err(TokenNeeded);
        }
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
        if !listen.ip().is_unspecified() {
            hosts.push(listen.ip().to_string());
        }
        hosts.extend(names.into_iter().map(|name| name.to_ascii_lowercase()));
        Ok(Self { hosts, token })
    }

    /// Checks whether a request with these headers is allowed.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), AccessDenied> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        // In HTTP/2 the host is part of the address.
        let host = text(HOST).or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
        if !host.is_some_and(|host| self.is_ours(host)) || headers.get_all(HOST).iter().count() > 1 {
            return Err(AccessDenied::Host);
        }
        if let Some(origin) = text(ORIGIN) {
            let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            if !host.is_some_and(|host| self.is_ours(host)) {
                return Err(AccessDenied::Origin);
            }
        }
        if let Some(token) = &self.token {
            let given = text(AUTHORIZATION).and_then(|value| value.split_once(' '));
            let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let shown = given.is_some_and(|(_, given)| same(given.trim().as_bytes(), token.as_bytes()));
            if !shown && !has_cookie(headers, token) {
                return Err(AccessDenied::Token);
            }
        }
        Ok(())
    }

    /// Whether a host, with or without a port, names this server.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, "")) => name,
                Some((name, port)) if port.strip_prefix(':').is_some_and(is_port) => name,
                _ => return false,
            },
            None => match host.rsplit_once(':') {
                Some((name, port)) if is_port(port) => name,
                Some(_) => return false,
                None => host,
            },
        };
        let name = name.to_ascii_lowercase();
        let same_address = |ours: &String| match (ours.parse::<IpAddr>(), name.parse::<IpAddr>()) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            _ => *ours == name,
        };
        self.hosts.iter().any(same_address)
    }

    /// Limits the routes to these visitors.
    pub fn guard(&self, router: Router) -> Router {
        let visitors = Arc::new(self.clone());
        let router = match &self.token {
            Some(_) => router.merge(Router::new().route(LOGIN, post(login)).with_state(visitors.clone())),
            None => router,
        };
        router.layer(axum::middleware::from_fn_with_state(visitors, admit))
    }
}

/// The form in which a person types the token.
const LOGIN: &str = "/login";

/// The delay after a wrong token, which slows down guessing.
const AFTER_A_GUESS: Duration = Duration::from_millis(500);

/// The name and the value of the cookie, both made from the token. The browser shares its cookies among all ports of the
/// machine, so each server needs a name of its own, and another server that reads the cookie must not learn the token.
fn cookie(token: &str) -> (String, String) {
    let name = Digest::of(format!("tollgate cookie name\0{token}").as_bytes()).to_string();
    let value = Digest::of(format!("tollgate cookie\0{token}").as_bytes()).to_string();
    (format!("tollgate-{}", &name[..8]), value)
}

fn has_cookie(headers: &HeaderMap, token: &str) -> bool {
    let (name, value) = cookie(token);
    let given = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
    let mut pairs = given.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.any(|(known, given)| known == name && same(given.as_bytes(), value.as_bytes()))
}

#[derive(Deserialize)]
struct LoginForm {
    token: String,
}

async fn login(State(visitors): State<Arc<Visitors>>, Form(form): Form<LoginForm>) -> Response {
    let token = visitors.token.as_deref().unwrap_or_default();
    if !same(form.token.trim().as_bytes(), token.as_bytes()) {
        tokio::time::sleep(AFTER_A_GUESS).await;
        return ask_for_the_token("Wrong token.");
    }
    let (name, value) = cookie(token);
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict");
    ([(SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

/// The login page. It loads nothing and runs no script.
fn ask_for_the_token(sentence: &str) -> Response {
    let policy = "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>tollgate: token</title><main><h1>tollgate</h1><p>{sentence}</p>\
         <form method=\"post\" action=\"{LOGIN}\"><label for=\"token\">Token</label> \
         <input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"current-password\" required autofocus> \
         <button>Log in</button></form></main></html>\n"
    );
    (StatusCode::UNAUTHORIZED, [(CONTENT_SECURITY_POLICY, policy)], Html(page)).into_response()
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// Compares in constant time, so that nobody can guess a token letter by letter.
pub(crate) fn same(given: &[u8], token: &[u8]) -> bool {
    let differ =
        given.iter().zip(token).fold(given.len() ^ token.len(), |differ, (a, b)| differ | usize::from(a ^ b));
    std::hint::black_box(differ) == 0
}

async fn admit(State(visitors): State<Arc<Visitors>>, request: Request, next: Next) -> Response {
    match visitors.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(AccessDenied::Token) if request.method() == Method::POST && request.uri().path() == LOGIN => {
            next.run(request).await
        }
        Err(AccessDenied::Token) if wants_a_page(request.headers()) => {
            ask_for_the_token("This server needs a token.")
        }
        Err(AccessDenied::Host) => {
            (StatusCode::FORBIDDEN, "this `Host` is not a name of this server\n").into_response()
        }
        Err(AccessDenied::Origin) => {
            (StatusCode::FORBIDDEN, "requests from this `Origin` are not allowed\n").into_response()
        }
        Err(AccessDenied::Token) => {
            let challenge = [(WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, "token required: send `Authorization: Bearer TOKEN`\n")
                .into_response()
        }
    }
}

fn wants_a_page(headers: &HeaderMap) -> bool {
    headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(visitors: &Visitors, headers: &[(&str, &str)]) -> Result<(), AccessDenied> {
        let headers = headers.iter().map(|(name, value)| {
            (
                name.parse::<axum::http::HeaderName>().unwrap(),
                value.parse::<axum::http::HeaderValue>().unwrap(),
            )
        });
        visitors.check(&Uri::from_static("/mcp"), &headers.collect())
    }

    #[test]
    fn only_our_own_hosts_and_origins_are_allowed() {
        let visitors = Visitors::new("127.0.0.1:7311".parse().unwrap(), ["Box.local".into()], None).unwrap();
        for host in [
            "localhost",
            "localhost:7311",
            "127.0.0.1:1",
            "[::1]:7311",
            "[::1]",
            "LOCALHOST:80",
            "box.local:7311",
        ] {
            assert_eq!(check(&visitors, &[("host", host)]), Ok(()), "{host}");
        }
        let bad = [
            "",
            "evil.example",
            "evil.example:7311",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:",
            "localhost:x",
            "localhost:99999",
            "[::1",
            "[::1]x",
            "::1",
            "user@localhost",
            "10.0.0.1",
        ];
        for host in bad {
            assert_eq!(check(&visitors, &[("host", host)]), Err(AccessDenied::Host), "{host}");
        }
        assert_eq!(check(&visitors, &[]), Err(AccessDenied::Host));
        for origin in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1"] {
            assert_eq!(check(&visitors, &[("host", "localhost"), ("origin", origin)]), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "localhost",
            "file://localhost",
            "http://localhost@evil.example",
            "http://localhost:1/evil",
            "http://localhost.evil.example",
        ] {
            let answer = check(&visitors, &[("host", "localhost"), ("origin", origin)]);
            assert_eq!(answer, Err(AccessDenied::Origin), "{origin}");
        }
    }

    #[test]
    fn beyond_loopback_a_token_is_required() {
        let everywhere: SocketAddr = "0.0.0.0:7311".parse().unwrap();
        assert_eq!(Visitors::new(everywhere, [], None).unwrap_err(), TokenNeeded);
        assert_eq!(Visitors::new(everywhere, [], Some(String::new())).unwrap_err(), TokenNeeded);
        let visitors = Visitors::new(everywhere, ["box".into()], Some("secret".into())).unwrap();
        let with = |value: &str| check(&visitors, &[("host", "box:7311"), ("authorization", value)]);
        assert_eq!(with("Bearer secret"), Ok(()));
        assert_eq!(with("bearer secret"), Ok(()));
        for wrong in [
            "",
            "secret",
            "Basic secret",
            "Bearer",
            "Bearer ",
            "Bearer secre",
            "Bearer secrets",
            "Bearer Secret",
        ] {
            assert_eq!(with(wrong), Err(AccessDenied::Token), "{wrong}");
        }
        assert_eq!(check(&visitors, &[("host", "box")]), Err(AccessDenied::Token));
        let (name, value) = cookie("secret");
        let with = |cookie: &str| check(&visitors, &[("host", "box"), ("cookie", cookie)]);
        assert_eq!(with(&format!("a=b; {name}={value}; c=d")), Ok(()));
        for wrong in [&format!("{name}=secret"), &format!("{name}="), &format!("other={value}"), &value] {
            assert_eq!(with(wrong), Err(AccessDenied::Token), "{wrong}");
        }
        assert!(!format!("{name}{value}").contains("secret"));
        assert_eq!(
            check(&visitors, &[("host", "0.0.0.0"), ("authorization", "Bearer secret")]),
            Err(AccessDenied::Host)
        );
    }
}

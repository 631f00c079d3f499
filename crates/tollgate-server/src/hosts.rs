//! Which addresses this server has, and which requests come from its own pages.
//!
//! A server on loopback can be reached by every program on the machine, including browsers, which run code of other sites.
//! So the `Host` must be a name of this server: a page that points its own name at 127.0.0.1 has another one. If the
//! request has an `Origin`, as requests from browsers do, it must be exactly the origin of this server: a page of another
//! port of the same machine has another one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The names of one server.
#[derive(Debug, Clone)]
pub struct Hosts {
    /// Its addresses, and the names that every machine has.
    own: Vec<String>,
    /// Additional names. A proxy with TLS may stand in front of these.
    named: Vec<String>,
}

/// Why a request was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongPlace {
    /// The `Host` is missing or is not a name of this server.
    Host,
    /// The `Origin` is not this server.
    Origin,
}

impl IntoResponse for WrongPlace {
    fn into_response(self) -> Response {
        let sentence = match self {
            Self::Host => "this `Host` is not a name of this server\n",
            Self::Origin => "requests from this `Origin` are not allowed\n",
        };
        (StatusCode::FORBIDDEN, sentence).into_response()
    }
}

impl Hosts {
    /// For a server with this address. `names` are additional host names of the server, without a port.
    pub fn new(listen: SocketAddr, names: impl IntoIterator<Item = String>) -> Self {
        let mut own: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
        if !listen.ip().is_unspecified() {
            own.push(listen.ip().to_string());
        }
        Self { own, named: names.into_iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Whether a request with these headers was meant for this server.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), WrongPlace> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        // In HTTP/2 the host is part of the address.
        let host = text(HOST).or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
        let Some(host) = host.filter(|_| headers.get_all(HOST).iter().count() <= 1) else {
            return Err(WrongPlace::Host);
        };
        let is_named = self.is_named(host).ok_or(WrongPlace::Host)?;
        let Some(origin) = text(ORIGIN) else { return Ok(()) };
        let ours = |scheme: &str| origin.eq_ignore_ascii_case(&format!("{scheme}://{host}"));
        if headers.get_all(ORIGIN).iter().count() == 1 && (ours("http") || is_named && ours("https")) {
            Ok(())
        } else {
            Err(WrongPlace::Origin)
        }
    }

    /// Whether a host, with or without a port, is an additional name of this server. `None` if it is not this server.
    fn is_named(&self, host: &str) -> Option<bool> {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']')? {
                (name, "") => name,
                (name, port) if port.strip_prefix(':').is_some_and(is_port) => name,
                _ => return None,
            },
            None => match host.rsplit_once(':') {
                Some((name, port)) if is_port(port) => name,
                Some(_) => return None,
                None => host,
            },
        };
        let name = name.to_ascii_lowercase();
        let same = |ours: &String| match (ours.parse::<IpAddr>(), name.parse::<IpAddr>()) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            _ => *ours == name,
        };
        if self.named.iter().any(same) { Some(true) } else { self.own.iter().any(same).then_some(false) }
    }

    /// Limits the routes to requests that were meant for this server.
    pub fn guard(&self, router: Router) -> Router {
        router.layer(axum::middleware::from_fn_with_state(Arc::new(self.clone()), admit))
    }
}

async fn admit(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    match hosts.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(wrong) => wrong.into_response(),
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&str, &str)]) -> Result<(), WrongPlace> {
        let hosts = Hosts::new("127.0.0.1:7311".parse().unwrap(), ["Box.local".into()]);
        let headers = headers.iter().map(|(name, value)| {
            (
                name.parse::<axum::http::HeaderName>().unwrap(),
                value.parse::<axum::http::HeaderValue>().unwrap(),
            )
        });
        hosts.check(&Uri::from_static("/mcp"), &headers.collect())
    }

    #[test]
    fn only_our_own_hosts_are_allowed() {
        for host in [
            "localhost",
            "localhost:7311",
            "127.0.0.1:1",
            "[::1]:7311",
            "[::1]",
            "LOCALHOST:80",
            "box.local:7311",
        ] {
            assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
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
            assert_eq!(check(&[("host", host)]), Err(WrongPlace::Host), "{host}");
        }
        assert_eq!(check(&[]), Err(WrongPlace::Host));
        let everywhere = Hosts::new("0.0.0.0:7311".parse().unwrap(), []);
        let headers = HeaderMap::from_iter([(HOST, "0.0.0.0".parse().unwrap())]);
        assert_eq!(everywhere.check(&Uri::from_static("/"), &headers), Err(WrongPlace::Host));
    }

    #[test]
    fn only_our_own_origin_is_allowed() {
        for (host, origin) in [
            ("localhost:7311", "http://localhost:7311"),
            ("127.0.0.1:7311", "http://127.0.0.1:7311"),
            ("[::1]:7311", "http://[::1]:7311"),
            ("localhost:8000", "http://localhost:8000"),
            ("box.local", "https://box.local"),
            ("box.local:7311", "http://box.local:7311"),
        ] {
            assert_eq!(check(&[("host", host), ("origin", origin)]), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://localhost",
            "http://localhost:3000",
            "https://localhost:7311",
            "http://127.0.0.1:7311",
            "localhost:7311",
            "file://localhost:7311",
            "http://localhost:7311/",
            "http://localhost:7311@evil.example",
            "http://localhost:7311.evil.example",
        ] {
            let answer = check(&[("host", "localhost:7311"), ("origin", origin)]);
            assert_eq!(answer, Err(WrongPlace::Origin), "{origin}");
        }
        for hosts in [["localhost", "evil.example"], ["evil.example", "localhost"], ["localhost"; 2]] {
            assert_eq!(check(&hosts.map(|host| ("host", host))), Err(WrongPlace::Host), "{hosts:?}");
        }
        let twice =
            [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")];
        assert_eq!(check(&twice), Err(WrongPlace::Origin));
    }
}

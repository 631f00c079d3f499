//! The address of an engine: `etcd://HOST:PORT,HOST:PORT/PREFIX`, or `etcds://` for TLS. Pure.
//!
//! Invariant: no secret is part of an address, because addresses are in the repository's configuration.

use std::net::IpAddr;
use std::path::PathBuf;

use tollgate_base::error::{Fault, Result};

/// The prefix of all keys, if the address has none.
const PREFIX: &str = "tollgate";

/// Where the engine is, and which part of it is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdUrl {
    /// The address without its parameters, for messages.
    pub shown: String,
    /// The nodes, each as `HOST:PORT`.
    pub nodes: Vec<String>,
    /// All keys begin with this and a slash.
    pub prefix: String,
    /// The files for TLS; `None` without TLS.
    pub tls: Option<TlsFiles>,
}

/// The PEM files of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates that may have signed those of the nodes.
    pub ca: PathBuf,
    /// Our own certificate and its key, for mutual TLS.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl EtcdUrl {
    /// Whether this is the address of an etcd.
    pub fn is_one(url: &str) -> bool {
        url.starts_with("etcd://") || url.starts_with("etcds://")
    }

    /// Reads an address.
    pub fn parse(url: &str) -> Result<Self> {
        let invalid =
            |why: &str| Fault::invalid(format!("`{}` is not an address of etcd: {why}", shown(url)));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it has no `://`"))?;
        let secure = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(invalid("it begins with `etcd://` or `etcds://`")),
        };
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (nodes, prefix) = place.split_once('/').unwrap_or((place, PREFIX));
        if nodes.contains('@') {
            return Err(invalid(
                "it must not name a user or a password: set `TOLLGATE_STORE_USER` and `TOLLGATE_STORE_PASSWORD`",
            ));
        }
        let nodes: Vec<String> = nodes.split(',').map(str::to_owned).collect();
        for node in &nodes {
            let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
            if !node.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && is_port(port)) {
                return Err(invalid("each node is `HOST:PORT`, with commas between them"));
            }
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let prefix = prefix.trim_end_matches('/');
        if prefix.is_empty() || prefix.len() > 200 || !prefix.chars().all(plain) {
            return Err(invalid("after the nodes comes `/PREFIX`, in letters, digits and `-_./`"));
        }
        let (mut ca, mut cert, mut key) = (None, None, None);
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("ca", path)) => ca = Some(PathBuf::from(path)),
                Some(("cert", path)) => cert = Some(PathBuf::from(path)),
                Some(("key", path)) => key = Some(PathBuf::from(path)),
                _ => return Err(invalid("its parameters are `ca`, `cert` and `key`, each with a file")),
            }
        }
        let tls = match (secure, ca, cert, key) {
            (true, Some(ca), Some(cert), Some(key)) => Some(TlsFiles { ca, own: Some((cert, key)) }),
            (true, Some(ca), None, None) => Some(TlsFiles { ca, own: None }),
            (true, None, ..) => return Err(invalid("`etcds://` needs `?ca=FILE`")),
            (true, ..) => return Err(invalid("`cert` and `key` come together")),
            (false, None, None, None) => None,
            (false, ..) => return Err(invalid("`ca`, `cert` and `key` need `etcds://`")),
        };
        Ok(Self { shown: shown(url), nodes, prefix: prefix.to_owned(), tls })
    }

    /// Whether what is sent to the nodes, such as a password, crosses a network without encryption.
    pub fn is_unencrypted(&self) -> bool {
        let is_here = |node: &String| {
            let host = node.rsplit_once(':').map_or("", |(host, _)| host);
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        self.tls.is_none() && !self.nodes.iter().all(is_here)
    }
}

/// The address without parameters and without what might be a secret.
fn shown(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_nodes_and_a_prefix() {
        let url = EtcdUrl::parse("etcd://a:1,b:2,[::1]:3/team/one/").unwrap();
        assert_eq!(url.nodes, ["a:1", "b:2", "[::1]:3"]);
        assert_eq!((url.prefix.as_str(), &url.tls), ("team/one", &None));
        assert_eq!(EtcdUrl::parse("etcd://a:1").unwrap().prefix, "tollgate");
        let secure = EtcdUrl::parse("etcds://a:1/x?ca=ca.pem&cert=c.pem&key=k.pem").unwrap();
        let own = Some(("c.pem".into(), "k.pem".into()));
        assert_eq!(secure.tls, Some(TlsFiles { ca: "ca.pem".into(), own }));
        assert_eq!(secure.shown, "etcds://a:1/x");
    }

    #[test]
    fn only_a_connection_on_this_machine_needs_no_encryption() {
        for (url, is_unencrypted) in [
            ("etcd://127.0.0.1:1,[::1]:2,localhost:3/x", false),
            ("etcd://127.0.0.1:1,192.0.2.1:2/x", true),
            ("etcd://localhost.example:1/x", true),
            ("etcd://[2001:db8::1]:1/x", true),
            ("etcds://192.0.2.1:1/x?ca=ca.pem", false),
        ] {
            assert_eq!(EtcdUrl::parse(url).unwrap().is_unencrypted(), is_unencrypted, "{url}");
        }
    }

    #[test]
    fn what_is_not_an_address_is_refused_and_no_secret_is_repeated() {
        for (bad, why) in [
            ("http://a:1", "begins with"),
            ("etcd://a", "HOST:PORT"),
            ("etcd://a:0/x", "HOST:PORT"),
            ("etcd://a:1,/x", "HOST:PORT"),
            ("etcd://a:1//", "PREFIX"),
            ("etcd://a:1/a b", "PREFIX"),
            ("etcd://a:1/x?ca=f", "etcds"),
            ("etcds://a:1/x", "ca=FILE"),
            ("etcds://a:1/x?ca=f&cert=c", "together"),
            ("etcds://a:1/x?ca=f&password=hunter2", "parameters"),
            ("etcd://ada:hunter2@a:1/x", "TOLLGATE_STORE_PASSWORD"),
        ] {
            let said = EtcdUrl::parse(bad).unwrap_err().to_string();
            assert!(said.contains(why) && !said.contains("hunter2"), "{bad}: {said}");
        }
    }
}

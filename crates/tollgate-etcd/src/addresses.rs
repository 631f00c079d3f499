//! The addresses of the nodes.
//!
//! The HTTP library resolves them before every request, in a new thread, because resolving a name may take long. That would
//! cost more than the rest of our side of a claim. So a numeric address is not resolved, and a resolved name is cached for a
//! moment: long enough for a busy process, short enough for a node that moves.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// How long an address is remembered.
const MOMENT: Duration = Duration::from_secs(10);

/// The addresses of the nodes that were asked for lately.
#[derive(Debug, Default)]
pub(crate) struct NodeAddresses {
    asks: DefaultResolver,
    known: Mutex<HashMap<String, (Instant, Vec<SocketAddr>)>>,
}

impl NodeAddresses {
    fn known(&self, host: &str) -> Option<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Some(vec![address]);
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(host).filter(|(since, _)| since.elapsed() < MOMENT).map(|(_, known)| known.clone())
    }
}

impl Resolver for NodeAddresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        // The address of a node always has a port.
        let host = uri.authority().map_or("", |authority| authority.as_str());
        if let Some(known) = self.known(host) {
            let mut resolved = self.empty();
            known.into_iter().for_each(|address| resolved.push(address));
            return Ok(resolved);
        }
        let resolved = self.asks.resolve(uri, config, timeout)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(host.to_owned(), (Instant::now(), resolved.iter().copied().collect()));
        Ok(resolved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_for_once_in_a_moment_and_numbers_never() {
        let addresses = NodeAddresses::default();
        let timeout = || NextTimeout { after: Duration::from_secs(30).into(), ..NextTimeout::default() };
        let resolve = |uri: &'static str| {
            let found = addresses.resolve(&Uri::from_static(uri), &Config::default(), timeout()).unwrap();
            found.iter().copied().collect::<Vec<_>>()
        };
        for numbers in ["127.0.0.1:2379", "[::1]:2379"] {
            assert_eq!(addresses.known(numbers), Some(vec![numbers.parse().unwrap()]));
        }
        assert_eq!(resolve("http://127.0.0.1:2379/v3"), ["127.0.0.1:2379".parse().unwrap()]);
        assert_eq!(addresses.known("localhost:2379"), None);
        let asked = resolve("http://localhost:2379/v3");
        assert_eq!(addresses.known("localhost:2379"), Some(asked.clone()));
        let elsewhere = vec!["127.0.0.9:9".parse().unwrap()];
        let remember = |since: Instant| {
            addresses.known.lock().unwrap().insert("localhost:2379".to_owned(), (since, elsewhere.clone()));
        };
        remember(Instant::now());
        assert_eq!(resolve("http://localhost:2379/v3"), elsewhere, "it is remembered");
        remember(Instant::now().checked_sub(MOMENT).unwrap());
        assert_eq!(resolve("http://localhost:2379/v3"), asked, "it is asked for again");
    }
}

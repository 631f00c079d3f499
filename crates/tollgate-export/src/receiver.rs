//! An HTTP endpoint that takes events.
//!
//! Invariants: one request is under way at a time. What the receiver does not take is offered again until it does, or until
//! patience is over; what it refuses for good ends the export, and the place stays before it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use tollgate_base::authorities;
use tollgate_base::error::{At, Fault, Result};
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::notice::ExportNotice;
use crate::shipment::Shipment;

/// How long a receiver may take for one request.
const PER_REQUEST: Duration = Duration::from_secs(30);

/// The first pause after a failure, and the longest: a receiver that restarts is found soon, and one that is down for a day
/// is not asked often.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest pause that a receiver may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// How much of an answer is read: more than any message.
const ANSWER: u64 = 64 * 1024;

/// How an endpoint is reached.
#[derive(Debug, Clone, Default)]
pub struct ReceiverOptions {
    /// Headers of every request, such as a login.
    pub headers: Vec<(String, String)>,
    /// A file with the authorities to trust, in PEM. Without it, those that this machine trusts.
    pub authorities: Option<PathBuf>,
    /// How long a request that is not taken is repeated. Without it, forever.
    pub patience: Option<Duration>,
}

/// An HTTP endpoint that takes events.
pub struct Receiver {
    agent: ureq::Agent,
    endpoint: String,
    /// The endpoint for messages, without a query, which may have a secret.
    shown: String,
    headers: Vec<(String, String)>,
    patience: Option<Duration>,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    /// The receiver took it, and answered this.
    Taken(Vec<u8>),
    /// It must be smaller.
    TooLarge,
}

/// Why a request was not taken.
enum PostFailure {
    /// It may be taken later, after a pause if the receiver named one.
    ForNow(String, Option<Duration>),
    /// It will never be taken.
    ForGood(String),
}

impl Receiver {
    /// Connects to nothing yet.
    pub fn new(endpoint: &str, options: ReceiverOptions) -> Result<Self> {
        let invalid = |why: &str| Fault::invalid(format!("`{}` is not an endpoint: {why}", shown(endpoint)));
        let uri: Uri = endpoint.parse().map_err(|_| invalid("it is not a URL"))?;
        let authority = uri.authority().ok_or_else(|| invalid("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("put the login into `TOLLGATE_EXPORT_HEADERS`, not into the URL"));
        }
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            // A redirect could send the events, and the login, to somebody else.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent("tollgate")
            .timeout_global(Some(options.patience.map_or(PER_REQUEST, |patience| patience.min(PER_REQUEST))));
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => config = config.tls_config(tls(options.authorities.as_deref())?),
            _ => return Err(invalid("it begins with neither `http://` nor `https://`")),
        }
        Ok(Self {
            agent: config.build().new_agent(),
            endpoint: endpoint.to_owned(),
            shown: shown(endpoint).to_owned(),
            headers: options.headers,
            patience: options.patience,
        })
    }

    /// Offers one request until it is taken.
    pub(crate) fn post(
        &self,
        shipment: &Shipment,
        tell: &mut dyn FnMut(&ExportNotice),
    ) -> Result<PostOutcome> {
        let url = match shipment.path {
            "" => self.endpoint.clone(),
            path => format!("{}/{path}", self.endpoint.trim_end_matches('/')),
        };
        let body = shipment.body();
        let (begun, mut pause, mut waited) = (Instant::now(), FIRST_PAUSE, false);
        loop {
            let (why, asked) = match self.try_post(&url, shipment.media_type, &body) {
                Ok(posted) => {
                    if waited {
                        tell(&ExportNotice::Resumed);
                    }
                    return Ok(posted);
                }
                Err(PostFailure::ForGood(what)) => return Err(self.undelivered(what)),
                Err(PostFailure::ForNow(why, asked)) => (why, asked),
            };
            let next = asked.map_or_else(|| jittered(pause), |asked| asked.min(LONGEST_ASKED));
            if self.patience.is_some_and(|patience| begun.elapsed() + next > patience) {
                return Err(self.undelivered(why));
            }
            if !std::mem::replace(&mut waited, true) {
                tell(&ExportNotice::Waiting { why, pause: next });
            }
            sleep(next);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn try_post(
        &self,
        url: &str,
        media_type: &str,
        body: &[u8],
    ) -> std::result::Result<PostOutcome, PostFailure> {
        let mut request = self.agent.post(url).header("Content-Type", media_type);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let lost = |error: ureq::Error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::TooManyRedirects => {
                PostFailure::ForGood(error.to_string())
            }
            error => PostFailure::ForNow(error.to_string(), None),
        };
        let mut answer = request.send(body).map_err(lost)?;
        let status = answer.status();
        let asked =
            answer.headers().get("retry-after").and_then(|value| value.to_str().ok()).and_then(retry_after);
        let text = answer.body_mut().with_config().limit(ANSWER).read_to_vec();
        if status.is_success() {
            // The request was taken, even if the rest of the answer is lost.
            return Ok(PostOutcome::Taken(text.unwrap_or_default()));
        }
        let text = text.unwrap_or_default();
        let excerpt: String = String::from_utf8_lossy(&text).chars().take(200).collect();
        let what = format!("HTTP {status} {}", excerpt.trim().escape_debug()).trim_end().to_owned();
        match status.as_u16() {
            413 => Ok(PostOutcome::TooLarge),
            408 | 429 | 502 | 503 | 504 => Err(PostFailure::ForNow(what, asked)),
            _ => Err(PostFailure::ForGood(what)),
        }
    }

    pub(crate) fn undelivered(&self, what: String) -> Fault {
        Fault::Undelivered { endpoint: self.shown.clone(), what }
    }
}

fn shown(endpoint: &str) -> &str {
    endpoint.split(['?', '#']).next().unwrap_or_default()
}

/// Between half the pause and all of it, so that the exports of many machines do not come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    pause / 2 + (pause / 2) * (nanos % 1000) / 1000
}

/// The pause that a receiver asks for: in seconds, or until a date.
fn retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default())
}

/// The TLS settings: ring for the cryptography, and the authorities in this file or of this machine.
fn tls(file: Option<&Path>) -> Result<TlsConfig> {
    let path = file.or(authorities::of_this_machine()).ok_or_else(|| {
        Fault::invalid("this machine has no file with trusted authorities: name one with `--ca FILE`")
    })?;
    let bytes = std::fs::read(path).at("read", path)?;
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    let trusted: Vec<Certificate<'static>> = parse_pem(&bytes).filter_map(certificate).collect();
    if trusted.is_empty() {
        return Err(Fault::invalid(format!("`{}` has no certificate in PEM", path.display())));
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(trusted)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_that_a_receiver_asks_for_is_in_seconds_or_a_date() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:01 GMT"), Some(Duration::ZERO));
        let soon = jiff::fmt::rfc2822::to_string(&(jiff::Zoned::now() + jiff::SignedDuration::from_secs(90)));
        let asked = retry_after(&soon.unwrap()).unwrap();
        assert!((80..=90).contains(&asked.as_secs()), "{asked:?}");
        assert_eq!(retry_after("soon"), None);
    }

    #[test]
    fn an_endpoint_is_a_url_without_a_login() {
        for bad in ["", "localhost:4318", "ftp://host/", "http://", "http://user:secret@host/"] {
            let fault = Receiver::new(bad, ReceiverOptions::default()).err().unwrap();
            assert_eq!(fault.code(), "INVALID", "{bad}");
        }
        let receiver = Receiver::new("http://host/in?key=secret", ReceiverOptions::default()).unwrap();
        assert!(!receiver.undelivered("x".into()).to_string().contains("secret"));
    }
}

//! Why one node did not do what was asked: what it said, or how the connection failed. Pure.

use tollgate_base::visible::plain;

use crate::message::ErrorAnswer;

/// The longest excerpt of a text for people, in bytes. The longest that etcd sends has about 400.
const MAX_EXCERPT: usize = 600;

/// Codes of gRPC.
pub(crate) mod code {
    pub(crate) const CANCELLED: i64 = 1;
    pub(crate) const UNKNOWN: i64 = 2;
    pub(crate) const INVALID_ARGUMENT: i64 = 3;
    pub(crate) const DEADLINE: i64 = 4;
    pub(crate) const NOT_FOUND: i64 = 5;
    pub(crate) const DENIED: i64 = 7;
    pub(crate) const EXHAUSTED: i64 = 8;
    pub(crate) const PRECONDITION: i64 = 9;
    pub(crate) const ABORTED: i64 = 10;
    pub(crate) const INTERNAL: i64 = 13;
    pub(crate) const UNAVAILABLE: i64 = 14;
    pub(crate) const UNAUTHENTICATED: i64 = 16;
}

/// Why one node did not do what was asked.
pub(crate) enum NodeFailure {
    /// It answered with an error.
    Said { code: i64, message: String },
    /// The question was sent, the answer did not arrive.
    Lost(String),
    /// It could not be asked.
    Unsent(String),
}

pub(crate) type NodeResult<T> = Result<T, NodeFailure>;

impl NodeFailure {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Said { message, .. } => message,
            Self::Lost(why) | Self::Unsent(why) => why,
        }
    }
}

/// A call that only asks has changed nothing, whether or not it arrived.
pub(crate) fn unsent(failed: NodeFailure) -> NodeFailure {
    match failed {
        NodeFailure::Lost(why) => NodeFailure::Unsent(why),
        failed => failed,
    }
}

pub(crate) fn lost(error: ureq::Error) -> NodeFailure {
    let was_not_sent = match &error {
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::Tls(_) => true,
        ureq::Error::Rustls(_) => true,
        _ => false,
    };
    if was_not_sent { NodeFailure::Unsent(error.to_string()) } else { NodeFailure::Lost(error.to_string()) }
}

/// Whether the same call may succeed a moment later, perhaps on another node. It may have been carried out.
pub(crate) fn may_pass(code: i64, message: &str) -> bool {
    match code {
        code::CANCELLED | code::UNKNOWN | code::DEADLINE | code::ABORTED => true,
        code::INTERNAL | code::UNAVAILABLE => true,
        code::EXHAUSTED => message.contains("too many requests"),
        _ => false,
    }
}

/// Whether etcd, or gRPC below it, does not take a request because of its size.
pub(crate) fn is_too_large(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["too large", "larger than max"].iter().any(|words| message.contains(words))
}

pub(crate) fn said(status: u16, text: &[u8]) -> NodeFailure {
    let read: ErrorAnswer = serde_json::from_slice(text).unwrap_or_default();
    let message = [read.message, read.error].into_iter().find(|text| !text.is_empty());
    let message = message.unwrap_or_else(|| excerpt(status, text));
    let code = match (read.code, status) {
        (0, 500..) => code::UNAVAILABLE,
        (0, 401) => code::UNAUTHENTICATED,
        (code, _) => code,
    };
    NodeFailure::Said { code, message }
}

/// The beginning of an answer that is not JSON, on one line: some faults of etcd are plain text for people.
fn excerpt(status: u16, text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_EXCERPT)]);
    let words: Vec<_> = text.split_whitespace().collect();
    match words.is_empty() {
        true => format!("HTTP status {status}"),
        false => format!("HTTP status {status}: {}", plain(&words.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_for_people_is_shown_on_one_line_and_only_its_beginning() {
        let text = |body: &[u8]| said(400, body).text();
        assert_eq!(text(br#"{"error":"no","message":"no","code":3}"#), "no");
        assert_eq!(text(b""), "HTTP status 400");
        assert_eq!(text(b"one\n\n  two\x1b[2J\xff\n"), "HTTP status 400: one two\\u{1b}[2J\u{fffd}");
        assert!(text(&[b'x'; 10_000]).len() < 700);
    }
}

//! The result of a tool call.

use serde_json::Value;

/// The result of a tool call.
#[derive(Debug)]
pub(crate) enum Came {
    /// The tool ran, and showed this.
    Ran(String),
    /// It was blocked for this reason.
    Blocked(String),
}

impl Came {
    #[track_caller]
    pub(crate) fn ran(self) -> String {
        match self {
            Self::Ran(output) => output,
            Self::Blocked(reason) => panic!("blocked: {reason}"),
        }
    }

    #[track_caller]
    pub(crate) fn blocked(self) -> String {
        match self {
            Self::Blocked(reason) => reason,
            Self::Ran(output) => panic!("it ran: {output}"),
        }
    }

    /// Blocked, with a payload of this kind as the first line.
    #[track_caller]
    pub(crate) fn refused(self, error_type: &str) -> Value {
        let reason = self.blocked();
        let payload: Value = serde_json::from_str(reason.lines().next().unwrap()).unwrap();
        assert_eq!(payload["error_type"], error_type, "{reason}");
        assert_eq!(payload.as_object().unwrap().len(), 5, "{reason}");
        assert!(reason.lines().count() > 1, "{reason}");
        payload
    }
}

//! The answer to a tool call, independent of the protocol.

use serde_json::{Map, Value, json};
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::guard::Refused;

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolAnswer {
    pub(crate) content: Vec<Item>,
    /// What programs read. A call that fails for another reason than a refusal has none.
    pub(crate) structured: Option<Value>,
    pub(crate) failed: bool,
    pub(crate) meta: Map<String, Value>,
}

/// One item that the model sees.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Text(String),
    Image { data: String, mime_type: &'static str },
    Audio { data: String, mime_type: &'static str },
    Blob { data: String, mime_type: &'static str, uri: String },
}

impl ToolAnswer {
    /// Text. Programs find it as `content`.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::shown(vec![Item::Text(text.clone())], json!({ "content": text }))
    }

    /// A value. The model sees it as JSON.
    pub(crate) fn value(value: Value) -> Self {
        Self::shown(vec![Item::Text(value.to_string())], value)
    }

    pub(crate) fn shown(content: Vec<Item>, structured: Value) -> Self {
        Self { content, structured: Some(structured), failed: false, meta: Map::new() }
    }

    /// A failed call. The text says why, and what to do.
    pub(crate) fn failure(text: impl Into<String>) -> Self {
        Self { content: vec![Item::Text(text.into())], structured: None, failed: true, meta: Map::new() }
    }

    /// A refusal: the payload for programs, and one report per file for the model.
    pub(crate) fn refused(refused: &Refused) -> Self {
        let report = |report| Item::Text(serde_json::to_string(&report).unwrap_or_default());
        Self {
            content: refused.reports().into_iter().map(report).collect(),
            structured: serde_json::to_value(refused.payload()).ok(),
            failed: true,
            meta: Map::new(),
        }
    }

    /// Adds the hash of the file that was read or written.
    pub(crate) fn with_sha256(self, sha256: Option<Digest>) -> Self {
        self.with_meta("sha256", json!(sha256))
    }

    pub(crate) fn with_meta(mut self, key: &str, value: Value) -> Self {
        self.meta.insert(key.to_owned(), value);
        self
    }
}

impl From<Fault> for ToolAnswer {
    fn from(fault: Fault) -> Self {
        match fault.hint() {
            Some(hint) => Self::failure(format!("{fault}\nhint: {hint}")),
            None => Self::failure(fault.to_string()),
        }
    }
}

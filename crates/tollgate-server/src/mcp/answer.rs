//! The answer to a tool call, independent of the protocol.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::guard::Refused;

/// The most bytes of one answer as JSON. Text is in it twice, for the model and for programs, so this is a file of 16 MiB:
/// the largest that `edit_file` changes, and several times what any model reads at once.
pub(crate) const LARGEST: usize = 32 << 20;

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

    /// Adds notes for the model, as the last item. Programs get what they would get without them.
    pub(crate) fn with_notes(mut self, notes: String) -> Self {
        if !notes.is_empty() {
            self.content.push(Item::Text(notes));
        }
        self
    }

    /// The size of the answer as JSON, in bytes. `None` if it is larger than [`LARGEST`]. JSON can be six times as large as
    /// what it holds: a NUL byte becomes `\u0000`.
    pub(crate) fn encoded(&self) -> Option<usize> {
        let mut room = JsonRoom(LARGEST);
        self.encode_to(&mut room).ok()?;
        Some(LARGEST - room.0)
    }

    fn encode_to(&self, room: &mut JsonRoom) -> serde_json::Result<()> {
        for item in &self.content {
            match item {
                Item::Text(text) => room.take(text)?,
                Item::Image { data, .. } | Item::Audio { data, .. } => room.take(data)?,
                Item::Blob { data, uri, .. } => {
                    room.take(data)?;
                    room.take(uri)?;
                }
            }
        }
        room.take(&self.structured)?;
        room.take(&self.meta)
    }

    /// The failure that takes the place of an answer that is too large.
    pub(crate) fn too_large() -> Self {
        let most = LARGEST >> 20;
        Self::failure(format!(
            "the answer is larger than {most} MiB as JSON, which holds text twice and some characters in six bytes\n\
             hint: ask for less: lines of a file with `head` or `tail`, fewer files in one call, a folder further down, a \
             narrower pattern"
        ))
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

/// The bytes that an answer may still have. Nothing is kept of what is written to it.
struct JsonRoom(usize);

impl JsonRoom {
    fn take(&mut self, value: &impl Serialize) -> serde_json::Result<()> {
        serde_json::to_writer(self, value)
    }
}

impl io::Write for JsonRoom {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_an_answer_is_its_size_as_json() {
        // Around the text: two quotes, then `{"content":""}` and the empty `{}` of the meta data.
        let around = 2 + 14 + 2;
        let size = |text: String| ToolAnswer::text(text).encoded();
        assert_eq!(size("abc".into()), Some(6 + around));
        assert_eq!(size("\0".into()), Some(12 + around));
        let most = (LARGEST - around) / 2;
        assert_eq!(size("x".repeat(most)), Some(LARGEST));
        assert_eq!(size("x".repeat(most + 1)), None);
        assert_eq!(size("\0".repeat(most / 6 + 1)), None);
        let item = |data: String| Item::Blob { data, mime_type: "x/y", uri: String::new() };
        assert_eq!(ToolAnswer::shown(vec![item("x".repeat(LARGEST))], json!({})).encoded(), None);
    }
}

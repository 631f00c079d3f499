//! Encoded events, ready to be delivered: what a receiver gets in one request, and the same as lines of a file.

/// What a receiver gets in one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shipment {
    /// What is added to the address of the receiver.
    pub(crate) path: &'static str,
    /// The media type of the request's body.
    pub(crate) media_type: &'static str,
    /// JSON texts, each without a newline.
    pub(crate) items: Vec<String>,
    pub(crate) form: BodyForm,
}

/// How the items become one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyForm {
    /// One after the other, each on its own line.
    Lines,
    /// As a JSON list.
    List,
}

impl Shipment {
    /// Each item on its own line, for files and streams.
    pub(crate) fn lines(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.items.iter().map(|item| item.len() + 1).sum());
        for item in &self.items {
            bytes.extend_from_slice(item.as_bytes());
            bytes.push(b'\n');
        }
        bytes
    }

    /// The body of the request.
    pub(crate) fn body(&self) -> Vec<u8> {
        match self.form {
            BodyForm::Lines => self.lines(),
            BodyForm::List => format!("[{}]", self.items.join(",")).into_bytes(),
        }
    }
}

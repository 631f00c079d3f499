//! A word of a command.

/// A word of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    /// Its value is known.
    Text {
        /// The value.
        text: String,
        /// If the word is a pattern: the value with its quoted characters escaped.
        pattern: Option<String>,
    },
    /// The name of a file with what another command prints, if that is certain: `<(...)`.
    Substituted(Option<String>),
    /// Its value is not in the text.
    Unknown,
}

impl Word {
    pub(super) fn text(text: &str) -> Self {
        Self::Text { text: text.to_owned(), pattern: None }
    }

    pub(super) fn into_text(self) -> Option<String> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Substituted(_) | Self::Unknown => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Substituted(_) | Self::Unknown => None,
        }
    }
}

/// Whether a part of a word is inside double quotes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Quotes {
    Inside,
    Outside,
}

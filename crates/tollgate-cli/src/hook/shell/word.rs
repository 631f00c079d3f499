//! A word of a command.

/// A word of a command.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Word {
    /// The word as it is in the text.
    pub(super) raw: String,
    /// Its value, if the text alone determines it.
    pub(super) value: Option<String>,
    /// If it is a pattern of file names: the value with its quoted characters escaped. Braces, as in `{a,b}.txt`, count as `*`.
    pub(super) pattern: Option<String>,
}

impl Word {
    pub(super) fn text(text: &str) -> Self {
        Self { raw: text.to_owned(), value: Some(text.to_owned()), pattern: None }
    }

    pub(super) fn unknown() -> Self {
        Self::default()
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// Whether its value is one of these.
    pub(super) fn is(&self, texts: &[&str]) -> bool {
        self.as_text().is_some_and(|text| texts.contains(&text))
    }

    /// The name and the value of `NAME=VALUE` and `NAME+=VALUE`. An unknown value is `None`.
    pub(super) fn assignment(&self) -> Option<(&str, Option<&str>)> {
        let (name, raw) = self.raw.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        let name = name.split('[').next().unwrap_or(name);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let value = self.as_text().and_then(|text| text.split_once('=')).map(|(_, value)| value);
        (starts && name.chars().all(is_name)).then_some((name, value.or(raw.is_empty().then_some(""))))
    }
}

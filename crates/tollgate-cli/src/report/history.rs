//! Changes of the past, and how large they are.

use serde_json::{Value, json};
use tollgate::Digest;
use tollgate::history::blame::Writer;
use tollgate::history::step::Step;
use tollgate_base::working_tree::BlamedCommit;

/// The steps that were made as one, and their size.
pub(crate) struct ListedChange {
    /// At least one.
    pub(crate) steps: Vec<Step>,
    pub(crate) size: Size,
}

/// Changes and their diffs.
pub(crate) struct ShownChanges<'a> {
    pub(crate) what: &'a str,
    /// The changes, the oldest first. At least one.
    pub(crate) steps: Vec<&'a Step>,
    pub(crate) files: Vec<FileDiff>,
}

/// What there is to say of the difference between two contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// The lines that were added and removed.
    Lines { added: usize, removed: usize },
    /// One of them is not text, or too large.
    NotText,
    /// One of them is a symbolic link, which has no text.
    Link,
    /// The bytes of one of them are no longer kept.
    NotKept,
}

impl Size {
    pub(crate) fn sum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Lines { added: a, removed: r }, Self::Lines { added, removed }) => {
                Self::Lines { added: a + added, removed: r + removed }
            }
            (Self::Lines { .. }, unknown) | (unknown, _) => unknown,
        }
    }

    pub(crate) fn put(self, json: &mut Value) {
        let (added, removed, why) = match self {
            Self::Lines { added, removed } => (Some(added), Some(removed), None),
            Self::NotText => (None, None, Some("not_text")),
            Self::Link => (None, None, Some("link")),
            Self::NotKept => (None, None, Some("not_kept")),
        };
        json["added"] = added.into();
        json["removed"] = removed.into();
        if let Some(why) = why {
            json["unknown"] = why.into();
        }
    }
}

/// The difference of two contents of a file.
#[derive(Debug)]
pub(crate) struct FileDiff {
    /// As the ledger names it.
    pub(crate) path: String,
    pub(crate) before: Option<Digest>,
    pub(crate) after: Option<Digest>,
    pub(crate) size: Size,
    /// `None` if the size is not known.
    pub(crate) diff: Option<String>,
}

impl FileDiff {
    pub(crate) fn json(&self) -> Value {
        let mut json =
            json!({"path": self.path, "before": self.before, "after": self.after, "diff": self.diff});
        self.size.put(&mut json);
        json
    }
}

/// A line of a file, and who wrote it.
pub(crate) struct BlamedLine {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) text: String,
    pub(crate) writer: Writer,
    /// The commit of a line that is older than the first guarded change.
    pub(crate) commit: Option<BlamedCommit>,
}

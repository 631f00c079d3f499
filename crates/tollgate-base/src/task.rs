//! The words that describe a task, shared by the vault and the ledger: its name, its state, and how an attempt is made
//! and ends. Pure.
//!
//! Invariant: a [`TaskName`] is one component of a path, ends in `.md`, is visible (no leading dot), has no control
//! characters, and fits into a file name. So it needs no further check wherever it is joined to a folder or printed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Fault, Result};
use crate::words::words;

/// The longest file name that Linux file systems take.
const LONGEST: usize = 255;

/// The name of a task: the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct TaskName(Arc<str>);

impl TaskName {
    /// Takes a file name exactly as it is in a folder. Does not add `.md`.
    pub fn of_file(name: &str) -> Result<Self> {
        let faults = [
            (name.is_empty() || name == ".md", "it is empty"),
            (name.len() > LONGEST, "it is longer than 255 bytes"),
            (name.contains('/'), "it has a `/`"),
            (name.chars().any(char::is_control), "it has a control character"),
            (name.starts_with('.'), "it starts with a dot"),
            (!name.ends_with(".md"), "it does not end in `.md`"),
        ];
        let Some((_, wrong)) = faults.into_iter().find(|(found, _)| *found) else {
            return Ok(Self(name.into()));
        };
        let shown: String = name.chars().take(80).collect();
        Err(Fault::invalid(format!("`{}` cannot be the name of a task: {wrong}", shown.escape_debug())))
    }

    /// The file's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without `.md`.
    pub fn stem(&self) -> &str {
        self.0.strip_suffix(".md").unwrap_or(&self.0)
    }

    /// Another name for the task, for a folder where its own name is taken: `x.md` becomes `x.<word>.md`. A long name is
    /// cut so that the result fits.
    pub fn beside(&self, word: &str) -> Self {
        let suffix = format!(".{word}.md");
        let mut end = self.stem().len().min(LONGEST - suffix.len());
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        Self(format!("{}{suffix}", &self.0[..end]).into())
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for TaskName {
    type Err = Fault;

    /// Parses a name with or without `.md`.
    fn from_str(text: &str) -> Result<Self> {
        if text.ends_with(".md") { Self::of_file(text) } else { Self::of_file(&format!("{text}.md")) }
    }
}

impl TryFrom<String> for TaskName {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self> {
        Self::of_file(&text)
    }
}

words! {
    /// The states of a task, in the order in which a task passes through them. Each is a folder of the vault.
    State {
        /// The task waits for an agent to claim it.
        NeedsAction = "Needs_Action",
        /// An agent works on the task.
        InProgress = "In_Progress",
        /// The task waits for a person's decision.
        PendingApproval = "Pending_Approval",
        /// A person approved the task; it waits for an agent that may execute it.
        Approved = "Approved",
        /// The task is done.
        Done = "Done",
        /// The task will not be done: a person rejected it, or too many attempts failed.
        Rejected = "Rejected",
    }
}

impl State {
    /// Whether a task stays here unless a person moves it.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Rejected)
    }

    /// Whether a task waits here to be claimed.
    pub fn is_claimable(self) -> bool {
        matches!(self, Self::NeedsAction | Self::Approved)
    }
}

impl FromStr for State {
    type Err = Fault;

    /// Parses the name of the folder. Case, `_` and `-` do not matter.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let plain = |text: &str| text.replace(['_', '-', ' '], "").to_ascii_lowercase();
        let wanted = plain(text);
        Self::ALL.into_iter().find(|state| plain(state.as_str()) == wanted).ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|state| format!("`{state}`")).collect();
            Fault::invalid(format!("`{}` is not a state: use {}", text.escape_debug(), all.join(", ")))
        })
    }
}

words! {
    /// What the owner does with the task.
    Mode {
        /// Execute it.
        Execute = "execute",
        /// Write a draft for a person to approve.
        Draft = "draft",
    }
}

/// How long a claim lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tenure {
    /// While the owner lives. The store knows how to tell, for example by a kernel lock.
    Held,
    /// Until this time, unless the owner renews the claim.
    Leased(Timestamp),
}

words! {
    /// How an attempt ended.
    Verdict {
        /// The work is done.
        Success = "success",
        /// The work is not done.
        Failure = "failure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_visible_component() {
        for (text, name) in
            [("x", "x.md"), ("x.md", "x.md"), ("Besuch bei Ö.md", "Besuch bei Ö.md"), ("a.b", "a.b.md")]
        {
            assert_eq!(text.parse::<TaskName>().unwrap().as_str(), name);
        }
        let long = format!("{}.md", "x".repeat(252));
        assert_eq!(TaskName::of_file(&long).unwrap().as_str().len(), 255);
        for bad in ["", ".md", "a/b", "../x", "..", ".hidden", "a\nb", "a\0b", "a\x1b[31m", &"x".repeat(253)]
        {
            let error = bad.parse::<TaskName>().unwrap_err().to_string();
            assert!(!error.contains(|c: char| c.is_control()), "{error:?} is safe to print");
        }
        assert!(TaskName::of_file("x.txt").is_err());
    }

    #[test]
    fn the_name_beside_fits() {
        let name: TaskName = "x".parse().unwrap();
        assert_eq!(name.beside("c-1").as_str(), "x.c-1.md");
        let long = TaskName::of_file(&format!("{}.md", "ö".repeat(126))).unwrap();
        let beside = long.beside("c-0123456789abcdef");
        assert!(beside.as_str().len() <= 255 && TaskName::of_file(beside.as_str()).is_ok());
    }

    #[test]
    fn states_are_read_as_people_write_them() {
        for (text, state) in [
            ("Needs_Action", State::NeedsAction),
            ("needs-action", State::NeedsAction),
            ("DONE", State::Done),
            ("pending_approval", State::PendingApproval),
        ] {
            assert_eq!(text.parse::<State>().unwrap(), state);
        }
        assert!("gone\n".parse::<State>().unwrap_err().to_string().contains("gone\\n"));
    }
}

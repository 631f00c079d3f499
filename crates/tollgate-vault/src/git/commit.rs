//! Making commits: cards, and the moves of tasks on the branch, by one run of `git fast-import`, without an index or a
//! working tree.
//!
//! Invariants: a commit for the branch has one parent, the tip it was made for, and changes the given paths and nothing
//! else; its message is one line. Nothing here touches what a person has checked out, staged or edited.

use std::fs;
use std::path::{Path, PathBuf};

use super::card::{Card, is_oid};
use super::process::Given;
use super::run::{Git, failed};
use tollgate_base::error::{At, Fault, Result};

/// Refs of the user's repository that keep new objects until they are pushed.
const MADE: &str = "refs/tollgate/made";

/// The author of the commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ident {
    pub(super) name: String,
    pub(super) email: String,
}

/// What a commit does to one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathChange {
    Remove(Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
}

/// A commit that is to be made for the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewCommit {
    /// One line.
    pub(super) message: String,
    pub(super) changes: Vec<PathChange>,
}

/// The names of the objects that were made, in the order in which they were asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) cards: Vec<String>,
    pub(super) commits: Vec<String>,
}

/// Makes objects in one repository, under the lock of the conversation.
#[derive(Debug, Clone)]
pub(super) struct Maker {
    pub(super) git: Git,
    pub(super) ident: Ident,
    pub(super) marks: PathBuf,
}

impl Maker {
    /// Makes one card.
    pub(super) fn make_card(&self, card: &Card) -> Result<String> {
        Ok(self.make(&[card], &[], "")?.cards.remove(0))
    }

    /// Makes these cards, and a chain of commits on top of `tip`.
    pub(super) fn make(&self, cards: &[&Card], commits: &[NewCommit], tip: &str) -> Result<Made> {
        let mut stream = Vec::new();
        for (n, card) in cards.iter().enumerate() {
            stream.extend(format!("reset {MADE}/card\n\ncommit {MADE}/card\nmark :{}\n", n + 1).bytes());
            self.head(&mut stream, &card.to_line()?);
            stream.push(b'\n');
        }
        for (n, commit) in commits.iter().enumerate() {
            let mark = cards.len() + n + 1;
            let from = if n == 0 { tip.to_owned() } else { format!(":{}", mark - 1) };
            stream.extend(format!("commit {MADE}/commit\nmark :{mark}\n").bytes());
            self.head(&mut stream, &commit.message);
            stream.extend(format!("from {from}\n").bytes());
            for change in &commit.changes {
                match change {
                    PathChange::Remove(path) => {
                        stream.extend(b"D ");
                        stream.extend(quoted(path));
                        stream.push(b'\n');
                    }
                    PathChange::Put(path, bytes) => {
                        stream.extend(b"M 100644 inline ");
                        stream.extend(quoted(path));
                        stream.extend(format!("\ndata {}\n", bytes.len()).bytes());
                        stream.extend(bytes);
                        stream.push(b'\n');
                    }
                }
            }
            stream.push(b'\n');
        }
        // Without it git could not tell a stream that was cut short from a short one.
        stream.extend(b"done\n");
        self.import(&stream, cards.len(), cards.len() + commits.len())
    }

    fn head(&self, stream: &mut Vec<u8>, message: &str) {
        let Ident { name, email } = &self.ident;
        stream.extend(format!("committer {name} <{email}> now\n").bytes());
        stream.extend(format!("data {}\n{message}\n", message.len()).bytes());
    }

    fn import(&self, stream: &[u8], cards: usize, all: usize) -> Result<Made> {
        let marks = format!("--export-marks={}", utf8(&self.marks)?);
        let ran = self.git.local(
            &["fast-import", "--quiet", "--force", "--done", "--date-format=now", &marks],
            &Given::Bytes(stream),
        )?;
        if !ran.ok {
            return Err(failed("fast-import", &ran));
        }
        let text = fs::read_to_string(&self.marks).at("read", &self.marks)?;
        let mut made = vec![String::new(); all];
        for line in text.lines() {
            let Some((mark, oid)) = line.strip_prefix(':').and_then(|line| line.split_once(' ')) else {
                continue;
            };
            let mark = mark.parse::<usize>().unwrap_or(0);
            if let Some(place) = mark.checked_sub(1).and_then(|at| made.get_mut(at))
                && is_oid(oid)
            {
                oid.clone_into(place);
            }
        }
        if made.iter().any(String::is_empty) {
            return Err(Fault::invalid("`git fast-import` did not report what it made"));
        }
        let commits = made.split_off(cards);
        Ok(Made { cards: made, commits })
    }
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| Fault::invalid(format!("`{}` is not UTF-8, which git sync needs", path.display())))
}

/// A path as fast-import reads it. Nothing in a name can end the line or begin another command.
fn quoted(path: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in path {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            0..=31 | 127 => text.extend(format!("\\{byte:03o}").bytes()),
            _ => text.push(*byte),
        }
    }
    text.push(b'"');
    text
}

/// The user's name and address, without what would break a commit.
pub(super) fn identity(name: Option<&str>, email: Option<&str>) -> Ident {
    let plain = |text: &str| -> String {
        text.chars()
            .filter(|c| !c.is_control() && !matches!(c, '<' | '>'))
            .collect::<String>()
            .trim()
            .to_owned()
    };
    let or = |text: Option<&str>, other: &str| {
        text.map(plain).filter(|text| !text.is_empty()).unwrap_or_else(|| other.to_owned())
    };
    Ident { name: or(name, "tollgate"), email: or(email, "tollgate@localhost") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_of_people_are_quoted() {
        assert_eq!(quoted(b"a \"b\"\\\nD x"), br#""a \"b\"\\\012D x""#);
        let evil = identity(Some("x <y>\nfrom z"), Some(" \n"));
        assert_eq!((evil.name.as_str(), evil.email.as_str()), ("x yfrom z", "tollgate@localhost"));
    }
}

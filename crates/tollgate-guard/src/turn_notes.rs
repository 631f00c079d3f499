//! What a turn notes for its record: where it began, who asked for it, and what its agent was shown. This file does no I/O.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::path::{escape, unescape};
use crate::sighting::Extent;
use tollgate_base::digest::Digest;

/// The number of reads that a turn notes. A search through a large source tree reads some ten thousand files; beyond this number, nobody
/// would look at the list.
pub const READS_PER_TURN: usize = 100_000;

/// Something that the agent of a turn was shown, and had not been shown before in this turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRead {
    /// The file. In a turn it is absolute; in a record it is as the ledger names it, relative to the workspace if it is in it.
    pub path: PathBuf,
    /// The hash of the whole file.
    pub hash: Digest,
    /// How much of it.
    pub shown: Extent,
    /// When.
    pub time: Timestamp,
}

impl TurnRead {
    /// One line of text, with its end.
    pub(crate) fn line(&self) -> String {
        let shown = match self.shown {
            Extent::Whole => 'W',
            Extent::Part => 'P',
        };
        format!("{}{shown}{} {}\n", self.hash, self.time.as_microsecond(), escape(&self.path))
    }

    /// Reverses [`Self::line`], without the end of the line.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let (hash, rest) = line.split_at_checked(64)?;
        let (time, path) = rest.get(1..)?.split_once(' ')?;
        let shown = match rest.as_bytes()[0] {
            b'W' => Extent::Whole,
            b'P' => Extent::Part,
            _ => return None,
        };
        let time = Timestamp::from_microsecond(time.parse().ok()?).ok()?;
        Some(Self { path: unescape(path)?, hash: hash.parse().ok()?, shown, time })
    }

    /// All reads in a text. Lines that their writer did not finish are left out.
    pub(crate) fn all_in(text: &str) -> Vec<Self> {
        text.split_inclusive('\n').filter_map(|line| Self::of_line(line.strip_suffix('\n')?)).collect()
    }
}

/// Where HEAD of a repository is: on a branch, or on a commit of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The name of the branch as git has it, `refs/heads/main`.
    pub branch: Option<String>,
    /// The commit. `None`: the branch has none yet.
    pub commit: Option<String>,
}

/// Who asked for a turn, as far as the agent's program says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The hash of the prompt. tollgate computes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_sha256: Option<Digest>,
    /// The prompt. It is kept only if the settings say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// How a turn began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStart {
    /// When.
    pub began: Timestamp,
    /// Where HEAD was; `None` outside of git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_before: Option<Head>,
    /// Who asked for it.
    #[serde(flatten)]
    pub asked: Asked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_survives_its_line() {
        for (path, shown) in [("/w/a b.rs", Extent::Whole), ("src/\u{fc}\n=.rs", Extent::Part)] {
            let time = Timestamp::from_microsecond(1_763_500_000_123_456).unwrap();
            let read = TurnRead { path: path.into(), hash: Digest::of(path.as_bytes()), shown, time };
            let text = format!("{}{}{}", read.line(), read.line(), &read.line()[..90]);
            assert_eq!(TurnRead::all_in(&text), [read.clone(), read]);
        }
        for bad in ["", "W", &"x".repeat(100), &format!("{}X1 a", Digest::of(b""))] {
            assert_eq!(TurnRead::of_line(bad), None, "{bad}");
        }
    }
}

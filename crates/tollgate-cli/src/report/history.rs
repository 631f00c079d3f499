//! Changes of the past that are shown together.

use tollgate::history::listing::FileDiff;
use tollgate::history::step::Step;
use tollgate::history::turn::{KnownReads, TurnAbout};

/// Changes and their diffs.
pub(crate) struct ShownChanges<'a> {
    pub(crate) what: &'a str,
    /// The changes, the oldest first. At least one.
    pub(crate) steps: Vec<&'a Step>,
    pub(crate) files: Vec<FileDiff>,
    /// What their agents had read.
    pub(crate) reads: KnownReads,
    /// The record of their turn, if all of it is shown.
    pub(crate) about: Option<&'a TurnAbout>,
}

//! Changes of the past that are shown together.

use tollgate::history::listing::FileDiff;
use tollgate::history::step::Step;

/// Changes and their diffs.
pub(crate) struct ShownChanges<'a> {
    pub(crate) what: &'a str,
    /// The changes, the oldest first. At least one.
    pub(crate) steps: Vec<&'a Step>,
    pub(crate) files: Vec<FileDiff>,
}

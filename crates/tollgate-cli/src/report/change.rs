//! The verb of a change.

/// The verb of a change. The change itself only says which bytes the file had before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeVerb {
    Write,
    Edit,
    Restore,
    Merge,
}

//! The effects of a shell command on files.

use std::path::PathBuf;

use tollgate::turn::Extent;

/// The effects of a shell command on files.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Effects {
    /// Files that the command prints.
    pub(crate) reads: Vec<(PathBuf, Extent)>,
    /// Files that the command changes.
    pub(crate) changes: Vec<ShellChange>,
    /// Paths that the command creates or changes without changing the content of a file.
    pub(crate) touched: Vec<PathBuf>,
    /// A command of tollgate in it that only a person may run.
    pub(crate) people_only: Option<String>,
    /// The commands of tollgate in it that act in the name of an agent.
    pub(crate) acts_as: Vec<ActsAs>,
    /// Some of the command could not be parsed.
    pub(crate) unclear: bool,
    /// It may change every file that it names: it was too long or too deeply nested to be read to its end, or it changes a file
    /// whose name is not in its text.
    pub(crate) gave_up: bool,
}

/// A command of tollgate that acts in the name of an agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ActsAs {
    pub(crate) command: String,
    /// The name that it gives; empty if that is not known. `None`: the name that the shell has.
    pub(crate) name: Option<String>,
}

/// A file that a command changes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShellChange {
    /// The file, or a folder with everything in it.
    pub(crate) path: PathBuf,
    /// Whether the whole file is replaced.
    pub(crate) extent: Extent,
    /// The new text, if the command contains it.
    pub(crate) text: Option<String>,
    /// git changes it, which leaves its own files in a folder alone.
    pub(crate) by_git: bool,
    /// It may be a folder, or a link to one: its files come with it.
    pub(crate) brings_files: bool,
}

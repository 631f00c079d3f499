//! What is known about a shell: its folder, its variables and its functions.

use std::collections::{BTreeSet, HashMap};
use std::mem::take;
use std::path::{Path, PathBuf};

use super::word::Word;

/// The variable with the name of the agent.
pub(super) const AGENT: &str = "TOLLGATE_AGENT";

/// The value of `--agent "$TOLLGATE_AGENT"`, if the command does not change the variable. No agent can have this name.
pub(super) const OWN_NAME: &str = "$TOLLGATE_AGENT";

/// The largest number of folders that may be the current one.
const FOLDERS: usize = 8;

/// The known part of a shell's environment.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// The current folder; `None` if it is not certain.
    pub(super) folder: Option<PathBuf>,
    /// If it is not certain: the folders that it may be.
    pub(super) folders: Vec<PathBuf>,
    /// The folder before the last `cd`.
    pub(super) last_folder: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    /// Variables with a known value.
    pub(super) variables: HashMap<String, String>,
    /// Variables to which the command gives, or may give, a value that is not known.
    pub(super) unknown: BTreeSet<String>,
    /// Variables that are set for the current command only. A shell that the command starts has them, too.
    pub(super) passed: HashMap<String, String>,
    /// `$1`, `$2` and so on; `None` if not even their number is known.
    pub(super) positional: Option<Vec<Word>>,
    /// The texts of the functions.
    pub(super) functions: HashMap<String, String>,
}

impl Environment {
    /// Gives a variable a value. If it is not known, the variable is not, either.
    pub(super) fn set(&mut self, name: &str, value: Word) {
        match value.into_text() {
            Some(text) => {
                self.unknown.remove(name);
                self.variables.insert(name.to_owned(), text);
            }
            None => {
                self.unknown.insert(name.to_owned());
                self.variables.remove(name);
            }
        }
    }

    /// The name in the agent's variable, if the command sets it. Empty if that is not known.
    pub(super) fn given_agent(&self) -> Option<String> {
        if self.unknown.contains(AGENT) { Some(String::new()) } else { self.variables.get(AGENT).cloned() }
    }

    /// After commands that may or may not have run: forgets what they may have changed.
    pub(super) fn forget_differences(&mut self, before: &Self) {
        if self.folder != before.folder || self.folders != before.folders {
            let others = before.possible_folders().to_vec();
            self.may_be_in(others);
        }
        if self.last_folder != before.last_folder {
            self.last_folder = None;
        }
        if self.positional != before.positional {
            self.positional = None;
        }
        let differs = |(name, value): &(String, String)| before.variables.get(name) != Some(value);
        let (different, same) = take(&mut self.variables).into_iter().partition::<Vec<_>, _>(differs);
        self.variables = same.into_iter().collect();
        self.unknown.extend(different.into_iter().map(|(name, _)| name));
        self.unknown.extend(before.unknown.iter().cloned());
    }

    /// The folders in which the next command may run.
    pub(super) fn possible_folders(&self) -> &[PathBuf] {
        self.folder.as_ref().map_or(&self.folders, std::slice::from_ref)
    }

    /// The current folder is no longer certain. It may also be one of these.
    pub(super) fn may_be_in(&mut self, others: impl IntoIterator<Item = PathBuf>) {
        self.folders.extend(self.folder.take());
        for other in others {
            if self.folders.len() < FOLDERS && !self.folders.contains(&other) {
                self.folders.push(other);
            }
        }
    }

    /// The path that a text names, if the current folder is certain.
    pub(super) fn path(&self, text: &str) -> Option<PathBuf> {
        let is_certain = self.folder.is_some() || text.starts_with('/');
        self.possible_paths(text).into_iter().next().filter(|_| is_certain)
    }

    /// Whether a word may name files in several folders.
    pub(super) fn is_vague(&self, word: &Word) -> bool {
        self.folder.is_none() && word.as_text().is_none_or(|text| !text.starts_with('/'))
    }

    /// The path that a text names, in each folder that may be the current one.
    pub(super) fn possible_paths(&self, text: &str) -> Vec<PathBuf> {
        if text.is_empty() || text.contains('\0') {
            return Vec::new();
        }
        match Path::new(text) {
            path if path.is_absolute() => vec![path.to_owned()],
            path => self.possible_folders().iter().map(|folder| folder.join(path)).collect(),
        }
    }

    /// The folder that `$(pwd)` or `$(git rev-parse --show-toplevel)` prints.
    pub(super) fn folder_from(&self, raw: &str) -> Option<&Path> {
        let command = raw.strip_prefix("$(").and_then(|raw| raw.strip_suffix(')'))?;
        let here = self.folder.as_deref()?;
        match command.trim() {
            "pwd" => Some(here),
            "git rev-parse --show-toplevel" => git_tree(here),
            _ => None,
        }
    }

    /// The value of a variable.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        if let Ok(number) = name.parse::<usize>() {
            let given = self.positional.as_ref().filter(|_| number > 0)?;
            return given.get(number - 1).map_or(Some(""), Word::as_text);
        }
        if let Some(value) = self.variables.get(name) {
            return Some(value);
        }
        match name {
            "HOME" => self.home.as_ref()?.to_str(),
            "PWD" => self.folder.as_ref()?.to_str(),
            "OLDPWD" => self.last_folder.as_ref()?.to_str(),
            _ => None,
        }
    }
}

/// The root of the git repository that a folder is in.
pub(super) fn git_tree(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.join(".git").exists())
}

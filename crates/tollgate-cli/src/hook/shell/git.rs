//! The files that git and patches change.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use tollgate::git_config::names_command;
use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::environment::git_tree;
use super::redirect::Redirects;
use super::state::Shell;
use super::transfer::{change, transfer};
use super::word::Word;
use crate::host::event::FileEffect;
use crate::host::patch;
use crate::surroundings::Surroundings;

/// The largest part of a diff that is read, in bytes.
const LARGEST_DIFF: u64 = 4 << 20;

/// The git commands that change files given by name.
pub(super) fn git(shell: &mut Shell, arguments: &[Word], redirects: &Redirects) {
    let names = &["git-dir", "work-tree", "namespace", "exec-path", "super-prefix", "config-env"];
    let (given, words) = ProgramArgs::before_operands(arguments, Valued { letters: "C:c:", names });
    let folder = match given.value(&["C", "work-tree"]) {
        Some(folder) => folder.as_text().and_then(|text| shell.env.path(text)),
        None => shell.env.folder.clone(),
    };
    let Some((command, rest)) = words.split_first() else { return };
    let here = std::mem::replace(&mut shell.env.folder, folder);
    if let Some(command) = command.as_text() {
        git_command(shell, command, rest, redirects);
    }
    shell.env.folder = here;
}

fn git_command(shell: &mut Shell, command: &str, rest: &[Word], redirects: &Redirects) {
    let letters = match command {
        "checkout" => "b:B:",
        "restore" => "s:",
        _ => "",
    };
    let names = &["source", "conflict", "orphan", "pathspec-from-file"];
    let given = ProgramArgs::of(rest, Valued { letters, names });
    let only_index = match command {
        "restore" => given.has(&["staged", "S"]) && !given.has(&["worktree", "W"]),
        "rm" => given.has(&["cached"]),
        _ => false,
    };
    let is_file = |word: &Word| shell.env.paths(word.clone()).iter().any(|path| path.exists());
    let dashes = rest.iter().position(|word| word.as_text() == Some("--"));
    let names_files = dashes.is_some() || given.operands.iter().any(is_file);
    let everything = match command {
        "reset" => given.has(&["hard"]),
        "checkout" => given.has(&["pathspec-from-file"]) || given.has(&["f", "force"]) && !names_files,
        "restore" | "rm" => given.has(&["pathspec-from-file"]),
        _ => false,
    } && !only_index;
    let others = shell.effects.changes.len();
    match command {
        "mv" => return transfer(shell, "mv", rest),
        "config" => return configured(shell, rest),
        "clone" | "init" => return made_repository(shell, rest),
        "apply" if !given.has(&["cached", "check", "stat", "numstat", "summary"]) => {
            let input = given.operands.first().or(redirects.inputs.first());
            diffed(shell, input, redirects, Stripped::First);
        }
        "checkout" | "restore" | "rm" if !only_index && !everything => {
            let files = match dashes {
                Some(at) if command == "checkout" => rest[at + 1..].to_vec(),
                _ => given.operands,
            };
            for word in files {
                // git has patterns of its own: `'*.txt'`, `:/`.
                let pattern = word.as_text().and_then(|text| {
                    let special = text.find(['*', '?', '[']).or(text.starts_with(':').then_some(0))?;
                    Some(text[..special].rsplit_once('/').map_or(".", |(folder, _)| folder).to_owned())
                });
                let exists = shell.env.paths(word.clone()).iter().any(|path| path.exists());
                match pattern {
                    Some(_) if word.as_text().is_some_and(|text| text.starts_with(':')) => change_tree(shell),
                    Some(folder) if !exists => change(shell, vec![Word::text(&folder)], Extent::Whole, None),
                    // Without dashes a word may also be a branch. Only existing files count.
                    _ if exists || command != "checkout" || dashes.is_some() => {
                        change(shell, vec![word], Extent::Whole, None);
                    }
                    _ => {}
                }
            }
        }
        _ if everything => change_tree(shell),
        _ => {}
    }
    shell.effects.changes[others..].iter_mut().for_each(|change| change.by_git = true);
}

/// `git config` is a change of its file by hand if it may plant a command there. Everything else that it sets is git's own
/// business.
fn configured(shell: &mut Shell, rest: &[Word]) {
    let names = &["file", "blob", "type", "default", "comment", "value", "url"];
    let given = ProgramArgs::of(rest, Valued { letters: "f:", names });
    if let Some(file) = given.value(&["f", "file"]) {
        return change(shell, vec![file.clone()], Extent::Part, None);
    }
    let only_reads_or_removes = [
        "get",
        "get-all",
        "get-regexp",
        "get-urlmatch",
        "get-color",
        "get-colorbool",
        "list",
        "l",
        "unset",
        "unset-all",
        "remove-section",
    ];
    let mut operands = given.operands.iter().peekable();
    let verb = operands.next_if(|word| word.as_text().is_some_and(|text| !text.contains('.')));
    let verb = verb.and_then(Word::as_text);
    let is_verb = |names: &[&str]| given.has(names) || verb.is_some_and(|verb| names.contains(&verb));
    let plants = if is_verb(&only_reads_or_removes) {
        false
    } else if is_verb(&["edit", "e", "rename-section"]) {
        true
    } else {
        match (operands.next(), operands.next()) {
            (Some(key), Some(value)) => key.as_text().is_none_or(|key| names_command(key, value.as_text())),
            _ => false,
        }
    };
    if plants {
        let own = Surroundings::home().filter(|_| given.has(&["global"]));
        change_config(shell, own.map(|home| home.join(".gitconfig")));
    }
}

/// A new repository gets the configuration that is given with it, and hooks from a template.
fn made_repository(shell: &mut Shell, rest: &[Word]) {
    let plants = |pair: [Option<&str>; 2]| match pair {
        [Some("-c" | "--config"), None] => true,
        [Some("-c" | "--config"), Some(setting)] => sets_command(setting),
        [Some(word), _] => {
            word.strip_prefix("--config=").is_some_and(sets_command) || word.starts_with("--template")
        }
        _ => false,
    };
    let next = rest.iter().skip(1).map(Word::as_text).chain([Some("")]);
    if rest.iter().map(Word::as_text).zip(next).any(|(word, next)| plants([word, next])) {
        change_config(shell, None);
    }
}

/// Whether `KEY=VALUE` names a command.
fn sets_command(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
    names_command(key, Some(value))
}

/// A change of this file, else of the configuration of the repository.
fn change_config(shell: &mut Shell, file: Option<PathBuf>) {
    if let Some(file) = file {
        return shell.change(file, Extent::Part, None);
    }
    for folder in shell.env.possible_folders().to_vec() {
        let tree = git_tree(&folder).unwrap_or(&folder);
        shell.change(tree.join(".git/config"), Extent::Part, None);
    }
}

/// git may change every file of its working tree, even one that it does not track yet: another commit may have it.
fn change_tree(shell: &mut Shell) {
    shell.effects.gave_up |= shell.env.folder.is_none();
    for folder in shell.env.possible_folders().to_vec() {
        let tree = git_tree(&folder).unwrap_or(&folder).to_owned();
        shell.change(tree, Extent::Whole, None);
    }
}

/// How many leading folders `patch` removes from the names in a diff.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stripped {
    /// Perhaps the first: `a/` and `b/`.
    First,
    /// Perhaps all of them.
    All,
}

/// The files that a unified diff changes. A name in it counts as it is, and without the folders that may be removed, wherever
/// such a file exists.
pub(super) fn diffed(shell: &mut Shell, file: Option<&Word>, redirects: &Redirects, stripped: Stripped) {
    let read = |file: &Word| {
        let path = shell.env.path(file.as_text()?).filter(|path| path.is_file())?;
        let mut text = Vec::new();
        fs::File::open(path).ok()?.take(LARGEST_DIFF).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let Some(text) = file.and_then(read).or_else(|| redirects.input_text().cloned()) else {
        shell.effects.gave_up = true;
        return;
    };
    let names =
        text.lines().filter_map(|line| line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- ")));
    for name in names {
        let name = name.split('\t').next().unwrap_or(name).trim();
        let below = name.split_once('/').map(|(_, below)| below);
        let base = name.rsplit('/').next().filter(|_| stripped == Stripped::All);
        for name in [Some(name), below, base].into_iter().flatten() {
            for path in shell.env.possible_paths(name).into_iter().filter(|path| path.is_file()) {
                shell.change(path, Extent::Part, None);
            }
        }
    }
}

pub(super) fn patched(shell: &mut Shell, text: &str) {
    for effect in patch::effects(text) {
        let (path, extent, text) = match effect {
            FileEffect::Write(path, text) => (path, Extent::Whole, text),
            FileEffect::Edit(path, _) | FileEffect::Patch(path, _) => (path, Extent::Part, None),
            FileEffect::Delete(path) => (path, Extent::Whole, None),
            FileEffect::Read(..) | FileEffect::Unreadable => continue,
        };
        if let Some(path) = path.to_str().and_then(|path| shell.env.path(path)) {
            shell.change(path, extent, text);
        }
    }
}

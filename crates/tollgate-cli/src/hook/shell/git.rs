//! The files that git and patches change.

use std::fs;
use std::io::Read;

use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::redirect::Redirects;
use super::state::Shell;
use super::transfer::{change, transfer};
use super::word::Word;
use crate::host::event::Deed;
use crate::host::patch;

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
    let everything = match command {
        "reset" => given.has(&["hard"]),
        "checkout" | "restore" | "rm" => {
            given.has(&["pathspec-from-file"]) || given.has(&["f", "force"]) && command == "checkout"
        }
        _ => false,
    };
    let others = shell.effects.changes.len();
    match command {
        "mv" => return transfer(shell, "mv", rest),
        "apply" if !given.has(&["cached", "check", "stat", "numstat", "summary"]) => {
            let input = given.operands.first().or(redirects.inputs.first());
            diffed(shell, input, redirects.text.as_deref());
        }
        "checkout" | "restore" | "rm" if !only_index && !everything => {
            let dashes = rest.iter().position(|word| word.as_text() == Some("--"));
            let files = match dashes {
                Some(at) if command == "checkout" => rest[at + 1..].to_vec(),
                _ => given.operands,
            };
            for word in files {
                // git has patterns of its own: `'*.txt'`, `:/`.
                let is_pattern = word
                    .as_text()
                    .is_some_and(|text| text.contains(['*', '?', '[']) || text.starts_with(':'));
                // Without dashes a word may also be a branch. Only existing files count.
                let is_file = command != "checkout"
                    || dashes.is_some()
                    || shell.env.paths(word.clone()).iter().any(|path| path.exists());
                match word {
                    _ if is_pattern => change_tree(shell),
                    word if is_file => change(shell, vec![word], Extent::Whole, None),
                    _ => {}
                }
            }
        }
        _ if everything => change_tree(shell),
        _ => {}
    }
    shell.effects.changes[others..].iter_mut().for_each(|change| change.by_git = true);
}

/// git may change every file of its working tree.
fn change_tree(shell: &mut Shell) {
    for folder in shell.env.possible_folders().to_vec() {
        let tree = folder.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&folder);
        shell.change(tree.to_owned(), Extent::Whole, None);
    }
}

/// The files that a unified diff changes, in a file or in a text. How many folders of its names do not count depends on options
/// and on what is there, so all names that exist count.
pub(super) fn diffed(shell: &mut Shell, file: Option<&Word>, text: Option<&str>) {
    let read = |file: &Word| {
        let path = shell.env.path(file.as_text()?).filter(|path| path.is_file())?;
        let mut text = Vec::new();
        fs::File::open(path).ok()?.take(LARGEST_DIFF).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let Some(text) = text.map(str::to_owned).or_else(|| read(file?)) else { return };
    let names =
        text.lines().filter_map(|line| line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- ")));
    for name in names {
        let name = name.split('\t').next().unwrap_or(name).trim();
        let below = name.split_once('/').map(|(_, below)| below);
        for name in [Some(name), below, name.rsplit('/').next()].into_iter().flatten() {
            for path in shell.env.possible_paths(name).into_iter().filter(|path| path.is_file()) {
                shell.change(path, Extent::Part, None);
            }
        }
    }
}

pub(super) fn patched(shell: &mut Shell, text: &str) {
    for deed in patch::deeds(text) {
        let (path, extent, text) = match deed {
            Deed::Write(path, text) => (path, Extent::Whole, text),
            Deed::Edit(path, _) | Deed::Patch(path, _) => (path, Extent::Part, None),
            Deed::Delete(path) => (path, Extent::Whole, None),
            Deed::Read(..) | Deed::Unreadable => continue,
        };
        if let Some(path) = path.to_str().and_then(|path| shell.env.path(path)) {
            shell.change(path, extent, text);
        }
    }
}

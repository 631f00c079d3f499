//! The files that git and patches change.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tollgate::git_config::names_command;
use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::state::{Shell, Streams};
use super::transfer::transfer;
use super::word::Word;
use crate::host::patch;
use crate::surroundings::Surroundings;

/// The largest part of a diff that is read, in bytes.
const LARGEST_DIFF: u64 = 4 << 20;

/// Adds what a git command does to files. Commands that leave changed files alone by themselves, such as a change of the branch, do
/// not count.
pub(super) fn run(shell: &mut Shell, arguments: &[Word], streams: &Streams) {
    let names = &["git-dir", "work-tree", "namespace", "exec-path", "super-prefix", "config-env"];
    let (given, words) = ProgramArgs::before_operands(arguments, Valued { letters: "C:c:", names });
    let Some((command, rest)) = words.split_first() else { return };
    let before = (shell.folder.clone(), shell.is_certain);
    if let Some(folder) = given.value(&["C", "work-tree"]) {
        shell.change_folder(Some(folder));
    }
    let others = shell.plan.changes.len();
    match command.as_text() {
        Some("mv") => transfer(shell, "mv", rest),
        Some("config") => configured(shell, rest),
        Some("clone" | "init") => made_repository(shell, rest),
        Some(command) => {
            changed(shell, command, rest, streams);
            shell.plan.changes[others..].iter_mut().for_each(|change| change.by_git = true);
        }
        None => {}
    }
    (shell.folder, shell.is_certain) = before;
}

/// The commands that change files of the working tree.
fn changed(shell: &mut Shell, command: &str, rest: &[Word], streams: &Streams) {
    let letters = match command {
        "checkout" => "b:B:",
        "restore" => "s:",
        "stash" => "m:",
        _ => "",
    };
    let names = &["source", "conflict", "orphan", "pathspec-from-file", "message"];
    let given = ProgramArgs::of(rest, Valued { letters, names });
    let dashes = rest.iter().position(|word| word.is(&["--"]));
    let exists = |shell: &Shell, word: &Word| word.as_text().is_some_and(|text| shell.path(text).exists());
    let mut files = match dashes {
        Some(at) => rest[at + 1..].to_vec(),
        None => given.operands.clone(),
    };
    let from_file = given.has(&["pathspec-from-file"]);
    let is_whole = match command {
        "restore" if given.has(&["staged", "S"]) && !given.has(&["worktree", "W"]) => return,
        "rm" if given.has(&["cached"]) => return,
        "restore" | "rm" => from_file,
        "reset" if given.has(&["hard"]) => true,
        "checkout" => {
            // Without dashes a word may also be a branch.
            files.retain(|word| dashes.is_some() || exists(shell, word) || is_pathspec(word));
            from_file || given.has(&["f", "force"]) && files.is_empty()
        }
        "stash" => {
            let verb = given.operands.first().and_then(Word::as_text);
            if dashes.is_none() && verb.is_some_and(|verb| STASHES.contains(&verb)) {
                return;
            }
            files.retain(|word| !word.is(&["push"]));
            files.is_empty() || verb == Some("save")
        }
        "apply" if !given.has(&["cached", "check", "stat", "numstat", "summary"]) => {
            return diffed(shell, given.operands.first(), streams);
        }
        _ => return,
    };
    if is_whole {
        return change_tree(shell);
    }
    for word in &files {
        match word.as_text().and_then(|text| Some((text, text.find(['*', '?', '['])?))) {
            _ if word.as_text().is_some_and(|text| text.starts_with(':')) => change_tree(shell),
            // git has patterns of its own: `'*.txt'`.
            Some((text, at)) if !exists(shell, word) => {
                let folder = text[..at].rsplit_once('/').map_or(".", |(folder, _)| folder);
                shell.change(&Word::text(folder), Extent::Whole, None);
            }
            _ => shell.change(word, Extent::Whole, None),
        }
    }
}

/// The verbs of `git stash` that overwrite no changed file.
const STASHES: [&str; 8] = ["list", "show", "drop", "clear", "create", "store", "pop", "apply"];

/// Whether git reads a word as a pattern of its own.
fn is_pathspec(word: &Word) -> bool {
    word.as_text().is_some_and(|text| text.starts_with(':') || text.contains(['*', '?', '[']))
}

/// `git config` is a change of its file by hand if it may plant a command there. Everything else that it sets is git's own
/// business.
fn configured(shell: &mut Shell, rest: &[Word]) {
    let names = &["file", "blob", "type", "default", "comment", "value", "url"];
    let given = ProgramArgs::of(rest, Valued { letters: "f:", names });
    if let Some(file) = given.value(&["f", "file"]) {
        return shell.change(file, Extent::Part, None);
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
    let file = file.unwrap_or_else(|| tree(shell).join(".git/config"));
    shell.change_path(file, Extent::Part, None);
}

/// git may change every file of its working tree, even one that it does not track yet: another commit may have it.
fn change_tree(shell: &mut Shell) {
    shell.plan.vague |= !shell.is_certain;
    let tree = tree(shell);
    shell.change_path(tree, Extent::Whole, None);
}

/// The root of the git repository that the current folder is in.
fn tree(shell: &Shell) -> PathBuf {
    let is_root = |folder: &&Path| folder.join(".git").exists();
    shell.folder.ancestors().find(is_root).unwrap_or(&shell.folder).to_owned()
}

/// The files that a unified diff changes. A name in it counts as it is, and without its first folders, wherever such a file exists.
pub(super) fn diffed(shell: &mut Shell, file: Option<&Word>, streams: &Streams) {
    let read = |file: &Word| {
        let path = Some(shell.path(file.as_text()?)).filter(|path| path.is_file())?;
        let mut text = Vec::new();
        fs::File::open(path).ok()?.take(LARGEST_DIFF).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let Some(text) = file.or(streams.input.as_ref()).and_then(read).or_else(|| streams.text.clone()) else {
        shell.plan.vague = true;
        return;
    };
    shell.plan.vague |= !shell.is_certain;
    let names =
        text.lines().filter_map(|line| line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- ")));
    for name in names {
        let name = name.split('\t').next().unwrap_or(name).trim();
        let below = name.split_once('/').map(|(_, below)| below);
        for name in [Some(name), below, name.rsplit('/').next()].into_iter().flatten() {
            let path = shell.path(name);
            if path.is_file() {
                shell.change_path(path, Extent::Part, None);
            }
        }
    }
}

/// The files that a patch for `apply_patch` changes.
pub(super) fn patched(shell: &mut Shell, text: &str) {
    shell.plan.vague |= !shell.is_certain;
    let folder = shell.folder.clone();
    patch::effects(text).iter().for_each(|effect| shell.plan.add(effect, &folder));
}

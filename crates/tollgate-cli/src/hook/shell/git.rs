//! The files that git and patches change.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tollgate::git_config::names_command;
use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::programs::transfer;
use super::reader::{Reader, Streams};
use super::word::Word;
use crate::host::patch;
use crate::surroundings::Surroundings;

/// The largest part of a diff that is read, in bytes.
const LARGEST_DIFF: u64 = 4 << 20;

/// Adds what a git command does to files. Commands that leave changed files alone by themselves, such as a change of the branch, do
/// not count.
pub(super) fn run(reader: &mut Reader, arguments: &[Word], streams: &Streams) {
    let names = &["git-dir", "work-tree", "namespace", "exec-path", "super-prefix", "config-env"];
    let (given, words) = ProgramArgs::before_operands(arguments, Valued { letters: "C:c:", names });
    let Some((command, rest)) = words.split_first() else { return };
    let before = (reader.folder.clone(), reader.is_certain);
    if let Some(folder) = given.value(&["C", "work-tree"]) {
        reader.change_folder(Some(folder));
    }
    let others = reader.plan.changes.len();
    match command.as_text() {
        Some("mv") => transfer(reader, "mv", rest),
        Some("config") => configured(reader, rest),
        Some("clone" | "init") => made_repository(reader, rest),
        Some(command) => {
            changed(reader, command, rest, streams);
            reader.plan.changes[others..].iter_mut().for_each(|change| change.by_git = true);
        }
        None => {}
    }
    (reader.folder, reader.is_certain) = before;
}

/// The commands that change files of the working tree.
fn changed(reader: &mut Reader, command: &str, rest: &[Word], streams: &Streams) {
    let letters = match command {
        "checkout" => "b:B:",
        "restore" => "s:",
        "stash" => "m:",
        _ => "",
    };
    let names = &["source", "conflict", "orphan", "pathspec-from-file", "message"];
    let given = ProgramArgs::of(rest, Valued { letters, names });
    let dashes = rest.iter().position(|word| word.is(&["--"]));
    let exists = |reader: &Reader, word: &Word| word.as_text().is_some_and(|text| reader.path(text).exists());
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
            files.retain(|word| dashes.is_some() || exists(reader, word) || is_pathspec(word));
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
            return diffed(reader, given.operands.first(), streams);
        }
        _ => return,
    };
    if is_whole {
        return change_tree(reader);
    }
    for word in &files {
        match word.as_text().and_then(|text| Some((text, text.find(['*', '?', '['])?))) {
            _ if word.as_text().is_some_and(|text| text.starts_with(':')) => change_tree(reader),
            // git has patterns of its own: `'*.txt'`.
            Some((text, at)) if !exists(reader, word) => {
                let folder = text[..at].rsplit_once('/').map_or(".", |(folder, _)| folder);
                reader.change(&Word::text(folder), Extent::Whole, None);
            }
            _ => reader.change(word, Extent::Whole, None),
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
fn configured(reader: &mut Reader, rest: &[Word]) {
    let names = &["file", "blob", "type", "default", "comment", "value", "url"];
    let given = ProgramArgs::of(rest, Valued { letters: "f:", names });
    if let Some(file) = given.value(&["f", "file"]) {
        return reader.change(file, Extent::Part, None);
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
        change_config(reader, own.map(|home| home.join(".gitconfig")));
    }
}

/// A new repository gets the configuration that is given with it, and hooks from a template.
fn made_repository(reader: &mut Reader, rest: &[Word]) {
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
        change_config(reader, None);
    }
}

/// Whether `KEY=VALUE` names a command.
fn sets_command(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
    names_command(key, Some(value))
}

/// A change of this file, else of the configuration of the repository.
fn change_config(reader: &mut Reader, file: Option<PathBuf>) {
    let file = file.unwrap_or_else(|| tree(reader).join(".git/config"));
    reader.change_path(file, Extent::Part, None);
}

/// git may change every file of its working tree, even one that it does not track yet: another commit may have it.
fn change_tree(reader: &mut Reader) {
    reader.plan.vague |= !reader.is_certain;
    let tree = tree(reader);
    reader.change_path(tree, Extent::Whole, None);
}

/// The root of the git repository that the current folder is in.
fn tree(reader: &Reader) -> PathBuf {
    let is_root = |folder: &&Path| folder.join(".git").exists();
    reader.folder.ancestors().find(is_root).unwrap_or(&reader.folder).to_owned()
}

/// The files that a unified diff changes. A name in it counts as it is, and without its first folders, wherever such a file exists.
pub(super) fn diffed(reader: &mut Reader, file: Option<&Word>, streams: &Streams) {
    let read = |file: &Word| {
        let path = Some(reader.path(file.as_text()?)).filter(|path| path.is_file())?;
        let mut text = Vec::new();
        fs::File::open(path).ok()?.take(LARGEST_DIFF).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let Some(text) = file.or(streams.input.as_ref()).and_then(read).or_else(|| streams.text.clone()) else {
        reader.plan.vague = true;
        return;
    };
    reader.plan.vague |= !reader.is_certain;
    let names =
        text.lines().filter_map(|line| line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- ")));
    for name in names {
        let name = name.split('\t').next().unwrap_or(name).trim();
        let below = name.split_once('/').map(|(_, below)| below);
        for name in [Some(name), below, name.rsplit('/').next()].into_iter().flatten() {
            let path = reader.path(name);
            if path.is_file() {
                reader.change_path(path, Extent::Part, None);
            }
        }
    }
}

/// The files that a patch for `apply_patch` changes.
pub(super) fn patched(reader: &mut Reader, text: &str) {
    reader.plan.vague |= !reader.is_certain;
    let folder = reader.folder.clone();
    patch::effects(text).iter().for_each(|effect| reader.plan.add(effect, &folder));
}

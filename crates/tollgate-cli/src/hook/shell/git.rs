//! The files that git and patches change.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use tollgate::gate::{CommitContent, Files, GitEffect, GitStep};
use tollgate::git_config::names_command;
use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::state::{Shell, Streams};
use super::transfer::transfer;
use super::word::Word;
use crate::hook::plan::PlannedChange;
use crate::host::patch;
use crate::surroundings::Surroundings;

/// The largest part of a diff that is read, in bytes.
const LARGEST_DIFF: u64 = 4 << 20;

/// Adds what a git command does. The guard judges it by its own rules: see [`GitStep`].
pub(super) fn run(shell: &mut Shell, arguments: &[Word], streams: &Streams) {
    let names = &["git-dir", "work-tree", "namespace", "exec-path", "super-prefix", "config-env"];
    let (given, words) = ProgramArgs::before_operands(arguments, Valued { letters: "Cc", names });
    let Some((verb, rest)) = words.split_first() else { return };
    let before = (shell.folder.clone(), shell.is_certain);
    if let Some(folder) = given.value(&["C", "work-tree"]) {
        shell.change_folder(Some(folder));
    }
    match verb.as_text() {
        Some("mv") => transfer(shell, "mv", rest),
        Some("config") => configured(shell, rest),
        Some("clone" | "init") => made_repository(shell, rest),
        Some(verb) => {
            let given = ProgramArgs::of(rest, valued(verb));
            let dashes = rest.iter().position(|word| word.is(&["--"])).map(|at| &rest[at + 1..]);
            GitCall { shell, given: &given, dashes }.runs(verb, streams);
        }
        None => {}
    }
    (shell.folder, shell.is_certain) = before;
}

/// The options of a git command that take a value.
fn valued(verb: &str) -> Valued {
    let (letters, names): (_, &[&str]) = match verb {
        "checkout" => ("bB", &["conflict", "orphan", "pathspec-from-file"]),
        "switch" => ("cC", &["conflict", "orphan", "create"]),
        "restore" => ("s", &["source", "conflict", "pathspec-from-file"]),
        "stash" => ("m", &["message", "pathspec-from-file"]),
        "clean" => ("e", &["exclude"]),
        "rebase" => ("sXxC", &["onto", "exec", "strategy", "strategy-option"]),
        "commit" => (
            "mFCct",
            &[
                "message",
                "file",
                "author",
                "date",
                "reuse-message",
                "reedit-message",
                "fixup",
                "squash",
                "trailer",
            ],
        ),
        _ => ("", &["pathspec-from-file"]),
    };
    Valued { letters, names }
}

/// A git command in its folder.
struct GitCall<'a> {
    shell: &'a mut Shell,
    given: &'a ProgramArgs,
    /// The words behind `--`.
    dashes: Option<&'a [Word]>,
}

impl GitCall<'_> {
    fn runs(mut self, verb: &str, streams: &Streams) {
        let given = self.given;
        let operand = |at: usize| given.operands.get(at).and_then(Word::as_text).map(str::to_owned);
        match verb {
            "status" | "branch" => {
                let head = tree(self.shell).join(".git/HEAD");
                if streams.shown && head.is_file() {
                    self.shell.read_path(head, Extent::Whole);
                }
            }
            "add" | "stage" if !given.has(&["n", "dry-run"]) => self.stages(),
            "commit" if !given.has(&["dry-run"]) => self.commits(),
            "rm" if !given.has(&["cached"]) => self.changes(&given.operands, Files::Tracked),
            "clean" if !given.has(&["n", "dry-run"]) => match given.operands.is_empty() {
                true => self.changes(&[Word::text(".")], Files::Untracked),
                false => self.changes(&given.operands, Files::Untracked),
            },
            "restore" if given.has(&["staged", "S"]) && !given.has(&["worktree", "W"]) => {}
            "restore" => self.changes(&given.operands, Files::Tracked),
            "checkout" => self.checks_out(),
            "switch" => {
                if given.has(&["f", "force", "discard-changes"]) {
                    self.changes_tree();
                }
                let is_new = given.has(&["c", "C", "create", "d", "detach", "orphan"]);
                self.does(GitEffect::Switch(operand(0).filter(|_| !is_new)));
            }
            "reset" => {
                if given.has(&["hard", "merge", "keep"]) {
                    self.changes_tree();
                }
                if let Some(to) = operand(0) {
                    self.does(GitEffect::Reset(Some(to)));
                }
            }
            "read-tree" if given.has(&["u", "reset"]) => self.changes_tree(),
            "stash" => self.stashes(operand(0).as_deref().filter(|_| self.dashes.is_none())),
            "update-ref" if given.operands.iter().any(|word| word.is(&["refs/stash"])) => {
                self.does(GitEffect::DropStash(None));
            }
            "reflog" if ["expire", "delete"].map(|verb| Some(verb.into())).contains(&operand(0)) => {
                self.does(GitEffect::DropStash(None));
            }
            "rebase" | "merge" | "cherry-pick" | "revert" | "am" | "pull" | "bisect" | "filter-branch" => {
                self.goes_on(verb);
            }
            "apply" if !given.has(&["cached", "check", "stat", "numstat", "summary"]) => {
                diffed(self.shell, given.operands.first(), streams);
            }
            _ => {}
        }
    }

    /// Commands that make commits one after the other, and may stop at a conflict.
    fn goes_on(&mut self, verb: &str) {
        let given = self.given;
        if given.has(&["abort", "skip", "quit"]) {
            self.changes_tree();
        }
        let stays = verb == "bisect"
            && given.operands.first().is_none_or(|verb| verb.is(&["log", "view", "visualize", "terms"]));
        let moves = ["rebase", "bisect", "filter-branch"].contains(&verb)
            || verb != "merge" && given.has(&["abort", "rebase", "r"]);
        if moves && !stays {
            self.does(GitEffect::Reset(None));
        } else if given.has(&["continue"])
            || !moves && !given.has(&["n", "no-commit", "squash", "abort", "skip", "quit"])
        {
            let content = CommitContent { staged: given.has(&["continue"]), ..CommitContent::default() };
            self.does(GitEffect::Commit(content));
        }
    }

    fn stages(&mut self) {
        let given = self.given;
        let paths = match given.operands.is_empty() && !given.has(&["pathspec-from-file"]) {
            true if given.has(&["A", "all"]) => vec![tree(self.shell)],
            true => Vec::new(),
            false => self.paths(&given.operands),
        };
        let only_tracked = given.has(&["u", "update", "p", "patch", "e", "edit", "i", "interactive"]);
        let staged = &mut self.shell.staged;
        staged.tracked |= only_tracked;
        if !only_tracked {
            staged.paths.extend(paths);
        }
    }

    fn commits(&mut self) {
        let given = self.given;
        let is_named = !given.operands.is_empty() || given.has(&["pathspec-from-file"]);
        let mut content = match is_named && !given.has(&["i", "include"]) {
            true => CommitContent::default(),
            false => CommitContent { staged: true, ..std::mem::take(&mut self.shell.staged) },
        };
        content.tracked |= given.has(&["a", "all", "p", "patch", "interactive"]);
        if is_named {
            content.paths.extend(self.paths(&given.operands));
        }
        self.does(GitEffect::Commit(content));
    }

    fn checks_out(&mut self) {
        let given = self.given;
        let mut files = self.dashes.unwrap_or(&given.operands).to_vec();
        // Without dashes a word may also be a branch.
        files.retain(|word| self.dashes.is_some() || exists(self.shell, word) || is_pathspec(word));
        let is_new = given.has(&["b", "B", "orphan", "detach", "t", "track"]);
        if given.has(&["pathspec-from-file"]) || !files.is_empty() && !is_new {
            return self.changes(&files, Files::Tracked);
        }
        if given.has(&["f", "force"]) {
            self.changes_tree();
        }
        let to = given.operands.first().map(|word| word.as_text().unwrap_or_default().to_owned());
        if is_new || to.is_some() {
            self.does(GitEffect::Switch(to.filter(|_| !is_new)));
        }
    }

    fn stashes(&mut self, verb: Option<&str>) {
        let given = self.given;
        let which = || match given.operands.get(1).map(Word::as_text) {
            None => Some(0),
            Some(name) => name?.trim_start_matches("stash@{").trim_end_matches('}').parse().ok(),
        };
        match verb {
            Some("list" | "show" | "create" | "store" | "export" | "import") => {}
            Some(verb @ ("pop" | "apply" | "drop")) => {
                if let (Some(number), "pop" | "apply") = (which(), verb) {
                    let tree = tree(self.shell);
                    self.changes_paths(vec![tree], Files::OfStash(number));
                }
                if verb != "apply" {
                    self.does(GitEffect::DropStash(which()));
                }
            }
            Some("clear") => self.does(GitEffect::DropStash(None)),
            Some("branch") => {
                self.does(GitEffect::DropStash(None));
                self.does(GitEffect::Switch(None));
            }
            _ => {
                let mut files = given.operands.clone();
                files.retain(|word| {
                    self.dashes.is_some_and(|dashes| dashes.contains(word)) || !word.is(&["push"])
                });
                let is_whole =
                    verb == Some("save") || files.is_empty() && !given.has(&["pathspec-from-file"]);
                let paths = if is_whole { vec![tree(self.shell)] } else { self.paths(&files) };
                let untracked = given.has(&["u", "include-untracked", "a", "all"]);
                for files in [Some(Files::Tracked), Some(Files::Untracked).filter(|_| untracked)] {
                    files.into_iter().for_each(|files| self.changes_paths(paths.clone(), files));
                }
            }
        }
    }

    fn does(&mut self, does: GitEffect) {
        self.shell.plan.git.push(GitStep { folder: self.shell.folder.clone(), does });
    }

    fn changes(&mut self, words: &[Word], files: Files) {
        let paths = self.paths(words);
        self.changes_paths(paths, files);
    }

    /// git may change every file of its working tree, even one that it does not track yet: another commit may have it.
    fn changes_tree(&mut self) {
        let tree = tree(self.shell);
        self.changes_paths(vec![tree], Files::Tracked);
    }

    fn changes_paths(&mut self, paths: Vec<PathBuf>, files: Files) {
        self.shell.plan.vague |= !self.shell.is_certain;
        // git overwrites no changed file with what was stashed.
        let extent = if matches!(files, Files::OfStash(_)) { Extent::Part } else { Extent::Whole };
        for path in paths {
            self.shell.plan_change(PlannedChange { files, ..PlannedChange::unknown(path, extent) });
        }
    }

    /// The files and folders that these words name, or the whole tree if the text does not tell.
    fn paths(&self, words: &[Word]) -> Vec<PathBuf> {
        let shell = &*self.shell;
        let path = |word: &Word| {
            let text = word.as_text().filter(|text| !text.starts_with(':') && shell.is_certain)?;
            // git has patterns of its own: `'*.txt'`.
            Some(match text.find(['*', '?', '[']) {
                Some(at) if !exists(shell, word) => {
                    shell.path(text[..at].rsplit_once('/').map_or(".", |(folder, _)| folder))
                }
                _ => shell.path(text),
            })
        };
        let paths = words.iter().map(path).collect();
        let is_known = !self.given.has(&["pathspec-from-file"]);
        Option::<Vec<_>>::filter(paths, |_| is_known).unwrap_or_else(|| vec![tree(shell)])
    }
}

fn exists(shell: &Shell, word: &Word) -> bool {
    word.as_text().is_some_and(|text| shell.path(text).symlink_metadata().is_ok())
}

/// Whether git reads a word as a pattern of its own.
fn is_pathspec(word: &Word) -> bool {
    word.as_text().is_some_and(|text| text.starts_with(':') || text.contains(['*', '?', '[']))
}

/// `git config` is a change of its file by hand if it may plant a command there. Everything else that it sets is git's own
/// business.
fn configured(shell: &mut Shell, rest: &[Word]) {
    let names = &["file", "blob", "type", "default", "comment", "value", "url"];
    let given = ProgramArgs::of(rest, Valued { letters: "f", names });
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

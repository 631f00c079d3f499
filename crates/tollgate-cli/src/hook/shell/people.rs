//! The commands of tollgate that only people run: decisions, tokens, trust, the server, and the installation of hooks.

use super::effects::ActsAs;
use super::redirect::Redirects;
use super::state::Shell;
use super::word::{AGENT, Word};

/// The name of our program, and of the packages that contain it.
const NAMES: [&str; 2] = ["tollgate", "tollgate-guard"];

/// Options of every command whose value is the next word.
const VALUED: [&str; 4] = ["-C", "--workspace", "--turn", "--agent"];

/// The verbs of `tollgate task` that are decisions.
const DECISIONS: [&str; 5] = ["approve", "reject", "retry", "return", "edit"];

/// The options of `tollgate init` that change which files are protected, or who guards them.
const SETUP: [&str; 5] = ["--remove", "--host", "--mcp", "--store", "--vault"];

/// Commands for which a name only selects what they show.
const NAMELESS: [&str; 9] =
    ["status", "ledger", "doctor", "export", "help", "task list", "task show", "task why", "task verify"];

/// Programs that run a command in the text of an argument, or in their input.
const LAUNCHERS: [&str; 25] = [
    "parallel",
    "unshare",
    "chroot",
    "nsenter",
    "systemd-run",
    "ssh",
    "npx",
    "npm",
    "bunx",
    "pnpm",
    "yarn",
    "uvx",
    "uv",
    "pipx",
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "php",
    "expect",
    "tmux",
    "screen",
    "socat",
    "fd",
];

/// Programs to which our name is only a text or a file.
const READERS: [&str; 31] = [
    "echo", "printf", "grep", "egrep", "fgrep", "rg", "git", "gh", "ls", "cat", "head", "tail", "less",
    "more", "wc", "sed", "awk", "diff", "cp", "mv", "ln", "rm", "mkdir", "touch", "test", "[", "which",
    "type", "cd", "find", "man",
];

/// The part of this command that only a person may run. A word whose value is not known may be anything.
pub(super) fn people_only(
    shell: &Shell,
    program: Option<&str>,
    arguments: &[Word],
    redirects: &Redirects,
) -> Option<String> {
    let name = base_name(program);
    if name.is_some_and(|name| READERS.contains(&name)) {
        return None;
    }
    let direct = || ours(shell, program, arguments).find_map(command);
    let in_texts = || {
        let runs = |name| LAUNCHERS.contains(&name) || is_our_name(name) && runs_commands(arguments);
        let texts =
            arguments.iter().filter_map(Word::as_text).chain(redirects.input_text().map(String::as_str));
        texts.filter(|_| name.is_some_and(runs)).find_map(in_text)
    };
    // Our program may have another name: a copy, an alias, a variable.
    let renamed = || match (program, shell.names_us) {
        _ if name.is_some_and(is_our_name) => None,
        (None, true) => command(arguments),
        (Some(program), true) if program.contains('/') => command(arguments),
        _ => {
            let mut rest = arguments.iter();
            let is_task = operand(&mut rest)? == Some("task");
            decision(operand(&mut rest).filter(|_| is_task)??)
        }
    };
    direct().or_else(in_texts).or_else(renamed)
}

/// The command of ours in this command, if it acts in the name of an agent.
pub(super) fn acts_as(shell: &Shell, program: Option<&str>, arguments: &[Word]) -> Vec<ActsAs> {
    if base_name(program).is_some_and(|name| READERS.contains(&name)) {
        return Vec::new();
    }
    ours(shell, program, arguments).filter_map(|arguments| acts(shell, arguments)).collect()
}

fn acts(shell: &Shell, arguments: &[Word]) -> Option<ActsAs> {
    let mut rest = arguments.iter();
    let mut command = operand(&mut rest)??.to_owned();
    if command == "task" {
        command = format!("task {}", operand(&mut rest)??);
    }
    let mut words = arguments.iter().take_while(|word| word.as_text() != Some("--"));
    let mut name = shell.env.variables.get(AGENT).cloned();
    while let Some(word) = words.next() {
        match word.as_text() {
            Some("--agent") => {
                name = Some(words.next().and_then(Word::as_text).unwrap_or_default().to_owned());
            }
            Some("--help" | "-h") => return None,
            Some(word) => name = word.strip_prefix("--agent=").map(str::to_owned).or(name),
            None => {}
        }
    }
    // Without a name it would be the user's. Other commands need the id of a claim or a turn.
    let acts = !NAMELESS.contains(&command.as_str()) && (name.is_some() || command == "task claim");
    acts.then(|| ActsAs { command: format!("tollgate {command}"), name })
}

/// The arguments of our program, if this is it, and wherever another program may run it.
fn ours<'w>(shell: &Shell, program: Option<&str>, arguments: &'w [Word]) -> impl Iterator<Item = &'w [Word]> {
    let is_ours = base_name(program).is_some_and(is_our_name)
        || program.is_some_and(|program| leads_to_us(shell, program));
    let named =
        arguments.iter().enumerate().filter(|(_, word)| base_name(word.as_text()).is_some_and(is_our_name));
    let behind = named.map(|(at, _)| &arguments[at + 1..]);
    is_ours.then_some(arguments).into_iter().chain(behind)
}

/// Whether our program, with these arguments, runs another command.
fn runs_commands(arguments: &[Word]) -> bool {
    matches!(operand(&mut arguments.iter()), Some(Some("run" | "work")))
}

fn base_name(program: Option<&str>) -> Option<&str> {
    program.and_then(|program| program.rsplit('/').next())
}

fn is_our_name(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Whether this program is a link to ours.
fn leads_to_us(shell: &Shell, program: &str) -> bool {
    let Some(path) = shell.env.path(program).filter(|_| program.contains('/')) else { return false };
    let path = shell.through_links(&path);
    let path = path.canonicalize().unwrap_or(path);
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_our_name)
}

/// The words of such a command one after the other, in any language.
fn in_text(text: &str) -> Option<String> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
    let words: Vec<Word> = words.filter(|word| !word.is_empty()).map(Word::text).collect();
    let ours = words.iter().enumerate().filter(|(_, word)| word.as_text().is_some_and(is_our_name));
    ours.map(|(at, _)| at).find_map(|at| command(&words[at + 1..]))
}

/// The part that only a person may run, of the arguments of our program.
fn command(arguments: &[Word]) -> Option<String> {
    let before_the_end = arguments.iter().take_while(|word| word.as_text() != Some("--"));
    if before_the_end.into_iter().any(|word| matches!(word.as_text(), Some("--help" | "-h"))) {
        return None;
    }
    let mut rest = arguments.iter();
    match operand(&mut rest)? {
        Some(name @ ("serve" | "token" | "trust" | "vault")) => Some(format!("tollgate {name}")),
        Some("task") => match operand(&mut rest)? {
            Some(verb) => decision(verb),
            None => Some("tollgate task".into()),
        },
        Some("init") => rest.find_map(|word| match word.as_text() {
            Some(word) => {
                let option = word.split('=').next().unwrap_or(word);
                SETUP.contains(&option).then(|| format!("tollgate init {option}"))
            }
            None => Some("tollgate init".into()),
        }),
        Some(_) => None,
        None => Some("tollgate".into()),
    }
}

/// The next word that is not an option or its value. `Some(None)`: a word whose value is not known.
fn operand<'w>(words: &mut std::slice::Iter<'w, Word>) -> Option<Option<&'w str>> {
    loop {
        match words.next()?.as_text() {
            Some(option) if VALUED.contains(&option) => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            word => return Some(word),
        }
    }
}

fn decision(verb: &str) -> Option<String> {
    DECISIONS.contains(&verb).then(|| format!("tollgate task {verb}"))
}

/// The same for a text that could not be parsed: whether it has the words of such a command.
pub(super) fn may_be_people_only(text: &str) -> Option<String> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    if !words.iter().any(|word| NAMES.contains(word)) {
        return None;
    }
    // `tollgate edit` is for agents.
    let decides = |word: &str| DECISIONS.contains(&word) && word != "edit";
    let only = |word: &&&str| decides(word) || ["serve", "token", "trust"].contains(word);
    // The word alone is also the name of a folder.
    let copies = || words.windows(2).find(|two| two == &["vault", "copy"]).map(|two| &two[0]);
    let sets_up = || words.iter().find(|word| SETUP.contains(word)).filter(|_| words.contains(&"init"));
    words.iter().find(only).or_else(copies).or_else(sets_up).map(|word| format!("tollgate {word}"))
}

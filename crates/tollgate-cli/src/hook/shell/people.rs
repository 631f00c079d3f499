//! The commands of tollgate that only people run: decisions, tokens, trust, the server, and the installation of hooks.

use super::word::Word;

/// The name of our program, and of the packages that contain it.
const NAMES: [&str; 2] = ["tollgate", "tollgate-guard"];

/// Options of every command whose value is the next word.
const VALUED: [&str; 4] = ["-C", "--workspace", "--turn", "--agent"];

/// The verbs of `tollgate task` that are decisions.
const DECISIONS: [&str; 5] = ["approve", "reject", "retry", "return", "edit"];

/// Programs that run the command in their arguments.
const LAUNCHERS: [&str; 21] = [
    "xargs", "find", "fd", "parallel", "watch", "strace", "ltrace", "flock", "unshare", "chroot", "ssh",
    "npx", "npm", "bunx", "pnpm", "yarn", "uvx", "uv", "pipx", "python", "python3",
];

/// The part of this command that only a person may run. A word whose value is not known may be anything.
pub(super) fn people_only(name: Option<&str>, arguments: &[Word]) -> Option<String> {
    match name {
        Some(name) if NAMES.contains(&name) => command(arguments),
        Some(name) if LAUNCHERS.contains(&name) => {
            let is_ours = |word: &Word| {
                word.as_text()
                    .and_then(|word| word.rsplit('/').next())
                    .is_some_and(|name| NAMES.contains(&name))
            };
            let at = arguments.iter().position(is_ours)?;
            command(&arguments[at + 1..])
        }
        // Our program may have another name: a copy, an alias, a variable.
        _ => match arguments {
            [task, verb, ..] if task.as_text() == Some("task") => decision(verb.as_text()?),
            _ => None,
        },
    }
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
        Some("init") => {
            let option = rest.filter_map(Word::as_text).find(|word| {
                ["--remove", "--host", "--mcp"].iter().any(|option| word.split('=').next() == Some(option))
            });
            option.map(|option| format!("tollgate init {option}"))
        }
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
    words.iter().find(only).or_else(copies).map(|word| format!("tollgate {word}"))
}

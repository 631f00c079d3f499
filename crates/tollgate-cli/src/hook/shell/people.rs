//! Calls of tollgate in an agent's command: what only people run, and under which name the rest acts.
//!
//! This is for programs whose commands do not run as transactions. Inside a run, tollgate itself refuses what only people may run and
//! other names, whatever the text of the command is. Here a call counts only if its words are in the text: `tollgate` as the
//! program of a simple command, under any path.

use super::state::Shell;
use super::word::Word;
use crate::hook::plan::ActsAs;

/// The variable with the name of the agent.
const AGENT: &str = "TOLLGATE_AGENT";

/// Options of every command whose value is the next word.
const VALUED: [&str; 4] = ["-C", "--workspace", "--turn", "--agent"];

/// The verbs of `tollgate task` that are decisions.
const DECISIONS: [&str; 5] = ["approve", "reject", "retry", "return", "edit"];

/// The options of `tollgate init` that change which files are protected, or who guards them.
const SETUP: [&str; 5] = ["--remove", "--host", "--mcp", "--store", "--vault"];

/// Commands that count as the user's own without a name. Others need the id of a claim or a turn, or change only what the user has seen.
const OF_THE_USER: [&str; 3] = ["task claim", "undo", "restore"];

/// Commands for which a name only selects what they show, or means nothing.
const NAMELESS: [&str; 14] = [
    "status",
    "ledger",
    "doctor",
    "export",
    "help",
    "completions",
    "man",
    "task list",
    "task show",
    "task why",
    "task verify",
    "turn show",
    "recovery list",
    "recovery show",
];

/// Notes the values that a command gives to the variable with the agent's name.
pub(super) fn note_agents(shell: &mut Shell, words: &[Word]) {
    for word in words {
        match word.assignment() {
            Some((AGENT, value)) => shell.agents.push(value.unwrap_or_default().to_owned()),
            // `unset`, `read`, `printf -v`, `env -u`
            _ if word.as_text().is_some_and(|text| text.ends_with(AGENT) && !text.contains("$")) => {
                shell.agents.push(String::new());
            }
            _ => {}
        }
    }
}

/// Notes a call of tollgate.
pub(super) fn note_call(shell: &mut Shell, arguments: &[Word]) {
    let is_help =
        arguments.iter().take_while(|word| !word.is(&["--"])).any(|word| word.is(&["--help", "-h"]));
    if is_help {
        return;
    }
    shell.plan.people_only = shell.plan.people_only.take().or_else(|| people_only(arguments));
    let Some(command) = acting_command(arguments) else { return };
    let names = match given_agent(arguments) {
        Some(name) => vec![name],
        None => shell.agents.clone(),
    };
    let acts = |name| ActsAs { command: format!("tollgate {command}"), name };
    let unnamed = (names.is_empty() && OF_THE_USER.contains(&command.as_str())).then(|| acts(None));
    shell.plan.acts_as.extend(names.into_iter().map(|name| acts(Some(name))).chain(unnamed));
}

/// The name in `--agent`, empty if it is not known. `--agent "$TOLLGATE_AGENT"` is the same as none.
fn given_agent(arguments: &[Word]) -> Option<String> {
    let mut words = arguments.iter().take_while(|word| !word.is(&["--"]));
    let mut given = None;
    while let Some(word) = words.next() {
        let value = match word.raw.strip_prefix("--agent=") {
            Some(raw) => {
                let value = word.as_text().and_then(|text| text.strip_prefix("--agent="));
                Word { raw: raw.to_owned(), value: value.map(str::to_owned), pattern: None }
            }
            None if word.is(&["--agent"]) => words.next().cloned().unwrap_or_default(),
            None => continue,
        };
        let own = ["$TOLLGATE_AGENT", "${TOLLGATE_AGENT}"];
        given = (!own.contains(&value.raw.trim_matches('"'))).then(|| value.value.unwrap_or_default());
    }
    given
}

/// The command and its verb, if it acts in the name of an agent.
fn acting_command(arguments: &[Word]) -> Option<String> {
    let mut rest = arguments.iter();
    let mut command = operand(&mut rest)?.unwrap_or("...").to_owned();
    if ["task", "turn", "recovery"].contains(&command.as_str())
        && let Some(Some(verb)) = operand(&mut rest)
    {
        command = format!("{command} {verb}");
    }
    Some(command).filter(|command| !NAMELESS.contains(&command.as_str()))
}

/// The part that only a person may run. A word whose value is not known may be anything.
fn people_only(arguments: &[Word]) -> Option<String> {
    let mut rest = arguments.iter();
    match operand(&mut rest)? {
        None => Some("tollgate".into()),
        Some(name @ ("serve" | "token" | "trust" | "vault")) => Some(format!("tollgate {name}")),
        Some("task") => match operand(&mut rest)? {
            None => Some("tollgate task".into()),
            Some(verb) => DECISIONS.contains(&verb).then(|| format!("tollgate task {verb}")),
        },
        Some("init") => rest.find_map(|word| match word.as_text() {
            Some(word) => {
                let option = word.split('=').next().unwrap_or(word);
                SETUP.contains(&option).then(|| format!("tollgate init {option}"))
            }
            None => Some("tollgate init".into()),
        }),
        Some(_) => None,
    }
}

/// A command that only a person may run, in a text that is not understood: in one of its statements, the words of such a command
/// follow our name.
pub(super) fn people_only_in(text: &str) -> Option<String> {
    text.split([';', '|', '&', '\n', '(', ')', '`']).find_map(|statement| {
        let words = statement.split(|c: char| c.is_whitespace() || "\"'\\".contains(c));
        let mut words = words.filter(|word| !word.is_empty());
        words.find(|word| word.rsplit('/').next() == Some("tollgate"))?;
        people_only(&words.map(Word::text).collect::<Vec<_>>())
    })
}

/// The next word that is not an option or its value. `Some(None)`: a word whose value is not known.
fn operand<'w>(words: &mut std::slice::Iter<'w, Word>) -> Option<Option<&'w str>> {
    loop {
        let word = words.next()?;
        match word.as_text() {
            Some(option) if VALUED.contains(&option) => drop(words.next()),
            // The value of `--agent="$x"` is not known, but it is an option.
            Some(option) if option.starts_with('-') => {}
            None if word.raw.starts_with('-') => {}
            value => return Some(value),
        }
    }
}

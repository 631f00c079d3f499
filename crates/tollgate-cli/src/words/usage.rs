//! What is wrong with a value of a call, and which command a person probably means.

use std::fmt::Display;

use serde_json::{Value, json};
use tollgate::error::Fault;
use tollgate::visible::plain;

/// What to do about a variable that is not valid.
pub(crate) const UNSET_IT: &str = "set the variable to a valid value, or unset it";

pub(crate) fn bad_variable(name: &str, why: &Fault) -> String {
    format!("invalid `{name}`: {why}")
}

/// A usage error in JSON, from the text that clap prints: the error, perhaps tips, the usage.
pub(crate) fn parse_error_json(text: &str) -> Value {
    let one_line = |text: &str| plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut paragraphs = text.split("\n\n");
    let message = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|paragraph| paragraph.trim_start().strip_prefix("tip: "));
    json!({
        "error": "USAGE",
        "message": one_line(message.strip_prefix("error: ").unwrap_or(message)),
        "hint": tip.map_or_else(|| "run the command with `--help` to see how to call it".to_owned(), one_line),
    })
}

/// The command that a person probably wants, who tries a name that other programs have for it. `group` is the command before the
/// name, if there is one: `ledger` in `tollgate ledger show`.
pub(crate) fn other_command(group: Option<&str>, tried: &str) -> Option<String> {
    let command = match tried {
        "show" | "list" | "ls" | "log" | "cat" if group == Some("ledger") => "tollgate ledger tail",
        "ls" if let Some(group) = group => return Some(format!("to do that, run `tollgate {group} list`")),
        _ if group.is_some() => return None,
        "log" | "logs" => "tollgate history",
        "tail" => "tollgate ledger tail",
        "list" | "ls" | "tasks" | "board" => "tollgate task list",
        "revert" | "rollback" | "checkout" => "tollgate undo",
        "recover" => "tollgate recovery list",
        "add" | "new" => "tollgate task add TITLE",
        "claim" => "tollgate task claim --next --agent NAME",
        "release" | "done" => "tollgate task release TASK --claim-id ID",
        "approve" | "reject" | "retry" => {
            return Some(format!("to do that, run `tollgate task {tried} TASK`"));
        }
        "check" | "verify" | "health" => "tollgate doctor",
        "info" | "ps" | "agents" | "who" => "tollgate status",
        "dashboard" | "web" | "ui" | "server" | "start" => "tollgate serve",
        "setup" | "install" | "hooks" | "guard" => "tollgate init --host HOST",
        "uninstall" => "tollgate init --host HOST --remove",
        "cat" => "tollgate read FILE",
        "rm" | "remove" => "tollgate delete FILE",
        "mv" | "rename" => "tollgate move FILE TO",
        "exec" => "tollgate run -- COMMAND",
        _ => return None,
    };
    Some(format!("to do that, run `{command}`"))
}

/// What to do about a command for `run` or `work` that is not behind `--`.
pub(crate) fn needs_dashes(verb: &str, first: &str) -> String {
    format!("the command goes behind `--`: `tollgate {verb} -- {} ...`", plain(first))
}

// Messages for values that clap cannot parse. Clap prints them.

pub(crate) fn bad_line_number(text: &str) -> String {
    format!("`{}` is not a line number; give lines from 1, as in `10:20`, `10:` or `:20`", plain(text))
}

pub(crate) fn bad_number(text: &str, least: impl Display, most: impl Display) -> String {
    format!("`{}` is not a whole number from {least} to {most}", plain(text))
}

pub(crate) fn lines_backwards(from: usize, to: usize) -> String {
    format!("line {to} comes before line {from}; give the smaller number first")
}

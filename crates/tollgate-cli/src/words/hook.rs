//! Words for models whose tool call was refused. The first line is for programs, the rest is an instruction.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::guard::Refused;
use tollgate::path::FilePath;
use tollgate::refusal::{Reason, Refusal, Stale};
use tollgate::turn::FileState;

use super::{ago, hint, plain, shown};
use crate::answer::{Stop, json_line, stop_json};
use crate::command::init::Hooked;
use crate::door::Door;
use crate::host::Became;

/// Some programs repeat the whole tool call beside the reason, so it is short; a repeated call gets more.
const DIFF_LINES: usize = 30;

/// Text that was overwritten is repeated up to this size.
const LOST: usize = 4_000;

/// A refusal, as an agent is told.
pub(crate) fn hook_refused(door: &Door, refused: &Refused, again: bool) -> String {
    let mut words = json_line(&refused.payload());
    if again {
        words += "\nYou have made this very call before, and it was refused for the same reason. Repeating it will be \
                  refused again.";
    }
    for refusal in refused.refusals() {
        words.push('\n');
        words += &refusal_words(door, refusal, again);
    }
    if refused.refusals().len() == 1 {
        words + "\nNothing was changed."
    } else {
        words + "\nNothing was changed, also not in the other files of this call."
    }
}

fn refusal_words(door: &Door, refusal: &Refusal, again: bool) -> String {
    let path = shown(door, refusal.path.as_path());
    match &refusal.reason {
        Reason::Stale(stale) => stale_words(door, &path, stale, again),
        Reason::Busy { holder: Some(holder) } => {
            format!(
                "`{path}` is busy: `{holder}` is about to write it. Wait a moment, read `{path}` again, then retry."
            )
        }
        _ => {
            let report = refusal.report();
            format!("`{path}`: {} {}", plain(&report.message), plain(&report.recovery_hint))
        }
    }
}

fn stale_words(door: &Door, path: &str, stale: &Stale, again: bool) -> String {
    let who = match &stale.changed_by {
        Some(by) => format!("`{}` {}", by.agent, ago(door.now(), by.time)),
        None => "someone else".into(),
    };
    let mut words = match (stale.expected, stale.actual) {
        (_, FileState::Absent) => format!(
            "`{path}` was deleted by {who} since you read it. Look at it again; if it is gone on purpose leave it, else write \
             it anew."
        ),
        (FileState::Absent, _) => format!(
            "`{path}` was created by {who} since you looked. Read it, then change what you find or choose another path."
        ),
        _ => format!(
            "`{path}` was changed by {who} since you read it. Read the whole of `{path}` again, redo your change on what you \
             find, then write."
        ),
    };
    if again && let Some(diff) = &stale.diff {
        words += "\nWhat has changed since you read it:";
        let mut lines = diff.lines();
        for line in lines.by_ref().take(DIFF_LINES) {
            words += &format!("\n{}", plain(line));
        }
        if lines.next().is_some() {
            words += "\n...";
        }
    }
    words
}

/// What a tool overwrote although nobody had seen it: it slipped in between the check and the write.
pub(crate) fn hook_lost(door: &Door, path: &FilePath, text: &str, kept: Option<&str>) -> String {
    let path = shown(door, path.as_path());
    let mut end = text.len().min(LOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let cut = if end < text.len() { "\n..." } else { "" };
    let kept = kept.map(|id| format!(" It is kept, see `tollgate recovery show {id}`.")).unwrap_or_default();
    format!(
        "Someone else changed `{path}` in the moment before this write, so the write replaced text that you had not seen. \
         Read `{path}`, and bring back what is missing.{kept} The replaced text was:\n{}{cut}",
        &text[..end]
    )
}

pub(crate) fn hook_fault(stop: &Stop) -> String {
    let (what, then) = match stop {
        Stop::Usage { message, hint } => (plain(message), plain(hint)),
        Stop::Fault(fault) => (plain(&fault.to_string()), plain(&hint(fault))),
        Stop::Hangup | Stop::Mute(_) => (String::new(), String::new()),
    };
    format!(
        "{}\ntollgate could not tell whether this write is safe, so it was not made: {what}\nAsk a person to look at it: {then}",
        json_line(&stop_json(stop))
    )
}

pub(crate) fn hook_failed(what: &str) -> String {
    hook_fault(&Stop::usage(
        format!("the hook of tollgate failed: {what}"),
        "`tollgate doctor` looks for the reason; `on_fault = \"allow\"` under `[hooks]` lets such writes through",
    ))
}

pub(crate) fn hook_too_slow(deadline: Duration) -> String {
    hook_fault(&Stop::usage(
        format!("there was no answer within {} ms", deadline.as_millis()),
        "try again in a moment; if it stays, `tollgate doctor` looks for the reason",
    ))
}

pub(crate) fn bad_payload(host: &str, what: &str) -> Stop {
    Stop::usage(
        format!("what `{host}` sent to its hook cannot be understood: {what}"),
        "check that `tollgate init --host` was run for this program, and that tollgate is new enough for it",
    )
}

pub(crate) fn no_such_host(name: &str) -> Stop {
    Stop::usage(format!("no agent program is known as `{}`", plain(name)), "see `tollgate hook --help`")
}

/// What `init` did for agent programs, below what it did for itself.
pub(crate) fn hooked(hooked: &[Hooked], removing: bool) -> String {
    let mut words = String::new();
    for Hooked { host, files, done, then } in hooked {
        let files = quoted(files);
        words += &match done {
            Became::Written => format!("\nset up the hooks of `{host}` in {files}"),
            Became::Kept => format!("\nfound the hooks of `{host}` in {files}, left as they are"),
            Became::Removed => format!("\nremoved the hooks of `{host}` from {files}"),
            Became::NothingToRemove | Became::ByHand => format!("\nfound no hooks of `{host}`"),
        };
        if let Some(then) = then {
            words += &format!("\nnext: {then}");
        }
    }
    if !removing && !hooked.is_empty() {
        words += "\nnext: `tollgate doctor` tries the hooks out";
    }
    words
}

fn quoted(files: &[PathBuf]) -> String {
    files.iter().map(|file| format!("`{}`", file.display())).collect::<Vec<_>>().join(", ")
}

/// What `init` did about the MCP server.
pub(crate) fn registered(registered: &[Hooked]) -> String {
    let mut words = String::new();
    for Hooked { host, files, done, then } in registered {
        let files = quoted(files);
        words += &match done {
            Became::Written => format!("\nregistered the MCP server with `{host}` in {files}"),
            Became::Kept => format!("\nfound the MCP server of `{host}` in {files}, left as it is"),
            Became::Removed => format!("\nremoved the MCP server of `{host}` from {files}"),
            Became::NothingToRemove => format!("\nfound no MCP server of `{host}`"),
            Became::ByHand => format!("\nleft the settings of `{host}`, which are not in the workspace"),
        };
        if let Some(then) = then {
            words += &format!("\nnext: {then}");
        }
    }
    words
}

pub(crate) fn has_hooks(host: &str) -> Stop {
    Stop::usage(
        format!(
            "the hooks of `{host}` are set up here, and with the MCP server its agent would have two doors"
        ),
        format!(
            "take the hooks out first with `tollgate init --host {host} --remove`, or name both if you mean both: \
             `tollgate init --host {host} --mcp {host}`"
        ),
    )
}

pub(crate) fn has_server(host: &str) -> Stop {
    Stop::usage(
        format!(
            "the MCP server is registered with `{host}` here, and with hooks its agent would have two doors"
        ),
        format!(
            "take the server out first with `tollgate init --mcp {host} --remove`, or name both if you mean both: \
             `tollgate init --host {host} --mcp {host}`"
        ),
    )
}

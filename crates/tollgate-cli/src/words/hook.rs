//! What an agent's model reads when its tool call was refused. The first line is for programs, the rest are instructions.

use serde_json::json;
use tollgate::guard::Refused;
use tollgate::name::Agent;
use tollgate::path::FilePath;
use tollgate::refusal::{Reason, Refusal, Stale};
use tollgate::turn::FileState;
use tollgate::visible::plain;

use super::error::{error_json, message_and_hint};
use super::text::{Viewpoint, ago, quoted, shown};
use crate::answer::json_line;
use crate::error::CliError;

/// The longest diff, which only a repeated call gets. Some programs show the whole tool call beside the reason, so the
/// reason is short.
const DIFF_LINES: usize = 30;

/// The longest overwritten text that is shown, in bytes.
const LOST: usize = 4_000;

/// A refusal, for the agent.
pub(crate) fn hook_refused(view: &Viewpoint, refused: &Refused, again: bool, agent: &Agent) -> String {
    let mut words = json_line(&refused.payload());
    if again {
        words += "\nThis is the same call that was just refused. It was refused again, for the same reason.";
    }
    for refusal in refused.refusals() {
        words.push('\n');
        words += &refusal_words(view, refusal, again);
        if matches!(&refusal.reason, Reason::Stale(stale) if stale.mergeable) {
            let path = quoted(refusal.path.as_path());
            words += &format!(
                "\nOr run `tollgate merge {path} --write --agent {agent}`: your change can be merged without a conflict, and \
                 this command writes the merge and shows it."
            );
        }
    }
    if refused.refusals().len() == 1 {
        words + "\nNothing was changed."
    } else {
        words + "\nNothing was changed, not even the other files of this call."
    }
}

fn refusal_words(view: &Viewpoint, refusal: &Refusal, again: bool) -> String {
    let path = shown(view, refusal.path.as_path());
    match &refusal.reason {
        Reason::Stale(stale) if stale.harm.is_none() => stale_words(view, &path, stale, again),
        Reason::Busy { holder: Some(holder) } => {
            format!(
                "`{path}` is busy: `{holder}` is about to write it. Wait a moment, read `{path}` again, then retry."
            )
        }
        Reason::PremiseChanged(files) => {
            let files: Vec<String> =
                files.iter().map(|file| file.sentence(&shown(view, file.path.as_path()), view.now)).collect();
            format!(
                "`{path}` cannot be changed yet: {}. Read again what was changed, check whether your change is still right, \
                 then make it.",
                files.join("; ")
            )
        }
        _ => {
            let report = refusal.report();
            format!("`{path}`: {} {}", plain(&report.message), plain(&report.recovery_hint))
        }
    }
}

fn stale_words(view: &Viewpoint, path: &str, stale: &Stale, again: bool) -> String {
    let who = match &stale.changed_by {
        Some(by) => format!("`{}` {}", by.agent, ago(view.now, by.time)),
        None => "someone else".into(),
    };
    let mut words = match (stale.expected, stale.actual) {
        (_, FileState::Absent) => format!(
            "`{path}` was deleted by {who} since you last saw it. Read it again. If it was deleted on purpose, leave it; \
             otherwise write it again."
        ),
        (FileState::Absent, _) => format!(
            "`{path}` already exists: {who} created it. Read it, then change what you find or choose another path."
        ),
        _ => format!(
            "`{path}` was changed by {who} since you last saw it. Read the whole of `{path}` again, redo your change on \
             what you find, then write."
        ),
    };
    if again && let Some(diff) = &stale.diff {
        words += "\nChanges since you last saw it:";
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

/// Text that a tool overwrote and that the agent had not seen, because it was saved between the check and the write.
pub(crate) fn hook_lost(view: &Viewpoint, path: &FilePath, text: &str, kept: Option<&str>) -> String {
    let path = shown(view, path.as_path());
    let mut end = text.len().min(LOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let cut = if end < text.len() { "\n..." } else { "" };
    let kept = kept.map(|id| format!(" `tollgate recovery show {id}` prints all of it.")).unwrap_or_default();
    format!(
        "Someone else changed `{path}` just before this write, so the write replaced text that you have not seen. Read \
         `{path}` and restore what is missing.{kept} The replaced text was:\n{}{cut}",
        &text[..end]
    )
}

/// Why a command counts as changing every file that it names.
pub(crate) const HOOK_VAGUE: &str = "\ntollgate cannot tell from the text of this command which files it changes, so it counts \
     as changing every file that it names. To read a file, use a command that only reads.";

/// A shell command that only a person may run.
pub(crate) fn hook_people_only(command: &str) -> String {
    let message = format!("only a person may run `{command}`");
    let hint = "ask a person to do it, on the dashboard or in their own terminal";
    format!(
        "{}\nOnly a person may run `{command}`, so this command was blocked. Nothing was changed. Tell the person what you \
         need and why; they do it on the dashboard or in their own terminal.",
        json_line(&json!({"error": "PEOPLE_ONLY", "message": message, "hint": hint})),
    )
}

/// A command of tollgate under another name than the agent's own.
pub(crate) fn hook_other_name(command: &str, own: &Agent) -> String {
    let message = format!("you are `{own}`, and `{command}` would act under another name");
    let hint = format!("run it with `--agent {own}`");
    format!(
        "{}\nYou are `{own}`, and this command would act under another name, so it was blocked. Nothing was changed. Run \
         `{command}` with `--agent {own}`.",
        json_line(&json!({"error": "OTHER_NAME", "message": message, "hint": hint})),
    )
}

/// A shell in which a command cannot be run through `tollgate run`.
pub(crate) fn unknown_shell() -> &'static str {
    "tollgate: this command did not run, because this shell does not tell tollgate what it executes; use bash -c, zsh -c or \
     sh -c, or set shell = \"parse\" under [run] in .tollgate/config.toml"
}

/// A hook that could not judge a write.
pub(crate) fn hook_fault(error: &CliError) -> String {
    let [line, what, then] = explained(error);
    format!(
        "{line}\ntollgate could not check whether this write is safe, so it blocked the write: {what}\nAsk a person for \
         help: {then}"
    )
}

/// A hook that could not record a change after the tool had made it.
pub(crate) fn hook_not_recorded(error: &CliError) -> String {
    let [line, what, then] = explained(error);
    format!(
        "{line}\nIf this tool changed a file, tollgate could not record that change as yours: {what}\nBefore you change the \
         same file again, read it again. Ask a person for help: {then}"
    )
}

/// An error: the line for programs, what happened, and what to do.
fn explained(error: &CliError) -> [String; 3] {
    let (what, then) = message_and_hint(error);
    [json_line(&error_json(error)), plain(&what), plain(&then)]
}

//! `tollgate task edit`: a person changes a task in their own editor.

use std::io::{Read, Seek, Write};
use std::process::Command;
use std::thread::sleep;

use clap::Args;
use serde_json::json;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::vault::TaskName;
use tollgate::vault::brief::Brief;
use tollgate::vault::retry::with_retry;
use tollgate::vault::state::State;

use super::decide::{Deciding, refused, said};
use crate::answer::{Answer, Said};
use crate::error::{CliError, UsageError};
use crate::invocation::Invocation;
use crate::surroundings::Surroundings;
use crate::words;

/// Edit a task in `Needs_Action` with your editor: its priority, due date, action and body
///
/// Opens a copy of the task in `VISUAL` or `EDITOR`, else `vi`. The new text becomes the task in one step, on every store,
/// unless somebody has claimed or changed the task in the meantime. Like `approve`, it needs a terminal.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  EDITOR='code --wait' tollgate task edit pay-the-rent")]
pub(crate) struct TaskEditArgs {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Name of the person who edits [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
}

pub(crate) fn run(invocation: &Invocation, args: &TaskEditArgs) -> Result<Answer, CliError> {
    let task = &args.task;
    let deciding = match Deciding::begin(invocation, task, args.by.as_ref())? {
        Ok(deciding) => deciding,
        Err(answer) => return Ok(answer),
    };
    let Some((found, bytes)) = deciding.found(task, Some(State::NeedsAction))? else {
        // The vault says why not.
        let denied =
            deciding.tasks.vault.edit(task, &deciding.by, Digest::of(b""), "text", invocation.now())?;
        return said(task, denied, ("edit", "edited"), &deciding.by);
    };
    if found.len > bytes.len() as u64 {
        return Ok(refused(task, "too_long", &words::too_long_to_decide(task, found.len)));
    }
    let text = edited(&found.name, &bytes)?;
    if text.as_bytes() == bytes {
        let json =
            json!({"task": found.name, "state": found.slot.state(), "by": deciding.by, "changed": false});
        return Ok(Answer::Done(Said { words: words::not_edited(task), json, ..Said::default() }));
    }
    // An agent must be able to read it.
    let brief = Brief::read(text.as_bytes()).map_err(|broken| UsageError::BadTask(broken.to_string()))?;
    if let Some(circle) = deciding.tasks.vault.circle(&found.name, &brief.after, invocation.now())? {
        return Ok(words::closes_a_circle(&circle));
    }
    let (seen, by) = (Digest::of(&bytes), &deciding.by);
    let vault = &deciding.tasks.vault;
    let decided = with_retry(|| vault.edit(&found.name, by, seen, &text, invocation.now()), &sleep)?;
    said(task, decided, ("edit", "edited"), by)
}

/// What the person makes of the text.
fn edited(task: &TaskName, bytes: &[u8]) -> Result<String, CliError> {
    let fault = |source| Fault::Io { doing: "edit", path: task.as_str().into(), source };
    let copy = tempfile::Builder::new().prefix("tollgate-").suffix(".md").tempfile().map_err(fault)?;
    copy.as_file().write_all(bytes).map_err(fault)?;
    let editor = Surroundings::editor();
    // Through a shell, because the variable may have options.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(copy.path())
        .status()
        .map_err(fault)?;
    if !status.success() {
        return Err(UsageError::EditorFailed(editor).into());
    }
    let mut text = String::new();
    // Some editors replace the file.
    let mut file = std::fs::File::open(copy.path()).map_err(fault)?;
    file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(fault)?;
    Ok(text)
}

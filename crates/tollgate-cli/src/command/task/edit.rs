//! `tollgate task edit`: a person changes a task in their own editor.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::thread::sleep;

use clap::Args;
use serde_json::json;
use tempfile::TempPath;
use tollgate::digest::Digest;
use tollgate::error::At;
use tollgate::vault::TaskName;
use tollgate::vault::brief::Brief;
use tollgate::vault::retry::with_retry;
use tollgate::vault::state::State;
use tollgate::vault::store::Task;
use tollgate::visible::plain;

use super::decide::{PersonDecision, refused, said};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::surroundings::Surroundings;
use crate::words;

/// Edit a task in `Needs_Action` or `Pending_Approval` with your editor: its priority, due date, action, body and draft
///
/// Opens a copy of the task in `VISUAL` or `EDITOR`, else `vi`. The new text becomes the task in one step, on every store,
/// unless somebody has claimed or changed the task in the meantime. A draft still waits for approval. If it cannot be stored, the command keeps it in a file and says
/// where. Like `approve`, it needs a terminal.
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
    let deciding = match PersonDecision::begin(invocation, task, args.by.as_ref())? {
        Ok(deciding) => deciding,
        Err(answer) => return Ok(answer),
    };
    let waiting = match deciding.found(task, Some(State::NeedsAction))? {
        None => deciding.found(task, Some(State::PendingApproval))?,
        unclaimed => unclaimed,
    };
    let Some((found, bytes)) = waiting else {
        // The vault says why not.
        let denied =
            deciding.tasks.vault.edit(task, &deciding.by, Digest::of(b""), "text", invocation.now())?;
        return said(task, denied, ("edit", "edited"), &deciding.by);
    };
    if found.len > bytes.len() as u64 {
        return Ok(refused(task, "too_long", &words::too_long_to_decide(task, found.len)));
    }
    let copy = EditorCopy::of(&found.name, bytes)?;
    let answer = edit(invocation, &deciding, &copy, &found);
    copy.kept_unless_stored(answer)
}

/// Opens the copy in the person's editor and stores what they make of it.
fn edit(
    invocation: &Invocation,
    deciding: &PersonDecision,
    copy: &EditorCopy,
    found: &Task,
) -> Result<Answer, CliError> {
    let (task, by, vault) = (&found.name, &deciding.by, &deciding.tasks.vault);
    let text = copy.edited()?;
    if text.as_bytes() == copy.before {
        let json = json!({"task": task, "state": found.slot.state(), "by": by, "changed": false});
        return Ok(Answer::Done(Reply::new(words::not_edited(task), json)));
    }
    if text.trim().is_empty() {
        return Err(CliError::usage(
            "the new text is empty, so nothing was changed",
            format!(
                "to drop the task, run `tollgate task reject {} --reason TEXT`",
                words::word(task.stem())
            ),
        ));
    }
    // An agent must be able to read it.
    let brief = Brief::read(text.as_bytes()).map_err(|broken| {
        CliError::usage(format!("an agent could not read this task: {broken}"), "correct the text")
    })?;
    if let Some(circle) = vault.circle(task, &brief.after, invocation.now())? {
        return Ok(words::closes_a_circle(&circle));
    }
    let seen = Digest::of(&copy.before);
    let decided = with_retry(|| vault.edit(task, by, seen, &text, invocation.now()), &sleep)?;
    said(task, decided, ("edit", "edited"), by)
}

/// A copy of a task for the person's editor.
struct EditorCopy {
    task: TaskName,
    before: Vec<u8>,
    path: TempPath,
}

impl EditorCopy {
    fn of(task: &TaskName, before: Vec<u8>) -> Result<Self, CliError> {
        let file = tempfile::Builder::new().prefix("tollgate-").suffix(".md").tempfile();
        let file = file.at("edit", task.as_str())?;
        file.as_file().write_all(&before).at("edit", task.as_str())?;
        Ok(Self { task: task.clone(), before, path: file.into_temp_path() })
    }

    /// What the person makes of the text.
    fn edited(&self) -> Result<String, CliError> {
        let editor = Surroundings::editor();
        // Through a shell, because the variable may have options.
        let status = Command::new("sh")
            .args(["-c", &format!("{editor} \"$1\""), "sh"])
            .arg(&self.path)
            .status()
            .at("edit", self.task.as_str())?;
        if !status.success() {
            return Err(CliError::usage(
                format!("the editor `{}` failed, so nothing was changed", plain(&editor)),
                "set `VISUAL` or `EDITOR` to the command of your editor, which must wait until you have closed the file",
            ));
        }
        Ok(fs::read_to_string(&self.path).at("edit", self.task.as_str())?)
    }

    /// Unless the person's text was stored, it stays in the copy, and the answer says where.
    fn kept_unless_stored(self, answer: Result<Answer, CliError>) -> Result<Answer, CliError> {
        let is_lost = !matches!(answer, Ok(Answer::Done(_)));
        let text = fs::read(&self.path).unwrap_or_default();
        if !is_lost || text == self.before || text.trim_ascii().is_empty() {
            return answer;
        }
        // If it cannot be kept, it was deleted.
        let Ok(path) = self.path.keep() else { return answer };
        let kept = words::edit_is_kept(&path, &self.task);
        match answer {
            Ok(Answer::NotValid(said)) => Ok(Answer::NotValid(Reply { notes: said.notes + &kept, ..said })),
            Ok(answer) => Ok(answer),
            Err(error) => Err(CliError::WithHint(Box::new(error), kept)),
        }
    }
}

//! The tool that commits an agent's own changes in git.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::own_commit::{CannotCommit, CommitAnswer, CommitRequest, HookOutput, Left, RepositoryHooks};
use tollgate::turn::TurnState;

use super::call::{ToolCall, done};
use super::schema::{Input, Output, Shape, text};
use super::tool::{Hints, Tool};
use crate::mcp::answer::ToolAnswer;

const COMMIT: Output = Output(
    || {
        let text_or_null = || json!({"type": ["string", "null"]});
        let left = json!({
            "type": "object",
            "properties": {"path": text(), "agent": text_or_null(), "reason": text()},
            "required": ["path", "agent", "reason"],
        });
        Shape::all(json!({
            "commit": text_or_null(),
            "branch": text_or_null(),
            "paths": {"type": "array", "items": text()},
            "left": {"type": "array", "items": left},
        }))
    },
    Some(Shape::refusal),
);

pub(super) static COMMIT_CHANGES: Tool = Tool {
    name: "commit_changes",
    title: "Commit Changes",
    description: "Commit your own changes in git, and nobody else's: the files that you have written, created, \
        deleted or moved since HEAD. In a file that others have changed, too, your changes alone are committed if \
        they apply to HEAD's version. The index, the files and everybody else's changes stay as they are. Returns \
        the `commit`, the `branch`, its `paths`, and what had to be `left`, with the other author and the reason. \
        With `paths`, only these files and folders. With `dry_run`, only says what would be committed.",
    hints: Hints::STEPS,
    input: Input(properties, &["message"]),
    output: COMMIT,
    run: commit,
};

fn properties() -> Value {
    json!({
        "message": {"type": "string"},
        "paths": {"type": "array", "items": {"type": "string"}, "description": "Only these files and folders"},
        "dry_run": {"type": "boolean", "default": false, "description": "Only say what would be committed"},
    })
}

#[derive(Deserialize)]
struct CommitArguments {
    message: String,
    #[serde(default)]
    paths: Option<Vec<String>>,
    #[serde(default)]
    dry_run: Option<bool>,
}

fn commit(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: CommitArguments = call.arguments(value)?;
    let running = call.turn()?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in given.paths.unwrap_or_default() {
        let path = call.gate.workspace().canonical_link(call.readable(&path)?)?;
        paths.push(path.as_path().to_owned());
    }
    let turn: &dyn TurnState = running.turn();
    let request = CommitRequest {
        turn,
        turns: &[],
        folder: call.gate.workspace().path(),
        paths: &paths,
        message: Some(&given.message),
        dry_run: given.dry_run.unwrap_or(false),
        output: HookOutput::Answer,
        hooks: RepositoryHooks::Skip,
    };
    match done(call.gate.commit_own(&request))? {
        CommitAnswer::Commit(commit) => Ok(ToolAnswer::value(json!({
            "commit": commit.commit,
            "branch": commit.branch,
            "paths": commit.paths,
            "left": commit.left.iter().map(Left::json).collect::<Vec<_>>(),
        }))),
        CommitAnswer::Nothing(left) => Err(ToolAnswer::failure(nothing(&left))),
        CommitAnswer::Cannot(why) => Err(ToolAnswer::failure(cannot(&why))),
    }
}

fn nothing(left: &[Left]) -> String {
    let mut words = "nothing was committed: HEAD has every change of yours that can be told apart".to_owned();
    for left in left {
        let other =
            left.agent.as_ref().map_or("a program that does not use tollgate", |agent| agent.as_str());
        words += &format!("\nleft `{}`, which {other} has changed, too: {}", left.path, left.why);
    }
    words + "\nhint: only changes that you made with these tools count"
}

fn cannot(why: &CannotCommit) -> String {
    match why {
        CannotCommit::InProgress(what) => format!(
            "a {what} is in progress in this working tree, and a commit would become part of it\nhint: tell the user"
        ),
        CannotCommit::Moved => {
            "others commit, switch the branch or save these files all the time\nhint: call \
             commit_changes again"
                .to_owned()
        }
        CannotCommit::IndexLocked(lock) => format!(
            "another git has locked the index: `{}` exists\nhint: call commit_changes again in a moment",
            lock.display()
        ),
        CannotCommit::Git(said) => format!(
            "git did not make the commit: {said}\nhint: fix what git or a hook of the repository said, then call \
             commit_changes again"
        ),
    }
}

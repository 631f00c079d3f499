//! The tools: [`TABLE`] lists them, [`call`] runs one.
//!
//! A new tool takes a file with its [`Tool`], and a line in [`TABLE`].

#![allow(
    clippy::result_large_err,
    reason = "an answer is made once per call, and moving it costs nothing compared with the disk"
)]

mod call;
mod commit;
mod folder;
mod history;
mod instructions;
mod merge;
mod read;
mod schema;
mod task;
mod task_output;
mod tool;
mod turn;
mod write;

use serde_json::{Map, Value};

use super::answer::ToolAnswer;
use super::connection::McpConnection;
use call::ToolCall;
pub(super) use instructions::INSTRUCTIONS;
pub(super) use tool::{Hints, Tool};

/// The tools of the reference filesystem server in its order, with its names, titles, arguments and hints; then our own.
pub(super) static TABLE: [&Tool; 29] = [
    &read::READ_FILE,
    &read::READ_TEXT_FILE,
    &read::READ_MEDIA_FILE,
    &read::READ_MULTIPLE_FILES,
    &write::WRITE_FILE,
    &write::EDIT_FILE,
    &folder::CREATE_DIRECTORY,
    &folder::LIST_DIRECTORY,
    &folder::LIST_DIRECTORY_WITH_SIZES,
    &folder::DIRECTORY_TREE,
    &write::MOVE_FILE,
    &folder::SEARCH_FILES,
    &folder::GET_FILE_INFO,
    &folder::LIST_ALLOWED_DIRECTORIES,
    &write::DELETE_FILE,
    &write::WRITE_FILES,
    &turn::BEGIN_TURN,
    &turn::END_TURN,
    &turn::GET_INITIAL_HASH,
    &merge::MERGE_FILE,
    &commit::COMMIT_CHANGES,
    &history::FILE_HISTORY,
    &history::BLAME,
    &task::LIST_TASKS,
    &task::GET_TASK,
    &task::CLAIM_TASK,
    &task::RENEW_TASK,
    &task::REPORT_PROGRESS,
    &task::RELEASE_TASK,
];

/// The tool with this name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TABLE.into_iter().find(|tool| tool.name == name)
}

/// Runs a call. `None` if there is no such tool. Blocks.
pub(super) fn call(
    connection: &McpConnection,
    name: &str,
    mut arguments: Map<String, Value>,
) -> Option<ToolAnswer> {
    let tool = find(name)?;
    let turn_id = match arguments.remove("turn_id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id),
        Some(_) => {
            return Some(ToolAnswer::failure(format!(
                "invalid arguments for `{name}`: `turn_id` must be a string"
            )));
        }
    };
    let named = match &turn_id {
        Some(id) => match connection.server().turns().find(id) {
            Some(turn) => Some(turn),
            None => return Some(ToolAnswer::failure(unknown_turn(id))),
        },
        None => None,
    };
    let gate = match connection.gate_for_call() {
        Ok(gate) => gate,
        Err(fault) => return Some(fault.into()),
    };
    let tasks = connection.server().tasks();
    let call = ToolCall { tool: tool.name, connection, gate: &gate, tasks, named };
    let answer = (tool.run)(&call, Value::Object(arguments)).unwrap_or_else(|answer| answer);
    Some(answer.with_notes(call.notes()))
}

fn unknown_turn(id: &str) -> String {
    let id: String = id.chars().take(80).collect();
    format!(
        "unknown turn `{}`: it was ended, or it was idle for too long\nhint: call begin_turn, read the files you want \
         to change again, then write with the new turn_id",
        id.escape_debug()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::mcp::connection::ConnectionKind;
    use crate::mcp::{Server, ServerOptions};
    use serde_json::json;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;
    use tollgate::gate::Gate;
    use tollgate::workspace::Workspace;

    /// Long enough for a call that does not wait to answer.
    const MOMENT: Duration = Duration::from_millis(60);

    #[test]
    fn a_call_waits_for_other_calls_of_its_turn_on_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        let gate = Gate::new(Workspace::open(folder.path(), Default::default()).unwrap());
        let path = gate.workspace().canonical("a").unwrap();
        let server = Server::new(gate, ServerOptions::new("blue".parse().unwrap()));
        let connection = Arc::new(McpConnection::new(server, ConnectionKind::Stream));
        let edits = json!([{"oldText": "one", "newText": "two"}]);
        for (tool, arguments, only_reads) in [
            ("read_text_file", json!({"path": "a"}), true),
            ("read_media_file", json!({"path": "./a"}), true),
            ("read_multiple_files", json!({"paths": ["d/../a"]}), true),
            ("edit_file", json!({"path": "a", "edits": edits, "dryRun": true}), true),
            ("edit_file", json!({"path": "a", "edits": edits}), false),
            ("write_file", json!({"path": "a", "content": "x"}), false),
            (
                "write_files",
                json!({"changes": [{"path": "b", "content": ""}, {"path": "a", "content": "x"}]}),
                false,
            ),
            ("move_file", json!({"source": "d", "destination": "e"}), false),
            ("move_file", json!({"source": "a", "destination": "c"}), false),
            ("delete_file", json!({"path": "a"}), false),
        ] {
            std::fs::write(folder.path().join("a"), "one").unwrap();
            // A new turn, so that no earlier read makes the file stale.
            let running = connection.begin().unwrap();
            let answer_of = |connection: &Arc<McpConnection>| {
                let (send, answer) = mpsc::channel();
                let (connection, Value::Object(arguments)) = (connection.clone(), arguments.clone()) else {
                    unreachable!("they are objects")
                };
                std::thread::spawn(move || drop(send.send(call(&connection, tool, arguments))));
                answer
            };
            if only_reads {
                let reading = running.reading(&path);
                answer_of(&connection).recv_timeout(Duration::from_secs(60)).expect(tool).unwrap();
                drop(reading);
            }
            let writing = running.writing([&path]);
            let answer = answer_of(&connection);
            assert!(answer.recv_timeout(MOMENT).is_err(), "{tool} did not wait");
            drop(writing);
            let answer = answer.recv_timeout(Duration::from_secs(60)).expect(tool).unwrap();
            assert!(!answer.failed, "{tool}: {answer:?}");
        }
    }
}

//! The table of tools: what there is, and what each takes and gives.
//!
//! Names, titles, arguments and hints of the first fourteen are those of the reference filesystem server. A new tool
//! is a line in [`TABLE`] and a function.

use super::schema::{Input, Output, nothing, path_only};
use super::{Hints, Tool, folder, read, task, turn, write};

const OVERWRITES: Hints = Hints::Writes { destructive: true, idempotent: true };
const CHANGES: Hints = Hints::Writes { destructive: true, idempotent: false };
const ADDS: Hints = Hints::Writes { destructive: false, idempotent: true };
const STEPS: Hints = Hints::Writes { destructive: false, idempotent: false };

/// In the order of the reference server; what is added follows.
pub(crate) static TABLE: &[Tool] = &[
    Tool {
        name: "read_file",
        title: "Read File (Deprecated)",
        description: "Read a file as text. Deprecated: use read_text_file, which does the same.",
        hints: Hints::Reads,
        input: Input(read::text_properties, &["path"]),
        output: Output::Text,
        run: read::text,
    },
    Tool {
        name: "read_text_file",
        title: "Read Text File",
        description: "Read a file as text, whatever its extension: all of it, the first N lines (`head`) or the last N lines \
            (`tail`). Reading is what allows you to write: a later write of this file is refused with STALE_FILE if \
            somebody else has changed it since. Read it again then. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(read::text_properties, &["path"]),
        output: Output::Text,
        run: read::text,
    },
    Tool {
        name: "read_media_file",
        title: "Read Media File",
        description: "Read a file as base64 with its MIME type: images and sounds as such, any other file as an embedded \
            resource. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(path_only, &["path"]),
        output: Output::Media,
        run: read::media,
    },
    Tool {
        name: "read_multiple_files",
        title: "Read Multiple Files",
        description: "Read several files as text in one call. Each comes with its path; one that cannot be read does not stop the \
            others. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(read::several_properties, &["paths"]),
        output: Output::Text,
        run: read::several,
    },
    Tool {
        name: "write_file",
        title: "Write File",
        description: "Make a file, or replace all of its content. Folders on the way are made. The write is refused with STALE_FILE, and \
            nothing changes, if the file is not what you last read in this turn: read it again, redo your change on what \
            you find, then write. Never repeat a refused write as it was. Only inside the allowed directories.",
        hints: OVERWRITES,
        input: Input(write::file_properties, &["path", "content"]),
        output: Output::Text,
        run: write::file,
    },
    Tool {
        name: "edit_file",
        title: "Edit File",
        description: "Replace pieces of a text file: each `oldText` must be in the file exactly once and becomes `newText`; everything else, line \
            ends included, stays as it is. Answers with a diff; with `dryRun` nothing but the diff. Refused with STALE_FILE if \
            somebody else has changed the file since you read it: read it again, then redo the edit. Only inside the allowed \
            directories.",
        hints: CHANGES,
        input: Input(write::edit_properties, &["path", "edits"]),
        output: Output::Text,
        run: write::edit,
    },
    Tool {
        name: "create_directory",
        title: "Create Directory",
        description: "Make a directory, and those on the way to it. If it is there already, nothing happens. Only inside the allowed \
            directories.",
        hints: ADDS,
        input: Input(path_only, &["path"]),
        output: Output::Text,
        run: folder::create,
    },
    Tool {
        name: "list_directory",
        title: "List Directory",
        description: "List what is in a directory, one name a line, with [FILE] or [DIR] in front. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(path_only, &["path"]),
        output: Output::Text,
        run: folder::list,
    },
    Tool {
        name: "list_directory_with_sizes",
        title: "List Directory with Sizes",
        description: "List what is in a directory with the size of each file and a summary, sorted by name or size. Only inside the \
            allowed directories.",
        hints: Hints::Reads,
        input: Input(folder::sizes_properties, &["path"]),
        output: Output::Text,
        run: folder::list_with_sizes,
    },
    Tool {
        name: "directory_tree",
        title: "Directory Tree",
        description: "Show everything below a directory as JSON: each entry has `name` and `type` (file or directory), directories have \
            `children`. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(folder::tree_properties, &["path"]),
        output: Output::Text,
        run: folder::tree,
    },
    Tool {
        name: "move_file",
        title: "Move File",
        description: "Move or rename a file or a directory. The destination must not exist. A file that somebody else has changed since you \
            read it is not moved: read it again first. Source and destination must both be inside the allowed directories.",
        hints: CHANGES,
        input: Input(write::move_properties, &["source", "destination"]),
        output: Output::Text,
        run: write::move_to,
    },
    Tool {
        name: "search_files",
        title: "Search Files",
        description: "Find files and directories below a directory by a glob pattern on their path relative to it: `*.rs` matches in that \
            directory, `**/*.rs` everywhere below. Answers with full paths. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(folder::search_properties, &["path", "pattern"]),
        output: Output::Text,
        run: folder::search,
    },
    Tool {
        name: "get_file_info",
        title: "Get File Info",
        description: "Size, times, permissions and type of a file or directory, without reading it. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(path_only, &["path"]),
        output: Output::Text,
        run: folder::info,
    },
    Tool {
        name: "list_allowed_directories",
        title: "List Allowed Directories",
        description: "Say which directories this server gives access to. Everything below them is allowed, too.",
        hints: Hints::Reads,
        input: Input(nothing, &[]),
        output: Output::Text,
        run: folder::allowed,
    },
    Tool {
        name: "delete_file",
        title: "Delete File",
        description: "Delete a file. Refused with STALE_FILE if somebody else has changed it since you read it: read it again and decide \
            anew. Only inside the allowed directories.",
        hints: OVERWRITES,
        input: Input(write::delete_properties, &["path"]),
        output: Output::Text,
        run: write::delete,
    },
    Tool {
        name: "write_files",
        title: "Write Files Together",
        description: "Change several files as one: all changes are made or none. Each names a `path` and one of `content` (replace all), \
            `edits` (replace pieces) or `delete: true`. If any file is not what you last read, all are refused; the answer \
            names every such file: read those again, redo the changes, then call again with all of them.",
        hints: CHANGES,
        input: Input(write::several_properties, &["changes"]),
        output: Output::Text,
        run: write::several,
    },
    Tool {
        name: "begin_turn",
        title: "Begin Turn",
        description: "Begin a fresh turn: what was read before no longer counts. Answers with its `turn_id`. Call it when you start on a new \
            request. Pass the turn_id to the other tools if you share this connection with other agents.",
        hints: Hints::Reads,
        input: Input(nothing, &[]),
        output: Output::TurnId,
        run: turn::begin,
    },
    Tool {
        name: "end_turn",
        title: "End Turn",
        description: "End the running turn, or the one named by `turn_id`. What was read in it is forgotten.",
        hints: Hints::Reads,
        input: Input(nothing, &[]),
        output: Output::TurnId,
        run: turn::end,
    },
    Tool {
        name: "get_initial_hash",
        title: "Get Initial Hash",
        description: "The SHA-256 that a file had when this turn first saw it, or null. The file is not read.",
        hints: Hints::Reads,
        input: Input(turn::initial_hash_properties, &["file_path"]),
        output: Output::InitialHash,
        run: turn::initial_hash,
    },
    Tool {
        name: "list_tasks",
        title: "List Tasks",
        description: "List the tasks that are not finished, in the order in which they are taken; with `state`, those in that state. \
            `claim_id` is there for your own.",
        hints: Hints::Reads,
        input: Input(task::list_properties, &[]),
        output: Output::Tasks,
        run: task::list,
    },
    Tool {
        name: "get_task",
        title: "Get Task",
        description: "One task: where it is, whose it is, and its text.",
        hints: Hints::Reads,
        input: Input(task::name_properties, &["task"]),
        output: Output::Task,
        run: task::get,
    },
    Tool {
        name: "claim_task",
        title: "Claim Task",
        description: "Take a task, so that nobody else works on it: the named one, or without `task` the next that is for you. Answers with \
            the `claim_id` that the other task tools ask for, the `path` of its file, and `mode`: with `execute` do what it \
            asks; with `draft` do not do it, but write what you would do into the file under `## Draft` and release it: a person \
            decides. Do not work on a task that you have not claimed.",
        hints: STEPS,
        input: Input(task::claim_properties, &[]),
        output: Output::Claim,
        run: task::claim,
    },
    Tool {
        name: "renew_task",
        title: "Renew Task",
        description: "Show that you are still working on a task you have claimed: extends its lease. If it is refused, the task is no longer \
            yours: stop working on it.",
        hints: ADDS,
        input: Input(task::owner_properties, &["task", "claim_id"]),
        output: Output::Renewed,
        run: task::renew,
    },
    Tool {
        name: "report_progress",
        title: "Report Progress",
        description: "Write a progress note into a task you have claimed. Extends its lease, too.",
        hints: STEPS,
        input: Input(task::progress_properties, &["task", "claim_id", "text"]),
        output: Output::Noted,
        run: task::progress,
    },
    Tool {
        name: "release_task",
        title: "Release Task",
        description: "Let a task go that you have claimed. `result`: success or failure. Without `to`, success leads to Done (from a draft to \
            Pending_Approval) and failure to another attempt; `to` may be Done, Pending_Approval or Rejected. `note` says in a \
            sentence what came of it.",
        hints: STEPS,
        input: Input(task::release_properties, &["task", "claim_id", "result"]),
        output: Output::Landed,
        run: task::release,
    },
];

/// What a model is told about the server as a whole.
pub(crate) const INSTRUCTIONS: &str = "\
Files here are shared with other agents and people. Every write is checked against what you last read.

- Read a file before you change it.
- If a write is refused with STALE_FILE, somebody changed the file after you read it and nothing was written. Read the file \
again with read_text_file (all of it, if you are going to replace all of it), redo your change on what you find, then write. \
Do not repeat the same write, and do not delete the file to get around it: you would destroy somebody's work.
- FILE_BUSY: wait a moment, then try again.
- TEXT_NOT_FOUND: read the file again and copy the old text exactly.
- To change several files that belong together, use write_files: all of them change or none.
- Call begin_turn when you start on a new request. If several agents share this connection, each calls begin_turn and \
passes its own turn_id to every tool.
- Work on a task only after claim_task has given it to you, and call release_task when you are done or give up. If a task tool \
answers that you are not the owner, stop working on that task. Only people approve tasks.";

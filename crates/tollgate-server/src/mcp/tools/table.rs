//! The table of all tools.
//!
//! The first fourteen have the names, titles, arguments and hints of the reference filesystem server. A new tool takes one
//! entry in [`TABLE`] and one function.

use super::schema::{Input, Output, nothing, path_only};
use super::tool::{Hints, Tool};
use super::{folder, merge, read, task, turn, write};

const OVERWRITES: Hints = Hints::Writes { destructive: true, idempotent: true };
const CHANGES: Hints = Hints::Writes { destructive: true, idempotent: false };
const ADDS: Hints = Hints::Writes { destructive: false, idempotent: true };
const STEPS: Hints = Hints::Writes { destructive: false, idempotent: false };

/// The tools of the reference server in its order, then our own.
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
        description: "Read a file as text, whatever its extension: all of it, the first N lines (`head`) or the \
            last N lines (`tail`). Read a file before you change it: a later write is refused with STALE_FILE if somebody \
            else has changed the file since, and then you must read it again. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(read::text_properties, &["path"]),
        output: Output::Text,
        run: read::text,
    },
    Tool {
        name: "read_media_file",
        title: "Read Media File",
        description: "Read a file as base64 with its MIME type. Images and audio are returned as such, any other \
            file as an embedded resource. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(path_only, &["path"]),
        output: Output::Media,
        run: read::media,
    },
    Tool {
        name: "read_multiple_files",
        title: "Read Multiple Files",
        description: "Read several files as text in one call. Each is returned with its path. A file that cannot \
            be read does not stop the others. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(read::several_properties, &["paths"]),
        output: Output::Text,
        run: read::several,
    },
    Tool {
        name: "write_file",
        title: "Write File",
        description: "Create a file, or replace its whole content. Creates missing parent directories. If the \
            file is not what you last read in this turn, the write is refused with STALE_FILE and nothing changes: \
            read the file again, redo your change on the new content, then write. Never repeat a refused write \
            unchanged. Only inside the allowed directories.",
        hints: OVERWRITES,
        input: Input(write::file_properties, &["path", "content"]),
        output: Output::Text,
        run: write::file,
    },
    Tool {
        name: "edit_file",
        title: "Edit File",
        description: "Replace parts of a text file. Each `oldText` must occur in the file exactly once and is \
            replaced with `newText`; everything else, including line ends, stays unchanged. Returns a diff; with \
            `dryRun` it only shows the diff and writes nothing. Refused with STALE_FILE if somebody else has changed \
            the file since you read it: read it again, then redo the edit. Only inside the allowed directories.",
        hints: CHANGES,
        input: Input(write::edit_properties, &["path", "edits"]),
        output: Output::Text,
        run: write::edit,
    },
    Tool {
        name: "create_directory",
        title: "Create Directory",
        description: "Create a directory and its missing parents. Does nothing if the directory exists. Only \
            inside the allowed directories.",
        hints: ADDS,
        input: Input(path_only, &["path"]),
        output: Output::Text,
        run: folder::create,
    },
    Tool {
        name: "list_directory",
        title: "List Directory",
        description: "List the entries of a directory, one per line, each marked [FILE] or [DIR]. Only inside \
            the allowed directories.",
        hints: Hints::Reads,
        input: Input(path_only, &["path"]),
        output: Output::Text,
        run: folder::list,
    },
    Tool {
        name: "list_directory_with_sizes",
        title: "List Directory with Sizes",
        description: "List the entries of a directory with their sizes and a summary, sorted by name or size. \
            Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(folder::sizes_properties, &["path"]),
        output: Output::Text,
        run: folder::list_with_sizes,
    },
    Tool {
        name: "directory_tree",
        title: "Directory Tree",
        description: "Show everything below a directory as JSON. Each entry has `name` and `type` (file or \
            directory); directories have `children`. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(folder::tree_properties, &["path"]),
        output: Output::Text,
        run: folder::tree,
    },
    Tool {
        name: "move_file",
        title: "Move File",
        description: "Move or rename a file or a directory. The destination must not exist. A file that somebody \
            else has changed since you read it is not moved: read it again first. Source and destination must both \
            be inside the allowed directories.",
        hints: CHANGES,
        input: Input(write::move_properties, &["source", "destination"]),
        output: Output::Text,
        run: write::move_to,
    },
    Tool {
        name: "search_files",
        title: "Search Files",
        description: "Find files and directories below a directory with a glob pattern on their relative path: \
            `*.rs` matches in that directory, `**/*.rs` also below it. Returns full paths. Only inside the allowed \
            directories.",
        hints: Hints::Reads,
        input: Input(folder::search_properties, &["path", "pattern"]),
        output: Output::Text,
        run: folder::search,
    },
    Tool {
        name: "get_file_info",
        title: "Get File Info",
        description: "Get the size, times, permissions and type of a file or directory, without reading its \
            content. Only inside the allowed directories.",
        hints: Hints::Reads,
        input: Input(path_only, &["path"]),
        output: Output::Text,
        run: folder::info,
    },
    Tool {
        name: "list_allowed_directories",
        title: "List Allowed Directories",
        description: "List the directories that this server gives access to. Everything below them is allowed, \
            too.",
        hints: Hints::Reads,
        input: Input(nothing, &[]),
        output: Output::Text,
        run: folder::allowed,
    },
    Tool {
        name: "delete_file",
        title: "Delete File",
        description: "Delete a file. Refused with STALE_FILE if somebody else has changed it since you read it: \
            read it again, then decide whether you still want to delete it. Only inside the allowed directories.",
        hints: OVERWRITES,
        input: Input(write::delete_properties, &["path"]),
        output: Output::Text,
        run: write::delete,
    },
    Tool {
        name: "write_files",
        title: "Write Files Together",
        description: "Change several files atomically: all changes are made, or none. Each change has a `path` \
            and one of `content` (replace the whole file), `edits` (replace parts) or `delete: true`. If any file is \
            not what you last read, the whole call is refused and the answer names every such file: read those \
            again, redo the changes, then call again with all of them.",
        hints: CHANGES,
        input: Input(write::several_properties, &["changes"]),
        output: Output::Text,
        run: write::several,
    },
    Tool {
        name: "begin_turn",
        title: "Begin Turn",
        description: "Begin a new turn. What you read before it no longer counts. Returns its `turn_id`. Call it \
            when you start on a new request. If you share this connection with other agents, pass the turn_id to all \
            other tools.",
        hints: Hints::Reads,
        input: Input(nothing, &[]),
        output: Output::TurnId,
        run: turn::begin,
    },
    Tool {
        name: "end_turn",
        title: "End Turn",
        description: "End the running turn, or the turn given by `turn_id`. What was read in it no longer \
            counts.",
        hints: Hints::Reads,
        input: Input(nothing, &[]),
        output: Output::TurnId,
        run: turn::end,
    },
    Tool {
        name: "get_initial_hash",
        title: "Get Initial Hash",
        description: "Get the SHA-256 that a file had when this turn first saw it, or null. Does not read the \
            file.",
        hints: Hints::Reads,
        input: Input(turn::initial_hash_properties, &["file_path"]),
        output: Output::InitialHash,
        run: turn::initial_hash,
    },
    Tool {
        name: "merge_file",
        title: "Merge File",
        description: "After a write or an edit was refused with STALE_FILE: merge what you wanted to write with what \
            is on disk. Returns the merged `content`, its `diff` from the disk, and whether it is `clean`. With \
            `write`, a clean merge is also written, so this one call replaces reading, redoing and writing. A merge \
            with conflicts has markers around them and is never written: resolve them, then write the whole file. \
            The merge counts as a read of the file.",
        hints: CHANGES,
        input: Input(merge::properties, &["path"]),
        output: Output::Merge,
        run: merge::merge,
    },
    Tool {
        name: "list_tasks",
        title: "List Tasks",
        description: "List the tasks that are not finished, in the order in which they are claimed. With \
            `state`, list the tasks in that state. Only your own tasks have a `claim_id`.",
        hints: Hints::Reads,
        input: Input(task::list_properties, &[]),
        output: Output::Tasks,
        run: task::list,
    },
    Tool {
        name: "get_task",
        title: "Get Task",
        description: "Get one task: its state, its owner and its text.",
        hints: Hints::Reads,
        input: Input(task::name_properties, &["task"]),
        output: Output::Task,
        run: task::get,
    },
    Tool {
        name: "claim_task",
        title: "Claim Task",
        description: "Claim a task, so that nobody else works on it: the given task, or without `task` the next \
            one that you may do. Returns the `claim_id` that the other task tools need, the `path` of the task file, \
            and the `mode`. Mode `execute`: do what the task asks. Mode `draft`: do not do it; write what you would \
            do into the file under `## Draft`, then release the task, and a person decides. Do not work on a task \
            that you have not claimed.",
        hints: STEPS,
        input: Input(task::claim_properties, &[]),
        output: Output::Claim,
        run: task::claim,
    },
    Tool {
        name: "renew_task",
        title: "Renew Task",
        description: "Extend the lease of a task that you have claimed, to show that you are still working on \
            it. If this is refused, the task is no longer yours: stop working on it.",
        hints: ADDS,
        input: Input(task::owner_properties, &["task", "claim_id"]),
        output: Output::Renewed,
        run: task::renew,
    },
    Tool {
        name: "report_progress",
        title: "Report Progress",
        description: "Write a progress note into a task that you have claimed. This also extends its lease.",
        hints: STEPS,
        input: Input(task::progress_properties, &["task", "claim_id", "text"]),
        output: Output::Noted,
        run: task::progress,
    },
    Tool {
        name: "release_task",
        title: "Release Task",
        description: "Release a task that you have claimed. `result` is success or failure. Without `to`, \
            success moves the task to Done (a draft to Pending_Approval), and failure allows another attempt. `to` \
            may be Done, Pending_Approval or Rejected. `note` describes the outcome in one sentence.",
        hints: STEPS,
        input: Input(task::release_properties, &["task", "claim_id", "result"]),
        output: Output::Landed,
        run: task::release,
    },
];

/// What the server tells every model about itself.
pub(crate) const INSTRUCTIONS: &str = "\
Other agents and people share these files. Every write is checked against what you last read.

- Read a file before you change it.
- If a write is refused with STALE_FILE, somebody changed the file after you read it, and nothing was written. Read the file \
again with read_text_file (the whole file, if you are going to replace the whole file), redo your change on the new content, \
then write. Or call merge_file with `write`, which does this in one call if the two changes do not overlap. Do not repeat the same write, and do not delete the file to get around the refusal: you would destroy somebody's work.
- FILE_BUSY: wait a moment, then try again.
- TEXT_NOT_FOUND: read the file again and copy the old text exactly.
- FENCED: your claim on a task has ended, and another agent may have it. Stop working on that task, call release_task for it, and \
only then go on with other work.
- To change several files that belong together, use write_files: all of them change, or none.
- Call begin_turn when you start on a new request. If several agents share this connection, each calls begin_turn and \
passes its own turn_id to every tool.
- Work on a task only after you have claimed it with claim_task, and call release_task when you finish or give up. If a task tool \
answers that you are not the owner, stop working on that task. Only people approve tasks.";

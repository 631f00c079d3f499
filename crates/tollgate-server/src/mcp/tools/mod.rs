//! The table of tools: what there is, what each takes and gives, and what runs it.
//!
//! Names, titles, arguments and hints of the first fourteen are those of the reference filesystem server. A new tool
//! is a line in [`TABLE`] and a function.

#![allow(
    clippy::result_large_err,
    reason = "an answer is made once per call, and moving it is nothing beside the disk"
)]

mod folder;
mod read;
mod turn;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::path::FilePath;

use super::answer::Answer;
use super::connection::Connection;
use super::turns::Running;

/// One tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) hints: Hints,
    input: Input,
    output: Output,
    pub(crate) run: fn(&Call<'_>, Value) -> Result<Answer, Answer>,
}

/// What a client may assume before it calls a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hints {
    Reads,
    Writes { destructive: bool, idempotent: bool },
}

/// The properties of the arguments as JSON Schema, and which of them are required.
struct Input(fn() -> Value, &'static [&'static str]);

/// What programs find in the answer.
#[derive(Clone, Copy)]
enum Output {
    /// `content`: text.
    Text,
    /// `content`: images, sounds, bytes.
    Media,
    /// `turn_id`.
    TurnId,
    /// `file_path` and `initial_hash`.
    InitialHash,
}

const OVERWRITES: Hints = Hints::Writes { destructive: true, idempotent: true };
const CHANGES: Hints = Hints::Writes { destructive: true, idempotent: false };
const ADDS: Hints = Hints::Writes { destructive: false, idempotent: true };

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
passes its own turn_id to every tool.";

/// The tool of this name.
pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TABLE.iter().find(|tool| tool.name == name)
}

/// As the reference server's schemas say, and as validators that know no newer one expect.
const DIALECT: &str = "http://json-schema.org/draft-07/schema#";

impl Tool {
    /// The arguments as JSON Schema.
    pub(crate) fn input_schema(&self) -> Map<String, Value> {
        let Input(properties, required) = self.input;
        let mut properties = properties();
        properties["turn_id"] = json!({
            "type": "string",
            "description": "Which turn this call belongs to, as begin_turn said. Without it: the running turn of this connection.",
        });
        let mut schema = object(&properties);
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        schema
    }

    /// What `structuredContent` looks like, whether the call is done or refused: some clients check both.
    pub(crate) fn output_schema(&self) -> Map<String, Value> {
        let mut properties = match self.output {
            Output::Text => json!({"content": {"type": "string"}}),
            Output::Media => json!({"content": {"type": "array", "items": {"anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "enum": ["image", "audio"]},
                        "data": {"type": "string"},
                        "mimeType": {"type": "string"},
                    },
                    "required": ["type", "data", "mimeType"],
                    "additionalProperties": false,
                },
                {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "const": "resource"},
                        "resource": {
                            "type": "object",
                            "properties": {
                                "uri": {"type": "string"},
                                "mimeType": {"type": "string"},
                                "blob": {"type": "string"},
                            },
                            "required": ["uri", "blob"],
                            "additionalProperties": false,
                        },
                    },
                    "required": ["type", "resource"],
                    "additionalProperties": false,
                },
            ]}}}),
            Output::TurnId => json!({"turn_id": {"type": "string"}}),
            Output::InitialHash => json!({
                "file_path": {"type": "string"},
                "initial_hash": {"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"},
            }),
        };
        let keys = |properties: &Value| -> Vec<String> {
            properties.as_object().into_iter().flat_map(Map::keys).cloned().collect()
        };
        let done = keys(&properties);
        let mut required = json!({ "required": done });
        if !matches!(self.output, Output::TurnId) {
            let refusal = refusal_properties();
            required = json!({"anyOf": [required, {"required": keys(refusal)}]});
            for (key, property) in refusal.as_object().into_iter().flatten() {
                properties[key] = property.clone();
            }
        }
        let mut schema = object(&properties);
        schema.extend(required.as_object().cloned().unwrap_or_default());
        schema.insert("additionalProperties".into(), json!(false));
        schema
    }
}

fn object(properties: &Value) -> Map<String, Value> {
    let schema = json!({"$schema": DIALECT, "type": "object", "properties": properties});
    schema.as_object().cloned().unwrap_or_default()
}

/// The five keys of a refusal.
fn refusal_properties() -> &'static Value {
    static PROPERTIES: OnceLock<Value> = OnceLock::new();
    PROPERTIES.get_or_init(|| {
        let schema = serde_json::to_value(tollgate::refusal::payload_schema()).unwrap_or_default();
        schema["properties"].clone()
    })
}

fn nothing() -> Value {
    json!({})
}

fn path_only() -> Value {
    json!({"path": {"type": "string"}})
}

/// `expected_hash`, for every tool that writes.
fn with_expected_hash(mut properties: Value) -> Value {
    properties["expected_hash"] = json!({
        "type": "string",
        "description": "SHA-256 that the file must have, 64 hex digits, as in `_meta.sha256` of a read. Without it: what this \
            turn last read or wrote.",
    });
    properties
}

/// A call: who asks, in which turn.
pub(crate) struct Call<'a> {
    pub(crate) tool: &'static str,
    pub(crate) connection: &'a Connection,
    pub(crate) gate: &'a Gate,
    /// The turn that the call names by `turn_id`.
    pub(crate) named: Option<Arc<Running>>,
}

impl Call<'_> {
    /// The turn this call belongs to.
    fn turn(&self) -> Result<Arc<Running>, Answer> {
        Ok(match &self.named {
            Some(turn) => turn.clone(),
            None if self.connection.remembers() => self.connection.running()?,
            None => Running::passing(self.gate, &self.connection.server.0.agent)?,
        })
    }

    /// What must be on disk for a write.
    fn expected(&self, hash: Option<Digest>) -> Result<Expected, Answer> {
        match hash {
            Some(hash) => Ok(Expected::Hash(hash)),
            None if self.named.is_some() || self.connection.remembers() => Ok(Expected::Baseline),
            // Nothing is known of what the agent has read, so nothing that is there may be replaced.
            None => Err(Answer::failure(
                "this connection remembers nothing between calls, so the server cannot know what you have read\n\
                 hint: call begin_turn and pass its turn_id to every read and write, or pass expected_hash with \
                 the sha256 of what you read",
            )),
        }
    }

    /// Like [`Call::expected`], for tools that may also make a file that is not there.
    fn expected_or_new(&self, hash: Option<Digest>, path: &FilePath) -> Result<Expected, Answer> {
        match self.expected(hash) {
            Err(_) if !path.as_path().exists() => Ok(Expected::Absent),
            expected => expected,
        }
    }

    /// The canonical path, whatever way it is spelled.
    fn canonical(&self, path: &Path) -> Result<FilePath, Answer> {
        Ok(self.gate.workspace().canonical(path)?)
    }

    /// Reads the arguments.
    fn arguments<T: DeserializeOwned>(&self, value: Value) -> Result<T, Answer> {
        serde_json::from_value(value)
            .map_err(|error| Answer::failure(format!("invalid arguments for `{}`: {error}", self.tool)))
    }

    /// Something was replaced and waits for its second look.
    fn changed(&self) {
        self.connection.server.0.changed.notify_one();
    }
}

/// A path as a client gives it: `~` is the home of the server's user.
fn path(text: &str) -> Result<PathBuf, Answer> {
    let drive = |text: &str| {
        let bytes = text.as_bytes();
        bytes.len() >= 2
            && bytes[0].is_ascii_alphabetic()
            && bytes[1] == b':'
            && matches!(bytes.get(2), None | Some(b'\\' | b'/'))
    };
    if drive(text) {
        return Err(Answer::failure(format!("`{text}` is a path of Windows, and this is not Windows")));
    }
    Ok(match (text.strip_prefix('~'), std::env::home_dir()) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(text),
    })
}

/// What was done; a refusal is the answer.
fn done<T>(outcome: Result<Outcome<T>, Fault>) -> Result<T, Answer> {
    match outcome? {
        Outcome::Done(done) => Ok(done),
        Outcome::Refused(refused) => Err(Answer::refused(&refused)),
    }
}

//! The arguments and results of the tools, as JSON Schema.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::vault::state::State;

/// The properties of the arguments, and the names of the required ones.
pub(super) struct Input(pub(super) fn() -> Value, pub(super) &'static [&'static str]);

/// What programs find in `structuredContent`.
#[derive(Clone, Copy)]
pub(super) enum Output {
    /// `content`: text.
    Text,
    /// `content`: images, audio, bytes.
    Media,
    /// `turn_id`.
    TurnId,
    /// `file_path` and `initial_hash`.
    InitialHash,
    /// `clean`, `content`, `diff` and `written`.
    Merge,
    /// Several tasks.
    Tasks,
    /// One task with its text.
    Task,
    /// A new claim.
    Claim,
    /// A renewed claim.
    Renewed,
    /// A progress note.
    Noted,
    /// The new state of a task.
    Landed,
}

/// The dialect of the reference server's schemas. Older validators do not know a newer one.
const DIALECT: &str = "http://json-schema.org/draft-07/schema#";

impl Input {
    /// The JSON Schema of the arguments.
    pub(super) fn schema(&self) -> Map<String, Value> {
        let Self(properties, required) = self;
        let mut properties = properties();
        properties["turn_id"] = json!({
            "type": "string",
            "description": "The turn that this call belongs to, from begin_turn. Default: the running turn of this connection.",
        });
        let mut schema = object(&properties);
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        schema
    }
}

/// The shape of a JSON object.
struct Shape {
    properties: Value,
    required: Vec<String>,
}

impl Shape {
    /// All properties are required.
    fn all(properties: Value) -> Self {
        Self::without(properties, &[])
    }

    /// All properties except these are required.
    fn without(properties: Value, optional: &[&str]) -> Self {
        let keys = properties.as_object().into_iter().flat_map(Map::keys);
        let required = keys.filter(|key| !optional.contains(&key.as_str())).cloned().collect();
        Self { properties, required }
    }
}

/// A string or null.
fn text_or_null() -> Value {
    json!({"type": ["string", "null"]})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn hash_or_null() -> Value {
    json!({"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"})
}

/// The optional properties of one task in a list.
const ROW_OPTIONAL: &[&str] =
    &["agent", "action", "priority", "due", "broken", "claim_id", "reason", "paused_until"];

fn row() -> Value {
    json!({
        "task": text(),
        "state": states(),
        "agent": text(),
        "action": text(),
        "priority": text(),
        "due": text(),
        "broken": text(),
        "attempts": {"type": "integer"},
        "age_s": {"type": "integer"},
        "claim_id": text(),
        "reason": text(),
        "paused_until": text(),
    })
}

/// The names of all states.
pub(super) fn states() -> Value {
    json!({"type": "string", "enum": State::ALL.map(State::as_str)})
}

impl Output {
    /// The JSON Schema of `structuredContent`. It covers results and refusals, because some clients validate both.
    pub(super) fn schema(self) -> Map<String, Value> {
        let mut shape = self.done();
        let mut required = json!({ "required": shape.required });
        if let Some(refused) = self.refused() {
            required = json!({"anyOf": [required, {"required": refused.required}]});
            for (key, property) in refused.properties.as_object().into_iter().flatten() {
                shape.properties[key] = property.clone();
            }
        }
        let mut schema = object(&shape.properties);
        schema.extend(required.as_object().cloned().unwrap_or_default());
        schema.insert("additionalProperties".into(), json!(false));
        schema
    }

    fn done(self) -> Shape {
        match self {
            Self::Text => Shape::all(json!({"content": text()})),
            Self::Media => Shape::all(media()),
            Self::TurnId => Shape::all(json!({"turn_id": text()})),
            Self::InitialHash => Shape::all(json!({"file_path": text(), "initial_hash": hash_or_null()})),
            Self::Merge => {
                let flag = || json!({"type": "boolean"});
                Shape::all(json!({"clean": flag(), "content": text(), "diff": text(), "written": flag()}))
            }
            Self::Tasks => {
                let row = Shape::without(row(), ROW_OPTIONAL);
                let row = json!({
                    "type": "object",
                    "properties": row.properties,
                    "required": row.required,
                    "additionalProperties": false,
                });
                Shape::all(json!({"tasks": {"type": "array", "items": row}, "total": {"type": "integer"}}))
            }
            Self::Task => {
                let more = json!({
                    "after": {"type": "array", "items": text()},
                    "claimed_at": text(),
                    "mode": modes(),
                    "epoch": {"type": "integer"},
                    "lease_until": text(),
                    "released_by": text(),
                    "approved_by": text(),
                    "path": text_or_null(),
                    "size": {"type": "integer"},
                    "sha256": hash_or_null(),
                    "content": text_or_null(),
                    "content_base64": text(),
                });
                let mut properties = row();
                for (key, property) in more.as_object().into_iter().flatten() {
                    properties[key] = property.clone();
                }
                let optional = [
                    "after",
                    "claimed_at",
                    "mode",
                    "epoch",
                    "lease_until",
                    "released_by",
                    "approved_by",
                    "content_base64",
                ];
                Shape::without(properties, &[ROW_OPTIONAL, &optional].concat())
            }
            Self::Claim => {
                let properties = json!({
                    "claimed": {"type": "boolean"},
                    "task": text_or_null(),
                    "agent": text(),
                    "claim_id": text(),
                    "path": text_or_null(),
                    "mode": modes(),
                    "epoch": {"type": "integer"},
                    "lease_until": text(),
                    "action": text(),
                });
                Shape::without(properties, &["lease_until", "action"])
            }
            Self::Renewed => {
                Shape::all(json!({"task": text(), "claim_id": text(), "lease_until": text_or_null()}))
            }
            Self::Noted => {
                Shape::all(json!({"task": text(), "claim_id": text(), "noted": {"type": "boolean"}}))
            }
            Self::Landed => Shape::all(json!({"task": text(), "state": states(), "path": text_or_null()})),
        }
    }

    /// `None` for tools that never refuse.
    fn refused(self) -> Option<Shape> {
        match self {
            Self::Text | Self::Media | Self::InitialHash | Self::Merge => {
                Some(Shape::without(refusal_properties().clone(), &["file_path_base64"]))
            }
            Self::TurnId | Self::Tasks | Self::Task => None,
            Self::Claim => {
                let properties = json!({
                    "claimed": {"type": "boolean"},
                    "task": text_or_null(),
                    "agent": text(),
                    "reason": {"type": "string", "enum": ["lost", "not_eligible", "blocked", "incomplete", "none"]},
                    "message": text(),
                    "until": text(),
                });
                Some(Shape::without(properties, &["until"]))
            }
            Self::Renewed | Self::Noted | Self::Landed => Some(Shape::all(json!({
                "task": text(),
                "refused": {"type": "boolean"},
                "reason": {"type": "string", "enum": ["not_owner"]},
                "message": text(),
            }))),
        }
    }
}

fn modes() -> Value {
    json!({"type": "string", "enum": ["execute", "draft"]})
}

fn media() -> Value {
    json!({"content": {"type": "array", "items": {"anyOf": [
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
    ]}}})
}

fn object(properties: &Value) -> Map<String, Value> {
    let schema = json!({"$schema": DIALECT, "type": "object", "properties": properties});
    schema.as_object().cloned().unwrap_or_default()
}

/// The five keys of a refusal, and the one that only some have.
fn refusal_properties() -> &'static Value {
    static PROPERTIES: OnceLock<Value> = OnceLock::new();
    PROPERTIES.get_or_init(|| {
        let schema = serde_json::to_value(tollgate::refusal::payload_schema()).unwrap_or_default();
        schema["properties"].clone()
    })
}

pub(super) fn nothing() -> Value {
    json!({})
}

pub(super) fn path_only() -> Value {
    json!({"path": {"type": "string"}})
}

/// The arguments of a tool that takes [`path_only`].
#[derive(Deserialize)]
pub(super) struct PathArguments {
    pub(super) path: String,
}

/// `expected_hash`, for every tool that writes.
pub(super) fn with_expected_hash(mut properties: Value) -> Value {
    properties["expected_hash"] = json!({
        "type": "string",
        "description": "The SHA-256 that the file must have: 64 hex digits, from `_meta.sha256` of a read. Default: what this turn \
            last read or wrote.",
    });
    properties
}

//! What the tools for tasks return, as JSON Schema.

use serde_json::{Value, json};
use tollgate::vault::state::State;

use super::schema::{Output, Shape, hash_or_null, text, text_or_null};

/// Several tasks.
pub(super) const TASKS: Output = Output(tasks, None);

/// One task with its text.
pub(super) const TASK: Output = Output(task, None);

/// A new claim.
pub(super) const CLAIM: Output = Output(claim, Some(denial));

/// A renewed claim.
pub(super) const RENEWED: Output = Output(
    || Shape::all(json!({"task": text(), "claim_id": text(), "lease_until": text_or_null()})),
    Some(not_owner),
);

/// A progress note.
pub(super) const NOTED: Output = Output(
    || Shape::all(json!({"task": text(), "claim_id": text(), "noted": {"type": "boolean"}})),
    Some(not_owner),
);

/// The new state of a task.
pub(super) const LANDED: Output = Output(
    || Shape::all(json!({"task": text(), "state": states(), "path": text_or_null()})),
    Some(not_owner),
);

/// The names of all states.
pub(super) fn states() -> Value {
    json!({"type": "string", "enum": State::ALL.map(State::as_str)})
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

fn modes() -> Value {
    json!({"type": "string", "enum": ["execute", "draft"]})
}

fn tasks() -> Shape {
    let row = Shape::without(row(), ROW_OPTIONAL);
    let row = json!({
        "type": "object",
        "properties": row.properties,
        "required": row.required,
        "additionalProperties": false,
    });
    Shape::all(json!({"tasks": {"type": "array", "items": row}, "total": {"type": "integer"}}))
}

fn task() -> Shape {
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

fn claim() -> Shape {
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

fn denial() -> Shape {
    let properties = json!({
        "claimed": {"type": "boolean"},
        "task": text_or_null(),
        "agent": text(),
        "reason": {"type": "string", "enum": ["lost", "not_eligible", "blocked", "incomplete", "none"]},
        "message": text(),
        "until": text(),
    });
    Shape::without(properties, &["until"])
}

fn not_owner() -> Shape {
    Shape::all(json!({
        "task": text(),
        "refused": {"type": "boolean"},
        "reason": {"type": "string", "enum": ["not_owner"]},
        "message": text(),
    }))
}

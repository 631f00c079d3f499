//! The arguments and results of the tools, as JSON Schema.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The properties of the arguments, and the names of the required ones.
pub(super) struct Input(pub(super) fn() -> Value, pub(super) &'static [&'static str]);

/// What programs find in `structuredContent`: the shape of a result, and that of a refusal, if the tool refuses.
#[derive(Clone, Copy)]
pub(super) struct Output(pub(super) fn() -> Shape, pub(super) Option<fn() -> Shape>);

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
pub(super) struct Shape {
    pub(super) properties: Value,
    pub(super) required: Vec<String>,
}

impl Shape {
    /// All properties are required.
    pub(super) fn all(properties: Value) -> Self {
        Self::without(properties, &[])
    }

    /// All properties except these are required.
    pub(super) fn without(properties: Value, optional: &[&str]) -> Self {
        let keys = properties.as_object().into_iter().flat_map(Map::keys);
        let required = keys.filter(|key| !optional.contains(&key.as_str())).cloned().collect();
        Self { properties, required }
    }

    /// A refusal of the guard.
    pub(super) fn refusal() -> Self {
        Self::without(refusal_properties().clone(), &["file_path_base64"])
    }
}

/// A string or null.
pub(super) fn text_or_null() -> Value {
    json!({"type": ["string", "null"]})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn hash_or_null() -> Value {
    json!({"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"})
}

impl Output {
    /// Text, or a refusal of the guard.
    pub(super) const TEXT: Self = Self(|| Shape::all(json!({"content": text()})), Some(Shape::refusal));

    /// The JSON Schema of `structuredContent`. It covers results and refusals, because some clients validate both.
    pub(super) fn schema(self) -> Map<String, Value> {
        let Self(done, refused) = self;
        let mut shape = done();
        let mut required = json!({ "required": shape.required });
        if let Some(refused) = refused.map(|refused| refused()) {
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

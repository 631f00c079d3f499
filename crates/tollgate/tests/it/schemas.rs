//! The committed JSON Schemas match the code, and every refusal matches the schemas.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tollgate::refusal::{ErrorType, payload_schema, report_schema};

use crate::world::World;

/// The schema in `schemas/`, which must match the code. `UPDATE_SCHEMAS=1` updates the file.
fn committed(name: &str, schema: &schemars::Schema) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name);
    let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        text,
        "if this is intended, run the tests with UPDATE_SCHEMAS=1"
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_kind_of_refusal_matches_the_schemas() {
    let payload = jsonschema::validator_for(&committed("payload.schema.json", &payload_schema())).unwrap();
    let report = jsonschema::validator_for(&committed("report.schema.json", &report_schema())).unwrap();
    let world = World::with("[guard]\nunread = \"refuse\"\nquiet_wait = \"10ms\"");
    let agent = world.agent("blue");
    world.outsider_writes("a", "one");
    world.outsider_writes("busy", "one");
    let _open = fs::File::options().append(true).open(world.root().join("busy")).unwrap();
    world.outsider_writes("linked", "one");
    fs::hard_link(world.root().join("linked"), world.root().join("other")).unwrap();
    world.outsider_writes("read_only", "one");
    let mut permissions = fs::metadata(world.root().join("read_only")).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(world.root().join("read_only"), permissions).unwrap();
    agent.reads("busy").reads("linked").reads("read_only");
    let mut refusals = vec![
        agent.writes("a", "x").refused(ErrorType::UnreadFile),
        agent.writes("busy", "x").refused(ErrorType::FileBusy),
        agent.writes("linked", "x").refused(ErrorType::HardLinked),
        agent.writes("read_only", "x").refused(ErrorType::ReadOnly),
        agent.writes("/etc/passwd", "x").refused(ErrorType::OutsideWorkspace),
        agent.writes(".tollgate/config.toml", "x").refused(ErrorType::ProtectedPath),
        agent.writes(".", "x").refused(ErrorType::NotAFile),
    ];
    agent.reads("a");
    refusals.push(agent.edits("a", "two", "x").refused(ErrorType::TextNotFound));
    world.outsider_writes("a", "two");
    refusals.push(agent.writes("a", "x").refused_stale());
    world.outsider_removes("a");
    refusals.push(agent.writes("a", "x").refused_stale());
    let resting = World::with("[guard]\npremises = \"refuse\"");
    let agent = resting.agent("green");
    resting.outsider_writes("a", "one");
    agent.reads("a");
    resting.outsider_writes("a", "two");
    refusals.push(agent.writes("b", "x").refused(ErrorType::PremiseChanged));
    for refused in &refusals {
        let json = serde_json::to_value(refused.payload()).unwrap();
        assert!(payload.is_valid(&json), "{json}");
        assert_eq!(json.as_object().unwrap().len(), 5);
        for json in refused.reports().iter().map(|report| serde_json::to_value(report).unwrap()) {
            assert!(report.is_valid(&json), "{json}");
        }
    }
    for broken in [
        serde_json::json!({}),
        serde_json::json!({"error_type":"STALE_FILE","file_path":"/a","expected_hash":"abc","actual_hash":null,"resolution":"RE_READ_REQUIRED"}),
        serde_json::json!({"error_type":"STALE_FILE","file_path":"/a","expected_hash":null,"actual_hash":null,"resolution":"RE_READ_REQUIRED","more":1}),
        serde_json::json!({"error_type":"STALE_FILE","file_path":"/a","actual_hash":null,"resolution":"RE_READ_REQUIRED"}),
        serde_json::json!({"error_type":"OTHER","file_path":"/a","expected_hash":null,"actual_hash":null,"resolution":"RE_READ_REQUIRED"}),
    ] {
        assert!(!payload.is_valid(&broken), "{broken}");
    }
}

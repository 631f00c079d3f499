//! Agent Trace records: which agent wrote which lines.

use serde_json::{Value, json};

use crate::world::{World, hash};

/// What the specification demands of a record, version 0.1: <https://agent-trace.dev>.
fn is_valid(record: &Value) {
    let contributor = json!({
        "type": "object", "additionalProperties": false, "required": ["type"],
        "properties": {"type": {"enum": ["human", "ai", "mixed", "unknown"]}, "model_id": {"type": "string", "maxLength": 250}},
    });
    let line = json!({"type": "integer", "minimum": 1});
    let range = json!({
        "type": "object", "additionalProperties": false, "required": ["start_line", "end_line"],
        "properties": {"start_line": line, "end_line": line, "content_hash": {"type": "string"}, "contributor": contributor},
    });
    let conversation = json!({
        "type": "object", "additionalProperties": false, "required": ["ranges"],
        "properties": {"url": {"type": "string"}, "contributor": contributor, "ranges": {"type": "array", "items": range}, "related": {"type": "array"}},
    });
    let file = json!({
        "type": "object", "additionalProperties": false, "required": ["path", "conversations"],
        "properties": {"path": {"type": "string"}, "conversations": {"type": "array", "items": conversation}},
    });
    let uuid = "^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";
    let tool = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "version"],
        "properties": {"name": {"type": "string"}, "version": {"type": "string"}},
    });
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["version", "id", "timestamp", "files"],
        "properties": {
            "version": {"type": "string", "pattern": "^[0-9]+\\.[0-9]+$"},
            "id": {"type": "string", "pattern": uuid},
            "timestamp": {"type": "string", "pattern": "^[0-9-]{10}T[0-9:.]+Z$"},
            "tool": tool,
            "files": {"type": "array", "items": file},
            "metadata": {"type": "object"},
        },
    });
    jsonschema::validator_for(&schema)
        .unwrap()
        .validate(record)
        .unwrap_or_else(|error| panic!("{error}: {record}"));
}

fn records(world: &World) -> Vec<Value> {
    let text = world.run("export --to agent-trace").is(0).stdout();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    records.iter().for_each(is_valid);
    records
}

/// Path, contributor and ranges of a record.
fn lines_of(record: &Value) -> (String, String, Vec<(u64, u64, String)>) {
    let file = &record["files"][0];
    let conversation = &file["conversations"][0];
    let range = |range: &Value| {
        let line = |key: &str| range[key].as_u64().unwrap();
        (line("start_line"), line("end_line"), range["content_hash"].as_str().unwrap().to_owned())
    };
    (
        file["path"].as_str().unwrap().to_owned(),
        conversation["contributor"]["type"].as_str().unwrap().to_owned(),
        conversation["ranges"].as_array().unwrap().iter().map(range).collect(),
    )
}

fn sha(text: &str) -> String {
    format!("sha256:{}", hash(text))
}

#[test]
fn a_trace_record_names_the_lines_that_an_agent_wrote() {
    let world = World::new();
    world.puts("a.rs", "one\ntwo\nthree\nfour\n");
    let turn = world.turn("blue");
    world.run(&format!("read a.rs --turn {turn}")).is(0);
    let write = |words: &[&str], text: &str| {
        world.tollgate(["write", "a.rs"].iter().chain(words)).stdin(text).ends().is(0);
    };
    write(&["--turn", &turn], "one\nTWO\nthree\nfour\nfive\nsix\n");
    write(&["--agent", "red"], "zero\none\nTWO\nthree\nfour\nfive\nsix\n");
    world.tollgate(["create", "b.rs", "--turn", &turn]).stdin("x\ny\n").ends().is(0);
    world.tollgate(["move", "b.rs", "c.rs", "--turn", &turn]).ends().is(0);
    let records = records(&world);
    let found: Vec<_> = records.iter().map(lines_of).collect();
    assert_eq!(
        found,
        [
            ("a.rs".into(), "ai".into(), vec![(2, 2, sha("TWO\n")), (5, 6, sha("five\nsix\n"))]),
            ("a.rs".into(), "ai".into(), vec![(1, 1, sha("zero\n"))]),
            // It is not at this path any more, and nobody kept it.
            ("b.rs".into(), "ai".into(), vec![]),
        ]
    );
    let ours = &records[0]["metadata"]["tollgate"];
    assert_eq!(
        (&ours["agent"], &ours["turn"], &ours["lines"]),
        (&"blue".into(), &turn.into(), &"known".into())
    );
    assert_eq!(records[2]["metadata"]["tollgate"]["lines"], "unknown");
    assert_eq!(self::records(&world), records, "the same ids, and the same lines");
}

#[test]
fn a_trace_record_names_files_from_the_root_of_the_repository() {
    let world = World::bare();
    std::fs::create_dir_all(world.path("app/.tollgate")).unwrap();
    std::fs::create_dir(world.path(".git")).unwrap();
    world.tollgate(["-C", "app", "create", "a.rs"]).stdin("x\n").ends().is(0);
    let text = world.run("-C app export --to agent-trace").is(0).stdout();
    let record: Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(lines_of(&record), ("app/a.rs".into(), "unknown".into(), vec![(1, 1, sha("x\n"))]));
}

//! The refusal as a contract: exact JSON, and a controller that needs nothing else to recover.

use serde_json::{Value, json};
use tollgate::digest::Digest;
use tollgate::guard::{Expected, Outcome};
use tollgate::part::Part;

use crate::world::World;

#[test]
fn payload_and_report_are_exactly_these_keys_in_this_order() {
    let world = World::new();
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_writes("a", "two");
    let refused = agent.writes("a", "x").refused_stale();
    let (one, two) = (Digest::of(b"one").to_string(), Digest::of(b"two").to_string());
    let path = world.root().join("a").display().to_string();
    assert_eq!(
        serde_json::to_string(&refused.payload()).unwrap(),
        format!(
            r#"{{"error_type":"STALE_FILE","file_path":"{path}","expected_hash":"{one}","actual_hash":"{two}","resolution":"RE_READ_REQUIRED"}}"#
        )
    );
    assert_eq!(
        serde_json::to_string(&refused.reports()).unwrap(),
        format!(
            r#"[{{"error_type":"STALE_FILE","message":"File modified by another actor. Re-read required.","details":{{"path":"{path}","baseline_hash":"{one}","current_disk_hash":"{two}"}},"recovery_hint":"Perform a new 'read_file' to see the latest changes before attempting to write again."}}]"#
        )
    );
    // All keys are there, also without a file.
    world.outsider_removes("a");
    let refused = agent.writes("a", "x").refused_stale();
    assert_eq!(
        serde_json::to_string(&refused.payload()).unwrap(),
        format!(
            r#"{{"error_type":"STALE_FILE","file_path":"{path}","expected_hash":"{one}","actual_hash":null,"resolution":"RE_READ_REQUIRED"}}"#
        )
    );
}

#[test]
fn the_ledger_line_of_a_conflict_has_exactly_this_form() {
    let world = World::new();
    world.outsider_writes("src/app.ts", "one");
    let agent = world.agent("blue");
    agent.reads("src/app.ts");
    world.outsider_writes("src/app.ts", "two");
    agent.writes("src/app.ts", "x").refused_stale();
    let lines = world.lines_of("MUTATION_CONFLICT");
    assert_eq!(lines.len(), 1, "exactly one line");
    let mut line = lines[0].clone();
    let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["seq", "prev", "time", "agent", "turn", "action_type", "payload", "result"]);
    assert!(line["time"].as_str().unwrap().ends_with('Z'));
    for key in ["seq", "prev", "time", "turn"] {
        line.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(
        line,
        json!({
            "agent": "blue",
            "action_type": "MUTATION_CONFLICT",
            "payload": {
                "tool_name": "write_file",
                "target_file": "src/app.ts",
                "baseline_hash": format!("sha256:{}", Digest::of(b"one")),
                "current_hash": format!("sha256:{}", Digest::of(b"two")),
            },
            "result": {"status": "DENIED", "error_type": "STALE_FILE"},
        })
    );
}

/// A controller as other people would write it: it sees JSON only.
#[test]
fn a_controller_recovers_by_the_payload_alone() {
    let world = World::new();
    world.outsider_writes("counter", "1");
    let agent = world.agent("blue");
    let mut rivals = vec!["2", "3", "4"];
    let mut attempts = 0;
    loop {
        let seen = String::from_utf8(agent.read("counter", Part::Whole).0).unwrap();
        if let Some(rival) = rivals.pop() {
            world.outsider_writes("counter", rival);
        }
        attempts += 1;
        let answer: Value =
            match world.gate.write(&agent.turn, "counter", format!("{seen}+"), Expected::Baseline).unwrap() {
                Outcome::Done(_) => break,
                Outcome::Refused(refused) => serde_json::to_value(refused.payload()).unwrap(),
            };
        match answer["resolution"].as_str().unwrap() {
            // The loop starts again with a read.
            "RE_READ_REQUIRED" => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(attempts, 4);
    world.holds("counter", "2+");
    assert_eq!(world.lines_of("MUTATION_CONFLICT").len(), 3);
}

#[test]
fn a_multi_edit_over_a_changed_file_changes_nothing() {
    let world = World::new();
    let text: String = (0..100).map(|line| format!("line {line:03}\n")).collect();
    world.outsider_writes("a", &text);
    let agent = world.agent("blue");
    agent.reads("a");
    let changed = text.replace("line 099", "line changed");
    world.outsider_writes("a", &changed);
    let edits = (0..50).map(|line| tollgate::edit::Edit::once(format!("line {line:03}"), "new")).collect();
    let outcome = world.gate.edit(&agent.turn, "a", edits, Expected::Baseline).unwrap();
    assert!(matches!(outcome, Outcome::Refused(_)));
    world.holds("a", &changed);
}

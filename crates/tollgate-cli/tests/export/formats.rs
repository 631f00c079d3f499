//! The formats, the places where exports begin, and files.

use std::fs;

use serde_json::{Value, json};

use crate::lines::{is_complete, world_with};
use crate::world::{World, until};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn ndjson_has_every_line_of_all_files_with_its_id() {
    let world = world_with(1200, 500);
    let text = world.run("export --to ndjson").is(0).stdout();
    assert_eq!(is_complete(&text, 1200), 1200);
    let bare: String =
        text.lines().map(|line| format!("{{{}\n", &line[r#"{"id":"",""#.len() - 1 + 64..])).collect();
    let files = ["ledger-1.jsonl", "ledger-501.jsonl", "ledger.jsonl"];
    let files: String =
        files.iter().map(|name| fs::read_to_string(world.path(".tollgate").join(name)).unwrap()).collect();
    assert_eq!(bare, files);
    assert!(!world.path(".tollgate/exports").exists(), "nothing is saved for stdout");
}

#[test]
fn an_export_begins_with_a_line_or_a_time() {
    let world = world_with(1200, 500);
    let first = |since: &str| {
        let text = world.run(&format!("export --to ndjson --since {since}")).is(0).stdout();
        lines(&text).first().map(|line| line["seq"].as_u64().unwrap())
    };
    for (since, seq) in [("1", 1), ("0", 1), ("500", 500), ("501", 501), ("502", 502), ("1200", 1200)] {
        assert_eq!(first(since), Some(seq), "{since}");
    }
    assert_eq!(first("1201"), None);
    for (since, seq) in [("2026-11-16T12:00:00.000700Z", Some(700)), ("2020-01-01T00:00:00Z", Some(1))] {
        assert_eq!(first(since), seq, "{since}");
    }
    assert_eq!(first("2027-01-01T00:00:00Z"), None);
    world.run("export --to ndjson --since tomorrow --json").is(2).fault("USAGE");
}

#[test]
fn the_next_export_to_a_file_continues_where_the_last_one_ended() {
    let world = world_with(10, 100);
    assert_eq!(world.json("export --to ndjson --out out")["exported"], 10);
    world.turn("blue");
    insta::assert_snapshot!(world.run("export --to ndjson --out ./out").filtered, @r#"
    exit 0
    --- stdout
    exported 1 event to `[W]/out`
    "#);
    assert_eq!(is_complete(&fs::read_to_string(world.path("out")).unwrap(), 11), 11);
    // Another format, and another file, have places of their own.
    assert_eq!(world.json("export --to cloudevents --out out2")["exported"], 11);
    assert_eq!(world.json("export --to ndjson --out out3")["exported"], 11);
    assert_eq!(world.json("export --to ndjson --out out --since 11")["exported"], 1);
    assert_eq!(world.json("export --to ndjson --out out")["exported"], 0);
}

#[test]
fn lines_go_on_in_a_new_file_after_the_old_one_was_renamed() {
    let world = world_with(4, 100);
    let _process = world.tollgate(["export", "--to", "ndjson", "--out", "out", "--follow"]).starts();
    let count = |name: &str| fs::read_to_string(world.path(name)).unwrap_or_default().lines().count();
    until("four lines", || (count("out") == 4).then_some(()));
    fs::rename(world.path("out"), world.path("out.1")).unwrap();
    world.turn("blue");
    until("the fifth line", || (count("out") == 1).then_some(()));
    let all = ["out.1", "out"].map(|name| fs::read_to_string(world.path(name)).unwrap()).concat();
    assert_eq!(is_complete(&all, 5), 5);
}

#[test]
fn a_second_export_to_the_same_file_is_refused_while_the_first_one_runs() {
    let world = world_with(4, 100);
    let _process = world.tollgate(["export", "--to", "ndjson", "--out", "out", "--follow"]).starts();
    until("the first export", || world.path("out").exists().then_some(()));
    until("four lines", || {
        (fs::read_to_string(world.path("out")).unwrap().lines().count() == 4).then_some(())
    });
    world.run("export --to ndjson --out out --json").is(3).fault("LOCKED");
}

#[test]
fn an_export_never_skips_lines_that_are_gone() {
    let world = world_with(1200, 500);
    world.run("export --to ndjson --out out --since 100").is(0);
    world.puts("out", "");
    // The ledger was replaced by another one.
    for name in ["ledger-1.jsonl", "ledger-501.jsonl", "ledger.jsonl"] {
        fs::remove_file(world.path(".tollgate").join(name)).unwrap();
    }
    world.turn("blue");
    let fault = world.run("export --to ndjson --out out --json").is(3).fault("STATE_DAMAGED");
    assert!(fault["message"].as_str().unwrap().contains("--since"), "{fault}");
    world.holds("out", "");
    world.run("export --to ndjson --out out --since 1").is(0);
    world.run("export --to ndjson --out out").is(0);
    is_complete(&fs::read_to_string(world.path("out")).unwrap(), 1);
}

#[test]
fn a_damaged_line_is_reported_and_the_others_are_exported() {
    let world = world_with(10, 100);
    let path = world.path(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap().replace("{\"seq\":5,", "{\"seq\":\"five\",");
    fs::write(&path, text).unwrap();
    let ran = world.run("export --to ndjson").is(0);
    assert!(ran.stderr().contains("ledger verify"), "{ran}");
    let seqs: Vec<_> = lines(&ran.stdout()).iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 6, 7, 8, 9, 10]);
}

#[test]
fn an_export_does_not_write_into_the_state() {
    let world = world_with(4, 100);
    world.run("export --to ndjson --out .tollgate/ledger.jsonl --json").is(2).fault("USAGE");
    assert_eq!(World::bare().run("export --to ndjson").is(0).stdout(), "");
    let bare = World::bare();
    bare.run("export --to ndjson --out out --json").is(3).fault("NOT_FOUND");
    assert!(!bare.path("out").exists());
}

#[test]
fn a_cloudevent_has_the_required_attributes() {
    let world = world_with(2, 100);
    let events = lines(&world.run("export --to cloudevents").is(0).stdout());
    let ndjson = lines(&world.run("export --to ndjson").is(0).stdout());
    let mut data = ndjson[1].clone();
    data.as_object_mut().unwrap().remove("id");
    let source = events[1]["source"].as_str().unwrap();
    assert!(source.starts_with("urn:tollgate:workspace:"), "{source}");
    assert_eq!(
        events[1],
        json!({
            "specversion": "1.0",
            "id": ndjson[1]["id"],
            "source": source,
            "type": "tollgate.mutation_conflict",
            "time": "2026-11-16T12:00:00.000002Z",
            "subject": "src/0.rs",
            "datacontenttype": "application/json",
            "tollgateagent": "green",
            "tollgateturn": "t-0000000000000000",
            "data": data,
        })
    );
}

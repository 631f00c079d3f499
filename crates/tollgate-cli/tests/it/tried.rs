//! What people try first, although tollgate calls it something else.

use std::fs;

use serde_json::json;

use crate::world::World;

#[test]
fn the_ledger_is_shown_since_a_day_or_for_a_length_of_time() {
    let world = World::new();
    world.run("create a --agent blue").is(0);
    world.run("create b --agent green").is(0);
    for since in ["yesterday", "today", "2h", "2020-01-01", "2020-01-01T00:00:00Z"] {
        let lines = world.json(&format!("ledger tail --since {since}"));
        assert_eq!(lines.as_array().unwrap().len(), 2, "{since}");
        let lines = world.json(&format!("ledger tail --since {since} --agent green"));
        assert_eq!(lines[0]["agent"], "green", "{since}");
    }
    assert_eq!(world.json("ledger tail --since 0s"), json!([]));
    assert_eq!(world.json("ledger tail --since 2999-01-01"), json!([]));
    let refused = world.run("ledger tail --since tomorrow").is(2).stderr();
    assert!(refused.contains("`2026-11-18`"), "{refused}");
    // The same forms begin an export.
    let exported = world.run("export --to ndjson --since yesterday").is(0).stdout();
    assert_eq!(exported.lines().count(), 2);
}

#[test]
fn all_lines_since_a_time_are_shown_and_a_number_limits_them() {
    let world = World::new();
    let script = "for i in $(seq 30); do tollgate create f$i --agent blue >/dev/null; done";
    world.script(script).ends().is(0);
    let count = |line: &str| world.json(line).as_array().unwrap().len();
    assert_eq!(count("ledger tail"), 20);
    assert_eq!(count("ledger tail --since 1h"), 30);
    assert_eq!(count("ledger tail --since 1h -n 5"), 5);
}

#[test]
fn a_recovery_entry_is_found_by_the_beginning_of_its_id() {
    let world = World::new();
    for text in ["one\n", "two\n", "three\n"] {
        world.tollgate(["write", "a"]).stdin(text).ends().is(0);
    }
    let kept = world.json("recovery list");
    let ids: Vec<&str> = kept.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    let same = ids[0].bytes().zip(ids[1].bytes()).take_while(|(a, b)| a == b).count();
    assert_eq!(world.run(&format!("recovery show {}", &ids[0][..=same])).is(0).stdout(), "two\n");
    if same > 0 {
        let both = world.run(&format!("recovery show {}", &ids[0][..same])).is(2).stderr();
        assert!(both.contains("several recovery entries"), "{both}");
    }
    world.run(&format!("recovery restore {}", &ids[1][..=same])).is(0);
    world.holds("a", "one\n");
}

#[test]
fn programs_are_named_together_or_by_the_name_of_their_command() {
    let world = World::new();
    world.run("init --host claude,codex").is(0);
    assert!(world.path(".claude/settings.json").exists() && world.path(".codex/hooks.json").exists());
    world.run("init --host claude --remove").is(0);
    assert!(!world.path(".claude/settings.json").exists() && world.path(".codex/hooks.json").exists());
}

#[test]
fn a_usage_error_names_what_was_meant() {
    let world = World::new();
    for (line, tip) in [
        ("run echo hi", "`tollgate run -- echo ...`"),
        ("work --agent blue ./do-task", "`tollgate work -- ./do-task ...`"),
        ("ledger show", "`tollgate ledger tail`"),
        ("ledger list", "`tollgate ledger tail`"),
        ("turn ls", "`tollgate turn list`"),
        ("recovery ls", "`tollgate recovery list`"),
        ("task ls", "`tollgate task list`"),
    ] {
        let said = world.run(line).is(2).stderr();
        assert!(said.contains(tip), "{line}: {said}");
        assert!(!said.contains("`tollgate task") || tip.contains("`tollgate task"), "{line}: {said}");
    }
}

#[test]
fn a_person_without_a_name_is_the_same_everywhere() {
    let world = World::new();
    world.tollgate(["create", "a"]).without("USER").ends().is(0);
    let line = &world.json("ledger tail")[0];
    let agent = line["agent"].as_str().unwrap();
    assert!(agent.starts_with("uid-"), "{line}");
}

#[test]
fn what_a_removal_leaves_is_named() {
    let world = World::new();
    world.run("init").is(0);
    world.run("create a").is(0);
    let said = world.run("init --remove").is(0).stdout();
    assert!(said.contains("`.tollgate`") && said.contains("`~/.local/state/tollgate`"), "{said}");
    assert!(fs::exists(world.path(".tollgate/ledger.jsonl")).unwrap());
}

#[test]
fn status_says_when_no_agent_program_has_hooks() {
    let world = World::bare();
    world.run("init --vault").is(0);
    world.run("init --host claude-code").is(0);
    world.run("create a --agent blue").is(0);
    let says = |words: &str| {
        let ran = world.run("status");
        assert!(ran.stdout().lines().next().is_some_and(|line| line.ends_with(words)), "{ran}");
    };
    says(", guarded");
    // A vault with state of its own stays, and is named.
    fs::create_dir_all(world.path("vault/.tollgate")).unwrap();
    let removed = world.run("init --remove").is(0).stdout();
    assert!(removed.contains("kept the vault `vault`"), "{removed}");
    says(", guarded, but no agent program has hooks here");
}

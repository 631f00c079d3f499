//! The rules of the vault at the command line: who gets a task, what is counted, and what waits for ever.

use std::fs;

use serde_json::{Value, json};

use crate::world::World;

fn world(more: &str) -> World {
    let world = World::with(&format!("[vault]\ndurability = \"fast\"\nsettle = \"50ms\"\n{more}"));
    world.run("init --vault").is(0);
    world
}

/// What the doctor says about the vault.
fn diagnosis(world: &World) -> Value {
    let findings = world.run("doctor --json").json()["findings"].clone();
    findings.as_array().unwrap().iter().find(|found| found["check"] == "vault").unwrap().clone()
}

#[test]
fn a_claim_takes_a_task_from_an_owner_that_is_gone() {
    let world = world("lease = \"1ms\"\nretry = []\n[agent.cloud]\nsensitive = [\"pay\"]\n");
    world.run("task add One").is(0);
    world.run("task claim one --agent a").is(0);
    for (owner, next, words) in [("a", "b", "task claim one"), ("b", "c", "task claim --next")] {
        assert_eq!(world.json(&format!("task why one --agent {next}"))["eligible"], true);
        let ran = world.run(&format!("{words} --agent {next}")).is(0);
        assert!(ran.stderr().contains(&format!("reclaimed `one.md` from `{owner}`")), "{ran}");
    }
    // The third attempt was the last.
    world.run("task why one --agent d").is(1);
    let ran = world.run("task claim --next --agent d").is(1);
    assert!(ran.stderr().contains("reclaimed `one.md` from `c` to `Rejected`"), "{ran}");
    // A sensitive action may have been executed.
    world.run("task add Rent --action pay").is(0);
    world.run("task claim rent --agent local").is(0);
    let why = world.run("task why rent --agent local --json").is(1).json();
    assert_eq!(
        why["reason"],
        "`local`, the owner of `rent.md`, is gone; the next claim moves the task to `Pending_Approval`"
    );
    assert_eq!(world.run("task claim rent --agent local --json").is(1).json()["reason"], "not_eligible");
    assert_eq!(world.json("task list --state Pending_Approval")[0]["task"], "rent.md");
}

#[test]
fn every_claim_that_another_agent_prevents_is_counted() {
    let world = world("[log]\ndir = \"logs\"\n");
    world.run("task add X").is(0);
    world.run("task claim x --agent blue").is(0);
    for agent in ["red", "red", "green"] {
        let refused = world.run(&format!("task claim x --agent {agent} --json")).is(1).json();
        assert_eq!(refused["reason"], "lost");
    }
    let figures = world.json("task figures");
    assert_eq!(figures["coordination"]["claim_conflicts_avoided"], 3);
    assert_eq!(figures["coordination"]["claim_success_rate"], 1.0);
    let ledger = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap();
    assert_eq!(ledger.matches("\"CLAIM_LOST\"").count(), 3);
    let log = fs::read_to_string(world.path("logs/agent-red.log")).unwrap();
    assert_eq!(log.lines().count(), 2, "{log}");
    assert!(log.lines().all(|line| line.ends_with("lost the race for x.md")), "{log}");
}

#[test]
fn a_refused_claim_and_a_fault_are_in_the_log_of_the_agent_with_the_workspace() {
    let world = world("[log]\ndir = \"logs\"\n");
    world.run("task claim nothing --agent blue").is(3);
    world.run("task claim --next --agent blue").is(1);
    for verb in ["release nothing", "renew nothing", "progress nothing found"] {
        world
            .run(&format!("task {verb} --claim-id c-0123456789abcdef --agent blue --json"))
            .is(3)
            .fault("NOT_FOUND");
    }
    world.run("task add X").is(0);
    fs::rename(world.path("vault/Needs_Action/x.md"), world.path("x")).unwrap();
    std::os::unix::fs::symlink(world.path("x"), world.path("vault/Needs_Action/x.md")).unwrap();
    world.run("task claim x --agent blue").is(2);
    world.run("task add Own").is(0);
    world.run("task claim own --agent blue").is(0);
    world.run("task claim own --agent blue").is(1);
    world.run("task release own --claim-id c-0123456789abcdef --agent blue").is(1);
    let log = fs::read_to_string(world.path("logs/agent-blue.log")).unwrap();
    let root = world.root();
    assert!(log.lines().all(|line| line.contains(&format!("Z {} ", root.display()))), "{log}");
    for words in [
        "the task `nothing.md` does not exist",
        "no task can be claimed now",
        "not a plain file",
        "`blue` has claimed",
        "Claimed: own.md (c-",
        "Claim verification failed: own.md: claim `c-0123456789abcdef` does not own `own.md`",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn tasks_that_wait_for_each_other_are_refused_and_explained() {
    let world = world("[agent.blue]\nallowed = [\"read\"]\n");
    world.run("task add A --after b").is(0);
    let refused = world.run("task add B --after a --json").is(1).json();
    assert_eq!((&refused["reason"], &refused["refused"]), (&json!("circle"), &json!(true)));
    insta::assert_snapshot!(world.run("task add X --name b --after a").filtered, @r"
    exit 1
    --- stderr
    refused: `b.md` waits for itself: `b.md` -> `a.md` -> `b.md`
    hint: choose another `--after`, or omit it
    ");
    world.run("task add Self --after self").is(1);
    assert_eq!(diagnosis(&world)["level"], "ok");
    // Made by hand.
    world.puts("vault/Needs_Action/b.md", "---\nafter: a\n---\n");
    let why = world.run("task why a --agent blue").is(1).stdout();
    assert_eq!(why, "`a.md` waits for itself: `a.md` -> `b.md` -> `a.md`\n");
    let found = diagnosis(&world);
    assert_eq!(found["level"], "warning");
    assert!(found["message"].as_str().unwrap().contains(" -> `a.md`"), "{found}");
    // A dependency that was rejected, and an action that nobody may perform.
    for (text, words) in [
        ("---\nafter: gone\n---\n", "`b.md` waits for `gone.md`, which was rejected"),
        (
            "---\naction: sing\n---\n",
            "no agent in the configuration may do `b.md`: no `[agent.NAME]` has the action `sing`",
        ),
    ] {
        world.puts("vault/Rejected/gone.md", "gone\n");
        world.puts("vault/Needs_Action/b.md", text);
        let found = diagnosis(&world);
        assert!(found["message"].as_str().unwrap().contains(words), "{found}");
        assert_eq!(found["level"], "warning");
    }
}

#[test]
fn if_only_listed_agents_may_claim_the_others_may_do_nothing() {
    let world = world("agents = \"listed\"\n[agent.blue]\nallowed = [\"read\"]\n");
    world.run("task add Plain").is(0);
    world.run("task add Book --action read").is(0);
    for task in ["plain", "book"] {
        let refused = world.run(&format!("task claim {task} --agent stranger --json")).is(1).json();
        assert_eq!(refused["reason"], "not_eligible");
        let why = refused["message"].as_str().unwrap();
        assert!(why.contains("no `[agent.stranger]`") && why.contains("agents = \"listed\""), "{why}");
    }
    world.run("task claim --next --agent stranger").is(1);
    world.run("work --agent stranger --once -- true").is(0);
    world.run("task claim plain --agent blue").is(0);
    world.run("task claim book --agent blue").is(0);
    assert_eq!(diagnosis(&world)["message"], "`vault`, 2 open tasks");
}

#[test]
fn a_clone_without_waiting_tasks_is_a_vault() {
    let world = world("");
    world.puts("vault/Done/old.md", "old\n");
    // Git keeps no empty folders.
    for folder in ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Rejected"] {
        fs::remove_dir(world.path("vault").join(folder)).unwrap();
    }
    assert_eq!(world.json("task list")[0]["task"], "old.md");
    fs::remove_dir_all(world.path("vault/Needs_Action")).unwrap();
    assert_eq!(world.run("task claim --next --agent blue --json").is(1).json()["reason"], "none");
    fs::remove_dir_all(world.path("vault/Needs_Action")).unwrap();
    world.run("task add New").is(0);
    world.run("work --agent blue --once -- true").is(0);
    assert!(world.path("vault/Done/new.md").exists());
}

#[test]
fn a_command_may_release_its_own_task() {
    let world = world("");
    for (title, how, outcome) in [
        ("Good", "", "done"),
        ("Asked", "--to Pending_Approval", "drafted"),
        ("Bad", "--to Rejected --result failure", "failed"),
        ("Cut", "--to Rejected --result failure --note 'download interrupted'", "failed"),
        ("Sent", "--note 'returned by ada'", "done"),
    ] {
        world.tollgate(["task", "add", title]).ends().is(0);
        let script = format!("tollgate task release $TOLLGATE_TASK_ID {how}");
        let words = ["work", "--agent", "blue", "--once", "--json", "--", "sh", "-c", &script];
        let said = world.tollgate(words).ends().stdout();
        let said: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(said[outcome], 1, "{title}: {said}");
    }
    world.run("task add Told").is(0);
    let script = "tollgate task release $TOLLGATE_TASK_ID";
    let ran = world.tollgate(["work", "--agent", "blue", "--once", "--", "sh", "-c", script]).ends().is(0);
    assert!(ran.stdout().ends_with("1 task done\n"), "{ran}");
    assert!(ran.stderr().contains("the command released `told.md` itself"), "{ran}");
    assert!(!ran.stderr().contains("refused"), "{ran}");
}

#[test]
fn a_claimed_task_that_was_renamed_is_explained() {
    let world = world("lease = \"1h\"\n");
    world.run("task add X").is(0);
    world.run("task claim x --agent blue").is(0);
    let folder = world.path("vault/In_Progress/blue");
    fs::rename(folder.join("x.md"), folder.join("y.md")).unwrap();
    let why = world.run("task why y --agent red").is(1).stdout();
    assert!(
        why.contains("`y.md` is in `In_Progress/blue` without a claim: it was moved or renamed"),
        "{why}"
    );
    let found = diagnosis(&world);
    assert!(found["message"].as_str().unwrap().contains("`y.md` is in `In_Progress/blue`"), "{found}");
    // Its owner renames it back and goes on.
    fs::rename(folder.join("y.md"), folder.join("x.md")).unwrap();
    assert_eq!(diagnosis(&world)["level"], "ok");
}

#[test]
fn what_an_author_may_take_for_a_task_gets_a_note() {
    let world = world("");
    let folder = world.path("vault/Needs_Action");
    fs::create_dir(folder.join("later")).unwrap();
    fs::create_dir(folder.join(".obsidian")).unwrap();
    fs::create_dir(world.path("vault/Done/2025")).unwrap();
    fs::write(folder.join("LOUD.MD"), "x\n").unwrap();
    fs::write(folder.join("one.md"), "x\n").unwrap();
    fs::hard_link(folder.join("one.md"), folder.join("two.md")).unwrap();
    let notes = world.run("task list").is(0).stderr();
    assert_eq!(notes.matches("note: ").count(), 2, "{notes}");
    assert!(notes.contains("`later` in `Needs_Action`: it is a folder"), "{notes}");
    assert!(notes.contains("`LOUD.MD` in `Needs_Action`: its name must end in `.md`"), "{notes}");
    assert_eq!(diagnosis(&world)["level"], "warning");
    for task in ["one", "two"] {
        let refused = world.run(&format!("task claim {task} --agent blue --json")).is(1).json();
        assert_eq!(refused["reason"], "incomplete");
        assert!(refused["message"].as_str().unwrap().contains("hard links"), "{refused}");
    }
    world.run("work --agent blue --once -- true").is(0);
    world.holds("vault/Needs_Action/two.md", "x\n");
    fs::remove_file(folder.join("two.md")).unwrap();
    world.run("task claim one --agent blue").is(0);
}

#[test]
fn work_without_a_command_says_what_it_does() {
    let world = world("");
    world.run("task add X").is(0);
    let ran = world.run("work --agent blue").is(0);
    assert!(ran.stderr().contains("no command given: waiting for one task in `vault`"), "{ran}");
    assert!(ran.stdout().starts_with("claimed `x.md` for `blue`"), "{ran}");
}

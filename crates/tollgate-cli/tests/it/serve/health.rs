//! `/health`: the figures are right, and problems are reported.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Served, last_seq};
use crate::world::World;

/// Small ledger files, so that the ledger is rotated often.
const SETTINGS: &str = "[ledger]\nmax_size = \"2KiB\"\n[vault]\nsettle = \"0s\"\n[agent.blue]\nallowed = [\"read\"]\nsensitive = [\"pay\"]\n";

fn vault(settings: &str) -> World {
    let world = World::with(settings);
    world.run("init --vault").is(0);
    world
}

/// Claims the task for all these agents at the same time. Returns the winner and its claim ID.
fn race(world: &World, task: &str, agents: &[&str]) -> (String, String) {
    let won: Vec<Value> = std::thread::scope(|scope| {
        let claim = |agent: &&str| world.tollgate(["task", "claim", task, "--agent", agent, "--json"]).ends();
        let racing: Vec<_> = agents.iter().map(|agent| scope.spawn(move || claim(agent))).collect();
        let answers = racing.into_iter().map(|racer| racer.join().unwrap().json());
        answers.filter(|answer| answer["claimed"] == true).collect()
    });
    assert_eq!(won.len(), 1, "{won:?}");
    let text = |key: &str| won[0][key].as_str().unwrap().to_owned();
    (text("agent"), text("claim_id"))
}

#[test]
fn the_figures_count_all_processes_also_after_a_restart_and_a_rotation() {
    let world = vault(SETTINGS);
    let agents = ["blue", "green", "red"];
    let mut claims = std::collections::BTreeMap::<String, u64>::new();
    let mut active = claims.clone();
    let mut served = Served::new(&world, &[]);
    for number in 0..8 {
        world.run(&format!("task add t{number}")).is(0);
        let (agent, claim) = race(&world, &format!("t{number}"), &agents);
        *claims.entry(agent.clone()).or_default() += 1;
        if number % 4 == 0 {
            *active.entry(agent).or_default() += 1;
        } else {
            world.run(&format!("task release t{number} --claim-id {claim}")).is(0);
        }
        if number == 3 {
            served.ends(Signal::TERM);
            served = Served::new(&world, &[]);
        }
    }
    assert!(fs::read_dir(world.path(".tollgate")).unwrap().count() > 10, "the ledger was rotated");
    let health = served.until_health("all tasks", |health| health["tasks"]["done"] == 6);
    let figures = world.json("task figures");
    for key in ["coordination", "agents"] {
        assert_eq!(health[key], figures[key]);
    }
    // The others find the task claimed, or lose the race. Only a lost race is an avoided conflict with a ledger line.
    let lost = world.json("ledger tail -n 10000 --type CLAIM_LOST").as_array().unwrap().len();
    let all = &health["coordination"];
    let keys: Vec<&String> = all.as_object().unwrap().keys().collect();
    let five =
        ["agent_name", "active_claims", "total_claims", "claim_conflicts_avoided", "claim_success_rate"];
    assert_eq!(keys[..5], five);
    assert_eq!(
        *all,
        json!({"agent_name": "all", "active_claims": 2, "total_claims": 8, "claim_conflicts_avoided": lost, "claim_success_rate": 1.0,
            "attempts": 6, "attempts_succeeded": 6})
    );
    for (agent, count) in &claims {
        let of_one = served.gets(&format!("/health?agent={agent}")).json();
        assert_eq!(of_one["coordination"]["agent_name"], agent.as_str());
        assert_eq!(of_one["coordination"]["total_claims"], *count);
        assert_eq!(of_one["coordination"]["active_claims"], active.get(agent).copied().unwrap_or(0));
        assert_eq!(of_one["agents"].as_array().unwrap().len(), 1);
    }
    let nobody = served.gets("/health?agent=nobody").json();
    assert_eq!(
        (&nobody["coordination"]["agent_name"], &nobody["coordination"]["total_claims"]),
        (&json!("nobody"), &json!(0))
    );
    assert_eq!(served.gets("/health?agent=no%20name").status, 400);
    let seq = last_seq(&world);
    let health = served.until_health("the ledger", |health| health["ledger"]["lines"] == seq);
    assert_eq!(health["ledger"]["state"], "whole");
}

#[test]
fn waiting_tasks_their_age_and_expired_claims_are_reported() {
    let world = vault(&SETTINGS.replace("settle", "lease = \"1s\"\nsettle"));
    let served = Served::new(&world, &[]);
    world.puts("vault/Needs_Action/old.md", "# old\n");
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::options()
        .append(true)
        .open(world.path("vault/Needs_Action/old.md"))
        .unwrap()
        .set_modified(hour_ago)
        .unwrap();
    world.run("task add young").is(0);
    let health = served.until_health("both", |health| health["tasks"]["waiting"] == 2);
    let oldest =
        served.until_health("the date", |health| health["tasks"]["oldest_waiting"]["task"] == "old.md");
    let age = oldest["tasks"]["oldest_waiting"]["age_s"].as_i64().unwrap();
    assert!((3600..3700).contains(&age), "{health}");
    // A draft waits for a person.
    world.tollgate(["task", "add", "pay the rent", "--action", "pay"]).ends().is(0);
    let claimed = world.json("task claim pay-the-rent --agent blue");
    let claim = claimed["claim_id"].as_str().unwrap();
    world.run(&format!("task release pay-the-rent --claim-id {claim} --to Pending_Approval")).is(0);
    let health = served.until_health("the draft", |health| health["tasks"]["pending_approvals"] == 1);
    assert_eq!(health["tasks"]["oldest_pending_approval"]["task"], "pay-the-rent.md");
    // An owner that does not renew its lease.
    world.run("task claim young --agent blue").is(0);
    let health = served.until_health("the lease to expire", |health| health["tasks"]["stale_claims"] == 1);
    assert_eq!((&health["tasks"]["in_progress"], &health["status"]), (&json!(1), &json!("ok")));
    world.run("task reclaim").is(0);
    served.until_health("the task to be back", |health| {
        health["tasks"]["stale_claims"] == 0 && health["tasks"]["waiting"] == 2
    });
}

#[track_caller]
fn breaks(served: &Served, word: &str) -> Value {
    let is_told = |health: &Value| health["problems"].to_string().contains(word);
    let health = served.until_health(word, |health| health["status"] == "broken" && is_told(health));
    assert_eq!(served.gets("/health").status, 503);
    health
}

#[track_caller]
fn is_well(served: &Served) {
    let health = served.until_health("health", |health| health["status"] == "ok");
    assert_eq!(served.gets("/health").status, 200);
    assert_eq!(health["problems"], json!([]));
}

#[test]
fn a_ledger_that_was_edited_breaks_the_health_now_and_after_a_restart() {
    let world = vault("");
    for number in 0..5 {
        world.run(&format!("task add t{number}")).is(0);
        world.run(&format!("task claim t{number} --agent blue")).is(0);
    }
    let served = Served::new(&world, &[]);
    served.until_health("the ledger", |health| health["ledger"]["state"] == "whole");
    let path = world.path(".tollgate/ledger.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    // In place, with the same size.
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(good.replacen("t1.md", "t9.md", 1).as_bytes())
        .unwrap();
    let health = breaks(&served, "ledger");
    assert_eq!(health["ledger"]["state"], "broken");
    assert!(health["ledger"]["problem"].as_str().unwrap().contains("edited"), "{health}");
    drop(served);
    let served = Served::new(&world, &[]);
    breaks(&served, "seq 2");
    // Somebody restores it from a copy.
    fs::write(&path, good).unwrap();
    is_well(&served);
}

#[test]
fn a_truncated_ledger_breaks_the_health() {
    let world = vault("");
    for number in 0..5 {
        world.run(&format!("task add t{number}")).is(0);
        world.run(&format!("task claim t{number} --agent blue")).is(0);
    }
    let path = world.path(".tollgate/ledger.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    let whole_lines: Vec<&str> = good.lines().collect();
    fs::write(&path, format!("{}\n", whole_lines[..3].join("\n"))).unwrap();
    let served = Served::new(&world, &[]);
    breaks(&served, "cut tail");
}

#[test]
fn a_missing_vault_or_state_breaks_the_health() {
    let world = vault("");
    let served = Served::new(&world, &[]);
    is_well(&served);
    fs::rename(world.path("vault"), world.path("elsewhere")).unwrap();
    breaks(&served, "Needs_Action");
    assert!(!world.path("vault").exists(), "looking for the vault does not create it");
    fs::rename(world.path("elsewhere"), world.path("vault")).unwrap();
    is_well(&served);
    world.run("task add again").is(0);
    served.until_health("the board to be followed again", |health| health["tasks"]["waiting"] == 1);
    fs::rename(world.path(".tollgate"), world.path("state")).unwrap();
    breaks(&served, "is gone");
    assert!(!world.path(".tollgate").exists());
    fs::rename(world.path("state"), world.path(".tollgate")).unwrap();
    is_well(&served);
    fs::remove_dir_all(world.path(".tollgate/stage")).unwrap();
    breaks(&served, "stage");
    // Settings that cannot be read.
    fs::create_dir(world.path(".tollgate/stage")).unwrap();
    is_well(&served);
    let config = fs::read(world.path(".tollgate/config.toml")).unwrap();
    world.puts(".tollgate/config.toml", "[vault]\nstore = \"etcd://ada:s3cret@h:1/x\"\n");
    breaks(&served, "line 2 of `");
    let health = served.gets("/health");
    assert!(health.body.contains("config.toml") && !health.body.contains("s3cret"), "{health:?}");
    world.puts(".tollgate/config.toml", config);
    is_well(&served);
}

#[test]
fn a_state_that_cannot_be_written_breaks_the_health() {
    let world = vault("");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let all = ["-R", "65534:65534", world.tmp().to_str().unwrap()];
        assert!(std::process::Command::new("chown").args(all).status().unwrap().success());
    }
    let words = ["serve", "--listen", "127.0.0.1:0", "--json"];
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_tollgate")];
    let served = Served::of(match is_root {
        true => world.program("setpriv", nobody.into_iter().chain(words)),
        false => world.tollgate(words),
    });
    is_well(&served);
    let mode =
        |mode| fs::set_permissions(world.path(".tollgate/locks"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o500);
    breaks(&served, "locks");
    mode(0o700);
    is_well(&served);
}

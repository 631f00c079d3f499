//! Tasks in PostgreSQL, as whole programs: two machines, a copy there and back, and what `doctor` says.

use std::cell::RefCell;
use std::fs;

use serde_json::json;
use tollgate_testing::postgres::{Server, is_installed};

use crate::view;
use crate::world::World;

/// A machine whose tasks are at this address.
fn machine(url: &str) -> World {
    World::with(&format!("[vault]\nstore = \"{url}\"\nretry = []\n"))
}

#[test]
fn two_machines_share_their_tasks_and_their_figures() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let url = server.url("team");
    let (one, other) = (machine(&url), machine(&url));
    one.run("task add water-the-plants --agent ada").is(0);
    let claimed = other.json("task claim water-the-plants --agent blue");
    let denied = one.run("task claim water-the-plants --agent red").is(1);
    assert!(denied.filtered.contains("blue"), "{denied}");
    let id = claimed["claim_id"].as_str().unwrap();
    one.run(&format!("task release water-the-plants --claim-id {id} --agent blue")).is(0);
    assert_eq!(one.json("task figures"), other.json("task figures"));
    one.run("task add walk-the-dog --agent ada").is(0);
    other.run("work --once --agent blue -- true").is(0);
    assert_eq!(one.json("task list --state Done").as_array().map(Vec::len), Some(2));
    let report = one.tollgate(["doctor", "--json"]).ends().json();
    assert!(report.to_string().contains("answers: PostgreSQL"), "{report:#}");
}

#[test]
fn the_folders_of_two_machines_show_the_tasks_in_postgresql() {
    if !is_installed() {
        return;
    }
    let server = RefCell::new(Server::start("fsync = off"));
    let url = server.borrow().url("team");
    view::two_machines(&url, &|| server.borrow_mut().kill(), &|| server.borrow_mut().restart());
}

#[test]
fn workers_and_servers_keep_the_folders_too() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    view::workers_and_servers(&server.url("team"));
}

#[test]
fn a_vault_goes_to_postgresql_and_back_by_command() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let url = server.url("team");
    let world = World::new();
    world.run("init --vault").is(0);
    for task in ["one", "two", "three"] {
        world.run(&format!("task add {task} --agent ada")).is(0);
    }
    let claimed = world.json("task claim one --agent blue");
    let busy = world.run(&format!("vault copy --to {url}")).is(1);
    assert!(busy.stderr().contains("agents are working: `In_Progress/blue/one.md`"), "{busy}");
    let id = claimed["claim_id"].as_str().unwrap();
    world.run(&format!("task release one --claim-id {id} --agent blue")).is(0);
    let figures = world.json("task figures");
    let there = world.json(&format!("vault copy --to {url}"));
    assert_eq!(there["tasks"], json!({"Needs_Action": 2, "Done": 1}));
    assert_eq!((&there["copied"], &there["events"]), (&json!(true), &json!(2)));

    world.run(&format!("init --store {url}")).is(0);
    assert_eq!(world.json("task figures"), figures, "the history came along");
    world.run("work --once --agent red -- true").is(0);
    let back = world.run("vault copy --to folder").is(1).stderr();
    assert!(
        back.contains("not copied: the target has another task `Needs_Action/"),
        "it replaces nothing: {back}"
    );

    let fresh = World::new();
    fresh.run("init --vault").is(0);
    let copied = fresh.run(&format!("vault copy --from {url}")).is(0);
    assert!(copied.stdout().contains("both vaults have the same 3 tasks: 3 in `Done`"), "{copied}");
    assert_eq!(fs::read_dir(fresh.path("vault/Done")).unwrap().count(), 3);
    assert_eq!(fresh.json("task figures"), world.json("task figures"));
}

#[test]
fn an_agent_may_not_copy_a_vault() {
    let world = World::new();
    world.run("init --vault").is(0);
    let run = world.tollgate(["vault", "copy", "--to", "git", "--json"]).env("TOLLGATE_AGENT", "blue");
    run.ends().is(2).fault("USAGE");
}

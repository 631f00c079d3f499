//! The events of a vault that several machines share.

use serde_json::Value;

use crate::world::World;
use tollgate_testing::postgres::{Server, is_installed};

fn events(world: &World, words: &str) -> Vec<Value> {
    let text = world.run(&format!("export --to cloudevents {words}")).is(0).stdout();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_events_of_all_machines_are_exported_from_the_engine_with_the_same_ids() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let settings = format!("[vault]\nstore = \"{}\"\nretry = []\n", server.url("team"));
    let (one, other) = (World::with(&settings), World::with(&settings));
    for (machine, agent) in [(&one, "blue"), (&other, "red")] {
        machine.run(&format!("task add {agent}-task --agent ada")).is(0);
        machine.run(&format!("work --once --agent {agent} -- true")).is(0);
    }
    let all = events(&one, "--vault");
    let said = |events: &[Value], agent: &str| {
        let of_agent = events.iter().filter(|event| event["tollgateagent"] == agent);
        of_agent.map(|event| event["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for agent in ["blue", "red"] {
        assert_eq!(said(&all, agent), ["tollgate.claim", "tollgate.release"], "{all:#?}");
    }
    assert_eq!(all, events(&other, "--vault"), "each machine exports the same events, with the same ids");
    assert_eq!(
        said(&events(&one, ""), "red"),
        [""; 0],
        "the ledger of a workspace has what happened on its machine"
    );
    let half = all[2]["time"].as_str().unwrap();
    assert_eq!(events(&one, &format!("--vault --since {half}")), all[2..]);
    one.run("export --to ndjson --vault --since 3 --json").is(2).fault("INVALID");
    assert_eq!(one.json("export --to ndjson --vault --out out")["exported"], all.len());
    one.run("task add more --agent ada").is(0);
    other.run("work --once --agent red -- true").is(0);
    assert_eq!(one.json("export --to ndjson --vault --out out")["exported"], 2);
}

#[test]
fn the_events_of_a_vault_in_folders_are_exported_too() {
    let world = World::with("[vault]\nretry = []\n");
    world.run("init --vault").is(0);
    world.run("task add plants --agent ada").is(0);
    world.run("work --once --agent blue -- true").is(0);
    let types: Vec<_> = events(&world, "--vault").iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["tollgate.claim", "tollgate.release"]);
}

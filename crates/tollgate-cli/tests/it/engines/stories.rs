//! What people and workers see of an engine.

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tollgate_testing::etcd::Cluster;
use tollgate_testing::postgres::is_installed;

use super::etcd::Etcd;
use super::postgres::Postgres;
use super::{Engine, Ways, lines, machine};
use crate::chance::executable;
use crate::view;
use crate::world::{Process, World, until};

#[test]
fn two_machines_share_their_tasks_and_their_figures() {
    let engine = Etcd::start();
    let url = engine.url();
    let (one, other) = (machine(&url, "30m"), machine(&url, "30m"));
    one.run("task add water-the-plants --agent ada").is(0);
    let claimed = other.json("task claim water-the-plants --agent blue");
    let denied = one.run("task claim water-the-plants --agent red").is(1);
    assert!(denied.filtered.contains("blue"), "{denied}");
    let id = claimed["claim_id"].as_str().unwrap();
    one.run(&format!("task release water-the-plants --claim-id {id} --agent blue")).is(0);
    let figures = one.json("task figures");
    assert_eq!(figures, other.json("task figures"));
    let told: Vec<_> = engine.events().iter().map(|event| event["action_type"].clone()).collect();
    assert_eq!(told, ["CLAIM", "CLAIM_LOST", "RELEASE"], "the ledger of all machines has one order");
}

#[test]
fn the_folders_of_two_machines_show_the_tasks_on_etcd() {
    let cluster = RefCell::new(Cluster::start());
    let url = cluster.borrow().url();
    let each = |act: fn(&mut Cluster, usize)| (0..3).for_each(|node| act(&mut cluster.borrow_mut(), node));
    view::two_machines(&url, &|| each(Cluster::kill), &|| {
        each(Cluster::restart);
        cluster.borrow().wait_until_ready();
    });
}

#[test]
fn doctor_tells_a_healthy_engine_from_one_with_a_dead_node_and_from_one_out_of_reach() {
    let mut cluster = Cluster::start();
    let world = machine(&cluster.url(), "30m");
    let found = |world: &World| {
        let run = world.tollgate(["doctor", "--json"]).ends();
        let report: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
        let is_store = |found: &&serde_json::Value| found["check"] == "store" || found["check"] == "etcd";
        let findings = report["findings"].as_array().unwrap();
        let found: Vec<_> = findings.iter().filter(is_store).cloned().collect();
        assert!(!found.is_empty(), "{report:#}");
        found
            .iter()
            .map(|found| format!("{}: {}", found["level"], found["message"]))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let healthy = found(&world);
    assert!(
        healthy.contains("etcd 3.") && healthy.contains("3 members") && !healthy.contains("problem"),
        "{healthy}"
    );
    cluster.kill(0);
    let weak = found(&world);
    assert!(weak.contains("does not answer") && weak.contains("warning"), "{weak}");
    assert!(!weak.contains("problem"), "two of three nodes are enough: {weak}");
    cluster.kill(1);
    cluster.kill(2);
    let dead = found(&world);
    assert!(dead.contains("problem") && !dead.contains("accepts our writes"), "{dead}");
    let fault = world.tollgate(["task", "add", "x", "--agent", "ada", "--json"]).ends();
    assert!(fault.stdout().contains("REMOTE_UNREACHABLE"), "{fault}");
}

/// Says that it lives, all the time, and what it was told.
const COMMAND: &str = r#"#!/bin/bash
trap 'echo "asked $WHO" >> "$WITNESS"' TERM
while true; do echo "alive $WHO" >> "$WITNESS"; sleep 0.01; done
"#;

/// How long the claims of the two machines last without a heartbeat.
const LEASE: Duration = Duration::from_secs(6);

/// Two machines whose commands bear witness in one file. The ways of the first can be cut.
struct Pair {
    ways: Ways,
    one: World,
    other: World,
}

impl Pair {
    fn on(engine: &impl Engine) -> Self {
        let ways = Ways::to(engine);
        let lease = format!("{}s", LEASE.as_secs());
        let (one, other) = (machine(&ways.url, &lease), machine(&engine.url(), &lease));
        executable(&one.tmp().join("command"), COMMAND);
        one.run("task add x --agent ada").is(0);
        Self { ways, one, other }
    }

    /// A worker, on one of the two.
    fn starts(&self, world: &World, who: &str) -> Process {
        let mut run = world.tollgate(["work", "--agent", who, "--interval", "1", "--"]);
        run.command.arg(self.one.tmp().join("command"));
        run.env("WITNESS", self.one.tmp().join("witness")).env("WHO", who).starts()
    }

    fn told(&self) -> Vec<String> {
        lines(&self.one.tmp().join("witness"))
    }

    fn begins(&self, who: &str) {
        let alive = format!("alive {who}");
        until(&format!("the machine `{who}` to begin"), || self.told().contains(&alive).then_some(()));
    }
}

fn the_command_of_a_machine_that_is_cut_off_ends_first(engine: &impl Engine) {
    let pair = Pair::on(engine);
    let mut first = pair.starts(&pair.one, "one");
    pair.begins("one");
    let mut second = pair.starts(&pair.other, "other");
    pair.ways.cut(true);
    let cut = Instant::now();
    pair.begins("other");
    let took = cut.elapsed();
    for worker in [&mut first, &mut second] {
        worker.signal(Signal::KILL);
        worker.ends();
    }
    let told = pair.told();
    let begins = told.iter().position(|line| line == "alive other").unwrap();
    assert!(told[..begins].contains(&"asked one".to_owned()), "the command was asked to stop first");
    assert!(!told[begins..].iter().any(|line| line.ends_with("one")), "the first was dead by then");
    assert!(took < 3 * LEASE, "within three leases, not {took:?}");
}

#[test]
fn the_command_of_a_machine_that_is_cut_off_ends_before_another_machine_begins_the_task() {
    the_command_of_a_machine_that_is_cut_off_ends_first(&Etcd::start());
}

#[test]
fn on_postgresql_the_command_of_a_machine_that_is_cut_off_ends_before_another_machine_begins_the_task() {
    if is_installed() {
        the_command_of_a_machine_that_is_cut_off_ends_first(&Postgres::start("fsync = off"));
    }
}

fn the_task_of_a_machine_that_dies_comes_back(engine: &impl Engine) {
    let pair = Pair::on(engine);
    let mut first = pair.starts(&pair.one, "one");
    pair.begins("one");
    let _second = pair.starts(&pair.other, "other");
    // It holds its task for several leases.
    let since = Instant::now();
    until("three leases", || (since.elapsed() > 3 * LEASE).then_some(()));
    assert!(!pair.told().iter().any(|line| line.ends_with("other")), "a live owner keeps its task");
    first.signal(Signal::KILL);
    let died = Instant::now();
    first.ends();
    pair.begins("other");
    assert!(died.elapsed() < 3 * LEASE, "within three leases, not {:?}", died.elapsed());
    let told: Vec<_> = engine.events().iter().map(|event| event["action_type"].clone()).collect();
    assert_eq!(told, ["CLAIM", "RECLAIM", "CLAIM"], "each once");
}

#[test]
fn the_task_of_a_machine_that_dies_comes_back_within_three_leases() {
    the_task_of_a_machine_that_dies_comes_back(&Etcd::start());
}

#[test]
fn on_postgresql_the_task_of_a_machine_that_dies_comes_back_within_three_leases() {
    if is_installed() {
        the_task_of_a_machine_that_dies_comes_back(&Postgres::start("fsync = off"));
    }
}

#[test]
fn a_password_in_the_configuration_is_refused_and_not_repeated() {
    let world = World::new();
    let url = "etcd://ada:hunter2@127.0.0.1:1/x";
    let ran = world.tollgate(["init", "--store", url]).ends().is(2);
    assert!(ran.stderr().contains("TOLLGATE_STORE_PASSWORD") && !ran.stderr().contains("hunter2"), "{ran}");
    world.puts(".tollgate/config.toml", format!("[vault]\nstore = \"{url}\"\n"));
    let ran = world.run("task list");
    assert!(ran.stderr().contains("TOLLGATE_STORE_PASSWORD"), "{ran}");
}

#[test]
fn half_a_login_is_a_fault_that_names_the_other_half() {
    let world = World::new();
    world.puts(".tollgate/config.toml", "[vault]\nstore = \"etcd://127.0.0.1:1/x\"\n");
    let (user, password) = ("TOLLGATE_STORE_USER", "TOLLGATE_STORE_PASSWORD");
    for (set, missing) in [(user, password), (password, user)] {
        for line in [&["task", "list"][..], &["vault", "copy", "--to", "etcd://127.0.0.1:1/y"]] {
            let ran = world.tollgate(line).env(set, "hunter2").ends().is(2);
            let said = format!("`{set}` is set and `{missing}` is not");
            assert!(ran.stderr().contains(&said) && !ran.stderr().contains("hunter2"), "{ran}");
        }
    }
    let world = World::new();
    world.run("init --vault").is(0);
    let copy = ["vault", "copy", "--to", "etcd://127.0.0.1:1/y"];
    let ran = world.tollgate(copy).env("TOLLGATE_COPY_USER", "ada").ends().is(2);
    assert!(ran.stderr().contains("`TOLLGATE_COPY_PASSWORD` is not"), "{ran}");
    // Tasks in folders need no login.
    let world = World::new();
    world.run("init --vault").is(0);
    world.tollgate(["task", "list"]).env(password, "hunter2").ends().is(0);
}

#[test]
fn a_password_goes_only_to_an_engine_that_the_user_has_chosen() {
    let world = World::new();
    let engine = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    engine.set_nonblocking(true).unwrap();
    let url = format!("etcd://{}/x", engine.local_addr().unwrap());
    // As it comes with a cloned repository. A short deadline, because nobody answers.
    world.puts(".tollgate/config.toml", format!("[vault]\nstore = \"{url}\"\nremote_timeout = \"1s\"\n"));
    let list = || {
        let list = world.tollgate(["task", "list"]).env("TOLLGATE_STORE_USER", "ada");
        list.env("TOLLGATE_STORE_PASSWORD", "hunter2").ends()
    };
    let ran = list().is(2);
    assert!(ran.stderr().contains("tollgate trust") && !ran.stderr().contains("hunter2"), "{ran}");
    assert!(engine.accept().is_err(), "nothing was sent");
    world.tollgate(["init", "--store", &url]).ends().is(0);
    let ran = list();
    assert!(!ran.stderr().contains("tollgate trust"), "{ran}");
    assert!(engine.accept().is_ok(), "the engine that the user has chosen is asked");
}

/// A node that says its version, and what it was told in the meantime.
fn eavesdropper() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("etcd://{}/x", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut heard = [0; 4096];
            // The head and the body may come one after the other.
            while let Ok(length @ 1..) = stream.read(&mut heard) {
                let request = String::from_utf8_lossy(&heard[..length]).into_owned();
                let is_complete = request.starts_with("GET") || request.ends_with('}');
                tell.send(request).unwrap();
                if is_complete {
                    break;
                }
            }
            let body = r#"{"etcdserver":"3.5.30","token":"x"}"#;
            let head =
                format!("HTTP/1.1 200 x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    (url, told)
}

#[test]
fn a_copy_does_not_send_the_login_of_the_workspace_to_another_engine() {
    let world = World::new();
    world.run("init --vault").is(0);
    let (url, told) = eavesdropper();
    for way in ["--to", "--from"] {
        let copy = || {
            let copy = world.tollgate(["vault", "copy", way, &url]);
            copy.env("TOLLGATE_STORE_USER", "ada").env("TOLLGATE_STORE_PASSWORD", "hunter2")
        };
        // The node does not answer like a vault, so the copy fails.
        copy().ends();
        let heard: String = told.try_iter().collect();
        assert!(heard.contains("/version") && !heard.contains("hunter2"), "{heard}");
        copy().env("TOLLGATE_COPY_USER", "eve").env("TOLLGATE_COPY_PASSWORD", "hunter3").ends();
        let heard: String = told.try_iter().collect();
        assert!(heard.contains("hunter3") && !heard.contains("hunter2"), "{heard}");
    }
}

#[test]
fn a_password_that_would_cross_a_network_unencrypted_is_warned_of() {
    let world = World::new();
    // An address for documentation, which nobody has.
    for (url, is_warned_of) in [("etcd://192.0.2.1:2379/x", true), ("etcd://127.0.0.1:1/x", false)] {
        let run = |words: &[&str]| {
            let run = world.tollgate(words).env("TOLLGATE_STORE_USER", "ada");
            run.env("TOLLGATE_STORE_PASSWORD", "hunter2").ends()
        };
        world.puts(".tollgate/config.toml", "");
        let chosen = run(&["init", "--store", url]).is(0);
        assert_eq!(chosen.stderr().contains("unencrypted"), is_warned_of, "{chosen}");
        let checked = run(&["doctor"]);
        assert_eq!(checked.stdout().contains("unencrypted"), is_warned_of, "{checked}");
    }
}

#[test]
fn init_chooses_the_store_once_and_connects_to_nothing() {
    let world = World::new();
    let url = "etcd://127.0.0.1:1,127.0.0.1:2/team";
    let ran = world.tollgate(["init", "--store", url]).ends().is(0);
    assert!(ran.stdout().contains(url), "{ran}");
    let config = fs::read_to_string(world.path(".tollgate/config.toml")).unwrap();
    assert_eq!(config.matches(&format!("\nstore = \"{url}\"\n")).count(), 1, "{config}");
    world.tollgate(["init", "--store", url]).ends().is(0);
    assert_eq!(fs::read_to_string(world.path(".tollgate/config.toml")).unwrap(), config);
    for bad in ["etcd://nowhere", "postgres://db/x", "dropbox"] {
        world.tollgate(["init", "--store", bad]).ends().is(2);
    }
    // Guarded files need no engine.
    world.puts("a.txt", "one");
    let turn = world.turn("blue");
    world.run(&format!("read a.txt --turn {turn}")).is(0);
}

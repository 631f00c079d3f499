//! Stores that several machines share: the deadline on this machine decides, without the network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tollgate_testing::etcd::Cluster;
use tollgate_testing::postgres::{Server, is_installed};

use super::{Claim, DOORS, claims_when_free, fenced_lines, is_unchanged, lets_through, refuses, under};
use crate::chance::executable;
use crate::engines::{FAKETIME, lines, machine};
use crate::git::Remote;
use crate::mcp::Client;
use crate::world::{World, until};

/// What an engine or a remote gives its machines.
trait Shared {
    /// A machine with this lease.
    fn machine(&self, lease: &str) -> World;

    /// Nobody reaches it any more.
    fn stop(&mut self);
}

struct Git(Remote);

impl Shared for Git {
    fn machine(&self, lease: &str) -> World {
        self.0.clone(&format!("lease = \"{lease}\"\n"))
    }

    fn stop(&mut self) {
        self.0.vanishes();
    }
}

struct Etcd(Arc<Cluster>, String);

impl Shared for Etcd {
    fn machine(&self, lease: &str) -> World {
        machine(&self.1, lease)
    }

    fn stop(&mut self) {
        let cluster = Arc::get_mut(&mut self.0).expect("no other test uses it");
        (0..3).for_each(|node| cluster.kill(node));
    }
}

struct Postgres(Server, String);

impl Shared for Postgres {
    fn machine(&self, lease: &str) -> World {
        machine(&self.1, lease)
    }

    fn stop(&mut self) {
        self.0.kill();
    }
}

fn git() -> Git {
    Git(Remote::with_tasks(0))
}

fn etcd(cluster: Arc<Cluster>) -> Etcd {
    let url = cluster.url();
    Etcd(cluster, url)
}

fn postgres(server: fn() -> Server) -> Option<Postgres> {
    is_installed().then(|| {
        let server = server();
        let url = server.url("team");
        Postgres(server, url)
    })
}

/// A lease that no test waits for.
const LONG: &str = "30m";

fn add(world: &World) {
    world.run("task add x --agent ada").is(0);
}

fn claim(world: &World) -> Claim {
    Claim::of(&world.json("task claim x --agent blue"))
}

/// While the claim lasts, its owner writes at every door; after its release at none. Without a claim, everybody writes.
fn the_owner_writes_until_its_release(shared: &impl Shared) {
    let world = shared.machine(LONG);
    add(&world);
    let claim = claim(&world);
    for door in DOORS {
        lets_through(&world, Some(&claim), door);
        lets_through(&world, None, door);
    }
    world.run(&format!("task renew x --claim-id {}", claim.id)).is(0);
    lets_through(&world, Some(&claim), DOORS[0]);
    world.run(&format!("task release x --claim-id {}", claim.id)).is(0);
    for door in DOORS {
        refuses(&world, &claim, door);
    }
    assert_eq!(fenced_lines(&world).len(), DOORS.len());
    lets_through(&world, None, DOORS[0]);
}

/// A person takes the task back, on this machine or on another: the claim writes at no door, long before its lease is over.
fn a_claim_that_a_person_ends_writes_at_no_door(shared: &impl Shared) {
    // The store is asked after half of this.
    let lease = "30s";
    let (one, other) = (shared.machine(lease), shared.machine(lease));
    add(&one);
    let claimed = claim(&one);
    lets_through(&one, Some(&claimed), DOORS[0]);
    one.tollgate(["task", "return", "x"]).typed("yes").is(0);
    for door in DOORS {
        refuses(&one, &claimed, door);
    }
    let began = Instant::now();
    let claimed = claim(&one);
    other.tollgate(["task", "return", "x"]).typed("yes").is(0);
    let wrote = || {
        one.puts("a", "one");
        under(Some(&claimed), one.tollgate(["write", "a", "--json"])).stdin("mine").ends()
    };
    until("a write to be refused", || (wrote().code() != Some(0)).then_some(()));
    assert!(began.elapsed() < Duration::from_secs(25), "before the lease is over: {:?}", began.elapsed());
    for door in DOORS {
        refuses(&one, &claimed, door);
    }
}

/// The same for a claim that an MCP connection holds: its heartbeats do not bring it back.
fn a_held_claim_that_a_person_ends_writes_nothing(shared: &impl Shared) {
    let lease = Duration::from_secs(6);
    let (one, other) = (shared.machine("6s"), shared.machine("6s"));
    add(&one);
    let mut client = Client::of(&one, "blue");
    let is_refused = |client: &mut Client| {
        let answer = client.call("write_file", json!({"path": "a", "content": "mine"}));
        answer["structuredContent"]["error_type"] == "FENCED"
    };
    for person in [&one, &other] {
        let claimed = client.done("claim_task", json!({"task": "x"}));
        assert!(!is_refused(&mut client));
        person.tollgate(["task", "return", "x"]).typed("yes").is(0);
        until("a write to be refused", || is_refused(&mut client).then_some(()));
        let began = Instant::now();
        until("the next heartbeats", || {
            assert!(is_refused(&mut client), "once refused, always refused");
            (began.elapsed() > lease).then_some(())
        });
        // It hears of the loss, and is free for other work.
        let release = json!({"task": "x", "claim_id": claimed["claim_id"], "result": "success"});
        client.call("release_task", release);
        assert!(!is_refused(&mut client));
    }
}

/// A machine whose lease is over, and whose task another machine has, writes at no door.
fn a_lost_claim_writes_at_no_door(shared: &impl Shared) {
    let (one, other) = (shared.machine("2s"), shared.machine("2s"));
    add(&one);
    let old = claim(&one);
    let new = claims_when_free(&other, "x", "red");
    for door in DOORS {
        refuses(&one, &old, door);
        lets_through(&one, None, door);
    }
    // A fresh proof for the new owner, whose lease is as short.
    until("a write of the new owner", || {
        other.run(&format!("task renew x --claim-id {}", new.id)).is(0);
        other.puts("a", "one");
        let ran = under(Some(&new), other.tollgate(["write", "a", "--agent", "red"])).stdin("mine").ends();
        (ran.code() == Some(0)).then_some(())
    });
    other.holds("a", "mine");
}

/// Without the network, an owner writes until its deadline, and not after it.
fn the_network_is_not_needed(mut shared: impl Shared) {
    let world = shared.machine("12s");
    add(&world);
    let before = Instant::now();
    let claim = claim(&world);
    let after = Instant::now();
    shared.stop();
    let mut last = None;
    let refused = until("the deadline", || {
        for file in ["a", "b"] {
            world.puts(file, "one");
        }
        let began = Instant::now();
        let ran = under(Some(&claim), world.tollgate(["write", "a", "--json"])).stdin("mine").ends();
        if ran.code() == Some(0) {
            last = Some(began);
            return None;
        }
        ran.payload("FENCED", "STOP_WORK");
        assert!(is_unchanged(&world));
        Some(Instant::now())
    });
    // A twelfth of the lease is left for a write that is under way.
    let last = last.expect("writes went through at first");
    assert!(last - after < Duration::from_secs(11), "not after the deadline: {:?}", last - after);
    assert!(refused - before >= Duration::from_secs(11), "not before it: {:?}", refused - before);
    for door in [DOORS[5], DOORS[9]] {
        refuses(&world, &claim, door);
        lets_through(&world, None, door);
    }
}

/// Leaves a process behind that goes on writing and says so, as long as the test wants. It is not in the process group of the command.
const ESCAPES: &str = r#"#!/bin/bash
cat > "$0.writer" <<'WRITER'
while [ -e "$GO" ]; do
  printf mine | tollgate write a --json > /dev/null 2>&1
  echo "one $?" >> "$WITNESS"
done
WRITER
setsid bash "$0.writer" < /dev/null > /dev/null 2>&1 &
sleep 1000
"#;

/// Says that it has begun.
const BEGINS: &str = "#!/bin/sh\necho other begins >> \"$WITNESS\"; sleep 1000\n";

/// The worker is killed, and a process that it leaves behind goes on. It writes nothing once another machine has the task.
fn a_process_that_outlives_its_worker_is_fenced(shared: &impl Shared) {
    // Long enough for a heartbeat on a busy machine.
    let (one, other) = (shared.machine("8s"), shared.machine("8s"));
    add(&one);
    let (witness, go) = (one.tmp().join("witness"), one.tmp().join("go"));
    std::fs::write(&go, "").unwrap();
    let start = |world: &World, who: &str, text: &str| {
        let command = world.tmp().join("command");
        executable(&command, text);
        let work = ["work", "--agent", who, "--interval", "1", "--", command.to_str().unwrap()];
        world.tollgate(work).env("WITNESS", &witness).env("GO", &go).starts()
    };
    let told = |line: &str| lines(&witness).iter().any(|told| told == line).then_some(());
    let mut first = start(&one, "one", ESCAPES);
    until("a write", || told("one 0"));
    // It writes for longer than a lease, because its worker renews the claim.
    let began = Instant::now();
    until("more than a lease", || (began.elapsed() > Duration::from_secs(10)).then_some(()));
    assert!(told("one 1").is_none(), "the claim is renewed");
    first.signal(Signal::KILL);
    first.ends();
    until("a write to be refused", || told("one 1"));
    let mut second = start(&other, "other", BEGINS);
    until("the other machine to begin", || told("other begins"));
    let at = lines(&witness).len();
    until("more attempts", || (lines(&witness).len() > at + 3).then_some(()));
    let text = lines(&witness);
    let refused = text.iter().position(|line| line == "one 1").unwrap();
    assert!(!text[refused..].contains(&"one 0".to_owned()), "no write after the first refusal: {text:?}");
    second.signal(Signal::KILL);
    second.ends();
    std::fs::remove_file(go).unwrap();
}

/// A server tells the store that the claims of its connection are alive, so the connection may write for as long as it lasts.
fn a_connection_writes_for_longer_than_a_lease(shared: &impl Shared) {
    let world = shared.machine("6s");
    add(&world);
    let mut client = Client::of(&world, "blue");
    client.done("claim_task", json!({"task": "x"}));
    let began = Instant::now();
    until("two leases", || (began.elapsed() > Duration::from_secs(12)).then_some(()));
    client.done("write_file", json!({"path": "a", "content": "mine"}));
    world.holds("a", "mine");
}

macro_rules! on_every_store {
    ($($story:ident: $git:ident, $etcd:ident, $postgres:ident;)*) => {$(
        #[test]
        fn $git() {
            $story(&git());
        }

        #[test]
        fn $etcd() {
            $story(&etcd(Cluster::shared()));
        }

        #[test]
        fn $postgres() {
            if let Some(postgres) = postgres(Server::shared) {
                $story(&postgres);
            }
        }
    )*};
}

on_every_store! {
    the_owner_writes_until_its_release:
        over_git_the_owner_writes_until_its_release,
        on_etcd_the_owner_writes_until_its_release,
        on_postgresql_the_owner_writes_until_its_release;
    a_lost_claim_writes_at_no_door:
        over_git_a_lost_claim_writes_at_no_door,
        on_etcd_a_lost_claim_writes_at_no_door,
        on_postgresql_a_lost_claim_writes_at_no_door;
    a_connection_writes_for_longer_than_a_lease:
        over_git_a_connection_writes_for_longer_than_a_lease,
        on_etcd_a_connection_writes_for_longer_than_a_lease,
        on_postgresql_a_connection_writes_for_longer_than_a_lease;
    a_process_that_outlives_its_worker_is_fenced:
        over_git_a_process_that_outlives_its_worker_is_fenced,
        on_etcd_a_process_that_outlives_its_worker_is_fenced,
        on_postgresql_a_process_that_outlives_its_worker_is_fenced;
}

#[test]
fn on_etcd_a_claim_that_a_person_ends_writes_at_no_door() {
    a_claim_that_a_person_ends_writes_at_no_door(&etcd(Cluster::shared()));
}

#[test]
fn on_etcd_a_held_claim_that_a_person_ends_writes_nothing() {
    a_held_claim_that_a_person_ends_writes_nothing(&etcd(Cluster::shared()));
}

#[test]
fn on_postgresql_a_held_claim_that_a_person_ends_writes_nothing() {
    if let Some(postgres) = postgres(Server::shared) {
        a_held_claim_that_a_person_ends_writes_nothing(&postgres);
    }
}

#[test]
fn on_postgresql_a_claim_that_a_person_ends_writes_at_no_door() {
    if let Some(postgres) = postgres(Server::shared) {
        a_claim_that_a_person_ends_writes_at_no_door(&postgres);
    }
}

#[test]
fn a_clock_that_is_set_fences_nobody_and_unfences_nobody() {
    let remote = git();
    let world = remote.machine(LONG);
    add(&world);
    let claim = claim(&world);
    let write_at = |clock: &str| {
        let run = under(Some(&claim), world.tollgate(["write", "a", "--agent", "blue"])).stdin("mine");
        let run = run.env("LD_PRELOAD", FAKETIME).env("FAKETIME", clock);
        run.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1").ends().code()
    };
    let clocks = ["+2d", "-2d"];
    assert!(std::fs::exists(FAKETIME).unwrap(), "`faketime` is installed by `scripts/test`");
    assert_eq!(clocks.map(write_at), [Some(0), Some(0)]);
    world.run(&format!("task release x --claim-id {}", claim.id)).is(0);
    assert_eq!(clocks.map(write_at), [Some(1), Some(1)]);
}

#[test]
fn without_its_remote_an_owner_writes_until_its_deadline() {
    the_network_is_not_needed(git());
}

#[test]
fn without_etcd_an_owner_writes_until_its_deadline() {
    the_network_is_not_needed(etcd(Arc::new(Cluster::start())));
}

#[test]
fn without_postgresql_an_owner_writes_until_its_deadline() {
    if let Some(postgres) = postgres(|| Server::start("fsync = off")) {
        the_network_is_not_needed(postgres);
    }
}

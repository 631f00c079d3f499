//! Tasks in folders: the claim record decides.

use std::fs;

use rustix::process::Signal;

use super::{Claim, DOORS, claims_when_free, fenced_lines, lets_through, refuses, under};
use crate::chance::executable;
use crate::engines::lines;
use crate::world::{World, until};

/// A workspace with a vault and a task `x`.
fn world(lease: &str) -> World {
    let world = World::with(&format!("[vault]\ndurability = \"fast\"\nlease = \"{lease}\"\nretry = []\n"));
    world.run("init --vault").is(0);
    world.run("task add x --agent ada").is(0);
    world
}

fn claim(world: &World, agent: &str) -> Claim {
    Claim::of(&world.json(&format!("task claim x --agent {agent}")))
}

#[test]
fn the_owner_writes_at_every_door_and_so_does_everybody_without_a_claim() {
    let world = world("30m");
    let claim = claim(&world, "blue");
    for door in DOORS {
        lets_through(&world, Some(&claim), door);
        lets_through(&world, None, door);
    }
    assert!(fenced_lines(&world).is_empty());
}

#[test]
fn an_owner_whose_lease_is_over_and_whose_task_another_agent_has_writes_at_no_door() {
    let world = world("1s");
    let old = claim(&world, "blue");
    let new = claims_when_free(&world, "x", "red");
    for door in DOORS {
        refuses(&world, &old, door);
        lets_through(&world, None, door);
    }
    assert_eq!(fenced_lines(&world).len(), DOORS.len());
    // The new owner's lease is over, too, but nobody has taken the task.
    lets_through(&world, Some(&new), DOORS[0]);
}

#[test]
fn a_lease_that_is_over_fences_nobody_while_nobody_else_has_the_task() {
    let world = world("1ms");
    let claim = claim(&world, "blue");
    lets_through(&world, Some(&claim), DOORS[0]);
    world.run(&format!("task renew x --claim-id {}", claim.id)).is(0);
    lets_through(&world, Some(&claim), DOORS[0]);
}

#[test]
fn after_the_release_the_old_claim_writes_nothing() {
    let world = world("30m");
    let claim = claim(&world, "blue");
    world.run(&format!("task release x --claim-id {}", claim.id)).is(0);
    for door in [DOORS[0], DOORS[5], DOORS[9]] {
        refuses(&world, &claim, door);
    }
}

#[test]
fn call_by_call_a_lost_claim_makes_no_links_and_no_folders() {
    let world = world("30m");
    let claim = claim(&world, "blue");
    let script = "ln -s a link; ln a name; mkdir folder; mkfifo pipe; chmod 600 a; rmdir empty; true";
    let tries = |claim: Option<&Claim>| {
        world.puts("a", "one");
        fs::create_dir_all(world.path("empty")).unwrap();
        under(claim, world.tollgate(["run", "--mode", "gate", "--", "sh", "-c", script])).ends()
    };
    let made = || ["link", "name", "folder", "pipe"].map(|name| world.path(name).symlink_metadata().is_ok());
    world.run(&format!("task release x --claim-id {}", claim.id)).is(0);
    tries(Some(&claim)).is(75);
    assert_eq!(made(), [false; 4]);
    assert!(world.path("empty").is_dir());
    let paths = fenced_lines(&world);
    let paths: Vec<_> = paths.iter().map(|line| line["payload"]["target_file"].as_str().unwrap()).collect();
    assert_eq!(paths, ["link", "a", "folder", "pipe", "empty"], "one line for each file");
    tries(None).is(0);
    assert_eq!(made(), [true; 4]);
}

#[test]
fn a_task_that_a_person_moved_by_hand_is_not_its_old_owners() {
    let world = world("30m");
    let claim = claim(&world, "blue");
    fs::rename(world.path("vault/In_Progress/blue/x.md"), world.path("vault/Needs_Action/x.md")).unwrap();
    refuses(&world, &claim, DOORS[0]);
    let new = claims_when_free(&world, "x", "blue");
    refuses(&world, &claim, DOORS[0]);
    lets_through(&world, Some(&new), DOORS[0]);
}

#[test]
fn a_claim_whose_vault_is_gone_writes_nothing() {
    let world = world("30m");
    let claim = claim(&world, "blue");
    let write = under(Some(&claim), world.tollgate(["write", "a", "--agent", "blue"]));
    write.env("TOLLGATE_VAULT", world.path("missing")).stdin("mine").ends().is(1);
    fs::rename(world.path("vault"), world.path("elsewhere")).unwrap();
    refuses(&world, &claim, DOORS[0]);
    lets_through(&world, None, DOORS[0]);
}

#[test]
fn a_person_reads_why() {
    let world = world("30m");
    let claim = claim(&world, "blue");
    world.run(&format!("task release x --claim-id {}", claim.id)).is(0);
    world.puts("a", "one");
    let ran =
        under(Some(&claim), world.tollgate(["write", "a", "--agent", "blue"])).stdin("mine").ends().is(1);
    assert!(ran.stderr().starts_with("refused: your claim on the task `x.md` has ended"), "{ran}");
    assert!(ran.stderr().contains("hint: stop working on this task"), "{ran}");
}

#[test]
fn half_a_claim_in_the_environment_is_none_and_a_damaged_one_stops_the_write() {
    let world = world("30m");
    world.puts("a", "one");
    let write = || world.tollgate(["write", "a", "--agent", "blue"]).stdin("mine");
    write().env("TOLLGATE_CLAIM_ID", "c-0123456789abcdef").ends().is(0);
    write().env("TOLLGATE_TASK_ID", "x").ends().is(0);
    world.puts("a", "one");
    write().env("TOLLGATE_TASK_ID", "x").env("TOLLGATE_CLAIM_ID", "../../etc").ends().is(2);
    world.holds("a", "one");
}

/// Writes a file at the end of its work, and then releases nothing.
const LAST_WRITE: &str =
    "#!/bin/sh\nprintf mine | tollgate write \"$OTHER/a\" -C \"$OTHER\" && printf mine | tollgate write a\n";

#[test]
fn the_command_of_a_worker_writes_until_it_ends_in_its_own_workspace_and_in_others() {
    let (world, other) = (world("30m"), World::new());
    other.run("init --vault").is(0);
    let command = world.tmp().join("command");
    executable(&command, LAST_WRITE);
    let run = world.tollgate(["work", "--once", "--agent", "blue", "--", command.to_str().unwrap()]);
    let ran = run.env("OTHER", other.root()).ends().is(0);
    world.holds("a", "mine");
    other.holds("a", "mine");
    assert!(world.path("vault/Done/x.md").exists(), "{ran}");
}

/// Leaves a process behind that goes on writing as long as the test wants, into its own workspace and into another, and tells what it hears.
const LEAVES_A_WRITER: &str = r#"#!/bin/bash
writer() {
  while [ -e "$GO" ]; do
    for where in "$OTHER" "$PWD"; do
      printf mine | tollgate write "$where/a" -C "$where" --json > /dev/null 2>&1
      echo "$? $where" >> "$WITNESS"
    done
  done
}
writer &
until grep -q "^0 $PWD" "$WITNESS"; do sleep 0.01; done
"#;

#[test]
fn a_process_that_outlives_the_work_writes_nothing_after_the_release() {
    let (world, other) = (world("30m"), World::new());
    other.run("init --vault").is(0);
    let (witness, go) = (world.tmp().join("witness"), world.tmp().join("go"));
    fs::write(&go, "").unwrap();
    let command = world.tmp().join("command");
    executable(&command, LEAVES_A_WRITER);
    let run = world.tollgate(["work", "--once", "--agent", "blue", "--", command.to_str().unwrap()]);
    let mut work = run.env("OTHER", other.root()).env("WITNESS", &witness).env("GO", &go).starts();
    let told = |line: String| lines(&witness).contains(&line).then_some(());
    until("a write in the other workspace to be refused", || told(format!("1 {}", other.root().display())));
    until("a write to be refused", || told(format!("1 {}", world.root().display())));
    work.signal(Signal::TERM);
    work.ends();
    assert!(world.path("vault/Done/x.md").exists(), "the command ended well, and its task is done");
    let text = lines(&witness);
    let first = text.iter().position(|line| line.starts_with('1')).unwrap();
    assert!(text[first..].iter().all(|line| line.starts_with('1')), "no write after the first refusal");
    fs::remove_file(go).unwrap();
}

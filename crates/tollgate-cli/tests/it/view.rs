//! The folders of machines that share an engine, as whole programs. Each engine plays these stories.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use crate::serve::Served;
use crate::world::{Process, World, until};

/// A machine whose folders show the tasks at this address.
fn machine(url: &str) -> World {
    World::with(&format!(
        "[vault]\nstore = \"{url}\"\nview = true\nsettle = \"200ms\"\nremote_timeout = \"1s\"\nretry = []\n\
         approve_by_move = true\n"
    ))
}

/// A process that keeps the folders, and writes to this file what people should know.
fn keeper(world: &World, log: &Path) -> Process {
    let mut run = world.tollgate(["sync", "--follow"]);
    run.command.stdin(Stdio::null()).stdout(Stdio::null());
    run.command.stderr(File::options().create(true).append(true).open(log).unwrap());
    Process(run.command.spawn().unwrap())
}

/// The text of a task in this folder.
fn shown(world: &World, path: &str) -> Option<String> {
    fs::read_to_string(world.path("vault").join(path)).ok()
}

#[track_caller]
fn until_shown(world: &World, path: &str) -> String {
    until(path, || shown(world, path))
}

/// The texts that were set aside.
fn aside(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.path("vault/.tollgate/view/aside")).into_iter().flatten().flatten();
    entries.map(|entry| fs::read_to_string(entry.path()).unwrap()).collect()
}

fn by_hand(world: &World, from: &str, to: &str) {
    fs::rename(world.path("vault").join(from), world.path("vault").join(to)).unwrap();
}

/// What `doctor` says about the folders.
fn doctor(world: &World) -> String {
    let report = world.tollgate(["doctor", "--json"]).ends().json();
    let findings = report["findings"].as_array().unwrap().iter();
    findings.filter(|found| found["check"] == "view").map(|found| format!("{found}\n")).collect()
}

/// A person on one machine adds a task, one on the other approves it, both edit another at the same time, the engine stops and
/// starts again, and a process that keeps the folders is killed.
pub(crate) fn two_machines(url: &str, stop: &dyn Fn(), start: &dyn Fn()) {
    let (one, other) = (machine(url), machine(url));
    let log = |world: &World| world.tmp().join("told");
    assert!(doctor(&one).contains("no process keeps the folders"), "{}", doctor(&one));
    let first = keeper(&one, &log(&one));
    let _keeps = keeper(&other, &log(&other));
    until("the folders", || one.path("vault/Needs_Action").is_dir().then_some(()));
    assert!(
        until("the keeper", || Some(doctor(&one)).filter(|said| said.contains("a process keeps")))
            .contains("ok")
    );

    // A file becomes a task on both machines.
    fs::write(one.path("vault/Needs_Action/plants.md"), "# Water the plants\n").unwrap();
    assert_eq!(until_shown(&other, "Needs_Action/plants.md"), "# Water the plants\n");
    assert_eq!(one.json("task list --state Needs_Action")[0]["task"], "plants.md");

    // A move by hand is an approval, because the settings say so.
    let claimed = other.json("task claim plants --agent blue");
    until_shown(&one, "In_Progress/blue/plants.md");
    let id = claimed["claim_id"].as_str().unwrap();
    other.run(&format!("task release plants --to Pending_Approval --claim-id {id} --agent blue")).is(0);
    until_shown(&other, "Pending_Approval/plants.md");
    by_hand(&other, "Pending_Approval/plants.md", "Approved/plants.md");
    until_shown(&one, "Approved/plants.md");
    until("the old file to go", || shown(&one, "Pending_Approval/plants.md").is_none().then_some(()));
    assert_eq!(one.json("task list --state Approved")[0]["task"], "plants.md");

    // Two people edit one task: both have saved before either text has settled.
    one.run("task add dog --body walk --agent ada").is(0);
    for world in [&one, &other] {
        until_shown(world, "Needs_Action/dog.md");
    }
    fs::write(one.path("vault/Needs_Action/dog.md"), "as one wants it\n").unwrap();
    fs::write(other.path("vault/Needs_Action/dog.md"), "as the other wants it\n").unwrap();
    let (loser, kept) = until("a copy that is kept", || {
        let found = [&one, &other].into_iter().find_map(|world| Some((world, aside(world).pop()?)))?;
        let texts = [&one, &other].map(|world| shown(world, "Needs_Action/dog.md"));
        (texts[0].is_some() && texts[0] == texts[1]).then_some(found)
    });
    let won = shown(&one, "Needs_Action/dog.md").unwrap();
    let both = ["as one wants it\n", "as the other wants it\n"];
    assert!(both.contains(&won.as_str()) && both.contains(&kept.as_str()) && won != kept, "{won} {kept}");
    let told = until("the loser to be told", || {
        fs::read_to_string(log(loser)).ok().filter(|told| told.contains("set aside"))
    });
    assert!(told.contains("somebody else changed the task first"), "{told}");
    assert!(doctor(loser).contains("files set aside: 1"), "{}", doctor(loser));

    // The engine stops: the files stay, marked, and nothing can be claimed.
    stop();
    for world in [&one, &other] {
        let mark = until_shown(world, "STALE.md");
        assert!(mark.contains("\nSince 2"), "{mark}");
        assert_eq!(shown(world, "Needs_Action/dog.md").as_deref(), Some(won.as_str()));
    }
    one.run("task claim dog --agent blue").is(3);
    assert!(doctor(&one).contains("the folders are out of date: Since"), "{}", doctor(&one));
    fs::write(one.path("vault/Needs_Action/offline.md"), "added in the outage\n").unwrap();
    start();
    for world in [&one, &other] {
        until("the mark to go", || shown(world, "STALE.md").is_none().then_some(()));
    }
    assert_eq!(until_shown(&other, "Needs_Action/offline.md"), "added in the outage\n");

    // The keeper is killed: the next one, which waits, goes on.
    let _next = keeper(&one, &log(&one));
    first.signal(Signal::KILL);
    fs::write(one.path("vault/Needs_Action/offline.md"), "while nobody looked\n").unwrap();
    until("the edit", || {
        shown(&other, "Needs_Action/offline.md").filter(|text| text == "while nobody looked\n")
    });
    assert_eq!((aside(&one).len() + aside(&other).len(), shown(&one, "Needs_Action/plants.md")), (1, None));
}

/// `work` and `serve` keep the folders while they run, and `sync` makes them agree once.
pub(crate) fn workers_and_servers(url: &str) {
    let (one, other) = (machine(url), machine(url));
    one.run("sync").is(0);
    fs::write(one.path("vault/Needs_Action/x.md"), "by hand\n").unwrap();
    fs::write(one.path("vault/STALE.md"), "of an outage that is over\n").unwrap();
    one.run("sync").is(0);
    assert_eq!((shown(&one, "STALE.md"), one.json("task list")[0]["task"].as_str()), (None, Some("x.md")));
    assert_eq!(other.json("sync"), json!({"view": "up_to_date", "unfinished": []}));
    let written = File::options().append(true).open(other.path("vault/Needs_Action/x.md")).unwrap();
    (&written).write_all(b"more\n").unwrap();
    assert_eq!(other.json("sync"), json!({"view": "unfinished", "unfinished": ["x.md"]}));
    let said = other.run("sync").is(0);
    assert!(said.stdout().contains("agree, except for") && said.stdout().contains("`x.md`"), "{said}");
    written.set_len(8).unwrap();
    drop(written);
    assert_eq!(shown(&other, "Needs_Action/x.md").as_deref(), Some("by hand\n"));
    let served = Served::new(&other, &[]);
    let _works = one.tollgate(["work", "--agent", "blue", "--", "true"]).starts();
    until_shown(&one, "Done/x.md");
    until_shown(&other, "Done/x.md");
    assert!(other.run("sync").is(0).stdout().contains("another process is keeping the folders"), "{url}");
    drop(served);
    let folder = World::new();
    folder.run("init --vault").is(0);
    let no_view = folder.run("sync --follow").is(2);
    assert!(no_view.stderr().contains("view = true"), "{no_view}");
}

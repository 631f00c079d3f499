//! `serve --demo`: what a new user sees in the first ten seconds.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Served, metrics};
use crate::world::{World, until};

#[test]
fn a_new_user_sees_a_refusal_a_successful_retry_claims_and_an_approval_in_ten_seconds() {
    let world = World::new();
    let temporary = world.tmp().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let words = ["serve", "--demo", "--listen", "127.0.0.1:0", "--json"];
    let began = Instant::now();
    let served = Served::of(world.tollgate(words).env("TMPDIR", &temporary));
    let root = PathBuf::from(served.said["workspace"].as_str().unwrap());
    assert!(root.starts_with(&temporary), "{}", root.display());
    let lines = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(root.join(".tollgate/ledger.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    // Refused, and then written in the same turn.
    until("a refused write and its successful retry", || {
        let lines = lines();
        let refused = lines.iter().position(|line| line["action_type"] == "MUTATION_CONFLICT")?;
        let turn = &lines[refused]["turn"];
        lines[refused..]
            .iter()
            .find(|line| line["action_type"] == "MUTATION" && line["turn"] == *turn)
            .map(drop)
    });
    let health = served.until_health("an approval", |health| {
        health["tasks"]["pending_approvals"].as_u64() > Some(0)
            && health["coordination"]["total_claims"].as_u64() >= Some(3)
    });
    assert!(health["agents"].as_array().unwrap().len() >= 3);
    until("the refusal among the metrics", || {
        let page = metrics::Page::read(&served.gets("/metrics").body);
        ["blue", "green", "violet"]
            .iter()
            .any(|agent| {
                page.value("tollgate_refusals_total", &[("agent", agent), ("error_type", "STALE_FILE")])
                    > Some(0.0)
            })
            .then_some(())
    });
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // A person approves a task, and it is executed.
    let pending =
        fs::read_dir(root.join("vault/Pending_Approval")).unwrap().next().unwrap().unwrap().file_name();
    let task = pending.to_str().unwrap();
    world.tollgate(["-C", root.to_str().unwrap(), "task", "approve", task, "--by", "ada"]).typed("yes").is(0);
    until("the approved task to be done", || root.join("vault/Done").join(task).exists().then_some(()));
    assert!(fs::read_to_string(root.join("outbox.md")).unwrap().contains("- sent: "));
    until("a refused write that was merged", || {
        lines().iter().find(|line| line["payload"]["tool_name"] == "merge_file").map(drop)
    });
    // A worker is killed, and another agent does its task.
    let task = until("a dead worker's task to come back", || {
        let lines = lines();
        let back = lines.iter().find(|line| line["action_type"] == "RECLAIM" && line["agent"] == "amber")?;
        Some(back["payload"]["task"].as_str().unwrap().to_owned())
    });
    until("another agent to do it", || {
        let is_done = |line: &serde_json::Value| {
            line["action_type"] == "RELEASE" && line["payload"]["task"] == *task && line["agent"] != "amber"
        };
        lines().iter().any(is_done).then_some(())
    });
    let count = |kind: &str| lines().iter().filter(|line| line["action_type"] == kind).count();
    assert!(count("MUTATION") > count("MUTATION_CONFLICT"), "most writes succeed");
    let took = served.ends(Signal::INT);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "the demo's folder is deleted");
    let left = |name: &str| fs::read_dir(world.tmp().join(name)).unwrap().count();
    assert_eq!((left("run"), left("home")), (0, 0), "nothing is left in the user's folders");
}

#[test]
fn a_demo_that_is_stopped_at_once_is_deleted() {
    for signal in [Signal::TERM, Signal::HUP] {
        let world = World::new();
        let words = ["serve", "--demo", "--listen", "127.0.0.1:0", "--json"];
        let served = Served::of(world.tollgate(words).env("TMPDIR", world.tmp()));
        served.ends(signal);
        let left: Vec<_> =
            fs::read_dir(world.tmp()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_str().unwrap().contains("demo")), "{left:?}");
    }
}

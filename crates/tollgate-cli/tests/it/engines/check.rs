//! What must hold after a campaign, whatever happened. This file does no I/O.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The claims that a worker has released, by what it and its commands printed: it says so only after the engine has
/// acknowledged the release.
pub(super) fn released(log: &[String]) -> Vec<String> {
    let mut claims: BTreeMap<&str, &str> = BTreeMap::new();
    let mut released = Vec::new();
    for line in log {
        if let Some((task, claim)) = line.strip_prefix("began ").and_then(|rest| rest.split_once(' ')) {
            claims.insert(task, claim);
        }
        let parts: Vec<&str> = line.split('`').collect();
        match parts[..] {
            // Its command has not said anything yet.
            ["claimed ", task, ..] => drop(claims.remove(task)),
            // It was never said to be claimed.
            ["returned ", .., ": the claim could not be verified"] => {}
            // `finished `t.md` in 0.1 s, now in `Done``, and the like. The task may be returned before its command says anything.
            ["finished " | "failed " | "returned ", task, _, _, _] => {
                released.extend(claims.remove(task).map(str::to_owned));
            }
            _ => {}
        }
    }
    released
}

/// Everything that is wrong: by what the commands recorded outside the engine, by the claims whose release was acknowledged, and by
/// the events in the engine.
pub(super) fn findings(
    witness: &[String],
    released: &[String],
    events: &[Value],
    tasks: usize,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut began = Vec::new();
    for line in witness {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, task, claim] = words[..] else { panic!("{line}") };
        match what {
            "double" => wrong.push(format!("two live owners: {line}")),
            "unlocked" => wrong.push(format!("nobody knows the owners, because `flock` failed: {line}")),
            "began" => {
                last.insert(task, claim);
                began.push(claim);
            }
            // While one works on a task, nobody else begins it. A killed worker records no end.
            _ if last.get(task) != Some(&claim) => {
                wrong.push(format!("two live owners: another had begun before {line}"));
            }
            _ => {}
        }
    }
    let mut steps: BTreeMap<&str, usize> = BTreeMap::new();
    let mut claims: BTreeMap<&str, usize> = BTreeMap::new();
    let mut releases: BTreeMap<&str, usize> = BTreeMap::new();
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events {
        if let Some(step) = event["payload"]["step"].as_str() {
            *steps.entry(step).or_default() += 1;
        }
        let task = event["payload"]["task"].as_str().unwrap_or_default();
        let claim = event["payload"]["claim_id"].as_str().unwrap_or_default();
        match event["action_type"].as_str().unwrap() {
            "CLAIM" => {
                *claims.entry(claim).or_default() += 1;
                if done.contains_key(task) {
                    wrong.push(format!("`{task}` was claimed after it was done"));
                }
            }
            "RELEASE" => {
                *releases.entry(claim).or_default() += 1;
                if event["result"]["status"] == "Done" {
                    *done.entry(task).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    let repeated = steps.iter().filter(|(_, times)| **times != 1);
    wrong.extend(repeated.map(|(step, times)| format!("the ledger has `{step}` {times} times")));
    if steps.len() < 2 * tasks {
        wrong.push(format!("the ledger has {} steps for {tasks} tasks", steps.len()));
    }
    let lost = began.into_iter().filter(|claim| claims.get(claim) != Some(&1));
    wrong.extend(lost.map(|claim| format!("acknowledged and lost: the claim `{claim}`")));
    let lost = released.iter().filter(|claim| releases.get(claim.as_str()) != Some(&1));
    wrong.extend(lost.map(|claim| format!("acknowledged and lost: the release of `{claim}`")));
    // Few workers are killed between a release and their message.
    if 2 * released.len() < tasks {
        wrong.push(format!("the workers reported only {} releases of {tasks} tasks", released.len()));
    }
    let repeated = done.iter().filter(|(_, times)| **times != 1);
    wrong.extend(repeated.map(|(task, times)| format!("`{task}` was finished {times} times")));
    if done.len() != tasks {
        wrong.push(format!("{} of {tasks} tasks were finished", done.len()));
    }
    wrong
}

/// An invented event.
fn event(kind: &str, claim: &str, step: &str) -> Value {
    json!({
        "action_type": kind, "result": { "status": "Done" },
        "payload": { "task": "t.md", "claim_id": claim, "step": step },
    })
}

#[test]
fn the_check_notices_two_owners_lost_steps_and_lines_that_are_there_twice() {
    let told = || vec![event("CLAIM", "c-1", "s-1"), event("RELEASE", "c-1", "s-2")];
    let seen = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let fine = seen(&["began t.md c-1", "ended t.md c-1"]);
    let log = seen(&["claimed `t.md`", "began t.md c-1", "finished `t.md` in 0.1 s, now in `Done`"]);
    assert_eq!(released(&log), ["c-1"]);
    assert_eq!(released(&log[..2]), [""; 0]);
    assert_eq!(findings(&fine, &released(&log), &told(), 1), [""; 0]);
    let finished_twice = [told(), vec![event("RELEASE", "c-2", "s-3")]].concat();
    let line_twice = [told(), vec![event("RECLAIM", "c-1", "s-2")]].concat();
    let claimed_later = [told(), vec![event("CLAIM", "c-2", "s-3")]].concat();
    // Another has done it again, so the ledger has one release.
    let done_again =
        vec![event("CLAIM", "c-1", "s-1"), event("CLAIM", "c-2", "s-2"), event("RELEASE", "c-2", "s-3")];
    let wrong = [
        (seen(&["began t.md c-1", "double t.md c-2", "ended t.md c-1"]), told()),
        (seen(&["began t.md c-1", "unlocked t.md c-1", "ended t.md c-1"]), told()),
        (seen(&["began t.md c-1", "began t.md c-2", "ended t.md c-1"]), told()),
        (seen(&["began t.md c-2", "began t.md c-1", "ended t.md c-1"]), told()),
        (fine.clone(), finished_twice),
        (fine.clone(), line_twice),
        (fine.clone(), claimed_later),
        (seen(&["began t.md c-1", "ended t.md c-1", "began t.md c-2", "ended t.md c-2"]), done_again),
        (fine, vec![event("CLAIM", "c-1", "s-1")]),
    ];
    for (witness, events) in wrong {
        assert_ne!(findings(&witness, &released(&log), &events, 1), [""; 0], "{witness:?} {events:?}");
    }
}

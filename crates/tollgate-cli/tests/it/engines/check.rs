//! What must hold after a campaign, whatever happened. This file does no I/O.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Everything that is wrong: by what the commands recorded outside the engine, and by the events in the engine.
pub(super) fn findings(witness: &[String], events: &[Value], tasks: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut began = Vec::new();
    for line in witness {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, task, claim] = words[..] else { panic!("{line}") };
        match what {
            "double" => wrong.push(format!("two live owners: {line}")),
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
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events {
        if let Some(step) = event["payload"]["step"].as_str() {
            *steps.entry(step).or_default() += 1;
        }
        let task = event["payload"]["task"].as_str().unwrap_or_default();
        match event["action_type"].as_str().unwrap() {
            "CLAIM" => *claims.entry(event["payload"]["claim_id"].as_str().unwrap()).or_default() += 1,
            "RELEASE" if event["result"]["status"] == "Done" => *done.entry(task).or_default() += 1,
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
    if done.len() != tasks || done.values().any(|times| *times != 1) {
        wrong.push(format!("not each of {tasks} tasks was finished once: {done:?}"));
    }
    wrong
}

/// An invented event.
fn event(kind: &str, step: &str) -> Value {
    json!({
        "action_type": kind, "result": { "status": "Done" },
        "payload": { "task": "t.md", "claim_id": "c-1", "step": step },
    })
}

#[test]
fn the_check_notices_two_owners_lost_claims_and_lines_that_are_there_twice() {
    let told = || vec![event("CLAIM", "s-1"), event("RELEASE", "s-2")];
    let seen = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let fine = seen(&["began t.md c-1", "ended t.md c-1"]);
    assert_eq!(findings(&fine, &told(), 1), [""; 0]);
    let twice = [told(), vec![event("RELEASE", "s-3")]].concat();
    let line_twice = [told(), vec![event("RECLAIM", "s-2")]].concat();
    let wrong = [
        (seen(&["began t.md c-1", "double t.md c-2", "ended t.md c-1"]), told()),
        (seen(&["began t.md c-1", "began t.md c-2", "ended t.md c-1"]), told()),
        (seen(&["began t.md c-2", "began t.md c-1", "ended t.md c-1"]), told()),
        (fine.clone(), twice),
        (fine.clone(), line_twice),
        (fine, vec![event("CLAIM", "s-1")]),
    ];
    for (witness, events) in wrong {
        assert_ne!(findings(&witness, &events, 1), [""; 0], "{witness:?} {events:?}");
    }
}

//! Many agents add lines to one file: read, write, and after a refusal read again. No line is lost and none appears twice.

use std::collections::{HashMap, VecDeque};
use std::fs;

use tollgate_testing::until_true;

use crate::crew::{Crew, Disk};
use crate::scene::lines_of;

fn agents_add_lines(agents: u32, lines: u32, config: &str) {
    let crew = Crew::on(Disk::Checkout, config, &["list"]).unwrap();
    let started: Vec<_> = (0..agents)
        .map(|agent| {
            let (name, lines) = (format!("agent{agent}"), lines.to_string());
            crew.start("agent", &["--file", "list", "--name", &name, "--lines", &lines])
        })
        .collect();
    let answers: Vec<_> = started.into_iter().map(|agent| agent.ends()).collect();
    let sum = |what: &str| answers.iter().map(|answer| answer[what].as_u64().unwrap()).sum::<u64>();
    let (written, stale, busy) = (sum("written"), sum("stale"), sum("busy"));
    println!("{written} lines written, {stale} refused as stale, {busy} as busy");

    let text = fs::read_to_string(crew.root().join("list")).unwrap();
    let mut found: HashMap<&str, usize> = HashMap::new();
    text.lines().for_each(|line| *found.entry(line).or_default() += 1);
    for agent in 0..agents {
        for line in 0..lines {
            let line = format!("agent agent{agent} {line}");
            assert_eq!(found.remove(line.as_str()), Some(1), "{line}");
        }
    }
    assert_eq!(found, HashMap::from([("start", 1)]));

    crew.workspace(|workspace| {
        assert_eq!(workspace.ledger().verify().unwrap().problem, None);
        let count = |kind: &str| lines_of(workspace, kind).len() as u64;
        assert_eq!(count("MUTATION"), u64::from(agents * lines), "one line for every line");
        assert_eq!(count("MUTATION_CONFLICT"), stale, "one line for every refusal");
        assert_eq!(count("MUTATION_REFUSED"), busy);
        assert_eq!(count("LATE_EXTERNAL_WRITE"), 0);
    });
    assert!(stale > 0, "no conflict happened, so this proves nothing");
}

/// Agents are killed at random moments while others continue on the same file and heal what the dead ones left.
#[test]
fn killed_agents_lose_no_acknowledged_line() {
    const AGENTS: usize = 80;
    let crew = Crew::on(Disk::Checkout, "[guard]\ndurability = \"fast\"\n", &["list"]).unwrap();
    let log_of = |name: &str| fs::read_to_string(crew.beside(&format!("log-{name}"))).unwrap_or_default();
    let start = |number: usize| {
        let name = format!("agent{number}");
        let log = format!("%log-{name}");
        (crew.start("agent", &["--file", "list", "--name", &name, "--log", &log]), name)
    };
    let mut living: VecDeque<_> = (0..3).map(start).collect();
    for number in 3..AGENTS {
        let (oldest, name) = living.pop_front().unwrap();
        // Some are killed early, some later, each at an unknown system call.
        let age = number * 7 % 11;
        until_true(&name, || log_of(&name).lines().count() >= age);
        oldest.dies();
        living.push_back(start(number));
    }
    living.into_iter().for_each(|(agent, _)| agent.dies());

    crew.workspace(|workspace| {
        let text = fs::read_to_string(crew.root().join("list")).unwrap();
        let mut found: HashMap<&str, usize> = HashMap::new();
        text.lines().for_each(|line| *found.entry(line).or_default() += 1);
        assert_eq!(found.values().max(), Some(&1), "a line appears twice");
        for number in 0..AGENTS {
            for line in log_of(&format!("agent{number}")).split_inclusive('\n') {
                // The kill may have cut off the last log entry. Its line was acknowledged nevertheless.
                let there = line.strip_suffix('\n').is_none_or(|line| found.contains_key(line));
                assert!(there, "{line} was acknowledged and is gone");
            }
        }
        let mutations = lines_of(workspace, "MUTATION");
        assert_eq!(mutations.len(), text.lines().count() - 1, "one line for every line");
        for pair in mutations.windows(2) {
            let (before, after) = (&pair[0]["payload"], &pair[1]["payload"]);
            assert_eq!(
                before["hash_after"], after["hash_before"],
                "the chain of changes is broken: {pair:#?}"
            );
        }
        assert_eq!(lines_of(workspace, "LATE_EXTERNAL_WRITE"), Vec::<serde_json::Value>::new());
        assert_eq!(workspace.ledger().verify().unwrap().problem, None);
        let recovered = mutations.iter().filter(|line| line["payload"]["recovered"] == true).count();
        println!("{} lines, {recovered} of them recorded by the next process", mutations.len());
    });
}

#[test]
fn eight_agents_add_200_lines_each() {
    agents_add_lines(8, 200, "[guard]\ndurability = \"fast\"\n");
}

#[test]
fn four_agents_add_25_durable_lines_each() {
    agents_add_lines(4, 25, "");
}

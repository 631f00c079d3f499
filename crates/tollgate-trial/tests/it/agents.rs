//! Many agents add lines to one file, each by read, write, and on refusal read again: no line is lost, none is there twice.

use std::collections::HashMap;
use std::fs;

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
    assert!(stale > 0, "the agents never met, so this has shown nothing");
}

#[test]
fn eight_agents_add_200_lines_each() {
    agents_add_lines(8, 200, "[guard]\ndurability = \"fast\"\n");
}

#[test]
fn four_agents_add_25_durable_lines_each() {
    agents_add_lines(4, 25, "");
}

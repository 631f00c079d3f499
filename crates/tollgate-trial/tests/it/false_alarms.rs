//! Programs touch files, or write the same bytes again, while agents work: no write is ever refused as stale.

use std::fs;

use tollgate_base::sys;

use crate::crew::{Crew, Disk};
use crate::scene::lines_of;

fn no_false_alarm(kind: &str) {
    // Only a lease keeps this program from undoing a guarded write between its read and its rename. That is a change.
    let may_undo = kind == "same-rename" && !sys::HAS_LEASES;
    for disk in [Disk::Checkout, Disk::Memory] {
        // Each agent has its own file: a write by another agent would be a real conflict.
        let files = ["one", "two"];
        let Some(crew) = Crew::on(disk, "[guard]\ndurability = \"fast\"\n", &files) else { continue };
        let agents = files.map(|name| {
            let ready = format!("%ready-{name}");
            let arguments = ["--file", name, "--name", name, "--lines", "1000", "--ready", &ready];
            let how = ["--keep", "foreign", "--reads", "when-refused"];
            crew.start("agent", &[&arguments[..], &how].concat())
        });
        // A read during a write gives no reliable baseline.
        files.iter().for_each(|name| crew.wait_for(&format!("ready-{name}")));
        let outsiders = files.map(|name| crew.start_outsider(kind, name, &["--until", "%done"]));
        for agent in agents {
            let answer = agent.ends();
            println!("{kind} on {disk:?}: {answer}");
            assert!(answer["stale"] == 0 || may_undo, "{kind} on {disk:?}: {answer}");
        }
        fs::write(crew.beside("done"), "").unwrap();
        for outsider in outsiders {
            let saves = outsider.ends()["saves"].as_u64().unwrap();
            println!("{saves} saves");
            assert!(saves > 10, "{kind} on {disk:?}: the outsider was hardly there");
        }
        crew.workspace(|workspace| {
            assert!(lines_of(workspace, "MUTATION_CONFLICT").is_empty() || may_undo);
            assert_eq!(lines_of(workspace, "LATE_EXTERNAL_WRITE"), Vec::<serde_json::Value>::new());
            assert_eq!(workspace.ledger().verify().unwrap().problem, None);
        });
    }
}

#[test]
fn touching_a_file_does_not_make_it_stale() {
    no_false_alarm("touch");
}

#[test]
fn renaming_the_same_bytes_over_a_file_does_not_make_it_stale() {
    no_false_alarm("same-rename");
}

#[test]
fn writing_the_same_bytes_into_a_file_does_not_make_it_stale() {
    no_false_alarm("same-in-place");
}

//! The guard's state and the ledger: half-made changes of files, recovery, the torn tail, and one line for every step.

use std::fs;

use serde_json::Value;

use super::{OldState, Origin, each};
use crate::world::hash;

/// The content of a file of the workspace; `None` if it does not exist.
fn text(old: &OldState, name: &str) -> Option<String> {
    fs::read_to_string(old.path("folder").join(name)).ok()
}

fn is(old: &OldState, group: &str, which: &str) -> bool {
    let word = |n: u32| Some(format!("{group} {n}, {which}\n"));
    let (third, fifth) = if which == "old" { (word(3), None) } else { (None, word(5)) };
    let wanted = [word(1), word(2), third, word(4), fifth];
    (1..).zip(wanted).all(|(n, wanted)| text(old, &format!("{group}-{n}.txt")) == wanted)
}

#[test]
fn an_interrupted_change_of_several_files_is_completed_or_rolled_back() {
    each(|old| {
        assert!(!is(old, "half", "old") && !is(old, "half", "new"), "the fixture has some of each");
        let doctor = old.run("folder", "doctor --json").is(0).json();
        assert_eq!(doctor["healthy"], true, "{doctor}");
        assert!(is(old, "half", "old"), "the ledger has no line of it");
        assert!(is(old, "torn", "old"), "the ledger has half a line of it");
        assert!(is(old, "whole", "new"), "the ledger has all its lines");
        // A change of a single file stands. Its line comes late.
        assert_eq!(text(old, "single.txt").unwrap(), "single, new\n");
        for (name, bytes) in [("kept.txt", "third version\n"), ("conflict.txt", "what is there\n")] {
            assert_eq!(text(old, name).unwrap(), bytes);
        }
        // Afterwards the files can be written again.
        let write = old.world.tollgate(["write", "half-1.txt"]).folder(old.path("folder"));
        write.stdin("again\n").ends().is(0);
        assert_eq!(old.run("folder", "doctor --json").is(0).json()["healthy"], true);
    });
}

#[test]
fn kept_bytes_are_still_kept() {
    each(|old| {
        let known = old.known("folder")["recovery"].as_array().unwrap();
        assert!(known.len() >= 4);
        let listed = old.json("folder", "recovery list");
        for kept in known {
            let id = kept["id"].as_str().unwrap();
            let found = listed.as_array().unwrap().iter().find(|found| found["id"] == id);
            assert_eq!(found.map(|found| &found["sha256"]), Some(&kept["sha256"]), "{kept}");
            let shown = old.run("folder", &format!("recovery show {id}")).is(0);
            assert_eq!(hash(shown.stdout_bytes()), kept["sha256"].as_str().unwrap());
        }
        // The bytes that an interrupted change replaced, or wanted to write, are kept, too.
        old.run("folder", "doctor").is(0);
        let listed = old.json("folder", "recovery list");
        let hashes: Vec<&Value> = listed.as_array().unwrap().iter().map(|kept| &kept["sha256"]).collect();
        for bytes in ["single, old\n", "whole 1, old\n", "whole 3, old\n", "half 1, new\n", "torn 5, new\n"] {
            assert!(hashes.contains(&&hash(bytes).into()), "{bytes}: {listed}");
        }
    });
}

#[test]
fn no_line_of_the_ledger_is_lost_and_the_torn_tail_is_kept() {
    each(|old| {
        let path = old.path("folder/.tollgate/ledger.jsonl");
        let before = fs::read(&path).unwrap();
        let whole = before.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        let (lines, tail) = before.split_at(whole);
        let count = lines.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(count, old.known("folder")["whole_lines"]);
        assert!(!tail.is_empty());
        old.run("folder", "doctor").is(0);
        let after = fs::read(&path).unwrap();
        assert!(after.starts_with(lines), "all complete lines are kept");
        let kept = fs::read_dir(old.path("folder/.tollgate")).unwrap().map(|entry| entry.unwrap().path());
        assert!(
            kept.filter(|path| path.is_file()).any(|path| fs::read(path).unwrap() == tail),
            "the torn tail"
        );
        old.run("folder", "task list").is(0);
        old.run("folder", "ledger verify").is(0);
        old.run("neighbour", "ledger verify").is(0);
    });
}

#[test]
fn every_step_has_one_line() {
    let steps: [(&str, &[&str]); 9] = [
        ("release-cut-written", &["CLAIM", "RELEASE"]),
        ("release-cut-moved", &["CLAIM", "RELEASE"]),
        ("release-cut-told", &["CLAIM", "RELEASE"]),
        ("owed-release", &["CLAIM", "RELEASE"]),
        ("reclaim-cut-moved", &["CLAIM", "RECLAIM"]),
        ("approve-cut-moved", &["CLAIM", "RELEASE", "APPROVAL"]),
        ("claim-cut-approved", &["CLAIM", "RELEASE", "APPROVAL"]),
        // The first claim never reached the ledger. The second did, so the ledger also has its roll-back.
        ("claim-cut-moved-321", &[]),
        ("claim-cut-told", &["CLAIM", "RECLAIM"]),
    ];
    each(|old| {
        let before: Vec<_> = steps.iter().map(|(task, _)| old.told("folder", task)).collect();
        for place in ["folder", "neighbour", "folder", "neighbour"] {
            old.run(place, "task list").is(0);
        }
        for ((task, wanted), before) in steps.iter().zip(&before) {
            let told = old.told("folder", task);
            match old.origin {
                Origin::UpgradedInPlace => assert_eq!(told, *wanted, "{task}"),
                // A copy may leave the line to the workspace that it was copied from. It never writes it twice.
                Origin::Copied => assert!(told == *wanted || told == *before, "{task}: {told:?}"),
            }
        }
        assert_eq!(old.told("folder", "neighbour-release"), Vec::<String>::new(), "the neighbour tells it");
        for place in ["folder", "neighbour"] {
            old.run(place, "ledger verify").is(0);
        }
    });
}

//! Agents and a program unaware of tollgate write one file at the same time. However the program saves, each of its saves
//! is at the path or in recovery.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::crew::{Crew, Disk};

/// Long enough for thousands of saves, short enough for a test.
const TIME: Duration = Duration::from_secs(3);

/// Few enough to keep the file small, so that many commits fit into the time.
const SAVES: &str = "250";

/// The result of one or more rounds.
#[derive(Debug, Default)]
struct Tally {
    saves: u64,
    /// Saves in recovery instead of at the path.
    aside: usize,
    lost: Vec<String>,
    commits: u64,
    stale: u64,
}

/// One outsider against some writers, until the outsider has made all its saves.
fn round(disk: Disk, writer: &str, kind: &str, tally: &mut Tally) -> Option<()> {
    let crew = Crew::on(disk, "[guard]\ndurability = \"fast\"\n", &["file"])?;
    let names = ["one", "two"];
    let writers: Vec<_> = names
        .iter()
        .map(|name| {
            let mut arguments = vec!["--file", "file", "--name", name, "--until", "%done"];
            if writer == "agent" {
                arguments.extend(["--keep", "foreign"]);
            }
            crew.start(writer, &arguments)
        })
        .collect();
    let answer = crew.start_outsider(kind, "file", &["--saves", SAVES]).ends();
    tally.saves += answer["saves"].as_u64().unwrap();
    fs::write(crew.beside("done"), "").unwrap();
    for writer in writers {
        let answer = writer.ends();
        tally.commits += answer["written"].as_u64().unwrap();
        tally.stale += answer["stale"].as_u64().unwrap();
    }
    let text = fs::read_to_string(crew.root().join("file")).unwrap();
    let at_path: HashSet<&str> = text.lines().collect();
    let log = fs::read_to_string(crew.beside("log-file")).unwrap();
    let missing: Vec<&str> = log.lines().filter(|save| !at_path.contains(save)).collect();
    let kept = crew.kept("file");
    let kept: HashSet<&[u8]> = kept.iter().flat_map(|bytes| bytes.split(|&byte| byte == b'\n')).collect();
    let (aside, lost): (Vec<&str>, Vec<&str>) =
        missing.into_iter().partition(|save| kept.contains(save.as_bytes()));
    tally.aside += aside.len();
    tally.lost.extend(lost.into_iter().map(str::to_owned));
    if writer == "agent" {
        crew.workspace(|workspace| assert_eq!(workspace.ledger().verify().unwrap().problem, None));
    }
    Some(())
}

fn no_save_is_lost(kind: &str) {
    for disk in [Disk::Checkout, Disk::Memory] {
        let end = Instant::now() + TIME;
        let mut tally = Tally::default();
        while Instant::now() < end {
            if round(disk, "agent", kind, &mut tally).is_none() {
                break;
            }
        }
        println!("{kind} on {disk:?}: {tally:?}");
        assert_eq!(tally.lost, [""; 0], "{kind} on {disk:?}");
        assert!(tally.saves == 0 || tally.commits > 0, "{kind} on {disk:?}: {tally:?}");
    }
}

#[test]
fn saves_by_rename_are_not_lost() {
    no_save_is_lost("rename");
}

#[test]
fn saves_in_place_are_not_lost() {
    no_save_is_lost("in-place");
}

#[test]
fn blind_saves_by_rename_are_not_lost() {
    no_save_is_lost("blind-rename");
}

#[test]
fn blind_saves_in_place_are_not_lost() {
    no_save_is_lost("blind-in-place");
}

#[test]
fn slow_saves_are_not_lost() {
    no_save_is_lost("slow");
}

#[test]
fn appends_are_not_lost() {
    no_save_is_lost("append");
}

#[test]
fn stores_into_a_mapping_are_not_lost() {
    no_save_is_lost("mmap");
}

/// The control: the same outsiders against a writer that checks, writes a temporary file and renames it. If it lost nothing,
/// the trials above would prove nothing.
#[test]
fn a_naive_writer_does_lose_saves() {
    for kind in ["rename", "in-place", "append"] {
        let end = Instant::now() + Duration::from_secs(60);
        let mut tally = Tally::default();
        while tally.lost.is_empty() {
            assert!(Instant::now() < end, "{kind}: nothing was lost in a minute: {tally:?}");
            round(Disk::Checkout, "naive", kind, &mut tally);
        }
        println!("{kind}: {} of {} lost", tally.lost.len(), tally.saves);
    }
}

//! The next process completes or rolls back what a dead process left unfinished.
//!
//! These tests create the states by hand, with the names and bytes that a real process leaves. The trials kill real
//! processes at every step, to show that they leave no other states.

use std::fs;
use std::path::PathBuf;

use tollgate::workspace::STATE_VERSION;

use crate::world::{World, open, parse};

/// Changes `a` from "one" to "two". Returns the path of the replaced file in the stage.
fn written() -> (World, PathBuf) {
    let world = World::with("[guard]\ngrace = \"0ms\"");
    world.outsider_writes("a", "one");
    world.agent("blue").reads("a").writes("a", "two").done();
    let staged = fs::read_dir(world.root().join(".tollgate/stage")).unwrap().next().unwrap().unwrap().path();
    (world, staged)
}

/// Removes the last line of the ledger, as if its writer had died before it wrote the line.
fn forget_last_line(world: &World) {
    let path = world.root().join(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let end = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(&path, &text[..end]).unwrap();
}

fn reopen(world: &World) -> tollgate::gate::Gate {
    open(&world.root(), parse("[guard]\ngrace = \"0ms\""))
}

#[test]
fn a_write_killed_between_swap_and_ledger_line_gets_its_line() {
    let (world, staged) = written();
    forget_last_line(&world);
    let gate = reopen(&world);
    world.holds("a", "two");
    let line = world.lines_of("MUTATION").pop().unwrap();
    assert_eq!(line["payload"]["recovered"], true);
    assert_eq!(line["agent"], "blue");
    assert!(staged.exists());
    gate.workspace().sweep().unwrap();
    assert!(!staged.exists());
    assert_eq!(gate.workspace().recovery().unwrap().len(), 1);
    let _ = reopen(&world);
    assert_eq!(world.lines_of("MUTATION").len(), 1, "one line, no matter how often the workspace is opened");
    assert!(world.gate.workspace().ledger().verify().unwrap().problem.is_none());
}

#[test]
fn a_write_killed_before_the_swap_changes_nothing() {
    let (world, staged) = written();
    forget_last_line(&world);
    fs::write(&staged, "two").unwrap();
    fs::write(world.root().join("a"), "one").unwrap();
    let gate = reopen(&world);
    world.holds("a", "one");
    assert!(!staged.exists(), "it has the name of a settled file");
    gate.workspace().sweep().unwrap();
    assert_eq!(fs::read_dir(world.root().join(".tollgate/stage")).unwrap().count(), 0);
    assert_eq!(world.lines_of("MUTATION").len(), 0);
    world.agent("red").reads("a").writes("a", "three").done();
}

#[test]
fn a_foreign_save_that_was_swapped_out_is_put_back() {
    let (world, staged) = written();
    forget_last_line(&world);
    fs::write(&staged, "foreign").unwrap();
    let _ = reopen(&world);
    world.holds("a", "foreign");
    assert_eq!(world.lines_of("MUTATION").len(), 0);
}

/// A change without its ledger line that has displaced a foreign save. The next process has put the save back, and then a program
/// replaces it that has read the path before. Returns what is in recovery.
fn kept_of_a_save_that_was_put_back(config: &str, change: fn(&World)) -> Vec<Vec<u8>> {
    let world = World::with(config);
    world.outsider_writes("a", "one");
    change(&world);
    forget_last_line(&world);
    let staged = fs::read_dir(world.root().join(".tollgate/stage")).unwrap().next().unwrap().unwrap().path();
    fs::write(&staged, "foreign").unwrap();
    let gate = open(&world.root(), parse(config));
    world.holds("a", "foreign");
    world.outsider_writes("temporary", "what it had read, and more");
    fs::rename(world.root().join("temporary"), world.root().join("a")).unwrap();
    let kept = gate.workspace().recovery().unwrap();
    kept.iter().map(|kept| gate.workspace().recovered(&kept.id).unwrap().1).collect()
}

#[test]
fn a_foreign_save_that_was_put_back_is_kept_too() {
    let changes: [fn(&World); 2] = [
        |world| _ = world.agent("blue").reads("a").writes("a", "two").done(),
        |world| _ = world.agent("blue").reads("a").deletes("a").done(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let kept = kept_of_a_save_that_was_put_back("", change);
        assert!(kept.contains(&b"foreign".to_vec()), "change {at}: {kept:?}");
        let kept = kept_of_a_save_that_was_put_back("[history]\nmax_size = \"6B\"", change);
        assert!(!kept.contains(&b"foreign".to_vec()), "change {at}: recovery has no room for it: {kept:?}");
    }
}

#[test]
fn a_foreign_save_is_kept_if_another_one_is_at_the_path() {
    let (world, staged) = written();
    forget_last_line(&world);
    fs::write(&staged, "foreign").unwrap();
    fs::write(world.root().join("a"), "newer").unwrap();
    let gate = reopen(&world);
    world.holds("a", "newer");
    assert_eq!(world.lines_of("LATE_EXTERNAL_WRITE").len(), 1);
    let kept = gate.workspace().recovery().unwrap();
    assert_eq!(gate.workspace().recovered(&kept[0].id).unwrap().1, b"foreign");
}

#[test]
fn an_acknowledged_write_is_never_undone() {
    let (world, staged) = written();
    fs::write(&staged, "foreign").unwrap();
    let gate = reopen(&world);
    world.holds("a", "two");
    gate.workspace().sweep().unwrap();
    world.holds("a", "two");
    assert_eq!(world.lines_of("LATE_EXTERNAL_WRITE").len(), 1);
}

#[test]
fn a_write_killed_while_staging_leaves_nothing() {
    let (world, staged) = written();
    let unfinished = staged.with_file_name("tmp,00,0123456789abcd01234567");
    fs::write(&unfinished, "half of it").unwrap();
    let _ = reopen(&world);
    assert!(!unfinished.exists());
    world.holds("a", "two");
}

#[test]
fn a_later_format_is_refused() {
    let (world, _) = written();
    fs::write(world.root().join(".tollgate/version"), format!("{}\n", STATE_VERSION + 1)).unwrap();
    let fault = tollgate::workspace::Workspace::open(world.root(), Default::default()).err().unwrap();
    assert_eq!(fault.code(), "NEWER_FORMAT");
    fs::write(world.root().join(".tollgate/version"), "what").unwrap();
    let fault = tollgate::workspace::Workspace::open(world.root(), Default::default()).err().unwrap();
    assert_eq!(fault.code(), "STATE_DAMAGED");
}

#[test]
fn unknown_files_in_the_state_are_ignored() {
    let (world, _) = written();
    for path in ["stage/README", "stage/1,zzz", "journal/notes.txt", "history/late/x"] {
        fs::write(world.root().join(".tollgate").join(path), "x").unwrap();
    }
    let gate = reopen(&world);
    gate.workspace().sweep().unwrap();
    gate.workspace().recovery().unwrap();
    world.agent("red").reads("a").writes("a", "three").done();
}

#[test]
fn a_damaged_journal_is_a_fault_that_names_it() {
    let (world, _) = written();
    fs::write(world.root().join(".tollgate/journal/x.json"), "{").unwrap();
    let fault = tollgate::workspace::Workspace::open(world.root(), Default::default()).err().unwrap();
    assert_eq!(fault.code(), "STATE_DAMAGED");
    assert!(fault.to_string().contains("x.json"));
}

#[test]
fn a_journal_that_a_power_failure_kept_from_the_disk_is_deleted() {
    let (world, _) = written();
    let journal = world.root().join(".tollgate/journal/0123456789abcdef.unflushed");
    for left in [&b""[..], &[0; 300], br#"{"version":1,"agent":"blue","records":[{"id"#] {
        fs::write(&journal, left).unwrap();
        reopen(&world);
        assert!(!journal.exists(), "{left:?}");
    }
    world.agent("red").reads("a").writes("a", "three").done();
}

/// A running process does not open the workspace again. The mark in the lock file tells it about the death.
#[test]
fn the_next_process_to_lock_a_path_heals_what_a_dead_one_left() {
    let (world, staged) = written();
    forget_last_line(&world);
    let red = world.agent("red");
    red.reads("a");
    fs::write(&staged, "foreign").unwrap();
    let stripe = &tollgate::digest::Digest::of(b"a").to_string()[..2];
    fs::write(world.root().join(".tollgate/locks").join(stripe), [7; 8]).unwrap();
    red.writes("a", "three").refused_stale();
    world.holds("a", "foreign");
    red.reads("a").writes("a", "three").done();
    let mark = fs::read(world.root().join(".tollgate/locks").join(stripe)).unwrap();
    assert_eq!(mark, [0; 8], "the mark is cleared after the write");
}

#[test]
fn a_damaged_ledger_line_neither_stops_work_nor_rolls_anything_back() {
    let (world, staged) = written();
    fs::write(&staged, "foreign").unwrap();
    let path = world.root().join(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let damaged = text.replacen("\"action_type\":\"MUTATION\"", "\"action_type\":MUTATION", 1);
    assert_ne!(damaged, text);
    let last = text.lines().last().unwrap().replace("MUTATION", "OTHER").replace("\"id\"", "\"not_id\"");
    fs::write(&path, damaged + &last + "\n").unwrap();
    let gate = reopen(&world);
    world.holds("a", "two");
    assert!(staged.exists(), "left alone until the ledger is repaired");
    assert!(gate.workspace().ledger().verify().unwrap().problem.is_some());
    world.agent("red").reads("a").writes("a", "three").done();
}

/// A power failure during a multi-file commit: the journal, some of the swaps, and the first of two lines survive.
#[test]
fn a_commit_whose_last_line_was_lost_is_rolled_back_and_the_ledger_says_so() {
    use tollgate::guard::{Action, Change};
    let world = World::with("[guard]\ngrace = \"0ms\"");
    world.outsider_writes("a", "a1");
    world.outsider_writes("b", "b1");
    let journals = world.root().join(".tollgate/journal");
    let agent = world.agent("blue");
    agent.reads("a").reads("b");
    let stage = || {
        fs::read_dir(world.root().join(".tollgate/stage")).unwrap().map(|entry| entry.unwrap().file_name())
    };
    let write = |path: &str, text: &str| Change::new(path, Action::Write(text.into()));
    agent.applies(vec![write("a", "a2"), write("b", "b2")]).done();
    let ids: Vec<_> = world
        .lines_of("MUTATION")
        .iter()
        .map(|line| line["payload"]["id"].as_str().unwrap().to_owned())
        .collect();
    let record = |id: &str, path: &str| {
        let staged = stage().find(|name| name.to_str().unwrap().contains(id)).unwrap();
        let hash = |text: &str| tollgate::digest::Digest::of(text.as_bytes()).to_string();
        serde_json::json!({
            "id": id, "path": path, "to": null, "base": hash(&format!("{path}1")), "new": hash(&format!("{path}2")),
            "staged": tollgate::path::escape(std::path::Path::new(&staged)), "made": [],
        })
    };
    let records = [record(&ids[0], "a"), record(&ids[1], "b")];
    let journal = serde_json::json!({"version": 1, "agent": "blue", "turn": null, "records": records});
    fs::write(journals.join("0.json"), journal.to_string()).unwrap();
    forget_last_line(&world);
    // A copy heals itself, and not the workspace that it is a copy of.
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(world.root()).arg(&copy).status().unwrap();
    assert!(copied.success());
    drop(open(&copy, parse("[guard]\ngrace = \"0ms\"")));
    assert_eq!(fs::read_to_string(copy.join("a")).unwrap(), "a1");
    world.holds("a", "a2");
    let _ = reopen(&world);
    world.holds("a", "a1");
    world.holds("b", "b1");
    let last = world.ledger().pop().unwrap();
    assert_eq!(
        (&last["payload"]["id"], &last["result"]["status"]),
        (&ids[0].clone().into(), &"UNDONE".into())
    );
    assert_eq!(fs::read_dir(journals).unwrap().count(), 0);
    world.agent("red").reads("a").writes("a", "a3").done();
}

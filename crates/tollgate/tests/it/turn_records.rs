//! The record of a turn: what its agent had read, kept once at its end and for a limited time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tollgate::history::turn::{KeptTurn, KnownReads, ReadsOfTurns, TurnAbout, TurnRecord, UnknownReads};
use tollgate::name::TurnId;
use tollgate::shared_turn::{Leaves, SharedTurns};
use tollgate::turn::{Asked, Extent, TurnState};
use tollgate::{Digest, Fault, Outcome, Part};

use crate::world::World;

fn record(world: &World, turn: &TurnId) -> KeptTurn {
    TurnRecord::load(world.gate.workspace(), turn).unwrap()
}

fn kept(world: &World, turn: &TurnId) -> TurnRecord {
    match record(world, turn) {
        KeptTurn::Kept(record) => *record,
        other => panic!("{other:?}"),
    }
}

/// The reads of a record: file, text, and whether it was the whole file.
fn reads(record: &TurnRecord) -> Vec<(String, Digest, bool)> {
    let read = |read: &tollgate::turn::TurnRead| {
        (read.path.display().to_string(), read.hash, read.shown == Extent::Whole)
    };
    record.reads.iter().map(read).collect()
}

fn read(path: &str, text: &str, whole: bool) -> (String, Digest, bool) {
    (path.to_owned(), Digest::of(text.as_bytes()), whole)
}

fn file(world: &World, turn: &TurnId) -> PathBuf {
    world.root().join(".tollgate/history/turns").join(turn.as_str())
}

#[test]
fn a_record_has_each_state_that_the_agent_was_shown() {
    let world = World::new();
    world.outsider_writes("a", "one\ntwo\n");
    world.outsider_writes("src/b", "b\n");
    let agent = world.agent("blue");
    agent.reads_line("a", 1).reads_line("a", 2).reads("a").reads("a").reads("src/b");
    agent.writes("a", "own\n").done();
    // It has made these bytes itself.
    agent.reads("a");
    world.outsider_writes("a", "theirs\n");
    agent.reads("a");
    let id = agent.turn.id().clone();
    assert_eq!(record(&world, &id), KeptTurn::NeverKept, "the turn has not ended");
    let turn = agent.turn;
    world.gate.end_turn(turn).unwrap();
    let record = kept(&world, &id);
    let expected = [
        read("a", "one\ntwo\n", false),
        read("a", "one\ntwo\n", true),
        read("src/b", "b\n", true),
        read("a", "theirs\n", true),
    ];
    assert_eq!(reads(&record), expected);
    assert!(record.about.start.began <= record.reads[0].time && record.reads[3].time <= record.about.ended);
    assert_eq!(TurnRecord::list(world.gate.workspace()).unwrap(), [record.about]);
}

#[test]
fn a_turn_that_read_and_changed_nothing_leaves_no_record() {
    let world = World::new();
    let nothing = world.agent("blue").turn;
    let writer = world.agent("blue");
    writer.writes("a", "new").done();
    let ids = [nothing.id().clone(), writer.turn.id().clone()];
    world.gate.end_turn(nothing).unwrap();
    world.gate.end_turn(writer.turn).unwrap();
    assert_eq!(record(&world, &ids[0]), KeptTurn::NeverKept);
    assert_eq!(kept(&world, &ids[1]).reads, []);
}

#[test]
fn a_record_is_kept_as_long_as_the_settings_say_and_its_end_is_said() {
    for (settings, is_kept) in [("", true), ("max_age = \"0ms\"", false), ("max_size = \"4B\"", false)] {
        let world = World::with(&format!("[history]\n{settings}"));
        world.outsider_writes("a", "a");
        let agent = world.agent("blue");
        agent.reads("a");
        let id = agent.turn.id().clone();
        world.gate.end_turn(agent.turn).unwrap();
        let _ = fs::remove_file(world.root().join(".tollgate/history/pruned"));
        world.gate.workspace().sweep().unwrap();
        match record(&world, &id) {
            KeptTurn::Kept(_) => assert!(is_kept, "{settings}"),
            other => assert_eq!((other, is_kept), (KeptTurn::NoLongerKept, false), "{settings}"),
        }
    }
}

#[test]
fn the_text_of_a_prompt_is_kept_only_if_the_settings_say_so() {
    for (settings, text) in [("", None), ("[history]\nprompts = true", Some("fix it"))] {
        let world = World::with(settings);
        world.outsider_writes("a", "a");
        let agent = world.agent("blue");
        let asked = Asked { host: Some("codex".into()), prompt: Some("fix it".into()), ..Asked::default() };
        world.gate.record_asked_turn(&agent.turn, asked).unwrap();
        agent.reads("a");
        let id = agent.turn.id().clone();
        world.gate.end_turn(agent.turn).unwrap();
        let Asked { host, prompt, prompt_sha256, .. } = kept(&world, &id).about.start.asked;
        assert_eq!((host.as_deref(), prompt.as_deref()), (Some("codex"), text));
        assert_eq!(prompt_sha256, Some(Digest::of(b"fix it")));
        let ledger = fs::read_to_string(world.root().join(".tollgate/ledger.jsonl")).unwrap();
        assert!(!ledger.contains("fix it"), "{ledger}");
    }
}

#[test]
fn a_turn_in_a_folder_leaves_the_same_record_also_if_nobody_ends_it() {
    let world = World::new();
    world.outsider_writes("a", "a\nb\n");
    let turns = SharedTurns::new(world.outside().join("turns")).unwrap();
    let workspace = world.gate.workspace();
    let begin = || {
        let turn =
            turns.begin(TurnId::new().unwrap(), "blue".parse().unwrap(), workspace.now(), Leaves::Nothing);
        let turn = turn.unwrap();
        world.gate.record_turn_start(&turn).unwrap();
        for part in [Part::Lines { from: 1, to: Some(1) }, Part::Whole, Part::Whole] {
            assert!(matches!(world.gate.read(&turn, "a", part).unwrap(), Outcome::Done(_)));
        }
        turn
    };
    let [ended, left] = [begin(), begin()];
    let ids = [ended.id().clone(), left.id().clone()];
    world.gate.record_turn_end(&ended).unwrap();
    turns.end(ended).unwrap();
    let expected = [read("a", "a\nb\n", false), read("a", "a\nb\n", true)];
    assert_eq!(reads(&kept(&world, &ids[0])), expected);
    workspace.record_forgotten_turns(&turns).unwrap();
    assert_eq!(record(&world, &ids[1]), KeptTurn::NeverKept, "it may still be used");
    let folder = world.outside().join("turns/turns").join(ids[1].as_str());
    let old = std::time::SystemTime::now() - Duration::from_secs(25 * 3600);
    let set_old = |path: PathBuf| fs::File::open(path).unwrap().set_modified(old).unwrap();
    for name in ["files", "text"].map(|name| folder.join(name)) {
        fs::read_dir(&name).unwrap().for_each(|inside| set_old(inside.unwrap().path()));
    }
    fs::read_dir(&folder).unwrap().for_each(|inside| set_old(inside.unwrap().path()));
    set_old(folder.clone());
    workspace.record_forgotten_turns(&turns).unwrap();
    assert_eq!(reads(&kept(&world, &ids[1])), expected);
    assert!(workspace.now().duration_since(kept(&world, &ids[1]).about.ended).as_hours() >= 24);
    begin();
    assert!(!folder.exists());
}

#[test]
fn a_turn_that_its_process_has_left_gets_its_record_from_the_next_one() {
    let world = World::new();
    world.outsider_writes("a", "one\ntwo\n");
    let agent = world.agent("blue");
    let asked = Asked { model: Some("m".into()), ..Asked::default() };
    world.gate.record_asked_turn(&agent.turn, asked).unwrap();
    agent.reads_line("a", 1).reads("a").reads("a");
    agent.writes("a", "own\n").done();
    agent.reads("a");
    let id = agent.turn.id().clone();
    let expected = [read("a", "one\ntwo\n", false), read("a", "one\ntwo\n", true)];
    // The turn goes on: others see what it has read, but nobody ends it.
    let other = world.agent("red").turn;
    assert_eq!(record(&world, &id), KeptTurn::NeverKept);
    let none = |_: &TurnId| None;
    let known = ReadsOfTurns::new(world.gate.workspace(), &none).of([(Some(&id), None)]).unwrap();
    assert_eq!((known.reads.len(), known.unknown), (1, None), "the whole file counts");
    // Its process is gone.
    drop(agent);
    let last = world.agent("red").turn;
    let found = kept(&world, &id);
    assert_eq!(reads(&found), expected);
    assert_eq!(found.about.start.asked.model.as_deref(), Some("m"));
    assert!(found.about.ended <= world.gate.workspace().now());
    assert!(!world.root().join(".tollgate/open").join(id.as_str()).exists());
    let own_record = fs::read(file(&world, &id)).unwrap();
    world.gate.end_turn(other).unwrap();
    world.gate.end_turn(last).unwrap();
    drop(world.agent("red"));
    assert_eq!(fs::read(file(&world, &id)).unwrap(), own_record, "it is written once");
}

#[test]
fn a_later_format_is_refused_and_a_damaged_record_counts_as_deleted() {
    let world = World::new();
    world.outsider_writes("a", "a");
    let agent = world.agent("blue");
    agent.reads("a");
    let id = agent.turn.id().clone();
    world.gate.end_turn(agent.turn).unwrap();
    let (path, whole) = (file(&world, &id), fs::read_to_string(file(&world, &id)).unwrap());
    for cut in [0, 5, whole.len() - 5] {
        fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(record(&world, &id), KeptTurn::NoLongerKept, "{cut}");
    }
    fs::write(&path, whole.replacen("\"version\":1", "\"version\":2", 1)).unwrap();
    let later = [
        TurnRecord::load(world.gate.workspace(), &id).map(drop),
        TurnRecord::list(world.gate.workspace()).map(drop),
    ];
    for loaded in later {
        assert!(matches!(loaded, Err(Fault::NewerFormat { found: 2, .. })), "{loaded:?}");
    }
}

#[test]
fn of_several_turns_what_was_read_before_a_moment_is_known_or_said_to_be_unknown() {
    let world = World::new();
    world.outsider_writes("a", "one\ntwo\n");
    world.outsider_writes("b", "b");
    let agent = world.agent("blue");
    agent.reads_line("a", 1);
    let between = world.gate.workspace().now();
    agent.reads("a").reads("b");
    let id = agent.turn.id().clone();
    let open_reads = agent.turn.reads().unwrap();
    let open = |turn: &TurnId| (*turn == id).then(|| open_reads.clone());
    let none = |_: &TurnId| None;
    let workspace = world.gate.workspace();
    let of = |turns: &[(Option<&TurnId>, Option<_>)]| {
        ReadsOfTurns::new(workspace, &open).of(turns.iter().copied()).unwrap()
    };
    let paths = |known: &KnownReads| -> Vec<(String, bool)> {
        let read =
            |read: &tollgate::turn::TurnRead| (read.path.display().to_string(), read.shown == Extent::Whole);
        known.reads.iter().map(read).collect()
    };
    let early = of(&[(Some(&id), Some(between))]);
    assert_eq!((paths(&early), early.unknown), (vec![("a".to_owned(), false)], None));
    // The whole file counts, and each state once.
    let all = of(&[(Some(&id), None), (Some(&id), None)]);
    assert_eq!((paths(&all), all.unknown), (vec![("a".to_owned(), true), ("b".to_owned(), true)], None));
    let unknown = of(&[(Some(&id), None), (None, None)]);
    assert_eq!((unknown.reads.len(), unknown.unknown), (2, Some(UnknownReads::NoRecord)));
    let closed = ReadsOfTurns::new(workspace, &none).of([(Some(&id), None)]).unwrap();
    assert_eq!((closed.reads.len(), closed.unknown), (2, None), "from the notes of the turn");
    let never = TurnId::new().unwrap();
    let never = ReadsOfTurns::new(workspace, &none).of([(Some(&never), None)]).unwrap();
    assert_eq!((never.reads.len(), never.unknown), (0, Some(UnknownReads::NoRecord)));
}

#[test]
fn a_record_says_where_head_was() {
    let world = World::new();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        let name = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
        assert!(command.current_dir(world.root()).args(name).args(args).output().unwrap().status.success());
    };
    git(&["init"]);
    world.outsider_writes("a", "a");
    let agent = world.agent("blue");
    agent.reads("a");
    git(&["add", "a"]);
    git(&["commit", "-m", "a"]);
    git(&["switch", "-c", "next"]);
    let id = agent.turn.id().clone();
    world.gate.end_turn(agent.turn).unwrap();
    let TurnAbout { start, head_after, .. } = kept(&world, &id).about;
    let before = start.head_before.unwrap();
    assert_eq!((before.branch.as_deref(), before.commit), (Some("refs/heads/main"), None));
    let after = head_after.unwrap();
    assert_eq!(after.branch.as_deref(), Some("refs/heads/next"));
    assert_eq!(after.commit.map(|commit| commit.len()), Some(40));
}

#[test]
fn a_mutated_record_is_read_without_a_panic() {
    let world = World::new();
    for file in 0..100 {
        world.outsider_writes(&format!("src/f{file}"), "x");
    }
    let agent = world.agent("blue");
    for file in 0..100 {
        agent.reads(&format!("src/f{file}"));
    }
    let id = agent.turn.id().clone();
    world.gate.end_turn(agent.turn).unwrap();
    let compressed = fs::read(file(&world, &id)).unwrap();
    let about = json!({"version": 1, "compressed": false, "turn": id, "agent": "a", "began": "2026-11-19T00:00:00Z",
        "ended": "2026-11-19T00:00:00Z", "reads": 1});
    let line = format!("{}W1763500000000000 a\n", Digest::of(b"a"));
    let plain = format!("{about}\n{line}").into_bytes();
    tollgate_fuzz::fuzz("turn_record", &[compressed, plain], |bytes| {
        fs::write(file(&world, &id), bytes).unwrap();
        let workspace = world.gate.workspace();
        let _ = (TurnRecord::load(workspace, &id), TurnRecord::list(workspace));
    });
}

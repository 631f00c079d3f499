//! What a refused write wanted is kept, and can be merged with what is on disk.

use tollgate::content::Content;
use tollgate::edit::Edit;
use tollgate::guard::{Action, Change, Expected, Outcome};
use tollgate::merge::{Merge, NoMerge};
use tollgate::refusal::{Reason, Refused};
use tollgate_guard::view::ViewChanges;

use crate::world::{Agent, World};

const READ: &str = "one\ntwo\nthree\n";
const WANTED: &str = "ONE\ntwo\nthree\n";
const DISK: &str = "one\ntwo\nTHREE\n";
const BOTH: &str = "ONE\ntwo\nTHREE\n";

/// An agent that has read a file which an outsider changed since then.
fn behind(world: &World) -> Agent<'_> {
    world.outsider_writes("a", READ);
    let agent = world.agent("blue");
    agent.reads("a");
    world.outsider_writes("a", DISK);
    agent
}

fn merge(agent: &Agent<'_>) -> Result<Merge, NoMerge> {
    agent.world.gate.merge(&agent.turn, "a", Some(&"blue".parse().unwrap())).unwrap()
}

fn mergeable(refused: &Refused) -> bool {
    matches!(&refused.refusals()[0].reason, Reason::Stale(stale) if stale.mergeable)
}

#[test]
fn a_refused_write_is_merged_and_written_with_one_call() {
    let world = World::new();
    let agent = behind(&world);
    assert!(mergeable(&agent.writes("a", WANTED).refused_stale()));
    world.holds("a", DISK);
    let merged = merge(&agent).unwrap();
    assert_eq!((merged.clean, merged.content.as_str(), merged.agent.as_str()), (true, BOTH, "blue"));
    assert!(merged.diff.contains("-one\n+ONE\n"), "{}", merged.diff);
    assert!(matches!(world.gate.write_merge(&agent.turn, merged).unwrap(), Outcome::Done(_)));
    world.holds("a", BOTH);
    let lines = world.lines_of("MUTATION");
    assert_eq!(lines.last().unwrap()["payload"]["tool_name"], "merge_file");
    assert_eq!(merge(&agent), Err(NoMerge::NothingRefused), "it is written");
    agent.writes("a", "next").done();
}

#[test]
fn edits_and_changes_of_several_files_are_kept_too() {
    let world = World::new();
    let agent = behind(&world);
    assert!(mergeable(&agent.edits("a", "one", "ONE").refused_stale()));
    assert_eq!(merge(&agent).unwrap().content, BOTH);
    let edits = vec![Edit::once("two", "TWO")];
    let changes =
        vec![Change::new("b", Action::Write(b"new".to_vec())), Change::new("a", Action::Edit(edits))];
    let agent = behind(&world);
    assert!(!mergeable(&agent.applies(changes).refused_stale()), "neighbouring lines");
    assert!(!merge(&agent).unwrap().clean);
    let changes = vec![
        Change::new("b", Action::Write(b"new".to_vec())),
        Change::new("a", Action::Write(WANTED.into())),
    ];
    agent.writes("a", "other\n").done();
    let agent = behind(&world);
    agent.applies(changes).refused_stale();
    assert_eq!(merge(&agent).unwrap().content, BOTH);
}

#[test]
fn what_a_refused_command_wanted_is_kept_too() {
    // Alone, and beside a file that no command may change, which is found before any file is staged.
    for beside in [None, Some(".tollgate/config.toml")] {
        let world = World::new();
        let agent = behind(&world);
        let in_layer = world.root().with_file_name("in-the-layer");
        std::fs::write(&in_layer, WANTED).unwrap();
        let digest = tollgate::Digest::of(WANTED.as_bytes());
        let change = |path: &str| {
            Change::new(path, Action::CopyOf { file: in_layer.clone(), digest, in_place: false })
        };
        let files = ["a"].into_iter().chain(beside).map(change).collect();
        let changes = ViewChanges { level: "transaction", files, ..ViewChanges::default() };
        let refused = world.gate.commit_view(&agent.turn, changes).unwrap().into_result().unwrap_err();
        assert!(
            refused
                .refusals()
                .iter()
                .any(|refusal| { matches!(&refusal.reason, Reason::Stale(stale) if stale.mergeable) })
        );
        world.holds("a", DISK);
        assert_eq!(merge(&agent).unwrap().content, BOTH);
    }
}

#[test]
fn a_merge_is_written_over_exactly_the_bytes_that_were_merged() {
    let world = World::new();
    let agent = behind(&world);
    agent.writes("a", WANTED).refused_stale();
    let merged = merge(&agent).unwrap();
    world.outsider_writes("a", "one\ntwo\n3\n");
    // Even if the turn knows the newer bytes.
    agent.reads("a");
    assert!(matches!(world.gate.write_merge(&agent.turn, merged).unwrap(), Outcome::Refused(_)));
    world.holds("a", "one\ntwo\n3\n");
    let merged = merge(&agent).unwrap();
    assert_eq!(merged.content, "ONE\ntwo\n3\n", "the refused write is still there");
    assert!(matches!(world.gate.write_merge(&agent.turn, merged).unwrap(), Outcome::Done(_)));
}

#[test]
fn a_merge_with_conflicts_shows_all_that_is_on_disk_so_the_agent_may_then_write() {
    let world = World::new();
    let agent = behind(&world);
    assert!(!mergeable(&agent.writes("a", "one\ntwo\n3\n").refused_stale()));
    let merged = merge(&agent).unwrap();
    assert!(!merged.clean && merged.content.contains("THREE") && merged.content.contains("<<<<<<<"));
    agent.writes("a", "one\ntwo\n3 THREE\n").done();
}

#[test]
fn each_reason_for_no_merge_is_told() {
    let world = World::new();
    let agent = behind(&world);
    assert_eq!(merge(&agent), Err(NoMerge::NothingRefused));
    agent.writes("a", WANTED).refused_stale();
    let red = "red".parse().unwrap();
    let of_red = world.gate.merge(&agent.turn, "a", Some(&red)).unwrap();
    assert_eq!(of_red, Err(NoMerge::NothingRefused), "another agent");
    assert!(world.gate.merge(&agent.turn, "a", None).unwrap().is_ok(), "of any agent");
    world.outsider_writes("a", "\0");
    assert_eq!(merge(&agent), Err(NoMerge::NotText));
    world.outsider_writes("a", vec![b'x'; 300 << 10]);
    assert_eq!(merge(&agent), Err(NoMerge::TooLarge));
    world.outsider_removes("a");
    assert_eq!(merge(&agent), Err(NoMerge::NoFile));

    let agent = world.agent("blue");
    agent.misses("a");
    world.outsider_writes("a", DISK);
    assert!(!mergeable(&agent.writes("a", WANTED).refused_stale()));
    assert_eq!(merge(&agent), Err(NoMerge::NoBase), "there was no file to read");
    // The hash of a text that nobody has kept.
    let expected = Expected::Hash(tollgate::Digest::of(b"never read"));
    agent.reads("a").writes_expecting("a", WANTED, expected).refused_stale();
    assert_eq!(merge(&agent), Err(NoMerge::NoBase));
}

#[test]
fn refused_writes_are_limited_by_age_and_size() {
    let settings = |limits: &str| format!("[history]\n{limits}\n");
    for (limits, left) in [
        ("", Ok(BOTH.to_owned())),
        ("max_age = \"0s\"", Err(NoMerge::NothingRefused)),
        ("max_size = \"0B\"", Err(NoMerge::NoLongerKept)),
    ] {
        let world = World::with(&settings(limits));
        let agent = behind(&world);
        agent.writes("a", WANTED).refused_stale();
        world.gate.workspace().sweep().unwrap();
        assert_eq!(merge(&agent).map(|merge| merge.content), left, "{limits}");
    }
    let world = World::with(&settings("max_size = \"40B\""));
    let agent = behind(&world);
    let texts = ["ONE\ntwo\nthree\n", "1\ntwo\nthree\n", "I\ntwo\nthree\n", "i\ntwo\nthree\n"];
    for text in texts {
        agent.writes("a", text).refused_stale();
    }
    world.gate.workspace().sweep().unwrap();
    let content = |text: &str| world.gate.workspace().content(tollgate::Digest::of(text.as_bytes())).unwrap();
    let kept = texts.map(|text| matches!(content(text), Content::Kept(_)));
    assert_eq!(
        kept,
        [false, false, true, true],
        "40 bytes have room for two and what was read, which is kept once"
    );
    assert_eq!(content(texts[0]), Content::NoLongerKept);
    assert_eq!(content("never"), Content::NeverKept);
    assert!(merge(&agent).unwrap().content.starts_with("i\n"), "the newest");
}

//! Bytes that guarded writes replaced can be listed, shown and restored.

use tollgate::digest::Digest;
use tollgate::guard::Outcome;
use tollgate::recovery::RecoveryKind;

use crate::world::{World, open, parse};

/// The late-write check is due at once.
const NOW: &str = "[guard]\ngrace = \"0ms\"";

#[test]
fn replaced_and_deleted_bytes_are_kept_before_and_after_the_late_write_check() {
    let world = World::with(NOW);
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done().deletes("a").done();
    for swept in [false, true] {
        if swept {
            assert_eq!(world.gate.workspace().sweep().unwrap().kept, 2);
        }
        let kept = world.gate.workspace().recovery().unwrap();
        let hashes: Vec<_> = kept.iter().map(|kept| kept.sha256.unwrap()).collect();
        assert_eq!(hashes, [Digest::of(b"two"), Digest::of(b"one")], "newest first");
        assert!(
            kept.iter()
                .all(|kept| kept.path.as_path() == world.root().join("a")
                    && kept.kind == RecoveryKind::Replaced)
        );
        assert!(kept.iter().all(|kept| kept.replaced_by.as_str() == "blue" && kept.size == 3));
        assert_eq!(world.gate.workspace().recovered(&kept[1].id).unwrap().1, b"one");
    }
    assert_eq!(world.gate.workspace().sweep().unwrap(), Default::default(), "nothing is left to do");
    assert!(world.gate.workspace().recovered("0000").is_err());
}

#[test]
fn restoring_goes_through_the_gate() {
    let world = World::with(NOW);
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done();
    let id = world.gate.workspace().recovery().unwrap()[0].id.clone();
    let person = world.agent("person");
    assert!(matches!(world.gate.restore(&person.turn, &id).unwrap(), Outcome::Done(_)));
    world.holds("a", "one");
    let kept = world.gate.workspace().recovery().unwrap();
    assert_eq!(kept.len(), 2, "the replaced bytes are kept too");
    assert_eq!(world.lines_of("MUTATION").last().unwrap()["payload"]["tool_name"], "restore");
    agent.writes("a", "three").refused_stale();
    world.outsider_removes("a");
    assert!(matches!(world.gate.restore(&person.turn, &id).unwrap(), Outcome::Done(_)));
    world.holds("a", "one");
}

#[test]
fn a_late_foreign_write_is_found_kept_and_reported() {
    use std::io::Write;
    let world = World::with(NOW);
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done();
    // An outsider that resolved the path before the swap writes into the replaced file.
    let staged =
        std::fs::read_dir(world.root().join(".tollgate/stage")).unwrap().next().unwrap().unwrap().path();
    std::fs::File::options().append(true).open(staged).unwrap().write_all(b" and more").unwrap();
    let swept = world.gate.workspace().sweep().unwrap();
    assert_eq!((swept.late, swept.kept), (1, 0));
    world.holds("a", "two");
    let kept = world.gate.workspace().recovery().unwrap();
    assert_eq!(kept[0].kind, RecoveryKind::Late);
    let (kept, bytes) = world.gate.workspace().recovered(&kept[0].id).unwrap();
    assert_eq!(bytes, b"one and more");
    assert_eq!(kept.sha256, Some(Digest::of(b"one and more")));
    let lines = world.lines_of("LATE_EXTERNAL_WRITE");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["payload"]["target_file"], "a");
    assert_eq!(lines[0]["payload"]["found_hash"], format!("sha256:{}", Digest::of(b"one and more")));
    assert_eq!(world.gate.workspace().sweep().unwrap().late, 0, "reported once");
}

#[test]
fn the_late_write_check_waits_until_the_replaced_file_is_closed() {
    use std::io::Write;
    let world = World::with(NOW);
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done();
    let staged =
        std::fs::read_dir(world.root().join(".tollgate/stage")).unwrap().next().unwrap().unwrap().path();
    let world = {
        // With a grace time of zero, the check would not wait at all.
        let settings = parse("[guard]\ngrace = \"1h\"");
        let late = jiff::Timestamp::now() + std::time::Duration::from_secs(2 * 3600);
        let options = tollgate::workspace::Options {
            settings: Some(settings),
            clock: std::sync::Arc::new(move || late),
            ..Default::default()
        };
        (world.root(), tollgate::workspace::Workspace::open(world.root(), options).unwrap(), world)
    };
    let mut writer = std::fs::File::options().append(true).open(staged).unwrap();
    assert_eq!(world.1.sweep().unwrap(), Default::default());
    writer.write_all(b" late").unwrap();
    drop(writer);
    assert_eq!(world.1.sweep().unwrap().late, 1);
}

#[test]
fn recovery_is_limited_by_age_and_size() {
    let world = World::with("[guard]\ngrace = \"0ms\"\n[history]\nmax_age = \"0ms\"");
    let agent = world.agent("blue");
    agent.creates("a", "0").done();
    let workspace = world.gate.workspace();
    std::thread::scope(|scope| {
        scope.spawn(|| agent_writes(&world, 5)).join().unwrap();
    });
    assert_eq!(workspace.sweep().unwrap().kept, 5);
    let later = parse("[guard]\ngrace = \"0ms\"\n[history]\nmax_age = \"0ms\"");
    let gate = open(&world.root(), later);
    while gate.workspace().sweep().unwrap().pruned < 5 && !gate.workspace().recovery().unwrap().is_empty() {}
    assert!(gate.workspace().recovery().unwrap().is_empty());
    let world = World::with("[guard]\ngrace = \"0ms\"\n[history]\nmax_size = \"20\"");
    world.outsider_writes("a", "0");
    agent_writes(&world, 5);
    world.gate.workspace().sweep().unwrap();
    let kept = world.gate.workspace().recovery().unwrap();
    assert_eq!(kept.iter().map(|kept| kept.size).collect::<Vec<_>>(), [10, 10], "the newest are kept");
}

fn agent_writes(world: &World, count: usize) {
    let agent = world.agent("blue");
    for index in 0..count {
        agent.reads("a").writes("a", format!("{index:010}")).done();
    }
}

#[test]
fn a_file_whose_path_is_too_long_for_a_name_is_kept_too() {
    let world = World::with(NOW);
    let path = format!("{0}/{0}/{0}", "x".repeat(200));
    world.outsider_writes(&path, "one");
    let agent = world.agent("blue");
    agent.reads(&path).writes(&path, "two").done();
    world.holds(&path, "two");
    world.gate.workspace().sweep().unwrap();
    let kept = world.gate.workspace().recovery().unwrap();
    assert_eq!(kept[0].path.as_path(), world.root().join(&path));
    assert_eq!(world.gate.workspace().recovered(&kept[0].id).unwrap().1, b"one");
}

#[test]
fn the_details_of_a_refused_write_are_kept() {
    let world = World::new();
    world.outsider_writes("a", "one\n");
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    blue.reads("a");
    red.reads("a").writes("a", "two\n").done();
    blue.writes("a", "three\n").refused_stale();
    let seq = world.lines_of("MUTATION_CONFLICT").remove(0)["seq"].as_u64().unwrap();
    let kept = world.gate.workspace().conflict(seq).unwrap().unwrap();
    assert_eq!(kept.changed_by.unwrap().agent.as_str(), "red");
    assert!(kept.diff.unwrap().contains("-one\n+two\n"));
    assert_eq!(world.gate.workspace().conflict(seq + 1).unwrap(), None);
}

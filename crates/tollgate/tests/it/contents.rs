//! The store of contents: what is kept is kept once, compressed where that pays, for a limited time, and nothing in it is invented.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;

use tollgate::Digest;
use tollgate::content::Content;
use tollgate::recovery::RecoveryKind;

use crate::world::World;

const NOW: &str = "[guard]\ngrace = \"0ms\"\n";

fn text(name: &str) -> String {
    format!("a line about {name}\n").repeat(1000)
}

/// Sweeps as if the last time were long ago.
fn sweeps(world: &World) {
    let _ = fs::remove_file(world.root().join(".tollgate/history/pruned"));
    world.gate.workspace().sweep().unwrap();
}

fn content(world: &World, bytes: &str) -> Content {
    world.gate.workspace().content(Digest::of(bytes.as_bytes())).unwrap()
}

fn kept(bytes: &str) -> Content {
    Content::Kept(bytes.as_bytes().to_vec())
}

fn files(world: &World, folder: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(world.root().join(".tollgate/history").join(folder)).unwrap();
    names.map(|entry| entry.unwrap().path()).collect()
}

fn size(world: &World, folder: &str) -> u64 {
    files(world, folder).iter().map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn the_same_bytes_are_kept_once_and_compressed_if_that_pays() {
    let world = World::with(NOW);
    let (short, long) = ("short".to_owned(), text("plants"));
    // Bytes that no program can compress.
    let noise: String =
        (0..9000_u32).map(|n| char::from(b'!' + Digest::of(&n.to_le_bytes()).as_bytes()[0] % 94)).collect();
    world.outsider_writes("a", &short);
    let agent = world.agent("blue");
    agent.reads("a");
    for _ in 0..3 {
        for next in [&long, &noise, &short] {
            agent.writes("a", next).done();
        }
    }
    let of_each = |world: &World| [&short, &long, &noise].map(|text| content(world, text));
    let all = [&short, &long, &noise].map(|text| kept(text));
    assert_eq!(of_each(&world), all, "in the stage");
    sweeps(&world);
    assert_eq!(of_each(&world), all, "in the store");
    assert_eq!(files(&world, "contents").len(), 3);
    let bytes = (short.len() + long.len() + noise.len()) as u64;
    assert!(size(&world, "contents") < bytes - long.len() as u64 / 2, "the long text is compressed");
    assert!(size(&world, "replaced") < 9 * 8, "only the numbers of bytes are left");
    let entries = world.gate.workspace().recovery().unwrap();
    assert_eq!(entries.len(), 9);
    for entry in &entries {
        let (_, bytes) = world.gate.workspace().recovered(&entry.id).unwrap();
        assert_eq!((entry.size, entry.sha256), (bytes.len() as u64, Some(Digest::of(&bytes))));
    }
    assert_eq!(world.gate.workspace().history_size().unwrap(), size(&world, "contents"));
    sweeps(&world);
    assert_eq!(world.gate.workspace().recovery().unwrap().len(), 9, "another sweep changes nothing");
}

#[test]
fn what_a_program_may_still_write_is_not_in_the_store() {
    use std::io::Write;
    let world = World::with(NOW);
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    sweeps(&world);
    agent.reads("a").writes("a", "two").done();
    // Less than a minute after the last one, so the file is in recovery and not yet in the store.
    assert_eq!(world.gate.workspace().sweep().unwrap().kept, 1);
    for (folder, kind) in [("replaced", RecoveryKind::Replaced), ("late", RecoveryKind::Late)] {
        let [file] = files(&world, folder).try_into().unwrap();
        let mut writer = OpenOptions::new().append(true).open(file).unwrap();
        sweeps(&world);
        assert_eq!(files(&world, "contents").len(), 0);
        assert_eq!(world.gate.workspace().recovery().unwrap()[0].kind, kind);
        writer.write_all(b" more").unwrap();
        drop(writer);
        sweeps(&world);
    }
    let entries = world.gate.workspace().recovery().unwrap();
    assert_eq!((entries.len(), entries[0].kind), (1, RecoveryKind::Late));
    assert_eq!(world.gate.workspace().recovered(&entries[0].id).unwrap().1, b"one more more");
    assert_eq!(content(&world, "one more more"), kept("one more more"));
    assert_eq!(world.lines_of("LATE_EXTERNAL_WRITE").len(), 1);
}

#[test]
fn a_file_with_other_names_is_copied_because_it_can_be_changed_there() {
    let world = World::with(&format!("{NOW}hard_links = \"detach\"\n"));
    world.outsider_writes("a", "one");
    fs::hard_link(world.root().join("a"), world.root().join("b")).unwrap();
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done();
    sweeps(&world);
    let mut other = OpenOptions::new().write(true).open(world.root().join("b")).unwrap();
    std::io::Write::write_all(&mut other, b"1").unwrap();
    assert_eq!(content(&world, "one"), kept("one"));
}

#[test]
fn what_is_deleted_for_its_age_or_for_space_is_said_to_be_no_longer_kept() {
    for limit in ["max_age = \"0ms\"", "max_size = \"4B\""] {
        let world = World::with(&format!("{NOW}[history]\n{limit}\n"));
        world.outsider_writes("a", "first");
        let agent = world.agent("blue");
        agent.reads("a").writes("a", "second").done();
        let entry = world.gate.workspace().recovery().unwrap().remove(0);
        sweeps(&world);
        assert_eq!(content(&world, "first"), Content::NoLongerKept, "{limit}");
        assert_eq!(content(&world, "never"), Content::NeverKept);
        assert_eq!(world.gate.workspace().recovery().unwrap().len(), 0);
        let fault = world.gate.workspace().recovered(&entry.id).unwrap_err().to_string();
        assert!(fault.contains("no longer kept"), "{limit}: {fault}");
        // If the same bytes come again, they are kept again.
        agent.writes("a", "first").done().writes("a", "third").done();
        assert_eq!(content(&world, "first"), kept("first"));
    }
}

#[test]
fn the_list_of_what_is_gone_has_a_bound() {
    let world = World::with("[guard]\ngrace = \"0ms\"\n[history]\nmax_size = \"0B\"\n");
    world.outsider_writes("a", "first");
    let agent = world.agent("blue");
    agent.reads("a");
    agent.writes("a", "second").done();
    let list = world.root().join(".tollgate/history/removed");
    let lines = |from: u32, to: u32| -> String {
        (from..to).map(|n| format!("{}\n", Digest::of(&n.to_le_bytes()))).collect()
    };
    fs::write(&list, lines(0, 20_000)).unwrap();
    sweeps(&world);
    let left = fs::read_to_string(&list).unwrap();
    let gone = format!("{}\n", Digest::of(b"first"));
    assert!(left == lines(10_000, 20_000) + &gone, "the older half is forgotten: {} bytes", left.len());
}

#[test]
fn late_writes_are_the_last_to_go() {
    let world = World::with(&format!("{NOW}[history]\nmax_size = \"20B\"\n"));
    world.outsider_writes("a", "0123456789");
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "replaced 1").done();
    let staged = fs::read_dir(world.root().join(".tollgate/stage")).unwrap().next().unwrap().unwrap().path();
    fs::write(staged, "late write").unwrap();
    sweeps(&world);
    for text in ["replaced 2", "replaced 3", "on disk"] {
        agent.writes("a", text).done();
    }
    sweeps(&world);
    assert_eq!(content(&world, "late write"), kept("late write"));
    assert_eq!(content(&world, "replaced 3"), kept("replaced 3"));
    assert_eq!(content(&world, "replaced 1"), Content::NoLongerKept);
}

#[test]
fn damaged_bytes_are_not_given_out_and_can_be_kept_again() {
    let world = World::with(NOW);
    for long in [false, true] {
        let first = if long { text("first") } else { "first".to_owned() };
        let agent = world.agent("blue");
        let file = format!("file-{long}");
        agent.creates(&file, &first).done().writes(&file, "second").done();
        sweeps(&world);
        let name = Digest::of(first.as_bytes()).to_string();
        let is_it = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with(&name);
        let stored = files(&world, "contents").into_iter().find(is_it).unwrap();
        File::options().write(true).open(&stored).unwrap().set_len(3).unwrap();
        assert_eq!(content(&world, &first), Content::NoLongerKept);
        agent.writes(&file, &first).done().writes(&file, "third").done();
        sweeps(&world);
        assert_eq!(content(&world, &first), kept(&first));
    }
}

/// Each step of storing leaves the bytes where they can be found, and the next sweep completes it.
#[test]
fn an_interrupted_move_to_the_store_is_completed() {
    let world = World::with(NOW);
    world.outsider_writes("a", "one");
    let agent = world.agent("blue");
    agent.reads("a").writes("a", "two").done();
    let staged = fs::read_dir(world.root().join(".tollgate/stage")).unwrap().next().unwrap().unwrap();
    let before = world.root().join(".tollgate/history/replaced").join(staged.file_name());
    sweeps(&world);
    // The file with the bytes, which is deleted last, is still there.
    fs::write(&before, "one").unwrap();
    let entries = world.gate.workspace().recovery().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.size).collect::<Vec<_>>(), [3], "listed once");
    assert_eq!(world.gate.workspace().recovered(&entries[0].id).unwrap().1, b"one");
    sweeps(&world);
    assert!(!before.exists());
    // Only the content was made.
    for number in files(&world, "replaced") {
        fs::remove_file(number).unwrap();
    }
    fs::write(&before, "one").unwrap();
    sweeps(&world);
    assert_eq!(files(&world, "replaced").len(), 1);
    let entries = world.gate.workspace().recovery().unwrap();
    assert_eq!(world.gate.workspace().recovered(&entries[0].id).unwrap().1, b"one");
    assert!(!before.exists());
}

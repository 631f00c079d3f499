//! Reads of large files that did not change.

use super::*;
use crate::root::Options;
use std::sync::Arc;
use tollgate_base::sys;

/// A gate whose clock is ahead by this many seconds, and a turn.
fn gate(folder: &Path, ahead: i64) -> (Gate, Turn) {
    let clock = Arc::new(move || Timestamp::now() + jiff::SignedDuration::from_secs(ahead));
    let workspace = Workspace::open(folder, Options { clock, ..Options::default() }).unwrap();
    let gate = Gate::new(workspace);
    let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
    (gate, turn)
}

fn hash(gate: &Gate, turn: &Turn) -> Digest {
    match gate.read(turn, "large", Part::Whole).unwrap() {
        Outcome::Done(read) => read.sha256,
        Outcome::Refused(refused) => panic!("{refused:?}"),
    }
}

/// Beside the test itself, because `/tmp` may be in memory, where time stamps prove nothing.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

/// Keeps a wrong hash for the stamp that the file has now: a read that returns it has not hashed the file. `None` on a
/// file system whose time stamps prove nothing.
fn poison(gate: &Gate, turn: &Turn) -> Option<Digest> {
    let path = gate.workspace().canonical("large").unwrap();
    let Found::File(file) = gate.workspace().spot_anywhere(&path).unwrap().unwrap().open().unwrap() else {
        panic!("it is a file")
    };
    let wrong = Digest::of(b"wrong");
    turn.keep_stamp(&path, &file.stamp()?, wrong).unwrap();
    Some(wrong)
}

#[test]
fn a_large_file_that_did_not_change_is_not_hashed_again() {
    let folder = folder();
    let (one, two) = (vec![b'1'; TEXT_PER_FILE + 1], vec![b'2'; TEXT_PER_FILE + 2]);
    fs::write(folder.path().join("large"), &one).unwrap();
    let (gate, turn) = gate(folder.path(), 10);
    assert_eq!(hash(&gate, &turn), Digest::of(&one));
    if let Some(wrong) = poison(&gate, &turn) {
        // Only of a quiet file does the stamp tell.
        let expected = if sys::HAS_LEASES { wrong } else { Digest::of(&one) };
        assert_eq!(hash(&gate, &turn), expected, "the stamp is the same");
    }
    fs::write(folder.path().join("large"), &two).unwrap();
    assert_eq!(hash(&gate, &turn), Digest::of(&two), "the stamp tells");
}

#[test]
fn inside_the_window_of_the_time_stamps_a_file_is_hashed_again() {
    let folder = folder();
    let bytes = vec![b'1'; TEXT_PER_FILE + 1];
    fs::write(folder.path().join("large"), &bytes).unwrap();
    // The clock stands still from the moment of the write.
    let now = Timestamp::now();
    let options = Options { clock: Arc::new(move || now), ..Options::default() };
    let gate = Gate::new(Workspace::open(folder.path(), options).unwrap());
    let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
    poison(&gate, &turn);
    assert_eq!(hash(&gate, &turn), Digest::of(&bytes));
}

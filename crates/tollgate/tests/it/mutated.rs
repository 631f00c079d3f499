//! State with any bytes in it is healed or reported, and leads nowhere outside the workspace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollgate::{Digest, Expected, Gate, Options, Workspace};
use tollgate_fuzz::fuzz;

/// Journals of commits that died: of two files, of a move, of a new folder, and two that lead out of the workspace.
fn journals() -> Vec<String> {
    let record = |path: &str, to: Value, staged: Value| {
        json!({"id": "0643c1d2e8a1f07b3a9c5d", "path": path, "to": to, "base": Digest::of(b"outside"), "new": Digest::of(b"one"),
            "staged": staged, "made": ["new", "new/er"]})
    };
    let null = Value::Null;
    let journal = |records: Vec<Value>| {
        json!({"version": 1, "agent": "blue", "turn": "t-0123456789abcdef", "records": records}).to_string()
    };
    vec![
        journal(vec![
            record("a.txt", null.clone(), json!(".x")),
            record("sub/b.txt", null.clone(), null.clone()),
        ]),
        journal(vec![record("a.txt", json!("new/a.txt"), null.clone())]),
        journal(vec![
            json!({"id": "0643c1d2e8a1f07b3a9c5d", "path": "sub", "to": "moved", "base": null, "new": null,
            "staged": null, "made": []}),
        ]),
        journal(vec![record("../a.txt", json!("a.txt"), null.clone())]),
        journal(vec![record("../../a.txt", null, json!("../../../a.txt"))]),
    ]
}

/// A workspace three folders deep, with a file beside each of these folders that nobody may change.
struct Surrounded {
    keep: tempfile::TempDir,
    root: PathBuf,
    state: PathBuf,
}

impl Surrounded {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().join("deep/er/w");
        fs::create_dir_all(&root).unwrap();
        let state = Workspace::open(&root, Options::default()).unwrap().state_path();
        let world = Self { keep, root, state };
        world.outside().iter().for_each(|path| fs::write(path, "outside").unwrap());
        world
    }

    fn outside(&self) -> [PathBuf; 3] {
        ["deep/er/a.txt", "deep/a.txt", "a.txt"].map(|name| self.keep.path().join(name))
    }

    /// Opens the workspace with a file of these bytes in its state. Whatever that does, it does inside.
    fn heals(&self, file: &Path, bytes: &[u8]) {
        for name in ["a.txt", "sub/b.txt"] {
            fs::create_dir_all(self.root.join(name).parent().unwrap()).unwrap();
            fs::write(self.root.join(name), "one").unwrap();
        }
        // Not every name can be a file's.
        if fs::write(self.state.join(file), bytes).is_ok() {
            let _ = Workspace::open(&self.root, Options::default()).and_then(|workspace| workspace.sweep());
            let _ = fs::remove_file(self.state.join(file));
        }
        self.outside().iter().for_each(|path| assert_eq!(fs::read_to_string(path).unwrap(), "outside"));
        let names = |folder: &str| fs::read_dir(self.keep.path().join(folder)).unwrap().count();
        assert_eq!((names(""), names("deep"), names("deep/er")), (2, 2, 2), "nothing was created outside");
    }
}

#[test]
fn mutated_journals_are_healed_or_reported_and_change_nothing_outside_the_workspace() {
    let world = Surrounded::new();
    fuzz("journal", &journals(), |bytes| world.heals(Path::new("journal/0123456789abcdef.json"), bytes));
}

#[test]
fn mutated_names_of_staged_files_change_nothing_outside_the_workspace() {
    let world = Surrounded::new();
    let gate = Gate::new(Workspace::open(&world.root, Options::default()).unwrap());
    let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
    for name in ["a.txt", "sub/b.txt"] {
        for text in ["one", "two"] {
            gate.write(&turn, name, text, Expected::Baseline).unwrap().into_result().unwrap();
        }
    }
    // The replaced files that await their late-write check, and the same for a file outside.
    let names: Vec<String> = fs::read_dir(world.state.join("stage"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .flat_map(|name| [name.clone(), name.replace("a.txt", "..%2Fa.txt"), name.replace("sub", "..")])
        .collect();
    assert!(names.len() >= 6);
    fuzz("stage", &names, |bytes| {
        let name =
            bytes.iter().copied().filter(|byte| *byte != b'/' && *byte != 0).take(255).collect::<Vec<u8>>();
        if !name.is_empty() && name != b"." && name != b".." {
            world.heals(&Path::new("stage").join(OsStr::from_bytes(&name)), b"one");
        }
    });
}

#[test]
fn a_journal_that_leads_out_of_the_workspace_is_damaged() {
    let keep = tempfile::tempdir().unwrap();
    let root = keep.path().join("w");
    fs::create_dir(&root).unwrap();
    let state = Workspace::open(&root, Options::default()).unwrap().state_path();
    fs::write(keep.path().join("a.txt"), "outside").unwrap();
    let journal = state.join("journal/0123456789abcdef.json");
    for (key, path) in [
        ("staged", json!("../../../a.txt")),
        ("staged", json!("sub/a.txt")),
        ("path", json!("../a.txt")),
        ("to", json!(keep.path().join("a.txt"))),
        ("made", json!(["../new"])),
    ] {
        fs::write(root.join("a.txt"), "one").unwrap();
        let mut content: Value = serde_json::from_str(&journals()[0]).unwrap();
        content["records"].as_array_mut().unwrap().truncate(1);
        content["records"][0]["staged"] = Value::Null;
        content["records"][0][key] = path;
        fs::write(&journal, content.to_string()).unwrap();
        let fault = Workspace::open(&root, Options::default()).expect_err("damaged");
        assert!(fault.to_string().contains("leads out of the workspace"), "{fault}");
        assert_eq!(fs::read_to_string(keep.path().join("a.txt")).unwrap(), "outside");
    }
}

#[test]
fn a_mutated_record_of_a_turn_shows_what_can_be_read_of_it() {
    let world = Surrounded::new();
    fs::create_dir(world.state.join("open")).unwrap();
    let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
    let line = |text: &str| format!("tollgate-turn 1 blue 1763500000000\n{text}\n");
    let records = [
        line(&format!("R 1763500000001 1:2:3:4:5 {one} src=a.rs\nW 1763500000002 {one} {two} src=a.rs")),
        line(&format!("R 1763500000001 - {one} ..=..=a.txt\nS 1:2:3:-4:5 absent a.txt\nT {two} =etc=passwd")),
        line(&format!("W 1763500000001 absent {one} a.txt\nO red =w src=a.rs\nW 1 unreadable absent b")),
    ];
    let workspace = Workspace::open(&world.root, Options::default()).unwrap();
    fuzz("open turn", &records, |bytes| {
        fs::write(world.state.join("open/t-0123456789abcdef"), bytes).unwrap();
        fs::write(world.state.join("open/t-fedcba9876543210"), &records[0]).unwrap();
        for turn in tollgate::overlap::open_turns(&workspace).unwrap() {
            let files = turn.files_read().len() + turn.files_changed().len();
            assert!(files <= 2 * bytes.len().max(records[0].len()));
        }
        tollgate::overlap::list(&workspace).unwrap();
    });
}

//! State of format 1, opened by the current version: it is read or migrated, and nothing is lost.
//!
//! `scripts/make-old-state` made the fixture with the last version that wrote format 1; its head says what is in it. These
//! tests assert outcomes and know nothing of the format of the current version.
//!
//! Each story is told of two states. One was upgraded in place: the workspace is where it was, and so are the inodes of its
//! files. The other was copied: every file has another inode, and the workspace and its clones have other ids.

mod folder;
mod git;
mod in_place;
mod ledger;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::git::with_path;
use crate::world::{Ran, World};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate/tests/fixtures/state-1.tar.gz");

/// How the old state came to be where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    UpgradedInPlace,
    Copied,
}

/// The old state, unpacked.
struct OldState {
    world: World,
    manifest: Value,
    origin: Origin,
}

/// Runs a story with both states, each in a thread with the name of its state.
fn each(story: impl Fn(&OldState) + Sync) {
    let story = &story;
    thread::scope(|scope| {
        for origin in [Origin::UpgradedInPlace, Origin::Copied] {
            let told = move || story(&OldState::unpack(origin));
            thread::Builder::new().name(format!("{origin:?}")).spawn_scoped(scope, told).unwrap();
        }
    });
}

impl OldState {
    fn unpack(origin: Origin) -> Self {
        let world = World::new();
        let tar = Command::new("tar")
            .args([
                "--extract",
                "--gzip",
                "--preserve-permissions",
                "--no-same-owner",
                "--file",
                FIXTURE,
                "--directory",
            ])
            .arg(world.tmp())
            .output()
            .unwrap();
        assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
        let manifest = fs::read(world.tmp().join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        if origin == Origin::UpgradedInPlace {
            in_place::restore(world.tmp(), &manifest);
        }
        for place in ["folder", "git/a", "git/b"] {
            // The stories are not about the pauses between attempts. In older versions, every move approved.
            let config = world.tmp().join(place).join(".tollgate/config.toml");
            let text = fs::read_to_string(&config).unwrap();
            assert!(text.contains("[vault]\n"), "{text}");
            fs::write(
                &config,
                text.replacen("[vault]\n", "[vault]\nretry = []\napprove_by_move = true\n", 1),
            )
            .unwrap();
        }
        // Its tasks are in the folder of another workspace.
        world.tollgate(["trust"]).folder(world.tmp().join("neighbour")).typed("yes").is(0);
        Self { world, manifest, origin }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.world.tmp().join(name)
    }

    /// `tollgate` with the words of a line as arguments, in one of the workspaces.
    fn run(&self, place: &str, line: &str) -> Ran {
        with_path(self.world.tollgate(line.split_whitespace())).folder(self.path(place)).ends()
    }

    #[track_caller]
    fn json(&self, place: &str, line: &str) -> Value {
        self.run(place, &format!("{line} --json")).is(0).json()
    }

    /// What the manifest says of a workspace: `folder`, `neighbour` or `git/a`.
    fn known(&self, place: &str) -> &Value {
        place.split('/').fold(&self.manifest, |value, key| &value[key])
    }

    /// What the manifest says of a task.
    fn task(&self, place: &str, task: &str) -> &Value {
        &self.known(place)["tasks"][format!("{task}.md")]
    }

    fn claim_id(&self, place: &str, task: &str) -> &str {
        self.task(place, task)["claim_id"].as_str().unwrap()
    }

    /// The tasks of a workspace by the manifest, each with what its author wrote.
    fn authors(&self, place: &str) -> BTreeMap<String, String> {
        let tasks = self.known(place)["tasks"].as_object().unwrap();
        tasks.iter().map(|(name, task)| (name.clone(), task["author"].as_str().unwrap().to_owned())).collect()
    }

    /// All tasks, by name, as `task list` shows them.
    fn board(&self, place: &str) -> BTreeMap<String, Value> {
        let mut board = BTreeMap::new();
        for state in ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"] {
            for row in self.json(place, &format!("task list --state {state}")).as_array().unwrap() {
                let twice = board.insert(row["task"].as_str().unwrap().to_owned(), row.clone());
                assert_eq!(twice, None, "a task is in one folder");
            }
        }
        board
    }

    #[track_caller]
    fn state(&self, place: &str, task: &str) -> String {
        self.json(place, &format!("task show {task}"))["state"].as_str().unwrap().to_owned()
    }

    /// The types of the ledger lines about a task, in order.
    fn told(&self, place: &str, task: &str) -> Vec<String> {
        let ledger = fs::read(self.path(place).join(".tollgate/ledger.jsonl")).unwrap_or_default();
        let lines = ledger.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        lines
            .map(|line| serde_json::from_slice::<Value>(line).unwrap())
            .filter(|line| line["payload"]["task"] == format!("{task}.md"))
            .map(|line| line["action_type"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// All files of tasks below a vault: the folder and the bytes of each, by its name.
fn task_files(vault: &Path) -> BTreeMap<String, (PathBuf, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![vault.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != ".tollgate" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let place = folder.strip_prefix(vault).unwrap().to_owned();
                let twice = files.insert(name, (place, fs::read(&path).unwrap()));
                assert_eq!(twice, None, "{} is in one folder", path.display());
            }
        }
    }
    files
}

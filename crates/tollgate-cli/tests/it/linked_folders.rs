//! Folders of a vault that are symbolic links, as a cloned repository can bring them: no task leaves the vault through them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::git::Remote;
use crate::world::World;

const FOLDERS: [&str; 7] =
    ["Needs_Action", "In_Progress", "In_Progress/blue", "Pending_Approval", "Approved", "Done", "Rejected"];

/// All files below a folder, with their bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().chain([(path, Vec::new())])),
            false => _ = found.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    found
}

/// Puts a link in the place of a folder of this vault. It leads to a folder outside with the same files.
fn link(world: &World, vault: &Path, folder: &str) -> PathBuf {
    let (inside, away) = (vault.join(folder), world.tmp().join("away"));
    fs::rename(&inside, &away).unwrap();
    symlink(&away, &inside).unwrap();
    away
}

#[test]
fn no_door_leads_through_a_linked_folder() {
    for folder in FOLDERS {
        let world =
            World::with("[vault]\nsettle = \"0ms\"\ndurability = \"fast\"\nretry = []\nlease = \"1ms\"\n");
        world.run("init --vault").is(0);
        let claim = |task: &str| {
            world.run(&format!("task add {task} --agent ada")).is(0);
            world.json(&format!("task claim {task} --agent blue"))["claim_id"].as_str().unwrap().to_owned()
        };
        for (task, state) in [("drafted", "Pending_Approval"), ("done", "Done"), ("rejected", "Rejected")] {
            let id = claim(task);
            world.run(&format!("task release {task} --to {state} --claim-id {id} --agent blue")).is(0);
        }
        world.run("task add waiting --agent ada").is(0);
        let id = claim("claimed");
        let away = link(&world, &world.path("vault"), folder);
        let (before, inside) = (files(&away), files(&world.path("vault")));
        let release = format!("task release claimed --claim-id {id} --agent blue");
        let named = format!("vault/{folder}`: it is a symbolic link");
        for line in [
            "task add new --agent ada",
            "task claim waiting --agent blue",
            "task claim --next --agent blue",
            "task claim --next --agent red",
            release.as_str(),
            "task progress claimed half --agent blue",
            "task reclaim",
            "task list",
            "work --agent blue --once -- true",
        ] {
            let ran = world.run(line).is(3);
            assert!(ran.stderr().contains(&named), "{folder}, {line}: {ran}");
            assert!(ran.stderr().contains("hint: delete the link"), "{folder}, {line}: {ran}");
        }
        for line in [
            "task approve drafted",
            "task reject drafted --reason no",
            "task retry rejected",
            "task return claimed",
        ] {
            let said = world.tollgate(line.split_whitespace()).typed("yes").is(3);
            assert!(said.shown.contains("it is a symbolic link"), "{folder}, {line}: {}", said.shown);
        }
        let report = world.run("doctor");
        assert!(report.stdout().contains(&named), "{folder}: {report}");
        assert_eq!(files(&away), before, "{folder}");
        let after = files(&world.path("vault"));
        let tasks = |all: &BTreeMap<PathBuf, Vec<u8>>| {
            let is_private = |path: &Path| path.iter().any(|part| part == ".tollgate");
            all.iter().filter(|(path, _)| !is_private(path)).map(|(path, _)| path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(tasks(&after), tasks(&inside), "{folder}");
        // As the hint says.
        fs::remove_file(world.path("vault").join(folder)).unwrap();
        fs::rename(&away, world.path("vault").join(folder)).unwrap();
        world.run("task list").is(0);
        world.json("task claim waiting --agent red");
    }
}

#[test]
fn the_tree_of_a_clone_has_no_linked_folders() {
    let remote = Remote::with_tasks(2);
    for folder in FOLDERS {
        let world = remote.clone("lease = \"1h\"\n");
        world.run("sync").is(0);
        let tree = world.path("vault/.tollgate/git/tree");
        fs::create_dir_all(tree.join("In_Progress/blue")).unwrap();
        let away = link(&world, &tree, folder);
        let before = files(&away);
        for line in ["sync", "task add new --agent ada", "task claim --next --agent blue", "task list"] {
            let ran = world.run(line).is(3);
            assert!(ran.stderr().contains("it is a symbolic link"), "{folder}, {line}: {ran}");
        }
        assert_eq!(files(&away), before, "{folder}");
        assert!(world.run("doctor").stdout().contains("it is a symbolic link"), "{folder}");
    }
}

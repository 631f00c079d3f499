//! `tollgate bisect` among many changes, while others go on saving.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tollgate::TurnId;
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::turn::Turn;
use tollgate::workspace::{Options, Workspace};

use crate::world::World;

const CHANGES: usize = 500;

/// The change that breaks it.
const PLANTED: usize = 305;

/// Every fifth change adds a line to `code`, the others write other files.
fn worked(world: &World) -> (u64, TurnId) {
    let gate = Gate::new(Workspace::open(world.root(), Options::default()).unwrap());
    let (mut code, mut cause) = (String::from("start\n"), None);
    world.puts("code", &code);
    for number in 0..CHANGES {
        let turn = Turn::begin(TurnId::new().unwrap(), ["blue", "red"][number % 2].parse().unwrap());
        let name = if number % 5 == 0 { "code".to_owned() } else { format!("src/f{}", number % 20) };
        let mut text = format!("{number}\n");
        if name == "code" {
            text = if number == PLANTED { "bug\n".to_owned() } else { text };
            code += &text;
            text.clone_from(&code);
        }
        let done = gate.write(&turn, name, text, Expected::Baseline).unwrap();
        assert!(matches!(done, Outcome::Done(_)), "{done:?}");
        if number == PLANTED {
            let line = gate.workspace().ledger().newest_first().unwrap().next().unwrap().unwrap();
            cause = Some((line.seq, line.turn.unwrap()));
        }
    }
    cause.unwrap()
}

/// All files of a folder, with their bytes, but those that outsiders save.
fn all(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder).unwrap().display().to_string();
                found.push((name, fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.retain(|(name, _)| !["src/f3", "notes", "new"].contains(&name.as_str()));
    found.sort();
    found
}

#[test]
fn the_planted_change_among_500_is_found_in_12_runs_while_outsiders_save() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    let (seq, turn) = worked(&world);
    let temporary = world.tmp().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let before = all(&world.root());
    let (stop, saves) = (AtomicBool::new(false), AtomicUsize::new(0));
    let found = std::thread::scope(|scope| {
        // One saves a file in place that agents have changed, another one replaces a file of its own.
        for (name, in_place) in [("src/f3", true), ("notes", false)] {
            let (world, stop, saves) = (&world, &stop, &saves);
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let text = format!("bug of an outsider {number}\n");
                    if in_place {
                        fs::write(world.path(name), text).unwrap();
                    } else {
                        fs::write(world.path("new"), text).unwrap();
                        fs::rename(world.path("new"), world.path(name)).unwrap();
                    }
                    number += 1;
                    saves.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
        }
        let test = "echo trace > trace; echo 1 > src/f4; rm -f src/f6; ! grep -q bug code";
        let run = world.tollgate(["bisect", "--json", "--", "sh", "-c", test]).env("TMPDIR", &temporary);
        let ended = run.ends();
        stop.store(true, Ordering::Relaxed);
        ended.is(0).json()
    });
    assert_eq!(
        (&found["found"], &found["seq"], &found["turn"]),
        (&true.into(), &seq.into(), &turn.as_str().into())
    );
    assert_eq!(found["paths"], serde_json::json!(["code"]), "{found}");
    assert!(found["runs"].as_u64().unwrap() <= 12, "{found}");
    assert!(saves.load(Ordering::Relaxed) > 10, "{saves:?}");
    assert_eq!(all(&world.root()), before);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

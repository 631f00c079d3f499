//! A file that is renamed over another one: the supervisor compares and swaps in one step, where it may act for the program.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{LANDLOCK, interrupted, ledger, payloads, run, world};
use crate::world::{World, hash, until};

fn kept(world: &World) -> usize {
    world.json("recovery list").as_array().unwrap().len()
}

#[test]
fn a_file_that_a_command_replaces_goes_to_recovery() {
    let world = world();
    let ran = run(&world, "gate", &["sh", "-c", "cat f > t; echo two >> t; mv t f; cat f"]).is(0);
    assert_eq!((ran.stdout(), ran.stderr()), ("one\ntwo\n".into(), String::new()));
    assert_eq!(kept(&world), 1);
    let lines = ledger(&world, "MUTATION");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["payload"]["hash_before"], format!("sha256:{}", hash("one\n")));
    assert_eq!(lines[0]["payload"]["hash_after"], format!("sha256:{}", hash("one\ntwo\n")));
    assert!(!world.path("t").exists());
    world.run("ledger verify").is(0);
}

/// It is called stale only on a hash that was taken while nobody could write it.
#[test]
fn a_stale_file_that_another_program_is_writing_is_busy() {
    let world = world();
    let mut writer = None;
    let words = ["sh", "-c", "cat f > /dev/null; ../pause; echo two > t; mv t f"];
    let ran = interrupted(&world, "gate", &words, || {
        let mut file = OpenOptions::new().append(true).open(world.path("f")).unwrap();
        file.write_all(b"half a li").unwrap();
        writer = Some(file);
    });
    assert_eq!(payloads(ran)[0]["error_type"], "FILE_BUSY");
    world.holds("f", "one\nhalf a li");
    drop(writer);
}

#[test]
fn what_a_program_writes_into_a_file_that_it_had_open_before_a_command_replaced_it_is_kept() {
    let world = World::with("[guard]\ngrace = \"0ms\"\n");
    world.puts("f", "one\n");
    let mut writer = OpenOptions::new().append(true).open(world.path("f")).unwrap();
    run(&world, "gate", &["sh", "-c", "cat f > t; echo two >> t; mv t f"]).is(0);
    writer.write_all(b"late\n").unwrap();
    drop(writer);
    world.holds("f", "one\ntwo\n");
    let kept = until("the late write to be found", || world.json("recovery list")[0].as_object().cloned());
    assert_eq!(kept["kind"], "late");
    let shown = world.run(&format!("recovery show {}", kept["id"].as_str().unwrap()));
    assert_eq!(shown.is(0).stdout(), "one\nlate\n");
}

#[test]
fn a_program_with_other_rights_renames_for_itself() {
    for (script, fails) in [
        ("unshare -m sh -c 'cat f > t; mount --bind . . && cd . && mv t f'", false),
        (
            "cat f > t; unshare -m sh -c 'mount --bind . . && mount -o remount,ro,bind . && cd \"$PWD\" && mv t f'",
            true,
        ),
        ("cat f > t; setpriv --reuid=65534 --regid=65534 --clear-groups mv t f", true),
        ("cat f > t; setpriv --bounding-set=-all mv t f", false),
    ] {
        let world = world();
        let ran = run(&world, "gate", &["sh", "-c", script]);
        assert_eq!(ran.to_string().starts_with("exit 0"), !fails, "{script}: {ran}");
        assert_eq!(world.path("t").exists(), fails, "{script}");
        assert_eq!(kept(&world), 0, "{script}");
    }
}

#[test]
fn after_a_process_has_restricted_itself_each_renames_for_itself() {
    let world = world();
    let script = "cat f > t; echo two >> t; perl -e \"$1\" mv t f; cat f > t; echo three >> t; mv t f";
    run(&world, "gate", &["sh", "-ec", script, "sh", LANDLOCK]).is(0);
    world.holds("f", "one\ntwo\nthree\n");
    assert_eq!(kept(&world), 0);
}

#[test]
fn a_save_by_rename_never_falls_between_the_comparison_and_the_rename() {
    let world = world();
    let stop = AtomicBool::new(false);
    let script = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); cat f > ../seen.$i; echo gate $i > t; mv -f t f 2> /dev/null; done";
    std::thread::scope(|scope| {
        let outsider = scope.spawn(|| {
            let (mut last, mut checked) = (0, HashMap::new());
            while !stop.load(Ordering::SeqCst) {
                last += 1;
                let mine = format!("outsider {last}\n");
                fs::write(world.tmp().join("beside"), &mine).unwrap();
                fs::rename(world.tmp().join("beside"), world.path("f")).unwrap();
                // Until the command has replaced it. Nobody else does. A replacement that is undone shows for a moment.
                while !stop.load(Ordering::SeqCst) {
                    let found = fs::read_to_string(world.path("f")).unwrap();
                    let Some(number) = found.strip_prefix("gate ") else { continue };
                    let line = format!("\"hash_after\":\"sha256:{}\"", hash(&found));
                    let text = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap_or_default();
                    if text.contains(&line) {
                        checked.insert(number.trim().to_owned(), mine);
                        break;
                    }
                }
            }
            checked
        });
        run(&world, "gate", &["sh", "-c", script]);
        stop.store(true, Ordering::SeqCst);
        let checked = outsider.join().unwrap();
        assert!(checked.len() > 20, "only {} replacements were checked", checked.len());
        for (number, replaced) in checked {
            let mut number: usize = number.parse().unwrap();
            // A later replacement may have replaced an earlier one of the command itself.
            let seen = loop {
                let seen = fs::read_to_string(world.tmp().join(format!("seen.{number}"))).unwrap();
                match seen.strip_prefix("gate ") {
                    Some(earlier) => number = earlier.trim().parse().unwrap(),
                    None => break seen,
                }
            };
            assert_eq!(seen, replaced, "the command replaced a save that it had not seen");
        }
    });
}

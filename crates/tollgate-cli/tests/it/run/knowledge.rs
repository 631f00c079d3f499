//! What the agent knows: a command that writes a file without looking at it must not destroy what the agent has not seen.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use super::{HOLD, refused};
use crate::world::World;

#[test]
fn a_blind_write_is_compared_with_what_the_agent_knew() {
    for script in ["echo mine > f", "cp g f", "echo mine | tee f", "rm f", "mv g f"] {
        let world = World::new();
        world.puts("f", "one\n");
        world.puts("g", "mine\n");
        let turn = world.turn("blue");
        world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
        world.puts("f", "theirs\n");
        let ran = world.guarded_with(&["--turn", &turn], script).ends();
        assert_eq!(refused(ran), [("f".to_owned(), "STALE_FILE".to_owned())], "{script}");
        world.holds("f", "theirs\n");
        // After another look, it is a change that the agent knows.
        world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
        world.guarded_with(&["--turn", &turn], script).ends().is(0);
    }
}

#[test]
fn a_program_that_looks_for_itself_may_change_what_the_agent_has_not_seen() {
    let world = World::new();
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
    world.puts("f", "one\ntheirs\n");
    world.guarded_with(&["--turn", &turn], "sed -i s/one/1/ f; echo end >> f").ends().is(0);
    world.holds("f", "1\ntheirs\nend\n");
}

#[test]
fn reads_and_writes_of_other_commands_count() {
    let world = World::new();
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read f --turn {turn}")).is(0);
    world.puts("f", "theirs\n");
    refused(world.guarded_with(&["--turn", &turn], "echo mine > f").ends());
    // And the other way round: what a command wrote, the agent knows.
    world.guarded_with(&["--turn", &turn], "cat f; echo mine > f").ends().is(0);
    world.tollgate(["write", "f", "--turn", &turn]).stdin("more\n").ends().is(0);
    world.holds("f", "more\n");
}

#[test]
fn an_agent_that_must_read_first_must_read_first() {
    let world = World::with("[guard]\nunread = \"refuse\"\n");
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    let ran = world.guarded_with(&["--turn", &turn], "echo mine > f").ends();
    assert_eq!(refused(ran), [("f".to_owned(), "UNREAD_FILE".to_owned())]);
    world.guarded_with(&["--turn", &turn], "echo mine > new; sed -i s/one/1/ f").ends().is(0);
    world.guarded_with(&["--turn", &turn], "echo mine > f").ends().is(0);
}

#[test]
fn a_guard_that_only_observes_refuses_nothing() {
    let world = World::with("[guard]\nmode = \"observe\"\n");
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.guarded_with(&["--turn", &turn], "cat f").ends().is(0);
    world.puts("f", "theirs\n");
    world.guarded_with(&["--turn", &turn], "echo mine > f").ends().is(0);
    world.holds("f", "mine\n");
    let observed = || world.lines().iter().filter(|line| line["result"]["status"] == "OBSERVED").count();
    assert_eq!(observed(), 1, "{:?}", world.lines());
    // The command has looked, and the agent knows something else.
    world.puts("f", "theirs\n");
    let record = world.tmp().join("record");
    let options = ["--turn", &turn, "--record", record.to_str().unwrap()];
    world.guarded_with(&options, "cat f; echo more > f").ends().is(0);
    world.holds("f", "more\n");
    assert_eq!(observed(), 2, "{:?}", world.lines());
}

#[test]
fn the_record_has_reads_and_writes() {
    let world = World::new();
    world.puts("f", "one\n");
    world.puts("g", "two\n");
    let record = world.tmp().join("record");
    let record = record.to_str().unwrap();
    world.guarded_with(&["--record", record], "cat f; echo 2 > g; echo n > new; exit 3").ends().is(3);
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    let hash = crate::world::hash;
    assert_eq!(
        record,
        serde_json::json!({
            "level": "transaction",
            "exit": 3,
            "refused": [],
            "reads": [{"path": "f", "sha256": hash("one\n")}],
            "writes": [
                {"path": "g", "before": hash("two\n"), "after": hash("2\n")},
                {"path": "new", "before": null, "after": hash("n\n")},
            ],
            "notes": [],
        })
    );
}

/// The hook that asks for the record decides by itself what the agent has seen.
#[test]
fn with_a_record_a_read_of_the_command_is_not_yet_one_of_the_agent() {
    let world = World::new();
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read f --turn {turn}")).is(0);
    world.puts("f", "theirs\n");
    let record = world.tmp().join("record");
    world.guarded_with(&["--turn", &turn, "--record", record.to_str().unwrap()], "cat f").ends().is(0);
    refused(world.guarded_with(&["--turn", &turn], "echo mine > f").ends());
}

/// A workspace with more files than a run hashes when they are read.
fn to_search() -> World {
    let world = World::with("[guard]\nunread = \"refuse\"\n");
    for number in 0..3_000 {
        let folder = world.path(format!("d{}", number % 30));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("f{number}")), "one\n").unwrap();
    }
    world
}

const SEARCH: &str = "grep -rc nothing --exclude-dir=.tollgate . >/dev/null";

#[test]
fn a_search_through_thousands_of_files_looks_at_each_of_them() {
    let world = to_search();
    let record = world.tmp().join("record");
    let options = ["--record", record.to_str().unwrap()];
    // It has looked at all of them, so it may write any, though the agent has read none.
    let script = format!("{SEARCH}; for n in 0 1499 2999; do echo mine > d$((n % 30))/f$n; done");
    world.guarded_with(&options, &script).ends().is(0);
    for file in ["d0/f0", "d29/f1499", "d29/f2999"] {
        world.holds(file, "mine\n");
    }
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    let reads: Vec<&str> =
        record["reads"].as_array().unwrap().iter().map(|read| read["path"].as_str().unwrap()).collect();
    assert_eq!(reads.len(), 2_997);
    assert!(reads.is_sorted_by_key(|path| path.split_once('/').unwrap()), "{reads:?}");
    // Without the search, it has not.
    let ran = world.guarded("echo mine > d1/f1").ends();
    assert_eq!(refused(ran), [("f1".to_owned(), "UNREAD_FILE".to_owned())]);
}

#[test]
fn a_file_that_changes_after_a_search_is_not_overwritten() {
    let world = to_search();
    for file in ["d0/f0", "d29/f1499", "d29/f2999"] {
        let script = format!("{SEARCH}; {HOLD}; echo mine > {file}");
        let ran = world.held(&[], &script, || world.puts(file, "theirs\n"));
        let name = file.split_once('/').unwrap().1.to_owned();
        assert_eq!(refused(ran), [(name, "STALE_FILE".to_owned())]);
        world.holds(file, "theirs\n");
    }
}

/// What the command has read, a hook shows to the agent later; and the agent has seen the new text.
#[test]
fn with_a_record_a_file_that_changes_after_a_search_is_not_overwritten() {
    let world = to_search();
    let turn = world.turn("blue");
    let record = world.tmp().join("record");
    let options = ["--turn", &turn, "--record", record.to_str().unwrap()];
    let script = format!("{SEARCH}; {HOLD}; echo mine > d29/f2999");
    let ran = world.held(&options, &script, || {
        world.puts("d29/f2999", "theirs\n");
        world.run(&format!("read d29/f2999 --turn {turn}")).is(0);
    });
    assert_eq!(refused(ran), [("f2999".to_owned(), "STALE_FILE".to_owned())]);
    world.holds("d29/f2999", "theirs\n");
}

#[test]
fn a_file_that_changes_after_a_search_is_named() {
    let world = to_search();
    let change = |how: &str| {
        for file in ["d0/f0", "d29/f1499"] {
            world.puts(file, how);
        }
        fs::remove_file(world.path("d29/f2999")).unwrap();
    };
    let script = format!("{SEARCH}; echo done > new; {HOLD}");
    let ran = world.held(&[], &script, || change("theirs\n")).is(0);
    let stderr = ran.stderr();
    let named = stderr.lines().filter_map(|line| line.split_once("` was read by the command and changed"));
    let named: Vec<&str> = named.map(|(start, _)| start.split_once('`').unwrap().1).collect();
    assert_eq!(named, ["d0/f0", "d29/f1499", "d29/f2999"], "{ran}");
    world.holds("new", "done\n");
    // With `--serial`, it is more than a note.
    world.puts("d29/f2999", "one\n");
    let script = format!("{SEARCH}; echo done > newer; {HOLD}");
    let mut stale = refused(world.held(&["--serial"], &script, || change("more\n")));
    stale.sort();
    assert_eq!(stale, ["f0", "f1499", "f2999"].map(|name| (name.to_owned(), "STALE_FILE".to_owned())));
    assert!(!world.path("newer").exists());
}

/// Waits, inside the command, until the reports about it are those of a search, or all of them again. The kernel says what is
/// reported; the last bit stands for single reads.
fn wait_for(watched: &str) -> String {
    let without = if watched == "search" { "13579bdf" } else { "02468ace" };
    format!(
        "timeout 60 sh -c 'while cat /proc/$0/fdinfo/* 2>/dev/null | grep -q \"^inotify.* mask:[0-9a-f]*[{without}] \"; \
         do :; done' $PPID || exit 9"
    )
}

const SEARCH_IN_PART: &str = "grep -rc nothing --exclude-dir=.tollgate --exclude-dir=other . >/dev/null";

/// A workspace to search, with files in `other` that the search leaves out.
fn to_search_in_part() -> (World, String) {
    let world = to_search();
    for name in ["f", "g"] {
        world.puts(format!("other/{name}"), "one\n");
    }
    (world, format!("{SEARCH_IN_PART}; {}", wait_for("search")))
}

/// In a search, only the end of a read is reported, and here that comes after the write.
#[test]
fn what_a_command_may_have_read_during_a_search_must_not_have_changed() {
    let (world, search) = to_search_in_part();
    let turn = world.turn("blue");
    let script = format!("{search}; exec 3< other/f; read text <&3; {HOLD}; echo mine > other/f");
    let ran = world.held(&["--turn", &turn], &script, || {
        // The agent knows the new text, and the command the old one.
        world.puts("other/f", "theirs\n");
        world.run(&format!("read other/f --turn {turn}")).is(0);
    });
    assert_eq!(refused(ran), [("f".to_owned(), "STALE_FILE".to_owned())]);
    world.holds("other/f", "theirs\n");
    // Without a change, the agent's knowledge is enough.
    world.guarded_with(&["--turn", &turn], &format!("{search}; echo mine > other/f")).ends().is(0);
}

#[test]
fn a_command_that_writes_after_a_search_is_watched_closely_again() {
    let (world, search) = to_search_in_part();
    let edit = "python3 -c \"f=open('other/g','r+'); f.read(); f.write('mine\\n')\"";
    world.guarded(&format!("{search}; echo x > new; {}; {edit}", wait_for("all"))).ends().is(0);
    world.holds("other/g", "one\nmine\n");
    // So is one that wrote before it searched.
    world.puts("other/g", "one\n");
    let edit = edit.replace("f.write", "f.seek(0); f.write");
    let script = format!("echo x > newer; {SEARCH}; {}; {edit}", wait_for("all"));
    world.guarded(&script).ends().is(0);
    world.holds("other/g", "mine\n");
}

/// What was only opened during a search may be read later.
#[test]
fn a_file_that_a_command_touches_in_a_search_and_reads_later_has_been_looked_at() {
    let (world, search) = to_search_in_part();
    let script = format!("{search}; touch other/g; {}; sed -i s/one/1/ other/g", wait_for("all"));
    world.guarded(&script).ends().is(0);
    world.holds("other/g", "1\n");
}

/// A command that makes folders writes, so all its reads are reported.
#[test]
fn a_command_that_makes_a_folder_does_not_search() {
    let (world, _) = to_search_in_part();
    let edit = "python3 -c \"f=open('other/g','r+'); f.read(); f.seek(0); f.write('mine\\n')\"";
    world.guarded(&format!("mkdir new; {SEARCH_IN_PART}; {edit}")).ends().is(0);
    world.holds("other/g", "mine\n");
}

/// Only a search that comes first is watched less closely.
#[test]
fn a_command_that_wrote_before_its_search_is_known_not_to_have_looked() {
    let (world, _) = to_search_in_part();
    let turn = world.turn("blue");
    let script = format!("echo x > new; {SEARCH_IN_PART}; {HOLD}; echo mine > other/f");
    let ran = world.held(&["--turn", &turn], &script, || {
        world.puts("other/f", "theirs\n");
        world.run(&format!("read other/f --turn {turn}")).is(0);
    });
    ran.is(0);
    world.holds("other/f", "mine\n");
}

/// The file is still open when the command ends, so in a search nobody would report that it was read.
#[test]
fn a_serial_run_knows_what_a_process_reads_that_it_leaves_behind() {
    let (world, _) = to_search_in_part();
    let stays = "(while [ -e ../ready ]; do sleep 0.01; done) >/dev/null 2>&1 &";
    let script = format!(
        "{SEARCH_IN_PART}; exec 3< other/f; read text <&3; touch ../ready; {stays} {HOLD}; echo x > new"
    );
    let ran = world.held(&["--serial"], &script, || world.puts("other/f", "theirs\n"));
    assert_eq!(refused(ran), [("f".to_owned(), "STALE_FILE".to_owned())]);
    assert!(!world.path("new").exists());
}

#[test]
fn a_file_that_a_search_opens_for_writing_counts_as_read() {
    let (world, search) = to_search_in_part();
    let record = world.tmp().join("record");
    let script = format!("{search}; python3 -c \"open('other/f','r+').read()\"");
    world.guarded_with(&["--record", record.to_str().unwrap()], &script).ends().is(0);
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    let reads = record["reads"].as_array().unwrap();
    assert!(reads.iter().any(|read| read["path"] == "other/f"), "{reads:?}");
}

/// A program that maps files reads none of them by a call.
#[test]
fn a_search_that_maps_files_looks_at_each_of_them() {
    let world = to_search();
    let record = world.tmp().join("record");
    let search = "python3 -c \"import glob, mmap\nfor name in glob.glob('d*/f*'):\n with open(name, 'rb') as f:\n  \
                  mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ).find(b'nothing')\"";
    let script = format!("{search}; echo mine > d29/f2999");
    world.guarded_with(&["--record", record.to_str().unwrap()], &script).ends().is(0);
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    assert_eq!(record["reads"].as_array().unwrap().len(), 2_999);
}

/// Nobody knows under which name a command wrote a file. So where a path of the agent leads decides, at the end of the command.
#[test]
fn a_path_that_leads_elsewhere_must_lead_to_what_the_agent_knew() {
    const RELINK: &str = "rm cur f; ln -s v2 cur; ln -s g f; mv d d.old; ln -s e d";
    for unread in ["allow", "known"] {
        for (name, target) in [("cur/c", "v2/c"), ("f", "g"), ("d/x", "e/x")] {
            for script in ["echo mine > $1", "rm v2/c g e/x", "cp mine $1"] {
                let world = World::with(&format!("[guard]\nunread = \"{unread}\"\n"));
                for file in ["v1/c", "f", "d/x"] {
                    world.puts(file, "old\n");
                }
                for file in ["v2/c", "g", "e/x"] {
                    world.puts(file, "foreign\n");
                }
                world.puts("mine", "mine\n");
                symlink("v1", world.path("cur")).unwrap();
                let mut turn = world.turn("blue");
                for file in ["cur/c", "f", "d/x"] {
                    world.run(&format!("read {file} --turn {turn}")).is(0);
                }
                if unread == "known" {
                    world.run(&format!("turn end --turn {turn}")).is(0);
                    turn = world.turn("blue");
                }
                world.native(RELINK).ends().is(0);
                let script = script.replace("$1", name);
                let ran = world.guarded_with(&["--turn", &turn], &script).ends();
                let file = target.rsplit('/').next().unwrap().to_owned();
                assert!(refused(ran).contains(&(file, "STALE_FILE".to_owned())), "{unread}: {script}");
                world.holds(target, "foreign\n");
                // After another look, it is a change that the agent knows.
                world.guarded_with(&["--turn", &turn], "cat v2/c g e/x").ends().is(0);
                world.guarded_with(&["--turn", &turn], &script).ends().is(0);
            }
        }
    }
}

#[test]
fn the_same_bytes_elsewhere_are_not_a_conflict() {
    let world = World::new();
    world.puts("v1/c", "old\n");
    world.puts("v2/c", "old\n");
    symlink("v1", world.path("cur")).unwrap();
    let turn = world.turn("blue");
    world.run(&format!("read cur/c --turn {turn}")).is(0);
    world.native("ln -sfn v2 cur").ends().is(0);
    world.guarded_with(&["--turn", &turn], "echo mine > cur/c").ends().is(0);
    world.holds("v2/c", "mine\n");
    world.holds("v1/c", "old\n");
    // A file that the agent has read itself is what it read there, wherever else a path may lead.
    world.puts("v3/c", "third\n");
    world.run(&format!("read v3/c --turn {turn}")).is(0);
    world.native("ln -sfn v3 cur").ends().is(0);
    world.guarded_with(&["--turn", &turn], "echo mine > v3/c").ends().is(0);
}

#[test]
fn a_new_link_says_nothing_about_the_file_to_which_it_leads() {
    for mode in ["transaction", "gate"] {
        let world = World::new();
        world.puts("f", "one\n");
        let turn = world.turn("blue");
        let run = |script: &str| world.guarded_with(&["--turn", &turn, "--mode", mode], script).ends().is(0);
        world.run(&format!("read f --turn {turn}")).is(0);
        run("ln -s f l");
        for (file, text) in [("l", "two\n"), ("f", "three\n"), ("l", "four\n")] {
            world.tollgate(["write", file, "--turn", &turn]).stdin(text).ends().is(0);
            world.holds("f", text);
        }
        run("rm l; ln -s f l; echo five > l; rm l");
        world.holds("f", "five\n");
        // A foreign change is found through the link, too.
        run("ln -s f l");
        world.puts("f", "theirs\n");
        let ran = world.tollgate(["write", "l", "--turn", &turn]).stdin("mine\n").ends().is(1);
        assert!(ran.stdout().contains("STALE_FILE"), "{}", ran.stdout());
    }
}

//! Real programs that read a file, and write it after another program has changed it.

use super::{SAVES, go, interrupted, ledger, payloads, run, world};
use crate::hook::{Program, Tool};
use crate::world::{hash, until};

/// Programs that read `f`, pause, and write or delete it.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("sed", &["sed", "-i", "-e", "1e ../pause", "-e", "s/one/two/", "f"]),
    ("perl", &["perl", "-pi", "-e", "system('../pause') if $. == 1; s/one/two/", "f"]),
    (
        "python",
        &[
            "python3",
            "-c",
            "import subprocess\nt = open('f').read()\nsubprocess.run('../pause')\nopen('f', 'w').write(t.replace('one', 'two'))",
        ],
    ),
    (
        "node",
        &[
            "node",
            "-e",
            "const fs = require('fs'); const t = fs.readFileSync('f', 'utf8'); \
             require('child_process').execFileSync('../pause'); fs.writeFileSync('f', t.replace('one', 'two'))",
        ],
    ),
    (
        "node by rename",
        &[
            "node",
            "-e",
            "const fs = require('fs'); const t = fs.readFileSync('f', 'utf8'); \
             require('child_process').execFileSync('../pause'); fs.writeFileSync('t', t.replace('one', 'two')); \
             fs.renameSync('t', 'f')",
        ],
    ),
    (
        "awk",
        &[
            "sh",
            "-c",
            "awk 'NR == 1 { system(\"../pause\") } { sub(/one/, \"two\"); print }' f > t && mv t f",
        ],
    ),
    ("mv", &["sh", "-c", "cat f > /dev/null; ../pause; echo two > t; mv t f"]),
    ("cp", &["sh", "-c", "cat f > /dev/null; ../pause; echo two > t; cp t f"]),
    ("rm", &["sh", "-c", "cat f > /dev/null; ../pause; rm -f f && ! [ -e f ]"]),
    ("git checkout", &["sh", "-c", "cat f > /dev/null; ../pause; git checkout -q two -- f"]),
];

fn with_git() -> crate::world::World {
    let world = world();
    let script = "git init -q . && git config user.email a@b && git config user.name a && git add f && git commit -qm one \
                  && git checkout -qb two && echo two > f && git commit -qam two && git checkout -q -";
    world.script(script).ends().is(0);
    world
}

#[test]
fn a_program_that_would_overwrite_an_unseen_change_is_refused() {
    for (name, words) in PROGRAMS {
        for save in SAVES {
            let world = with_git();
            let ran = interrupted(&world, "gate", words, || save(&world, "foreign\n"));
            let told = ran.to_string();
            world.holds("f", "foreign\n");
            let payloads = payloads(ran);
            assert_eq!(payloads.len(), 1, "{name}: {told}");
            assert_eq!(payloads[0]["error_type"], "STALE_FILE", "{name}");
            assert_eq!(payloads[0]["file_path"], world.path("f").to_str().unwrap(), "{name}");
            assert_eq!(payloads[0]["expected_hash"], hash("one\n"), "{name}");
            assert_eq!(payloads[0]["actual_hash"], hash("foreign\n"), "{name}");
            assert_eq!(ledger(&world, "MUTATION_CONFLICT").len(), 1, "{name}: one line for each stale file");
        }
    }
}

#[test]
fn the_same_programs_on_an_unchanged_file_work_as_without_a_guard() {
    for (name, words) in PROGRAMS {
        let world = with_git();
        let ran = interrupted(&world, "gate", words, || {}).is(0);
        assert_eq!(ran.stderr(), "", "{name}");
        if *name == "rm" {
            assert!(!world.path("f").exists());
        } else {
            world.holds("f", "two\n");
        }
        assert_eq!(ledger(&world, "MUTATION_CONFLICT").len(), 0, "{name}");
        let lines = ledger(&world, "MUTATION");
        let lines: Vec<_> = lines.iter().filter(|line| line["payload"]["target_file"] == "f").collect();
        assert_eq!(lines.len(), 1, "{name}: {lines:?}");
        let payload = &lines[0]["payload"];
        assert_eq!((&payload["via"], &payload["level"]), (&"run".into(), &"gate".into()), "{name}");
        assert_eq!(payload["hash_before"], format!("sha256:{}", hash("one\n")), "{name}");
    }
}

#[test]
fn a_file_that_did_not_change_in_its_bytes_is_not_stale() {
    let world = world();
    let words = ["sh", "-c", "cat f > /dev/null; ../pause; echo two > f"];
    interrupted(&world, "gate", &words, || SAVES[1](&world, "one\n")).is(0);
    world.holds("f", "two\n");
}

#[test]
fn a_command_that_does_not_look_is_compared_with_what_the_agent_knows() {
    for words in [&["sh", "-c", "echo two > f"][..], &["tee", "f"], &["rm", "f"], &["truncate", "-s0", "f"]] {
        let world = world();
        let turn = world.turn("blue");
        world.run(&format!("read f --turn {turn}")).is(0);
        let gate = |words: &[&str]| {
            let all = [&["run", "--mode", "gate", "--turn", turn.as_str(), "--"], words].concat();
            world.tollgate(all).ends()
        };
        world.puts("f", "foreign\n");
        assert_eq!(payloads(gate(words))[0]["expected_hash"], hash("one\n"), "{words:?}");
        world.holds("f", "foreign\n");
        // A read in a command is a read of the agent.
        gate(&["cat", "f"]).is(0);
        gate(words).is(0);
    }
}

#[test]
fn what_a_command_writes_is_what_its_agent_knows() {
    let world = world();
    let turn = world.turn("blue");
    let line = format!("run --mode gate --turn {turn} -- tee f g");
    world.tollgate(line.split(' ')).stdin("mine\n").ends().is(0);
    let shown = world.json(&format!("turn show --turn {turn}"));
    let baseline = |path: &str| {
        let path = world.path(path);
        let files = shown["files"].as_array().unwrap().iter();
        files
            .filter(|file| file["path"] == path.to_str().unwrap())
            .map(|file| file["baseline_hash"].clone())
            .next()
    };
    assert_eq!(baseline("f"), Some(hash("mine\n").into()));
    assert_eq!(baseline("g"), Some(hash("mine\n").into()));
    world.tollgate(["write", "f", "--turn", &turn]).stdin("next\n").ends().is(0);
}

#[test]
fn a_change_that_comes_after_the_command_has_written_is_not_what_its_agent_knows() {
    let world = world();
    let turn = world.turn("blue");
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the program to pause", || world.tmp().join("ready").exists().then_some(()));
            world.puts("f", "foreign\n");
            go(&world);
        });
        world
            .tollgate(["run", "--mode", "gate", "--turn", &turn, "--", "sh", "-c", "echo two > f; ../pause"])
            .ends()
    });
    ran.is(0);
    let line = &ledger(&world, "MUTATION")[0]["payload"];
    assert_eq!(line["hash_after"], format!("sha256:{}", hash("two\n")));
    let ran = world.tollgate(["write", "f", "--turn", &turn, "--json"]).stdin("next\n").ends();
    assert_eq!(ran.payload("STALE_FILE", "RE_READ_REQUIRED")["expected_hash"], hash("two\n"));
}

#[test]
fn a_command_may_write_its_own_files_as_often_as_it_wants() {
    let world = world();
    let script = "echo a > f; echo b >> f; cat f > t; mv t f; echo c >> f; sed -i s/a/x/ f; cp f g; mv g h; rm h; \
                  mkdir d && echo d > d/a && mv d e && echo e > e/a && rm -r e; exec 3>> f; echo 4 >> f; echo 5 >&3; \
                  truncate -s2 g; truncate -s3 g; echo g > g; echo h > ../h; mv ../h g; echo i > g; ln f h; ln ../ready h2; echo j > h2; \
                  truncate -s0 g; echo k > g; rm g h h2";
    std::fs::write(world.tmp().join("ready"), "").unwrap();
    let ran = run(&world, "gate", &["sh", "-ec", script]).is(0);
    assert_eq!(ran.stderr(), "");
    world.holds("f", "x\nb\nc\n4\n5\n");
    // What is as it was before is no change, and the changes of `f` follow one another.
    let mut known = format!("sha256:{}", hash("one\n"));
    for line in ledger(&world, "MUTATION") {
        assert_eq!(
            (&line["payload"]["target_file"], &line["payload"]["hash_before"]),
            (&"f".into(), &known.into())
        );
        known = line["payload"]["hash_after"].as_str().unwrap().to_owned();
    }
    assert_eq!(known, format!("sha256:{}", hash("x\nb\nc\n4\n5\n")));
}

#[test]
fn an_unseen_change_between_two_writes_of_a_command_is_not_overwritten() {
    for save in SAVES {
        let world = world();
        let words = ["sh", "-c", "echo two > f; ../pause; echo three > f"];
        let payloads = payloads(interrupted(&world, "gate", &words, || save(&world, "foreign\n")));
        assert_eq!(payloads[0]["expected_hash"], hash("two\n"));
        world.holds("f", "foreign\n");
    }
}

#[test]
fn a_file_that_came_in_the_place_of_one_that_the_command_has_open_is_not_overwritten() {
    let world = world();
    let words = ["sh", "-c", "exec 3>> f; ../pause; echo two > f"];
    let payloads = payloads(interrupted(&world, "gate", &words, || SAVES[1](&world, "foreign\n")));
    assert_eq!(payloads[0]["expected_hash"], hash("one\n"));
    world.holds("f", "foreign\n");
}

#[test]
fn a_command_that_reads_again_and_succeeds_is_not_refused_in_the_end() {
    let world = world();
    let words =
        ["sh", "-c", "cat f > /dev/null; ../pause; echo two > f || { cat f > /dev/null; echo three > f; }"];
    interrupted(&world, "gate", &words, || world.puts("f", "foreign\n")).is(0);
    world.holds("f", "three\n");
    assert_eq!(ledger(&world, "MUTATION_CONFLICT").len(), 1);
}

#[test]
fn a_command_that_ignores_the_error_is_refused_all_the_same_and_told_once() {
    let world = world();
    let words = ["sh", "-c", "cat f > /dev/null; ../pause; for i in 1 2 3; do echo two > f; done; exit 0"];
    let payloads = payloads(interrupted(&world, "gate", &words, || world.puts("f", "foreign\n")));
    assert_eq!(payloads.len(), 1);
    assert_eq!(ledger(&world, "MUTATION_CONFLICT").len(), 1);
}

#[test]
fn an_append_keeps_both_changes() {
    let world = world();
    let words = ["sh", "-c", "cat f > /dev/null; ../pause; echo two >> f"];
    interrupted(&world, "gate", &words, || world.puts("f", "foreign\n")).is(0);
    world.holds("f", "foreign\ntwo\n");
}

/// The refusal of the stale write cannot be recorded, because a folder is in the way.
#[test]
fn a_call_that_tollgate_cannot_judge_fails_and_the_command_says_so() {
    let world = world();
    let words = ["sh", "-c", "cat f > /dev/null; ../pause; echo two > f"];
    let ran = interrupted(&world, "gate", &words, || {
        world.puts("f", "foreign\n");
        let _ = std::fs::remove_file(world.path(".tollgate/ledger.jsonl"));
        std::fs::create_dir(world.path(".tollgate/ledger.jsonl")).unwrap();
    });
    world.holds("f", "foreign\n");
    assert_ne!(ran.code(), Some(0), "{ran}");
    assert!(ran.stderr().contains("tollgate could not judge it"), "{ran}");
}

#[test]
fn a_file_that_the_tool_of_another_agent_is_about_to_write_is_busy() {
    let world = world();
    world.puts(".tollgate/config.toml", "[guard]\nlock_wait = \"100ms\"\n");
    let red = Program::new(&world, "claude-code", "red");
    red.reads("f");
    assert_eq!(red.asks(&red.before(&Tool::Write("f", "red\n"), "c")), None);
    let ran = run(&world, "gate", &["sh", "-c", "echo two > f"]);
    assert!(ran.stderr().contains("Device or resource busy"), "{ran}");
    assert_eq!(payloads(ran)[0]["error_type"], "FILE_BUSY");
    world.holds("f", "one\n");
}

#[test]
fn git_works() {
    let world = world();
    let script = "git init -q . && git config user.email a@b && git config user.name a && git add f && git commit -qm one \
                  && git checkout -qb two && echo two > f && git commit -qam two && git checkout -q - && git merge -q two \
                  && echo three > f && git stash -q && git stash pop -q && git reset -q --hard && git branch -D two -q \
                  && git gc -q && git status --porcelain";
    let ran = run(&world, "gate", &["sh", "-c", script]).is(0);
    assert_eq!((ran.stdout(), ran.stderr()), ("?? .tollgate/\n".into(), String::new()));
    world.holds("f", "two\n");
}

#[test]
fn other_commands_see_what_the_command_writes_at_once() {
    let world = world();
    let words = ["sh", "-c", "echo two > f; ../pause"];
    interrupted(&world, "gate", &words, || world.holds("f", "two\n")).is(0);
}

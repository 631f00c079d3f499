//! `ledger tail` and `ledger verify`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use crate::world::{PATIENCE, World};

/// A workspace with four lines in its ledger.
fn eventful() -> World {
    let world = World::new();
    world.puts("a", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.puts("a", "two\n");
    world.tollgate(["write", "a", "--turn", &turn]).stdin("x").ends().is(1);
    world.tollgate(["write", "a", "--agent", "red"]).stdin("x").ends().is(0);
    world.tollgate(["move", "a", "b", "--agent", "red"]).ends().is(0);
    world
}

#[test]
fn tail_shows_the_requested_lines() {
    let world = eventful();
    insta::assert_snapshot!(world.run("ledger tail").filtered, @r#"
    exit 0
    --- stdout
         1  [TIME]  blue  TURN_STARTED  OK
         2  [TIME]  blue  MUTATION_CONFLICT  a  DENIED  STALE_FILE
         3  [TIME]  red  MUTATION  a  APPLIED
         4  [TIME]  red  MUTATION  a -> b  APPLIED
    "#);
    insta::assert_snapshot!(world.run("ledger tail -n 1").filtered, @r#"
    exit 0
    --- stdout
         4  [TIME]  red  MUTATION  a -> b  APPLIED
    "#);
    insta::assert_snapshot!(world.run("ledger tail --agent blue --type mutation_conflict").filtered, @r#"
    exit 0
    --- stdout
         2  [TIME]  blue  MUTATION_CONFLICT  a  DENIED  STALE_FILE
    "#);
    insta::assert_snapshot!(world.run("ledger tail --type NONSENSE").filtered, @r#"
    exit 2
    --- stderr
    error: invalid value 'NONSENSE' for '--type <TYPE>'
      [possible values: MUTATION_CONFLICT, MUTATION_REFUSED, MUTATION, COMMIT, LATE_EXTERNAL_WRITE, RESERVATION_EXPIRED, CLAIM, CLAIM_LOST, CLAIM_FAILED, RENEW, RELEASE, APPROVAL, RECLAIM, BREAKER, TURN_STARTED, TURN_ENDED, LEDGER_HEALED]

    For more information, try '--help'.
    "#);
    assert_eq!(world.run("ledger tail -n 0").is(0).stdout(), "");
    let by_environment = world.tollgate(["ledger", "tail"]).env("TOLLGATE_AGENT", "blue").ends();
    assert_eq!(by_environment.stdout().lines().count(), 4, "only an argument filters the lines");
}

#[test]
fn tail_in_json_is_a_list_of_the_unchanged_lines() {
    let world = eventful();
    let lines = world.json("ledger tail --type MUTATION_CONFLICT");
    let file = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap();
    let line: Value = serde_json::from_str(file.lines().nth(1).unwrap()).unwrap();
    assert_eq!(lines, json!([line]));
    assert_eq!(line["payload"]["target_file"], "a");
    assert_eq!(World::new().json("ledger tail"), json!([]));
}

#[test]
fn tail_follows() {
    for form in ["words", "json"] {
        let world = eventful();
        let mut words = vec!["ledger", "tail", "-f", "-n", "1", "--type", "MUTATION"];
        if form == "json" {
            words.push("--json");
        }
        let mut run = world.tollgate(words);
        let mut child = run.command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        let reader = thread::spawn(move || {
            // Closes the pipe after the second line.
            for line in stdout.lines().take(2) {
                send.send(line.unwrap()).unwrap();
            }
        });
        let first = lines.recv_timeout(PATIENCE).unwrap();
        assert!(first.contains('b'), "{first}");
        world.tollgate(["create", "fresh"]).stdin("x").ends().is(0);
        let second = lines.recv_timeout(PATIENCE).unwrap();
        assert!(second.contains("fresh"), "{second}");
        if form == "json" {
            serde_json::from_str::<Value>(&second).unwrap();
        }
        reader.join().unwrap();
        // The reader is gone, so the command ends, even without another line.
        let id = rustix::process::Pid::from_child(&child);
        let (send, ended) = mpsc::channel();
        thread::spawn(move || send.send(child.wait()));
        match ended.recv_timeout(PATIENCE) {
            Ok(status) => assert_eq!(status.unwrap().code(), Some(0)),
            Err(_) => {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
                panic!("it still runs although the reader is gone");
            }
        }
    }
}

#[test]
fn verify_finds_nothing_in_an_untouched_ledger() {
    let world = eventful();
    let verdict = world.json("ledger verify");
    assert_eq!(
        (&verdict["valid"], &verdict["lines"], &verdict["problem"]),
        (&true.into(), &4.into(), &Value::Null)
    );
    assert_eq!(verdict["head"], verdict["remembered"]);
    let head = verdict["head"]["hash"].as_str().unwrap()[..8].to_owned();
    insta::assert_snapshot!(world.run("ledger verify").filtered.replace(&head, "[HEAD]"), @r#"
    exit 0
    --- stdout
    valid: 4 lines, last line 4 ([HEAD])
    "#);
    let elsewhere =
        world.tollgate(["ledger", "verify"]).env("XDG_STATE_HOME", world.tmp().join("other")).ends();
    insta::assert_snapshot!(elsewhere.filtered.replace(&head, "[HEAD]"), @r#"
    exit 0
    --- stdout
    valid: 4 lines, last line 4 ([HEAD])
    note: a truncated end cannot be detected this time, because you have not seen this ledger before
    "#);
    insta::assert_snapshot!(World::new().run("ledger verify").filtered, @r#"
    exit 0
    --- stdout
    valid: the ledger is empty
    "#);
}

#[test]
fn verify_reports_how_the_ledger_was_damaged() {
    let mut said = String::new();
    type Damage = fn(&mut Vec<String>);
    let damages: [(&str, Damage); 6] = [
        ("edited", |lines| lines[1] = lines[1].replace("\"a\"", "\"z\"")),
        ("removed", |lines| drop(lines.remove(1))),
        ("reordered", |lines| lines.swap(1, 2)),
        ("not a line", |lines| lines[1] = "hello".into()),
        ("cut", |lines| lines.truncate(2)),
        ("emptied", Vec::clear),
    ];
    for (name, damage) in damages {
        let world = eventful();
        let path = world.path(".tollgate/ledger.jsonl");
        let mut lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        damage(&mut lines);
        fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        said += &format!("{name}: {}\n", world.run("ledger verify").is(1).filtered);
        let json = world.run("ledger verify --json").is(1).json();
        assert_eq!(json["valid"], false);
        assert!(json["problem"]["wrong"].is_string());
    }
    insta::assert_snapshot!(said, @r#"
    edited: exit 1
    --- stdout
    not valid: line 2 was edited (`.tollgate/ledger.jsonl`, line 2)
    hint: compare with a copy of the ledger, if you have one; to set this one aside and start a new one: `mkdir -p '[W]/.tollgate/ledger.old' && mv -n '[W]/.tollgate'/ledger*.jsonl '[W]/.tollgate/ledger.old'`
    removed: exit 1
    --- stdout
    not valid: line 2 was removed (`.tollgate/ledger.jsonl`, before line 2)
    hint: compare with a copy of the ledger, if you have one; to set this one aside and start a new one: `mkdir -p '[W]/.tollgate/ledger.old' && mv -n '[W]/.tollgate'/ledger*.jsonl '[W]/.tollgate/ledger.old'`
    reordered: exit 1
    --- stdout
    not valid: line 3 is not in its place (`.tollgate/ledger.jsonl`, line 2)
    hint: compare with a copy of the ledger, if you have one; to set this one aside and start a new one: `mkdir -p '[W]/.tollgate/ledger.old' && mv -n '[W]/.tollgate'/ledger*.jsonl '[W]/.tollgate/ledger.old'`
    not a line: exit 1
    --- stdout
    not valid: line 2 is not a ledger line (`.tollgate/ledger.jsonl`, line 2)
    hint: compare with a copy of the ledger, if you have one; to set this one aside and start a new one: `mkdir -p '[W]/.tollgate/ledger.old' && mv -n '[W]/.tollgate'/ledger*.jsonl '[W]/.tollgate/ledger.old'`
    cut: exit 1
    --- stdout
    not valid: the end was cut off: lines 3 to 4 are missing (`.tollgate/ledger.jsonl`)
    hint: if you know why, accept the ledger as it is by deleting its remembered end: `rm '[TMP]/state/tollgate/heads/[WORKSPACE]'`; otherwise look for a copy of the ledger
    emptied: exit 1
    --- stdout
    not valid: the end was cut off: lines 1 to 4 are missing (`.tollgate/ledger.jsonl`)
    hint: if you know why, accept the ledger as it is by deleting its remembered end: `rm '[TMP]/state/tollgate/heads/[WORKSPACE]'`; otherwise look for a copy of the ledger
    "#);
}

#[test]
fn a_truncated_ledger_can_be_accepted_as_the_hint_says() {
    let world = eventful();
    let path = world.path(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let kept: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    fs::write(&path, kept).unwrap();
    let refused = world.run("ledger verify").is(1).stdout();
    let command = refused.split('`').find(|text| text.starts_with("rm ")).unwrap().to_owned();
    // Later lines do not hide it.
    world.tollgate(["create", "later"]).stdin("x").ends().is(0);
    world.run("ledger verify").is(1);
    world.script(&command).ends().is(0);
    world.run("ledger verify").is(0);
}

#[test]
fn a_damaged_line_does_not_hide_the_others() {
    let world = eventful();
    let path = world.path(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap().replacen("{\"seq\":2", "\x1b[2J", 1);
    fs::write(&path, text).unwrap();
    insta::assert_snapshot!(world.run("ledger tail").filtered, @r#"
    exit 0
    --- stdout
         1  [TIME]  blue  TURN_STARTED  OK
         3  [TIME]  red  MUTATION  a  APPLIED
         4  [TIME]  red  MUTATION  a -> b  APPLIED
    --- stderr
    warning: skipped 1 unreadable line
    hint: run `tollgate ledger verify` to see the first
    "#);
}

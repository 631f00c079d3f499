//! Eight clones, many tasks, and everything that can go wrong: workers that are killed, clones that are offline, a remote
//! that refuses, hangs, or dies after it has taken a push. `TOLLGATE_GIT_CROWD=tasks,clones` changes the size; `100,8` is
//! the full one.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Remote, git, tollgate};
use crate::chance::{Dice, executable, size};
use crate::world::{Process, World};

/// Records when the work on a task begins and ends, in one file for all clones.
const COMMAND: &str = r#"#!/bin/sh
echo "began $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS"
sleep 0.0$(($$ % 10))
echo "ended $TOLLGATE_TASK_ID $TOLLGATE_CLAIM_ID" >> "$WITNESS"
"#;

/// The remote's hooks, which sometimes refuse, hang or die.
const TROUBLE: &str = r#"#!/bin/sh
mood=$(cat MOOD 2>/dev/null)
case "$(basename "$0") $mood $1" in
    "pre-receive refuse "*) echo "come back later" >&2; exit 1 ;;
    "pre-receive hang "*) exec sleep 1000 ;;
    "reference-transaction die committed") kill -9 $PPID ;;
esac
exit 0
"#;

#[test]
fn eight_clones_and_everything_that_can_go_wrong() {
    let (tasks, clones) = size("TOLLGATE_GIT_CROWD", (24, 8));
    let remote = Remote::with_tasks(tasks);
    for hook in ["pre-receive", "reference-transaction"] {
        executable(&remote.path.join("hooks").join(hook), TROUBLE);
    }
    let worlds: Vec<World> =
        (0..clones).map(|_| remote.clone("lease = \"4000ms\"\nremote_timeout = \"1500ms\"\n")).collect();
    let witness = worlds[0].tmp().join("witness");
    let command = worlds[0].tmp().join("command");
    executable(&command, COMMAND);
    let start = |n: usize| {
        let mut run = tollgate(&worlds[n], &format!("work --agent a{n} --interval 1 --"));
        run.command.arg(&command);
        run.env("WITNESS", &witness).starts()
    };
    let mood = |mood: &str| fs::write(remote.path.join("MOOD"), mood).unwrap();
    let url = |n: usize, url: &str| git(&worlds[n].root(), &["remote", "set-url", "origin", url]);
    let mut crew: Vec<Process> = (0..clones).map(start).collect();
    let mut dice = Dice::new();
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    let mut offline: Vec<usize> = Vec::new();
    let began = Instant::now();
    while remote.done() < tasks {
        assert!(began.elapsed() < Duration::from_secs(900), "{} of {tasks} done", remote.done());
        // The pace of the faults, not a synchronisation.
        std::thread::sleep(Duration::from_millis(300));
        let what = match dice.roll(8) {
            0..=2 => {
                let n = dice.roll(clones);
                crew[n].signal(Signal::KILL);
                crew[n].ends();
                crew[n] = start(n);
                "killed"
            }
            3 => {
                let n = dice.roll(clones);
                url(n, "file:///nowhere/at/all.git");
                offline.push(n);
                "offline"
            }
            4 => {
                mood("refuse");
                "refused"
            }
            5 => {
                mood("hang");
                "hung"
            }
            6 => {
                mood("die");
                "died"
            }
            _ => "nothing",
        };
        *tally.entry(what).or_default() += 1;
        if dice.roll(3) > 0 {
            mood("");
        }
        if offline.len() > 2 || dice.roll(3) == 0 {
            for n in offline.drain(..) {
                url(n, &remote.url());
            }
        }
    }
    let took = began.elapsed();
    mood("");
    for (n, worker) in crew.iter_mut().enumerate() {
        url(n, &remote.url());
        worker.signal(Signal::TERM);
    }
    for worker in &mut crew {
        worker.ends();
    }
    println!("{tasks} tasks, {clones} clones, {took:?}: {tally:?}");

    let mut expected: Vec<String> = (0..tasks).map(|n| format!("Done/t{n}.md")).collect();
    expected.sort();
    assert_eq!(remote.on_branch(), expected, "every task done, and in one place");
    assert_eq!(remote.merges(), 0);
    // A worker that was killed while it tested the remote has left its test refs, and the doctor deletes them.
    tollgate(&worlds[0], "doctor").ends();
    assert_eq!(remote.cards(), 0, "no claim is left");
    assert_eq!(remote.count_of(" to Done"), tasks, "each was finished once");
    for n in 0..tasks {
        let text = git(&remote.path, &["show", &format!("main:vault/Done/t{n}.md")]);
        assert!(text.starts_with("# Test Task\n<!-- tollgate "), "{text}");
        assert_eq!(text.matches("**Result**: success").count(), 1, "{text}");
    }
    one_at_a_time(&fs::read_to_string(&witness).unwrap());
}

/// Checks the workers' record, which is in order: while one works on a task, nobody else begins it. A killed worker records
/// no end.
fn one_at_a_time(record: &str) {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for line in record.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, task, claim] = words[..] else { panic!("{line}") };
        if what == "began" {
            last.insert(task, claim);
        } else {
            assert_eq!(last[task], claim, "another had begun `{task}` before this one had ended");
        }
    }
}

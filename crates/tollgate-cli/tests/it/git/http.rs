//! The same over smart HTTP, a transport with other ways to lose an answer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Remote, tollgate};

/// A server for one repository, until it is dropped.
struct Bridge(Child, String);

impl Bridge {
    fn before(remote: &Remote) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/git/bridge.py");
        let mut child =
            Command::new("python3").arg(script).arg(&remote.path).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self(child, format!("http://127.0.0.1:{}/r.git", port.trim()))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn over_http_two_clones_share_the_tasks() {
    let remote = Remote::with_tasks(8);
    let bridge = Bridge::before(&remote);
    let worlds: Vec<_> = (0..2).map(|_| remote.clone_from(&bridge.1, "")).collect();
    let witness = worlds[0].tmp().join("witness");
    let mut workers: Vec<_> = worlds
        .iter()
        .enumerate()
        .map(|(n, world)| {
            let mut run = tollgate(world, &format!("work --once --agent a{n} --"));
            run.command.args(["sh", "-c", r#"echo "$TOLLGATE_TASK_ID" >> "$WITNESS""#]);
            run.env("WITNESS", &witness).starts()
        })
        .collect();
    for worker in &mut workers {
        assert!(worker.ends().success());
    }
    let record = fs::read_to_string(witness).unwrap();
    let mut lines: Vec<&str> = record.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!((record.lines().count(), lines.len()), (8, 8), "each once: {record}");
    assert_eq!((remote.done(), remote.cards(), remote.merges()), (8, 0, 0));
}

#[test]
fn over_http_a_cut_answer_is_settled_by_looking_again() {
    let remote = Remote::with_tasks(1);
    let bridge = Bridge::before(&remote);
    let world = remote.clone_from(&bridge.1, "");
    tollgate(&world, "sync").ends().is(0);
    let cut = remote.path.join("cut");
    fs::write(&cut, "").unwrap();
    let claimed = tollgate(&world, "task claim t0 --agent blue --json").ends().is(0).json();
    assert!(!cut.exists(), "the answer to the claim was thrown away");
    assert_eq!(remote.on_branch(), ["In_Progress/blue/t0.md"]);
    fs::write(&cut, "").unwrap();
    let id = claimed["claim_id"].as_str().unwrap();
    let done = tollgate(&world, &format!("task release t0 --claim-id {id} --json")).ends().is(0).json();
    assert!(!cut.exists());
    assert_eq!(done["state"], "Done");
    assert_eq!((remote.on_branch(), remote.cards()), (vec!["Done/t0.md".to_owned()], 0));
    assert_eq!(remote.count_of("t0"), 2, "one claim and one release");
}

#[test]
fn over_http_a_server_that_hangs_is_left_in_time() {
    let remote = Remote::with_tasks(1);
    let bridge = Bridge::before(&remote);
    let world = remote.clone_from(&bridge.1, "remote_timeout = \"1500ms\"\n");
    tollgate(&world, "sync").ends().is(0);
    fs::write(remote.path.join("hang"), "").unwrap();
    let fault = tollgate(&world, "task claim t0 --agent blue --json").ends().is(3).fault("REMOTE_REFUSED");
    assert!(fault["message"].as_str().unwrap().contains("does not answer"), "{fault}");
    assert_eq!(remote.on_branch(), ["Needs_Action/t0.md"]);
    fs::remove_file(remote.path.join("hang")).unwrap();
    tollgate(&world, "task claim t0 --agent blue").ends().is(0);
}

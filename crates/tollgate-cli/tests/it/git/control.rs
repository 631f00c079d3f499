//! The contract's own loop compared with tollgate, with the same clones and the same tasks. The loop does some tasks more
//! than once, which shows that the test can notice it; tollgate does each once. The ratio of the times is only printed,
//! because machines differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Remote, git, tollgate};
use crate::world::World;

const CLONES: usize = 3;
const TASKS: usize = 20;

/// How often each task was done.
fn worked(witness: &Path) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for line in fs::read_to_string(witness).unwrap_or_default().lines() {
        let task = line.split(' ').next().unwrap_or_default();
        *times.entry(task.to_owned()).or_default() += 1;
    }
    times
}

/// The contract's loop: how often each task was done, and how long it took.
fn by_contract() -> (BTreeMap<String, usize>, Duration) {
    let remote = Remote::with_tasks(TASKS);
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("witness");
    let clones: Vec<String> = (0..CLONES)
        .map(|n| {
            let path = folder.path().join(format!("c{n}"));
            git(folder.path(), &["clone", "--quiet", &remote.url(), path.to_str().unwrap()]);
            git(&path, &["config", "user.name", "worker"]);
            git(&path, &["config", "user.email", "worker@example.org"]);
            path.to_str().unwrap().to_owned()
        })
        .collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/git/contract.py");
    let began = Instant::now();
    let children: Vec<_> = clones
        .iter()
        .enumerate()
        .map(|(n, clone)| {
            let mut python = Command::new("python3");
            python.arg(&script).arg(clone).arg(format!("a{n}")).arg(&witness).arg(CLONES.to_string());
            python.spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    (worked(&witness), began.elapsed())
}

/// The same with tollgate.
fn by_tollgate() -> (BTreeMap<String, usize>, Duration) {
    let remote = Remote::with_tasks(TASKS);
    let clones: Vec<World> = (0..CLONES).map(|_| remote.clone("lease = \"60s\"\n")).collect();
    let witness = clones[0].tmp().join("witness");
    // The clones of the contract's loop are also set up before the time is measured.
    for world in &clones {
        tollgate(world, "sync").ends().is(0);
    }
    let began = Instant::now();
    let mut workers: Vec<_> = clones
        .iter()
        .enumerate()
        .map(|(n, world)| {
            let mut run = tollgate(world, &format!("work --once --agent a{n} --"));
            run.command.args(["sh", "-c", r#"echo "$TOLLGATE_TASK_ID $TOLLGATE_AGENT" >> "$WITNESS""#]);
            run.env("WITNESS", &witness).starts()
        })
        .collect();
    for worker in &mut workers {
        assert!(worker.ends().success());
    }
    let took = began.elapsed();
    let expected: Vec<String> = {
        let mut names: Vec<String> = (0..TASKS).map(|n| format!("Done/t{n}.md")).collect();
        names.sort();
        names
    };
    assert_eq!(remote.on_branch(), expected, "all done, each in one place");
    assert_eq!((remote.cards(), remote.merges()), (0, 0));
    assert_eq!((remote.count_of(" claims "), remote.count_of(" releases ")), (TASKS, TASKS));
    (worked(&witness), took)
}

#[test]
fn three_clones_do_each_of_twenty_tasks_once_unlike_the_contracts_loop() {
    let (control, without) = by_contract();
    let twice = control.values().filter(|times| **times > 1).count();
    let runs: usize = control.values().sum();
    assert!(twice > 0, "the control shows nothing: {control:?}");
    let (ours, with) = by_tollgate();
    assert_eq!(ours.len(), TASKS);
    assert!(ours.values().all(|times| *times == 1), "{ours:?}");
    println!(
        "the contract's loop: {runs} runs for {TASKS} tasks, {twice} worked more than once, {without:?}; \
         tollgate: {TASKS} runs, {with:?}, {:.1} times as long",
        with.as_secs_f64() / without.as_secs_f64()
    );
}

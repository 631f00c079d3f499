//! The cost of tasks, each figure compared with a baseline in the same run.
//!
//! `cargo bench -p tollgate-cli --bench tasks`; `TOLLGATE_BENCH=small` for a quick look. Needs `python3`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark may")]

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate::ledger::Ledger;
use tollgate::settings::Durability;
use tollgate::tasks::LedgerJournal;
use tollgate::vault::{ClaimKind, ClaimRequest, FolderOptions, FolderStore, Release, Terms, Vault};

const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");
const PROCESSES: usize = 4;

/// A shared machine can be half as fast from one second to the next, so each figure is measured this often.
const ROUNDS: usize = 11;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let word = |at: usize| words.get(at).map(String::as_str);
    // The benchmark starts itself as several processes.
    match word(1) {
        Some("worker") => return worker(Path::new(word(2).unwrap()), word(3).unwrap(), word(4).unwrap()),
        Some("bare") => return bare(Path::new(word(2).unwrap())),
        _ => {}
    }
    let small = std::env::var_os("TOLLGATE_BENCH").is_some();
    let scale = |number: usize| if small { number / 10 } else { number };
    let folders = Folders::new();
    println!("| what | tollgate | compared with | ratio | aim |");
    println!("|---|---|---|---|---|");
    claim_and_release(&folders, scale(10_000));
    durable(&folders, scale(2_000));
    claim_next(&folders.make(), scale(100_000));
    pick_up(&folders.make(), scale(200));
}

/// The folders of the benchmark, on the disk of the build folder, because `/tmp` may be in memory. They are deleted at the
/// end: for a minute after ten thousand files were deleted, ext4 takes much longer to create one.
struct Folders(tempfile::TempDir, Cell<usize>);

impl Folders {
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), Cell::new(0))
    }

    fn make(&self) -> PathBuf {
        let folder = self.0.path().join(self.1.replace(self.1.get() + 1).to_string());
        fs::create_dir(&folder).unwrap();
        folder
    }
}

/// Tasks that are old enough to be complete.
fn fill(vault: &Path, tasks: usize) {
    for state in ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"] {
        fs::create_dir_all(vault.join(state)).unwrap();
    }
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    for number in 0..tasks {
        let path = vault.join(format!("Needs_Action/task-{number:06}.md"));
        let mut file = File::create(path).unwrap();
        write!(file, "---\naction: triage\npriority: normal\n---\n# Task {number}\n\nSome text about it.\n")
            .unwrap();
        file.set_modified(old).unwrap();
    }
    rustix::fs::sync();
}

fn open(vault: &Path, durability: Durability) -> Vault {
    let state = vault.join(".tollgate");
    fs::create_dir_all(&state).unwrap();
    let ledger = Ledger::new(&state, &state.join("lock"), 64 << 20, None);
    let journal = Arc::new(LedgerJournal::new(ledger, "bench".into(), durability, None));
    let options = FolderOptions { durability, ..FolderOptions::new(journal) };
    Vault::new(Arc::new(FolderStore::open(vault, options).unwrap()), Terms::default())
}

/// Claims, verifies and releases until no task is left.
fn worker(vault: &Path, agent: &str, durability: &str) {
    let durability = if durability == "fast" { Durability::Fast } else { Durability::Durable };
    let vault = open(vault, durability);
    let asked = ClaimRequest { agent: agent.parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
    let mut done = 0;
    loop {
        let mut queue = vault.queue(&asked, Timestamp::now()).unwrap();
        if queue.is_empty() {
            break;
        }
        while let Some(claimed) = vault.next(&mut queue, &asked, Timestamp::now()) {
            assert!(vault.verify(&claimed.task, &claimed.claim.id, Timestamp::now()).unwrap());
            let released =
                vault.release(&claimed.task, &claimed.claim.id, &Release::success(), Timestamp::now());
            assert!(released.unwrap().is_ok());
            done += 1;
        }
    }
    println!("{done}");
}

fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    format!("{median:.2} ({least:.2} to {most:.2})")
}

fn medians(pairs: Vec<(f64, f64)>) -> (f64, f64) {
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (ours, theirs) = pairs.into_iter().unzip();
    (middle(ours), middle(theirs))
}

fn race(start: impl Fn(usize) -> Command) -> (usize, f64) {
    let began = Instant::now();
    let spawn = |number| start(number).stdout(Stdio::piped()).spawn().unwrap();
    let workers: Vec<Child> = (0..PROCESSES).map(spawn).collect();
    let number = |worker: Child| -> usize {
        let output = worker.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    let done = workers.into_iter().map(number).sum();
    (done, began.elapsed().as_secs_f64())
}

fn own(mode: &str, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(mode).args(words);
    command
}

fn claim_and_release(folders: &Folders, tasks: usize) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/contract.py");
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let folder = folders.make();
        fill(&folder, tasks);
        let (done, python) = race(|number| {
            let mut command = Command::new("python3");
            command.arg(&script).arg(&folder).arg(format!("agent-{number}"));
            command
        });
        assert_eq!(done, tasks);
        let folder = folders.make();
        fill(&folder, tasks);
        let vault = folder.to_str().unwrap();
        let (done, ours) = race(|number| own("worker", &[vault, &format!("agent-{number}"), "fast"]));
        assert_eq!(done, tasks);
        assert_eq!(fs::read_dir(folder.join("Done")).unwrap().count(), tasks);
        ratios.push(python / ours);
        rates.push((tasks as f64 / ours, tasks as f64 / python));
        println!("round {round}: ratio {:.2}", python / ours);
    }
    let (ours, python) = medians(rates);
    println!(
        "| claim, verify and release with `fast`, {PROCESSES} processes, {tasks} tasks, against a plain Python version of the \
         contract without its sleeps | {ours:.0} per second | {python:.0} per second | {} | at least 1.2 |",
        spread(ratios)
    );
}

/// The flushes that a plain durable claim and release need, twice each: the file's new bytes, its new folder, the ledger.
fn floor(folder: &Path, tasks: usize) -> f64 {
    let began = Instant::now();
    let ledger = File::options().create(true).append(true).open(folder.join("ledger")).unwrap();
    for number in 0..tasks {
        let name = format!("task-{number:06}.md");
        let mut from = folder.join("Needs_Action").join(&name);
        let mut file = File::options().append(true).open(&from).unwrap();
        for to in ["In_Progress", "Done"] {
            file.write_all(&[b'x'; 200]).unwrap();
            file.sync_data().unwrap();
            let to = folder.join(to);
            fs::rename(&from, to.join(&name)).unwrap();
            File::open(&to).unwrap().sync_all().unwrap();
            (&ledger).write_all(&[b'x'; 400]).unwrap();
            ledger.sync_data().unwrap();
            from = to.join(&name);
        }
    }
    began.elapsed().as_secs_f64()
}

fn durable(folders: &Folders, tasks: usize) {
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let folder = folders.make();
        fill(&folder, tasks);
        let floor = floor(&folder, tasks);
        let folder = folders.make();
        fill(&folder, tasks);
        let began = Instant::now();
        let status =
            own("worker", &[folder.to_str().unwrap(), "blue", "durable"]).stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
        let ours = began.elapsed().as_secs_f64();
        ratios.push(floor / ours);
        rates.push((tasks as f64 / ours, tasks as f64 / floor));
        println!("round {round}: ratio {:.2}", floor / ours);
    }
    let (ours, floor) = medians(rates);
    println!(
        "| claim, verify and release, durable, one process, against only the flushes of a plain durable claim and release | \
         {ours:.0} per second | {floor:.0} per second | {} | at least 0.6 |",
        spread(ratios)
    );
}

/// Lists the folder and calls stat on each file.
fn bare(folder: &Path) {
    let files =
        fs::read_dir(folder).unwrap().filter(|entry| entry.as_ref().unwrap().metadata().is_ok()).count();
    println!("{files}");
}

fn claim_next(folder: &Path, tasks: usize) {
    let vault = folder.join("vault");
    fill(&vault, tasks);
    let run = |words: &[&str]| {
        let mut command = Command::new(TOLLGATE);
        command.arg("-C").arg(folder).args(words).env("XDG_STATE_HOME", folder.join("state"));
        let began = Instant::now();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        began.elapsed().as_secs_f64()
    };
    run(&["init", "--vault"]);
    let cold = run(&["task", "claim", "--next", "--agent", "blue"]);
    let (mut ratios, mut times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        assert!(
            own("bare", &[vault.join("Needs_Action").to_str().unwrap()]).output().unwrap().status.success()
        );
        let theirs = began.elapsed().as_secs_f64();
        let ours = run(&["task", "claim", "--next", "--agent", "blue"]);
        ratios.push(ours / theirs);
        times.push((ours * 1e3, theirs * 1e3));
    }
    let (ours, theirs) = medians(times);
    println!(
        "| `task claim --next` with {tasks} waiting tasks, against reading the folder and the dates of its files | \
         {ours:.0} ms | {theirs:.0} ms | {} | at most 2.5 |",
        spread(ratios)
    );
    println!("| the same for the first time, when all files are read | {:.0} ms | | | |", cold * 1e3);
}

fn pick_up(folder: &Path, tasks: usize) {
    let command = |words: &[&str]| {
        let mut command = Command::new(TOLLGATE);
        command.arg("-C").arg(folder).args(words).env("XDG_STATE_HOME", folder.join("state"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(command(&["init", "--vault"]).status().unwrap().success());
    let mut worker =
        command(&["work", "--agent", "blue", "--interval", "3600", "--", "true"]).spawn().unwrap();
    let vault = folder.join("vault");
    let claimed = |name: &str| -> Instant {
        let places: [PathBuf; 2] = [vault.join("In_Progress/blue").join(name), vault.join("Done").join(name)];
        let began = Instant::now();
        while !places.iter().any(|place| place.exists()) {
            assert!(began.elapsed() < Duration::from_secs(20), "{name} is not claimed");
            sleep(Duration::from_micros(50));
        }
        let seen = Instant::now();
        // The next measurement starts when this task is done.
        while !places[1].exists() {
            sleep(Duration::from_micros(50));
        }
        sleep(Duration::from_millis(20));
        seen
    };
    let median = |mut all: Vec<Duration>| {
        all.sort_unstable();
        (all[all.len() / 2].as_secs_f64() * 1e3, all[all.len() * 95 / 100].as_secs_f64() * 1e3)
    };
    assert!(command(&["task", "add", "first"]).status().unwrap().success());
    claimed("first.md");
    let (mut added, mut moved) = (Vec::new(), Vec::new());
    for number in 0..tasks {
        let began = Instant::now();
        assert!(command(&["task", "add", &format!("added {number}")]).status().unwrap().success());
        added.push(claimed(&format!("added-{number}.md")) - began);
        let (name, outside) = (format!("moved-{number}.md"), folder.join("outside"));
        fs::write(&outside, "# Moved in\n").unwrap();
        let began = Instant::now();
        fs::rename(&outside, vault.join("Needs_Action").join(&name)).unwrap();
        moved.push(claimed(&name) - began);
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    for (what, times) in [
        ("from `task add` to the claim, with the command's own time", added),
        ("from a rename into the folder to the claim", moved),
    ] {
        let (median, most) = median(times);
        println!("| {what} | {median:.1} ms, 95 of 100 within {most:.1} ms | | | 20 ms |");
    }
}

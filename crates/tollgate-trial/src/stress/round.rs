//! One round: starts all participants, kills some and starts them again, stops them, and compares what they say.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tollgate::error::{Fault, Result};

use crate::Rogue;
use crate::arena::{Arena, PAIR, make, program, put};
use crate::chance::Chance;
use crate::control::remote;
use crate::engine::Engines;
use crate::open_files::{CHECK_AND_RENAME, GENTLE, GUARDED_WRITER, PROGRAMS, TIME_AND_SIZE, Writer, rounds};
use crate::report::Report;
use crate::tally;

/// The number of tasks of the control over git.
const TASKS: usize = 20;

/// How often a participant is killed.
const KILL_EVERY: Duration = Duration::from_millis(400);

/// How long participants may take to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Participants that start no other programs. The others, which need a thousand times the processor time for each operation, have
/// a lower priority; otherwise there would be few operations to collide with.
const CHEAP: [&str; 3] = ["library", "together", "tasks: folder"];

/// A process of the round.
struct Participant {
    /// What it is, for the report.
    kind: String,
    name: String,
    arguments: Vec<String>,
    root: PathBuf,
    /// A program whose own write is not finished cannot be killed without an unrecorded change.
    may_be_killed: bool,
    life: u64,
    child: Option<Child>,
}

impl Participant {
    fn start(&mut self, arena: &Arena) -> Result<()> {
        let this = std::env::current_exe().unwrap_or_default();
        let mut command = if CHEAP.contains(&self.kind.as_str()) {
            arena.command(this)
        } else {
            let mut command = arena.command("nice");
            command.args(["-n", "10"]).arg(this);
            command
        };
        command.args(&self.arguments).args(["--name", &self.name, "--root"]).arg(&self.root);
        command.args(["--seed", &arena.seed.to_string(), "--life", &self.life.to_string()]);
        let log = arena.beside(&format!("stderr-{}", self.name));
        let fault = |source| Fault::Io { doing: "start a participant", path: log.clone(), source };
        command.stderr(Stdio::from(fs::File::create(&log).map_err(fault)?));
        // A group of its own, so that a kill also ends what the participant has started.
        self.child = Some(command.process_group(0).spawn().map_err(fault)?);
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

pub(crate) fn run(
    arena: &Arena,
    length: Duration,
    engines: &Engines,
    report: &mut Report,
    show: &dyn Fn(),
) -> Result<()> {
    let mut crew = crew(arena, engines)?;
    for participant in &mut crew {
        participant.start(arena)?;
    }
    let end = Instant::now() + length;
    // Outside programs and their agents save all the time. For the other half of the round the agents are among themselves.
    let outsiders_end = Instant::now() + length / 2;
    // The controls need only a part of the time to show that they lose.
    let controls_end = Instant::now() + length / 4;
    thread::scope(|scope| -> Result<()> {
        // Half of the programs in each round: together they would leave no time for the agents.
        let turn = usize::try_from(arena.number).unwrap_or(0);
        let saving = PROGRAMS.iter().skip(turn % 2).step_by(2).chain(&GENTLE[turn % GENTLE.len()..][..1]);
        let saving: Vec<_> = saving
            .map(|kind| (*kind, scope.spawn(move || rounds(arena, kind, GUARDED_WRITER, outsiders_end))))
            .collect();
        let naive = |writer: Writer| scope.spawn(move || rounds(arena, "rename", writer, controls_end));
        let controls =
            [("check, then rename", naive(CHECK_AND_RENAME)), ("time and size", naive(TIME_AND_SIZE))];
        let git_loop = scope.spawn(move || git_control(arena, controls_end));
        disturb(arena, &mut crew, end, report, show)?;
        for (kind, thread) in saving {
            report.open(kind, thread.join().unwrap_or_else(|_| Err(gone(kind)))?);
        }
        for (name, thread) in controls {
            let tally = thread.join().unwrap_or_else(|_| Err(gone(name)))?;
            report.control(name, tally.saves, tally.lost);
        }
        let (worked, twice) = git_loop.join().unwrap_or_else(|_| Err(gone("git loop")))?;
        report.control("the contract's git loop", worked, twice);
        Ok(())
    })?;
    finish(arena, crew, engines, report)
}

fn gone(what: &str) -> Fault {
    Fault::invalid(format!("the thread of `{what}` panicked"))
}

/// Everybody who takes part.
fn crew(arena: &Arena, engines: &Engines) -> Result<Vec<Participant>> {
    let mut crew = Vec::new();
    let mut add = |kind: &str, name: String, root: &Path, arguments: &[&str], may_be_killed: bool| {
        crew.push(Participant {
            kind: kind.to_owned(),
            name,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            root: root.to_owned(),
            may_be_killed,
            life: 0,
            child: None,
        });
    };
    let root = arena.root();
    make(&arena.beside("home"))?;
    make(&arena.beside("run"))?;
    for (door, count) in [("library", 3), ("together", 1), ("mcp", 1), ("hook", 1), ("run", 1), ("faulty", 1)]
    {
        for number in 0..count {
            let may_be_killed = door != "hook";
            put(&root.join(format!("own-{door}-{number}")), "start\n")?;
            add(door, format!("{door}-{number}"), &root, &["agent", "--door", door], may_be_killed);
        }
    }
    if arena.rogue == Some(Rogue::Files) {
        add("rogue", "rogue".to_owned(), &root, &["agent", "--door", "rogue"], false);
    }
    for (store, settings) in &engines.stores {
        let (kind, workers) = (format!("tasks: {store}"), ["a", "b", "c"]);
        let settings = settings.replace("{}", &format!("s{:x}", arena.seed));
        if *store == "git" {
            remote(arena, "vault", "vault/Needs_Action", 0, &["git-a", "git-b", "git-c"])?;
        }
        for worker in workers {
            let root = match *store {
                "folder" => root.clone(),
                _ => arena.workspace_with_store(&format!("{store}-{worker}"), &settings)?,
            };
            // A task waits while its dead owner's lease lasts, so more are added than anybody can finish.
            add(&kind, format!("{store}-{worker}"), &root, &["worker", "--adds", "1000000"], true);
        }
        if *store == "folder" && arena.rogue == Some(Rogue::Tasks) {
            add("rogue", "folder-rogue".to_owned(), &root, &["worker", "--adds", "0", "--rogue"], false);
        }
    }
    Ok(crew)
}

/// Kills participants and starts them again, until the time is over. Then stops all.
fn disturb(
    arena: &Arena,
    crew: &mut [Participant],
    end: Instant,
    report: &mut Report,
    show: &dyn Fn(),
) -> Result<()> {
    let mut chance = Chance::new(arena.seed, "kills");
    let mut next_kill = Instant::now() + KILL_EVERY;
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
        show();
        for participant in &mut *crew {
            let ended = participant.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                let log = fs::read_to_string(arena.beside(&format!("stderr-{}", participant.name)));
                let why = log.unwrap_or_default();
                report.broken(format!("`{}` ended with {status}: {}", participant.name, why.trim()));
                participant.child = None;
            }
        }
        if Instant::now() >= next_kill {
            next_kill += KILL_EVERY;
            let at = usize::try_from(chance.below(crew.len() as u64)).unwrap_or(0);
            let victim = &mut crew[at];
            if victim.may_be_killed && victim.child.is_some() {
                victim.kill();
                victim.life += 1;
                victim.start(arena)?;
                report.killed(&victim.kind);
            }
        }
    }
    put(&arena.stop(), "")?;
    let patience = Instant::now() + PATIENCE;
    for participant in crew {
        while let Some(child) = &mut participant.child {
            match child.try_wait() {
                Ok(None) if Instant::now() < patience => thread::sleep(Duration::from_millis(10)),
                Ok(None) => {
                    report.broken(format!("`{}` does not stop", participant.name));
                    participant.kill();
                }
                Ok(Some(_)) | Err(_) => participant.child = None,
            }
        }
    }
    Ok(())
}

/// Reads the counts, compares the files, and has each ledger audited.
fn finish(arena: &Arena, crew: Vec<Participant>, engines: &Engines, report: &mut Report) -> Result<()> {
    for participant in &crew {
        let counts = tally::read(&arena.beside(&format!("tally-{}", participant.name)));
        report.participant(&participant.kind, counts);
    }
    let [one, two] = PAIR.map(|file| {
        let text = fs::read_to_string(arena.root().join(file)).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    });
    if one != two {
        report.broken(format!("two files that are changed together differ: `{one}`, `{two}`"));
    }
    let records = |prefixes: &[&str]| -> Vec<PathBuf> {
        let names = crew.iter().map(|participant| participant.name.as_str());
        let wanted = names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        wanted
            .map(|name| arena.beside(&format!("records-{name}.jsonl")))
            .filter(|path| path.exists())
            .collect()
    };
    let agents = ["library", "together", "mcp", "hook", "run", "faulty", "folder", "rogue"];
    audit(arena, &arena.root(), &records(&agents), report)?;
    for (store, _) in engines.stores.iter().filter(|(store, _)| *store != "folder") {
        for worker in ["a", "b", "c"] {
            let name = format!("{store}-{worker}");
            audit(arena, &arena.beside(&name), &records(&[store]), report)?;
        }
    }
    Ok(())
}

fn audit(arena: &Arena, root: &Path, records: &[PathBuf], report: &mut Report) -> Result<()> {
    let mut command = arena.command(program("tollgate"));
    command.arg("-C").arg(root).args(["ledger", "audit", "--json"]);
    for path in records {
        command.arg("--records").arg(path);
    }
    let path = program("tollgate");
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .map_err(|source| Fault::Io { doing: "run", path, source })?;
    match serde_json::from_slice::<Value>(&output.stdout) {
        Ok(found) if found["lines"].is_u64() => report.audited(&found),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = format!("{} {said}", String::from_utf8_lossy(&output.stdout));
            report.broken(format!("the audit of `{}` failed: {}", root.display(), said.trim()));
        }
    }
    Ok(())
}

/// Two clones run the contract's loop. Returns how many tasks were worked on, and how many of them more than once.
fn git_control(arena: &Arena, end: Instant) -> Result<(u64, u64)> {
    let names = ["loop-a", "loop-b"];
    remote(arena, "loop", "Needs_Action", TASKS, &names)?;
    let (log, until) = (arena.beside("loop-log"), arena.beside("loop-stop"));
    let mut children = Vec::new();
    for name in names {
        let mut command = arena.command(std::env::current_exe().unwrap_or_default());
        command.args(["control", "--name", name, "--root"]).arg(arena.beside(name));
        command.arg("--log").arg(&log).arg("--until").arg(&until);
        let fault = |source| Fault::Io { doing: "start the control", path: log.clone(), source };
        children.push(command.spawn().map_err(fault)?);
    }
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(50));
    }
    put(&until, "")?;
    for mut child in children {
        let _ = child.wait();
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    let mut tasks: Vec<&str> = text.lines().collect();
    tasks.sort_unstable();
    let twice = tasks.chunk_by(|one, two| one == two).filter(|work| work.len() > 1).count();
    tasks.dedup();
    Ok((tasks.len() as u64, twice as u64))
}

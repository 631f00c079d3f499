//! One story: a new disk, the first use of tollgate, then several participants at the same time, everything recorded. Then the
//! power is cut at many points of the record, and after each cut the next commands must work and find what was acknowledged.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::chance::Chance;
use crate::lane::{Lane, LaneKind, Step};
use crate::machine::{Machine, Result, at};
use crate::recorded_disk::{Blocks, Cut, Luck, RecordedDisk};
use crate::report::{Control, Finding, Row};

/// The settings of the workspace. The ledger continues in a new file every few lines.
fn settings(control: Control) -> String {
    let durability = if control == Control::Fast { "fast" } else { "durable" };
    format!(
        "version = 1\n[guard]\ndurability = \"{durability}\"\n[ledger]\nmax_size = \"4KiB\"\n[vault]\ndir = \"vault\"\n\
         durability = \"{durability}\"\nsettle = \"0s\"\nretry = []\nmax_attempts = 1000\n"
    )
}

/// How many steps each participant takes.
const STEPS: usize = 12;
/// Steps over git start many processes.
const GIT_STEPS: usize = 6;

pub(crate) struct Story {
    record: RecordedDisk,
    set_up: Step,
    lanes: Vec<Lane>,
    control: Control,
}

impl Story {
    /// Runs the story on this disk, which has a new file system.
    pub(crate) fn record(machine: &Machine, formatted: &Blocks, seed: u64, control: Control) -> Result<Self> {
        let mut chance = Chance::new(seed, "story");
        let mut lanes = vec![
            Lane::new("blue", LaneKind::Files, seed),
            Lane::new("red", LaneKind::Mcp, seed),
            Lane::new("green", LaneKind::Tasks, seed),
        ];
        let with_git = machine.has_git && seed.is_multiple_of(2);
        if with_git {
            lanes.push(Lane::new("gray", LaneKind::Git, seed));
        }
        machine.start(formatted.clone())?;
        Self::prepare(machine, with_git)?;
        let prepared = machine.stop()?.now().clone();

        machine.start(prepared)?;
        let begun = machine.disk().position();
        machine.must("w", &["init", "--vault"], "")?;
        let set_up = Step { begun, acknowledged: machine.disk().position() };
        save(machine, &settings(control))?;
        if with_git {
            machine.must("g", &["sync"], "")?;
        }
        let is_over = AtomicBool::new(false);
        let root = File::open(machine.path("")).map_err(at(&machine.path("")))?;
        let worked = std::thread::scope(|scope| {
            // In every second story, the kernel writes things back at random moments, as it does when memory is scarce.
            if chance.below(2) == 0 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(5 + chance.below(60)));
                        let _ = rustix::fs::syncfs(&root);
                    }
                });
            }
            let work = |lane: &mut Lane| {
                let steps = if lane.kind == LaneKind::Git { GIT_STEPS } else { STEPS };
                lane.work(machine, steps)
            };
            let threads: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(move || work(lane))).collect();
            let worked =
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned())));
            let worked = worked.collect::<Result<Vec<()>>>();
            is_over.store(true, Ordering::Relaxed);
            worked
        });
        drop(root);
        let record = machine.stop()?;
        worked?;
        if record.flushes() == 0 {
            return Err("no flush has arrived at the disk, so a cut would prove nothing".to_owned());
        }
        Ok(Self { record, set_up, lanes, control })
    }

    /// What was there before tollgate.
    fn prepare(machine: &Machine, with_git: bool) -> Result<()> {
        for name in ["w", "home", "state"] {
            fs::create_dir(machine.path(name)).map_err(at(&machine.path(name)))?;
        }
        if with_git {
            machine.make_remote()?;
            let url = format!("file://{}", machine.remote().display());
            machine.git(&machine.path(""), &["clone", "--quiet", &url, "g"])?;
            let folder = machine.path("g/.tollgate");
            fs::create_dir(&folder).map_err(at(&folder))?;
            let private = fs::Permissions::from_mode(0o700);
            fs::set_permissions(&folder, private).map_err(at(&folder))?;
            let settings = "version = 1\n[vault]\ndir = \"vault\"\nsync = \"git\"\nsettle = \"0s\"\nretry = []\nmax_attempts = 1000\n";
            fs::write(folder.join("config.toml"), settings).map_err(at(&folder))?;
        }
        Ok(())
    }

    /// A random cut. Most come right after an answer, some while tollgate is set up. In a control, all come after an answer, and
    /// nothing is on the disk that was not flushed.
    pub(crate) fn choose(&self, machine: &Machine, chance: &mut Chance) -> Cut {
        let steps: Vec<Step> = self.lanes.iter().flat_map(|lane| lane.steps.iter().copied()).collect();
        let below = |chance: &mut Chance, limit: usize| {
            usize::try_from(chance.below(limit.max(1) as u64)).unwrap_or(0)
        };
        let last = steps.iter().map(|step| step.acknowledged).max().unwrap_or(0);
        let after_answer = steps[below(chance, steps.len())].acknowledged;
        let sector = machine.kind.sectors()[below(chance, 2)];
        if self.control != Control::None {
            let forgotten_flushes =
                if self.control == Control::Forgetful { 8 + below(chance, 24) } else { 0 };
            return Cut { position: after_answer, luck: Luck::Nothing, sector, forgotten_flushes };
        }
        let position = match below(chance, 20) {
            0..2 => below(chance, self.set_up.acknowledged + 1),
            2 => self.set_up.acknowledged,
            3..13 => after_answer,
            _ => below(chance, last + 1),
        };
        let luck = [Luck::Nothing, Luck::Half, Luck::Half, Luck::Most, Luck::Everything][below(chance, 5)];
        Cut { position, luck, sector, forgotten_flushes: 0 }
    }

    /// Cuts the power, and sometimes a second time while the next command heals. Adds what was found to the row.
    pub(crate) fn cut(
        &self,
        machine: &Machine,
        cut: &Cut,
        chance: &mut Chance,
        row: &mut Row,
    ) -> Result<Blocks> {
        let mut blocks = self.record.after(cut, chance);
        let mut time = self.record.time(cut.position);
        row.images += 1;
        let mut what = format!("{}, {cut:?}", machine.kind.name());
        if chance.below(4) == 0 {
            let healing = self.heal(machine, blocks.clone(), time, cut, chance);
            if let Ok((record, position)) = healing {
                let again = Cut { position, ..*cut };
                what += &format!(", then {again:?}");
                blocks = record.after(&again, chance);
                time = record.time(position).max(time);
                row.second_cuts += 1;
            }
        }
        self.turn_back(machine, time)?;
        let found = match machine.start(blocks.clone()) {
            Err(problem) => vec![Finding::Stuck(problem)],
            Ok(()) => {
                let found = self.check(machine, cut.position, chance);
                machine.stop()?;
                found
            }
        };
        row.add(&what, found);
        Ok(blocks)
    }

    fn turn_back(&self, machine: &Machine, time: SystemTime) -> Result<()> {
        if self.has_git() { machine.turn_remote_back(time) } else { Ok(()) }
    }

    fn has_git(&self) -> bool {
        self.lanes.iter().any(|lane| lane.kind == LaneKind::Git)
    }

    /// Starts the machine, lets one command heal what the cut left, and chooses where the power is cut again.
    fn heal(
        &self,
        machine: &Machine,
        blocks: Blocks,
        time: SystemTime,
        cut: &Cut,
        chance: &mut Chance,
    ) -> Result<(RecordedDisk, usize)> {
        // Before the start, because the second cut may come right after it.
        self.turn_back(machine, time)?;
        machine.start(blocks)?;
        if cut.position >= self.set_up.acknowledged {
            // The check after the second cut judges; this command may be cut anywhere.
            let _ = match chance.below(3) {
                0 => machine.must("w", &["task", "list"], ""),
                1 if self.has_git() => machine.must("g", &["sync"], ""),
                _ => machine.must("w", &["write", "other", "--agent", "pink"], "more\n"),
            };
        }
        let position = machine.disk().position();
        let record = machine.stop()?;
        Ok((record, usize::try_from(chance.below(position as u64 + 1)).unwrap_or(0)))
    }

    /// What is wrong with the machine that has just been started.
    fn check(&self, machine: &Machine, position: usize, chance: &mut Chance) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut must = |workspace: &str, words: &[&str], input: &str| {
            if let Err(problem) = machine.must(workspace, words, input) {
                // `doctor` also lists what is in order.
                let lines = problem.lines().filter(|line| !line.starts_with("ok "));
                found.push(Finding::Stuck(lines.collect::<Vec<_>>().join("\n")));
            }
        };
        // A person who was not told that the workspace is set up sets it up again. Otherwise, any command may be the first.
        if position < self.set_up.acknowledged {
            must("w", &["init", "--vault"], "");
        }
        match chance.below(4) {
            0 => must("w", &["init", "--vault"], ""),
            1 => must("w", &["task", "list"], ""),
            2 => must("w", &["recovery", "list"], ""),
            _ => {}
        }
        must("w", &["write", "other", "--agent", "pink"], "more\n");
        must("w", &["task", "list"], "");
        must("w", &["ledger", "verify"], "");
        must("w", &["ledger", "audit"], "");
        must("w", &["doctor"], "");
        if self.has_git() {
            must("g", &["task", "list"], "");
            must("g", &["ledger", "verify"], "");
            must("g", &["doctor"], "");
            // The repository is a person's, too.
            if let Err(problem) = machine.git(&machine.path("g"), &["fsck", "--no-dangling"]) {
                found.push(Finding::Stuck(problem));
            }
            // Where tollgate puts what a person must decide about.
            let aside = machine.path("g/vault/.tollgate/git/aside");
            if fs::read_dir(aside).is_ok_and(|mut files| files.next().is_some()) {
                found.push(Finding::Stuck("a file of a task was set aside".to_owned()));
            }
        }
        if fs::read(machine.path("w/other")).ok().as_deref() != Some(b"more\n") {
            found.push(Finding::Stuck("a write after the cut has no effect".to_owned()));
        }
        let settings = fs::read_to_string(machine.path("w/.tollgate/config.toml")).unwrap_or_default();
        if !settings.contains("version = 1") || !settings.contains("[vault]") {
            found.push(Finding::Lost(format!("the settings are {settings:?}")));
        }
        for lane in &self.lanes {
            let judged = lane.judge(machine, position);
            found.extend(judged.unwrap_or_else(|problem| vec![Finding::Stuck(problem)]));
        }
        found
    }
}

/// Replaces the settings as a careful person does: the file is the old one or the new one, also after a power cut.
fn save(machine: &Machine, settings: &str) -> Result<()> {
    let folder = machine.path("w/.tollgate");
    let (temporary, path) = (folder.join("config.new"), folder.join("config.toml"));
    let save = || {
        fs::write(&temporary, settings)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&folder)?.sync_all()
    };
    save().map_err(at(&path))
}

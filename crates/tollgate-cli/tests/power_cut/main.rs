//! Power cuts on a simulated disk: the real program works, `strace` records what it does to its files, and the power is cut at
//! many points of the recording. After each cut the next command must simply work, nothing that was acknowledged may be
//! missing, and nothing may be half done. Some commands that heal are cut short, too.
//!
//! Recorded on the file system of temporary files, and in memory, where tollgate flushes as on a file system without one journal.
//! `TOLLGATE_TEST_CUTS` is the number of cuts at random points for each story, 25 if it is not set.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise and prints what it saw"
)]

mod disk;
mod git;
mod recording;
mod rolled_back;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use disk::{Act, Journal, Luck, Random, Tree, after_cut};
use recording::{Recording, run};
use serde_json::{Value, json};

/// A machine: a disk with a workspace and the user's state, and memory that is empty after a power cut.
struct Machine {
    keep: tempfile::TempDir,
    disk: PathBuf,
    journal: Journal,
}

impl Machine {
    fn new(place: &Path) -> Self {
        let keep = tempfile::tempdir_in(place).unwrap();
        let disk = keep.path().canonicalize().unwrap().join("disk");
        for folder in ["", "w", "home", "state", "../memory"] {
            fs::create_dir(disk.join(folder)).unwrap();
        }
        // As tollgate itself decides.
        let folder = fs::File::open(&disk).unwrap();
        let journal =
            if tollgate_base::file::has_one_journal(&folder) { Journal::One } else { Journal::PerFolder };
        Self { keep, disk, journal }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.disk.join("w").join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path(name)).ok()
    }

    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        // The checkout around it is a workspace, too.
        command
            .args(["-C", "."])
            .args(words)
            .current_dir(self.path(""))
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.disk.join("home")).env("XDG_STATE_HOME", self.disk.join("state"));
        command.env("XDG_RUNTIME_DIR", self.keep.path().join("memory")).env("USER", "ada");
        command
    }

    /// Runs a command that must succeed.
    fn must(&self, words: &[&str], input: &str) -> Result<String, String> {
        let output =
            run(self.command(&words.iter().map(|&word| word.into()).collect::<Vec<_>>()), input.as_bytes());
        if output.status.success() {
            Ok(text(&output))
        } else {
            Err(format!("`{}`: {output:?}", words.join(" ")))
        }
    }

    /// The power is back, and this is on the disk.
    fn start(&self, tree: &Tree) {
        tree.write_to(&self.disk);
        let memory = self.keep.path().join("memory");
        fs::remove_dir_all(&memory).unwrap();
        fs::create_dir(&memory).unwrap();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of a command, and its input.
type Step = (&'static str, String);

struct Story {
    name: &'static str,
    settings: &'static str,
    /// What was there long before, so that it is on the disk.
    prepare: fn(&Machine),
    steps: Vec<Step>,
    /// Whether the workspace is as it may be after this many of the steps.
    is_after: fn(&Machine, usize) -> Result<(), String>,
}

/// What was recorded of a story: where each of its steps begins, and where it is acknowledged.
struct Recorded {
    recording: Recording,
    steps: Vec<(usize, usize)>,
}

impl Story {
    fn record(&self, machine: &Machine) -> Recorded {
        (self.prepare)(machine);
        if !self.settings.is_empty() {
            fs::write(machine.path(".tollgate/config.toml"), self.settings).unwrap();
        }
        let mut recording = Recording::of(&machine.disk);
        let (mut steps, mut claim) = (Vec::new(), String::new());
        for (words, input) in &self.steps {
            let begin = recording.acts.len();
            let words: Vec<String> = words.split(' ').map(|word| word.replace("{claim}", &claim)).collect();
            let output = recording.run(&machine.command(&words), input.as_bytes());
            assert!(output.status.success(), "{}: {words:?}: {output:?}", self.name);
            let answered =
                recording.acts.iter().rposition(|act| matches!(act, Act::Answer)).expect("an answer");
            assert!(answered >= begin, "{}: {words:?} does not answer", self.name);
            steps.push((begin, answered));
            let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            if let Some(id) = answer.as_ref().and_then(|answer| answer["claim_id"].as_str()) {
                claim = id.to_owned();
            }
        }
        assert_eq!(
            format!("{:?}", recording.end.shown()),
            format!("{:?}", Tree::read(&machine.disk).shown())
        );
        Recorded { recording, steps }
    }

    /// Cuts the power many times. The answer is how many times, and what went wrong.
    fn cut(&self, machine: &Machine, cuts: usize) -> (usize, Vec<String>) {
        let Recorded { recording, steps } = self.record(machine);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut problems = Vec::new();
        let is_write = |act: &Act| matches!(act, Act::Write { .. });
        let mut points = Vec::new();
        for number in 0..cuts {
            // More than half of the cuts come right after an answer.
            let at = match number % 5 {
                0..3 => steps[random.below(steps.len())].1 + 1,
                _ => 1 + random.below(recording.acts.len()),
            };
            let luck = [Luck::Nothing, Luck::Some, Luck::Some, Luck::Some, Luck::Everything][random.below(5)];
            points.push((at, luck));
        }
        // And some come after each write, before it is flushed.
        let writes = recording.acts.iter().enumerate().filter(|(_, act)| is_write(act)).map(|(at, _)| at + 1);
        points.extend(writes.clone().map(|at| (at, Luck::Last)).take(cuts));
        if machine.journal == Journal::One {
            points.extend(writes.map(|at| (at, Luck::Zeros)).take(cuts));
        }
        let count = points.len();
        for (number, (at, luck)) in points.into_iter().enumerate() {
            let acts = &recording.acts[..at];
            let tree = after_cut(&recording.before, acts, &recording.end, machine.journal, luck, &mut random);
            machine.start(&tree);
            if number % 4 == 3 {
                Self::cut_again(machine, luck, &mut random);
            }
            let done = steps.iter().filter(|(_, answered)| *answered < at).count();
            let begun = steps.iter().filter(|(begin, _)| *begin < at).count();
            if let Err(problem) = self.check(machine, done, begun, &mut random) {
                let last = &recording.acts[at.saturating_sub(6)..at];
                problems.push(format!(
                    "{}, cut {number} after act {at} of {}, {luck:?}, {:?}, {done} of {begun} steps acknowledged: {problem}\n  last acts: {last:?}",
                    self.name,
                    recording.acts.len(),
                    machine.journal
                ));
            }
        }
        (count, problems)
    }

    /// The power is cut a second time, while the next command heals what the first cut left.
    fn cut_again(machine: &Machine, luck: Luck, random: &mut Random) {
        let words = if random.below(2) == 0 { "task list" } else { "write other --agent red" };
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        let mut healing = Recording::of(&machine.disk);
        healing.run(&machine.command(&words), b"more\n");
        let acts = &healing.acts[..random.below(healing.acts.len() + 1)];
        machine.start(&after_cut(&healing.before, acts, &healing.end, machine.journal, luck, random));
    }

    fn check(&self, machine: &Machine, done: usize, begun: usize, random: &mut Random) -> Result<(), String> {
        let other = machine.path("other");
        // A person who was not told that the workspace is set up sets it up again. Otherwise, any command may be the first.
        if self.name == FIRST_USE && done == 0 {
            machine.must(&["init", "--vault"], "")?;
        }
        match random.below(4) {
            0 => machine.must(&["init", "--vault"], "")?,
            1 => machine.must(&["task", "list"], "")?,
            2 => machine.must(&["recovery", "list"], "")?,
            _ => machine.must(&["write", "other", "--agent", "red"], "more\n")?,
        };
        machine.must(&["task", "list"], "")?;
        machine.must(&["write", "other", "--agent", "red"], "more\n")?;
        if fs::read_to_string(&other).ok().as_deref() != Some("more\n") {
            return Err("a write after the cut has no effect".to_owned());
        }
        machine.must(&["ledger", "verify"], "")?;
        machine.must(&["doctor"], "")?;
        // Acknowledged steps were made. Of a step that had begun, everything or nothing.
        let answers: Vec<_> = (done..=begun).map(|steps| (self.is_after)(machine, steps)).collect();
        if answers.iter().any(Result::is_ok) { Ok(()) } else { Err(format!("{answers:?}")) }
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
}

fn with_files(machine: &Machine, files: &[(&str, &str)]) {
    machine.must(&["init", "--vault"], "").unwrap();
    for (name, text) in files {
        fs::write(machine.path(name), text).unwrap();
    }
}

/// The number of changes of files that the ledger tells of, except those after the cut.
fn changes(machine: &Machine) -> usize {
    let folder = fs::read_dir(machine.path(".tollgate")).unwrap();
    let ledgers = folder
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let lines: String = ledgers.map(|path| fs::read_to_string(path).unwrap()).collect();
    let is_change = |line: &&str| line.contains("\"MUTATION\"") && !line.contains("\"other\"");
    lines.lines().filter(is_change).count()
}

fn writes() -> Story {
    Story {
        name: "writes",
        settings: "",
        prepare: |machine| with_files(machine, &[("a", "0")]),
        steps: (1..=3).map(|number| ("write a --agent blue", number.to_string())).collect(),
        is_after: |machine, steps| {
            expect("a", machine.read("a"), Some(steps.to_string()))?;
            expect("lines", changes(machine), steps)
        },
    }
}

fn full_ledgers() -> Story {
    Story {
        name: "full ledgers",
        settings: "[ledger]\nmax_size = \"600B\"\n[vault]\ndir = \"vault\"\n",
        steps: (1..=5).map(|number| ("write a --agent blue", number.to_string())).collect(),
        ..writes()
    }
}

fn applies() -> Story {
    let apply = |changes: Value| ("apply --agent blue", changes.to_string());
    Story {
        name: "applies",
        settings: "",
        prepare: |machine| {
            with_files(machine, &[("a", "a0"), ("b", "b0"), ("c", "c0"), ("d", "d0"), ("m", "m0")]);
        },
        steps: vec![
            apply(json!([
                {"path": "a", "content": "a1"}, {"path": "b", "content": "b1"}, {"path": "c", "content": "c1"},
                {"path": "n/e", "content": "e1"}, {"path": "d", "delete": true}, {"path": "m", "move_to": "n/m"},
            ])),
            apply(json!([
                {"path": "a", "content": "a2"}, {"path": "b", "content": "b2"}, {"path": "n/e", "delete": true},
                {"path": "d", "content": "d2"}, {"path": "n/m", "move_to": "m"},
            ])),
        ],
        is_after: |machine, steps| {
            let names = ["a", "b", "c", "d", "m", "n/e", "n/m"];
            let found: Vec<String> =
                names.iter().map(|name| machine.read(name).unwrap_or_default()).collect();
            let wanted = match steps {
                0 => ["a0", "b0", "c0", "d0", "m0", "", ""],
                1 => ["a1", "b1", "c1", "", "", "e1", "m0"],
                _ => ["a2", "b2", "c1", "d2", "m0", "", ""],
            };
            expect("files", found, wanted.map(String::from).to_vec())
        },
    }
}

fn names() -> Story {
    Story {
        name: "names",
        settings: "",
        prepare: |machine| with_files(machine, &[]),
        steps: vec![
            ("create n/o/a --agent blue", "text".into()),
            ("move n/o/a b --agent blue", String::new()),
            ("delete b --agent blue", String::new()),
            ("create p/a --agent blue", "more".into()),
        ],
        is_after: |machine, steps| {
            let found = ["n/o/a", "b", "p/a"].map(|name| machine.read(name).unwrap_or_default());
            let wanted = match steps {
                1 => ["text", "", ""],
                2 => ["", "text", ""],
                4 => ["", "", "more"],
                _ => ["", "", ""],
            };
            expect("files", found, wanted.map(String::from))?;
            expect("lines", changes(machine), steps)
        },
    }
}

/// All files of the vault's folders, with their texts.
fn tasks(machine: &Machine) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for state in ["Needs_Action", "In_Progress/blue", "Done"] {
        for entry in fs::read_dir(machine.path("vault").join(state)).into_iter().flatten() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            found.insert(format!("{state}/{}", path.file_name().unwrap().to_str().unwrap()), text);
        }
    }
    found
}

fn is_task_after(machine: &Machine, places: &[(&str, usize)], steps: usize) -> Result<(), String> {
    let found = tasks(machine);
    let (place, blocks) = places[steps];
    expect("tasks", found.keys().cloned().collect(), vec![format!("{place}/do-it.md")])?;
    let text = found.values().next().unwrap();
    if !text.starts_with("# do it\n\nall of it") || text.contains('\0') {
        return Err(format!("the text is damaged: {text:?}"));
    }
    expect("blocks", text.matches("<!-- tollgate c-").count(), blocks)
}

fn claims() -> Story {
    Story {
        name: "claims",
        settings: "",
        prepare: |machine| {
            machine.must(&["init", "--vault"], "").unwrap();
            machine.must(&["task", "list"], "").unwrap();
            fs::write(machine.path("vault/Needs_Action/do-it.md"), "# do it\n\nall of it").unwrap();
        },
        steps: vec![
            ("task claim do-it --agent blue --json", String::new()),
            ("task progress do-it half --claim-id {claim} --agent blue --json", String::new()),
            ("task release do-it --claim-id {claim} --agent blue --json", String::new()),
        ],
        is_after: |machine, steps| {
            let places = [("Needs_Action", 0), ("In_Progress/blue", 1), ("In_Progress/blue", 1), ("Done", 1)];
            is_task_after(machine, &places, steps)?;
            let text = tasks(machine).into_values().next().unwrap();
            expect("note", text.contains("half"), steps > 1)
        },
    }
}

fn failures() -> Story {
    Story {
        name: "failures",
        steps: vec![
            ("task claim do-it --agent blue --json", String::new()),
            ("task release do-it --result failure --claim-id {claim} --agent blue --json", String::new()),
        ],
        is_after: |machine, steps| {
            is_task_after(
                machine,
                &[("Needs_Action", 0), ("In_Progress/blue", 1), ("Needs_Action", 1)],
                steps,
            )
        },
        ..claims()
    }
}

const FIRST_USE: &str = "first use";

fn first_use() -> Story {
    Story {
        name: FIRST_USE,
        settings: "",
        prepare: |machine| fs::write(machine.path("a"), "0").unwrap(),
        steps: vec![
            ("init --vault", String::new()),
            ("write a --agent blue", "1".into()),
            ("task add now --json", String::new()),
        ],
        is_after: |machine, steps| {
            if steps > 0 {
                let settings = machine.read(".tollgate/config.toml").unwrap_or_default();
                expect("settings", settings.contains("version = 1") && settings.contains("[vault]"), true)?;
            }
            for name in [".tollgate/version", ".tollgate/.gitignore", "vault/.tollgate/vault/format"] {
                // What is there is whole.
                expect(name, machine.read(name).as_deref() == Some(""), false)?;
            }
            expect("a", machine.read("a"), Some(usize::from(steps > 1).to_string()))?;
            expect("task", machine.path("vault/Needs_Action/now.md").exists(), steps > 2)
        },
    }
}

fn places() -> Vec<PathBuf> {
    let mut places = vec![std::env::temp_dir()];
    if Path::new("/dev/shm").is_dir() {
        places.push("/dev/shm".into());
    } else {
        println!("skipped: a file system without one journal needs `/dev/shm`");
    }
    places
}

fn survives(story: &Story) {
    let cuts = std::env::var("TOLLGATE_TEST_CUTS").map_or(25, |cuts| cuts.parse().expect("a number"));
    for place in places() {
        let machine = Machine::new(&place);
        let (cuts, problems) = story.cut(&machine, cuts);
        println!("{}: {cuts} cuts, {:?}, {} problems", story.name, machine.journal, problems.len());
        let first = problems[..problems.len().min(3)].join("\n");
        assert!(problems.is_empty(), "{} of {cuts}\n{first}", problems.len());
    }
}

#[test]
fn writes_survive_power_cuts() {
    survives(&writes());
}

#[test]
fn changes_of_several_files_survive_power_cuts() {
    survives(&applies());
}

#[test]
fn creations_moves_and_deletions_survive_power_cuts() {
    survives(&names());
}

#[test]
fn claimed_and_released_tasks_survive_power_cuts() {
    survives(&claims());
    survives(&failures());
}

#[test]
fn the_first_use_survives_power_cuts() {
    survives(&first_use());
}

#[test]
fn a_ledger_that_is_continued_in_a_new_file_survives_power_cuts() {
    survives(&full_ledgers());
}

/// The control: if nothing is flushed, power cuts must lose what was acknowledged. Otherwise these tests prove nothing.
#[test]
fn without_flushes_power_cuts_lose_acknowledged_work() {
    let settings = "[guard]\ndurability = \"fast\"\n[vault]\ndir = \"vault\"\ndurability = \"fast\"\n";
    for story in [writes(), applies(), names(), claims()] {
        for place in places() {
            let (cuts, problems) = Story { settings, ..story_of(&story) }.cut(&Machine::new(&place), 10);
            println!("{} without flushes: {} of {cuts} cuts lose something", story.name, problems.len());
            assert!(!problems.is_empty(), "{} on {}", story.name, place.display());
        }
    }
}

fn story_of(story: &Story) -> Story {
    Story { steps: story.steps.clone(), ..*story }
}

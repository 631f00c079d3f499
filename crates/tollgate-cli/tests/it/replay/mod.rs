//! `blame`, `show` and `undo` against an independent replay of the ledger, after random changes by four agents and an outsider: several
//! files at once, moves, deletions, links, commands, and processes that are killed.
//!
//! `TOLLGATE_REPLAY_CHANGES` is the number of changes in a campaign in which processes are killed, too, and `TOLLGATE_REPLAY_SEED` repeats
//! a story that has failed.

mod acting;
mod ledger;
mod seen;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::time::Duration;

use tollgate::Outcome;
use tollgate::gate::Gate;
use tollgate::history::blame::{Writer, blame};
use tollgate::history::chosen::{Chosen, Which};
use tollgate::history::content::Contents;
use tollgate::history::step::{Back, Steps};
use tollgate::history::undo::{UndoResult, WhyNot};
use tollgate::settings::{Durability, Settings};
use tollgate::workspace::{Options, Workspace};

use self::ledger::{Author, Ledger, Replay, patched};
use self::seen::{Files, Seen};
use crate::world::World;

/// The changes of one story. The cost of a look at the past grows with them.
const STORY: usize = 500;

/// What was done to each path: the hash before and after.
type Effects = BTreeMap<String, [Option<String>; 2]>;

/// One workspace and what happened in it.
struct Story {
    world: World,
    gate: Gate,
    random: u64,
    seen: Seen,
    files: Files,
    /// The files before each act that has changed something, by its first ledger line and its last one.
    acts: BTreeMap<u64, (u64, Files)>,
    ledger: Ledger,
    replay: Replay,
    lines: usize,
    processes: usize,
    /// Whether processes are killed: at moments that no seed repeats.
    kills: bool,
    killed: usize,
    /// How long a process takes that is not killed.
    usual: Duration,
    certain: usize,
    undone: usize,
    conflicts: usize,
}

impl Story {
    fn new(seed: u64, kills: bool) -> Self {
        let world = World::with("[guard]\ndurability = \"fast\"\n");
        let mut settings = Settings::default();
        settings.guard.durability = Durability::Fast;
        let options = Options { settings: Some(settings), ..Options::default() };
        let gate = Gate::new(Workspace::open(world.root(), options).unwrap());
        Self {
            world,
            gate,
            random: seed,
            seen: Seen::default(),
            files: Files::new(),
            acts: BTreeMap::new(),
            ledger: Ledger::default(),
            replay: Replay::default(),
            lines: 0,
            processes: 0,
            kills,
            killed: 0,
            usual: Duration::from_millis(50),
            certain: 0,
            undone: 0,
            conflicts: 0,
        }
    }

    /// Looks at the files, and at the new lines of the ledger. Returns the files before.
    fn look(&mut self) -> Files {
        let files = self.seen.look(&self.world.root());
        self.ledger.read_on(&self.world.root());
        self.replay.read_on(&self.ledger, &self.seen);
        std::mem::replace(&mut self.files, files)
    }

    /// What the new ledger lines say is what has changed on disk. Returns that, by path.
    fn ledger_is_right(&mut self) -> BTreeMap<String, Option<String>> {
        let known = self.ledger.mutations.len();
        let before = self.look();
        let new = &self.ledger.mutations[known..];
        let mut says: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (path, was, after) in new.iter().flat_map(|mutation| mutation.effects()) {
            let held = match says.get(path) {
                Some(held) => held.as_deref(),
                None => before.get(path).map(|file| file.hash.as_str()),
            };
            assert_eq!(was, held, "{path}: {new:?}");
            says.insert(path.to_owned(), after.map(str::to_owned));
        }
        for path in before.keys().chain(self.files.keys()).chain(says.keys()) {
            let [was, now] = [&before, &self.files].map(|files| files.get(path).map(|file| &file.hash));
            let due = says.get(path).map_or(was, |due| due.as_ref());
            assert_eq!(now, due, "{path}: the ledger says {new:?}");
        }
        if let (Some(first), Some(last)) = (new.first(), new.last()) {
            self.acts.insert(first.seq, (last.seq, before));
        }
        says
    }

    /// An agent has made exactly these changes.
    fn all_was_done(&mut self, wanted: &[(String, Option<String>)]) {
        let before = self.files.clone();
        let says = self.ledger_is_right();
        for (path, hash) in wanted {
            let unchanged = before.get(path).map(|file| &file.hash) == hash.as_ref();
            assert!(
                says.get(path) == Some(hash) || unchanged && !says.contains_key(path),
                "{path}: {says:?}"
            );
        }
        assert!(says.keys().all(|path| wanted.iter().any(|(named, _)| named == path)), "{says:?}");
    }

    /// A process has ended, or was killed. The next one heals what it has left.
    fn all_or_nothing_was_done(&mut self, has_ended: bool) {
        if !has_ended {
            Workspace::open(self.world.root(), Options::default()).unwrap();
        }
        self.ledger_is_right();
    }

    fn folder_was_moved(&mut self, from: &str, to: &str) {
        let before = self.look();
        let moved = |name: &String| match name.strip_prefix(&format!("{from}/")) {
            Some(rest) => format!("{to}/{rest}"),
            None => name.clone(),
        };
        let due: Files = before.iter().map(|(name, file)| (moved(name), file.clone())).collect();
        assert_eq!(self.files, due);
    }

    /// The author of each line of each file.
    fn blame_is_right(&mut self) {
        for (path, file) in self.files.iter().filter(|(_, file)| !file.is_link) {
            let Some(due) = self.replay.authors(path, &file.hash, &self.seen) else { continue };
            let text = self.seen.text(&file.hash);
            let found = blame(self.gate.workspace(), path, &self.world.path(path), text.as_bytes()).unwrap();
            assert_eq!(found.len(), due.len(), "{path}");
            for (found, (line, author)) in found.iter().zip(due) {
                let agrees = match (&found.writer, author) {
                    (Writer::Step(step), Author::Line(seq)) => {
                        self.certain += 1;
                        step.seq == seq
                    }
                    (Writer::OneOf { steps, .. }, Author::Line(seq)) => {
                        steps.iter().any(|step| step.seq == seq)
                    }
                    (Writer::OneOf { others, .. }, Author::Outsider | Author::Older) => *others,
                    (Writer::SomebodyElse { .. }, Author::Outsider) | (Writer::Older, Author::Older) => true,
                    _ => false,
                };
                assert!(agrees, "{path}: `{line}` is by {author:?}, but blame says {:?}", found.writer);
            }
        }
    }

    /// An act that is not long ago: what its ledger lines say of each path, the hash before and after.
    fn recent(&mut self) -> Option<(u64, Effects, Files)> {
        let recent: Vec<u64> = self.acts.keys().rev().take(6).copied().collect();
        if recent.is_empty() {
            return None;
        }
        let first = recent[self.below(recent.len())];
        let (last, before) = self.acts[&first].clone();
        let lines: Vec<_> =
            self.ledger.mutations.iter().filter(|line| (first..=last).contains(&line.seq)).collect();
        // What a process of an agent that was killed has left is one change for each file.
        let lines = if lines[0].recovered { &lines[..1] } else { &lines[..] };
        if lines.iter().any(|line| line.folder || line.recovered != lines[0].recovered) {
            return None;
        }
        let mut effects = Effects::new();
        for (path, before, after) in lines.iter().flat_map(|line| line.effects()) {
            let [before, after] = [before, after].map(|hash| hash.map(str::to_owned));
            assert!(effects.insert(path.to_owned(), [before, after]).is_none(), "{lines:?}");
        }
        Some((first, effects, before))
    }

    fn chosen(&self, seq: u64) -> Chosen {
        Which::Line(seq).find(self.gate.workspace().ledger()).unwrap().unwrap()
    }

    /// The diffs of a change lead from what was there to what it left.
    fn show_is_right(&mut self) {
        let Some((seq, effects, _)) = self.recent() else { return };
        let chosen = self.chosen(seq);
        let contents = Contents::of(self.gate.workspace()).left_by(&chosen.steps);
        let shown = chosen.diffs(&contents, usize::MAX).unwrap();
        let due: BTreeMap<_, _> = effects.iter().filter(|(_, [before, after])| before != after).collect();
        assert_eq!(shown.len(), due.len(), "{seq}: {effects:?}");
        for file in shown {
            let [before, after] = due[&file.path];
            let hashes = [file.before, file.after].map(|hash| hash.map(|hash| hash.to_string()));
            assert_eq!(hashes, [before.clone(), after.clone()], "{seq}: {}", file.path);
            let is_link =
                |hash: &Option<String>| hash.as_ref().is_some_and(|hash| self.seen.links.contains(hash));
            if let Some(diff) = file.diff.filter(|_| !is_link(before) && !is_link(after)) {
                let [before, after] = [before, after]
                    .map(|hash| hash.as_ref().map_or(String::new(), |hash| self.seen.text(hash)));
                assert_eq!(patched(&before, &diff), after, "{seq}: {}\n{diff}", file.path);
            }
        }
    }

    /// What comes of undoing a change of one path, if there is nothing in the way: the lines, and whether the order is known, too.
    fn without(&self, path: &str, [before, after]: &[Option<String>; 2]) -> Due {
        let now = self.files.get(path).map(|file| &file.hash);
        let is_link = |hash: Option<&String>| hash.is_some_and(|hash| self.seen.links.contains(hash));
        if now == before.as_ref() || before == after {
            return Due::Stays;
        }
        // To delete a link takes no bytes.
        if now == after.as_ref() && (before.is_none() || !is_link(before.as_ref()) && !is_link(now)) {
            return Due::Exactly(before.clone());
        }
        match (now, before, after) {
            (Some(now), Some(before), Some(after))
                if ![now, before, after].iter().any(|hash| is_link(Some(hash))) =>
            {
                let [now, before, after] = [now, before, after].map(|hash| self.seen.text(hash));
                let has = |text: &str, line: &str| text.lines().any(|other| other == line);
                let stay = now.lines().filter(|line| has(&before, line) || !has(&after, line));
                let back = before.lines().filter(|line| !has(&after, line) && !has(&now, line));
                let mut lines: Vec<String> = stay.chain(back).map(str::to_owned).collect();
                lines.sort();
                Due::Lines(lines)
            }
            _ => Due::MayNot,
        }
    }

    /// Undoes a recent change, sometimes as a process that may be killed: all is as it would be without the change, or nothing happens.
    fn undo_is_right(&mut self) {
        let Some((seq, effects, then)) = self.recent() else { return };
        let due: Vec<_> =
            effects.iter().map(|(path, effect)| (path.clone(), self.without(path, effect))).collect();
        let before = self.files.clone();
        let recovered = self.ledger.mutations.iter().any(|line| line.seq == seq && line.recovered);
        let ended = if self.below(8) == 0 {
            self.process(&["undo", &seq.to_string(), "--yes"], None)
        } else {
            Some(self.undo_here(seq, &due))
        };
        let known = self.ledger.mutations.len();
        self.all_or_nothing_was_done(ended.is_some());
        let is_done = self.ledger.mutations.len() > known;
        assert!(ended.is_none() || is_done == (ended == Some(0)), "{seq}: {ended:?}");
        if !is_done {
            let may_refuse = due.iter().any(|(_, due)| matches!(due, Due::MayNot | Due::Lines(_)))
                || due.iter().all(|(_, due)| matches!(due, Due::Stays));
            assert!(may_refuse || ended.is_none(), "{seq}: {due:?}");
            assert_eq!(self.files, before);
            self.conflicts += usize::from(ended.is_some());
            return;
        }
        self.undone += 1;
        for (path, due) in due {
            let (was, now) = (before.get(&path), self.files.get(&path));
            match due {
                Due::Stays => assert_eq!(now, was, "{seq}: {path}"),
                Due::Exactly(hash) => {
                    assert_eq!(now.map(|file| &file.hash), hash.as_ref(), "{seq}: {path}");
                    if let (Some(now), None, Some(then), false) = (now, was, then.get(&path), recovered) {
                        assert_eq!(now.may_execute, then.may_execute, "{seq}: the mode of {path}");
                    }
                }
                Due::Lines(lines) => {
                    let mut found: Vec<String> =
                        self.seen.text(&now.unwrap().hash).lines().map(str::to_owned).collect();
                    found.sort();
                    assert_eq!(found, lines, "{seq}: {path}");
                }
                Due::MayNot => panic!("{seq}: {path} was undone to {now:?}"),
            }
        }
    }

    /// Undoes a change in this process. Returns the exit code that a process would have.
    fn undo_here(&mut self, seq: u64, due: &[(String, Due)]) -> i32 {
        let chosen = self.chosen(seq);
        let contents = Contents::of(self.gate.workspace()).left_by(&chosen.steps);
        let plan = chosen.plan_to_undo(&contents).unwrap();
        for file in &plan.files {
            if let UndoResult::Conflict(why) = &file.result {
                let due = &due.iter().find(|(path, _)| *path == file.path).unwrap().1;
                let fits = match why {
                    WhyNot::SameLines(_) => matches!(due, Due::Lines(_)),
                    WhyNot::NotKept => !matches!(due, Due::Stays | Due::Exactly(_)),
                    WhyNot::Gone | WhyNot::Link => matches!(due, Due::MayNot),
                    WhyNot::NotText => false,
                };
                assert!(fits, "{seq}: {}: {why:?}, but {due:?}", file.path);
            }
        }
        if plan.conflicts().next().is_some() || plan.changes.is_empty() {
            return 1;
        }
        let turn = self.turn();
        let outcome = self.gate.apply_as(&turn, "undo", plan.changes).unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{seq}: {outcome:?}");
        0
    }

    fn act(&mut self) {
        match self.below(100) {
            0..46 => self.agent_changes_files(),
            46..58 => self.agent_moves_a_file(),
            58..61 => self.agent_moves_a_folder(),
            61..76 => self.outsider_acts(),
            76..79 => self.agent_runs_a_command(),
            79..82 => self.process_changes_files(),
            82..86 => self.show_is_right(),
            _ => self.undo_is_right(),
        }
    }

    /// The product reads the same number of changes from the ledger.
    fn nothing_is_missing(&self) {
        let steps =
            Steps::read(self.gate.workspace().ledger(), Back::ToTheStart, |_| ControlFlow::Continue(true));
        assert_eq!(steps.unwrap().steps.len(), self.ledger.mutations.len());
        assert_eq!(fs::read_dir(self.world.path(".tollgate/journal")).unwrap().count(), 0);
    }
}

/// What must come of undoing a change of a path.
#[derive(Debug, Clone)]
enum Due {
    /// Nothing is to be done.
    Stays,
    /// It becomes this: the file is as the change left it.
    Exactly(Option<String>),
    /// A merge with these lines, sorted; or a conflict.
    Lines(Vec<String>),
    /// A conflict.
    MayNot,
}

#[test]
fn blame_show_and_undo_agree_with_an_independent_replay_of_the_ledger() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let changes = number("TOLLGATE_REPLAY_CHANGES");
    let stories = changes.unwrap_or(1_000).div_ceil(STORY as u64);
    let first = number("TOLLGATE_REPLAY_SEED");
    let (mut certain, mut undone, mut conflicts, mut processes, mut killed) = (0, 0, 0, 0, 0);
    for seed in first.map_or(0..stories, |seed| seed..seed + 1) {
        println!("TOLLGATE_REPLAY_SEED={seed}");
        let mut story = Story::new(seed, changes.is_some());
        while story.ledger.mutations.len() < STORY {
            let known = story.ledger.mutations.len();
            story.act();
            if story.ledger.mutations.len() / 100 > known / 100 {
                story.blame_is_right();
            }
        }
        story.nothing_is_missing();
        certain += story.certain;
        undone += story.undone;
        conflicts += story.conflicts;
        processes += story.processes;
        killed += story.killed;
    }
    println!(
        "{certain} lines, {undone} undone, {conflicts} not, {processes} processes, {killed} of them killed"
    );
    assert!(first.is_some() || certain > 100 && undone > 20 && conflicts > 2);
    assert_eq!(changes.is_some(), killed > 0);
}

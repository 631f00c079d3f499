//! History against an independent replay: a model that knows of each line who wrote it, and of each change what it did.
//!
//! Every line is unique, so the model needs no comparison of texts: a line that is in two versions is the same line. Four agents and
//! an outsider create, edit, delete and move files, also several at once and whole folders.

use std::collections::{BTreeMap, HashSet};
use std::fs;

use tempfile::TempDir;

use super::blame::{Writer, writers};
use super::content::Contents;
use super::step::{Back, Step, Steps};
use super::undo::{Plan, UndoResult, WhyNot, spans};
use crate::change::{Action, Change, Expected};
use crate::gate::Gate;
use crate::turn::Turn;
use crate::workspace::{Options, Workspace};
use std::ops::ControlFlow;
use tollgate_base::digest::Digest;
use tollgate_base::event::{Event, Mutation};
use tollgate_base::name::TurnId;
use tollgate_base::private;
use tollgate_base::settings::{Durability, Settings};

const AGENTS: [&str; 4] = ["blue", "green", "red", "violet"];
const NAMES: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "e/a"];

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    /// The change with this ledger line.
    Line(u64),
    Outsider,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ModelLine {
    text: String,
    by: Truth,
}

type Lines = Vec<ModelLine>;

/// What one change did to one path.
#[derive(Debug, Clone)]
struct Effect {
    path: String,
    before: Option<Lines>,
    after: Option<Lines>,
}

struct Replay {
    _keep: TempDir,
    gate: Gate,
    files: BTreeMap<String, Lines>,
    /// The changes, by their first ledger line.
    changes: BTreeMap<u64, Vec<Effect>>,
    random: u64,
    next_line: u64,
}

fn bytes(lines: &[ModelLine]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{}\n", line.text).into_bytes()).collect()
}

fn texts(lines: &[ModelLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

impl Replay {
    fn new(seed: u64) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.guard.durability = Durability::Fast;
        let options = Options { settings: Some(settings), ..Options::default() };
        let gate = Gate::new(Workspace::open(keep.path(), options).unwrap());
        let (files, changes) = (BTreeMap::new(), BTreeMap::new());
        Self { _keep: keep, gate, files, changes, random: seed, next_line: 0 }
    }

    fn below(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below
    }

    fn turn(&mut self) -> Turn {
        let agent = AGENTS[self.below(AGENTS.len())];
        Turn::begin(TurnId::new().unwrap(), agent.parse().unwrap())
    }

    fn line(&mut self, by: Truth) -> ModelLine {
        self.next_line += 1;
        ModelLine { text: format!("line {}", self.next_line), by }
    }

    /// A new version of some lines: some are removed, some are new.
    fn edited(&mut self, lines: &[ModelLine], by: Truth) -> Lines {
        let mut edited = lines.to_vec();
        for _ in 0..1 + self.below(3) {
            let at = self.below(edited.len() + 1);
            if self.below(3) == 0 && !edited.is_empty() {
                edited.remove(at.min(edited.len() - 1));
            } else {
                let line = self.line(by);
                edited.insert(at, line);
            }
        }
        edited
    }

    fn last_line(&self) -> u64 {
        self.gate.workspace().ledger().newest_first().unwrap().next().map_or(0, |line| line.unwrap().seq)
    }

    fn pick(&mut self) -> Option<String> {
        let names: Vec<String> = self.files.keys().cloned().collect();
        if names.is_empty() { None } else { Some(names[self.below(names.len())].clone()) }
    }

    /// What must be on disk for a change of this path.
    fn expected(&self, path: &str) -> Expected {
        self.files.get(path).map_or(Expected::Absent, |lines| Expected::Hash(Digest::of(&bytes(lines))))
    }

    /// An agent changes one to three files as one change.
    fn agent_changes_files(&mut self) {
        let first = self.last_line() + 1;
        let mut wanted: Vec<(String, Option<Lines>)> = Vec::new();
        for _ in 0..1 + self.below(3) {
            let path = NAMES[self.below(NAMES.len())].to_owned();
            if wanted.iter().any(|(named, _)| *named == path) {
                continue;
            }
            // The ledger's lines have the order of the paths, and the model learns it from the ledger below.
            let now = self.files.get(&path).cloned();
            let new = match now {
                Some(_) if self.below(6) == 0 => None,
                now => Some(self.edited(&now.unwrap_or_default(), Truth::Line(0))),
            };
            wanted.push((path, new));
        }
        let changes = wanted
            .iter()
            .map(|(path, new)| {
                let action = new.as_ref().map_or(Action::Delete, |lines| Action::Write(bytes(lines)));
                Change::new(path, action).expecting(self.expected(path))
            })
            .collect();
        let turn = self.turn();
        self.gate.apply(&turn, changes).unwrap().into_result().unwrap();
        self.learn(first, wanted);
    }

    /// Tells the new lines of a change which ledger line is theirs.
    fn learn(&mut self, first: u64, wanted: Vec<(String, Option<Lines>)>) {
        let ledger = self.gate.workspace().ledger().newest_first().unwrap();
        let lines: BTreeMap<String, u64> = ledger
            .map(|line| line.unwrap())
            .take_while(|line| line.seq >= first)
            .filter_map(|line| match line.event {
                Event::Mutation(Mutation::File(file), _) => Some((file.target_file, line.seq)),
                _ => None,
            })
            .collect();
        let mut effects = Vec::new();
        for (path, new) in wanted {
            let Some(seq) = lines.get(&path) else { continue };
            let before = self.files.get(&path).cloned();
            let old: HashSet<&str> = before.iter().flatten().map(|line| line.text.as_str()).collect();
            let new = new.map(|mut lines| {
                for line in &mut lines {
                    if !old.contains(line.text.as_str()) {
                        line.by = Truth::Line(*seq);
                    }
                }
                lines
            });
            effects.push(Effect { path: path.clone(), before, after: new.clone() });
            match new {
                Some(lines) => self.files.insert(path, lines),
                None => self.files.remove(&path),
            };
        }
        self.changes.insert(first, effects);
    }

    fn agent_moves_a_file(&mut self) {
        let Some(from) = self.pick() else { return };
        let to = NAMES[self.below(NAMES.len())].to_owned();
        if self.files.contains_key(&to) {
            return;
        }
        let seq = self.last_line() + 1;
        let (turn, expected) = (self.turn(), self.expected(&from));
        self.gate.move_file(&turn, &from, &to, expected).unwrap().into_result().unwrap();
        let lines = self.files.remove(&from).unwrap();
        let gone = Effect { path: from, before: Some(lines.clone()), after: None };
        let come = Effect { path: to.clone(), before: None, after: Some(lines.clone()) };
        self.changes.insert(seq, vec![gone, come]);
        self.files.insert(to, lines);
    }

    fn agent_moves_a_folder(&mut self) {
        let [from, to] = if self.below(2) == 0 { ["d", "e"] } else { ["e", "d"] };
        let root = self.gate.workspace().path().to_owned();
        if !root.join(from).exists() || fs::remove_dir(root.join(to)).is_err() && root.join(to).exists() {
            return;
        }
        let turn = self.turn();
        self.gate.move_folder(&turn, from, to).unwrap().into_result().unwrap();
        let below: Vec<String> =
            self.files.keys().filter(|name| name.starts_with(&format!("{from}/"))).cloned().collect();
        for name in below {
            let lines = self.files.remove(&name).unwrap();
            self.files.insert(name.replacen(from, to, 1), lines);
        }
    }

    fn outsider_writes(&mut self) {
        let path = NAMES[self.below(NAMES.len())].to_owned();
        let lines = self.files.get(&path).cloned().unwrap_or_default();
        let on_disk = self.gate.workspace().path().join(&path);
        if self.below(8) == 0 {
            let _ = private::remove_file(&on_disk);
            self.files.remove(&path);
            return;
        }
        let lines = self.edited(&lines, Truth::Outsider);
        fs::create_dir_all(on_disk.parent().unwrap()).unwrap();
        fs::write(on_disk, bytes(&lines)).unwrap();
        self.files.insert(path, lines);
    }

    /// Compares the writer of each line. Returns how many lines an agent wrote for certain.
    fn check_blame(&self) -> usize {
        let mut certain = 0;
        for (path, lines) in &self.files {
            let writers = writers(self.gate.workspace(), path, &bytes(lines)).unwrap();
            assert_eq!(writers.len(), lines.len(), "{path}");
            for (line, writer) in lines.iter().zip(writers) {
                let agrees = match (&writer, line.by) {
                    (Writer::Step(step), Truth::Line(seq)) => {
                        certain += 1;
                        step.seq == seq
                    }
                    (Writer::OneOf { steps, .. }, Truth::Line(seq)) => {
                        steps.iter().any(|step| step.seq == seq)
                    }
                    (Writer::OneOf { others, .. }, Truth::Outsider) => *others,
                    (Writer::SomebodyElse { .. } | Writer::Older, Truth::Outsider) => true,
                    _ => false,
                };
                assert!(agrees, "{path}: {line:?}, but {writer:?}");
            }
        }
        certain
    }

    fn steps(&self, back: Back) -> Vec<Step> {
        Steps::read(self.gate.workspace().ledger(), back, |_| ControlFlow::Continue(true)).unwrap().steps
    }

    /// What `show` shows of a change is what the model saw it do.
    fn check_show(&self, change: u64) {
        let steps = self.steps(Back::ToLine(change));
        let contents = Contents::of(self.gate.workspace()).left_by(&steps);
        let shown = spans(&steps, |step| step.change == change);
        let effects = &self.changes[&change];
        let changed = effects
            .iter()
            .filter(|effect| effect.before.as_deref().map(texts) != effect.after.as_deref().map(texts));
        assert_eq!(shown.iter().filter(|span| !span.is_nothing()).count(), changed.count(), "{change}");
        for span in shown {
            let effect = effects.iter().find(|effect| effect.path == span.path).unwrap();
            for (digest, lines) in [(span.before, &effect.before), (span.after, &effect.after)] {
                assert_eq!(digest, lines.as_deref().map(|lines| Digest::of(&bytes(lines))));
                if let Some(found) = digest.and_then(|digest| contents.find(digest).unwrap()) {
                    assert_eq!(Some(found), lines.as_deref().map(bytes));
                }
            }
        }
    }

    /// Undoes a change. Returns whether it could be undone.
    fn undo(&mut self, change: u64) -> bool {
        let steps = self.steps(Back::ToLine(change));
        let contents = Contents::of(self.gate.workspace()).left_by(&steps);
        let plan = Plan::undo(&contents, &steps, |step| step.change == change).unwrap();
        let effects = self.changes[&change].clone();
        for (file, why) in plan.conflicts() {
            let effect = effects.iter().find(|effect| effect.path == file.path).unwrap();
            // Nothing can be in the way if the file still is what the change left.
            assert_ne!(
                self.files.get(&file.path).map(|lines| texts(lines)),
                effect.after.as_deref().map(texts),
                "{change}: {why}"
            );
            assert!(!matches!(why, WhyNot::NotText | WhyNot::Link), "{why}");
        }
        if plan.conflicts().next().is_some() || plan.changes.is_empty() {
            return false;
        }
        let mut wanted: Vec<(String, Option<Lines>)> = Vec::new();
        for effect in &effects {
            let now = self.files.get(&effect.path);
            let new = without(now.map_or(&[], Vec::as_slice), effect);
            let expected = if effect.before.is_none() { None } else { Some(new) };
            wanted.push((effect.path.clone(), expected));
        }
        for file in &plan.files {
            let expected = wanted.iter().find(|(path, _)| *path == file.path).unwrap().1.clone();
            let planned = match &file.result {
                UndoResult::Becomes { bytes, .. } => bytes.clone(),
                UndoResult::Already => file.disk.clone(),
                UndoResult::MovesBack { .. } => None,
                UndoResult::Conflict(_) => unreachable!(),
            };
            same_lines(change, planned.as_deref(), expected.as_deref(), self.files.get(&file.path));
        }
        let (turn, first) = (self.turn(), self.last_line() + 1);
        let before = self.files.clone();
        self.gate.apply_as(&turn, "undo", plan.changes).unwrap().into_result().unwrap();
        self.after_undo(first, &before, wanted.into_iter().map(|(path, _)| path).collect());
        true
    }

    /// Reads what an undo has written: that it is right was checked before.
    fn after_undo(&mut self, first: u64, before: &BTreeMap<String, Lines>, paths: Vec<String>) {
        let ledger = self.gate.workspace().ledger().newest_first().unwrap();
        let moved =
            ledger.map(|line| line.unwrap()).take_while(|line| line.seq >= first).find_map(|line| match line
                .event
            {
                Event::Mutation(Mutation::File(file), _) => file.moved_to.map(|to| (file.target_file, to)),
                _ => None,
            });
        if let Some((from, to)) = moved {
            let lines = self.files.remove(&from).unwrap();
            let gone = Effect { path: from, before: Some(lines.clone()), after: None };
            let come = Effect { path: to.clone(), before: None, after: Some(lines.clone()) };
            self.changes.insert(first, vec![gone, come]);
            self.files.insert(to, lines);
            return;
        }
        let root = self.gate.workspace().path().to_owned();
        let wanted = paths.into_iter().map(|path| {
            let text = fs::read_to_string(root.join(&path)).ok();
            let known = before.get(&path).cloned().unwrap_or_default();
            let lines = text.map(|text| {
                let line = |text: &str| {
                    let known = known.iter().find(|line| line.text == text).cloned();
                    known.unwrap_or(ModelLine { text: text.to_owned(), by: Truth::Line(0) })
                };
                text.lines().map(line).collect()
            });
            (path, lines)
        });
        let wanted = wanted.collect();
        self.learn(first, wanted);
    }
}

/// The lines that are there now, without those that the change brought, and those that it removed.
fn without(now: &[ModelLine], effect: &Effect) -> Lines {
    let has = |lines: &Option<Lines>, text: &str| lines.iter().flatten().any(|line| line.text == text);
    let mut lines: Lines = now
        .iter()
        .filter(|line| has(&effect.before, &line.text) || !has(&effect.after, &line.text))
        .cloned()
        .collect();
    for line in effect.before.iter().flatten() {
        if !has(&effect.after, &line.text) && !lines.contains(line) {
            lines.push(line.clone());
        }
    }
    lines
}

/// The same lines, and those that were there keep their order.
fn same_lines(change: u64, planned: Option<&[u8]>, expected: Option<&[ModelLine]>, now: Option<&Lines>) {
    let planned = planned.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let lines = planned.as_ref().map(|text| sorted(text.lines().map(str::to_owned).collect()));
    let wanted = expected.map(|lines| sorted(lines.iter().map(|line| line.text.clone()).collect()));
    assert_eq!(lines, wanted, "undo of {change}");
    let Some(planned) = planned else { return };
    let stay: Vec<&str> = now.into_iter().flatten().map(|line| line.text.as_str()).collect();
    let kept: Vec<&str> = planned.lines().filter(|line| stay.contains(line)).collect();
    let order: Vec<&str> = stay.iter().copied().filter(|line| kept.contains(line)).collect();
    assert_eq!(kept, order, "undo of {change}");
}

#[test]
fn blame_show_and_undo_agree_with_an_independent_replay() {
    let (mut certain, mut undone, mut refused) = (0, 0, 0);
    for seed in 0..8 {
        let mut replay = Replay::new(seed);
        for round in 0..300 {
            match replay.below(20) {
                0..10 => replay.agent_changes_files(),
                10..12 => replay.agent_moves_a_file(),
                12 => replay.agent_moves_a_folder(),
                13..17 => replay.outsider_writes(),
                _ => {
                    let recent: Vec<u64> = replay.changes.keys().rev().take(6).copied().collect();
                    if !recent.is_empty() {
                        let change = recent[replay.below(recent.len())];
                        replay.check_show(change);
                        let counter = if replay.undo(change) { &mut undone } else { &mut refused };
                        *counter += 1;
                    }
                }
            }
            if round % 20 == 19 {
                certain += replay.check_blame();
            }
        }
    }
    assert!(certain > 500 && undone > 50 && refused > 5, "{certain} {undone} {refused}");
}

//! What deserves a notice, from what happens in the workspace. Pure.
//!
//! Invariants: a task that waits is told once, until it has been decided; what waited from the beginning is not told. An agent that is refused again and again is told
//! once for each file, until it has written the file. Agents that have changed the same file are told once, as long as they go on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tollgate::event::{Event, FileChanged, Mutation, RefusalStatus, WriteRefused};
use tollgate::ledger::Line;
use tollgate::name::Agent;
use tollgate::overlap::Overlap;
use tollgate::settings::{NoticeKind, NotifySettings};

/// Refusals within this time count together.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The number of agents and files whose refusals are remembered.
const REMEMBERED: usize = 10_000;

/// What is known so far.
pub(super) struct NoticeFilter {
    settings: NotifySettings,
    workspace: String,
    /// The tasks that wait for approval. `None` until the first look.
    waiting: Option<BTreeSet<String>>,
    /// The refusals of an agent to a file, and whether they were told.
    refused: BTreeMap<(String, String), (VecDeque<Timestamp>, bool)>,
    /// The files on which several agents worked at the last look, each with the agents that have changed it. `None` until the first look.
    overlapping: Option<BTreeSet<(PathBuf, Vec<Agent>)>>,
}

impl NoticeFilter {
    pub(super) fn new(settings: NotifySettings, workspace: &Path) -> Self {
        let workspace = workspace.display().to_string();
        Self { settings, workspace, waiting: None, refused: BTreeMap::new(), overlapping: None }
    }

    pub(super) fn wants(&self, kind: NoticeKind) -> bool {
        self.settings.on.contains(&kind)
    }

    /// These tasks wait for approval now: a notice for each that did not at the last look.
    pub(super) fn pending(&mut self, tasks: &[(String, String)]) -> Vec<Value> {
        let now = tasks.iter().map(|(task, _)| task.clone()).collect();
        let Some(waited) = self.waiting.replace(now) else { return Vec::new() };
        let new = tasks.iter().filter(|(task, _)| !waited.contains(task) && self.wants(NoticeKind::Approval));
        new.map(|(task, title)| self.notice("approval.pending", json!({"task": task, "title": title})))
            .collect()
    }

    /// Several agents work on these files now: a notice for each that two of them have changed, unless that was so at the last look.
    pub(super) fn overlaps(&mut self, files: &[Overlap]) -> Vec<Value> {
        let key = |file: &Overlap| {
            let mut agents: Vec<Agent> = file
                .workers
                .iter()
                .filter(|worker| worker.changed)
                .map(|worker| worker.agent.clone())
                .collect();
            agents.sort();
            (agents.len() > 1).then(|| (file.path.clone(), agents))
        };
        let now = files.iter().filter_map(key).collect();
        let Some(before) = self.overlapping.replace(now) else { return Vec::new() };
        let new = files.iter().filter(|file| key(file).is_some_and(|key| !before.contains(&key)));
        let about = |file: &Overlap| {
            let workers: Vec<Value> = file
                .workers
                .iter()
                .filter(|worker| worker.changed)
                .map(|worker| json!({"agent": worker.agent, "lines": worker.lines, "tree": worker.tree}))
                .collect();
            json!({"file": file.path.to_string_lossy(), "agents": workers})
        };
        new.map(|file| self.notice("overlap.found", about(file))).collect()
    }

    /// A line was added to the ledger: the notice that it deserves, if any.
    pub(super) fn line(&mut self, line: &Line) -> Option<Value> {
        let agent = line.agent.as_ref().map_or("", |agent| agent.as_str()).to_owned();
        match &line.event {
            Event::Breaker(turned) if turned.until.is_some() && self.wants(NoticeKind::Breaker) => {
                let about = json!({"agent": agent, "failures": turned.failures, "reason": turned.reason, "until": turned.until});
                Some(self.notice("breaker.open", about))
            }
            Event::MutationConflict(write, RefusalStatus::Denied, _)
            | Event::MutationRefused(write, RefusalStatus::Denied, _) => {
                self.refusal(agent, write, line.time)
            }
            Event::Mutation(Mutation::File(FileChanged { target_file, .. }), _) => {
                self.refused.remove(&(agent, target_file.clone()));
                None
            }
            _ => None,
        }
    }

    fn refusal(&mut self, agent: String, write: &WriteRefused, time: Timestamp) -> Option<Value> {
        if !self.wants(NoticeKind::Refusals) || self.settings.refusals == 0 {
            return None;
        }
        if self.refused.len() >= REMEMBERED {
            self.refused
                .retain(|_, (times, _)| times.back().is_some_and(|last| time.duration_since(*last) < WINDOW));
        }
        let key = (agent, write.target_file.clone());
        if self.refused.len() >= REMEMBERED && !self.refused.contains_key(&key) {
            return None;
        }
        let (times, is_told) = self.refused.entry(key.clone()).or_default();
        times.push_back(time);
        while times.front().is_some_and(|first| time.duration_since(*first) > WINDOW) {
            times.pop_front();
            *is_told = false;
        }
        let count = times.len();
        let is_enough = u32::try_from(count).unwrap_or(u32::MAX) >= self.settings.refusals;
        if !is_enough || std::mem::replace(is_told, true) {
            return None;
        }
        let (agent, file) = key;
        let about = json!({"agent": agent, "file": file, "count": count, "within_s": WINDOW.as_secs()});
        Some(self.notice("refusals.repeated", about))
    }

    fn notice(&self, event: &str, about: Value) -> Value {
        let mut notice = json!({"event": event, "workspace": self.workspace});
        if let (Value::Object(notice), Value::Object(about)) = (&mut notice, about) {
            notice.extend(about);
        }
        notice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::name::TurnId;
    use tollgate::overlap::Worker;

    fn filter(settings: NotifySettings) -> NoticeFilter {
        NoticeFilter::new(settings, Path::new("/w"))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn write(file: &str) -> WriteRefused {
        let (tool_name, target_file) = ("write_file".to_owned(), file.to_owned());
        WriteRefused { tool_name, target_file, baseline_hash: None, current_hash: None, unfinished: None }
    }

    #[test]
    fn a_task_that_waits_is_told_once_until_it_was_decided() {
        let mut filter = filter(NotifySettings::default());
        let task = |name: &str| (format!("{name}.md"), name.to_uppercase());
        assert_eq!(filter.pending(&[task("z")]), [] as [Value; 0], "it waited before anybody looked");
        let told = filter.pending(&[task("z"), task("a")]);
        assert_eq!(
            told,
            [json!({"event": "approval.pending", "workspace": "/w", "task": "a.md", "title": "A"})]
        );
        assert_eq!(filter.pending(&[task("a")]), [] as [Value; 0]);
        assert_eq!(filter.pending(&[task("a"), task("b")]).len(), 1);
        assert_eq!(filter.pending(&[]), [] as [Value; 0]);
        assert_eq!(filter.pending(&[task("a")]).len(), 1, "it waits again");
    }

    #[test]
    fn agents_that_change_one_file_are_told_once_as_long_as_they_go_on() {
        let mut filter = filter(NotifySettings::default());
        let worker = |agent: &str, changed| Worker {
            agent: agent.parse().unwrap(),
            turn: TurnId::new().unwrap(),
            tree: None,
            changed,
            lines: changed.then_some((3, 4)),
            time: at(0),
        };
        let file = |path: &str, workers: Vec<Worker>| Overlap { path: path.into(), workers };
        let both = |path: &str| file(path, vec![worker("red", true), worker("blue", true)]);
        assert_eq!(filter.overlaps(&[both("old")]), [] as [Value; 0], "it was so before anybody looked");
        let read = file("read", vec![worker("blue", true), worker("red", false)]);
        assert_eq!(filter.overlaps(&[both("old"), read]), [] as [Value; 0], "one of them has only read it");
        let told = filter.overlaps(&[both("old"), both("a")]);
        let agents = json!([{"agent": "red", "lines": [3, 4], "tree": null}, {"agent": "blue", "lines": [3, 4], "tree": null}]);
        let notice = json!({"event": "overlap.found", "workspace": "/w", "file": "a", "agents": agents});
        assert_eq!(told, [notice]);
        assert_eq!(filter.overlaps(&[both("a")]), [] as [Value; 0]);
        let third = file("a", vec![worker("red", true), worker("blue", true), worker("green", true)]);
        assert_eq!(filter.overlaps(&[third]).len(), 1, "one more agent");
        assert_eq!(filter.overlaps(&[]), [] as [Value; 0]);
        assert_eq!(filter.overlaps(&[both("a")]).len(), 1, "again");
    }

    #[test]
    fn repeated_refusals_are_told_once_within_their_time() {
        let mut all = filter(NotifySettings::default());
        let mut refused =
            |agent: &str, file: &str, second| all.refusal(agent.into(), &write(file), at(second));
        assert_eq!(
            (refused("blue", "a", 0), refused("blue", "b", 1), refused("red", "a", 2)),
            (None, None, None)
        );
        assert_eq!(refused("blue", "a", 3), None);
        let told = refused("blue", "a", 4).unwrap();
        assert_eq!(
            (&told["event"], &told["agent"], &told["count"]),
            (&json!("refusals.repeated"), &json!("blue"), &json!(3))
        );
        assert_eq!(refused("blue", "a", 5), None, "told already");
        assert_eq!(refused("blue", "b", 700), None, "the first was too long ago");
        let mut none = filter(NotifySettings { on: vec![NoticeKind::Approval], ..NotifySettings::default() });
        for second in 0..9 {
            assert_eq!(none.refusal("blue".into(), &write("a"), at(second)), None);
        }
    }
}

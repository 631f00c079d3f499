//! A lane: one participant of the work, whose steps come one after another. It has files or tasks of its own, so what must be
//! there after a cut follows from its own steps alone, whatever the other lanes do at the same time.
//!
//! A state is what a person would see: each file with its text, each task with its place and its blocks. Before each step
//! and after it, the state is known; a cut must leave the last acknowledged state, or that of the step that had begun.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::machine::{Machine, Result, at};
use crate::mcp_client::McpClient;
use crate::report::Finding;

/// What there is, by name.
pub(crate) type State = BTreeMap<String, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// Files, by commands.
    Files,
    /// Files, by one process that serves MCP.
    Mcp,
    /// Tasks in folders.
    Tasks,
    /// Tasks over git.
    Git,
}

/// One step: the number of requests to the disk when it began, and when its answer was there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) begun: usize,
    pub(crate) acknowledged: usize,
}

pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) kind: LaneKind,
    pub(crate) steps: Vec<Step>,
    /// The first state, and that after each step.
    states: Vec<State>,
    /// The ids of the claims that last.
    claims: BTreeMap<String, String>,
    /// The id of the clone, which the remote knows its claims by.
    clone_id: String,
    chance: Chance,
}

/// The ledger's lines about the files of a lane, as a name in its state.
const LINES: &str = "ledger lines";

impl Lane {
    pub(crate) fn new(name: &'static str, kind: LaneKind, seed: u64) -> Self {
        let first = match kind {
            LaneKind::Files | LaneKind::Mcp => State::from([(LINES.to_owned(), "0".to_owned())]),
            LaneKind::Tasks | LaneKind::Git => State::new(),
        };
        let (steps, states, claims) = (Vec::new(), vec![first], BTreeMap::new());
        Self { name, kind, steps, states, claims, clone_id: String::new(), chance: Chance::new(seed, name) }
    }

    fn workspace(&self) -> &'static str {
        if self.kind == LaneKind::Git { "g" } else { "w" }
    }

    /// Takes this many steps.
    pub(crate) fn work(&mut self, machine: &Machine, steps: usize) -> Result<()> {
        let mut mcp = match self.kind {
            LaneKind::Mcp => Some(McpClient::start(machine.command("w", &["mcp", "--agent", self.name]))?),
            _ => None,
        };
        for _ in 0..steps {
            let mut planned = self.plan();
            let begun = machine.disk().position();
            let answer = match &mut mcp {
                Some(client) => {
                    let (path, content) = (&planned.words[1], &planned.input);
                    client.call(
                        "write_file",
                        &json!({"path": machine.path("w").join(path), "content": content}),
                    )?
                }
                None => {
                    let mut words: Vec<&str> = planned.words.iter().map(String::as_str).collect();
                    words.extend(["--agent", self.name, "--json"]);
                    let printed = machine.must(self.workspace(), &words, &planned.input)?;
                    serde_json::from_str(&printed)
                        .map_err(|error| format!("{words:?}: {error}: {printed}"))?
                }
            };
            self.steps.push(Step { begun, acknowledged: machine.disk().position() });
            if let (true, Some(task), Some(claim)) =
                (answer["claimed"] == true, answer["task"].as_str(), answer["claim_id"].as_str())
            {
                self.claims.insert(task.to_owned(), claim.to_owned());
                planned.after.entry(task.to_owned()).and_modify(|seen| *seen += &with_claim(claim, true));
            }
            self.states.push(planned.after);
        }
        if self.kind == LaneKind::Git {
            self.clone_id = clone_id(machine)?;
        }
        Ok(())
    }

    fn plan(&mut self) -> Planned {
        match self.kind {
            LaneKind::Files => self.plan_files(),
            LaneKind::Mcp => self.plan_write(),
            LaneKind::Tasks | LaneKind::Git => self.plan_task(),
        }
    }

    fn now(&self) -> State {
        self.states.last().cloned().unwrap_or_default()
    }

    fn pick(&mut self, limit: usize) -> usize {
        usize::try_from(self.chance.below(limit as u64)).unwrap_or(0)
    }

    /// A text that no other step writes, of a few bytes or a few blocks.
    fn text(&mut self) -> String {
        let length = [0, 40, 6_000, 30_000][self.pick(4)];
        format!("{} {} {}\n", self.name, self.states.len(), "x".repeat(length))
    }

    /// Names of files of the lane that exist, and that do not.
    fn files(&self) -> (Vec<String>, Vec<String>) {
        let all = ["a", "b", "c", "n/d", "n/e", "n/o/f"].map(|name| format!("{}/{name}", self.name));
        let now = self.now();
        all.into_iter().partition(|name| now.contains_key(name))
    }

    fn plan_write(&mut self) -> Planned {
        let (mut names, others) = self.files();
        names.extend(others);
        let (name, text) = (names[self.pick(names.len())].clone(), self.text());
        let mut after = self.now();
        after.insert(name.clone(), text.clone());
        Planned::new(&["write", &name], text, count(after, 1))
    }

    fn plan_files(&mut self) -> Planned {
        let (there, free) = self.files();
        let mut after = self.now();
        match self.pick(6) {
            0 if there.len() > 1 => {
                let name = &there[self.pick(there.len())];
                after.remove(name);
                Planned::new(&["delete", name], String::new(), count(after, 1))
            }
            1 if !there.is_empty() && !free.is_empty() => {
                let (from, to) = (&there[self.pick(there.len())], &free[self.pick(free.len())]);
                let text = after.remove(from).unwrap_or_default();
                after.insert(to.clone(), text);
                Planned::new(&["move", from, to], String::new(), count(after, 1))
            }
            2 if !free.is_empty() => {
                let (name, text) = (&free[self.pick(free.len())], self.text());
                after.insert(name.clone(), text.clone());
                Planned::new(&["create", name], text, count(after, 1))
            }
            3 | 4 => {
                let mut changes = Vec::new();
                let whole = [there.clone(), free.clone()].concat();
                for name in &whole {
                    if after.contains_key(name) && there.len() > 1 && self.pick(5) == 0 {
                        after.remove(name);
                        changes.push(json!({"path": name, "delete": true}));
                    } else if self.pick(3) > 0 {
                        let text = self.text();
                        after.insert(name.clone(), text.clone());
                        changes.push(json!({"path": name, "content": text}));
                    }
                }
                if changes.is_empty() {
                    return self.plan_write();
                }
                let after = count(after, changes.len());
                Planned::new(&["apply"], Value::Array(changes).to_string(), after)
            }
            _ => self.plan_write(),
        }
    }

    fn plan_task(&mut self) -> Planned {
        let mut after = self.now();
        let owned = format!("In_Progress/{}", self.name);
        let in_place = |place: &str| -> Vec<String> {
            let found = after.iter().filter(|(_, seen)| seen.starts_with(&format!("{place},")));
            found.map(|(name, _)| name.clone()).collect()
        };
        let (waiting, claimed) = (in_place("Needs_Action"), in_place(&owned));
        let counts = |seen: &str| -> (usize, usize) {
            let mut numbers =
                seen.split(", ").skip(1).filter_map(|part| part.split(' ').next()?.parse().ok());
            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
        };
        let choice = self.pick(6);
        if let Some(task) = claimed.first().filter(|_| choice > 1) {
            let claim = self.claims.get(task).cloned().unwrap_or_default();
            let (blocks, notes) = counts(&after[task]);
            let (now, mut words) = match choice {
                2 | 3 => (
                    seen(&owned, blocks, notes + 1) + &with_claim(&claim, true),
                    vec!["task", "progress", task, "a-note"],
                ),
                4 => (
                    seen("Needs_Action", blocks, notes),
                    vec!["task", "release", task, "--result", "failure"],
                ),
                _ => (seen("Done", blocks, notes), vec!["task", "release", task]),
            };
            words.extend(["--claim-id", claim.as_str()]);
            after.insert(task.clone(), now);
            return Planned::new(&words, String::new(), after);
        }
        if let Some(task) = waiting.first().filter(|_| choice > 0) {
            let (blocks, notes) = counts(&after[task]);
            after.insert(task.clone(), seen(&owned, blocks + 1, notes));
            return Planned::new(&["task", "claim", task], String::new(), after);
        }
        let name = format!("{}-{}.md", self.name, self.states.len());
        after.insert(name.clone(), seen("Needs_Action", 0, 0));
        let body = "all of it ".repeat(1 + 500 * self.pick(2));
        Planned::new(&["task", "add", "do it", "--name", &name, "--body", &body], String::new(), after)
    }

    /// How many steps were acknowledged at this position, and how many had begun.
    fn progress(&self, position: usize) -> (usize, usize) {
        let done = self.steps.iter().filter(|step| step.acknowledged <= position).count();
        let begun = self.steps.iter().filter(|step| step.begun < position).count();
        (done, begun.max(done))
    }

    /// What is wrong after a cut at this position.
    pub(crate) fn judge(&self, machine: &Machine, position: usize) -> Result<Vec<Finding>> {
        let found = self.observe(machine)?;
        let (done, begun) = self.progress(position);
        if self.kind == LaneKind::Git && done > 0 && clone_id(machine)? != self.clone_id {
            return Ok(vec![Finding::Lost(
                "the clone does not know its claims: it has another id".to_owned(),
            )]);
        }
        if self.states[done..=begun].contains(&found) {
            return Ok(Vec::new());
        }
        let (wanted, other) = (&self.states[done], &self.states[begun]);
        let names: BTreeSet<&String> = found.keys().chain(wanted.keys()).chain(other.keys()).collect();
        let wrong =
            names.into_iter().filter(|&name| ![wanted.get(name), other.get(name)].contains(&found.get(name)));
        // What is as it was before is lost; everything else is damaged.
        let is_old =
            |name: &&String| self.states[..done].iter().any(|old| old.get(*name) == found.get(*name));
        let (lost, torn): (Vec<&String>, Vec<&String>) = wrong.partition(is_old);
        let shorten = |text: Option<&String>| text.map(|text| text.chars().take(200).collect::<String>());
        let describe = |names: &[&String]| {
            let what = names.iter().map(|&name| {
                let (is, should) = (shorten(found.get(name)), shorten(wanted.get(name)));
                format!("`{name}` is {is:?} instead of {should:?}")
            });
            let what = what.collect::<Vec<_>>().join("; ");
            format!("{}: {done} steps were acknowledged, {begun} had begun: {what}", self.name)
        };
        let mut findings = Vec::new();
        if !lost.is_empty() {
            findings.push(Finding::Lost(describe(&lost)));
        }
        if !torn.is_empty() {
            findings.push(Finding::Torn(describe(&torn)));
        }
        if findings.is_empty() {
            findings.push(Finding::Torn(format!("{}: step {begun} is half done", self.name)));
        }
        Ok(findings)
    }

    fn observe(&self, machine: &Machine) -> Result<State> {
        match self.kind {
            LaneKind::Files | LaneKind::Mcp => self.observe_files(machine),
            LaneKind::Tasks => self.observe_tasks(machine),
            LaneKind::Git => self.observe_git(machine),
        }
    }

    fn observe_files(&self, machine: &Machine) -> Result<State> {
        let workspace = machine.path("w");
        let mut state = State::new();
        each_file(&workspace.join(self.name), &mut |path| {
            let name = path.strip_prefix(&workspace).unwrap_or(path).display().to_string();
            state.insert(name, String::from_utf8_lossy(&fs::read(path).map_err(at(path))?).into_owned());
            Ok(())
        })?;
        let mut lines = 0_i64;
        each_file(&workspace.join(".tollgate"), &mut |path| {
            if path.extension().is_some_and(|end| end == "jsonl") {
                for line in fs::read_to_string(path).map_err(at(path))?.lines() {
                    let line: Value =
                        serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
                    let file = line["payload"]["target_file"].as_str().unwrap_or_default();
                    if line["action_type"] == "MUTATION" && file.split('/').next() == Some(self.name) {
                        // A change of several files that was rolled back takes each of its lines back.
                        lines += if line["result"]["status"] == "UNDONE" { -1 } else { 1 };
                    }
                }
            }
            Ok(())
        })?;
        state.insert(LINES.to_owned(), lines.to_string());
        Ok(state)
    }

    fn observe_tasks(&self, machine: &Machine) -> Result<State> {
        let vault = machine.path("w/vault");
        let mut state = State::new();
        each_file(&vault, &mut |path| {
            let within = path.strip_prefix(&vault).unwrap_or(path);
            if within.starts_with(".tollgate") || path.extension().is_none_or(|end| end != "md") {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&fs::read(path).map_err(at(path))?).into_owned();
            let name = within.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let place = within.parent().unwrap_or(within).display().to_string();
            let is_whole = text.starts_with("# do it\n\nall of it") && !text.contains('\0');
            let blocks = text.matches("<!-- tollgate c-").count();
            let mut now = seen(&place, blocks, text.matches("a-note").count());
            if let (true, Some((_, block))) =
                (place.starts_with("In_Progress"), text.rsplit_once("<!-- tollgate "))
            {
                now += &self.claim(machine, &name, block.split(' ').next().unwrap_or_default())?;
            }
            if !is_whole {
                now += ", damaged";
            }
            // A task in two places is in none of the expected states.
            state.entry(name).and_modify(|other| *other += &format!("; {now}")).or_insert(now);
            Ok(())
        })?;
        Ok(state)
    }

    /// What this machine says and shows, and what the remote has.
    fn observe_git(&self, machine: &Machine) -> Result<State> {
        let listed = machine.must("g", &["task", "list", "--json"], "")?;
        let listed: Value = serde_json::from_str(&listed).map_err(|error| format!("{error}: {listed}"))?;
        let remote = machine.git(&machine.remote(), &["ls-tree", "-r", "--name-only", "main"])?;
        let mut state = State::new();
        for task in listed.as_array().into_iter().flatten() {
            let text = |key: &str| task[key].as_str().unwrap_or_default();
            let (name, mut place) = (text("task"), text("state").to_owned());
            let is_claimed = place == "In_Progress";
            if is_claimed {
                place = format!("{place}/{}", text("agent"));
            }
            let path = format!("vault/{place}/{name}");
            let there = if remote.lines().any(|line| line == path) {
                machine.git(&machine.remote(), &["show", &format!("main:{path}")])?
            } else {
                String::new()
            };
            let here = machine.path("g/vault/.tollgate/git/tree").join(&place).join(name);
            let here = fs::read_to_string(here).unwrap_or_default();
            let blocks = there.matches("<!-- tollgate c-").count();
            let mut now = seen(&place, blocks, here.matches("a-note").count());
            if is_claimed {
                now += &self.claim(machine, name, text("claim_id"))?;
            }
            // Notes reach the remote with the release.
            if !there.starts_with("# do it\n\nall of it") || !is_claimed && here != there {
                now += &format!(", but here is {here:?}, and the remote has {remote:?} with {there:?}");
            }
            state.insert(name.to_owned(), now);
        }
        Ok(state)
    }

    /// A claim as its owner sees it.
    fn claim(&self, machine: &Machine, task: &str, claim: &str) -> Result<String> {
        let words = ["task", "verify", task, "--claim-id", claim, "--agent", self.name, "--json"];
        let verified = machine.must(self.workspace(), &words, "")?;
        Ok(with_claim(claim, verified.contains("\"valid\":true")))
    }
}

fn clone_id(machine: &Machine) -> Result<String> {
    let path = machine.path("g/vault/.tollgate/git/clone");
    fs::read_to_string(&path).map_err(at(&path))
}

struct Planned {
    words: Vec<String>,
    input: String,
    after: State,
}

impl Planned {
    fn new(words: &[&str], input: String, after: State) -> Self {
        Self { words: words.iter().map(|&word| word.to_owned()).collect(), input, after }
    }
}

/// A task as a person sees it.
fn seen(place: &str, blocks: usize, notes: usize) -> String {
    format!("{place}, {blocks} blocks, {notes} notes")
}

fn with_claim(claim: &str, is_valid: bool) -> String {
    format!(", claim {claim}{}", if is_valid { "" } else { " that is not valid" })
}

/// With this many more lines in the ledger.
fn count(mut state: State, more: usize) -> State {
    if let Some(lines) = state.get_mut(LINES) {
        *lines = (lines.parse::<usize>().unwrap_or(0) + more).to_string();
    }
    state
}

fn each_file(folder: &Path, visit: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
        if path.is_dir() { each_file(&path, visit)? } else { visit(&path)? }
    }
    Ok(())
}

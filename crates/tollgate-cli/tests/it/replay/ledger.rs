//! What the ledger says, replayed by code that shares nothing with tollgate: JSON lines, and the bytes that the test itself has seen.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::seen::Seen;

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// It was there before the first guarded change of the file.
    Older,
    /// Somebody without tollgate.
    Outsider,
    /// The change with this ledger line.
    Line(u64),
}

/// One `MUTATION`.
#[derive(Debug, Clone)]
pub(super) struct Mutation {
    pub(super) seq: u64,
    pub(super) path: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    pub(super) moved_to: Option<String>,
    pub(super) folder: bool,
    pub(super) recovered: bool,
}

impl Mutation {
    fn of(line: &Value) -> Option<Self> {
        if line["action_type"] != "MUTATION" {
            return None;
        }
        assert_eq!(line["result"]["status"], "APPLIED", "{line}");
        let payload = &line["payload"];
        let text = |key: &str| payload[key].as_str().map(str::to_owned);
        let hash = |key: &str| text(key).map(|hash| hash.strip_prefix("sha256:").unwrap().to_owned());
        Some(Self {
            seq: line["seq"].as_u64().unwrap(),
            path: text("target_file").unwrap(),
            before: hash("hash_before"),
            after: hash("hash_after"),
            moved_to: text("moved_to"),
            folder: payload["folder"] == true,
            recovered: payload["recovered"] == true,
        })
    }

    /// What it did to each path: the hash before and after.
    pub(super) fn effects(&self) -> Vec<(&str, Option<&str>, Option<&str>)> {
        let (before, after) = (self.before.as_deref(), self.after.as_deref());
        match &self.moved_to {
            _ if self.folder => Vec::new(),
            None => vec![(&self.path, before, after)],
            Some(to) => vec![(&self.path, before, None), (to, None, after)],
        }
    }
}

/// The ledger, read on as it grows.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) mutations: Vec<Mutation>,
    read: usize,
}

impl Ledger {
    /// Reads the new lines. Returns their mutations.
    pub(super) fn read_on(&mut self, root: &Path) -> &[Mutation] {
        let text = fs::read_to_string(root.join(".tollgate/ledger.jsonl")).unwrap_or_default();
        let known = self.mutations.len();
        for line in text[self.read..].lines() {
            self.mutations.extend(Mutation::of(&serde_json::from_str(line).unwrap()));
        }
        self.read = text.len();
        &self.mutations[known..]
    }
}

/// What a file holds, with the author of each line. Every line that anybody writes is unique.
#[derive(Debug, Clone, Default)]
struct Held {
    hash: Option<String>,
    lines: Vec<(String, Author)>,
    /// It was a symbolic link at some time, which has no lines.
    was_link: bool,
}

/// What the ledger and the bytes say of each file.
#[derive(Default)]
pub(super) struct Replay {
    files: BTreeMap<String, Held>,
    next: usize,
}

impl Replay {
    pub(super) fn read_on(&mut self, ledger: &Ledger, seen: &Seen) {
        for mutation in &ledger.mutations[self.next..] {
            self.take(mutation, seen);
        }
        self.next = ledger.mutations.len();
    }

    fn take(&mut self, mutation: &Mutation, seen: &Seen) {
        let Mutation { path, moved_to, seq, .. } = mutation;
        if mutation.folder {
            let (from, to) = (format!("{path}/"), format!("{}/", moved_to.as_ref().unwrap()));
            self.files.retain(|name, _| !name.starts_with(&to));
            let below: Vec<String> =
                self.files.keys().filter(|name| name.starts_with(&from)).cloned().collect();
            for name in below {
                let held = self.files.insert(name.clone(), Held::default()).unwrap();
                self.files.insert(name.replacen(&from, &to, 1), held);
            }
            return;
        }
        let found = self.found(path, mutation.before.as_deref(), seen);
        let (gone, left) = match moved_to {
            Some(to) => (Some(path), to),
            None => (None, path),
        };
        let left = (left.clone(), found.becomes(mutation.after.as_deref(), Author::Line(*seq), seen));
        self.files.extend(gone.map(|gone| (gone.clone(), Held::default())));
        self.files.extend([left]);
    }

    /// A file as a change finds it: what somebody else did to it since the last one is theirs.
    fn found(&self, path: &str, now: Option<&str>, seen: &Seen) -> Held {
        match self.files.get(path) {
            Some(held) => held.becomes(now, Author::Outsider, seen),
            None => Held::default().becomes(now, Author::Older, seen),
        }
    }

    /// The author of each line of a file with this hash. `None` if it was a link once.
    pub(super) fn authors(&self, path: &str, now: &str, seen: &Seen) -> Option<Vec<(String, Author)>> {
        let held = self.found(path, Some(now), seen);
        (!held.was_link).then_some(held.lines)
    }
}

impl Held {
    fn becomes(&self, hash: Option<&str>, by: Author, seen: &Seen) -> Self {
        if self.hash.as_deref() == hash {
            return self.clone();
        }
        let known: HashMap<&str, Author> = self.lines.iter().map(|(line, by)| (line.as_str(), *by)).collect();
        let text = hash.map_or(String::new(), |hash| seen.text(hash));
        let line = |line: &str| (line.to_owned(), known.get(line).copied().unwrap_or(by));
        let was_link = self.was_link || hash.is_some_and(|hash| seen.links.contains(hash));
        Self { hash: hash.map(str::to_owned), lines: text.lines().map(line).collect(), was_link }
    }
}

/// Applies a diff. Fails if it does not fit.
pub(super) fn patched(before: &str, diff: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let (mut new, mut at) = (String::new(), 0);
    let mut last = ' ';
    for line in
        diff.split_inclusive('\n').filter(|line| !line.starts_with("--- ") && !line.starts_with("+++ "))
    {
        let (kind, text) = line.split_at(1);
        match kind {
            "@" => {
                let start = line.split(['-', ',', ' ']).find_map(|word| word.parse::<usize>().ok()).unwrap();
                let empty = line.split(' ').nth(1).unwrap().ends_with(",0");
                let start = if empty { start } else { start - 1 };
                old[at..start].iter().for_each(|line| new.push_str(line));
                at = start;
            }
            " " | "-" => {
                assert_eq!(old[at].trim_end_matches('\n'), text.trim_end_matches('\n'), "{diff}");
                if kind == " " {
                    new.push_str(old[at]);
                }
                at += 1;
            }
            "+" => new.push_str(text),
            // "\ No newline at end of file"
            _ if last == '+' => drop(new.pop()),
            _ => {}
        }
        last = kind.chars().next().unwrap();
    }
    old[at..].iter().for_each(|line| new.push_str(line));
    new
}

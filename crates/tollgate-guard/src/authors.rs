//! Who gave a file the bytes that it holds: what the last lines of the ledger say. This file changes and records nothing.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, Mutation, UnfinishedWork};
use tollgate_base::ledger::{Ledger, Line};
use tollgate_base::name::TurnId;

/// The number of ledger lines in which to look for the author of unfinished work. Some hundred milliseconds, and only before a
/// refusal, or if a person asks.
const LINES: usize = 20_000;

/// The last lines of the ledger, for questions about authors.
pub(crate) struct Authors {
    /// Newest first.
    pub(crate) lines: Vec<Line>,
    /// For each file, the newest line that gave it a content, or deleted it.
    newest: HashMap<String, HashMap<Option<Digest>, usize>>,
    ended: HashSet<TurnId>,
    started: HashSet<TurnId>,
}

impl Authors {
    pub(crate) fn read(ledger: &Ledger) -> Result<Self> {
        let lines: Vec<Line> = ledger.newest_first()?.take(LINES).map_while(Result::ok).collect();
        let mut newest: HashMap<String, HashMap<Option<Digest>, usize>> = HashMap::new();
        let (mut ended, mut started) = (HashSet::new(), HashSet::new());
        for (at, line) in lines.iter().enumerate() {
            match &line.event {
                Event::Mutation(Mutation::File(change), _) => {
                    let mut gave = |path: &str, hash| {
                        newest.entry(path.to_owned()).or_default().entry(hash).or_insert(at);
                    };
                    match &change.moved_to {
                        Some(to) => {
                            gave(to, change.hash_after);
                            gave(&change.target_file, None);
                        }
                        None => gave(&change.target_file, change.hash_after),
                    }
                }
                Event::TurnEnded(_) => ended.extend(line.turn.clone()),
                Event::TurnStarted(_) => started.extend(line.turn.clone()),
                _ => {}
            }
        }
        Ok(Self { lines, newest, ended, started })
    }

    /// Whether a line says anything about this file.
    pub(crate) fn know(&self, key: &Path) -> bool {
        self.newest.contains_key(&key.display().to_string())
    }

    /// The files that lines say something about, as the ledger names them.
    pub(crate) fn known(&self) -> impl Iterator<Item = &str> {
        self.newest.keys().map(String::as_str)
    }

    /// The newest line that gave a file this content. Without a digest: that deleted it.
    pub(crate) fn of(&self, key: &Path, digest: Option<Digest>) -> Option<&Line> {
        let at = self.newest.get(&key.display().to_string())?.get(&digest)?;
        self.lines.get(*at)
    }

    /// Whether the turn of a line goes on.
    pub(crate) fn is_open(&self, line: &Line) -> bool {
        line.turn.as_ref().is_some_and(|turn| self.started.contains(turn) && !self.ended.contains(turn))
    }

    /// The work of an agent that has given a file these bytes in a turn that has not ended.
    pub(crate) fn open_work(&self, key: &Path, digest: Digest) -> Option<UnfinishedWork> {
        let line = self.of(key, Some(digest)).filter(|line| self.is_open(line))?;
        Some(UnfinishedWork { agent: line.agent.clone(), since: Some(line.time) })
    }
}

//! What the ledger says about the files of a working tree: for each, who brought it from HEAD's version to what is on disk.
//!
//! Lines come newest first, and a file is followed back through moves. This file does no I/O.

use std::collections::{HashMap, HashSet};

use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, FileChanged, FolderMoved, Mutation, MutationStatus, OwnChangesCommitted};
use tollgate_base::ledger::Line;
use tollgate_base::name::Agent;

/// What a file held, by its hash. `Unknown`: the move of a folder, which changes no bytes and names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Known(Option<Digest>),
    Unknown,
}

impl Content {
    /// Whether this may be what a neighbouring line, the disk or HEAD has.
    pub(super) fn fits(self, other: Option<Digest>) -> bool {
        self == Self::Unknown || self == Self::Known(other)
    }
}

/// One change of a file, by a guarded agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) agent: Option<Agent>,
    pub(super) before: Content,
    pub(super) after: Content,
    /// The file had another name before.
    pub(super) is_move: bool,
}

/// The changes of one file that HEAD does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trace {
    /// Its name on disk, as the ledger writes names.
    pub(super) name: String,
    /// Its oldest name, which it has in HEAD if it is there.
    pub(super) origin: String,
    /// The newest first, until the search has ended; then the oldest first.
    pub(super) steps: Vec<Step>,
    /// Its mode on disk is not HEAD's, and the change that made it so was not found yet.
    wants_mode: bool,
}

/// What HEAD has under a name.
pub(super) trait Head {
    /// The hash of the file as git would check it out; `None` if HEAD has no such file.
    fn digest(&mut self, name: &str) -> Result<Option<Digest>>;

    /// Whether HEAD has this commit, or is it.
    fn contains(&mut self, commit: &str) -> Result<bool>;
}

/// The search through the ledger, line by line.
pub(super) struct Search<'a> {
    agent: &'a Agent,
    /// The working tree, as a [`OwnChangesCommitted`] names it.
    tree: &'a str,
    traces: Vec<Trace>,
    /// The places in `traces` of those that have not ended, by their oldest names so far.
    open: HashMap<String, Vec<usize>>,
    undone: HashSet<String>,
}

impl<'a> Search<'a> {
    /// A search for these files, each with whether its mode differs from HEAD's.
    pub(super) fn new(
        agent: &'a Agent,
        tree: &'a str,
        files: impl IntoIterator<Item = (String, bool)>,
    ) -> Self {
        let mut search =
            Self { agent, tree, traces: Vec::new(), open: HashMap::new(), undone: HashSet::new() };
        for (name, wants_mode) in files {
            search.open.insert(name.clone(), vec![search.traces.len()]);
            search.traces.push(Trace { origin: name.clone(), name, steps: Vec::new(), wants_mode });
        }
        search
    }

    /// Whether older lines can say nothing more.
    pub(super) fn has_ended(&self) -> bool {
        self.open.is_empty()
    }

    /// The traces, each with its oldest step first.
    pub(super) fn traces(mut self) -> Vec<Trace> {
        for trace in &mut self.traces {
            trace.steps.reverse();
        }
        self.traces
    }

    /// The names of files that a line is about, if it may say something.
    pub(super) fn names(line: &Line) -> impl Iterator<Item = &String> {
        let file = match &line.event {
            Event::Mutation(Mutation::File(file), MutationStatus::Applied) => Some(file),
            _ => None,
        };
        file.into_iter().flat_map(|file| [&file.target_file].into_iter().chain(&file.moved_to))
    }

    /// Takes the next older line.
    pub(super) fn take(&mut self, line: &Line, head: &mut dyn Head) -> Result<()> {
        match &line.event {
            Event::Mutation(Mutation::File(file), MutationStatus::Undone) => {
                self.undone.insert(file.id.clone());
            }
            Event::Mutation(Mutation::File(file), MutationStatus::Applied)
                if !self.undone.remove(&file.id) =>
            {
                self.take_file(line.agent.as_ref(), file, head)?;
            }
            Event::Mutation(Mutation::Folder(folder), MutationStatus::Applied) => {
                self.take_folder(line.agent.as_ref(), folder);
            }
            Event::Commit(commit) if line.agent.as_ref() == Some(self.agent) => {
                self.take_commit(commit, head)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn take_file(&mut self, agent: Option<&Agent>, file: &FileChanged, head: &mut dyn Head) -> Result<()> {
        let (from, to) = (&file.target_file, file.moved_to.as_ref());
        // Taken out before any is put back: a file that was moved here is not also the file that was here before.
        let moved_here = to.and_then(|to| self.open.remove(to)).unwrap_or_default();
        let were_there = self.open.remove(from).unwrap_or_default();
        for at in moved_here {
            let trace = &mut self.traces[at];
            if head.digest(&trace.origin)? != file.hash_after {
                trace.steps.push(step(agent, file, file.hash_after));
                trace.origin.clone_from(from);
                self.go_on(at, file.hash_before, head)?;
            }
        }
        let after = if to.is_some() { None } else { file.hash_after };
        for at in were_there {
            let trace = &mut self.traces[at];
            let in_head = head.digest(from)?;
            let counts = if file.hash_before == after {
                std::mem::take(&mut trace.wants_mode)
            } else {
                after != in_head
            };
            if counts {
                trace.steps.push(step(agent, file, after));
                self.go_on(at, file.hash_before, head)?;
            } else {
                self.go_on(at, after, head)?;
            }
        }
        Ok(())
    }

    /// Follows a trace further back, unless the file was then as HEAD has it.
    fn go_on(&mut self, at: usize, then: Option<Digest>, head: &mut dyn Head) -> Result<()> {
        let origin = &self.traces[at].origin;
        if head.digest(origin)? != then {
            self.open.entry(origin.clone()).or_default().push(at);
        }
        Ok(())
    }

    fn take_folder(&mut self, agent: Option<&Agent>, folder: &FolderMoved) {
        let below = |name: &str, of: &str| Some(name.strip_prefix(of)?.strip_prefix('/')?.to_owned());
        let open: Vec<usize> = self.open.drain().flat_map(|(_, traces)| traces).collect();
        for at in open {
            let trace = &mut self.traces[at];
            let step =
                |after, is_move| Step { agent: agent.cloned(), before: Content::Unknown, after, is_move };
            if let Some(rest) = below(&trace.origin, &folder.moved_to) {
                trace.steps.push(step(Content::Unknown, true));
                trace.origin = format!("{}/{rest}", folder.target_file);
            } else if below(&trace.origin, &folder.target_file).is_some() {
                trace.steps.push(step(Content::Known(None), false));
            }
            self.open.entry(trace.origin.clone()).or_default().push(at);
        }
    }

    /// What the agent had changed before its own commit is in the commit. It counts again if HEAD no longer has the commit.
    fn take_commit(&mut self, commit: &OwnChangesCommitted, head: &mut dyn Head) -> Result<()> {
        if commit.tree != self.tree || !head.contains(&commit.commit)? {
            return Ok(());
        }
        if commit.whole {
            self.open.clear();
        }
        for path in &commit.paths {
            self.open.remove(path);
        }
        Ok(())
    }
}

fn step(agent: Option<&Agent>, file: &FileChanged, after: Option<Digest>) -> Step {
    Step {
        agent: agent.cloned(),
        before: Content::Known(file.hash_before),
        after: Content::Known(after),
        is_move: file.moved_to.is_some() && after.is_some(),
    }
}

//! The guard: may this agent change these files now?
//!
//! `admit` answers with a `Permit` or with refusals. A permit holds the locks of its files and is spent by
//! `Permit::commit`: there is no other way from a wish to a change. (Changes that the agent's own tool makes are
//! admitted here too, and settled by [`crate::gate`].)

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::commit::{self, Applied, Author, Base, Committed, Deed, Left, Plan, prefixed, stale};
use crate::diff;
use crate::digest::Digest;
use crate::disk::{Found, Steady};
use crate::edit::{self, Edit};
use crate::error::{Fault, Result};
use crate::ledger::{ActionType, Entry, Flush};
use crate::lock::{Pauses, StripeLocks};
use crate::path::FilePath;
use crate::place::{Located, Place};
use crate::refusal::{ChangedBy, Payload, Reason, Refusal, Report};
use crate::reservation::Reservation;
use crate::settings::{Mode, Unread};
use crate::turn::{Extent, FileState, Sightings, TEXT_PER_FILE};
use crate::workspace::Workspace;

/// What an agent wants to do to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file, absolute or relative to the workspace.
    pub path: PathBuf,
    /// What to do.
    pub action: Action,
    /// What must be on disk for it.
    pub expected: Expected,
}

impl Change {
    /// A change that goes by what the turn knows.
    pub fn new(path: impl Into<PathBuf>, action: Action) -> Self {
        Self { path: path.into(), action, expected: Expected::Baseline }
    }

    /// The same change, with an explicit expectation.
    #[must_use]
    pub fn expecting(self, expected: Expected) -> Self {
        Self { expected, ..self }
    }
}

/// What to do to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Give it these bytes; make it if it is not there.
    Write(Vec<u8>),
    /// Make it with these bytes; it must not be there.
    Create(Vec<u8>),
    /// Replace old text by new text, several times as one.
    Edit(Vec<Edit>),
    /// Take it away.
    Delete,
    /// Give it this path, which must be free.
    MoveTo(PathBuf),
}

impl Action {
    fn extent(&self) -> Extent {
        match self {
            Self::Edit(_) => Extent::Part,
            Self::Write(_) | Self::Create(_) | Self::Delete | Self::MoveTo(_) => Extent::Whole,
        }
    }
}

/// What must be on disk for a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expected {
    /// What the turn last knew; if it knows nothing, what the policy says.
    #[default]
    Baseline,
    /// These bytes.
    Hash(Digest),
    /// No file.
    Absent,
}

/// The answer to a call: done, or refused.
#[derive(Debug)]
#[must_use = "a refusal is an answer, not an error: it has to be looked at"]
pub enum Outcome<T> {
    /// It was done.
    Done(T),
    /// It was refused, and nothing was changed.
    Refused(Refused),
}

impl<T> Outcome<T> {
    /// The same answer about something else.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(f(value)),
            Self::Refused(refused) => Outcome::Refused(refused),
        }
    }
}

/// One or more refusals of one call, in the order of their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    refusals: Vec<Refusal>,
}

impl Refused {
    /// A refused read: it is answered and not recorded, because nothing would have been changed.
    pub(crate) fn unrecorded(refusal: Refusal) -> Self {
        Self { refusals: vec![refusal] }
    }

    /// The refusals. There is at least one.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// For the controller: the first refusal in the order of paths.
    pub fn payload(&self) -> Payload {
        self.refusals[0].payload()
    }

    /// For the agent: one report per file.
    pub fn reports(&self) -> Vec<Report> {
        self.refusals.iter().map(Refusal::report).collect()
    }
}

/// What the guard says to a wish.
pub(crate) enum Admission<P> {
    Granted(P),
    Refused(Refused),
}

/// Leave to change some files, with their locks. It is spent by [`Permit::commit`].
#[must_use = "a permit that is not spent changes nothing"]
pub(crate) struct Permit<'a> {
    request: Request<'a>,
    plans: Vec<Plan>,
    locks: StripeLocks,
}

/// Who asks, and by which tool.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) turn: &'a dyn Sightings,
    pub(crate) tool: &'a str,
}

/// Asks for leave to make all of these changes as one.
pub(crate) fn admit<'a>(request: Request<'a>, changes: Vec<Change>) -> Result<Admission<Permit<'a>>> {
    if changes.is_empty() {
        return Err(Fault::invalid("there is nothing to change: the list is empty"));
    }
    let mut refusals = Vec::new();
    let mut wishes = Vec::new();
    for change in changes {
        let place = request.place(&change.path, &mut refusals)?;
        let to = match &change.action {
            Action::MoveTo(to) => Some(request.place(to, &mut refusals)?),
            _ => None,
        };
        if let (Some(place), Some(to)) = (place, to.map_or(Some(None), |to| to.map(Some))) {
            wishes.push((place, to, change));
        }
    }
    if !refusals.is_empty() {
        return request.refuse(refusals).map(Admission::Refused);
    }
    let paths: Vec<&Place> =
        wishes.iter().flat_map(|(place, to, _)| [Some(place), to.as_ref()]).flatten().collect();
    let mut seen = BTreeSet::new();
    if let Some(twice) = paths.iter().find(|place| !seen.insert(&place.relative)) {
        return Err(Fault::invalid(format!("`{}` is named twice in one change", twice.relative.display())));
    }
    let relative: Vec<&Path> = paths.iter().map(|place| place.relative.as_path()).collect();
    let locks = match request.lock(&relative, None)? {
        Ok(locks) => locks,
        Err((index, reason)) => {
            return request
                .refuse(vec![Refusal::new(paths[index].path.clone(), reason)])
                .map(Admission::Refused);
        }
    };
    let mut plans = Vec::with_capacity(wishes.len());
    for (place, to, change) in wishes {
        match request.plan(place, to, change)? {
            Ok(plan) => plans.push(plan),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if !refusals.is_empty() {
        return request.refuse(refusals).map(Admission::Refused);
    }
    Ok(Admission::Granted(Permit { request, plans, locks }))
}

impl Permit<'_> {
    /// Makes the changes.
    pub(crate) fn commit(self) -> Result<Outcome<Vec<Applied>>> {
        let Self { request, plans, locks } = self;
        // What the agent writes it knows, and a later refusal can tell what became of it.
        let text = |plan: &Plan| match &plan.deed {
            Deed::Put(bytes) if bytes.len() <= TEXT_PER_FILE => Some(bytes.clone()),
            Deed::Put(_) | Deed::Remove | Deed::MoveTo(_) => None,
        };
        let texts: Vec<Option<Vec<u8>>> = plans.iter().map(text).collect();
        // If this process dies in between, or the disk fails in the middle of an undo, the next one heals first.
        locks.mark()?;
        let committed = commit::commit(request.workspace, plans, request.author())?;
        if !matches!(committed, Committed::Applied { left: Left::Something, .. }) {
            // The answer is decided. A mark that cannot be cleared only makes the next one look whether all is well.
            let _ = locks.clear();
        }
        match committed {
            Committed::Refused(refusals) => request.refuse(refusals).map(Outcome::Refused),
            Committed::Applied { changes, observed, .. } => {
                if !observed.is_empty() {
                    request.record(&observed, "OBSERVED")?;
                }
                for (applied, text) in changes.iter().zip(texts) {
                    if let (Some(digest), Some(text)) = (applied.after.digest(), text) {
                        request.turn.keep_text(digest, &text)?;
                    }
                    match &applied.moved_to {
                        None => request.turn.wrote(&applied.path, applied.after)?,
                        Some(to) => {
                            request.turn.wrote(&applied.path, FileState::Absent)?;
                            request.turn.wrote(to, applied.after)?;
                        }
                    }
                }
                Ok(Outcome::Done(changes))
            }
        }
    }
}

impl<'a> Request<'a> {
    pub(crate) fn author(&self) -> Author<'a> {
        Author { agent: self.turn.agent(), turn: Some(self.turn.id()), tool: self.tool }
    }

    /// Where a path leads, if an agent may change it.
    fn place(&self, path: &Path, refusals: &mut Vec<Refusal>) -> Result<Option<Place>> {
        let (path, reason) = match self.workspace.locate(path)? {
            Located::Inside(place) if self.workspace.is_protected(&place.relative) => {
                (place.path, Reason::Protected)
            }
            Located::Inside(place) => return Ok(Some(place)),
            Located::Outside(path) => (path, Reason::Outside),
            Located::Root(path) => (path, Reason::NotAFile),
        };
        refusals.push(Refusal::new(path, reason));
        Ok(None)
    }

    /// Locks these paths, unless another agent is about to write one of them; then says which.
    #[allow(clippy::type_complexity, reason = "a lock, or which path is busy and why")]
    pub(crate) fn lock(
        &self,
        paths: &[&Path],
        call: Option<&str>,
    ) -> Result<std::result::Result<StripeLocks, (usize, Reason)>> {
        let settings = &self.workspace.settings().guard;
        let mut pauses = Pauses::lasting(settings.quiet_wait.0);
        let mut healed = None;
        let mut healing = Pauses::lasting(settings.lock_wait.0);
        loop {
            let Some(locks) =
                self.workspace.stripes().acquire(paths.iter().copied(), settings.lock_wait.0)?
            else {
                return Ok(Err((0, Reason::Busy { holder: None })));
            };
            let marks = locks.marks()?;
            if !marks.is_empty() && healed.as_ref() != Some(&marks) {
                // Healing takes the locks itself. If the marks are the same afterwards, nobody else died meanwhile.
                drop(locks);
                let skipped = self.workspace.heal()?;
                if marks.iter().all(|(stripe, _)| !skipped.contains(stripe)) {
                    healed = Some(marks);
                } else if !healing.pause() {
                    return Ok(Err((0, Reason::Busy { holder: None })));
                }
                continue;
            }
            let mut reserved = None;
            for (index, path) in paths.iter().enumerate() {
                if let Some(reservation) = Reservation::of(self.workspace, &locks, path)? {
                    // An agent never blocks itself, not even with a call that was cut off.
                    let own = reservation.turn == *self.turn.id() && reservation.agent == *self.turn.agent();
                    if !own && Some(reservation.call.as_str()) != call {
                        reserved = Some((index, Reason::Busy { holder: Some(reservation.agent) }));
                        break;
                    }
                }
            }
            match reserved {
                None => return Ok(Ok(locks)),
                Some(reserved) => {
                    drop(locks);
                    if !pauses.pause() {
                        return Ok(Err(reserved));
                    }
                }
            }
        }
    }

    /// What must be on disk for a change of this extent, or why it cannot be made.
    pub(crate) fn base(
        &self,
        path: &FilePath,
        extent: Extent,
        expected: Expected,
        exists: &dyn Fn() -> Result<bool>,
    ) -> Result<std::result::Result<Base, Reason>> {
        let settings = &self.workspace.settings().guard;
        let state = match expected {
            _ if settings.mode == Mode::Off => return Ok(Ok(Base::Any)),
            Expected::Hash(digest) => Some(FileState::Present(digest)),
            Expected::Absent => Some(FileState::Absent),
            Expected::Baseline => match self.turn.get(path)? {
                Some(sighting) => Some(sighting.baseline(extent)),
                None if settings.unread == Unread::Known => self.turn.known(path)?,
                None => None,
            },
        };
        let reason = match state {
            Some(FileState::Unreadable) => Reason::Unreadable,
            Some(state) if settings.mode == Mode::Observe => return Ok(Ok(Base::Observed(state))),
            Some(state) => return Ok(Ok(Base::Exactly(state))),
            None if !exists()? => return Ok(Ok(Base::Exactly(FileState::Absent))),
            None if settings.unread == Unread::Refuse => Reason::Unread { actual: FileState::Unreadable },
            None => return Ok(Ok(Base::Any)),
        };
        if settings.mode == Mode::Observe {
            self.record(&[Refusal::new(path.clone(), reason)], "OBSERVED")?;
            return Ok(Ok(Base::Any));
        }
        Ok(Err(reason))
    }

    fn plan(
        &self,
        place: Place,
        to: Option<Place>,
        change: Change,
    ) -> Result<std::result::Result<Plan, Refusal>> {
        let extent = change.action.extent();
        let expected = match (&change.action, change.expected) {
            (Action::Create(_), _) => Expected::Absent,
            (_, expected) => expected,
        };
        let exists = || {
            Ok(match place.missing.is_empty() {
                true => place.spot(self.workspace.root())?.inode()?.is_some(),
                false => false,
            })
        };
        let base = match self.base(&place.path, extent, expected, &exists)? {
            Ok(base) => base,
            Err(Reason::Unread { .. }) => {
                let reason = match place.spot(self.workspace.root())?.open()? {
                    Found::File(file) => Reason::Unread { actual: FileState::Present(file.hash()?) },
                    // Reading it would not help.
                    Found::NotAFile => Reason::NotAFile,
                    Found::Nothing | Found::Unreadable => Reason::Unread { actual: FileState::Unreadable },
                };
                return Ok(Err(Refusal::new(place.path, reason)));
            }
            Err(reason) => return Ok(Err(Refusal::new(place.path, reason))),
        };
        let deed = match (change.action, to) {
            (Action::Write(bytes) | Action::Create(bytes), _) => Deed::Put(bytes),
            (Action::Delete, _) => Deed::Remove,
            (Action::MoveTo(_), Some(to)) => Deed::MoveTo(to),
            (Action::MoveTo(_), None) => return Err(Fault::invalid("a move needs a target")),
            (Action::Edit(edits), _) => return self.plan_edit(place, base, &edits),
        };
        Ok(Ok(Plan { place, deed, base }))
    }

    /// An edit is worked out on the bytes that are on disk now, and is committed only onto these bytes.
    fn plan_edit(
        &self,
        place: Place,
        base: Base,
        edits: &[Edit],
    ) -> Result<std::result::Result<Plan, Refusal>> {
        let refusal = |reason| Ok(Err(Refusal::new(place.path.clone(), reason)));
        let missing = |actual| match base {
            Base::Exactly(expected @ FileState::Present(_)) => Ok(stale(expected, actual)),
            _ => Err(Fault::Missing { what: format!("`{}`", place.path) }),
        };
        if !place.missing.is_empty() {
            return refusal(missing(FileState::Absent)?);
        }
        let spot = place.spot(self.workspace.root())?;
        let (bytes, digest) = match spot.steady(self.workspace.settings().guard.quiet_wait.0)? {
            Steady::File(file) => file.read()?,
            Steady::Busy(_) => return refusal(Reason::Busy { holder: None }),
            Steady::Nothing => return refusal(missing(FileState::Absent)?),
            Steady::Unreadable => return refusal(Reason::Unreadable),
            Steady::NotAFile => return refusal(Reason::NotAFile),
        };
        let actual = FileState::Present(digest);
        match base {
            Base::Exactly(expected) if expected != actual => return refusal(stale(expected, actual)),
            Base::Observed(expected) if expected != actual => {
                self.record(&[Refusal::new(place.path.clone(), stale(expected, actual))], "OBSERVED")?;
            }
            _ => {}
        }
        match edit::apply(bytes, edits)? {
            Ok(bytes) => Ok(Ok(Plan { place, deed: Deed::Put(bytes), base: Base::Exactly(actual) })),
            Err(reason) => refusal(reason),
        }
    }

    /// Tells the turn and the ledger, and finds out what can be told to the agent.
    pub(crate) fn refuse(&self, mut refusals: Vec<Refusal>) -> Result<Refused> {
        refusals.sort_by(|a, b| a.path.cmp(&b.path));
        for refusal in &mut refusals {
            self.turn.refused(&refusal.path)?;
            self.explain(refusal)?;
        }
        self.record(&refusals, "DENIED")?;
        Ok(Refused { refusals })
    }

    pub(crate) fn record(&self, refusals: &[Refusal], status: &str) -> Result<()> {
        let entries: Vec<Entry> = refusals
            .iter()
            .map(|refusal| {
                let action_type = match refusal.reason {
                    Reason::Stale(_) => ActionType::MutationConflict,
                    _ => ActionType::MutationRefused,
                };
                let (expected, actual) = refusal.hashes();
                let payload = serde_json::json!({
                    "tool_name": self.tool,
                    "target_file": self.ledger_path(&refusal.path),
                    "baseline_hash": prefixed(expected),
                    "current_hash": prefixed(actual),
                });
                let result = serde_json::json!({"status": status, "error_type": refusal.error_type()});
                self.author().entry(self.workspace, action_type, payload, result)
            })
            .collect();
        // Flushed: a refusal is what auditors look for, and nothing else would bring its line back.
        let flush = match self.workspace.settings().guard.durability {
            crate::settings::Durability::Durable => Flush::Data,
            crate::settings::Durability::Fast => Flush::No,
        };
        let numbers = self.workspace.ledger().append(&entries, flush)?;
        for (number, refusal) in numbers.zip(refusals) {
            if let Reason::Stale(stale) = &refusal.reason {
                self.workspace.keep_conflict(number, stale);
            }
        }
        Ok(())
    }

    /// Relative where it can be, as the ledger of a workspace should not depend on where it is mounted.
    pub(crate) fn ledger_path(&self, path: &FilePath) -> String {
        let path = path.as_path();
        path.strip_prefix(self.workspace.path()).unwrap_or(path).display().to_string()
    }

    /// Who wrote what is there now, and what they changed.
    fn explain(&self, refusal: &mut Refusal) -> Result<()> {
        let path = self.ledger_path(&refusal.path);
        let Reason::Stale(stale) = &mut refusal.reason else { return Ok(()) };
        stale.changed_by = self.author_of(&path, stale.actual)?;
        if let (Some(old), Some(new)) = (stale.expected.digest(), stale.actual.digest())
            && let Some(old) = self.turn.text(old)?
            && let Some(new) = self.current_text(&refusal.path, new)?
        {
            stale.diff = diff::bounded(&old, &new);
        }
        Ok(())
    }

    /// The newest change in the ledger that made the file what it is.
    pub(crate) fn author_of(&self, path: &str, state: FileState) -> Result<Option<ChangedBy>> {
        // Who changed a file before so many other changes is not news to anyone.
        const LINES: usize = 256;
        let hash = prefixed(state.digest());
        for line in self.workspace.ledger().newest_first()?.take(LINES) {
            // A damaged line is `verify`'s business; the refusal is more important than its footnote.
            let Ok(line) = line else { break };
            let payload = &line.payload;
            let here = payload["target_file"] == path && payload["moved_to"].is_null()
                || payload["moved_to"] == path;
            if line.action_type == ActionType::Mutation.as_str()
                && here
                && payload["hash_after"].as_str() == hash.as_deref()
            {
                return Ok(line.agent.map(|agent| ChangedBy { agent, time: line.time }));
            }
        }
        Ok(None)
    }

    /// The bytes on disk, if they are still those that the refusal is about and not too many to show.
    fn current_text(&self, path: &FilePath, digest: Digest) -> Result<Option<Vec<u8>>> {
        let Some(spot) = self.workspace.spot_anywhere(path)? else { return Ok(None) };
        match spot.open()? {
            Found::File(file) if file.len() <= TEXT_PER_FILE as u64 => {
                let (bytes, now) = file.read()?;
                Ok((now == digest).then_some(bytes))
            }
            _ => Ok(None),
        }
    }
}

/// How long a reader waits for a file that is being written, before it takes what is there.
pub(crate) const READ_WAIT: Duration = Duration::from_millis(50);

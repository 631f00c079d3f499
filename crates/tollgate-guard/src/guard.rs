//! The guard: may this agent change these files now?
//!
//! `admit` answers with a `Permit` or with refusals. A permit holds the locks of its files, and `Permit::commit` uses it up:
//! there is no other way to a change. (Changes by the agent's own tools are checked here too, and settled by
//! `tool_use.rs`.)

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

pub use crate::change::{Action, Change, Expected};
use crate::commit::{self, Applied, Base, Committed, Deed, Left, Plan, stale};
use crate::disk::{Found, Steady};
use crate::edit::{self, Edit};
use crate::explain::{record, refuse};
use crate::heal::heal;
pub use crate::outcome::{Outcome, Refused};
use crate::path::FilePath;
use crate::place::{Located, Place};
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::reservation::Reservation;
use crate::root::Root;
use crate::stripe_lock::StripeLocks;
use crate::turn::{Extent, FileState, TEXT_PER_FILE};
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::RefusalStatus;
use tollgate_base::lock::Pauses;
use tollgate_base::name::Agent;
use tollgate_base::settings::{GuardMode, Unread};

/// How long a reader waits while a file is being written, before it takes the bytes that are there.
pub(crate) const READ_WAIT: Duration = Duration::from_millis(50);

/// The answer of the guard.
pub(crate) enum Admission<P> {
    Granted(P),
    Refused(Refused),
}

/// The permission to make some changes, with the locks of their files. [`Permit::commit`] uses it up.
#[must_use = "a permit that is not committed changes nothing"]
pub(crate) struct Permit<'a> {
    request: Request<'a>,
    plans: Vec<Plan>,
    locks: StripeLocks,
}

/// The answer to a request for locks.
pub(crate) enum Locking {
    Locked(StripeLocks),
    /// Another process or agent uses the path at this index.
    Busy {
        index: usize,
        holder: Option<Agent>,
    },
}

/// Asks for the permission to make all of these changes together.
pub(crate) fn admit<'a>(request: Request<'a>, changes: Vec<Change>) -> Result<Admission<Permit<'a>>> {
    if changes.is_empty() {
        return Err(Fault::invalid("the list of changes is empty"));
    }
    let mut refusals = Vec::new();
    let mut wanted = Vec::new();
    for change in changes {
        let mut place = |path: &Path| changeable(request.root, path, Reason::NotAFile, &mut refusals);
        let from = place(&change.path)?;
        let to = match &change.action {
            Action::MoveTo(to) => Some(place(to)?),
            _ => None,
        };
        if let (Some(from), Some(to)) = (from, to.map_or(Some(None), |to| to.map(Some))) {
            wanted.push((from, to, change));
        }
    }
    if !refusals.is_empty() {
        return refuse(&request, refusals).map(Admission::Refused);
    }
    let paths: Vec<&Place> =
        wanted.iter().flat_map(|(place, to, _)| [Some(place), to.as_ref()]).flatten().collect();
    let mut seen = BTreeSet::new();
    if let Some(twice) = paths.iter().find(|place| !seen.insert(&place.relative)) {
        return Err(Fault::invalid(format!("`{}` is named twice in one change", twice.relative.display())));
    }
    let relative: Vec<&Path> = paths.iter().map(|place| place.relative.as_path()).collect();
    let locks = match lock(&request, &relative, None)? {
        Locking::Locked(locks) => locks,
        Locking::Busy { index, holder } => {
            let refusal = Refusal::new(paths[index].path.clone(), Reason::Busy { holder });
            return refuse(&request, vec![refusal]).map(Admission::Refused);
        }
    };
    let mut plans = Vec::with_capacity(wanted.len());
    for (place, to, change) in wanted {
        match plan(&request, place, to, change)? {
            Ok(plan) => plans.push(plan),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if !refusals.is_empty() {
        return refuse(&request, refusals).map(Admission::Refused);
    }
    Ok(Admission::Granted(Permit { request, plans, locks }))
}

impl Permit<'_> {
    /// Makes the changes.
    pub(crate) fn commit(self) -> Result<Outcome<Vec<Applied>>> {
        let Self { request, plans, locks } = self;
        // The agent knows the bytes that it writes, so a later refusal can show how they were changed.
        let text = |plan: &Plan| match &plan.deed {
            Deed::Put { bytes, .. } if bytes.len() <= TEXT_PER_FILE => Some(bytes.clone()),
            Deed::Put { .. } | Deed::Remove | Deed::MoveTo(_) => None,
        };
        let texts: Vec<Option<Vec<u8>>> = plans.iter().map(text).collect();
        // If this process dies, or the disk fails during an undo, the next process to lock these paths heals first.
        locks.mark()?;
        let committed = commit::commit(request.root, plans, request.author())?;
        if !matches!(committed, Committed::Applied { left: Left::Something, .. }) {
            // If a mark cannot be cleared, the next process heals, which finds nothing to do.
            let _ = locks.clear();
        }
        match committed {
            Committed::Refused(refusals) => refuse(&request, refusals).map(Outcome::Refused),
            Committed::Applied { changes, observed, .. } => {
                if !observed.is_empty() {
                    record(&request, &observed, RefusalStatus::Observed)?;
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

/// Where a path leads, if agents may change it. Otherwise adds a refusal. `at_root` is the reason for the root itself.
pub(crate) fn changeable(
    root: &Root,
    path: &Path,
    at_root: Reason,
    refusals: &mut Vec<Refusal>,
) -> Result<Option<Place>> {
    let (path, reason) = match root.locate(path)? {
        Located::Inside(place) if root.is_protected(&place.relative) => (place.path, Reason::Protected),
        Located::Inside(place) => return Ok(Some(place)),
        Located::Outside(path) => (path, Reason::Outside),
        Located::Root(path) => (path, at_root),
    };
    refusals.push(Refusal::new(path, reason));
    Ok(None)
}

/// Locks these paths, unless another agent is about to write one of them. Heals first what a dead process left on them.
///
/// `call` is the tool call that the request belongs to: it may lock what it has reserved.
pub(crate) fn lock(request: &Request<'_>, paths: &[&Path], call: Option<&str>) -> Result<Locking> {
    let settings = &request.root.settings().guard;
    let mut pauses = Pauses::lasting(settings.quiet_wait.0);
    let mut healed = None;
    let mut healing = Pauses::lasting(settings.lock_wait.0);
    loop {
        let Some(locks) = request.root.stripes().acquire(paths.iter().copied(), settings.lock_wait.0)? else {
            return Ok(Locking::Busy { index: 0, holder: None });
        };
        let marks = locks.marks()?;
        if !marks.is_empty() && healed.as_ref() != Some(&marks) {
            // Healing takes the locks itself. If the marks are the same afterwards, no other process died in the meantime.
            drop(locks);
            let skipped = heal(request.root)?;
            if marks.iter().all(|(stripe, _)| !skipped.contains(stripe)) {
                healed = Some(marks);
            } else if !healing.pause() {
                return Ok(Locking::Busy { index: 0, holder: None });
            }
            continue;
        }
        let mut reserved = None;
        for (index, path) in paths.iter().enumerate() {
            if let Some(reservation) = Reservation::of(request.root, &locks, path)? {
                // An agent never blocks itself, not even with a call that did not end.
                let own =
                    reservation.turn == *request.turn.id() && reservation.agent == *request.turn.agent();
                if !own && Some(reservation.call.as_str()) != call {
                    reserved = Some((index, reservation.agent));
                    break;
                }
            }
        }
        match reserved {
            None => return Ok(Locking::Locked(locks)),
            Some((index, holder)) => {
                drop(locks);
                if !pauses.pause() {
                    return Ok(Locking::Busy { index, holder: Some(holder) });
                }
            }
        }
    }
}

/// What must be on disk for a change of this extent, or why the change is refused.
pub(crate) fn base(
    request: &Request<'_>,
    path: &FilePath,
    extent: Extent,
    expected: Expected,
    exists: &dyn Fn() -> Result<bool>,
) -> Result<std::result::Result<Base, Reason>> {
    let settings = &request.root.settings().guard;
    let state = match expected {
        _ if settings.mode == GuardMode::Off => return Ok(Ok(Base::Any)),
        Expected::Hash(digest) => Some(FileState::Present(digest)),
        Expected::Absent => Some(FileState::Absent),
        Expected::Baseline => match request.turn.get(path)? {
            Some(sighting) => Some(sighting.baseline(extent)),
            None if settings.unread == Unread::Known => request.turn.known(path)?,
            None => None,
        },
    };
    let reason = match state {
        Some(FileState::Unreadable) => Reason::Unreadable,
        Some(state) if settings.mode == GuardMode::Observe => return Ok(Ok(Base::Observed(state))),
        Some(state) => return Ok(Ok(Base::Exactly(state))),
        None if !exists()? => return Ok(Ok(Base::Exactly(FileState::Absent))),
        None if settings.unread == Unread::Refuse => Reason::Unread { actual: FileState::Unreadable },
        None => return Ok(Ok(Base::Any)),
    };
    if settings.mode == GuardMode::Observe {
        record(request, &[Refusal::new(path.clone(), reason)], RefusalStatus::Observed)?;
        return Ok(Ok(Base::Any));
    }
    Ok(Err(reason))
}

fn plan(
    request: &Request<'_>,
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
            true => place.spot(request.root.folder())?.inode()?.is_some(),
            false => false,
        })
    };
    let base = match base(request, &place.path, extent, expected, &exists)? {
        Ok(base) => base,
        Err(Reason::Unread { .. }) => {
            let reason = match place.spot(request.root.folder())?.open()? {
                Found::File(file) => Reason::Unread { actual: FileState::Present(file.hash()?) },
                // A read would not help.
                Found::NotAFile => Reason::NotAFile,
                Found::Nothing | Found::Unreadable => Reason::Unread { actual: FileState::Unreadable },
            };
            return Ok(Err(Refusal::new(place.path, reason)));
        }
        Err(reason) => return Ok(Err(Refusal::new(place.path, reason))),
    };
    let deed = match (change.action, to) {
        (Action::Write(bytes) | Action::Create(bytes), _) => Deed::put(bytes),
        (Action::Delete, _) => Deed::Remove,
        (Action::MoveTo(_), Some(to)) => Deed::MoveTo(to),
        (Action::MoveTo(_), None) => return Err(Fault::invalid("a move needs a target")),
        (Action::Edit(edits), _) => return plan_edit(request, place, base, &edits),
    };
    Ok(Ok(Plan { place, deed, base }))
}

/// Makes the edits on the bytes that are on disk now. The commit then requires exactly these bytes.
fn plan_edit(
    request: &Request<'_>,
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
    let spot = place.spot(request.root.folder())?;
    let (bytes, digest) = match spot.steady(request.root.settings().guard.quiet_wait.0)? {
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
            record(
                request,
                &[Refusal::new(place.path.clone(), stale(expected, actual))],
                RefusalStatus::Observed,
            )?;
        }
        _ => {}
    }
    match edit::apply(bytes, edits)? {
        Ok(bytes) => Ok(Ok(Plan { place, deed: Deed::put(bytes), base: Base::Exactly(actual) })),
        Err(reason) => refusal(reason),
    }
}

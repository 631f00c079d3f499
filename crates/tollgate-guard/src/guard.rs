//! The guard: changes that tollgate makes for an agent, from the request to the commit.
//!
//! `admit` locks the files, has each change judged, and answers with a `Permit` or with refusals. A permit holds the locks of
//! its files, and `Permit::commit` uses it up: there is no other way to a change that tollgate makes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use crate::change::{Action, Change, Expected};
use crate::commit::{AppliedChange, Base, FolderChange, NewContent, Operation, Plan, commit};
use crate::conflict;
use crate::disk::{Found, Quiet};
use crate::edit::{self, Edit, LARGEST_EDIT};
use crate::explain::{object, observe, refuse};
use crate::heal::heal;
use crate::judge::{by_mode, is_busy, judge, judge_now, objection};
use crate::look::Look;
use crate::lost_claim::fenced;
use crate::open_turn;
use crate::other_tree;
use crate::path::FilePath;
use crate::place::{LastLink, Located, Place, Way};
pub use crate::refusal::{Outcome, Refused};
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::reservation::Reservation;
use crate::root::Root;
use crate::stripe_lock::StripeLocks;
use crate::turn::{FileState, TEXT_PER_FILE};
use crate::unfinished::UnfinishedFiles;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::lock::Pauses;

/// The permission to make some changes, with the locks of their files. [`Permit::commit`] uses it up.
#[must_use = "a permit that is not committed changes nothing"]
pub(crate) struct Permit<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) plans: Vec<Plan>,
    /// What happens to folders once the changes are made.
    pub(crate) later: Vec<FolderChange>,
    pub(crate) locks: StripeLocks,
}

/// Asks for the permission to make all of these changes together.
pub(crate) fn admit<'a>(request: Request<'a>, changes: Vec<Change>) -> Result<Outcome<Permit<'a>>> {
    if changes.is_empty() {
        return Err(Fault::invalid("the list of changes is empty"));
    }
    let mut refusals = Vec::new();
    let mut wanted = Vec::new();
    for change in changes {
        // A link that is deleted or moved is not followed.
        let last = match &change.action {
            Action::Delete | Action::MoveTo(_) => LastLink::Keep,
            _ => LastLink::Follow,
        };
        let mut place = |path: &Path| {
            let place = changeable(request.root, path, last, Reason::NotAFile, &mut refusals)?;
            must_name_a_file(request.root, path)?;
            Ok::<_, Fault>(place)
        };
        let from = place(&change.path)?;
        let to = match &change.action {
            Action::MoveTo(to) => place(to)?,
            _ => None,
        };
        wanted.extend(from.map(|from| (from, to, change)));
    }
    if !refusals.is_empty() {
        return refuse(&request, refusals);
    }
    let paths: Vec<&Place> =
        wanted.iter().flat_map(|(place, to, _)| [Some(place), to.as_ref()]).flatten().collect();
    let mut seen = BTreeSet::new();
    if let Some(twice) = paths.iter().find(|place| !seen.insert(&place.relative)) {
        return Err(Fault::invalid_with_hint(
            format!("`{}` is named twice in one change", twice.relative.display()),
            "name each file once per call: put all edits of one file into one change, and move a file only to another path",
        ));
    }
    let relative: Vec<&Path> = paths.iter().map(|place| place.relative.as_path()).collect();
    let locks = match lock(&request, &relative, None)? {
        Ok(locks) => locks,
        Err(refusal) => return refuse(&request, vec![refusal]),
    };
    let (mut plans, mut kept) = (Vec::with_capacity(wanted.len()), Vec::new());
    let mut unfinished = UnfinishedFiles::default();
    for (place, to, change) in wanted {
        let edits = match &change.action {
            Action::Edit(edits) => edits.clone(),
            _ => Vec::new(),
        };
        match plan(&request, place, to, change, &mut unfinished)? {
            Ok(plan) => plans.push(plan),
            Err(refusal) => {
                kept.extend(edited(&request, &refusal, &edits)?);
                refusals.push(refusal);
            }
        }
    }
    if !refusals.is_empty() {
        for plan in &plans {
            refusals.extend(stale(&request, plan)?);
            keep_text(&request, plan)?;
            kept.extend(wanted_by(plan));
        }
        let mut outcome = refuse(&request, refusals)?;
        if let Outcome::Refused(refused) = &mut outcome {
            keep_wanted(&request, refused, &kept)?;
        }
        return Ok(outcome);
    }
    Ok(Outcome::Done(Permit { request, plans, later: Vec::new(), locks }))
}

/// The refusal of a plan whose file is stale. The commit decides it in the end, but a controller wants to know all stale
/// files at once.
pub(crate) fn stale(request: &Request<'_>, plan: &Plan) -> Result<Option<Refusal>> {
    // A link that is deleted or moved was compared already.
    if plan.place.way.is_link && matches!(plan.base, Base::Exactly(_)) {
        return Ok(None);
    }
    let path = plan.place.path();
    let reason = objection(plan.base, &Look::at(request.root, path)?).filter(|reason| !is_busy(reason));
    Ok(reason.map(|reason| Refusal::new(path.clone(), reason)))
}

impl Permit<'_> {
    pub(crate) fn commit(self) -> Result<Outcome<Vec<AppliedChange>>> {
        let Self { request, plans, later, locks } = self;
        let makes_link =
            |plan: &Plan| matches!(plan.operation, Operation::Put { content: NewContent::Link(_), .. });
        let ways: Vec<(Way, bool)> =
            plans.iter().map(|plan| (plan.place.way.clone(), makes_link(plan))).collect();
        // The agent knows the bytes that it writes, so a later refusal can show how they were changed.
        plans.iter().try_for_each(|plan| keep_text(&request, plan))?;
        let wanted: Vec<_> = plans.iter().filter_map(wanted_by).collect();
        let mut outcome = commit(&request, plans, &later, &locks)?;
        if let Outcome::Refused(refused) = &mut outcome {
            keep_wanted(&request, refused, &wanted)?;
        }
        if let Outcome::Done(changes) = &outcome {
            let made = changes.iter().flat_map(|change| {
                let to = change.moved_to.as_ref().map(|to| (to, FileState::Absent, change.after));
                let after = if to.is_some() { FileState::Absent } else { change.after };
                [Some((&change.path, change.before, after)), to]
            });
            open_turn::changed(request.root, request.turn.id(), &made.flatten().collect::<Vec<_>>());
            for (AppliedChange { path, moved_to, after, .. }, (way, makes_link)) in changes.iter().zip(ways) {
                request.turn.used(&way.names, path)?;
                if makes_link && let Ok(target) = request.root.canonical(path) {
                    request.turn.made_link(path, *after, &target)?;
                    continue;
                }
                let Some(to) = moved_to else {
                    request.turn.wrote(path, *after)?;
                    continue;
                };
                request.turn.wrote(path, FileState::Absent)?;
                if !way.is_link {
                    request.turn.wrote(to, *after)?;
                } else if let Ok(target) = request.root.canonical(to) {
                    request.turn.set_lead(to.as_path(), &target)?;
                }
            }
        }
        Ok(outcome)
    }
}

/// Keeps the bytes that a plan writes, in the turn.
pub(crate) fn keep_text(request: &Request<'_>, plan: &Plan) -> Result<()> {
    match &plan.operation {
        Operation::Put { content: NewContent::Bytes(bytes) | NewContent::Program(bytes), digest } => {
            request.turn.keep_text(*digest, bytes)
        }
        Operation::Put { content: NewContent::Copy(from), .. } => keep_text_of(request, from),
        _ => Ok(()),
    }
}

/// The file of a plan, and the hash that it would get.
pub(crate) fn wanted_by(plan: &Plan) -> Option<(FilePath, Digest)> {
    Some((plan.place.path().clone(), plan.operation.after().digest()?))
}

/// What refused edits would have made of the text that the agent knew, if that text is kept.
fn edited(request: &Request<'_>, refusal: &Refusal, edits: &[Edit]) -> Result<Option<(FilePath, Digest)>> {
    if edits.is_empty() || !matches!(refusal.reason, Reason::Stale(_)) {
        return Ok(None);
    }
    let Some(base) = refusal.hashes().0.map(|digest| request.turn.text(digest)).transpose()?.flatten() else {
        return Ok(None);
    };
    let Ok(wanted) = edit::apply(base.to_vec(), edits)? else { return Ok(None) };
    let digest = Digest::of(&wanted);
    request.turn.keep_text(digest, &wanted)?;
    Ok(Some((refusal.path.clone(), digest)))
}

/// Keeps what the refused changes wanted to write, as far as the turn has these texts.
pub(crate) fn keep_wanted(
    request: &Request<'_>,
    refused: &mut Refused,
    wanted: &[(FilePath, Digest)],
) -> Result<()> {
    for refusal in &mut refused.refusals {
        if let Some((_, digest)) = wanted.iter().find(|(path, _)| *path == refusal.path)
            && let Some(text) = request.turn.text(*digest)?
        {
            conflict::keep(request, refusal, &text);
        }
    }
    Ok(())
}

/// Keeps the bytes of a file that a command has written, if they are few enough.
fn keep_text_of(request: &Request<'_>, from: &Path) -> Result<()> {
    match request.root.spot_of_command(from)?.open()? {
        Found::File(file) if file.len() <= TEXT_PER_FILE as u64 => {
            let (bytes, digest) = file.read()?;
            request.turn.keep_text(digest, &bytes)
        }
        _ => Ok(()),
    }
}

/// A fault if the path can only be that of a folder. Otherwise `new/` would become a file `new`.
pub(crate) fn must_name_a_file(root: &Root, path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if (bytes.ends_with(b"/") || bytes.ends_with(b"/.")) && !root.path().join(path).is_dir() {
        let what = format!("`{}` ends like the path of a folder: give the path of a file", path.display());
        return Err(Fault::invalid(what));
    }
    Ok(())
}

/// Where a path leads, if agents may change it. Otherwise adds a refusal. `at_root` is the reason for the root itself.
pub(crate) fn changeable(
    root: &Root,
    path: &Path,
    last: LastLink,
    at_root: Reason,
    refusals: &mut Vec<Refusal>,
) -> Result<Option<Place>> {
    let given = path;
    let (path, reason) = match root.locate(path, last)? {
        Located::Inside(place) if root.protects(given, place.path().as_path()) => {
            (place.way.path, Reason::Protected)
        }
        Located::Inside(place) => return Ok(Some(place)),
        Located::Outside(path) => (path, Reason::Outside),
        Located::Root(path) => (path, at_root),
    };
    refusals.push(Refusal::new(path, reason));
    Ok(None)
}

/// Locks these paths for a change, unless another agent is about to write one of them, or the agent has lost its claim. Heals
/// first what a dead process left on them.
///
/// `call` is the tool call that the request belongs to: it may lock what it has reserved.
pub(crate) fn lock(
    request: &Request<'_>,
    paths: &[&Path],
    call: Option<&str>,
) -> Result<std::result::Result<StripeLocks, Refusal>> {
    let busy = |path: &Path, holder| {
        let path = FilePath::trusted(request.root.path().join(path));
        Ok(Err(Refusal::new(path, Reason::Busy { holder })))
    };
    let settings = &request.root.settings().guard;
    let mut pauses = Pauses::lasting(settings.quiet_wait.0);
    let mut healed = None;
    let mut healing = Pauses::lasting(settings.lock_wait.0);
    loop {
        let Some(locks) = request.root.stripes.acquire(paths.iter().copied(), settings.lock_wait.0)? else {
            return busy(paths[0], None);
        };
        let marks = locks.marks()?;
        if !marks.is_empty() && healed.as_ref() != Some(&marks) {
            // Healing takes the locks itself. If the marks are the same afterwards, no other process died in the meantime.
            drop(locks);
            let skipped = heal(request.root)?;
            let is_healed = |stripe: &Option<u8>| match stripe {
                Some(stripe) => !skipped.contains(stripe),
                None => skipped.is_empty(),
            };
            if marks.iter().all(|(stripe, _)| is_healed(stripe)) {
                healed = Some(marks);
            } else if !healing.pause() {
                return busy(paths[0], None);
            }
            continue;
        }
        if marks.iter().any(|(stripe, _)| stripe.is_none()) {
            locks.clear_all()?;
        }
        let mut reserved = None;
        for path in paths {
            if let Some(reservation) = Reservation::of(request.root, &locks, path)?
                // An agent never blocks itself, not even with a call that did not end.
                && !reservation.is_of(request.turn)
                && Some(reservation.call.as_str()) != call
            {
                reserved = Some((path, reservation.agent));
                break;
            }
        }
        let Some((path, holder)) = reserved else {
            // In path order, as in every refusal of several files. A call that changes nothing has no paths.
            let first = paths.iter().min().map(|path| FilePath::trusted(request.root.path().join(path)));
            let fenced = first.map_or(Ok(None), |path| fenced(request, &path))?;
            return Ok(fenced.map_or(Ok(locks), Err));
        };
        drop(locks);
        if !pauses.pause() {
            return busy(path, Some(holder));
        }
    }
}

fn plan(
    request: &Request<'_>,
    place: Place,
    to: Option<Place>,
    change: Change,
    unfinished: &mut UnfinishedFiles,
) -> Result<std::result::Result<Plan, Refusal>> {
    if let Some(to) = &to
        && let Some(refusal) = other_tree::refusal(request, to.path())?
    {
        return Ok(Err(refusal));
    }
    if place.way.is_link {
        return plan_link(request, place, to, &change);
    }
    let base = match judged(request, &place.way, &change, unfinished)? {
        Ok(base) => base,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let operation = match (change.action, to) {
        (Action::Write(bytes) | Action::Create(bytes), _) => Operation::put(bytes),
        (Action::CreateProgram(bytes), _) => {
            Operation::Put { digest: Digest::of(&bytes), content: NewContent::Program(bytes) }
        }
        (Action::Delete, _) => Operation::Remove,
        (Action::MoveTo(_), Some(to)) => Operation::MoveTo(to),
        (Action::MoveTo(_), None) => return Err(Fault::invalid("a move needs a target")),
        (Action::Edit(edits), _) => return plan_edit(request, place, base, &edits),
        (Action::CopyOf { .. } | Action::Link(_) | Action::SetMode(_) | Action::ByProgram { .. }, _) => {
            return Err(Fault::invalid(
                "only a command or a tool of the agent's own program makes such a change",
            ));
        }
    };
    Ok(Ok(Plan::new(place, operation, base)))
}

/// What must be on disk for a change, or its refusal. The turn remembers which file the agent means.
pub(crate) fn judged(
    request: &Request<'_>,
    way: &Way,
    change: &Change,
    unfinished: &mut UnfinishedFiles,
) -> Result<std::result::Result<Base, Refusal>> {
    if !way.is_link {
        request.turn.about_to_change(&way.names, &way.path)?;
    }
    let judgement = judge(request, way, change, unfinished)?;
    unfinished.record_noted(request)?;
    by_mode(request, &way.path, judgement)
}

/// Deletes or moves a symbolic link. What it leads to is compared like every other file, and stays.
fn plan_link(
    request: &Request<'_>,
    place: Place,
    to: Option<Place>,
    change: &Change,
) -> Result<std::result::Result<Plan, Refusal>> {
    let root = request.root;
    let refusal = |path: &FilePath, reason| Ok(Err(Refusal::new(path.clone(), reason)));
    if !root.protected_within(place.path()).is_empty() {
        return refusal(place.path(), Reason::Protected);
    }
    if let Some(to) = to.as_ref().filter(|to| root.protected_names_below(to.path()).next().is_some()) {
        return refusal(to.path(), Reason::Protected);
    }
    if let Some(refusal) = other_tree::refusal(request, place.path())? {
        return Ok(Err(refusal));
    }
    // A link may lead nowhere, for example in a circle. What is outside of the workspace is not read.
    if let Ok(target) = root.follow(&change.path)
        && target.path.as_path().starts_with(root.path())
        && let Some(refusal) = compare_target(request, &target, change.expected)?
    {
        return Ok(Err(refusal));
    }
    let operation = to.map_or(Operation::Remove, Operation::MoveTo);
    let link = root.spot(&place.relative)?.hash()?;
    Ok(Ok(Plan::new(place, operation, Base::Exactly(link.into()))))
}

/// Why the target of a link is not what the agent knew. A folder has no bytes to compare.
fn compare_target(request: &Request<'_>, target: &Way, expected: Expected) -> Result<Option<Refusal>> {
    if fs::metadata(&target.path).is_ok_and(|found| !found.is_file()) {
        return Ok(None);
    }
    // The target stays, so nothing of it is destroyed.
    let change = Change::of_some_part(target.path.as_path()).expecting(expected);
    request.turn.about_to_change(&target.names, &target.path)?;
    let look = Look::at(request.root, &target.path)?;
    match judge_now(request, target, &change, &look, &mut UnfinishedFiles::default())? {
        Some(reason) => object(request, &target.path, reason),
        None => Ok(None),
    }
}

/// Makes the edits on the bytes that are on disk now. The commit then requires exactly these bytes.
fn plan_edit(
    request: &Request<'_>,
    place: Place,
    base: Base,
    edits: &[Edit],
) -> Result<std::result::Result<Plan, Refusal>> {
    let refusal = |reason| Ok(Err(Refusal::new(place.path().clone(), reason)));
    let missing = |actual| match base {
        Base::Exactly(expected @ FileState::Present(_)) => Ok(Reason::stale(expected, actual)),
        _ => Err(place.path().missing()),
    };
    let not_a_file = match base {
        Base::Exactly(expected @ FileState::Present(_)) => Reason::stale(expected, FileState::Unreadable),
        _ => Reason::NotAFile,
    };
    if !place.missing.is_empty() {
        return refusal(missing(FileState::Absent)?);
    }
    let spot = request.root.spot(&place.relative)?;
    let (bytes, digest) = match spot.steady(request.root.settings().guard.quiet_wait.0)? {
        (Found::File(_), Quiet::Busy) => return refusal(Reason::Busy { holder: None }),
        (Found::File(file), _) if file.len() > LARGEST_EDIT => {
            return Err(edit::too_large(place.path().as_path()));
        }
        (Found::File(file), _) => file.read()?,
        (Found::Nothing, _) => return refusal(missing(FileState::Absent)?),
        (Found::Unreadable, _) => return refusal(Reason::Unreadable),
        (Found::NotAFile, _) => return refusal(not_a_file),
    };
    let actual = FileState::Present(digest);
    match base {
        Base::Exactly(expected) if expected != actual => return refusal(Reason::stale(expected, actual)),
        Base::Observed(expected) if expected != actual => {
            observe(request, place.path(), Reason::stale(expected, actual))?;
        }
        _ => {}
    }
    match edit::apply(bytes, edits)? {
        Ok(bytes) => Ok(Ok(Plan::new(place, Operation::put(bytes), Base::Exactly(actual)))),
        Err(reason) => refusal(reason),
    }
}

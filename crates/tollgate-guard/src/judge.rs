//! May this agent make this change now?
//!
//! This is the only code that answers, whatever the way on which the change comes: see [`Change`]. It looks at the turn, the
//! settings and the disk, and changes and records nothing. The caller carries the answer out: the gate commits, a tool of the
//! agent's program gets a reservation, a view is committed or thrown away, a system call goes on or fails. There are two kinds
//! of yes: a commit compares the file once more when nobody can write it, so it only needs the [`Base`]. A program that makes
//! the change itself must find the file as it should be now.

use crate::change::{Action, Change, CommandLook, Expected, StartState};
use crate::commit::Base;
use crate::disk::{Found, Quiet};
use crate::explain::observe;
use crate::git_config::comes_with_command;
use crate::look::Look;
use crate::path::FilePath;
use crate::place::Way;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::turn::{Extent, FileState};
use crate::unfinished::UnfinishedFiles;
use tollgate_base::error::Result;
use tollgate_base::settings::{GuardMode, Unread};

/// What must be on disk for a change, or why it is refused.
pub(crate) type Judgement = std::result::Result<Base, Reason>;

/// Judges a change of the file to which its path leads. `unfinished`: what is known of unfinished work from earlier changes of the same
/// request.
pub(crate) fn judge(
    request: &Request<'_>,
    way: &Way,
    change: &Change,
    unfinished: &mut UnfinishedFiles,
) -> Result<Judgement> {
    if is_protected(request, way, change) {
        return Ok(Err(Reason::Protected));
    }
    if request.root.settings().guard.mode == GuardMode::Off {
        return Ok(Ok(Base::Any));
    }
    if unfinished.is_in_other_tree(request, &way.path)? {
        return Ok(Err(Reason::OtherTree));
    }
    let base = match compared(request, way, change)? {
        Ok(base) => base,
        Err(reason) => return Ok(Err(reason)),
    };
    let judgement = unfinished.judge(request, &way.path, change)?;
    let premises = unfinished.changed_premises(request, &way.path)?;
    if judgement.1.is_none() && !premises.is_empty() {
        // What is wrong with the file itself comes first.
        let stale = objection(base, &Look::at(request.root, &way.path)?);
        return Ok(Err(stale.unwrap_or(Reason::PremiseChanged(premises))));
    }
    Ok(match judgement {
        (_, Some(reason)) => Err(reason),
        // What was judged is what must be there.
        (Some(state), None) if base == Base::Any => Ok(Base::Exactly(state)),
        (_, None) => Ok(base),
    })
}

/// What the file must be, compared with what the agent knows of it.
fn compared(request: &Request<'_>, way: &Way, change: &Change) -> Result<Judgement> {
    let extent = change.action.extent();
    let expected = match change.action {
        Action::Create(_) | Action::CreateProgram(_) => Expected::Absent,
        _ => change.expected,
    };
    match expected {
        Expected::Hash(digest) => Ok(Ok(Base::Exactly(FileState::Present(digest)))),
        Expected::Absent => Ok(Ok(Base::Exactly(FileState::Absent))),
        Expected::Baseline => match known(request, way, extent)? {
            Some(FileState::Unreadable) => Ok(Err(Reason::Unreadable)),
            Some(state) => Ok(Ok(Base::Exactly(state))),
            None => unread(request, way),
        },
        Expected::AtStart(start, look) => at_start(request, way, start, look),
    }
}

/// Judges a change that a program is about to make, of a file in this state.
pub(crate) fn judge_now(
    request: &Request<'_>,
    way: &Way,
    change: &Change,
    look: &Look,
    unfinished: &mut UnfinishedFiles,
) -> Result<Option<Reason>> {
    Ok(match judge(request, way, change, unfinished)? {
        Ok(base) => objection(base, look),
        Err(reason) => Some(reason),
    })
}

/// What the mode of the settings makes of a judgement: if it only observes, a change is made all the same.
pub(crate) fn by_mode(
    request: &Request<'_>,
    path: &FilePath,
    judgement: Judgement,
) -> Result<std::result::Result<Base, Refusal>> {
    let is_command = request.level.is_some();
    let reason = match (request.root.settings().guard.mode, judgement) {
        (GuardMode::Off, Err(_)) if is_command => return Ok(Ok(Base::Any)),
        (GuardMode::Off | GuardMode::Enforce, judgement) => {
            return Ok(judgement.map_err(|reason| Refusal::new(path.clone(), reason)));
        }
        (GuardMode::Observe, Ok(Base::Exactly(state))) => return Ok(Ok(Base::Observed(state))),
        (GuardMode::Observe, Ok(base @ Base::Since(_))) => {
            objection(base, &Look::at(request.root, path)?).filter(|reason| !is_busy(reason))
        }
        (GuardMode::Observe, Ok(base)) => return Ok(Ok(base)),
        (GuardMode::Observe, Err(reason)) => Some(reason),
    };
    if let Some(reason) = reason {
        observe(request, path, reason)?;
    }
    Ok(Ok(Base::Any))
}

/// Whether another process has the file open for writing, so that nobody knows what it will be.
pub(crate) fn is_busy(reason: &Reason) -> bool {
    matches!(reason, Reason::Busy { .. })
}

/// Whether agents must not make this change, whatever is on disk.
fn is_protected(request: &Request<'_>, way: &Way, change: &Change) -> bool {
    let (root, path) = (request.root, way.path.as_path());
    if request.level.is_none() {
        return root.protects(&change.path, path);
    }
    let is_deleted = change.action == Action::Delete;
    let plants_command = match &change.action {
        Action::CopyOf { file, .. } => comes_with_command(Some(file), path),
        Action::Link(_) => comes_with_command(None, path),
        _ => false,
    };
    // What a link leads to, nobody compares: it could bring protected names to this path.
    let brings_names =
        || matches!(change.action, Action::Link(_)) && root.protected_names_below(&way.path).next().is_some();
    // A file or a link in place of the git directory could name another one.
    let replaces_git = !is_deleted && path.file_name().is_some_and(|name| name == ".git") && path.is_dir();
    request.protects_from_command(path, is_deleted) || plants_command || replaces_git || brings_names()
}

/// What the agent knows of a file, in this turn or, if the settings say so, from earlier ones.
fn known(
    request: &Request<'_>,
    Way { path, names, is_link }: &Way,
    extent: Extent,
) -> Result<Option<FileState>> {
    // A change of a link itself does not change the file to which it led.
    let sighting = match is_link {
        true => request.turn.get(path)?,
        false => request.turn.meant(names, path)?,
    };
    match sighting {
        Some(sighting) => Ok(Some(sighting.baseline(extent))),
        None if request.root.settings().guard.unread == Unread::Known => request.turn.known(names, path),
        None => Ok(None),
    }
}

/// The agent knows nothing of this file.
fn unread(request: &Request<'_>, way: &Way) -> Result<Judgement> {
    let spot = request.root.spot_anywhere(&way.path)?;
    let found = spot.map_or(Ok(Found::Nothing), |spot| spot.open_itself())?;
    Ok(match found {
        Found::Nothing => Ok(Base::Exactly(FileState::Absent)),
        _ if request.root.settings().guard.unread != Unread::Refuse => Ok(Base::Any),
        Found::File(file) => Err(Reason::Unread { actual: FileState::Present(file.hash()?) }),
        // A read would not help.
        Found::NotAFile => Err(Reason::NotAFile),
        Found::Unreadable => Err(Reason::Unread { actual: FileState::Unreadable }),
    })
}

/// A change that a command made in its own view.
fn at_start(request: &Request<'_>, way: &Way, start: StartState, look: CommandLook) -> Result<Judgement> {
    let extent = match look {
        CommandLook::ForAgent => return Ok(Ok(Base::Since(start))),
        CommandLook::ForItself => Extent::Part,
        CommandLook::None | CommandLook::Unknown => Extent::Whole,
    };
    let Some(known) = known(request, way, extent)? else {
        return Ok(match look {
            CommandLook::ForItself => Ok(Base::Since(start)),
            _ => unread(request, way)?.map(|_| Base::Since(start)),
        });
    };
    match (look, known) {
        (CommandLook::ForItself, FileState::Unreadable) => Ok(Ok(Base::Since(start))),
        (_, FileState::Unreadable) => Ok(Err(Reason::Unreadable)),
        (CommandLook::None, known) => Ok(Ok(Base::Exactly(known))),
        (CommandLook::ForItself, known) => match start.was {
            Some(was @ (FileState::Present(_) | FileState::Absent)) if was != known => {
                Ok(Err(Reason::stale(known, was)))
            }
            Some(FileState::Present(_) | FileState::Absent) => Ok(Ok(Base::Since(start))),
            Some(FileState::Unreadable) | None => both(request, &way.path, known, start),
        },
        (_, known) => both(request, &way.path, known, start),
    }
}

/// The file must be what the agent knows, and what it was when the command started. The commit compares with the start, and the
/// rest is compared here.
fn both(request: &Request<'_>, path: &FilePath, known: FileState, start: StartState) -> Result<Judgement> {
    let look = Look::at(request.root, path)?;
    Ok(match objection(Base::Since(start), &look) {
        Some(reason) => Err(reason),
        // The commit looks at it more closely.
        None if look.state == FileState::Unreadable => Ok(Base::Exactly(known)),
        None if look.state != known => Err(Reason::stale(known, look.state)),
        None => Ok(Base::Since(start)),
    })
}

/// Why a file that looks like this is not what must be on disk.
pub(crate) fn objection(base: Base, look: &Look) -> Option<Reason> {
    let expected = match base {
        Base::Any | Base::Observed(_) => return None,
        Base::Exactly(expected) if expected == look.state => return None,
        Base::Exactly(expected) => expected,
        Base::Since(start) => match look.state {
            FileState::Present(digest) if look.quiet != Quiet::Busy && start.holds(look.changed, digest) => {
                return None;
            }
            FileState::Absent if !start.was_present() => return None,
            FileState::Unreadable => return None,
            FileState::Present(_) | FileState::Absent => start.expected(),
        },
    };
    Some(match look.quiet {
        Quiet::Busy => Reason::Busy { holder: None },
        Quiet::Held | Quiet::Unavailable => Reason::stale(expected, look.state),
    })
}

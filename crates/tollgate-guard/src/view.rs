//! Changes that a command made in its own view of the workspace, and how they come to the workspace itself.
//!
//! The command has ended, and its changes are known. A file that the command looked at before it wrote it must be what it was
//! when the command started. A file that it wrote without looking must be what the agent knows. All changes are made in one
//! commit, or none.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::change::{Action, Change, CommandLook, Expected, StartState};
use crate::commit::{AppliedChange, Base, ByCommand, FolderChange, NewContent, Operation, Plan};
use crate::explain::{object, refuse};
use crate::git_rules;
use crate::guard::{Permit, judged, keep_text, keep_wanted, lock, stale, wanted_by};
use crate::judge::{is_busy, objection};
use crate::look::Look;
use crate::lost_claim::fenced;
use crate::path::{EscapedPath, FilePath};
use crate::place::{Place, Way};
use crate::protected::is_of_git;
use crate::refusal::{Outcome, Reason, Refusal};
use crate::refused_run::RunWork;
use crate::request::Request;
use crate::unfinished::UnfinishedFiles;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::Pauses;
use tollgate_base::settings::{GuardMode, Unread};

/// All changes of a command. Paths are relative to the workspace.
#[derive(Debug, Default)]
pub struct ViewChanges {
    /// The level at which the command ran, for the ledger.
    pub level: &'static str,
    /// The files that the command changed. What makes room for another file comes before it.
    pub files: Vec<Change>,
    /// The folders that the command created, or whose mode it changed; `None` for those that it removed.
    pub folders: Vec<(PathBuf, Option<u32>)>,
    /// Files that must still be what they were when the command started, though the command only read them.
    pub reads: Vec<(PathBuf, StartState)>,
    /// Protected paths outside of the workspace that the command has changed, absolute.
    pub outside: Vec<PathBuf>,
}

pub(crate) fn commit(
    mut request: Request<'_>,
    mut changes: ViewChanges,
) -> Result<Outcome<Vec<AppliedChange>>> {
    let root = request.root;
    if root.settings().guard.mode == GuardMode::Off {
        // Nothing is compared.
        changes.reads.clear();
    }
    if changes.files.is_empty() && changes.folders.is_empty() {
        // A command that changed nothing has nothing to be refused for.
        request.fences = &[];
    }
    let path_of = |path: &Path| FilePath::trusted(root.path().join(path));
    let is_checkout = |folder: &PathBuf| folder.join(".git").symlink_metadata().is_ok();
    let removed = changes.folders.iter().filter(|(_, mode)| mode.is_none());
    let removed: Vec<PathBuf> = removed.map(|(path, _)| root.path().join(path)).filter(is_checkout).collect();
    let request = Request { removed: &removed, ..request };
    let mut refusals = Vec::new();
    for path in &changes.outside {
        refusals.extend(object(&request, &FilePath::trusted(path.clone()), Reason::Protected)?);
    }
    if !refusals.is_empty() {
        return refuse(&request, refusals);
    }
    let is_protected = |(path, mode): &&(PathBuf, Option<u32>)| {
        request.protects_from_command(&root.path().join(path), mode.is_none())
    };
    for (path, _) in changes.folders.iter().filter(is_protected) {
        refusals.extend(object(&request, &path_of(path), Reason::Protected)?);
    }
    let folder_change =
        |(path, mode): &(PathBuf, Option<u32>)| FolderChange { path: EscapedPath(path.clone()), mode: *mode };
    let later: Vec<FolderChange> = changes.folders.iter().map(folder_change).collect();
    let reads = changes.reads.iter().map(|(path, _)| path.as_path());
    let paths: Vec<&Path> = changes.files.iter().map(|change| change.path.as_path()).chain(reads).collect();
    if paths.is_empty() {
        let first = changes.folders.iter().map(|(path, _)| path_of(path)).min();
        if let Some(refusal) = first.map_or(Ok(None), |path| fenced(&request, &path))? {
            return refuse(&request, vec![refusal]);
        }
        // Each of them is one step for itself.
        later.iter().try_for_each(|folder| folder.make(root))?;
        return Ok(Outcome::Done(Vec::new()));
    }
    let locks = match lock(&request, &paths, None)? {
        Ok(locks) => locks,
        Err(refusal) => return refuse(&request, vec![refusal]),
    };
    if let Some(path) = locked_by_git(&request, &paths) {
        return refuse(&request, vec![Refusal::new(path_of(path), Reason::Busy { holder: None })]);
    }
    let mut unfinished = UnfinishedFiles::default();
    unfinished.ask_about(&request, &changes.files)?;
    for (path, start) in &changes.reads {
        let path = path_of(path);
        let reason = objection(Base::Since(*start), &Look::at(root, &path)?);
        if let Some(reason) = reason.filter(|reason| !is_busy(reason)) {
            refusals.extend(object(&request, &path, reason)?);
        }
    }
    refusals.extend(git_rules::judge(&request, &changes.files, &mut unfinished)?);
    let learned = git_rules::learned(&request, &changes.files)?;
    let (mut plans, mut not_allowed) = (Vec::with_capacity(changes.files.len()), Vec::new());
    let mut links = KnownLinks::default();
    for change in changes.files {
        let mut place = place(&request, &change.path)?;
        let asks_agent =
            matches!(change.expected, Expected::AtStart(_, look) if look != CommandLook::ForAgent);
        if asks_agent && was_there(&request, &place) {
            place.way.names = links.names_of(&request, place.path())?;
        }
        match judged(&request, &place.way, &change, &mut unfinished)? {
            Ok(base) => plans.push(plan(&request, place, change.action, base)?),
            Err(refusal) => {
                not_allowed.push(plan(&request, place, change.action, Base::Any)?);
                refusals.push(refusal);
            }
        }
    }
    let work = RunWork::of(plans.iter().chain(&not_allowed));
    if !refusals.is_empty() {
        let mut wanted = Vec::new();
        for plan in &plans {
            if let Some(refusal) = stale(&request, plan)? {
                keep_text(&request, plan)?;
                wanted.extend(wanted_by(plan));
                refusals.push(refusal);
            }
        }
        let mut outcome = refuse(&request, refusals)?;
        if let Outcome::Refused(refused) = &mut outcome {
            keep_wanted(&request, refused, &wanted)?;
            work.map_or(Ok(()), |work| work.keep(&request, refused))?;
        }
        return Ok(outcome);
    }
    if plans.is_empty() {
        later.iter().try_for_each(|folder| folder.make(root))?;
        return Ok(Outcome::Done(Vec::new()));
    }
    let outcome = Permit { request, plans, later, locks }.commit()?;
    match (&outcome, work) {
        (Outcome::Done(_), _) => {
            learned.iter().try_for_each(|(path, state)| request.turn.wrote(path, *state))?;
        }
        (Outcome::Refused(refused), Some(work)) => work.keep(&request, refused)?,
        (Outcome::Refused(_), None) => {}
    }
    Ok(outcome)
}

/// A file of a git directory that a git outside of the view is about to replace. Waits a moment for its end.
fn locked_by_git<'a>(request: &Request<'_>, paths: &[&'a Path]) -> Option<&'a Path> {
    let root = request.root;
    let is_locked = |path: &Path| {
        let mut lock = root.path().join(path);
        lock.as_mut_os_string().push(".lock");
        is_of_git(path) && lock.symlink_metadata().is_ok()
    };
    let mut pauses = Pauses::lasting(root.settings().guard.quiet_wait.0);
    loop {
        let locked = paths.iter().find(|path| is_locked(path))?;
        if !pauses.pause() {
            return Some(locked);
        }
    }
}

/// The place of a path of the view. In the view no part of it is a symbolic link, so none is followed here.
fn place(request: &Request<'_>, relative: &Path) -> Result<Place> {
    let root = request.root.path();
    let kind = |path: &Path| fs::symlink_metadata(root.join(path)).map(|found| found.file_type());
    let parents = relative.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty());
    let missing = parents.filter(|folder| !kind(folder).is_ok_and(|kind| kind.is_dir()));
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    let is_link = kind(relative).is_ok_and(|kind| kind.is_symlink());
    let way = Way { path: FilePath::trusted(root.join(relative)), names: Vec::new(), is_link };
    Ok(Place { way, relative: relative.to_owned(), missing })
}

/// Whether a command has changed a file that was in the workspace, and that an agent could have read. No agent reads what git keeps
/// for itself.
fn was_there(request: &Request<'_>, place: &Place) -> bool {
    !place.way.is_link && !is_of_git(&place.relative) && request.root.path().join(&place.relative).is_file()
}

/// Of all names under which the agent knows files, those that now lead through a symbolic link.
///
/// Nobody knows under which name a command wrote a file: the layer has only the file itself. So if the agent does not know that
/// file, and a name that it has used leads there now, the command may have used that name, too. Then the file must be what the
/// agent knew by that name.
#[derive(Default)]
struct KnownLinks(Option<HashMap<FilePath, Vec<PathBuf>>>);

impl KnownLinks {
    /// The names that lead to this file, which the agent knows only by such names.
    fn names_of(&mut self, request: &Request<'_>, file: &FilePath) -> Result<Vec<PathBuf>> {
        let beyond_turn = request.root.settings().guard.unread == Unread::Known;
        if request.turn.get(file)?.is_some() || beyond_turn && request.turn.session().get(file)?.is_some() {
            return Ok(Vec::new());
        }
        let links = match &mut self.0 {
            Some(links) => links,
            none => none.insert(Self::find(request, beyond_turn)?),
        };
        Ok(links.get(file).cloned().unwrap_or_default())
    }

    fn find(request: &Request<'_>, beyond_turn: bool) -> Result<HashMap<FilePath, Vec<PathBuf>>> {
        let mut known = request.turn.names()?;
        if beyond_turn {
            known.extend(request.turn.session().names()?);
        }
        let mut links: HashMap<FilePath, Vec<PathBuf>> = HashMap::new();
        // A turn may know ten thousand files, in few folders.
        let mut straight: HashMap<PathBuf, bool> = HashMap::new();
        for name in known {
            let Some(folder) = name.parent() else { continue };
            let follow = |path: &Path| request.root.follow(path).ok();
            let is_straight = *straight
                .entry(folder.to_owned())
                .or_insert_with(|| follow(folder).is_some_and(|way| way.names.is_empty()));
            if is_straight && !fs::symlink_metadata(&name).is_ok_and(|found| found.is_symlink()) {
                continue;
            }
            // A name that leads nowhere leads to no file of this commit.
            let Some(way) = follow(&name) else { continue };
            let names = links.entry(way.path).or_default();
            names.extend(way.names.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        }
        Ok(links)
    }
}

fn plan(request: &Request<'_>, place: Place, action: Action, base: Base) -> Result<Plan> {
    let root = request.root.path();
    let in_place = matches!(action, Action::CopyOf { in_place: true, .. });
    let operation = match action {
        Action::CopyOf { file, digest, .. } => Operation::Put { content: NewContent::Copy(file), digest },
        Action::Link(path) => Operation::Put { digest: Digest::of(&path), content: NewContent::Link(path) },
        Action::Delete => Operation::Remove,
        Action::SetMode(mode) => Operation::SetMode(mode),
        Action::Write(_)
        | Action::Create(_)
        | Action::CreateProgram(_)
        | Action::Edit(_)
        | Action::MoveTo(_)
        | Action::ByProgram { .. } => {
            return Err(Fault::invalid("no command makes such a change in its view"));
        }
    };
    let mut command = ByCommand { in_place, ..ByCommand::default() };
    if let Operation::Put { .. } = operation {
        let here = root.join(&place.relative);
        if fs::symlink_metadata(&here).is_ok_and(|found| found.is_dir()) {
            command.after_others = true;
            command.clears = folders_of(root, &place.relative)?;
        }
        // Something that is not a folder is on the way.
        let blocked = place.missing.first().is_some_and(|first| root.join(first).symlink_metadata().is_ok());
        command.after_others |= blocked;
    }
    Ok(Plan { command: Some(command), ..Plan::new(place, operation, base) })
}

/// This folder and all folders below it, innermost first, with their modes.
fn folders_of(root: &Path, folder: &Path) -> Result<Vec<(PathBuf, u32)>> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).cloned() {
        next += 1;
        for entry in fs::read_dir(root.join(&folder)).at("list the folder", root.join(&folder))? {
            let entry = entry.at("list the folder", root.join(&folder))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(folder.join(entry.file_name()));
            }
        }
    }
    let mode = |folder: PathBuf| {
        let mode =
            fs::symlink_metadata(root.join(&folder)).at("look at", root.join(&folder))?.mode() & 0o7777;
        Ok((folder, mode))
    };
    found.into_iter().rev().map(mode).collect()
}

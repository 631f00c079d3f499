//! Changes that a command made in its own view of the workspace, and how they come to the workspace itself.
//!
//! The command has ended, and its changes are known. A file that the command looked at before it wrote it must be what it was
//! when the command started. A file that it wrote without looking must be what the agent knows. All changes are made in one
//! commit, or none.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::commit::{Applied, Base, ByCommand, FolderDeed, NewContent, Operation, Plan, StartState, Was};
use crate::disk::{Found, Quiet};
use crate::explain::{object, observe, refuse};
use crate::git_config::comes_with_command;
use crate::guard::{Permit, READ_WAIT, base, lock};
use crate::lost_claim::fenced;
use crate::path::{EscapedPath, FilePath};
use crate::place::{Place, Way};
use crate::refusal::{Outcome, Reason, Refusal};
use crate::request::{Expected, Request};
use crate::turn::{Extent, FileState};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::lock::Pauses;
use tollgate_base::settings::{GuardMode, Unread};

/// All changes of a command. Paths are relative to the workspace.
#[derive(Debug, Default)]
pub struct ViewChanges {
    /// The level at which the command ran, for the ledger.
    pub level: &'static str,
    /// When the command started, by the clock of the file system, in nanoseconds since 1970.
    pub start: i128,
    /// The files that the command changed.
    pub files: Vec<ViewChange>,
    /// The folders that the command created, or whose mode it changed; `None` for those that it removed.
    pub folders: Vec<(PathBuf, Option<u32>)>,
    /// Files that must still be what they were when the command started, though the command only read them.
    pub reads: Vec<(PathBuf, Was)>,
    /// Whether the agent knows a file because the command looked at it.
    pub looking: Looking,
}

/// What it means for an agent that its command looked at a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Looking {
    /// The agent knows the file.
    #[default]
    Knows,
    /// The command looked for itself. If the agent has seen the file before, it must still be what the agent saw.
    OnlyCommand,
}

/// A file that a command changed.
#[derive(Debug)]
pub struct ViewChange {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// What the command did.
    pub deed: ViewDeed,
    /// What was there when the command started.
    pub was: Was,
    /// What the change is compared with.
    pub basis: Basis,
}

/// What a command did to a file.
#[derive(Debug)]
pub enum ViewDeed {
    /// It wrote this file.
    File {
        /// Where its bytes are.
        from: PathBuf,
        /// Its hash.
        digest: Digest,
        /// The command wrote into the file that was there.
        in_place: bool,
    },
    /// It made a symbolic link with this path in it.
    Link(Vec<u8>),
    /// It deleted the file.
    Remove,
    /// It only changed the mode.
    Mode(u32),
}

/// What a change is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// What was there when the command started: the command looked at it.
    Start,
    /// What the agent knows, and if it knows nothing, what was there when the command started.
    Agent,
    /// Both: nobody knows whether the command looked at it.
    Unsure,
    /// A file that it wrote before, with this state.
    Known(FileState),
}

pub(crate) fn commit(mut request: Request<'_>, mut changes: ViewChanges) -> Result<Outcome<Vec<Applied>>> {
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
    let folders = changes.folders.iter().map(|(path, _)| path.as_path());
    let all = changes.files.iter().map(|change| change.path.as_path()).chain(folders);
    let mut refusals = Vec::new();
    let planted = changes.files.iter().filter(|change| plants_command(root.path(), change));
    let planted = planted.map(|change| change.path.as_path());
    for path in all.filter(|path| root.protects_from_commands(path)).chain(planted) {
        refusals.extend(object(&request, &path_of(path), Reason::Protected)?);
    }
    let links = changes.files.iter().filter(|change| matches!(change.deed, ViewDeed::Link(_)));
    for path in links.map(|change| path_of(&change.path)) {
        // What a link leads to, nobody compares: it could bring protected names to this path.
        if root.protected_names_below(&path).next().is_some() {
            refusals.extend(object(&request, &path, Reason::Protected)?);
        }
    }
    if !refusals.is_empty() {
        return refuse(&request, refusals);
    }
    let deed =
        |(path, mode): &(PathBuf, Option<u32>)| FolderDeed { path: EscapedPath(path.clone()), mode: *mode };
    let later: Vec<FolderDeed> = changes.folders.iter().map(deed).collect();
    let reads = changes.reads.iter().map(|(path, _)| path.as_path());
    let paths: Vec<&Path> = changes.files.iter().map(|change| change.path.as_path()).chain(reads).collect();
    if paths.is_empty() {
        let first = changes.folders.iter().map(|(path, _)| path_of(path)).min();
        if let Some(refusal) = first.map_or(Ok(None), |path| fenced(&request, &path))? {
            return refuse(&request, vec![refusal]);
        }
        // Each of them is one step for itself.
        later.iter().try_for_each(|deed| deed.make(root))?;
        return Ok(Outcome::Done(Vec::new()));
    }
    let locks = match lock(&request, &paths, None)? {
        Ok(locks) => locks,
        Err(refusal) => return refuse(&request, vec![refusal]),
    };
    if let Some(path) = locked_by_git(&request, &paths) {
        return refuse(&request, vec![Refusal::new(path_of(path), Reason::Busy { holder: None })]);
    }
    for (path, was) in &changes.reads {
        let since = StartState { start: changes.start, was: *was };
        if let Some(reason) = stale_since(&request, &path_of(path), since)? {
            refusals.extend(object(&request, &path_of(path), reason)?);
        }
    }
    let mut plans = Vec::with_capacity(changes.files.len());
    let looking = changes.looking;
    let mut links = KnownLinks::default();
    for change in changes.files {
        let since = StartState { start: changes.start, was: change.was };
        let mut place = place(&request, &change.path)?;
        let asks_agent = match change.basis {
            Basis::Agent | Basis::Unsure => true,
            Basis::Start => looking == Looking::OnlyCommand,
            Basis::Known(_) => false,
        };
        if asks_agent && was_there(&request, &place) {
            place.way.names = links.names_of(&request, place.path())?;
        }
        match base_of(&request, &place, &change, since, looking)? {
            Ok(base) => plans.push(plan(&request, place, change.deed, base)?),
            Err(reason) => refusals.push(Refusal::new(place.way.path, reason)),
        }
    }
    if !refusals.is_empty() {
        for plan in &plans {
            let path = plan.place.path();
            let reason = match plan.base {
                Base::Since(since) => stale_since(&request, path, since)?,
                _ => None,
            };
            refusals.extend(reason.map(|reason| Refusal::new(path.clone(), reason)));
        }
        return refuse(&request, refusals);
    }
    if plans.is_empty() {
        later.iter().try_for_each(|deed| deed.make(root))?;
        return Ok(Outcome::Done(Vec::new()));
    }
    // What is removed makes room for what is put there. A commit is undone in the reverse order.
    plans.sort_by_key(|plan| !matches!(plan.deed, Operation::Remove));
    Permit { request, plans, later, locks }.commit()
}

/// Whether a command has planted another command in git's configuration.
fn plants_command(root: &Path, change: &ViewChange) -> bool {
    let from = match &change.deed {
        ViewDeed::File { from, .. } => Some(from.as_path()),
        ViewDeed::Link(_) => None,
        ViewDeed::Remove | ViewDeed::Mode(_) => return false,
    };
    comes_with_command(from, &root.join(&change.path))
}

/// A file of a git directory that a git outside of the view is about to replace. Waits a moment for its end.
fn locked_by_git<'a>(request: &Request<'_>, paths: &[&'a Path]) -> Option<&'a Path> {
    let root = request.root;
    let is_locked = |path: &Path| {
        let mut lock = root.path().join(path);
        lock.as_mut_os_string().push(".lock");
        path.iter().any(|part| part == ".git") && lock.symlink_metadata().is_ok()
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
    let is_of_git = || place.relative.iter().any(|part| part == ".git");
    !place.way.is_link && !is_of_git() && request.root.path().join(&place.relative).is_file()
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

fn plan(request: &Request<'_>, place: Place, deed: ViewDeed, base: Base) -> Result<Plan> {
    let root = request.root.path();
    let in_place = matches!(deed, ViewDeed::File { in_place: true, .. });
    let deed = match deed {
        ViewDeed::File { from, digest, .. } => Operation::Put { content: NewContent::Copy(from), digest },
        ViewDeed::Link(path) => Operation::Put { digest: Digest::of(&path), content: NewContent::Link(path) },
        ViewDeed::Remove => Operation::Remove,
        ViewDeed::Mode(mode) => Operation::SetMode(mode),
    };
    let mut command = ByCommand { in_place, ..ByCommand::default() };
    if let Operation::Put { .. } = deed {
        let here = root.join(&place.relative);
        if fs::symlink_metadata(&here).is_ok_and(|found| found.is_dir()) {
            command.after_others = true;
            command.clears = folders_of(root, &place.relative)?;
        }
        // Something that is not a folder is on the way.
        let blocked = place.missing.first().is_some_and(|first| root.join(first).symlink_metadata().is_ok());
        command.after_others |= blocked;
    }
    Ok(Plan { command: Some(command), ..Plan::new(place, deed, base) })
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

/// What must be on disk, or why the change is refused.
fn base_of(
    request: &Request<'_>,
    place: &Place,
    change: &ViewChange,
    since: StartState,
    looking: Looking,
) -> Result<std::result::Result<Base, Reason>> {
    let (root, path) = (request.root, place.path());
    let mode = root.settings().guard.mode;
    if mode == GuardMode::Off {
        return Ok(Ok(Base::Any));
    }
    let find = || root.spot_anywhere(path)?.map_or(Ok(Found::Nothing), |spot| spot.open_itself());
    let judged = match change.basis {
        Basis::Start => match (looking, known(request, &place.way)?) {
            (Looking::Knows, _) | (_, None | Some(FileState::Unreadable)) => Ok(Base::Since(since)),
            (Looking::OnlyCommand, Some(known)) => match (since.was, known) {
                (Was::Present(Some(was)), FileState::Present(known)) if was == known => {
                    Ok(Base::Since(since))
                }
                (Was::Absent, FileState::Absent) => Ok(Base::Since(since)),
                (Was::Present(Some(was)), _) => Err(Reason::stale(known, FileState::Present(was))),
                (Was::Absent, _) => Err(Reason::stale(known, FileState::Absent)),
                (Was::Present(None) | Was::Unknown, _) => known_since(request, path, known, since)?,
            },
        },
        Basis::Known(state) if mode == GuardMode::Observe => Ok(Base::Observed(state)),
        Basis::Known(state) => Ok(Base::Exactly(state)),
        Basis::Agent | Basis::Unsure => {
            let knows = request.turn.get(path)?.is_some();
            match base(request, &place.way, Extent::Whole, Expected::Baseline, &find)? {
                Ok(Base::Any) => Ok(Base::Since(since)),
                Ok(Base::Exactly(FileState::Absent)) if !knows => Ok(Base::Since(since)),
                Ok(Base::Exactly(known)) if change.basis == Basis::Unsure => {
                    known_since(request, path, known, since)?
                }
                judged => judged,
            }
        }
    };
    if mode != GuardMode::Observe {
        return Ok(judged);
    }
    let reason = match judged {
        Ok(Base::Since(since)) => stale_since(request, path, since)?,
        Ok(base) => return Ok(Ok(base)),
        Err(reason) => Some(reason),
    };
    if let Some(reason) = reason {
        observe(request, path, reason)?;
    }
    Ok(Ok(Base::Any))
}

/// The base of a change by a command that has seen the file, or may have: the file must be what the agent knows, and what it was
/// when the command started. So the commit compares with the start, and the rest is compared here.
fn known_since(
    request: &Request<'_>,
    path: &FilePath,
    known: FileState,
    since: StartState,
) -> Result<std::result::Result<Base, Reason>> {
    Ok(match look_since(request, path, since)? {
        SinceStart::Changed(reason) => Err(reason),
        SinceStart::Same(actual) if actual != known => Err(Reason::stale(known, actual)),
        SinceStart::Same(_) => Ok(Base::Since(since)),
        SinceStart::Busy => Err(Reason::Busy { holder: None }),
        SinceStart::NoFile => Ok(Base::Exactly(known)),
    })
}

/// What the agent knows of a file, in this turn or from earlier ones.
fn known(request: &Request<'_>, Way { path, names, .. }: &Way) -> Result<Option<FileState>> {
    if !names.is_empty() {
        request.turn.about_to_change(names, path)?;
    }
    match request.turn.get(path)? {
        Some(sighting) => Ok(Some(sighting.baseline(Extent::Part))),
        None if request.root.settings().guard.unread == Unread::Known => request.turn.known(names, path),
        None => Ok(None),
    }
}

/// Why a file is not what it was when the command started. The commit decides it in the end, but a controller wants to know
/// all stale files at once.
fn stale_since(request: &Request<'_>, path: &FilePath, since: StartState) -> Result<Option<Reason>> {
    Ok(match look_since(request, path, since)? {
        SinceStart::Changed(reason) => Some(reason),
        SinceStart::Same(_) | SinceStart::Busy | SinceStart::NoFile => None,
    })
}

/// What became of a file since the start of the command.
enum SinceStart {
    /// It is what it was: this.
    Same(FileState),
    Changed(Reason),
    /// Another process has it open for writing.
    Busy,
    /// It cannot be read, or it is a folder, a socket or the like. The commit looks at it more closely.
    NoFile,
}

fn look_since(request: &Request<'_>, path: &FilePath, since: StartState) -> Result<SinceStart> {
    let spot = request.root.spot_anywhere(path)?;
    let actual = match spot.map(|spot| spot.steady(READ_WAIT)).transpose()? {
        Some((Found::File(_), Quiet::Busy)) => return Ok(SinceStart::Busy),
        Some((Found::File(file), _)) => {
            let digest = file.hash()?;
            if since.holds(file.changed(), digest) {
                return Ok(SinceStart::Same(FileState::Present(digest)));
            }
            FileState::Present(digest)
        }
        Some((Found::Nothing, _)) | None => match since.was {
            Was::Absent | Was::Unknown => return Ok(SinceStart::Same(FileState::Absent)),
            Was::Present(_) => FileState::Absent,
        },
        Some((Found::Unreadable | Found::NotAFile, _)) => return Ok(SinceStart::NoFile),
    };
    Ok(SinceStart::Changed(Reason::stale(since.expected(), actual)))
}

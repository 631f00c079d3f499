//! Refused writes: who had changed the file, the diff, what the agent had read, and what it wanted to write.
//!
//! The ledger line of a refusal has hashes only, because the ledger is kept forever and file contents should not be. The rest
//! is in one file, named after the number of the line: a line of JSON with the hashes of the two texts, which are in the store of
//! contents. Nothing depends on these files, so errors while they are written are ignored. A file is complete or does not exist.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::content::{self, Content};
use crate::disk::{Found, gone_is_none};
use crate::merge::{self, Merge, MergeLimit, NoMerge};
use crate::path::{EscapedPath, FilePath};
use crate::recovery;
use crate::refusal::{ChangedBy, Reason, Refusal, Refused};
use crate::request::Request;
use crate::root::Root;
use crate::turn::{FileState, TEXT_PER_FILE};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::Event;
use tollgate_base::file::{names_in, replace_file};
use tollgate_base::ledger::Line;
use tollgate_base::name::Agent;
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// The tool of a written merge, in the ledger.
pub(crate) const MERGE_TOOL: &str = "merge_file";

/// How long a merge waits while the file is being written, as a read does.
const WAIT: Duration = Duration::from_millis(50);

/// The length of a command that is kept, in bytes. A longer one has its input in its arguments.
const COMMAND: usize = 64 << 10;

/// The number of refusals that are kept. A diff has at most 4 KiB, so their diffs take 4 MiB.
const MOST: usize = 1000;

/// What a refused write ran into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The author of the bytes on disk, if it was a guarded agent.
    pub changed_by: Option<ChangedBy>,
    /// The diff from the bytes that the agent knew to those on disk, of limited length, if both were known and text.
    pub diff: Option<String>,
    /// A person has dismissed the refusal: nothing has to be done about it.
    pub dismissed: bool,
}

/// The three texts of a refused write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedTexts {
    /// What the agent had read, if it was kept.
    pub read: Option<Vec<u8>>,
    /// What was on disk when the write was refused, if it is still there or in recovery.
    pub disk: Option<Vec<u8>>,
    /// What the agent wanted to write.
    pub wanted: Vec<u8>,
}

/// What is kept of a refused write.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RefusedWrite {
    agent: Agent,
    /// As in the ledger.
    target: EscapedPath,
    time: Timestamp,
    changed_by: Option<ChangedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// The hash of what the agent had read, if that text was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted: Option<Digest>,
    /// If this is the first refusal of a command: all that the command wanted to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<WantedRun>,
    /// And the command itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<KeptCommand>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dismissed: bool,
}

/// A refused command, to be run again.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptCommand {
    /// The program and its arguments.
    words: Vec<EscapedPath>,
    /// The folder in which it ran.
    folder: EscapedPath,
}

/// A refused command, to be run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCommand {
    /// The number of the ledger line of its first refusal.
    pub line: u64,
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The folder in which it ran.
    pub folder: PathBuf,
}

/// A change of a file that was not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedChange {
    /// As the ledger writes it.
    pub(crate) path: String,
    /// The file from which the command made it; `None`: there was none.
    pub(crate) from: Option<Digest>,
    /// What the command made of it; `None`: it deleted the file.
    pub(crate) to: Option<Digest>,
}

/// The changes of a refused command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedRun {
    pub(crate) files: Vec<WantedChange>,
    /// The number of changes that are not kept.
    pub(crate) left_out: usize,
}

/// A refused command, of which all changes are kept that can be.
pub(crate) struct RefusedRun {
    /// The number of the ledger line of its first refusal.
    pub(crate) line: u64,
    pub(crate) agent: Agent,
    pub(crate) time: Timestamp,
    pub(crate) wanted: WantedRun,
}

impl RefusedWrite {
    /// Of this agent, for this file.
    fn of(agent: Agent, target: PathBuf, time: Timestamp) -> Self {
        let target = EscapedPath(target);
        let (changed_by, diff, read, wanted, run, command) = (None, None, None, None, None, None);
        Self { agent, target, time, changed_by, diff, read, wanted, run, command, dismissed: false }
    }

    /// Whether there is anything to keep but what the ledger says.
    fn says_something(&self) -> bool {
        self.changed_by.is_some()
            || self.diff.is_some()
            || self.wanted.is_some()
            || self.run.is_some()
            || self.command.is_some()
            || self.dismissed
    }

    /// Writes the file in one step.
    fn write(&self, root: &Root, line: u64) -> Option<()> {
        replace_file(&file(root, line), &serde_json::to_vec(self).ok()?, Durability::Fast).ok()
    }
}

/// Keeps what a refusal found, if there is anything. `line` is the number of its ledger line.
pub(crate) fn keep_found(request: &Request<'_>, refusal: &Refusal, line: u64) {
    if let Some(kept) = found(request, refusal).filter(RefusedWrite::says_something) {
        kept.write(request.root, line);
    }
}

/// Keeps what a refused write wanted, and notes in the refusal whether a clean merge exists.
pub(crate) fn keep(request: &Request<'_>, refusal: &mut Refusal, wanted: &[u8]) {
    let (Some(line), Some(found)) = (refusal.line, found(request, refusal)) else { return };
    let Reason::Stale(stale) = &mut refusal.reason else { return };
    if wanted.len() > TEXT_PER_FILE {
        return;
    }
    let base = stale.expected.digest().and_then(|digest| request.turn.text(digest).ok()?);
    let keep = |bytes: &[u8]| content::put(request.root, bytes, None, Durability::Fast).ok();
    let Some(wanted_hash) = keep(wanted) else { return };
    let kept = RefusedWrite { read: base.as_deref().and_then(keep), wanted: Some(wanted_hash), ..found };
    if kept.write(request.root, line).is_none() {
        return;
    }
    if let (Some(base), Ok((state, Some(disk)))) = (base, on_disk(request.root, &refusal.path))
        && state == stale.actual
    {
        stale.mergeable = matches!(merge::merge(&base, wanted, &disk, MergeLimit::Quick), Ok(Ok(_)));
    }
}

/// Keeps what a refused command wanted to change, under the line of its first refusal.
pub(crate) fn keep_run(request: &Request<'_>, refused: &Refused, run: WantedRun) -> Result<()> {
    let first = &refused.refusals()[0];
    let (Some(line), Some(found)) = (refused.line(), found(request, first)) else { return Ok(()) };
    let kept = read(request.root, line)?.unwrap_or(found);
    RefusedWrite { run: Some(run), ..kept }.write(request.root, line);
    Ok(())
}

/// The refused command with this line, or the newest one: of this agent, or of any.
pub(crate) fn refused_run(
    root: &Root,
    line: Option<u64>,
    agent: Option<&Agent>,
) -> Result<Option<RefusedRun>> {
    newest(root, line, agent, |line, kept| {
        Some(RefusedRun { line, agent: kept.agent, time: kept.time, wanted: kept.run? })
    })
}

/// Keeps a refused command, if running it again may help: all its refusals are about files that were changed, or that are being changed.
/// Whether it is kept.
pub(crate) fn keep_command(
    root: &Root,
    agent: &Agent,
    refused: &Refused,
    words: &[OsString],
    folder: &Path,
) -> Result<bool> {
    let first = &refused.refusals()[0];
    let passes = |refusal: &Refusal| matches!(refusal.reason, Reason::Stale(_) | Reason::Busy { .. });
    let length: usize = words.iter().map(|word| word.len()).sum();
    let Some(line) = refused.line().filter(|_| length <= COMMAND && refused.refusals().iter().all(passes))
    else {
        return Ok(false);
    };
    let kept = read(root, line)?
        .unwrap_or_else(|| RefusedWrite::of(agent.clone(), root.key(&first.path), root.now()));
    let words = words.iter().map(|word| EscapedPath(word.into())).collect();
    let command = KeptCommand { words, folder: EscapedPath(folder.to_owned()) };
    Ok(RefusedWrite { command: Some(command), ..kept }.write(root, line).is_some())
}

/// The refused command with this line, or the newest one: of this agent, or of any.
pub(crate) fn refused_command(
    root: &Root,
    line: Option<u64>,
    agent: Option<&Agent>,
) -> Result<Option<RefusedCommand>> {
    newest(root, line, agent, |line, kept| {
        let KeptCommand { words, folder } = kept.command?;
        let words = words.into_iter().map(|word| word.0.into_os_string()).collect();
        Some(RefusedCommand { line, words, folder: folder.0 })
    })
}

/// What is looked for in the refusal with this line, or in the newest one that has it: of this agent, or of any.
fn newest<T>(
    root: &Root,
    line: Option<u64>,
    agent: Option<&Agent>,
    look: impl Fn(u64, RefusedWrite) -> Option<T>,
) -> Result<Option<T>> {
    for line in line.map_or_else(|| newest_first(root), |line| Ok(vec![line]))? {
        let kept = read(root, line)?.filter(|kept| agent.is_none_or(|agent| *agent == kept.agent));
        if let Some(found) = kept.and_then(|kept| look(line, kept)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What a refusal has found. `None` if the file is not stale.
fn found(request: &Request<'_>, refusal: &Refusal) -> Option<RefusedWrite> {
    let Reason::Stale(stale) = &refusal.reason else { return None };
    let target = request.key(&refusal.path);
    Some(RefusedWrite {
        changed_by: stale.changed_by.clone(),
        diff: stale.diff.clone(),
        ..RefusedWrite::of(request.turn.agent().clone(), target, request.root.now())
    })
}

/// Notes that a person has dismissed the refusal with this ledger line. It is forgotten with what is kept of the refusal.
pub(crate) fn dismiss(root: &Root, line: &Line) -> Result<()> {
    let (Event::MutationConflict(refused, ..) | Event::MutationRefused(refused, ..)) = &line.event else {
        return Err(Fault::invalid(format!("line {} is not a refusal", line.seq)));
    };
    let kept = match (read(root, line.seq)?, &line.agent) {
        (Some(kept), _) => kept,
        (None, Some(agent)) => RefusedWrite::of(agent.clone(), refused.target_file.clone().into(), line.time),
        (None, None) => return Err(Fault::invalid(format!("line {} names no agent", line.seq))),
    };
    let kept = RefusedWrite { dismissed: true, ..kept };
    let file = file(root, line.seq);
    let text = serde_json::to_vec(&kept).map_err(|error| Fault::invalid(error.to_string()))?;
    replace_file(&file, &text, Durability::Fast)
}

/// What the refused write with this ledger line ran into, if it is still kept.
pub(crate) fn conflict(root: &Root, line: u64) -> Result<Option<Conflict>> {
    let kept = read(root, line)?.filter(RefusedWrite::says_something);
    Ok(kept.map(|RefusedWrite { changed_by, diff, dismissed, .. }| Conflict { changed_by, diff, dismissed }))
}

/// The texts of the write whose refusal has this line, if they are still kept.
pub(crate) fn texts(root: &Root, line: &Line) -> Result<Option<RefusedTexts>> {
    let Event::MutationConflict(refused, ..) = &line.event else { return Ok(None) };
    let Some(kept) = read(root, line.seq)? else { return Ok(None) };
    let Some(wanted) = text(root, kept.wanted)? else { return Ok(None) };
    let disk = match refused.current_hash {
        Some(hash) => then_on_disk(root, &kept.target, hash)?,
        None => Some(Vec::new()),
    };
    Ok(Some(RefusedTexts { read: text(root, kept.read)?, disk, wanted }))
}

fn text(root: &Root, digest: Option<Digest>) -> Result<Option<Vec<u8>>> {
    Ok(digest.map(|digest| recovery::find(root, digest)).transpose()?.and_then(Content::bytes))
}

/// The bytes with this hash that the path had: they are there still, or a later write replaced them.
fn then_on_disk(root: &Root, target: &Path, hash: Digest) -> Result<Option<Vec<u8>>> {
    let path = root.canonical(root.path().join(target))?;
    if let (FileState::Present(now), Some(bytes)) = on_disk(root, &path)?
        && now == hash
    {
        return Ok(Some(bytes));
    }
    Ok(text(root, Some(hash))?.filter(|bytes| bytes.len() <= TEXT_PER_FILE))
}

/// Merges the newest refused write to this file with what is on disk. Only a write of this agent, if one is given.
pub(crate) fn merge_newest(
    root: &Root,
    path: &FilePath,
    key: &Path,
    agent: Option<&Agent>,
) -> Result<std::result::Result<Merge, NoMerge>> {
    let found = newest(root, None, agent, |line, kept| {
        let wanted = kept.wanted.filter(|_| *kept.target == *key)?;
        Some((line, kept, wanted))
    })?;
    let Some((line, kept, wanted)) = found else { return Ok(Err(NoMerge::NothingRefused)) };
    let Some(wanted) = text(root, Some(wanted))? else { return Ok(Err(NoMerge::NoLongerKept)) };
    let Some(base) = text(root, kept.read)? else {
        let never = kept.read.is_none();
        return Ok(Err(if never { NoMerge::NoBase } else { NoMerge::NoLongerKept }));
    };
    let (disk, text) = match on_disk(root, path)? {
        (FileState::Present(disk), Some(text)) => (disk, text),
        (FileState::Present(_), None) => return Ok(Err(NoMerge::TooLarge)),
        (FileState::Absent, _) => return Ok(Err(NoMerge::NoFile)),
        (FileState::Unreadable, _) => return Ok(Err(NoMerge::NotText)),
    };
    let merged = match merge::merge(&base, &wanted, &text, MergeLimit::Whole) {
        Ok(merged) => merged,
        Err(why) => return Ok(Err(why)),
    };
    let clean = merged.is_ok();
    let content = merged.unwrap_or_else(|conflicts| conflicts);
    let diff = merge::diff_texts(&text, content.as_bytes(), ["on disk", "merged"]).unwrap_or_default();
    let (path, agent, refused) = (path.clone(), kept.agent, kept.time);
    Ok(Ok(Merge { path, agent, refused, disk, clean, content, diff, read: text, line }))
}

/// The file at the path, and its bytes if they are few enough to be merged.
fn on_disk(root: &Root, path: &FilePath) -> Result<(FileState, Option<Vec<u8>>)> {
    let Some(spot) = root.spot_anywhere(path)? else { return Ok((FileState::Absent, None)) };
    Ok(match spot.steady(WAIT)?.0 {
        Found::File(file) if file.len() <= TEXT_PER_FILE as u64 => {
            let (bytes, digest) = file.read()?;
            (FileState::Present(digest), Some(bytes))
        }
        Found::File(file) => (FileState::Present(file.hash()?), None),
        Found::Nothing => (FileState::Absent, None),
        Found::Unreadable | Found::NotAFile => (FileState::Unreadable, None),
    })
}

/// Forgets what a refused write wanted, and the command, because it was made.
pub(crate) fn forget_texts(root: &Root, line: u64) {
    if let Ok(Some(kept)) = read(root, line) {
        RefusedWrite { read: None, wanted: None, run: None, command: None, ..kept }.write(root, line);
    }
}

/// Deletes refusals that are too old or too many. Returns their number.
pub(crate) fn prune(root: &Root) -> Result<usize> {
    content::remove_incomplete(root, &folder(root))?;
    let max_age = root.settings().history.max_age.0;
    let mut pruned = 0;
    for (index, line) in newest_first(root)?.into_iter().enumerate() {
        let is_kept = |kept: &RefusedWrite| index < MOST && root.age(kept.time) <= max_age;
        if !read(root, line)?.as_ref().is_some_and(is_kept) {
            let file = file(root, line);
            gone_is_none(private::remove_file(&file).at("remove", &file))?;
            pruned += 1;
        }
    }
    Ok(pruned)
}

/// The lines of all refusals that are kept.
fn newest_first(root: &Root) -> Result<Vec<u64>> {
    let mut lines: Vec<u64> = names_in(&folder(root))?.iter().filter_map(|name| number(name)).collect();
    lines.sort_unstable_by(|a, b| b.cmp(a));
    Ok(lines)
}

fn number(name: &OsStr) -> Option<u64> {
    name.to_str()?.parse().ok()
}

/// What is kept of the refusal with this line. `None` if it is gone or damaged.
fn read(root: &Root, line: u64) -> Result<Option<RefusedWrite>> {
    let file = file(root, line);
    let bytes = gone_is_none(private::read(&file).at("read", &file))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn file(root: &Root, line: u64) -> PathBuf {
    folder(root).join(line.to_string())
}

fn folder(root: &Root) -> PathBuf {
    root.history().join("refused")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Options;

    fn refused(root: &Root, line: u64) -> RefusedWrite {
        RefusedWrite {
            diff: Some("-a\n+b\n".to_owned()),
            wanted: Some(Digest::of(&line.to_le_bytes())),
            ..RefusedWrite::of("blue".parse().unwrap(), "a b/ü".into(), root.now())
        }
    }

    #[test]
    fn refusals_are_limited_by_age_and_number_and_damaged_ones_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path(), Options::default()).unwrap();
        let nothing = RefusedWrite { diff: None, wanted: None, ..refused(&root, 1) };
        assert!(!nothing.says_something(), "a refusal without details");
        let most = MOST as u64;
        for line in 2..most + 4 {
            refused(&root, line).write(&root, line).unwrap();
        }
        assert_eq!(prune(&root).unwrap(), 2);
        assert_eq!(conflict(&root, 3).unwrap(), None);
        assert_eq!(conflict(&root, 4).unwrap().unwrap().diff.as_deref(), Some("-a\n+b\n"));
        let whole = std::fs::read(file(&root, 4)).unwrap();
        for length in 0..whole.len() {
            std::fs::write(file(&root, 4), &whole[..length]).unwrap();
            assert_eq!(conflict(&root, 4).unwrap(), None, "the first {length} bytes");
        }
        assert_eq!(prune(&root).unwrap(), 1);
        let old = root.now() - root.settings().history.max_age.0 * 2;
        RefusedWrite { time: old, ..refused(&root, 5) }.write(&root, 5).unwrap();
        assert_eq!(prune(&root).unwrap(), 1);
        assert_eq!((conflict(&root, 5).unwrap(), conflict(&root, 6).unwrap().is_some()), (None, true));
    }
}

//! Refused writes: what an agent wanted to write, and what it had read, kept for a merge.
//!
//! They are in recovery's folder and have recovery's limits, but come last there: an agent can write its text again. The
//! name of a file is that of a staged file (see `stage.rs`), with the hashes of what was read and of what was wanted. Its
//! content is one line with the number of bytes that were read, or `-` if they were not kept, then these bytes, then
//! those that were wanted. Nothing depends on these files, so errors while they are kept are ignored.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::disk::{Found, gone_is_none};
use crate::merge::{self, Merge, MergeLimit, NoMerge};
use crate::path::FilePath;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::root::Root;
use crate::stage::{ChangeId, StageName, Standing, TargetName};
use crate::turn::{FileState, TEXT_PER_FILE};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::file::{names_in, replace_file};
use tollgate_base::name::Agent;
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// The tool of a written merge, in the ledger.
pub(crate) const MERGE_TOOL: &str = "merge_file";

/// How long a merge waits while the file is being written, as a read does.
const WAIT: Duration = Duration::from_millis(50);

/// Keeps what a refused write wanted, and notes in the refusal whether a clean merge exists.
pub(crate) fn keep(request: &Request<'_>, refusal: &mut Refusal, wanted: &[u8]) {
    let Reason::Stale(stale) = &mut refusal.reason else { return };
    if wanted.len() > TEXT_PER_FILE {
        return;
    }
    let base = stale.expected.digest().and_then(|digest| request.turn.text(digest).ok()?);
    if write(request, &refusal.path, stale.expected, base.as_deref(), wanted).is_none() {
        return;
    }
    if let (Some(base), Ok((state, Some(disk)))) = (base, on_disk(request.root, &refusal.path))
        && state == stale.actual
    {
        stale.mergeable = matches!(merge::merge(&base, wanted, &disk, MergeLimit::Quick), Ok(Ok(_)));
    }
}

fn write(
    request: &Request<'_>,
    path: &FilePath,
    expected: FileState,
    base: Option<&[u8]>,
    wanted: &[u8],
) -> Option<()> {
    let root = request.root;
    let stage = StageName {
        standing: Standing::Settled,
        id: ChangeId::new(root.now()).ok()?,
        base: expected,
        new: FileState::Present(Digest::of(wanted)),
        agent: request.turn.agent().clone(),
        target: TargetName::Path(request.key(path)),
    };
    let mut bytes = base.map_or("-\n".into(), |base| format!("{}\n", base.len())).into_bytes();
    bytes.extend_from_slice(base.unwrap_or_default());
    bytes.extend_from_slice(wanted);
    if bytes.len() as u64 > root.settings().recovery.max_size.0 {
        return None;
    }
    // The parent folder is closed to other users, so this one is too.
    let _ = private::create_folder(&folder(root), 0o770);
    replace_file(&folder(root).join(root.stage_file_name(&stage).ok()?), &bytes, Durability::Fast).ok()
}

/// A refused write that is kept.
#[derive(Debug, Clone)]
pub struct KeptWrite {
    pub(crate) agent: Agent,
    /// As in the ledger.
    pub(crate) target: PathBuf,
    /// What the agent knew.
    pub(crate) base: FileState,
    pub(crate) time: Timestamp,
    name: OsString,
}

/// All refused writes that are kept.
pub(crate) fn list(root: &Root) -> Result<Vec<KeptWrite>> {
    let mut kept = Vec::new();
    for name in names_in(&folder(root))? {
        let Some(StageName { id, base, agent, target, .. }) = StageName::parse(&name) else { continue };
        kept.push(KeptWrite { agent, target: root.target_path(&target)?, base, time: id.time(), name });
    }
    Ok(kept)
}

/// Merges the newest refused write to this file with what is on disk. Only a write of this agent, if one is given.
pub(crate) fn merge_newest(
    root: &Root,
    path: &FilePath,
    key: &std::path::Path,
    agent: Option<&Agent>,
) -> Result<std::result::Result<Merge, NoMerge>> {
    let mut found: Vec<(OsString, StageName)> = Vec::new();
    for name in names_in(&folder(root))? {
        if let Some(stage) = StageName::parse(&name)
            && agent.is_none_or(|agent| *agent == stage.agent)
            && root.target_path(&stage.target)? == key
        {
            found.push((name, stage));
        }
    }
    let Some((name, stage)) = found.into_iter().max_by(|(_, a), (_, b)| a.id.cmp(&b.id)) else {
        return Ok(Err(NoMerge::NothingRefused));
    };
    let file = folder(root).join(&name);
    let Some(bytes) = gone_is_none(private::read(&file).at("read", &file))? else {
        return Ok(Err(NoMerge::NothingRefused));
    };
    let Some((base, wanted)) = parts(&bytes) else { return Ok(Err(NoMerge::NothingRefused)) };
    let Some(base) = base else { return Ok(Err(NoMerge::NoBase)) };
    let (disk, text) = match on_disk(root, path)? {
        (FileState::Present(disk), Some(text)) => (disk, text),
        (FileState::Present(_), None) => return Ok(Err(NoMerge::TooLarge)),
        (FileState::Absent, _) => return Ok(Err(NoMerge::NoFile)),
        (FileState::Unreadable, _) => return Ok(Err(NoMerge::NotText)),
    };
    let merged = match merge::merge(base, wanted, &text, MergeLimit::Whole) {
        Ok(merged) => merged,
        Err(why) => return Ok(Err(why)),
    };
    let clean = merged.is_ok();
    let content = merged.unwrap_or_else(|conflicts| conflicts);
    let diff = merge::diff_texts(&text, content.as_bytes(), ["on disk", "merged"]).unwrap_or_default();
    let (path, refused) = (path.clone(), stage.id.time());
    Ok(Ok(Merge { path, agent: stage.agent, refused, disk, clean, content, diff, read: text, name }))
}

/// What the agent had read, if it was kept, and what it wanted.
pub(crate) type WriteTexts = (Option<Vec<u8>>, Vec<u8>);

/// The texts of one write. `None` if they are gone.
pub(crate) fn read(root: &Root, kept: &KeptWrite) -> Result<Option<WriteTexts>> {
    let file = folder(root).join(&kept.name);
    let bytes = gone_is_none(private::read(&file).at("read", &file))?;
    let parts = bytes.as_deref().and_then(parts);
    Ok(parts.map(|(base, wanted)| (base.map(<[u8]>::to_vec), wanted.to_vec())))
}

/// The file at the path, and its bytes if they are few enough to be merged.
pub(crate) fn on_disk(root: &Root, path: &FilePath) -> Result<(FileState, Option<Vec<u8>>)> {
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

/// Deletes a refused write whose merge was written.
pub(crate) fn forget(root: &Root, name: &OsStr) {
    let _ = private::remove_file(&folder(root).join(name));
}

/// Deletes refused writes that are too old, or too large for what the rest of recovery leaves. Returns their number.
pub(crate) fn prune(root: &Root, now: Timestamp, max_age: Duration, mut room: u64) -> Result<usize> {
    let mut names = names_in(&folder(root))?;
    // The names begin with the time: newest first.
    names.sort_unstable_by(|a, b| b.cmp(a));
    let mut pruned = 0;
    for name in names {
        let Some(stage) = StageName::parse(&name) else { continue };
        let path = folder(root).join(name);
        let Some(found) = gone_is_none(fs::symlink_metadata(&path).at("look at", &path))? else { continue };
        let young = now.duration_since(stage.id.time()).unsigned_abs() <= max_age;
        if young && found.len() <= room {
            room -= found.len();
        } else {
            gone_is_none(private::remove_file(&path).at("remove", &path))?;
            pruned += 1;
        }
    }
    Ok(pruned)
}

/// What was read, if it was kept, and what was wanted. `None` if the file is damaged.
fn parts(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let newline = bytes.iter().position(|byte| *byte == b'\n')?;
    let (length, rest) = (str::from_utf8(&bytes[..newline]).ok()?, &bytes[newline + 1..]);
    if length == "-" {
        return Some((None, rest));
    }
    let (base, wanted) = rest.split_at_checked(length.parse().ok()?)?;
    Some((Some(base), wanted))
}

fn folder(root: &Root) -> PathBuf {
    root.state_path().join("recovery").join("refused")
}

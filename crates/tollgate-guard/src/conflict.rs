//! Refused writes: who had changed the file, the diff, what the agent had read, and what it wanted to write.
//!
//! The ledger line of a refusal has hashes only, because the ledger is kept forever and file contents should not be. The rest
//! is in one file in recovery's folder, named after the number of the line. It begins with a line of JSON, then come the
//! parts that were kept: the diff, the text that was read, the text that was wanted. The file has recovery's limits, and its
//! texts are the first to go: an agent can write its text again. Nothing depends on these files, so errors while they are
//! written are ignored. A file is complete or does not exist.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::disk::{Found, gone_is_none, modified};
use crate::merge::{self, Merge, MergeLimit, NoMerge};
use crate::path::{EscapedPath, FilePath};
use crate::recovery;
use crate::refusal::{ChangedBy, Reason, Refusal};
use crate::request::Request;
use crate::root::Root;
use crate::turn::{FileState, TEXT_PER_FILE};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
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

/// The number of refusals that are kept. A diff has at most 4 KiB, so their diffs take 4 MiB.
const MOST: usize = 1000;

/// The longest first line: a path of 4 KiB, with three bytes for each, and room for the rest.
const FIRST_LINE: u64 = 16 * 1024;

/// After this time, the writer of an incomplete file is dead.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// What a refused write ran into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The author of the bytes on disk, if it was a guarded agent.
    pub changed_by: Option<ChangedBy>,
    /// The diff from the bytes that the agent knew to those on disk, of limited length, if both were known and text.
    pub diff: Option<String>,
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

/// The first line of a file: what it is about, and how long its parts are.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Head {
    agent: Agent,
    /// As in the ledger.
    target: EscapedPath,
    time: Timestamp,
    changed_by: Option<ChangedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diff: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted: Option<usize>,
}

impl Head {
    fn size_of_texts(&self) -> u64 {
        (self.read.unwrap_or(0) + self.wanted.unwrap_or(0)) as u64
    }
}

/// A file that was read.
struct Kept {
    head: Head,
    diff: Option<Vec<u8>>,
    read: Option<Vec<u8>>,
    wanted: Option<Vec<u8>>,
}

impl Kept {
    /// `None` if the bytes are damaged.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let newline = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..newline]).ok()?;
        let mut rest = &bytes[newline + 1..];
        let mut part = |length: Option<usize>| -> Option<Option<Vec<u8>>> {
            let Some(length) = length else { return Some(None) };
            let (part, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(Some(part.to_vec()))
        };
        let (diff, read, wanted) = (part(head.diff)?, part(head.read)?, part(head.wanted)?);
        rest.is_empty().then_some(Self { head, diff, read, wanted })
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let parts = [&self.diff, &self.read, &self.wanted];
        let [diff, read, wanted] = parts.map(|part| part.as_ref().map(Vec::len));
        let head = Head { diff, read, wanted, ..self.head.clone() };
        let mut bytes = serde_json::to_vec(&head).ok()?;
        bytes.push(b'\n');
        bytes.extend(parts.into_iter().flatten().flatten());
        Some(bytes)
    }

    /// Whether there is anything to keep but what the ledger says.
    fn says_something(&self) -> bool {
        self.head.changed_by.is_some() || self.diff.is_some() || self.wanted.is_some()
    }

    /// Writes the file in one step.
    fn write(&self, root: &Root, line: u64) -> Option<()> {
        // The parent folder is closed to other users, so this one is too.
        let _ = private::create_folder(&folder(root), 0o770);
        replace_file(&file(root, line), &self.bytes()?, Durability::Fast).ok()
    }

    /// Deletes the two texts.
    fn without_texts(self, root: &Root, line: u64) {
        let kept = Self { read: None, wanted: None, ..self };
        if kept.says_something() {
            kept.write(root, line);
        } else {
            let _ = private::remove_file(&file(root, line));
        }
    }
}

/// Keeps what a refusal found, if there is anything. `line` is the number of its ledger line.
pub(crate) fn keep_found(request: &Request<'_>, refusal: &Refusal, line: u64) {
    if let Some(kept) = found(request, refusal).filter(Kept::says_something) {
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
    let size = (base.as_ref().map_or(0, |base| base.len()) + wanted.len()) as u64;
    let read = base.as_ref().map(|base| base.to_vec());
    let kept = Kept { read, wanted: Some(wanted.to_vec()), ..found };
    if size > request.root.settings().recovery.max_size.0 || kept.write(request.root, line).is_none() {
        return;
    }
    if let (Some(base), Ok((state, Some(disk)))) = (base, on_disk(request.root, &refusal.path))
        && state == stale.actual
    {
        stale.mergeable = matches!(merge::merge(&base, wanted, &disk, MergeLimit::Quick), Ok(Ok(_)));
    }
}

/// What a refusal has found. `None` if the file is not stale.
fn found(request: &Request<'_>, refusal: &Refusal) -> Option<Kept> {
    let Reason::Stale(stale) = &refusal.reason else { return None };
    let head = Head {
        agent: request.turn.agent().clone(),
        target: EscapedPath(request.key(&refusal.path)),
        time: request.root.now(),
        changed_by: stale.changed_by.clone(),
        diff: None,
        read: None,
        wanted: None,
    };
    let diff = stale.diff.as_ref().map(|diff| diff.clone().into_bytes());
    Some(Kept { head, diff, read: None, wanted: None })
}

/// What the refused write with this ledger line ran into, if it is still kept.
pub(crate) fn conflict(root: &Root, line: u64) -> Result<Option<Conflict>> {
    Ok(read(root, line)?.filter(Kept::says_something).map(|kept| Conflict {
        changed_by: kept.head.changed_by,
        diff: kept.diff.and_then(|diff| String::from_utf8(diff).ok()),
    }))
}

/// The texts of the write whose refusal has this line, if they are still kept.
pub(crate) fn texts(root: &Root, line: &Line) -> Result<Option<RefusedTexts>> {
    let Event::MutationConflict(refused, ..) = &line.event else { return Ok(None) };
    let Some(Kept { head, read, wanted: Some(wanted), .. }) = read(root, line.seq)? else { return Ok(None) };
    let disk = match refused.current_hash {
        Some(hash) => then_on_disk(root, &head.target, hash)?,
        None => Some(Vec::new()),
    };
    Ok(Some(RefusedTexts { read, disk, wanted }))
}

/// The bytes with this hash that the path had: they are there still, or a later write replaced them.
fn then_on_disk(root: &Root, target: &Path, hash: Digest) -> Result<Option<Vec<u8>>> {
    let path = root.canonical(root.path().join(target))?;
    if let (FileState::Present(now), Some(bytes)) = on_disk(root, &path)?
        && now == hash
    {
        return Ok(Some(bytes));
    }
    let replaced =
        recovery::list(root)?.into_iter().find(|entry| entry.path == path && entry.sha256 == Some(hash));
    let Some(entry) = replaced.filter(|entry| entry.size <= TEXT_PER_FILE as u64) else { return Ok(None) };
    Ok(recovery::read(root, &entry.id).ok().map(|(_, bytes)| bytes))
}

/// Merges the newest refused write to this file with what is on disk. Only a write of this agent, if one is given.
pub(crate) fn merge_newest(
    root: &Root,
    path: &FilePath,
    key: &Path,
    agent: Option<&Agent>,
) -> Result<std::result::Result<Merge, NoMerge>> {
    let mut found = None;
    for (line, file) in newest_first(root)? {
        if let Some(head) = head(&file)?
            && head.wanted.is_some()
            && *head.target == *key
            && agent.is_none_or(|agent| *agent == head.agent)
        {
            found = read(root, line)?.map(|kept| (line, kept));
            break;
        }
    }
    let Some((line, Kept { head, read, wanted: Some(wanted), .. })) = found else {
        return Ok(Err(NoMerge::NothingRefused));
    };
    let Some(base) = read else { return Ok(Err(NoMerge::NoBase)) };
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
    let (path, agent, refused) = (path.clone(), head.agent, head.time);
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

/// Deletes the texts of a refused write whose merge was written.
pub(crate) fn forget_texts(root: &Root, line: u64) {
    if let Ok(Some(kept)) = read(root, line) {
        kept.without_texts(root, line);
    }
}

/// Deletes refusals that are too old or too many, and texts that are too large for what the rest of recovery leaves. Returns
/// the number of files from which something was deleted.
pub(crate) fn prune(root: &Root, now: Timestamp, max_age: Duration, mut room: u64) -> Result<usize> {
    let age = |time: Timestamp| now.duration_since(time).unsigned_abs();
    let mut pruned = 0;
    for (index, (line, file)) in newest_first(root)?.into_iter().enumerate() {
        let Some(head) = head(&file)?.filter(|head| index < MOST && age(head.time) <= max_age) else {
            gone_is_none(private::remove_file(&file).at("remove", &file))?;
            pruned += 1;
            continue;
        };
        if let Some(left) = room.checked_sub(head.size_of_texts()) {
            room = left;
        } else {
            forget_texts(root, line);
            pruned += 1;
        }
    }
    // What a process that was killed has not completed.
    for name in names_in(&folder(root))?.into_iter().filter(|name| number(name).is_none()) {
        let file = folder(root).join(name);
        if modified(&file).is_some_and(|written| age(written) > WRITTEN_WITHIN) {
            gone_is_none(private::remove_file(&file).at("remove", &file))?;
        }
    }
    Ok(pruned)
}

/// The files of all refusals, with the numbers of their lines.
fn newest_first(root: &Root) -> Result<Vec<(u64, PathBuf)>> {
    let mut lines: Vec<u64> = names_in(&folder(root))?.iter().filter_map(|name| number(name)).collect();
    lines.sort_unstable_by(|a, b| b.cmp(a));
    Ok(lines.into_iter().map(|line| (line, file(root, line))).collect())
}

fn number(name: &OsStr) -> Option<u64> {
    name.to_str()?.parse().ok()
}

/// The first line of a file. `None` if it is gone or damaged.
fn head(file: &Path) -> Result<Option<Head>> {
    let Some(opened) = gone_is_none(private::open(file, OFlags::RDONLY | OFlags::NONBLOCK).at("read", file))?
    else {
        return Ok(None);
    };
    let mut line = Vec::new();
    BufReader::new(opened.take(FIRST_LINE)).read_until(b'\n', &mut line).at("read", file)?;
    Ok(serde_json::from_slice(&line).ok())
}

/// What is kept of the refusal with this line. `None` if it is gone or damaged.
fn read(root: &Root, line: u64) -> Result<Option<Kept>> {
    let file = file(root, line);
    let bytes = gone_is_none(private::read(&file).at("read", &file))?;
    Ok(bytes.as_deref().and_then(Kept::parse))
}

fn file(root: &Root, line: u64) -> PathBuf {
    folder(root).join(line.to_string())
}

fn folder(root: &Root) -> PathBuf {
    root.state_path().join("recovery").join("refused")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Options;

    fn kept(diff: Option<&str>, texts: Option<[&str; 2]>) -> Kept {
        let head = Head {
            agent: "blue".parse().unwrap(),
            target: EscapedPath("a b/ü".into()),
            time: Timestamp::now(),
            changed_by: None,
            diff: None,
            read: None,
            wanted: None,
        };
        let bytes = |text: &str| text.as_bytes().to_vec();
        let [read, wanted] = texts.map_or([None, None], |texts| texts.map(|text| Some(bytes(text))));
        Kept { head, diff: diff.map(bytes), read, wanted }
    }

    #[test]
    fn refusals_are_limited_by_age_and_number_and_their_texts_by_size() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path(), Options::default()).unwrap();
        assert!(!kept(None, None).says_something(), "a refusal without details");
        let most = MOST as u64;
        for line in 2..most + 4 {
            kept(Some("-a\n+b\n"), (line > most).then_some(["a\n", "c\n"])).write(&root, line).unwrap();
        }
        let (now, day) = (Timestamp::now(), Duration::from_secs(86_400));
        assert_eq!(prune(&root, now, day, 100).unwrap(), 2);
        assert_eq!(conflict(&root, 3).unwrap(), None);
        assert_eq!(conflict(&root, 4).unwrap().unwrap().diff.as_deref(), Some("-a\n+b\n"));
        assert_eq!(prune(&root, now, day, 8).unwrap(), 1, "room for the texts of two refusals");
        let has_texts = |line| read(&root, line).unwrap().unwrap().wanted.is_some();
        assert_eq!([1, 2, 3].map(|newer| has_texts(most + newer)), [false, true, true]);
        assert!(conflict(&root, most + 1).unwrap().unwrap().diff.is_some(), "only the texts are gone");
        std::fs::write(file(&root, 4), "{\"agent\":").unwrap();
        assert_eq!(conflict(&root, 4).unwrap(), None, "a damaged file");
        assert_eq!(prune(&root, now, day, 8).unwrap(), 1);
        assert_eq!(prune(&root, now + day * 2, day, 8).unwrap(), MOST - 1);
    }

    #[test]
    fn what_a_killed_process_has_not_completed_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path(), Options::default()).unwrap();
        kept(None, Some(["a\n", "c\n"])).write(&root, 1).unwrap();
        let incomplete = super::folder(&root).join("tmp-0123");
        std::fs::write(&incomplete, "{").unwrap();
        let now = Timestamp::now();
        prune(&root, now, WRITTEN_WITHIN * 9, 100).unwrap();
        assert!(incomplete.exists(), "its writer may live");
        prune(&root, now + WRITTEN_WITHIN * 2, WRITTEN_WITHIN * 9, 100).unwrap();
        assert!(!incomplete.exists() && file(&root, 1).exists());
    }

    #[test]
    fn damaged_files_are_read_without_a_panic() {
        let full = kept(Some("-a\n+b\n"), Some(["a\n", "c\n"])).bytes().unwrap();
        let read = Kept::parse(&full).unwrap();
        assert_eq!((read.read.as_deref(), read.wanted.as_deref()), (Some(&b"a\n"[..]), Some(&b"c\n"[..])));
        for length in 0..full.len() {
            assert!(Kept::parse(&full[..length]).is_none(), "the first {length} bytes");
        }
        tollgate_fuzz::fuzz("a refused write", &[&full], |bytes| drop(Kept::parse(bytes)));
    }
}

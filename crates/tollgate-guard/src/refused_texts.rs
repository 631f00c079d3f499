//! The three texts of a refused write, for people: what its agent had read, what was on disk, what it wanted to write.

use std::path::Path;

use jiff::SignedDuration;

use crate::recovery;
use crate::refused_write::{self, KeptWrite};
use crate::root::Root;
use crate::turn::{FileState, TEXT_PER_FILE};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::Event;
use tollgate_base::ledger::Line;

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

/// A write is kept within this time after the ledger line of its refusal.
const KEPT_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// The name of a kept write has its time in whole microseconds, so it can seem to be earlier: by less than this.
const ROUNDED: i64 = 1;

/// The texts of the write whose refusal has this line, if they are among these.
pub(crate) fn texts(root: &Root, kept: &[KeptWrite], line: &Line) -> Result<Option<RefusedTexts>> {
    let Event::MutationConflict(refused, ..) = &line.event else { return Ok(None) };
    let same = |kept: &&KeptWrite| {
        let after = kept.time.duration_since(line.time);
        Some(&kept.agent) == line.agent.as_ref()
            && kept.target.display().to_string() == refused.target_file
            && kept.base.digest() == refused.baseline_hash
            && after >= SignedDuration::from_millis(-ROUNDED)
            && after <= KEPT_WITHIN
    };
    let Some(found) = kept.iter().filter(same).min_by_key(|kept| kept.time) else { return Ok(None) };
    let Some((read, wanted)) = refused_write::read(root, found)? else { return Ok(None) };
    let disk = match refused.current_hash {
        Some(hash) => then_on_disk(root, &found.target, hash)?,
        None => Some(Vec::new()),
    };
    Ok(Some(RefusedTexts { read, disk, wanted }))
}

/// The bytes with this hash that the path had: they are there still, or a later write replaced them.
fn then_on_disk(root: &Root, target: &Path, hash: Digest) -> Result<Option<Vec<u8>>> {
    let path = root.canonical(root.path().join(target))?;
    if let (FileState::Present(now), Some(bytes)) = refused_write::on_disk(root, &path)?
        && now == hash
    {
        return Ok(Some(bytes));
    }
    let replaced =
        recovery::list(root)?.into_iter().find(|entry| entry.path == path && entry.sha256 == Some(hash));
    let Some(entry) = replaced.filter(|entry| entry.size <= TEXT_PER_FILE as u64) else { return Ok(None) };
    Ok(recovery::read(root, &entry.id).ok().map(|(_, bytes)| bytes))
}

//! How long everything is kept: the files in recovery, the contents in the store, the records of turns, and the details of refused writes.
//!
//! A file in recovery becomes a content of the store once the kernel says that no program has it open for writing: then nobody can
//! change it any more, because its name is known to tollgate only. The file is linked or compressed there before it is deleted here,
//! so a crash in between leaves it twice, and the next round continues.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;

use crate::conflict;
use crate::content;
use crate::disk::{Found, Quiet, Spot, modified};
use crate::recovery::keep_late;
use crate::root::Root;
use crate::stage::{RecoveryKind, StageName, Standing};
use crate::turn_record;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::file::replace_file;
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::sys;

/// Often enough to respect the limits, rarely enough that writes do not pay for it.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// The number of files whose bytes go to the store in one round: each may be flushed, which takes a millisecond.
const STORED_AT_ONCE: usize = 64;

/// Gives what is quiet to the store of contents, and deletes files beyond the limits in the settings. Returns the number of deleted
/// files.
///
/// This looks at every file that is kept, so it does nothing if the last time was less than a minute ago.
pub(crate) fn prune(root: &Root) -> Result<usize> {
    let settings = &root.settings().history;
    let stamp = root.history().join("pruned");
    let last = modified(&stamp).unwrap_or(Timestamp::UNIX_EPOCH);
    if root.age(last) < PRUNE_EVERY.min(settings.max_age.0) {
        return Ok(0);
    }
    private::write(&stamp, "").at("write", &stamp)?;
    store_contents(root)?;
    let mut kept = kept_files(root)?;
    // The most valuable first, and of these the newest.
    kept.sort_by_key(|kept| (kept.rank, Reverse(kept.time)));
    let mut room = settings.max_size.0;
    kept.retain(|kept| match room.checked_sub(kept.size) {
        Some(left) if root.age(kept.time) <= settings.max_age.0 => {
            room = left;
            false
        }
        _ => true,
    });
    let digest = |kept: &KeptFile| match kept.holds {
        Holds::Content(digest) => Some(digest),
        Holds::Unknown => kept.spot.hash().ok()?,
        Holds::Nothing => None,
    };
    content::note_removed(root, &kept.iter().filter_map(digest).collect::<Vec<_>>())?;
    kept.iter().try_for_each(|kept| kept.spot.remove())?;
    Ok(kept.len() + conflict::prune(root)?)
}

/// The number of bytes that everything takes that is kept, with the files that await their late-write check.
pub(crate) fn used(root: &Root) -> Result<u64> {
    let mut used = kept_files(root)?.iter().map(|kept| kept.size).sum();
    for name in root.stage.names()? {
        if StageName::parse(&name).is_some()
            && let Found::File(file) = root.staged(name).open()?
        {
            used += file.len();
        }
    }
    Ok(used)
}

/// Gives the bytes of files in recovery to the store, as far as nobody can change them any more.
fn store_contents(root: &Root) -> Result<()> {
    if !sys::HAS_LEASES {
        // No file would be found quiet, so there is no need to look at each of them.
        return Ok(());
    }
    let mut left = STORED_AT_ONCE;
    for kind in [RecoveryKind::Replaced, RecoveryKind::TakenBack] {
        let folder = root.recovery_folder(kind)?;
        for name in folder.names()? {
            let Some(stage) = StageName::parse(&name) else { continue };
            let Some(digest) = stage.kept_digest(kind) else { continue };
            let spot = Spot::new(&folder, name);
            if stage.standing == Standing::Stored || left == 0 {
                continue;
            }
            let Found::File(mut file) = spot.open()? else { continue };
            if file.quiet() != Quiet::Held {
                continue;
            }
            file.refresh()?;
            left -= 1;
            let is_small = file.len() <= content::LARGEST_COMPRESSED as u64;
            let (bytes, found) = match is_small {
                true => file.read().map(|(bytes, found)| (Some(bytes), found))?,
                false => (None, file.hash()?),
            };
            if found != digest {
                // Written through a mapping of the memory, which ends the quiet of no file on some file systems.
                keep_late(root, &spot, &stage)?;
            } else if content::adopt(root, (&spot, &file), digest, bytes.as_deref(), stage.id.time())? {
                let stored = root.stage_file_name(&StageName { standing: Standing::Stored, ..stage })?;
                let number = format!("{}\n", file.len());
                replace_file(&folder.shown().join(stored), number.as_bytes(), Durability::Fast)?;
                spot.remove()?;
            }
        }
    }
    Ok(())
}

/// A file that is kept.
struct KeptFile {
    /// Those with a higher rank are deleted first.
    rank: usize,
    time: Timestamp,
    size: u64,
    holds: Holds,
    spot: Spot,
}

/// The bytes in a file that is kept.
enum Holds {
    Content(Digest),
    /// They are hashed only when it is deleted.
    Unknown,
    /// They are in the store.
    Nothing,
}

fn kept_files(root: &Root) -> Result<Vec<KeptFile>> {
    let mut kept = Vec::new();
    for (rank, kind) in RecoveryKind::ALL.into_iter().enumerate() {
        let folder = root.recovery_folder(kind)?;
        content::remove_incomplete(root, folder.shown())?;
        for name in folder.names()? {
            let Some(stage) = StageName::parse(&name) else { continue };
            let spot = Spot::new(&folder, name);
            let Found::File(file) = spot.open_itself()? else { continue };
            let (size, holds) = match (stage.standing, stage.kept_digest(kind)) {
                (Standing::Stored, _) => (0, Holds::Nothing),
                (_, Some(digest)) => (file.len(), Holds::Content(digest)),
                (_, None) => (file.len(), Holds::Unknown),
            };
            kept.push(KeptFile { rank, time: stage.id.time(), size, holds, spot });
        }
    }
    let as_replaced = |stored: content::StoredContent| {
        let content::StoredContent { digest, kept, size, spot } = stored;
        KeptFile { rank: 1, time: kept, size, holds: Holds::Content(digest), spot }
    };
    kept.extend(content::all(root)?.into_iter().map(as_replaced));
    // Not more valuable: a record is small, but there may be many.
    let as_content = |stored: turn_record::StoredRecord| {
        let turn_record::StoredRecord { kept, size, note, spot } = stored;
        KeptFile { rank: 1, time: kept, size, holds: Holds::Content(note), spot }
    };
    kept.extend(turn_record::all(root)?.into_iter().map(as_content));
    Ok(kept)
}

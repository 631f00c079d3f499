//! The locks of held claims: bytes of one file, `held`.
//!
//! The number of the byte is the claim's id. A file per claim would have to be created and deleted for each task, which
//! file systems do slowly. The file contains its own id, which each claim records: if somebody deletes the file, the
//! locks are gone for those who look, not for those who hold.
//!
//! Invariants: the byte is locked before the claim is written down, and the claim says in which file. Whoever gets the
//! lock of that byte in that file has proof that the owner is gone for good, because an id is never used again.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;

use crate::claim::{Claim, ClaimId};
use crate::claim_lock::{ClaimLock, Liveness};
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::open_noatime;
use tollgate_base::name::random_id;
use tollgate_base::private;
use tollgate_base::sys;

/// How many bytes the file has: its id, as hex digits.
const ID: usize = 16;

/// Takes the lock of a new claim.
pub(super) fn hold(path: &Path, claim: &ClaimId) -> Result<ClaimLock> {
    let (file, id) = loop {
        match open(path, OFlags::RDWR)? {
            Some(found) => break found,
            // Deleted since the vault was opened.
            None => make(path)?,
        }
    };
    if sys::try_lock_byte(&file, byte(claim)).at("lock", path)? {
        return Ok(ClaimLock::of_file(id, file));
    }
    Err(Fault::invalid(format!("the claim id `{claim}` is already in use: try again")))
}

/// Tries the lock of a claim.
pub(super) fn liveness(path: &Path, claim: &Claim) -> Result<Liveness> {
    if claim.hold.is_none() {
        return Ok(Liveness::Unknown);
    }
    let open = |flags| Ok(open(path, flags)?.filter(|(_, id)| claim.hold == Some(*id)));
    // First only looked at: when a file that was open for writing is closed, everybody who watches it is woken.
    let Some((seen, _)) = open(OFlags::RDONLY)? else { return Ok(Liveness::Unknown) };
    if sys::is_byte_locked(&seen, byte(&claim.id)).at("look at the lock", path)? {
        return Ok(Liveness::Alive);
    }
    let Some((file, id)) = open(OFlags::RDWR)? else { return Ok(Liveness::Unknown) };
    if !sys::try_lock_byte(&file, byte(&claim.id)).at("lock", path)? {
        return Ok(Liveness::Alive);
    }
    Ok(Liveness::Gone(ClaimLock::of_file(id, file)))
}

/// The byte that is locked for a claim. The file is not as long as that; a lock needs no byte to be there.
fn byte(claim: &ClaimId) -> u64 {
    // The digits are 64 bits, an offset in a file has 63.
    u64::from_str_radix(&claim.as_str()[2..], 16).unwrap_or(0) & (u64::MAX >> 1)
}

/// The file and its id; `None` if it is not there.
fn open(path: &Path, flags: OFlags) -> Result<Option<(File, u64)>> {
    let file = match open_noatime(path, flags) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.at("open the lock", path)?,
    };
    let mut id = [0; ID];
    let read = file.read_at(&mut id, 0).at("read", path)?;
    let id = str::from_utf8(&id[..read]).ok().and_then(|id| u64::from_str_radix(id, 16).ok());
    let id = id.ok_or_else(|| Fault::damaged(path, "it should contain 16 hex digits: delete it"))?;
    Ok(Some((file, id)))
}

/// Makes the file, unless it is there.
pub(super) fn make(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let id = random_id()?;
    let stage = path.with_file_name("stage").join(&id);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = open_noatime(&stage, flags).at("create", &stage)?;
    // Once in the life of a vault. Without the flush a power cut could leave the name without the id.
    file.write_all(id.as_bytes()).and_then(|()| sys::flush(&file)).at("write", &stage)?;
    match private::rename_with(&stage, path, RenameFlags::NOREPLACE) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            private::remove_file(&stage).at("delete", &stage)
        }
        Err(error) if Errno::from_io_error(&error).is_some_and(sys::lacks_rename_flag) => {
            private::remove_file(&stage).at("delete", &stage)?;
            let no_replace = "its file system cannot move a file without replacing another: keep the vault on ext4, XFS, Btrfs or tmpfs";
            Err(io::Error::new(io::ErrorKind::Unsupported, no_replace)).at("keep claims in", path)
        }
        moved => moved.at("rename", &stage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Mode, Tenure};
    use crate::state::State;
    use jiff::Timestamp;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::time::Duration;
    use tollgate_base::digest::Digest;

    fn claim(path: &Path) -> (Claim, ClaimLock) {
        let id = ClaimId::new().unwrap();
        let held = hold(path, &id).unwrap();
        let claim = Claim {
            id,
            epoch: 1,
            agent: "blue".parse().unwrap(),
            at: Timestamp::UNIX_EPOCH,
            tenure: Tenure::Held,
            hold: held.token(),
            mode: Mode::Execute,
            action: None,
            author: Digest::of(b""),
            sensitive: false,
            from: State::NeedsAction,
        };
        (claim, held)
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("stage")).unwrap();
        let path = folder.path().join("held");
        (folder, path)
    }

    /// A process that is just being started has every descriptor for an instant, so a free lock may look held that long.
    fn proof(path: &Path, claim: &Claim) -> Option<ClaimLock> {
        let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(10));
        loop {
            match liveness(path, claim).unwrap() {
                Liveness::Gone(proof) => return Some(proof),
                _ if pauses.pause() => {}
                _ => return None,
            }
        }
    }

    fn gone(path: &Path, claim: &Claim) -> bool {
        proof(path, claim).is_some()
    }

    fn cat() -> Command {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped());
        cat
    }

    #[test]
    fn the_lock_lives_as_long_as_the_command_that_inherited_it() {
        let (_folder, path) = &folder();
        let (lent, lent_hold) = claim(path);
        let (kept, kept_hold) = claim(path);
        let (child, borrowers) = lent_hold.lend(|| cat().spawn()).unwrap();
        let mut child = child.unwrap();
        let mut other = cat().spawn().unwrap();
        drop(kept_hold);
        assert!(gone(path, &kept), "only what was lent is inherited");
        // As if tollgate had been killed: the command still has the lock.
        drop(lent_hold);
        assert!(matches!(liveness(path, &lent).unwrap(), Liveness::Alive));
        assert!(!borrowers.are_gone(Duration::ZERO).unwrap());
        child.kill().unwrap();
        assert!(borrowers.are_gone(Duration::from_secs(10)).unwrap(), "also before it is buried");
        child.wait().unwrap();
        assert!(gone(path, &lent), "nor does a command that was started later have it");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn only_one_gets_the_proof_and_a_deleted_file_proves_nothing() {
        let (_folder, path) = &folder();
        let (dead, held) = claim(path);
        let (_, other) = claim(path);
        assert_eq!(held.token(), other.token());
        drop(held);
        let proof = proof(path, &dead).expect("it is free");
        assert!(matches!(liveness(path, &dead).unwrap(), Liveness::Alive), "one proof at a time");
        drop(proof);
        let (alive, _hold) = claim(path);
        assert!(hold(path, &alive.id).unwrap_err().to_string().contains("try again"), "an id is used once");
        std::fs::remove_file(path).unwrap();
        assert!(matches!(liveness(path, &alive).unwrap(), Liveness::Unknown));
        let (new, _new_hold) = claim(path);
        assert_ne!(new.hold, alive.hold);
        assert!(matches!(liveness(path, &alive).unwrap(), Liveness::Unknown), "nobody can tell who lives");
        assert!(matches!(liveness(path, &new).unwrap(), Liveness::Alive));
        std::fs::write(path, "").unwrap();
        assert!(hold(path, &new.id).unwrap_err().to_string().contains("delete it"));
    }

    #[test]
    fn processes_that_make_the_file_at_the_same_time_make_one() {
        let (_folder, path) = &folder();
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| claim(path))).collect();
            let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
            assert!(made.iter().all(|(claim, _)| claim.hold == made[0].0.hold));
            assert!(made.iter().all(|(claim, _)| matches!(liveness(path, claim), Ok(Liveness::Alive))));
        });
        assert_eq!(std::fs::read_dir(path.with_file_name("stage")).unwrap().count(), 0);
    }
}

//! A probe: tries with real files what a file system can do, because its name does not tell.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, Mode, RenameFlags};

use crate::commit::Guarantee;
use crate::disk::{Folder, Linked, Quiet, Spot, Swap};
use tollgate_base::error::Result;
use tollgate_base::name::random_id;

/// The prefix of the probe's own folders, so that one left by a crash can be recognised.
pub const PROBE_PREFIX: &str = "probe-";

/// What a file system can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// The name of the file system, if it is a common one.
    pub name: Option<&'static str>,
    /// Where its files are.
    pub reach: Reach,
    /// The kernel grants leases here, and only while nobody writes.
    pub lease: bool,
    /// Two names can be exchanged in one step.
    pub exchange: bool,
    /// A file can be renamed unless the new name is taken, in one step.
    pub no_replace: bool,
    /// A file can have two names.
    pub links: bool,
}

/// Where the files of a file system are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// On this machine.
    Local,
    /// On another machine. This kernel does not see other machines' writers.
    Network,
    /// Unknown: a file system in user space, or one that tollgate does not know.
    Unknown,
}

impl FileSystem {
    /// How well files here are protected against programs unaware of tollgate.
    pub fn guarantee(&self) -> Guarantee {
        match (self.exchange, self.lease) {
            (false, _) => Guarantee::NoExchange,
            (true, false) => Guarantee::NoQuiet,
            (true, true) => Guarantee::Full,
        }
    }
}

/// Tries everything in a new folder below this one, and deletes that folder afterwards.
pub fn probe(folder: &Path) -> Result<FileSystem> {
    let parent = Folder::open(folder)?;
    let name = OsString::from(format!("{PROBE_PREFIX}{}", random_id()?));
    let spot = Spot::new(&parent, name.clone());
    spot.make_folder()?;
    let answer = parent.open_below(Path::new(&name)).and_then(|below| {
        let answer = try_everything(&below, name_of(folder));
        for name in below.names()? {
            Spot::new(&below, name).remove()?;
        }
        answer
    });
    spot.remove_empty_folder()?;
    answer
}

fn try_everything(folder: &Folder, (name, reach): (Option<&'static str>, Reach)) -> Result<FileSystem> {
    let file = |name: &str| -> Result<Spot> {
        let spot = Spot::new(folder, name);
        spot.create(Mode::RUSR | Mode::WUSR)?.write(name.as_bytes(), 0)?;
        Ok(spot)
    };
    let (a, b) = (file("a")?, file("b")?);
    Ok(FileSystem {
        name,
        reach,
        lease: leases(&file("lease")?)?,
        exchange: matches!(a.swap(&b), Ok(Swap::Exchanged)),
        no_replace: renames_without_replacing(&a, &b),
        links: a.link_new(&a.beside("second"))? == Linked::Done,
    })
}

/// Also checks that no lease is granted while the file is open for writing. Such a lease would be worse than none.
fn leases(spot: &Spot) -> Result<bool> {
    let quiet_is = |wanted| -> Result<bool> { Ok(spot.steady(Duration::ZERO)?.1 == wanted) };
    let writer = std::fs::OpenOptions::new().write(true).open(spot.shown());
    let refused = writer.is_ok() && quiet_is(Quiet::Busy)?;
    drop(writer);
    Ok(refused && quiet_is(Quiet::Held)?)
}

fn renames_without_replacing(taken: &Spot, other: &Spot) -> bool {
    let rename = |from: &Spot, to: &Spot| {
        rustix::fs::renameat_with(CWD, from.shown(), CWD, to.shown(), RenameFlags::NOREPLACE)
    };
    let free = other.beside("free");
    rename(taken, other) == Err(rustix::io::Errno::EXIST)
        && rename(other, &free).is_ok()
        && rename(&free, other).is_ok()
}

fn name_of(folder: &Path) -> (Option<&'static str>, Reach) {
    use Reach::{Local, Network, Unknown};
    let Ok(found) = rustix::fs::statfs(folder) else { return (None, Unknown) };
    // The numbers are those of `man 2 statfs`. Their type differs between machines.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, clippy::unnecessary_cast)]
    let magic = found.f_type as u32;
    let (name, reach) = match magic {
        0xef53 => ("ext4", Local),
        0x5846_5342 => ("xfs", Local),
        0x9123_683e => ("btrfs", Local),
        0x0102_1994 => ("tmpfs", Local),
        0x8584_58f6 => ("ramfs", Local),
        0x794c_7630 => ("overlayfs", Local),
        0x2fc1_2fc1 => ("zfs", Local),
        0xf2f5_2010 => ("f2fs", Local),
        0xca45_1a4e => ("bcachefs", Local),
        0x4d44 => ("vfat", Local),
        0x2011_bab0 => ("exfat", Local),
        0x5346_544e | 0x7366_746e => ("ntfs", Local),
        0x6969 => ("nfs", Network),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => ("smb", Network),
        0x00c3_6400 => ("ceph", Network),
        0x5346_414f | 0x6b41_4653 => ("afs", Network),
        0x0102_1997 => ("9p", Network),
        0x6573_5546 => ("fuse", Unknown),
        _ => return (None, Unknown),
    };
    (Some(name), reach)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_base::sys;

    #[test]
    fn the_probe_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let found = probe(folder.path()).unwrap();
        if matches!(found.name, Some("ext4" | "tmpfs" | "xfs" | "btrfs")) {
            assert!(found.exchange && found.no_replace && found.links, "{found:?}");
            let expected = if sys::HAS_LEASES { Guarantee::Full } else { Guarantee::NoQuiet };
            assert_eq!((found.lease, found.guarantee()), (sys::HAS_LEASES, expected));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_weakest_ability_decides_the_guarantee() {
        let all = FileSystem {
            name: None,
            reach: Reach::Local,
            lease: true,
            exchange: true,
            no_replace: true,
            links: true,
        };
        assert_eq!(FileSystem { lease: false, ..all }.guarantee(), Guarantee::NoQuiet);
        assert_eq!(FileSystem { exchange: false, lease: false, ..all }.guarantee(), Guarantee::NoExchange);
    }
}

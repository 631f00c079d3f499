//! The system calls that the gate supervises, and what each would do to files.
//!
//! One list says which calls these are and how to understand their arguments. A call that is not on it changes no name and
//! opens no file, or works on a file that is open already.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::tracee::{FinalLink, Tracee};
use crate::sys::seccomp::{CallList, WaitingCall};

/// A path as an argument: relative to an open folder, or to the working folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathArgument {
    pub(super) at: i32,
    pub(super) text: OsString,
}

/// What a call would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SystemCall {
    /// Open a file.
    Open { path: PathArgument, flags: i32 },
    /// Cut a file off, or extend it.
    Truncate { path: PathArgument, length: u64 },
    /// Give a file or folder another name, which may be taken.
    Rename { from: PathArgument, to: PathArgument, flags: u32 },
    /// Delete a name.
    Unlink { path: PathArgument },
    /// Delete an empty folder.
    RemoveFolder { path: PathArgument },
    /// Give a file a second name, which must be free. `last`: of the first path.
    Link { from: PathArgument, last: FinalLink, to: PathArgument },
    /// Create a symbolic link. Its name must be free.
    Symlink { path: PathArgument },
    /// Create a folder or a special file. Its name must be free.
    Create { path: PathArgument },
    /// Change the mode, the owner, the times or the attributes.
    Describe { path: PathArgument, last: FinalLink },
    /// Mount a file system of this kind, or something that is mounted already.
    Mount { kind: Option<OsString> },
    /// Restrict the process further.
    Restrict,
    /// The call names no path: the kernel answers it.
    NoPath,
}

/// How to understand the arguments of a call. Numbers are positions among the arguments.
#[derive(Debug, Clone, Copy)]
enum ArgumentShape {
    /// `open(path, flags)`
    Open,
    /// `creat(path, mode)`
    Creat,
    /// `openat(folder, path, flags)`
    OpenAt,
    /// `openat2(folder, path, {flags}, size)`
    OpenAt2,
    /// `truncate(path, length)`
    Truncate,
    /// `rename(from, to)`
    Rename,
    /// `renameat(folder, from, folder, to)`, with flags for `renameat2`
    RenameAt { flags: bool },
    /// `unlink(path)`
    Unlink,
    /// `unlinkat(folder, path, flags)`
    UnlinkAt,
    /// `rmdir(path)`
    RemoveFolder,
    /// `link(from, to)`
    Link,
    /// `linkat(folder, from, folder, to, flags)`
    LinkAt,
    /// `symlink(text, path)`
    Symlink,
    /// `symlinkat(text, folder, path)`
    SymlinkAt,
    /// `mkdir(path, mode)`, `mknod(path, mode, device)`
    Create,
    /// `mkdirat(folder, path, mode)`, `mknodat(folder, path, mode, device)`
    CreateAt,
    /// `chmod(path, mode)`, `chown(path, user, group)`, `setxattr(path, …)`
    Describe { follow: bool },
    /// `fchmodat(folder, path, …)`, with flags at this position
    DescribeAt { flags: Option<usize> },
    /// `mount(source, target, kind, flags, data)`
    Mount,
    /// `landlock_restrict_self(rules, flags)`
    Restrict,
}

/// Numbers that are the same on every architecture, and that libc does not know everywhere.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;
const OPEN_TREE: i64 = 428;
const FSOPEN: i64 = 430;
const OPEN_TREE_ATTR: i64 = 467;

/// The open folder is the root of the path, for `openat2`.
const RESOLVE_IN_ROOT: u64 = 0x10;

/// Every call that the supervisor answers.
const CALLS: &[(i64, ArgumentShape)] = &[
    (libc::SYS_openat2, ArgumentShape::OpenAt2),
    (libc::SYS_truncate, ArgumentShape::Truncate),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, ArgumentShape::Creat),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, ArgumentShape::Rename),
    (libc::SYS_renameat, ArgumentShape::RenameAt { flags: false }),
    (libc::SYS_renameat2, ArgumentShape::RenameAt { flags: true }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, ArgumentShape::Unlink),
    (libc::SYS_unlinkat, ArgumentShape::UnlinkAt),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, ArgumentShape::RemoveFolder),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, ArgumentShape::Link),
    (libc::SYS_linkat, ArgumentShape::LinkAt),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, ArgumentShape::Symlink),
    (libc::SYS_symlinkat, ArgumentShape::SymlinkAt),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, ArgumentShape::Create),
    (libc::SYS_mkdirat, ArgumentShape::CreateAt),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, ArgumentShape::Create),
    (libc::SYS_mknodat, ArgumentShape::CreateAt),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, ArgumentShape::Describe { follow: true }),
    (libc::SYS_fchmodat, ArgumentShape::DescribeAt { flags: None }),
    (FCHMODAT2, ArgumentShape::DescribeAt { flags: Some(3) }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, ArgumentShape::Describe { follow: true }),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, ArgumentShape::Describe { follow: false }),
    (libc::SYS_fchownat, ArgumentShape::DescribeAt { flags: Some(4) }),
    (libc::SYS_setxattr, ArgumentShape::Describe { follow: true }),
    (libc::SYS_lsetxattr, ArgumentShape::Describe { follow: false }),
    (libc::SYS_removexattr, ArgumentShape::Describe { follow: true }),
    (libc::SYS_lremovexattr, ArgumentShape::Describe { follow: false }),
    (SETXATTRAT, ArgumentShape::DescribeAt { flags: Some(2) }),
    (REMOVEXATTRAT, ArgumentShape::DescribeAt { flags: Some(2) }),
    (FILE_SETATTR, ArgumentShape::DescribeAt { flags: None }),
    (libc::SYS_mount, ArgumentShape::Mount),
    (libc::SYS_landlock_restrict_self, ArgumentShape::Restrict),
];

/// The calls that open a file, with the position of their flags.
const OPENS: &[(i64, u8, ArgumentShape)] = &[
    (libc::SYS_openat, 2, ArgumentShape::OpenAt),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, ArgumentShape::Open),
];

/// Calls that could open files behind the supervisor's back, also in mounts that have no path. Programs that use them have
/// another way.
const ABSENT: &[i64] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_by_handle_at,
    OPEN_TREE,
    OPEN_TREE_ATTR,
    FSOPEN,
];

/// What the filter must know.
pub(super) fn supervised() -> CallList {
    let number = |number: &i64| u32::try_from(*number).unwrap_or(u32::MAX);
    CallList {
        asked: CALLS.iter().map(|(call, _)| number(call)).collect(),
        opens: OPENS.iter().map(|(call, flags, _)| (number(call), *flags)).collect(),
        // A path or a folder has no bytes to read. Such flags stay harmless together with any others: the kernel ignores
        // the others, or creates a file without a name.
        harmless: (libc::O_PATH | libc::O_DIRECTORY).unsigned_abs(),
        absent: ABSENT.iter().map(number).collect(),
    }
}

impl SystemCall {
    /// Understands a call.
    pub(super) fn read(waiting: &WaitingCall, tracee: &Tracee) -> io::Result<Self> {
        let is = |number: &i64| i64::from(waiting.number) == *number;
        let opens = OPENS.iter().filter(|(number, ..)| is(number)).map(|(_, _, shape)| *shape);
        let others = CALLS.iter().filter(|(number, _)| is(number)).map(|(_, shape)| *shape);
        let Some(shape) = opens.chain(others).next() else { return Ok(Self::NoPath) };
        let argument = |at: usize| waiting.arguments[at];
        // Descriptors and flags have 32 bits. The kernel ignores the upper half of the register.
        let int = |at: usize| argument(at) as u32 as i32;
        let path = |at: i32, text: usize| -> io::Result<PathArgument> {
            Ok(PathArgument { at, text: tracee.text(argument(text))? })
        };
        let here = |text: usize| path(libc::AT_FDCWD, text);
        let below = |folder: usize| path(int(folder), folder + 1);
        // An address that cannot be valid: the call fails, or means the open file itself.
        let first = match shape {
            ArgumentShape::OpenAt
            | ArgumentShape::OpenAt2
            | ArgumentShape::RenameAt { .. }
            | ArgumentShape::UnlinkAt => 1,
            ArgumentShape::LinkAt | ArgumentShape::CreateAt | ArgumentShape::DescribeAt { .. } => 1,
            _ => 0,
        };
        if argument(first) == 0 && !matches!(shape, ArgumentShape::Restrict | ArgumentShape::Mount) {
            return Ok(Self::NoPath);
        }
        Ok(match shape {
            ArgumentShape::Open => Self::Open { path: here(0)?, flags: int(1) },
            ArgumentShape::Creat => {
                Self::Open { path: here(0)?, flags: libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC }
            }
            ArgumentShape::OpenAt => Self::Open { path: below(0)?, flags: int(2) },
            ArgumentShape::OpenAt2 => {
                let (flags, resolve) = (tracee.number(argument(2))?, tracee.number(argument(2) + 16)?);
                let mut path = below(0)?;
                if resolve & RESOLVE_IN_ROOT != 0 {
                    let relative =
                        Path::new(&path.text).strip_prefix("/").map(|text| text.as_os_str().to_owned());
                    path.text = relative.unwrap_or(path.text);
                }
                Self::Open { path, flags: flags as u32 as i32 }
            }
            ArgumentShape::Truncate => Self::Truncate { path: here(0)?, length: argument(1) },
            ArgumentShape::Rename => Self::Rename { from: here(0)?, to: here(1)?, flags: 0 },
            ArgumentShape::RenameAt { flags } => Self::Rename {
                from: below(0)?,
                to: below(2)?,
                flags: if flags { argument(4) as u32 } else { 0 },
            },
            ArgumentShape::Unlink => Self::Unlink { path: here(0)? },
            ArgumentShape::UnlinkAt if int(2) & libc::AT_REMOVEDIR != 0 => {
                Self::RemoveFolder { path: below(0)? }
            }
            ArgumentShape::UnlinkAt => Self::Unlink { path: below(0)? },
            ArgumentShape::RemoveFolder => Self::RemoveFolder { path: here(0)? },
            ArgumentShape::Link => Self::Link { from: here(0)?, last: FinalLink::Keep, to: here(1)? },
            ArgumentShape::LinkAt => Self::Link {
                from: below(0)?,
                last: FinalLink::followed_if(int(4) & libc::AT_SYMLINK_FOLLOW != 0),
                to: below(2)?,
            },
            ArgumentShape::Symlink => Self::Symlink { path: here(1)? },
            ArgumentShape::SymlinkAt => Self::Symlink { path: below(1)? },
            ArgumentShape::Create => Self::Create { path: here(0)? },
            ArgumentShape::CreateAt => Self::Create { path: below(0)? },
            ArgumentShape::Describe { follow } => {
                Self::Describe { path: here(0)?, last: FinalLink::followed_if(follow) }
            }
            ArgumentShape::DescribeAt { flags } => {
                let flags = flags.map_or(0, int);
                let follows = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
                Self::Describe { path: below(0)?, last: FinalLink::followed_if(follows) }
            }
            ArgumentShape::Mount => {
                Self::Mount { kind: (argument(2) != 0).then(|| tracee.text(argument(2))).transpose()? }
            }
            ArgumentShape::Restrict => Self::Restrict,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_listed_twice() {
        let CallList { asked, opens, absent, .. } = supervised();
        let mut all: Vec<u32> =
            asked.into_iter().chain(opens.into_iter().map(|(number, _)| number)).collect();
        all.extend(absent);
        let length = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), length);
    }
}

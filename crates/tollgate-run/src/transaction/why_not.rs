//! Why the kernel allows no private view of a workspace, and what to do about it.

use std::fs;
use std::io;

/// The settings of the kernel that forbid user namespaces, with the value that does, and what to do.
const SETTINGS: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "`user.max_user_namespaces` is 0: raise it with `sysctl -w user.max_user_namespaces=15000`",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor forbids user namespaces (the default of Ubuntu): give `tollgate` a profile with `userns,`, or run `sysctl -w \
         kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "`kernel.unprivileged_userns_clone` is 0: set it with `sysctl -w kernel.unprivileged_userns_clone=1`",
    ),
];

/// In words.
pub(super) fn reason(error: &io::Error) -> String {
    let forbidden =
        matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSPC | libc::ENOSYS));
    let set = |(file, value, _): &&(&str, &str, &str)| {
        fs::read_to_string(file).is_ok_and(|found| found.trim() == *value)
    };
    let why = match SETTINGS.iter().find(set) {
        Some((_, _, why)) if forbidden => (*why).to_owned(),
        _ => match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => "a sandbox forbids namespaces or mounts: allow `unshare` and \
                `mount` in its profile (for Docker: `--security-opt seccomp=PROFILE`, `--security-opt apparmor=unconfined`)"
                .to_owned(),
            Some(libc::ENODEV) => "the kernel has no overlay file system: load it with `modprobe overlay`".to_owned(),
            Some(libc::EINVAL) => "the file system of the workspace cannot hold an overlay: use ext4, XFS, Btrfs or tmpfs".to_owned(),
            _ => error.to_string(),
        },
    };
    format!("the kernel allows no private view of the workspace: {why}")
}

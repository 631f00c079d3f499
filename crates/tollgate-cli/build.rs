//! Links the command of a release without shared libraries, where the system has what that takes.
//!
//! A hook lives for a millisecond, and the dynamic linker took a third of it: to find the libraries, to look their names up,
//! and to write addresses into pages that nobody else would have touched. Cargo has no setting for the linkage of one
//! program, so the linker is told where the other form of each library is. In a debug build, on another system, without
//! these libraries, or with `TOLLGATE_LINK=dynamic`, nothing is different from any other program.
#![allow(clippy::print_stdout, reason = "that is how Cargo is told")]

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the standard library asks the linker for, and what it gets. The first has another name without sharing.
const LIBRARIES: [(&str, &str); 7] = [
    ("libgcc_s.a", "libgcc_eh.a"),
    ("libc.a", "libc.a"),
    ("libm.a", "libm.a"),
    ("librt.a", "librt.a"),
    ("libdl.a", "libdl.a"),
    ("libutil.a", "libutil.a"),
    ("libpthread.a", "libpthread.a"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TOLLGATE_LINK");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let wanted = is("PROFILE", "release") && !is("TOLLGATE_LINK", "dynamic");
    let here = env::var("HOST").is_ok() && env::var("HOST") == env::var("TARGET");
    let glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if wanted
        && here
        && glibc
        && let Some(folder) = gather()
    {
        for word in [&format!("-L{}", folder.display()), "-static", "-no-pie"] {
            println!("cargo::rustc-link-arg-bins={word}");
        }
    }
}

/// A folder with all of them, if the compiler has all of them.
fn gather() -> Option<PathBuf> {
    let folder = PathBuf::from(env::var_os("OUT_DIR")?).join("static");
    std::fs::create_dir_all(&folder).ok()?;
    for (name, file) in LIBRARIES {
        let answer = Command::new("cc").arg(format!("-print-file-name={file}")).output().ok()?;
        let there = String::from_utf8(answer.stdout).ok()?;
        // What it does not know it says back.
        let there = Some(Path::new(there.trim())).filter(|path| path.is_absolute() && path.exists())?;
        let link = folder.join(name);
        let _ = std::fs::remove_file(&link);
        symlink(there, &link).ok()?;
    }
    Some(folder)
}

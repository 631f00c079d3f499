//! Links the release build of the command statically, if the system has static libraries.
//!
//! A hook runs for a millisecond, and the dynamic linker took a third of it: it finds the libraries, looks their symbols up,
//! and writes addresses into memory pages. Cargo has no setting for linking one program statically, so this script tells the
//! linker where the static form of each library is. A debug build, another system, a system without these libraries, and
//! `TOLLGATE_LINK=dynamic` all give an ordinary, dynamically linked program.
#![allow(clippy::print_stdout, reason = "build scripts talk to Cargo on stdout")]

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries that the standard library asks for, and the static libraries that it gets. The static form of the first has
/// another name.
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

/// A folder with links to all static libraries, if the compiler has all of them.
fn gather() -> Option<PathBuf> {
    let folder = PathBuf::from(env::var_os("OUT_DIR")?).join("static");
    std::fs::create_dir_all(&folder).ok()?;
    for (name, file) in LIBRARIES {
        let answer = Command::new("cc").arg(format!("-print-file-name={file}")).output().ok()?;
        let there = String::from_utf8(answer.stdout).ok()?;
        // For an unknown library the compiler prints the name back.
        let there = Some(Path::new(there.trim())).filter(|path| path.is_absolute() && path.exists())?;
        let link = folder.join(name);
        let _ = std::fs::remove_file(&link);
        symlink(there, &link).ok()?;
    }
    Some(folder)
}

//! The browser that the pages are tested in, and the program that checks whether everybody can use them.
//!
//! The browser is Debian's `chromium` with `chromium-driver`; `axe-core` comes from npm, by a script, into the target
//! folder. Where they are not there, the tests that need them say so on standard error and end. With
//! `TOLLGATE_TEST_BROWSER=required` that is a failure, for machines that must not skip.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::browser::Browser;

/// A browser, or None after saying why not.
pub(crate) fn browser() -> Option<Browser> {
    Browser::start().map_err(skip).ok()
}

/// The text of axe-core, or None after saying why not.
pub(crate) fn axe() -> Option<String> {
    install()
        .and_then(|path| std::fs::read_to_string(path).map_err(|error| error.to_string()))
        .map_err(skip)
        .ok()
}

fn skip(why: String) {
    assert!(std::env::var("TOLLGATE_TEST_BROWSER").as_deref() != Ok("required"), "{why}");
    let test = std::thread::current();
    eprintln!("SKIPPED {}: {why}", test.name().unwrap_or_default());
}

fn install() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-axe");
    // Two test runs at once must not install over each other.
    let lock = std::fs::File::create(folder.with_extension("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let done = Command::new(&script)
        .arg(&folder)
        .output()
        .map_err(|error| format!("{}: {error}", script.display()))?;
    if !done.status.success() {
        return Err(format!("{} failed: {}", script.display(), String::from_utf8_lossy(&done.stderr).trim()));
    }
    Ok(folder.join("node_modules/axe-core/axe.min.js"))
}

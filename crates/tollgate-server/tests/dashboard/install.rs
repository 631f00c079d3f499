//! Finds the browser for the tests, and installs the accessibility checker axe-core.
//!
//! The browser is Debian's `chromium` with `chromium-driver`. A script installs `axe-core` from npm into the target folder.
//! If one of them is missing, the tests that need it print SKIPPED on standard error and end. With
//! `TOLLGATE_TEST_BROWSER=required` they fail instead, for machines that must not skip.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::browser::Browser;

/// A browser, or `None` after printing why there is none.
pub(crate) fn browser() -> Option<Browser> {
    Browser::start().map_err(skip).ok()
}

/// The source of axe-core, or `None` after printing why it is missing.
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
    // Two test runs must not install at the same time.
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

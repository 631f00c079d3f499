//! What others make of our files: their tools, installed by script.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

/// The folder with the peers.
static PEERS: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("export-peers");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-export-peers");
    // Two test runs must not install at the same time.
    let lock = fs::File::create(folder.with_extension("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let done = Command::new(&script).arg(&folder).output().map_err(|error| error.to_string())?;
    let why = || format!("{} failed: {}", script.display(), String::from_utf8_lossy(&done.stderr));
    done.status.success().then_some(folder).ok_or_else(why)
});

/// The peers, unless they cannot be installed here. `scripts/test` forbids that.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn peers() -> Option<&'static Path> {
    match &*PEERS {
        Ok(folder) => Some(folder),
        Err(why) => {
            let required = std::env::var("TOLLGATE_TEST_PEERS").is_ok_and(|value| value == "required");
            assert!(!required, "{why}");
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

/// Runs a program with this input.
pub(crate) fn fed(program: &Path, words: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    let piped = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

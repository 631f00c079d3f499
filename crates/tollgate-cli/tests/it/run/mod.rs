//! `tollgate run`: real programs in transactions.

mod agents;
mod background;
mod crash;
mod git_commands;
mod ignored;
mod kinds;
mod knowledge;
mod limits;
mod mounted;
mod new_settings;
mod process;
mod reach;
mod refused_work;
mod sandbox;
mod stale;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::world::{Ran, Run, World, until};

/// In a script: waits until the test goes on.
const HOLD: &str = "touch ../ready; until [ -e ../go ] || [ ! -e ../ready ]; do sleep 0.01; done";

impl World {
    /// `tollgate run -- sh -c SCRIPT`, with all programs of the machine.
    fn guarded(&self, script: &str) -> Run<'_> {
        // A command that ends with `&` would be guarded call by call.
        self.guarded_with(&["--mode", "transaction"], script)
    }

    fn guarded_with(&self, options: &[&str], script: &str) -> Run<'_> {
        let command = ["--", "sh", "-c", script];
        self.tollgate(["run"].iter().chain(options).chain(&command)).everywhere()
    }

    /// The same script without tollgate.
    fn native(&self, script: &str) -> Run<'_> {
        self.program("sh", ["-c", script]).everywhere()
    }

    /// Runs a script with [`HOLD`] in it. Something happens while it holds.
    fn held(&self, options: &[&str], script: &str, meanwhile: impl FnOnce()) -> Ran {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| self.guarded_with(options, script).ends());
            let ready = self.tmp().join("ready");
            until("the script", || (ready.exists() || run.is_finished()).then_some(()));
            assert!(ready.exists(), "the script ended early");
            meanwhile();
            fs::write(self.tmp().join("go"), "").unwrap();
            let ran = run.join().unwrap();
            fs::remove_file(ready).unwrap();
            fs::remove_file(self.tmp().join("go")).unwrap();
            ran
        })
    }

    /// Everything in the workspace except the states of tollgate and git: files with bytes and modes, links, folders.
    pub(crate) fn tree(&self) -> BTreeMap<String, String> {
        fn walk(folder: &Path, name: &str, found: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let file_name = path.file_name().unwrap().to_str().unwrap();
                let name = format!("{name}/{file_name}");
                let metadata = fs::symlink_metadata(&path).unwrap();
                let mode = metadata.permissions().mode() & 0o7777;
                if metadata.is_dir() {
                    if [".git", ".tollgate"].contains(&file_name) {
                        continue;
                    }
                    found.insert(name.clone(), format!("folder {mode:o}"));
                    walk(&path, &name, found);
                } else if metadata.is_symlink() {
                    found.insert(name, format!("link to {}", fs::read_link(&path).unwrap().display()));
                } else {
                    let bytes = fs::read(&path).unwrap();
                    found.insert(name, format!("{mode:o} {}", String::from_utf8_lossy(&bytes)));
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.root(), "", &mut found);
        found
    }

    /// The ledger, one value per line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path(".tollgate/ledger.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until nothing of a run is left in the state. A run cleans up after its answer.
    #[track_caller]
    fn nothing_is_left(&self) {
        for folder in ["runs", "journal"] {
            let folder = self.path(".tollgate").join(folder);
            until(&format!("nothing in {}", folder.display()), || {
                let is_empty = fs::read_dir(&folder).map_or(true, |mut found| found.next().is_none());
                is_empty.then_some(())
            });
        }
    }
}

impl Run<'_> {
    /// With the programs of the machine, wherever they are.
    pub(crate) fn everywhere(self) -> Self {
        let mut path = OsString::from(Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap());
        path.push(":");
        path.push(prettier_folder().join("node_modules/.bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let home = std::env::var_os("HOME").unwrap();
        self.env("PATH", path)
            // Some machines have their programs there.
            .env("PYENV_ROOT", Path::new(&home).join(".pyenv"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_AUTHOR_NAME", "ada")
            .env("GIT_AUTHOR_EMAIL", "ada@example.org")
            .env("GIT_COMMITTER_NAME", "ada")
            .env("GIT_COMMITTER_EMAIL", "ada@example.org")
    }
}

fn prettier_folder() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_tollgate")).ancestors().nth(2).unwrap().join("prettier")
}

/// Whether prettier is there. It comes from npm. Where that is not possible, the tests say so and go on without it; with
/// `TOLLGATE_TEST_AGENT_PROGRAMS=required` they fail.
fn has_prettier() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-prettier");
        let ran = Command::new(script).arg(prettier_folder()).stdin(Stdio::null()).output();
        let why = match ran {
            Ok(ran) if ran.status.success() => return true,
            Ok(ran) => String::from_utf8_lossy(&ran.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        assert!(
            std::env::var_os("TOLLGATE_TEST_AGENT_PROGRAMS").is_none_or(|word| word != "required"),
            "prettier cannot be installed: {why}"
        );
        #[allow(clippy::print_stderr, reason = "people who run the tests must see it")]
        {
            eprintln!(
                "SKIPPED: `tollgate run` is not tested with prettier, which cannot be installed: {why}"
            );
        }
        false
    })
}

/// The payloads of a refused run, by file name.
#[track_caller]
fn refused(ran: Ran) -> Vec<(String, String)> {
    let ran = ran.is(75);
    let stderr = ran.stderr();
    // A line of a diff may be a number.
    let payloads =
        stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(Value::is_object);
    let found: Vec<(String, String)> = payloads
        .map(|payload| {
            let path = Path::new(payload["file_path"].as_str().unwrap()).to_owned();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, payload["error_type"].as_str().unwrap().to_owned())
        })
        .collect();
    assert!(!found.is_empty(), "{ran}");
    found
}

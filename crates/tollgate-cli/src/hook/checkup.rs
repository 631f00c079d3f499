//! A look at the agent programs of a workspace: are they there, set up, trusted, calling us, and are we answering?
//!
//! The last is tried out: the command that stands in the program's own configuration is given a canary, a write that must
//! be blocked, in a workspace of its own that is taken away again.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tollgate::error::Fault;

use crate::arguments::Everywhere;
use crate::door::Door;
use crate::host::{self, Canary, Host, Trust};
use crate::surroundings::Surroundings;

/// Longer than a hook may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What was found of one program.
#[derive(Debug)]
pub(crate) struct Checkup {
    pub(crate) host: &'static str,
    /// Its executable is in the path.
    pub(crate) installed: bool,
    pub(crate) hooks: Hooks,
}

/// How its hooks are.
#[derive(Debug)]
pub(crate) enum Hooks {
    /// Not set up.
    None,
    /// Set up, but not as this version would.
    Outdated,
    /// Set up.
    InPlace {
        trust: Trust,
        /// When the program last called.
        called: Option<SystemTime>,
        /// What is wrong with the answer; none if it is as it should be.
        wrong: Option<String>,
    },
}

/// Looks at every program that is in use or set up here.
pub(crate) fn checkups(door: &Door, root: &Path) -> Result<Vec<Checkup>, Fault> {
    let (home, path) = (Surroundings::home(), Surroundings::path());
    let mut found = Vec::new();
    for host in host::ALL {
        let setup = host.setup();
        if !host::is_found(host, home.as_deref(), &path, root) && !setup.is_there(root) {
            continue;
        }
        let installed = path.iter().any(|folder| folder.join(host.traces().program).is_file());
        let hooks = if setup.is_in_place(root)? {
            let called = door
                .existing_turns()?
                .iter()
                .filter_map(|turns| super::last_called(turns, host.name()))
                .max();
            let wrong = match setup.command_before_a_tool(root) {
                Some(command) => try_out(host, &command).err(),
                None => Some("its configuration has no command".into()),
            };
            Hooks::InPlace { trust: host.trust(home.as_deref(), root), called, wrong }
        } else if setup.is_there(root) {
            Hooks::Outdated
        } else {
            Hooks::None
        };
        found.push(Checkup { host: host.name(), installed, hooks });
    }
    Ok(found)
}

/// Gives the command a read, a change by somebody else and a write, and sees whether the write is blocked.
fn try_out(host: &dyn Host, command: &str) -> Result<(), String> {
    let cage = Cage::new().map_err(|error| format!("no folder for a canary can be made: {error}"))?;
    let file = cage.folder.join("canary.txt");
    let text = |error: std::io::Error| error.to_string();
    fs::write(&file, "one\n").map_err(text)?;
    let ask = |event| {
        let payload = host.canary("tollgate-doctor", &cage.folder, event, &file);
        run(command, &cage.folder, &payload.to_string())
    };
    for event in [Canary::BeforeRead, Canary::AfterRead] {
        let answer = ask(event)?;
        if !answer.is_empty() {
            return Err(format!("a read was answered with `{}`", answer.trim()));
        }
    }
    fs::write(&file, "two\n").map_err(text)?;
    let answer = ask(Canary::BeforeWrite)?;
    let blocked = serde_json::from_str::<Value>(&answer)
        .is_ok_and(|answer| answer.to_string().contains("STALE_FILE") && has_the_form(host, &answer));
    if blocked { Ok(()) } else { Err(format!("a stale write was answered with `{}`", answer.trim())) }
}

/// Whether an answer has the fields with which this program blocks.
fn has_the_form(host: &dyn Host, answer: &Value) -> bool {
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    keys(answer) == keys(&host.block(""))
}

/// A workspace for a canary. It goes away, with everything that was remembered about it.
struct Cage {
    folder: PathBuf,
}

impl Cage {
    fn new() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("tollgate-canary-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let cage = Self { folder: folder.canonicalize()? };
        fs::create_dir(cage.folder.join(".tollgate"))?;
        // Nothing of it is worth waiting for the disk.
        fs::write(cage.folder.join(".tollgate/config.toml"), "[guard]\ndurability = \"fast\"\n")?;
        Ok(cage)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let surroundings = Surroundings { folder: Ok(self.folder.clone()), ..Surroundings::look() };
        let door = Door::new(surroundings, Everywhere::default());
        for turns in door.existing_turns().unwrap_or_default() {
            let _ = fs::remove_dir_all(turns.folder());
        }
        if let Ok(Some(head)) = door.ledger_head(&self.folder) {
            let _ = fs::remove_file(head);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What a command says to a payload.
fn run(command: &str, folder: &Path, payload: &str) -> Result<String, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        // The doctor may itself run in a turn of somebody.
        .env_remove("TOLLGATE_TURN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    if let Some(mut stdin) = stdin {
        // Who does not want it closes it.
        let _ = stdin.write_all(payload.as_bytes());
    }
    let reader = std::thread::spawn(move || {
        let mut answer = String::new();
        stdout.and_then(|mut stdout| stdout.read_to_string(&mut answer).ok()).map(|_| answer)
    });
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if started.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it does not end".into());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    reader.join().ok().flatten().ok_or_else(|| "its answer cannot be read".into())
}

//! Checks the agent programs of a workspace: are they installed, are their hooks set up, approved and used, and do the hooks
//! answer correctly?
//!
//! The last check is a test: the command in the program's configuration gets a canary, a write that must be blocked, in a
//! temporary workspace.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::error::Fault;

use super::last_call;
use crate::global_args::GlobalArgs;
use crate::host::{self, Canary, Host};
use crate::invocation::Invocation;
use crate::report::diagnosis::{HookState, HostCheckup};
use crate::surroundings::Surroundings;

/// The longest time for an answer, longer than the deadline of a hook.
const PATIENCE: Duration = Duration::from_secs(15);

/// Checks every program that is used or set up here.
pub(crate) fn checkups(invocation: &Invocation, root: &Path) -> Result<Vec<HostCheckup>, Fault> {
    let (home, path) = (Surroundings::home(), Surroundings::path());
    let mut found = Vec::new();
    for host in host::ALL {
        let setup = host.setup();
        if !host::is_found(host, home.as_deref(), &path, root) && !setup.is_there(root) {
            continue;
        }
        let installed = path.iter().any(|folder| folder.join(host.traces().program).is_file());
        let hooks = if setup.is_in_place(root)? {
            let called = invocation
                .existing_turns()?
                .iter()
                .filter_map(|turns| last_call::time(turns, host.name()))
                .max();
            let wrong = match setup.command_before_a_tool(root) {
                Some(command) => try_out(host, &command).err(),
                None => Some("the configuration has no command".into()),
            };
            HookState::InPlace { trust: host.trust(home.as_deref(), root), called, wrong }
        } else if setup.is_there(root) {
            HookState::Outdated
        } else {
            without_own(host, root)?
        };
        found.push(HostCheckup { host: host.name(), program: host.traces().program, installed, hooks });
    }
    Ok(found)
}

/// The state of a program without hooks of its own.
fn without_own(host: &dyn Host, root: &Path) -> Result<HookState, Fault> {
    for other in host.also_calls().iter().filter_map(|name| host::named(name)) {
        if other.setup().is_in_place(root)? {
            return Ok(HookState::Through(other.name()));
        }
    }
    Ok(HookState::None)
}

/// Reports a read to the command, changes the file, announces a write, and checks that the write is blocked.
fn try_out(host: &dyn Host, command: &str) -> Result<(), String> {
    let cage = Cage::new().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
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
            return Err(format!("the answer to a read was `{}`", answer.trim()));
        }
    }
    fs::write(&file, "two\n").map_err(text)?;
    let answer = ask(Canary::BeforeWrite)?;
    let blocked = serde_json::from_str::<Value>(&answer)
        .is_ok_and(|answer| answer.to_string().contains("STALE_FILE") && has_the_form(host, &answer));
    if blocked { Ok(()) } else { Err(format!("the answer to a stale write was `{}`", answer.trim())) }
}

/// Whether the answer has exactly the fields that block a tool of this program.
fn has_the_form(host: &dyn Host, answer: &Value) -> bool {
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    keys(answer) == keys(&host.block(""))
}

/// A temporary workspace for a canary. Dropping it deletes it and all state about it.
struct Cage {
    folder: PathBuf,
}

impl Cage {
    fn new() -> std::io::Result<Self> {
        let folder = Surroundings::temporary().join(format!("tollgate-canary-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let cage = Self { folder: folder.canonicalize()? };
        fs::create_dir(cage.folder.join(".tollgate"))?;
        // No file of the canary needs to survive a power failure.
        fs::write(cage.folder.join(".tollgate/config.toml"), "[guard]\ndurability = \"fast\"\n")?;
        Ok(cage)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let surroundings = Surroundings { folder: Ok(self.folder.clone()), ..Surroundings::look() };
        let invocation = Invocation::new(surroundings, GlobalArgs::default());
        for turns in invocation.existing_turns().unwrap_or_default() {
            let _ = fs::remove_dir_all(turns.folder());
        }
        if let Ok(Some(head)) = invocation.ledger_head(&self.folder) {
            let _ = fs::remove_file(head);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The answer of the command to a payload.
fn run(command: &str, folder: &Path, payload: &str) -> Result<String, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        // The doctor itself may run in an agent's turn.
        .env_remove("TOLLGATE_TURN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot run the command: {error}"))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    if let Some(mut stdin) = stdin {
        // The command may close its stdin without reading it.
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
            Ok(Some(status)) => return Err(format!("the command ended with {status}")),
            Ok(None) if started.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    reader.join().ok().flatten().ok_or_else(|| "the answer is not UTF-8".into())
}

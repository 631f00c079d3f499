//! Checks the agent programs of a workspace: are they installed, are their hooks set up, approved and used, do the hooks
//! answer correctly, and does the registered MCP server?
//!
//! The last two checks are tests in a temporary workspace: the command in the program's configuration gets a canary, a write
//! that must be blocked; the server gets the first message of a client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::error::Fault;
use tollgate::settings::{RunSettings, ShellCommands};
use tollgate::vault::checkup::Finding;
use tollgate::visible::plain;
use tollgate::workspace::{STATE_FOLDER, read_settings};
use tollgate_base::name::random_id;
use tollgate_base::private;
use tollgate_base::program::{ProgramEnd, run_with_input};

use super::last_call;
use super::prologue::quoted;
use crate::global_args::GlobalArgs;
use crate::host::event::HookEvent;
use crate::host::{self, Canary, FoundHost, Host, Registered, ShellPrefix, Trust};
use crate::invocation::Invocation;
use crate::prefixed::COMMENT;
use crate::report::status::{Hooks, HostStatus, HostUse};
use crate::surroundings::Surroundings;
use crate::words::ago;

/// The longest time for an answer, longer than the deadline of a hook.
const PATIENCE: Duration = Duration::from_secs(15);

/// The name of a check, and what it found.
pub(crate) type Check = (&'static str, Result<Finding, Fault>);

/// How to fix a setting that disables hooks or a server.
const DELETE_SETTING: &str = "delete that setting, unless you want it; agents cannot do it for you";

/// An agent program that is used or set up here.
struct PresentHost {
    host: &'static dyn Host,
    /// What shows that it is used.
    found: FoundHost,
    /// The folder in which its hooks are installed: the workspace, or the user's home.
    hooked: Option<PathBuf>,
    /// The registered MCP server.
    server: Result<Option<Registered>, Fault>,
}

impl PresentHost {
    fn all(root: &Path) -> Vec<Self> {
        let (home, path) = (Surroundings::home(), Surroundings::path());
        let present = |host: &'static dyn Host| {
            let server = host.mcp().registered(root, home.as_deref());
            let found = host::find(host, home.as_deref(), &path, root);
            // The user may have hooks for all folders.
            let places = [Some(root), home.as_deref()];
            let hooked = places.into_iter().flatten().find(|folder| host.setup().is_there(folder));
            let is_present = found.any() || !matches!(server, Ok(None)) || hooked.is_some();
            is_present.then(|| Self { host, found, hooked: hooked.map(Path::to_owned), server })
        };
        host::ALL.into_iter().filter_map(present).collect()
    }
}

/// Checks every program that is used or set up here: its hooks, and its registration of the MCP server.
pub(crate) fn checkups(invocation: &Invocation, root: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    for present in PresentHost::all(root) {
        checks.push(("hooks", hooks(invocation, &present, root)));
        match &present.server {
            Ok(Some(registered)) => checks.push(("mcp", Ok(server(present.host, registered, root)))),
            Ok(None) => {}
            Err(_) => checks.extend(present.server.err().map(|fault| ("mcp", Err(fault)))),
        }
    }
    checks
}

/// The programs that are used or set up here, without a test of their hooks and servers.
pub(crate) fn glance(invocation: &Invocation, root: &Path) -> Vec<HostStatus> {
    let home = Surroundings::home();
    let turns = invocation.existing_turns().unwrap_or_default();
    let run = run_settings(root);
    let status = |PresentHost { host, found, hooked, server }: PresentHost| {
        let hooks = match hooked.map(|folder| host.setup().is_in_place(&folder)) {
            _ if server.is_err() => Hooks::Broken,
            Some(Ok(true)) => match host.trust(home.as_deref(), root) {
                Trust::NotNeeded | Trust::Given => Hooks::Installed,
                Trust::Missing(_) | Trust::SwitchedOff(_) => Hooks::NotApproved,
            },
            Some(Ok(false)) => Hooks::Outdated,
            Some(Err(_)) => Hooks::Broken,
            None => match hooks_it_also_calls(host, root) {
                Ok(Some((other, None))) => Hooks::Through(other),
                Ok(Some((_, Some(_)))) => Hooks::NotApproved,
                Ok(None) => Hooks::None,
                Err(_) => Hooks::Broken,
            },
        };
        let mcp = matches!(&server, Ok(Some(registered)) if !registered.disabled)
            && host.server_off(home.as_deref(), root).is_none();
        let last_seen = turns.iter().filter_map(|turns| last_call::time(turns, host.name())).max();
        HostStatus {
            host: host.name(),
            guarded: matches!(hooks, Hooks::Installed | Hooks::Through(_)) || mcp && hooks == Hooks::None,
            hooks,
            shell: matches!(hooks, Hooks::Installed | Hooks::Through(_)).then(|| host.shell_commands(&run)),
            mcp,
            last_seen: last_seen.and_then(|time| time.try_into().ok()),
            used: match found {
                FoundHost { in_project: Some(_), .. } => HostUse::InProject,
                FoundHost { on_path: true, .. } => HostUse::OnPath,
                _ => HostUse::Elsewhere,
            },
        }
    };
    PresentHost::all(root).into_iter().map(status).collect()
}

/// Whether the program is guarded by hooks.
fn hooks(invocation: &Invocation, present: &PresentHost, root: &Path) -> Result<Finding, Fault> {
    let PresentHost { host, found, hooked, server } = present;
    let name = host.name();
    let not_on_path = match found.on_path {
        true => String::new(),
        false => format!("; `{}` is not on PATH", host.traces().program),
    };
    let set_up = format!("run `tollgate init --host {name}`");
    let Some(folder) = hooked else {
        return Ok(match hooks_it_also_calls(*host, root)? {
            Some((other, None)) => Finding::ok(format!(
                "`{name}` is guarded by the hooks of `{other}`, which it calls too{not_on_path}"
            )),
            Some((other, Some(by))) => Finding::problem(format!(
                "`{name}` is not guarded: it calls the hooks of `{other}` too, but they are {}{not_on_path}",
                plain(&by)
            ))
            .fix(DELETE_SETTING),
            None if matches!(server, Ok(Some(_))) => Finding::ok(format!(
                "`{name}` has no hooks: tollgate guards what its agent writes with the tools of the MCP server"
            )),
            None => {
                let is_used = found.on_path || found.in_project.is_some();
                let of = if is_used { Finding::warning } else { Finding::ok };
                of(format!("`{name}` is not guarded: no hooks installed{not_on_path}"))
                    .fix(format!("{set_up} to install them"))
            }
        });
    };
    if !host.setup().is_in_place(folder)? {
        let what = format!("`{name}`: hooks installed by another version of tollgate{not_on_path}");
        return Ok(Finding::warning(what).fix(format!("{set_up} to update them")));
    }
    let called = last_used(invocation, name)?;
    let level = match try_hooks(*host, folder, root)? {
        Ok(level) => level,
        Err(wrong) => {
            let what = format!("`{name}`: hooks installed, but not responding correctly: {}", plain(&wrong));
            return Ok(Finding::problem(what).fix(format!(
                "check that `tollgate` is on the PATH of `{name}` and is this version; {set_up} to install the hooks again"
            )));
        }
    };
    let shell = match &level {
        Some(level) => format!("; shell commands run through `tollgate run`, level `{}`", plain(level)),
        None => "; of shell commands only the text is judged, so what scripts do to files is not guarded"
            .to_owned(),
    };
    let finding = |of: fn(String) -> Finding, state: &str| {
        of(format!("`{name}`: hooks {state}; {called}{shell}{not_on_path}"))
    };
    let installed = |state: &str| match level {
        Some(_) => finding(Finding::ok, state),
        None => finding(Finding::warning, state).fix(guard_shell(*host)),
    };
    Ok(match host.trust(Surroundings::home().as_deref(), root) {
        Trust::NotNeeded => installed("installed and responding"),
        Trust::Given => installed("installed, approved and responding"),
        Trust::Missing(how) => {
            finding(Finding::warning, "installed and responding, but not approved yet").fix(how)
        }
        Trust::SwitchedOff(by) => {
            finding(Finding::problem, &format!("installed and responding, but {}", plain(&by)))
                .fix(DELETE_SETTING)
        }
    })
}

/// When the program last called its hooks.
fn last_used(invocation: &Invocation, host: &str) -> Result<String, Fault> {
    let turns = invocation.existing_turns()?;
    let called = turns.iter().filter_map(|turns| last_call::time(turns, host)).max();
    Ok(match called.and_then(|time| Timestamp::try_from(time).ok()) {
        Some(time) => format!("last used {}", ago(invocation.now(), time)),
        None => "not used yet".into(),
    })
}

/// What the settings say about shell commands. If they cannot be read, no command runs as a transaction.
fn run_settings(root: &Path) -> RunSettings {
    read_settings(&root.join(STATE_FOLDER).join("config.toml"))
        .map(|settings| settings.run)
        .unwrap_or_default()
}

/// How the shell of a program could be guarded, of which the hooks only judge the text.
fn guard_shell(host: &dyn Host) -> String {
    let by_agent = "let its agents start scripts with `tollgate run --agent NAME -- COMMAND`";
    match (host.runs_commands(), host.shell_prefix()) {
        (true, _) => {
            "set `shell = \"transaction\"` under `[run]` in `.tollgate/config.toml`, and delete the program from `parse`".into()
        }
        (false, Some(_)) => format!("{by_agent}, or do the steps by hand that the guide for `{}` describes", host.name()),
        (false, None) => by_agent.into(),
    }
}

/// Tries the hooks that are installed in this folder. Returns the level at which shell commands run, if they run through
/// `tollgate run`, or else what is wrong with the answers of the hooks.
fn try_hooks(host: &dyn Host, folder: &Path, root: &Path) -> Result<Result<Option<String>, String>, Fault> {
    let setup = host.setup();
    let prefix = setup.variable(folder)?;
    Ok(match setup.command_before_a_tool(folder) {
        Some(command) => {
            try_out(host, &command).and_then(|()| match host.shell_commands(&run_settings(root)) {
                ShellCommands::Transaction => try_command(host, &command, prefix).map(Some),
                ShellCommands::Parse => Ok(None),
            })
        }
        None => Err("the configuration has no command".into()),
    })
}

/// Whether the registered MCP server can be used.
fn server(host: &dyn Host, registered: &Registered, root: &Path) -> Finding {
    let name = host.name();
    let place = format!("`{name}`: MCP server registered in `{}`", plain(&registered.file.to_string_lossy()));
    match host.server_off(Surroundings::home().as_deref(), root) {
        Some(by) if !registered.disabled => {
            Finding::problem(format!("{place}, but {}", plain(&by))).fix(DELETE_SETTING)
        }
        _ => try_server(&place, registered).unwrap_or_else(|why| {
            Finding::problem(format!("{place}, but it does not work: {}", plain(&why))).fix(format!(
                "fix the entry `tollgate` there, or run `tollgate init --mcp {name} --remove`, then `tollgate init --mcp {name}`"
            ))
        }),
    }
}

/// Starts the registered program as an MCP server in a temporary workspace, and checks that it answers. Starts only
/// `tollgate` by name: the configuration may come with the repository.
fn try_server(place: &str, registered: &Registered) -> Result<Finding, String> {
    let program = registered.command.first().ok_or("it has no command")?;
    let by_name = !program.contains('/');
    let is_there = match by_name {
        true => Surroundings::path().iter().any(|folder| folder.join(program).is_file()),
        false => Path::new(program).is_file(),
    };
    if !is_there {
        return Err(format!("`{program}` does not exist"));
    }
    if registered.command.get(1).map(String::as_str) != Some("mcp") {
        return Err("its arguments do not begin with `mcp`".into());
    }
    if registered.disabled {
        return Ok(Finding::warning(format!("{place}, but disabled there")).fix("enable it"));
    }
    if !by_name {
        let program = plain(program);
        return Ok(Finding::ok(format!("{place}; not tested, because it is `{program}` and not `tollgate`")));
    }
    let cage = Cage::new().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let mut command = Command::new(program);
    command.args(["mcp", "--agent", "doctor"]);
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "tollgate doctor", "version": "1"}}});
    let answer = run(command, &cage.folder, &format!("{hello}\n"))?;
    let is_ours = |line: &str| {
        serde_json::from_str::<Value>(line)
            .is_ok_and(|answer| answer["result"]["serverInfo"]["name"] == "tollgate")
    };
    match answer.lines().any(is_ours) {
        true => Ok(Finding::ok(format!("{place} and responding"))),
        false => Err(format!("it answered `{}`", answer.trim())),
    }
}

/// The other program whose hooks this program also calls, if they are installed, and the setting that disables them.
fn hooks_it_also_calls(
    host: &dyn Host,
    root: &Path,
) -> Result<Option<(&'static str, Option<String>)>, Fault> {
    for other in host.also_calls().iter().filter_map(|name| host::named(name)) {
        if other.setup().is_in_place(root)? {
            return Ok(Some((other.name(), host.hooks_off(Surroundings::home().as_deref(), root))));
        }
    }
    Ok(None)
}

/// Reports a read to the command, changes the file, announces a write, and checks that the write is blocked.
fn try_out(host: &dyn Host, command: &str) -> Result<(), String> {
    let cage = Cage::new().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let file = cage.folder.join("canary.txt");
    let text = |error: std::io::Error| error.to_string();
    fs::write(&file, "one\n").map_err(text)?;
    let ask = |event| {
        let payload = host.canary("tollgate-doctor", &cage.folder, event, &file);
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        run(shell, &cage.folder, &payload.to_string())
    };
    for event in [Canary::BeforeRead, Canary::AfterRead] {
        let answer = ask(event)?;
        if !answer.is_empty() {
            return Err(format!("the answer to a read was `{}`", answer.trim()));
        }
    }
    fs::write(&file, "two\n").map_err(text)?;
    let answer = ask(Canary::BeforeWrite)?;
    let payload = host.canary("tollgate-doctor", &cage.folder, Canary::BeforeWrite, &file);
    let blocked = serde_json::from_str::<Value>(&answer).is_ok_and(|answer| {
        answer.to_string().contains("STALE_FILE") && has_the_form(host, &payload, &answer)
    });
    if blocked { Ok(()) } else { Err(format!("the answer to a stale write was `{}`", answer.trim())) }
}

/// Announces a shell command, runs what the hook answers as the program would, with the prefix that its configuration has,
/// and returns the level that its run reached.
fn try_command(host: &dyn Host, command: &str, prefix: Option<(&str, &str)>) -> Result<String, String> {
    let cage = Cage::new().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let file = cage.folder.join("canary.txt");
    let text = |error: std::io::Error| error.to_string();
    fs::write(&file, "one\n").map_err(text)?;
    let config = "[guard]\ndurability = \"fast\"\n[run]\nshell = \"transaction\"\n";
    fs::write(cage.folder.join(".tollgate/config.toml"), config).map_err(text)?;
    let start = |program: &str, text: &str| {
        let mut shell = Command::new(program);
        shell.args(["-c", text]);
        // The doctor itself may run in the program.
        if let Some(ShellPrefix::Words(name)) = host.shell_prefix() {
            shell.env_remove(name);
        }
        shell.envs(prefix);
        shell
    };
    let payload = host.canary("tollgate-doctor", &cage.folder, Canary::BeforeCommand, &file);
    let answer = run(start("sh", command), &cage.folder, &payload.to_string())?;
    let changed = serde_json::from_str(&answer).ok().and_then(|answer| changed_command(&answer));
    let Some(changed) = changed else {
        return Err(format!("the answer to a command was `{}`", answer.trim()));
    };
    let shell = match prefix {
        Some((_, words)) => {
            let text = format!("source /dev/null && eval {}", quoted(&changed));
            let mut shell = start("sh", &format!("{words} {}", quoted(&text)));
            // The program says which shell it means.
            shell.env("SHELL", "bash");
            shell
        }
        None => start("bash", &changed),
    };
    let printed = run(shell, &cage.folder, "").map_err(|what| format!("a command did not run: {what}"))?;
    if printed != "one\n" {
        return Err(format!("a command printed `{}`", printed.trim()));
    }
    let records = Invocation::new(
        Surroundings { folder: Ok(cage.folder.clone()), ..Surroundings::look() },
        GlobalArgs::default(),
    )
    .run_folder()
    .map_err(|fault| fault.to_string())?;
    let record = fs::read_dir(records).map_err(text)?.flatten().find_map(|entry| fs::read(entry.path()).ok());
    let record = record.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()).unwrap_or_default();
    match record["level"].as_str() {
        Some(level) => Ok(level.to_owned()),
        None => Err("a command ran without `tollgate run`".into()),
    }
}

/// The command with a prologue, somewhere in an answer.
fn changed_command(answer: &Value) -> Option<String> {
    match answer {
        Value::String(text) => (text.starts_with(". /") || text.contains(COMMENT)).then(|| text.clone()),
        Value::Array(list) => list.iter().find_map(changed_command),
        Value::Object(map) => map.values().find_map(changed_command),
        _ => None,
    }
}

/// Whether the answer to this payload has exactly the fields that block a tool of this program.
fn has_the_form(host: &dyn Host, payload: &Value, answer: &Value) -> bool {
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    let event = host.hear(payload).map(|heard| heard.event);
    let call = match &event {
        Ok(HookEvent::Before(call)) => Some(call),
        _ => None,
    };
    keys(answer) == keys(&host.block("", call))
}

/// A temporary workspace for a canary. Dropping it deletes it and all state about it.
struct Cage {
    folder: PathBuf,
}

impl Cage {
    fn new() -> std::io::Result<Self> {
        let id = random_id().map_err(std::io::Error::other)?;
        let folder = Surroundings::temporary().join(format!("tollgate-canary-{id}"));
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
            let _ = private::remove_tree(turns.folder());
        }
        if let Ok(Some(head)) = invocation.ledger_head(&self.folder) {
            let _ = private::remove_file(&head);
        }
        // A process that a command has left behind, to look for late writes, may still make files in it.
        let started = Instant::now();
        while private::remove_tree(&self.folder).is_err() && started.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The answer of the command to a payload.
fn run(mut command: Command, folder: &Path, payload: &str) -> Result<String, String> {
    command
        .current_dir(folder)
        // The doctor itself may run in an agent's turn.
        .env_remove("TOLLGATE_TURN")
        .env_remove(tollgate_run::LEVEL_VARIABLE)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    match run_with_input(&mut command, payload.as_bytes(), PATIENCE) {
        Ok(Some(ProgramEnd { status, output })) if status.success() => {
            String::from_utf8(output).map_err(|_| "the answer is not UTF-8".into())
        }
        Ok(Some(ProgramEnd { status, .. })) => Err(format!("the command ended with {status}")),
        Ok(None) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        Err(error) => Err(format!("cannot run the command: {error}")),
    }
}

//! `tollgate init`: writes the configuration. On request it also creates a vault, installs the hooks of agent programs, and
//! registers the MCP server with them.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::settings::{Settings, StoreChoice};
use tollgate::tasks::{VaultHome, check_store, is_vault, shared_with, tells_password};
use tollgate::vault::state::State;
use tollgate::workspace::{STATE_FOLDER, read_settings};

use crate::answer::{Answer, Said};
use crate::error::{CliError, UsageError};
use crate::host::{self, Became, FoundHost, Host};
use crate::invocation::Invocation;
use crate::replace::{FileAccess, replace_file};
use crate::report::setup::{ConfigSetup, HostSetup};
use crate::surroundings::Surroundings;
use crate::words;

/// Set up a workspace: write `.tollgate/config.toml`
///
/// Writes a commented configuration, and nothing else. An existing configuration is not changed, so you can run this command
/// again at any time. You can also guard files without it, because all settings have defaults.
///
/// With --vault it also creates the folders for tasks and adds them to the configuration. --store sets where the tasks
/// are: in folders, in git, or in an engine that several machines share.
///
/// To guard an agent program, install hooks for it (--host), or let its agent use the tools of tollgate's MCP server (--mcp).
/// A program gets both only if you name it with both options.
///
/// With --remove it removes the configuration, unless you have changed it, the vault's folders if they are empty, hooks and
/// MCP servers. It keeps the state (ledger, recovery).
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate init --host all
  tollgate init --vault
  tollgate init -C ~/notes --vault ~/notes/tasks
  tollgate init --store etcd://a:2379,b:2379,c:2379/team
  tollgate init --remove")]
pub(crate) struct InitArgs {
    /// Create the folders of a vault for tasks [default: `vault` in the workspace]
    #[arg(long, value_name = "DIR", conflicts_with = "remove", value_hint = clap::ValueHint::DirPath)]
    #[allow(clippy::option_option, reason = "clap's type for an option whose value is optional")]
    vault: Option<Option<PathBuf>>,

    /// Keep the tasks in this store: `folder`, `git`, or the address of an engine, without a password
    #[arg(long, value_name = "URL", conflicts_with = "remove")]
    store: Option<String>,

    /// Install hooks for an agent program in this workspace; `all` means all programs found here
    #[arg(long = "host", value_name = "HOST", value_parser = hosts())]
    hosts: Vec<String>,

    /// Register the MCP server with an agent program in this workspace
    #[arg(long = "mcp", value_name = "HOST", value_parser = PossibleValuesParser::new(host::names()))]
    mcp: Vec<String>,

    /// Remove what init added; with --host or --mcp, remove only that
    #[arg(long)]
    remove: bool,
}

fn hosts() -> PossibleValuesParser {
    PossibleValuesParser::new(host::names().into_iter().chain(["all"]))
}

/// The defaults are commented out, because a later tollgate may have better ones. Settings that are set differ from the
/// default on purpose.
const TEMPLATE: &str = r#"# tollgate: how to guard the files of this workspace. This file is yours; you can commit it.
version = 1

[guard]
# What to do with a write to a file that was not read in the same turn:
#   "known"   compare the file with what the agent last saw in its earlier turns
#   "allow"   allow the write
#   "refuse"  refuse the write until the file has been read
unread = "known"

# "enforce" refuses stale writes, "observe" only records them in the ledger, "off" checks nothing.
# mode = "enforce"

# "durable": a confirmed write survives a power failure. "fast" does not wait for the disk.
# durability = "durable"

# How long a write waits for other programs to close the file, and for other guarded writes.
# quiet_wait = "1s"
# lock_wait = "10s"

# Writes to files with hard links and to read-only files are refused. "detach" and "replace" allow them.
# hard_links = "refuse"
# read_only = "refuse"

# More paths that agents must not change, relative to the workspace.
# protected = []

[recovery]
# How long the bytes that guarded writes replaced are kept, and their maximum size.
# max_age = "7d"
# max_size = "256MiB"

[ledger]
# When the ledger reaches this size, it continues in a new file.
# max_size = "64MiB"

[vault]
# The folder with the tasks, relative to the workspace.
# dir = "vault"

# Where the tasks are: "folder", "git", or an engine that several machines share, as in "etcd://a:2379,b:2379/team".
# store = "folder"

# How long a claim by `task claim` lasts unless it is renewed, and the number of attempts before a task is rejected.
# lease = "30m"
# max_attempts = 3

# The pauses between the attempts at a task.
# retry = ["10s", "1m", "5m"]

[run]
# What hooks do with the shell commands of agents: "transaction" lets each command run through `tollgate run`, "parse" only
# checks what its text says about files.
# shell = "parse"

# Agent programs whose commands are only checked, whatever `shell` says, by the names of `init --host`.
# parse = []

[work]
# After this many quick failures in a row, `tollgate work` claims no tasks for a while. 0: never.
# breaker = 5

# What each agent may do. An agent without a table may do everything.
# [agent.cloud]
# allowed = ["summarize"]
# sensitive = ["send_email"]
"#;

/// The template's line for the vault.
const DIR_LINE: &str = "# dir = \"vault\"\n";

/// The template's line for the store.
const STORE_LINE: &str = "# store = \"folder\"\n";

/// The template's line for shell commands, and the line for agent programs whose commands can run through `tollgate run`.
const SHELL_LINES: [&str; 2] = ["# shell = \"parse\"\n", "shell = \"transaction\"\n"];

/// The template's line for agent programs whose commands are only parsed.
const PARSE_LINE: &str = "# parse = []\n";

pub(crate) fn run(invocation: &Invocation, args: &InitArgs) -> Result<Answer, CliError> {
    let (root, found_by) = invocation.root()?;
    let is_here = invocation.base()?.canonicalize().is_ok_and(|here| here == root);
    if !args.remove && !is_here && invocation.contains_home(&root) {
        return Err(UsageError::HomeIsTheWorkspace(root).into());
    }
    let state = root.join(STATE_FOLDER);
    let config = state.join("config.toml");
    let (mut hooked, mut registered) = (Vec::new(), Vec::new());
    // First, because what is installed below is a trace as well.
    let programs = match args.hosts.iter().any(|name| name == "all") && !args.remove {
        true => words::programs_found(&found(&root)),
        false => String::new(),
    };
    let hooks = chosen(args, &root);
    for host in registrars(args, &root, &hooks)? {
        let registry = host.mcp();
        let files = registry.file(&root).into_iter().collect();
        let done = if args.remove { registry.uninstall(&root)? } else { registry.install(&root)? };
        let then = registry.then.filter(|_| !args.remove || done == Became::ByHand);
        registered.push(HostSetup { host: host.name(), files, done, then, greets: true });
    }
    let run = hooks.iter().any(|host| host.runs_commands());
    let parsed: Vec<_> = hooks.iter().filter(|host| !host.runs_commands()).map(|host| host.name()).collect();
    for host in hooks {
        let setup = host.setup();
        let done = if args.remove { setup.uninstall(&root)? } else { setup.install(&root)? };
        let trust = host.trust(Surroundings::home().as_deref(), &root);
        let then = if args.remove { None } else { trust.what_to_do() };
        let greets = host.greet("").is_some();
        hooked.push(HostSetup { host: host.name(), files: setup.files(), done, then, greets });
    }
    let done = match args.remove {
        true if args.hosts.is_empty() && args.mcp.is_empty() => remove(&root, &state, &config)?,
        // The call is about one program only: the configuration stays.
        true if config.exists() => ConfigSetup::Kept,
        true => ConfigSetup::NothingToRemove,
        false => write(&root, &state, &config)?,
    };
    let done = match !args.remove && let_commands_run(&config, run, &parsed)? {
        true if done == ConfigSetup::Kept => ConfigSetup::Changed,
        _ => done,
    };
    // Checks an existing configuration now, not at the next write.
    let mut settings = if done == ConfigSetup::Kept { read_settings(&config)? } else { Settings::default() };
    let chosen = match &args.store {
        Some(store) => choose_store(&config, &mut settings, store)?,
        None => false,
    };
    if let (Some(_), StoreChoice::Engine(url)) = (&args.store, settings.vault.chosen_store()) {
        invocation.trust().agree_to_engine(url)?;
    }
    let vault = match &args.vault {
        Some(dir) => Some(make_vault(invocation, &root, &config, &settings, dir.as_deref())?),
        None => None,
    };
    let named = chosen || vault.as_ref().is_some_and(|vault| vault.named);
    let done = if done == ConfigSetup::Kept && named { ConfigSetup::Changed } else { done };
    let (git, state) = (root.join(".git").exists(), state.join("version").exists());
    let mut words = words::init(&root, found_by, done, git, state)
        + &programs
        + &words::hooked(&hooked)
        + &words::registered(&registered);
    if !args.remove {
        words += &words::next_steps(&hooked, &registered);
    }
    let mut json = json!({
        "workspace": root.to_string_lossy(),
        "config": config.to_string_lossy(),
        "done": done,
        "found": {"git": git, "state": state},
        "hosts": hooked,
        "mcp": registered,
    });
    let mut notes = String::new();
    if let Some(store) = &args.store {
        words = format!("{words}\n{}", words::store_chosen(store));
        json["store"] = store.as_str().into();
        if tells_password(store) && matches!(invocation.store_login(), Ok(Some(_))) {
            notes = words::password_unencrypted(store);
        }
    }
    if let Some(vault) = &vault {
        words = format!("{words}\n{}", words::vault_made(&invocation.viewpoint(), &vault.folder, vault.new));
        json["vault"] = vault.folder.to_string_lossy().into();
    }
    Ok(Answer::Done(Said { words, notes, json }))
}

/// The vault, and what `init` did.
struct Made {
    folder: PathBuf,
    /// `init` created it.
    new: bool,
    /// `init` added it to the configuration.
    named: bool,
}

/// Creates the vault's folders and adds the vault to the configuration.
fn make_vault(
    invocation: &Invocation,
    root: &Path,
    config: &Path,
    settings: &Settings,
    named: Option<&Path>,
) -> Result<Made, CliError> {
    let folder = match named {
        Some(named) => invocation.path(named)?,
        None => root.join(&settings.vault.dir),
    };
    if let Some(other) = shared_with(root, settings)? {
        let home = VaultHome::at(other)?;
        return match (named, home.has_vault()) {
            (None, true) => Ok(Made { folder: home.folder(), new: false, named: false }),
            _ => Err(UsageError::VaultOfMainTree(home.root).into()),
        };
    }
    let new = !is_vault(&folder);
    for state in State::ALL {
        let folder = folder.join(state.as_str());
        fs::create_dir_all(&folder).map_err(at("make the folder", &folder))?;
    }
    let folder = fs::canonicalize(&folder).map_err(at("open the vault", &folder))?;
    // Without this, a power cut after the answer could take the vault away.
    for made in [Some(folder.as_path()), folder.parent()].into_iter().flatten() {
        fs::File::open(made).and_then(|made| made.sync_all()).map_err(at("flush", made))?;
    }
    let dir = folder.strip_prefix(root).unwrap_or(&folder);
    let known = fs::canonicalize(root.join(&settings.vault.dir)).is_ok_and(|known| known == folder);
    let text = fs::read_to_string(config).map_err(at("read", config))?;
    let Some(dir) = dir.to_str() else { return Err(UsageError::VaultNameIsNotText.into()) };
    let text = with_vault(&text, dir, known);
    let named = text.is_some();
    if let Some(text) = text {
        match Settings::parse(&text, config) {
            Ok(now) if now.vault.dir == Path::new(dir) => {
                replace_file(config, text.as_bytes(), FileAccess::Normal)?;
            }
            _ => return Err(UsageError::NameTheVaultYourself(dir.to_owned()).into()),
        }
    }
    Ok(Made { folder, new, named })
}

/// Adds the store to the configuration. Returns whether it was not there.
fn choose_store(config: &Path, settings: &mut Settings, store: &str) -> Result<bool, CliError> {
    let choice = check_store(store)?;
    if *settings.vault.chosen_store() == choice {
        return Ok(false);
    }
    let text = fs::read_to_string(config).map_err(at("read", config))?;
    let line = format!("store = {}\n", serde_json::Value::from(store));
    let text = with_line(&text, STORE_LINE, line);
    match Settings::parse(&text, config) {
        Ok(now) if *now.vault.chosen_store() == choice => {
            replace_file(config, text.as_bytes(), FileAccess::Normal)?;
            *settings = now;
            Ok(true)
        }
        _ => Err(UsageError::ChooseTheStoreYourself(store.to_owned()).into()),
    }
}

/// The configuration with the vault added; `None` if it has the vault already.
fn with_vault(text: &str, dir: &str, known: bool) -> Option<String> {
    let line = format!("dir = {}\n", serde_json::Value::from(dir));
    if known && !text.contains(DIR_LINE) { None } else { Some(with_line(text, DIR_LINE, line)) }
}

/// The configuration with this line in `[vault]`, in place of the template's line if that is there.
fn with_line(text: &str, template: &str, line: String) -> String {
    if text.contains(template) {
        return text.replacen(template, &line, 1);
    }
    let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    match lines.iter().position(|found| found.trim_end() == "[vault]") {
        Some(at) => lines.insert(at + 1, line),
        None => lines.push(format!("\n[vault]\n{line}")),
    }
    lines.concat()
}

/// Lets shell commands run through `tollgate run`, except for those of the programs `parsed`, unless the user has decided about
/// it. Returns whether this changed the configuration.
fn let_commands_run(config: &Path, run: bool, parsed: &[&str]) -> Result<bool, Fault> {
    let text = fs::read_to_string(config).map_err(at("read", config))?;
    let [parse, transaction] = SHELL_LINES;
    let mut new = text.clone();
    if run {
        new = new.replacen(parse, transaction, 1);
    }
    if !parsed.is_empty() {
        new = new.replacen(PARSE_LINE, &format!("parse = {parsed:?}\n"), 1);
    }
    if new != text {
        replace_file(config, new.as_bytes(), FileAccess::Normal)?;
    }
    Ok(new != text)
}

/// Whether the text is the template, with any vault and store, and with commands that run in any way.
fn is_template(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let plain = |line: &str| match line.split_once(" = ") {
        Some(("dir", _)) => DIR_LINE.to_owned(),
        Some(("store", _)) => STORE_LINE.to_owned(),
        Some(("parse", _)) => PARSE_LINE.to_owned(),
        _ if SHELL_LINES.contains(&&*format!("{line}\n")) => SHELL_LINES[0].to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(plain).collect::<String>() == TEMPLATE
}

/// The programs that the call is about, for their MCP servers. A program that would get both hooks and the MCP server without
/// being named for both is an error, because each write of its agent would be checked twice.
fn registrars(
    args: &InitArgs,
    root: &Path,
    hooks: &[&'static dyn Host],
) -> Result<Vec<&'static dyn Host>, CliError> {
    let all = args.remove && args.mcp.is_empty() && args.hosts.is_empty();
    let is_meant = |host: &&'static dyn Host| {
        args.mcp.iter().any(|name| name == host.name()) || all && host.mcp().is_there(root)
    };
    let meant: Vec<_> = host::ALL.into_iter().filter(is_meant).collect();
    if !args.remove {
        let among = |hosts: &[&'static dyn Host], host: &dyn Host| {
            hosts.iter().any(|other| other.name() == host.name())
        };
        if let Some(host) = meant.iter().find(|host| !among(hooks, **host) && host.setup().is_there(root)) {
            return Err(UsageError::HasHooks(host.name()).into());
        }
        if let Some(host) = hooks.iter().find(|host| !among(&meant, **host) && host.mcp().is_there(root)) {
            return Err(UsageError::HasServer(host.name()).into());
        }
    }
    Ok(meant)
}

/// The programs that are used here, and how each was found.
fn found(root: &Path) -> Vec<(&'static str, String)> {
    let (home, path) = (Surroundings::home(), Surroundings::path());
    let why = |host: &dyn Host| match host::find(host, home.as_deref(), &path, root) {
        FoundHost { on_path: true, .. } => Some("on PATH".to_owned()),
        FoundHost { in_project: Some(name), .. } => Some(format!("`{name}` in this folder")),
        FoundHost { in_home: true, .. } => Some(format!("`~/{}`", host.traces().home)),
        _ => None,
    };
    host::ALL.into_iter().filter_map(|host| Some((host.name(), why(host)?))).collect()
}

/// The programs that the call is about, for their hooks. `--remove` is about all installed hooks unless programs are named.
fn chosen(args: &InitArgs, root: &Path) -> Vec<&'static dyn Host> {
    let all = args.hosts.iter().any(|name| name == "all");
    let is_meant = |host: &&'static dyn Host| {
        let named = args.hosts.iter().any(|name| name == host.name());
        let there = || host.setup().is_there(root);
        let found = || found(root).iter().any(|(name, _)| *name == host.name());
        // `all` does not give a program hooks if it has the MCP server.
        let other_door = || args.mcp.iter().any(|name| name == host.name()) || host.mcp().is_there(root);
        match args.remove {
            true => named || (all || args.hosts.is_empty() && args.mcp.is_empty()) && there(),
            false => named || all && found() && !other_door(),
        }
    };
    host::ALL.into_iter().filter(is_meant).collect()
}

fn write(root: &Path, state: &Path, config: &Path) -> Result<ConfigSetup, Fault> {
    // As private as the state that will be in it: the group has access only if it may write to the workspace, other users
    // never.
    let mode = fs::metadata(root).map_err(at("look at", root))?.mode();
    let mode = if mode & 0o020 == 0 { 0o700 } else { 0o770 };
    match fs::DirBuilder::new().mode(mode).create(state) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at("make", state)(error)),
        _ => {}
    }
    if config.symlink_metadata().is_ok() {
        return Ok(ConfigSetup::Kept);
    }
    // Whole and flushed: an empty configuration would silently mean the defaults.
    replace_file(config, TEMPLATE.as_bytes(), FileAccess::Normal)?;
    Ok(ConfigSetup::Written)
}

fn remove(root: &Path, state: &Path, config: &Path) -> Result<ConfigSetup, Fault> {
    match fs::read(config) {
        Ok(text) if is_template(&text) => {
            remove_empty_vault(&root.join(read_settings(config)?.vault.dir));
            fs::remove_file(config).map_err(at("remove", config))?;
            // Fails if it has state, which init did not add and does not remove.
            let _ = fs::remove_dir(state);
            Ok(ConfigSetup::Removed)
        }
        Ok(_) => Ok(ConfigSetup::KeptAsChanged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ConfigSetup::NothingToRemove),
        Err(error) => Err(at("read", config)(error)),
    }
}

/// Removes the vault's folders if they are empty, and the vault if nothing else is in it.
fn remove_empty_vault(vault: &Path) {
    for state in State::ALL {
        let _ = fs::remove_dir(vault.join(state.as_str()));
    }
    let _ = fs::remove_dir(vault);
}

fn at(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Fault {
    move |source| Fault::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::settings::Unread;

    #[test]
    fn the_template_has_the_defaults_except_for_unread_files() {
        let parse = |text: &str| Settings::parse(text, Path::new("config.toml"));
        let mut settings = parse(TEMPLATE).unwrap();
        assert_eq!(settings.guard.unread, Unread::Known);
        settings.guard.unread = Unread::default();
        assert_eq!(settings, Settings { version: Some(1), ..Settings::default() });

        let uncomment = |line: &str| match line.strip_prefix("# ") {
            Some(setting) if setting.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
                setting.to_owned()
            }
            _ => line.to_owned(),
        };
        let (settings_part, roles) = TEMPLATE.split_once("# What each agent").unwrap();
        assert!(roles.lines().all(|line| line.starts_with("# ") || line.starts_with(" may")), "{roles}");
        let all: String = settings_part.lines().map(|line| uncomment(line) + "\n").collect();
        assert!(all.contains("\nmax_age = ") && all.contains("\nprotected = "), "{all}");
        let mut settings = parse(&all).unwrap();
        settings.guard.unread = Unread::default();
        assert_eq!(settings, Settings { version: Some(1), ..Settings::default() });
    }

    #[test]
    fn the_vault_can_be_added_to_any_configuration() {
        let named = |text: &str| {
            let text = with_vault(text, "my tasks", false).unwrap();
            let dir = Settings::parse(&text, Path::new("config.toml")).map(|settings| settings.vault.dir);
            (text, dir)
        };
        for text in [TEMPLATE, "", "version = 1\n", "version = 1\n[vault]\nlease = \"1m\"\n"] {
            let (text, dir) = named(text);
            assert_eq!(dir.unwrap(), Path::new("my tasks"), "{text}");
        }
        let (text, _) = named(TEMPLATE);
        assert!(is_template(text.as_bytes()) && is_template(TEMPLATE.as_bytes()));
        assert!(!is_template(text.replace("known", "refuse").as_bytes()));
        // A configuration with another vault is left to its owner.
        assert!(named("\n[vault]\ndir = \"other\"\n").1.is_err());
        assert_eq!(with_vault("[vault]\ndir = \"x\"\n", "x", true), None);
    }
}

//! `tollgate init`: writes the configuration, and nothing else unless asked: a vault, hooks of agent programs, the MCP
//! server in their configuration.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::settings::Settings;
use tollgate::vault::state::State;
use tollgate::workspace::{STATE_FOLDER, read_settings};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::host::{self, Became, Host};
use crate::surroundings::Surroundings;
use crate::tasks::is_vault;
use crate::words;

/// Prepare a workspace: write `.tollgate/config.toml`
///
/// Writes a configuration that explains itself, and nothing else. A configuration that is there already stays as it
/// is, so it may be run again at any time. Files can be guarded without it: all settings have defaults.
///
/// With --vault the folders for tasks are made too, and the configuration says where they are.
///
/// An agent program is guarded through its hooks (--host), or its agent uses the tools of tollgate's MCP server (--mcp).
/// Both for one program are set up only if you name it with both.
///
/// With --remove the configuration is taken out again, unless you have changed it, and so are the vault's folders if they
/// are empty, hooks and MCP servers. The state (ledger, recovery) stays.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate init
  tollgate init --vault
  tollgate init -C ~/notes --vault ~/notes/tasks
  tollgate init --remove")]
pub(crate) struct Wish {
    /// Make the folders of a vault for tasks [default: `vault` in the workspace]
    #[arg(long, value_name = "DIR", conflicts_with = "remove", value_hint = clap::ValueHint::DirPath)]
    #[allow(clippy::option_option, reason = "so clap reads an option whose value may be left out")]
    vault: Option<Option<PathBuf>>,

    /// Set up the hooks of an agent program in this workspace, beside what is there; `all`: of those that are found
    #[arg(long = "host", value_name = "HOST", value_parser = hosts())]
    hosts: Vec<String>,

    /// Register the MCP server with an agent program in this workspace, beside what is there
    #[arg(long = "mcp", value_name = "HOST", value_parser = PossibleValuesParser::new(host::names()))]
    mcp: Vec<String>,

    /// Take out what init put in; with --host or --mcp only that
    #[arg(long)]
    remove: bool,
}

fn hosts() -> PossibleValuesParser {
    PossibleValuesParser::new(host::names().into_iter().chain(["all"]))
}

/// The hooks, or the MCP server, of one agent program, and what became of them.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Hooked {
    pub(crate) host: &'static str,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) done: Became,
    /// What a person still has to do.
    pub(crate) then: Option<&'static str>,
}

/// What became of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Done {
    /// It was written.
    Written,
    /// It was there.
    Kept,
    /// It was there, and names the vault now.
    Changed,
    /// It was taken out.
    Removed,
    /// The user has changed it, so it was not taken out.
    KeptAsChanged,
    /// There was none to take out.
    NothingToRemove,
}

/// The defaults are commented out: a later tollgate may know better ones. What is set is set on purpose.
const TEMPLATE: &str = r#"# tollgate: how the files of this workspace are guarded. This file is yours; it may be committed.
version = 1

[guard]
# What happens to a write of a file that was not read in the same turn:
#   "known"   compare it with what the agent last knew from its earlier turns
#   "allow"   let it through
#   "refuse"  refuse it until the file has been read
unread = "known"

# "enforce" refuses stale writes, "observe" only writes them to the ledger, "off" compares nothing.
# mode = "enforce"

# "durable": an acknowledged write survives a power cut. "fast" does not wait for the disk.
# durability = "durable"

# How long a write waits for other programs to close the file, and for other guarded writes.
# quiet_wait = "1s"
# lock_wait = "10s"

# Files with several names, and read-only files, are refused. "detach" and "replace" write them all the same.
# hard_links = "refuse"
# read_only = "refuse"

# More paths that agents must not change, relative to the workspace.
# protected = []

[recovery]
# Bytes that guarded writes replaced are kept this long, and not more than this.
# max_age = "7d"
# max_size = "256MiB"

[ledger]
# Past this size the ledger goes on in a new file.
# max_size = "64MiB"

[vault]
# Where the tasks are, relative to the workspace.
# dir = "vault"

# A claim by `task claim` lasts this long unless it is renewed. After so many attempts a task is rejected.
# lease = "30m"
# max_attempts = 3

# What each agent may do. One without a table may do everything.
# [agent.cloud]
# allowed = ["summarize"]
# sensitive = ["send_email"]
"#;

/// The line of the template that names the vault.
const DIR_LINE: &str = "# dir = \"vault\"\n";

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let (root, found_by) = door.root()?;
    let state = root.join(STATE_FOLDER);
    let config = state.join("config.toml");
    let (mut hooked, mut registered) = (Vec::new(), Vec::new());
    let hooks = chosen(wish, &root);
    for host in registrars(wish, &root, &hooks)? {
        let registry = host.mcp();
        let done = if wish.remove { registry.take(&root)? } else { registry.put(&root)? };
        let then = registry.then.filter(|_| !wish.remove || done == Became::ByHand);
        registered.push(Hooked { host: host.name(), files: registry.files(), done, then });
    }
    for host in hooks {
        let setup = host.setup();
        let done = if wish.remove { setup.take(&root)? } else { setup.put(&root)? };
        let trust = host.trust(Surroundings::home().as_deref(), &root);
        let then = if wish.remove { None } else { trust.what_to_do() };
        hooked.push(Hooked { host: host.name(), files: setup.files(), done, then });
    }
    let done = match wish.remove {
        true if wish.hosts.is_empty() && wish.mcp.is_empty() => remove(&root, &state, &config)?,
        // Asked about one program only: the rest of what init put in stays.
        true if config.exists() => Done::Kept,
        true => Done::NothingToRemove,
        false => write(&root, &state, &config)?,
    };
    // Better now than at the next write.
    let settings = if done == Done::Kept { read_settings(&config)? } else { Settings::default() };
    let vault = match &wish.vault {
        Some(dir) => Some(make_vault(door, &root, &config, &settings, dir.as_deref())?),
        None => None,
    };
    let named = vault.as_ref().is_some_and(|vault| vault.named);
    let done = if done == Done::Kept && named { Done::Changed } else { done };
    let (git, state) = (root.join(".git").exists(), state.join("version").exists());
    let mut words = words::init(&root, found_by, done, git, state)
        + &words::hooked(&hooked, wish.remove)
        + &words::registered(&registered);
    let mut json = json!({
        "workspace": root.to_string_lossy(),
        "config": config.to_string_lossy(),
        "done": done,
        "found": {"git": git, "state": state},
        "hosts": hooked,
        "mcp": registered,
    });
    if let Some(vault) = &vault {
        words = format!("{words}\n{}", words::vault_made(door, &vault.folder, vault.new));
        json["vault"] = vault.folder.to_string_lossy().into();
    }
    Ok(Answer::Done(Said { words, json, ..Said::default() }))
}

/// What became of the vault.
struct Made {
    folder: PathBuf,
    /// It was not there before.
    new: bool,
    /// The configuration had to be changed.
    named: bool,
}

/// Makes the vault's folders and names it in the configuration.
fn make_vault(
    door: &Door,
    root: &Path,
    config: &Path,
    settings: &Settings,
    named: Option<&Path>,
) -> Result<Made, Stop> {
    let folder = match named {
        Some(named) => door.path(named)?,
        None => root.join(&settings.vault.dir),
    };
    let new = !is_vault(&folder);
    for state in State::ALL {
        let folder = folder.join(state.as_str());
        fs::create_dir_all(&folder).map_err(at("make the folder", &folder))?;
    }
    let folder = fs::canonicalize(&folder).map_err(at("open the vault", &folder))?;
    let dir = folder.strip_prefix(root).unwrap_or(&folder);
    let known = fs::canonicalize(root.join(&settings.vault.dir)).is_ok_and(|known| known == folder);
    let text = fs::read_to_string(config).map_err(at("read", config))?;
    let Some(dir) = dir.to_str() else { return Err(words::vault_name_is_no_text()) };
    let text = with_vault(&text, dir, known);
    let named = text.is_some();
    if let Some(text) = text {
        match text.parse::<Settings>() {
            Ok(now) if now.vault.dir == Path::new(dir) => {
                fs::write(config, text).map_err(at("write", config))?;
            }
            _ => return Err(words::name_the_vault_yourself(dir)),
        }
    }
    Ok(Made { folder, new, named })
}

/// The configuration with the vault named in it; none if it need not be changed.
fn with_vault(text: &str, dir: &str, known: bool) -> Option<String> {
    let line = format!("dir = {}\n", serde_json::Value::from(dir));
    if text.contains(DIR_LINE) {
        return Some(text.replacen(DIR_LINE, &line, 1));
    }
    if known {
        return None;
    }
    let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    match lines.iter().position(|found| found.trim_end() == "[vault]") {
        Some(at) => lines.insert(at + 1, line),
        None => lines.push(format!("\n[vault]\n{line}")),
    }
    Some(lines.concat())
}

/// Whether this is the template, whatever vault it names.
fn is_template(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let plain = |line: &str| match line.strip_prefix("dir = ") {
        Some(_) => DIR_LINE.to_owned(),
        None => format!("{line}\n"),
    };
    text.lines().map(plain).collect::<String>() == TEMPLATE
}

/// The programs whose MCP servers are meant. A program that would get a second door without being named for both is
/// refused: its agent would be asked twice for one write.
fn registrars(wish: &Wish, root: &Path, hooks: &[&'static dyn Host]) -> Result<Vec<&'static dyn Host>, Stop> {
    let all = wish.remove && wish.mcp.is_empty() && wish.hosts.is_empty();
    let is_meant = |host: &&'static dyn Host| {
        wish.mcp.iter().any(|name| name == host.name()) || all && host.mcp().is_there(root)
    };
    let meant: Vec<_> = host::ALL.into_iter().filter(is_meant).collect();
    if !wish.remove {
        let among = |hosts: &[&'static dyn Host], host: &dyn Host| {
            hosts.iter().any(|other| other.name() == host.name())
        };
        if let Some(host) = meant.iter().find(|host| !among(hooks, **host) && host.setup().is_there(root)) {
            return Err(words::has_hooks(host.name()));
        }
        if let Some(host) = hooks.iter().find(|host| !among(&meant, **host) && host.mcp().is_there(root)) {
            return Err(words::has_server(host.name()));
        }
    }
    Ok(meant)
}

/// The programs whose hooks are meant. To be taken out: all that are set up, unless some are named.
fn chosen(wish: &Wish, root: &Path) -> Vec<&'static dyn Host> {
    let all = wish.hosts.iter().any(|name| name == "all");
    let is_meant = |host: &&'static dyn Host| {
        let named = wish.hosts.iter().any(|name| name == host.name());
        let there = || host.setup().is_there(root);
        let found = || host::is_found(*host, Surroundings::home().as_deref(), &Surroundings::path(), root);
        // Who means all that are found does not mean both doors for one of them.
        let other_door = || wish.mcp.iter().any(|name| name == host.name()) || host.mcp().is_there(root);
        match wish.remove {
            true => named || (all || wish.hosts.is_empty() && wish.mcp.is_empty()) && there(),
            false => named || all && found() && !other_door(),
        }
    };
    host::ALL.into_iter().filter(is_meant).collect()
}

fn write(root: &Path, state: &Path, config: &Path) -> Result<Done, Fault> {
    // As private as the state that will be in it: the group only if it may write the workspace, strangers never.
    let mode = fs::metadata(root).map_err(at("look at", root))?.mode();
    let mode = if mode & 0o020 == 0 { 0o700 } else { 0o770 };
    match fs::DirBuilder::new().mode(mode).create(state) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at("make", state)(error)),
        _ => {}
    }
    match fs::OpenOptions::new().write(true).create_new(true).open(config) {
        Ok(mut file) => {
            file.write_all(TEMPLATE.as_bytes()).map_err(at("write", config))?;
            Ok(Done::Written)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Done::Kept),
        Err(error) => Err(at("write", config)(error)),
    }
}

fn remove(root: &Path, state: &Path, config: &Path) -> Result<Done, Fault> {
    match fs::read(config) {
        Ok(text) if is_template(&text) => {
            remove_empty_vault(&root.join(read_settings(config)?.vault.dir));
            fs::remove_file(config).map_err(at("remove", config))?;
            // Only if it is empty: the state is not what init put in.
            let _ = fs::remove_dir(state);
            Ok(Done::Removed)
        }
        Ok(_) => Ok(Done::KeptAsChanged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Done::NothingToRemove),
        Err(error) => Err(at("read", config)(error)),
    }
}

/// Its folders if they are empty, and it itself if nothing else is in it.
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
    fn the_template_says_the_defaults_except_for_what_is_unread() {
        let mut settings: Settings = TEMPLATE.parse().unwrap();
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
        let mut settings: Settings = all.parse().unwrap();
        settings.guard.unread = Unread::default();
        assert_eq!(settings, Settings { version: Some(1), ..Settings::default() });
    }

    #[test]
    fn the_vault_is_named_in_any_configuration() {
        let named = |text: &str| {
            let text = with_vault(text, "my tasks", false).unwrap();
            let dir = text.parse::<Settings>().map(|settings| settings.vault.dir);
            (text, dir)
        };
        for text in [TEMPLATE, "", "version = 1\n", "version = 1\n[vault]\nlease = \"1m\"\n"] {
            let (text, dir) = named(text);
            assert_eq!(dir.unwrap(), Path::new("my tasks"), "{text}");
        }
        let (text, _) = named(TEMPLATE);
        assert!(is_template(text.as_bytes()) && is_template(TEMPLATE.as_bytes()));
        assert!(!is_template(text.replace("known", "refuse").as_bytes()));
        // Twice is for its owner to mend.
        assert!(named("\n[vault]\ndir = \"other\"\n").1.is_err());
        assert_eq!(with_vault("[vault]\ndir = \"x\"\n", "x", true), None);
    }
}

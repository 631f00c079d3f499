//! `tollgate init`: writes the configuration. On request it also creates a vault, installs the hooks of agent programs, and
//! registers the MCP server with them.
//!
//! Everything that can be checked is checked first. If a check fails, nothing is changed.

mod config_file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::json;
use tollgate::error::{At, Fault};
use tollgate::settings::StoreChoice;
use tollgate::tasks::{VaultHome, check_store, foreign_vault, is_vault, shared_with, tells_password};
use tollgate::trust::outside;
use tollgate::vault::state::State;
use tollgate::visible::plain;
use tollgate::workspace::{STATE_FOLDER, canonical, read_settings};
use tollgate_base::{private, sys};

use self::config_file::{ConfigFile, is_template};
use super::vault::check_address;
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::host::{self, FoundHost, Host, SetupChange};
use crate::invocation::Invocation;
use crate::output;
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

    /// Install hooks for an agent program in this workspace; several with commas between them, `all` for all found here
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',', value_parser = host_parser(Some("all")))]
    hosts: Vec<String>,

    /// Register the MCP server with an agent program in this workspace
    #[arg(long = "mcp", value_name = "HOST", value_delimiter = ',', value_parser = host_parser(None))]
    mcp: Vec<String>,

    /// Remove what init added; with --host or --mcp, remove only that
    #[arg(long)]
    remove: bool,
}

/// Reads the name of a host, or of the command that starts it.
fn host_parser(also: Option<&'static str>) -> impl TypedValueParser<Value = String> {
    let host = |host: &dyn Host| PossibleValue::new(host.name()).alias(host.traces().program);
    let values = host::ALL.into_iter().map(host).chain(also.map(PossibleValue::new));
    PossibleValuesParser::new(values).map(|name| {
        let named = host::ALL.into_iter().find(|host| host.traces().program == name);
        named.map_or(name, |host| host.name().to_owned())
    })
}

pub(crate) fn run(invocation: &Invocation, args: &InitArgs) -> Result<Answer, CliError> {
    let (root, found_by) = invocation.root()?;
    let is_here = invocation.base()?.canonicalize().is_ok_and(|here| here == root);
    if !args.remove && !is_here && invocation.contains_home(&root) {
        return Err(CliError::usage(
            format!(
                "this folder belongs to the workspace `{}`, which contains your home folder",
                root.display()
            ),
            "run `tollgate init -C .` to set up this folder instead",
        ));
    }
    let state = root.join(STATE_FOLDER);
    let path = state.join("config.toml");
    // First, because what is installed below is a trace as well.
    let programs = match args.hosts.iter().any(|name| name == "all") && !args.remove {
        true => words::programs_found(&found(&root), &host::names()),
        false => String::new(),
    };
    let hooks = chosen(args, &root);
    let servers = registrars(args, &root, &hooks)?;
    let plan = if args.remove { None } else { Some(InitPlan::of(invocation, &root, &path, args, &hooks)?) };
    check(args, &root, &hooks, &servers).map_err(words::nothing_changed)?;

    // A vault that stays, because it is not empty.
    let mut kept = None;
    let done = match &plan {
        Some(plan) => plan.carry_out(invocation, &root)?,
        None if args.hosts.is_empty() && args.mcp.is_empty() => remove(&root, &state, &path, &mut kept)?,
        // The call is about one program only: the configuration stays.
        None if path.exists() => ConfigSetup::Kept,
        None => ConfigSetup::NothingToRemove,
    };
    let (mut registered, mut hooked) = (Vec::new(), Vec::new());
    let installed =
        register(args, &root, servers, &mut registered).and_then(|()| hook(args, &root, hooks, &mut hooked));
    let (git, found_state) = (root.join(".git").exists(), state.join("version").exists());
    let added = plan.as_ref().map(|plan| plan.config.added()).unwrap_or_default();
    let mut words = words::init(&root, found_by, done, added, git, found_state)
        + &programs
        + &words::hooked(&hooked)
        + &words::registered(&registered);
    // No check has foreseen it: a full disk, a missing permission.
    if let Err(fault) = installed {
        output::tell(&words);
        return Err(fault.into());
    }
    if let Some(vault) = &kept {
        words = format!("{words}\n{}", words::vault_kept(&invocation.viewpoint(), vault));
    }
    if !args.remove {
        words += &words::next_steps(&hooked, &registered);
    }
    let mut json = json!({
        "workspace": root.to_string_lossy(),
        "config": path.to_string_lossy(),
        "done": done,
        "found": {"git": git, "state": found_state},
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
    if let Some(vault) = plan.as_ref().and_then(|plan| plan.vault.as_ref()) {
        words = format!("{words}\n{}", words::vault_made(&invocation.viewpoint(), &vault.folder, vault.new));
        json["vault"] = vault.folder.to_string_lossy().into();
    }
    Ok(Answer::Done(Reply { words, notes, json }))
}

/// What `init` will do to the configuration and the vault, checked before anything is changed.
struct InitPlan {
    config: ConfigFile,
    /// The engine that the user has chosen with this call.
    engine: Option<String>,
    vault: Option<PlannedVault>,
}

impl InitPlan {
    fn of(
        invocation: &Invocation,
        root: &Path,
        path: &Path,
        args: &InitArgs,
        hooks: &[&'static dyn Host],
    ) -> Result<Self, CliError> {
        let mut config = ConfigFile::read(path)?;
        let run = hooks.iter().any(|host| host.runs_commands());
        let parsed: Vec<_> =
            hooks.iter().filter(|host| !host.runs_commands()).map(|host| host.name()).collect();
        config.let_commands_run(run, &parsed);
        let mut engine = None;
        if let Some(store) = &args.store {
            check_address(store, ["TOLLGATE_STORE_USER", "TOLLGATE_STORE_PASSWORD"])?;
            let choice = check_store(store)?;
            if !config.add_store(store, &choice) {
                return Err(CliError::usage(
                    "could not add the store to `.tollgate/config.toml`, so nothing was changed: the file names another \
                     store, or has an unusual form",
                    format!("set `store = \"{}\"` under `[vault]` in that file", plain(store)),
                ));
            }
            if let StoreChoice::Engine(url) = choice {
                engine = Some(url);
            }
        }
        let vault = match &args.vault {
            Some(dir) => Some(PlannedVault::of(invocation, root, &mut config, dir.as_deref())?),
            None => None,
        };
        Ok(Self { config, engine, vault })
    }

    fn carry_out(&self, invocation: &Invocation, root: &Path) -> Result<ConfigSetup, Fault> {
        // The configuration comes last: it must not name a vault that could not be made.
        if let Some(vault) = &self.vault {
            vault.make()?;
        }
        if let Some(url) = &self.engine {
            invocation.trust().agree_to_engine(url)?;
        }
        if let Some(folder) = self.vault.as_ref().and_then(|vault| vault.chosen_outside.as_ref()) {
            invocation.trust().agree_to_folder(root, folder)?;
        }
        self.config.save(root)
    }
}

/// A vault that `init` makes or finds.
struct PlannedVault {
    folder: PathBuf,
    /// There is no vault yet.
    new: bool,
    /// Another git worktree has the vault, so this call does not make its folders.
    shared: bool,
    /// The folder of the vault, if it is outside the workspace and this call names it.
    chosen_outside: Option<PathBuf>,
}

impl PlannedVault {
    /// Adds the vault to the configuration.
    fn of(
        invocation: &Invocation,
        root: &Path,
        config: &mut ConfigFile,
        named: Option<&Path>,
    ) -> Result<Self, CliError> {
        let settings = config.settings();
        if let Some(other) = shared_with(root, settings)? {
            let home = VaultHome::at(other)?;
            return match (named, home.has_vault()) {
                (None, true) => {
                    Ok(Self { folder: home.folder(), new: false, shared: true, chosen_outside: None })
                }
                _ => Err(CliError::usage(
                    format!("this git worktree shares the vault of `{}`", home.root.display()),
                    format!(
                        "run `tollgate init --vault -C {}` to create or change it; for a vault of this tree alone, set `tree = \
                         \"own\"` under `[vault]` in `.tollgate/config.toml` first",
                        words::quoted(&home.root)
                    ),
                )),
            };
        }
        let known = canonical(&root.join(settings.vault.dir()))?;
        let folder = match named {
            Some(named) => canonical(&invocation.path(named)?)?,
            None => known.clone(),
        };
        let chosen_outside = outside(root, &folder);
        if let Some(folder) = chosen_outside.as_ref().filter(|_| named.is_none())
            && !invocation.trust().trusts_folder(root, folder)
        {
            // The configuration names it, and may come from somebody else.
            return Err(foreign_vault(root, folder).into());
        }
        if let Some(file) = folder.ancestors().find(|path| path.exists()).filter(|path| !path.is_dir()) {
            let source = io::ErrorKind::NotADirectory.into();
            return Err(Fault::Io { doing: "make the vault in", path: file.to_owned(), source }.into());
        }
        let dir = match folder.strip_prefix(root) {
            Ok(below) if below.as_os_str().is_empty() => Path::new("."),
            Ok(below) => below,
            Err(_) => &folder,
        };
        let Some(dir) = dir.to_str() else {
            return Err(CliError::usage(
                "the name of the vault's folder is not UTF-8",
                "choose another name",
            ));
        };
        if !config.add_vault(dir, known == folder) {
            return Err(CliError::usage(
                "could not add the vault to `.tollgate/config.toml`, so nothing was changed: the file names another vault, or \
                 has an unusual form",
                format!(
                    "set `dir = \"{}\"` under `[vault]` in that file, then run the command again",
                    plain(dir)
                ),
            ));
        }
        Ok(Self { new: !is_vault(&folder), folder, shared: false, chosen_outside })
    }

    /// Makes its folders.
    fn make(&self) -> Result<(), Fault> {
        let folder = &self.folder;
        if self.shared {
            return Ok(());
        }
        for state in State::ALL {
            let folder = folder.join(state.as_str());
            fs::create_dir_all(&folder).at("make the folder", &folder)?;
        }
        // Without this, a power cut after the answer could take the vault away.
        for made in [Some(folder.as_path()), folder.parent()].into_iter().flatten() {
            fs::File::open(made).and_then(sys::flush).at("flush", made)?;
        }
        Ok(())
    }
}

/// Checks that the hooks and servers can be installed or removed.
fn check(
    args: &InitArgs,
    root: &Path,
    hooks: &[&'static dyn Host],
    servers: &[&'static dyn Host],
) -> Result<(), Fault> {
    for host in servers {
        let registry = host.mcp();
        if args.remove { registry.can_uninstall(root)? } else { registry.can_install(root)? }
    }
    for host in hooks {
        let setup = host.setup();
        if args.remove { setup.can_uninstall(root)? } else { setup.can_install(root)? }
    }
    Ok(())
}

fn register(
    args: &InitArgs,
    root: &Path,
    servers: Vec<&'static dyn Host>,
    registered: &mut Vec<HostSetup>,
) -> Result<(), Fault> {
    for host in servers {
        let registry = host.mcp();
        let files = registry.file(root).into_iter().collect();
        let done = if args.remove { registry.uninstall(root)? } else { registry.install(root)? };
        let then = registry.next_step(root).filter(|_| !args.remove || done == SetupChange::ByHand);
        registered.push(HostSetup { host: host.name(), files, done, then, greets: true, shell: None });
    }
    Ok(())
}

fn hook(
    args: &InitArgs,
    root: &Path,
    hooks: Vec<&'static dyn Host>,
    hooked: &mut Vec<HostSetup>,
) -> Result<(), Fault> {
    let run = read_settings(&root.join(STATE_FOLDER).join("config.toml")).unwrap_or_default().run;
    for host in hooks {
        let setup = host.setup();
        let done = if args.remove { setup.uninstall(root)? } else { setup.install(root)? };
        let trust = host.trust(Surroundings::home().as_deref(), root);
        let then = if args.remove { None } else { trust.what_to_do().map(str::to_owned) };
        let greets = host.greet("").is_some();
        let shell = (!args.remove).then(|| host.shell_commands(&run));
        hooked.push(HostSetup { host: host.name(), files: setup.files(), done, then, greets, shell });
    }
    Ok(())
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
            let host = host.name();
            return Err(CliError::usage(
                format!(
                    "`{host}` has hooks here; with the MCP server as well, tollgate would check each write of its agent twice"
                ),
                format!(
                    "first remove the hooks with `tollgate init --host {host} --remove`, or, if you want both, run `tollgate \
                     init --host {host} --mcp {host}`"
                ),
            ));
        }
        if let Some(host) = hooks.iter().find(|host| !among(&meant, **host) && host.mcp().is_there(root)) {
            let host = host.name();
            return Err(CliError::usage(
                format!(
                    "`{host}` has the MCP server here; with hooks as well, tollgate would check each write of its agent twice"
                ),
                format!(
                    "first remove the server with `tollgate init --mcp {host} --remove`, or, if you want both, run `tollgate \
                     init --host {host} --mcp {host}`"
                ),
            ));
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

/// Removes the configuration and an empty vault. `kept` becomes a vault that is not empty.
fn remove(
    root: &Path,
    state: &Path,
    config: &Path,
    kept: &mut Option<PathBuf>,
) -> Result<ConfigSetup, Fault> {
    match fs::read(config) {
        Ok(text) if is_template(&text) => {
            let vault = root.join(read_settings(config)?.vault.dir());
            if !remove_empty_vault(&vault) {
                *kept = Some(vault);
            }
            private::remove_file(config).at("remove", config)?;
            // Fails if it has state, which init did not add and does not remove.
            let _ = private::remove_folder(state);
            Ok(ConfigSetup::Removed)
        }
        Ok(_) => Ok(ConfigSetup::KeptAsChanged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ConfigSetup::NothingToRemove),
        Err(error) => Err(error).at("read", config),
    }
}

/// Removes the vault's folders if all of them are empty, and the vault if nothing else is in it. Whether it is gone.
fn remove_empty_vault(vault: &Path) -> bool {
    let is_empty = |folder: &PathBuf| fs::read_dir(folder).map_or(true, |mut names| names.next().is_none());
    let folders = State::ALL.map(|state| vault.join(state.as_str()));
    if !folders.iter().all(is_empty) {
        return false;
    }
    for folder in &folders {
        let _ = fs::remove_dir(folder);
    }
    // It may have state, which init did not add and does not remove.
    fs::remove_dir(vault).is_ok() || !vault.exists()
}

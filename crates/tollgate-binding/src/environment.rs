//! What a workspace gets from the environment of the process: the same as from the command line.
//!
//! No other file of this crate reads the environment.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tollgate::error::{Fault, Result};
use tollgate::fence::{ClaimFence, WriteFence};
use tollgate::git_config;
use tollgate::name::Agent;
use tollgate::protected::Protected;
use tollgate::settings::StoreChoice;
use tollgate::tasks::{StoreLogin, TaskOptions, VaultHome, workspace_id};
use tollgate::trust::Agreements;
use tollgate::workspace::{Options, STATE_FOLDER, Workspace};
use tollgate_base::private;

/// The files that enable or disable the hooks of agent programs, as ends of paths. A test of the command line compares them
/// with its own.
const SWITCHES: &str = include_str!("../../tollgate-cli/src/host/switches.txt");

fn text(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The XDG specification says to ignore relative paths.
fn folder(name: &str) -> Option<PathBuf> {
    text(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// One of the user's own folders. Their home may be behind a link; below this folder, nothing of tollgate is.
fn own(folder: PathBuf) -> PathBuf {
    private::without_links(&folder)
}

fn state() -> Option<PathBuf> {
    folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local").join("state"))).map(own)
}

fn config() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config"))).map(own)
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn agreements() -> Agreements {
    let sudo = text("SUDO_UID").and_then(|uid| uid.to_str()?.parse().ok());
    Agreements::new(state().as_deref(), uid(), sudo)
}

/// The agent that the caller names, else the one that the environment names.
pub(crate) fn agent(named: Option<&str>) -> Result<Agent> {
    match named.map(str::to_owned).or_else(|| Some(text("TOLLGATE_AGENT")?.to_string_lossy().into_owned())) {
        Some(name) => name.parse(),
        None => Err(Fault::invalid("name the agent, or set `TOLLGATE_AGENT`")),
    }
}

/// How this process opens a workspace. A fault if its state belongs to another user.
pub(crate) fn options(root: &Path) -> Result<Options> {
    refuse_strangers(root)?;
    let own = [state(), config(), folder("XDG_RUNTIME_DIR").map(own)].into_iter().flatten();
    let in_memory = ["/dev/shm", "/tmp"].map(|folder| Path::new(folder).join(format!("tollgate-{}", uid())));
    let named = text("GIT_CONFIG_GLOBAL").map(PathBuf::from);
    let of_git = git_config::of_user(folder("HOME").as_deref(), config().as_deref(), named);
    let paths = own.map(|folder| folder.join("tollgate")).chain(in_memory).chain(of_git).collect();
    let anywhere = SWITCHES.lines().map(PathBuf::from).collect();
    let protected = Protected { paths, anywhere, ..Protected::default() };
    Ok(Options { ledger_head: ledger_head(root)?, protected, state: inner_state(root), ..Options::default() })
}

/// The folder for state in the view of `tollgate run`, where that of the workspace cannot be written.
fn inner_state(root: &Path) -> Option<PathBuf> {
    let found = rustix::fs::statvfs(root.join(STATE_FOLDER)).ok()?;
    let is_closed = found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    folder("TOLLGATE_RUN_FOLDER").filter(|_| is_closed).map(|run| run.join("inner"))
}

fn refuse_strangers(root: &Path) -> Result<()> {
    match agreements().stranger(root) {
        Some(owner) => Err(Fault::invalid(format!(
            "`{}/.tollgate` belongs to another user, with the id {owner}: see `tollgate trust`",
            root.display()
        ))),
        None => Ok(()),
    }
}

fn ledger_head(root: &Path) -> Result<Option<PathBuf>> {
    let id = workspace_id(root)?;
    Ok(state().map(|state| state.join("tollgate").join("heads").join(id)))
}

/// How this process opens the vault of a workspace.
pub(crate) fn task_options(home: &VaultHome) -> Result<TaskOptions> {
    refuse_strangers(&home.root)?;
    Ok(TaskOptions {
        observer: None,
        own_ssh: text("GIT_SSH_COMMAND").or_else(|| text("GIT_SSH")).is_some(),
        ledger_head: ledger_head(&home.root)?,
        login: login(home)?,
        passfile: text("PGPASSFILE").map(PathBuf::from).or_else(|| Some(folder("HOME")?.join(".pgpass"))),
        agreements: Some(agreements()),
    })
}

/// The login for an engine.
fn login(home: &VaultHome) -> Result<Option<StoreLogin>> {
    let StoreChoice::Engine(_) = home.settings.vault.chosen_store() else { return Ok(None) };
    let word = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    match (word("TOLLGATE_STORE_USER"), word("TOLLGATE_STORE_PASSWORD")) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(StoreLogin { user, password })),
        _ => Err(Fault::invalid(
            "set both `TOLLGATE_STORE_USER` and `TOLLGATE_STORE_PASSWORD`, or none of them",
        )),
    }
}

/// The fence around the claim under which this process was started, if it was.
pub(crate) fn given_fence(workspace: &Workspace) -> Result<Option<WriteFence>> {
    let (Some(claim), Some(task)) = (text("TOLLGATE_CLAIM_ID"), text("TOLLGATE_TASK_ID")) else {
        return Ok(None);
    };
    let (claim, task) = (claim.to_string_lossy().parse()?, task.to_string_lossy().parse()?);
    let fence = ClaimFence::given(workspace, folder("TOLLGATE_VAULT").as_deref(), task_options)?;
    Ok(Some(fence.around(task, claim)))
}

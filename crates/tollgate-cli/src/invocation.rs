//! One call of the command: from its arguments and its environment to a workspace, a turn and a gate.
//!
//! Three things are outside the workspace: the folder for turns, the last known head of the ledger, and the tokens of agents.
//! This file knows where they are. All are kept per workspace, under its id.

mod identity;
mod in_run;
mod turns;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jiff::Timestamp;
use tollgate::error::{Fault, MissingKind};
use tollgate::fence::{ClaimFence, WriteFence};
use tollgate::gate::Gate;
use tollgate::git_config;
use tollgate::ledger::Ledger;
use tollgate::name::{Agent, TurnId};
use tollgate::protected::Protected;
use tollgate::settings::{LedgerSettings, Settings, Unfinished, Unread};
use tollgate::shared_turn::Leaves;
use tollgate::tasks::{StoreLogin, open_workspace, workspace_id};
use tollgate::turn::{Session, Turn, TurnState};
use tollgate::workspace::{Options, STATE_FOLDER, Workspace, has_state, read_settings};
use tollgate_base::private;
use tollgate_server::tokens::TokenFile;

use crate::answer::Form;
use crate::error::CliError;
use crate::global_args::GlobalArgs;
use crate::host;
use crate::root::{self, RootReason};
use crate::surroundings::Surroundings;
use crate::trust::TrustStore;
use crate::turn_place::turn_folders_without_runtime;
use crate::words::{self, Viewpoint};

/// The arguments and the environment of this call.
#[derive(Debug)]
pub(crate) struct Invocation {
    global: GlobalArgs,
    surroundings: Surroundings,
    /// Found once.
    root: OnceLock<(PathBuf, RootReason)>,
    ignored: OnceLock<Vec<(PathBuf, u32)>>,
    created: OnceLock<PathBuf>,
    /// Where to find notes for the agent, if the call belongs to a given turn.
    turn_used: OnceLock<Workspace>,
}

impl Invocation {
    pub(crate) fn new(surroundings: Surroundings, global: GlobalArgs) -> Self {
        Self {
            global,
            surroundings,
            root: OnceLock::new(),
            ignored: OnceLock::new(),
            created: OnceLock::new(),
            turn_used: OnceLock::new(),
        }
    }

    /// This call, with the same options, for another workspace.
    pub(crate) fn elsewhere(&self, workspace: &Path) -> Self {
        let mut global = self.global.clone();
        global.workspace = Some(workspace.to_owned());
        Self::new(Surroundings::look(), global)
    }

    /// A call for another workspace, with separate folders for turns and state.
    pub(crate) fn apart(root: &Path, runtime: &Path, state: &Path, agent: Option<Agent>) -> Self {
        let surroundings = Surroundings {
            turn: None,
            agent: None,
            claim_id: None,
            task_id: None,
            vault: None,
            runtime: Some(runtime.to_owned()),
            state: Some(state.to_owned()),
            ..Surroundings::look()
        };
        Self::new(surroundings, GlobalArgs::of(root, agent))
    }

    /// The global options.
    pub(crate) fn global(&self) -> &GlobalArgs {
        &self.global
    }

    pub(crate) fn form(&self) -> Form {
        self.global.form()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// The place and the time of the reader of this call's messages.
    pub(crate) fn viewpoint(&self) -> Viewpoint {
        let base = self.base().ok().and_then(|base| base.canonicalize().ok());
        Viewpoint { base, now: self.now() }
    }

    /// The environment of this call, as it is: without the options, which may say something else.
    pub(crate) fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// The folder that relative paths are relative to.
    pub(crate) fn base(&self) -> Result<PathBuf, Fault> {
        let folder = match (&self.surroundings.folder, &self.global.workspace) {
            (_, Some(given)) if given.is_absolute() => return Ok(given.clone()),
            (Ok(folder), _) => folder,
            (Err(_), _) => return Err(Fault::missing(MissingKind::CurrentFolder, "the current folder")),
        };
        Ok(match &self.global.workspace {
            Some(given) => folder.join(given),
            None => folder.clone(),
        })
    }

    /// The absolute path of a path that the user gave.
    pub(crate) fn path(&self, given: &Path) -> Result<PathBuf, Fault> {
        if given.as_os_str().is_empty() {
            return Err(Fault::invalid_with_hint("the path is empty", "give the path of a file"));
        }
        Ok(self.base()?.join(given))
    }

    /// The root of the workspace, canonical, and why it is the root.
    pub(crate) fn root(&self) -> Result<(PathBuf, RootReason), Fault> {
        if let Some(root) = self.root.get() {
            return Ok(root.clone());
        }
        let (store, mut ignored) = (self.trust(), Vec::new());
        let accepts = |root: &Path| match store.stranger(root) {
            Some(owner) => {
                ignored.push((root.to_owned(), owner));
                false
            }
            None => true,
        };
        let root = root::find(&self.base()?, self.global.workspace.is_some(), accepts)?;
        self.ignored.get_or_init(|| ignored);
        Ok(self.root.get_or_init(|| root).clone())
    }

    /// The root, even if its state belongs to another user: the nearest folder upward with a state.
    pub(crate) fn own_root(&self) -> Result<PathBuf, Fault> {
        Ok(root::find(&self.base()?, self.global.workspace.is_some(), |_| true)?.0)
    }

    /// What the user trusts.
    pub(crate) fn trust(&self) -> TrustStore {
        let Surroundings { state, config, uid, sudo, .. } = &self.surroundings;
        TrustStore::new(state.as_deref(), config.as_deref(), *uid, *sudo)
    }

    /// Whether the state of this workspace is the user's own, or trusted.
    pub(crate) fn accepts(&self, root: &Path) -> bool {
        self.trust().stranger(root).is_none()
    }

    /// The workspaces between the current folder and the root that were ignored when the root was found, with the owners of
    /// their states.
    pub(crate) fn ignored(&self) -> &[(PathBuf, u32)] {
        self.ignored.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the workspace has state. Commands that only read check this first, so that they never create state.
    pub(crate) fn has_state(&self) -> Result<bool, Fault> {
        Ok(self.root()?.0.join(STATE_FOLDER).join("version").exists())
    }

    pub(crate) fn workspace(&self) -> Result<Workspace, Fault> {
        self.workspace_of(self.writer().as_ref())
    }

    /// The workspace, for an agent that may write its own tasks.
    pub(crate) fn workspace_of(&self, agent: Option<&Agent>) -> Result<Workspace, Fault> {
        self.workspace_with(agent, None)
    }

    /// The settings of the workspace.
    pub(crate) fn settings(&self) -> Result<Settings, Fault> {
        let (root, _) = self.root()?;
        self.refuse_stranger(&root)?;
        read_settings(&root.join(STATE_FOLDER).join("config.toml"))
    }

    fn refuse_stranger(&self, root: &Path) -> Result<(), Fault> {
        match self.trust().stranger(root) {
            Some(owner) => Err(words::foreign_state(root, owner)),
            None => Ok(()),
        }
    }

    /// The workspace, with settings that were read before. Creates state where there is none, except in a folder that contains
    /// the user's home and that the user did not name.
    fn workspace_with(&self, agent: Option<&Agent>, settings: Option<Settings>) -> Result<Workspace, Fault> {
        let (root, found_by) = self.root()?;
        let is_set_up = has_state(&root);
        if !is_set_up && found_by != RootReason::Name && self.contains_home(&root) {
            return Err(words::home_is_not_set_up(&root));
        }
        self.refuse_stranger(&root)?;
        let state = self.inner_state();
        let settings = match settings {
            None if state.is_some() => Some(read_settings(&root.join(STATE_FOLDER).join("config.toml"))?),
            settings => settings,
        };
        let options = Options {
            // The run judges what the command may overwrite.
            settings: settings
                .map(|settings| if state.is_some() { judged_later(settings) } else { settings }),
            state,
            ledger_head: self.ledger_head(&root)?,
            protected: self.protected(),
            ..Options::default()
        };
        let workspace = open_workspace(&root, agent, options)?;
        if !is_set_up {
            self.created.get_or_init(|| root);
        }
        Ok(workspace)
    }

    /// Whether a folder is the user's home, or contains it: as a workspace it would take in every project of the user.
    pub(crate) fn contains_home(&self, folder: &Path) -> bool {
        let home = Surroundings::home().map(|home| home.canonicalize().unwrap_or(home));
        home.is_some_and(|home| home.starts_with(folder))
    }

    /// The workspace in which this call has created state, because it was not set up.
    pub(crate) fn created(&self) -> Option<&Path> {
        self.created.get().map(PathBuf::as_path)
    }

    /// What agents must not change here: the switches of agent programs, the user's own folders for tollgate, and what git and the
    /// programs read in the user's home.
    fn protected(&self) -> Protected {
        let Surroundings { state, config, runtime, uid, .. } = &self.surroundings;
        let own = [state, config, runtime].into_iter().flatten().map(|folder| folder.join("tollgate"));
        // Also what links lead to that are in the user's home.
        let home = Surroundings::home().map(|home| private::without_links(&home));
        let of_programs = host::own_settings(home.as_deref());
        let of_programs = of_programs.into_iter().flat_map(|file| [private::without_links(&file), file]);
        let paths = own
            .chain(turn_folders_without_runtime(*uid))
            .chain(self.git_settings())
            .chain(of_programs)
            .collect();
        Protected { paths, anywhere: host::switches(), ..Protected::default() }
    }

    /// The files with the user's configuration of git.
    fn git_settings(&self) -> Vec<PathBuf> {
        let named = Surroundings::folder_in("GIT_CONFIG_GLOBAL");
        git_config::of_user(Surroundings::home().as_deref(), self.surroundings.config.as_deref(), named)
    }

    /// The gate. If the environment names a claim, it lets nothing through once the claim is lost.
    pub(crate) fn gate(&self) -> Result<Gate, Fault> {
        self.fenced(self.workspace()?)
    }

    /// The gate for an agent that this process works for, with settings that were read before.
    pub(crate) fn gate_of(&self, agent: &Agent, settings: Settings) -> Result<Gate, Fault> {
        self.fenced(self.workspace_with(Some(agent), Some(settings))?)
    }

    fn fenced(&self, workspace: Workspace) -> Result<Gate, Fault> {
        let gate = Gate::new(workspace);
        // The run asks when it commits what is changed in its view.
        if self.inner_state().is_some() {
            return Ok(gate);
        }
        Ok(match self.fence(gate.workspace())? {
            Some(fence) => gate.fenced(fence),
            None => gate,
        })
    }

    /// The fence around the claim under which this process was started. The claim is of the vault that the environment names,
    /// else of that of the workspace.
    fn fence(&self, workspace: &Workspace) -> Result<Option<WriteFence>, Fault> {
        let Surroundings { claim_id: Some(claim), task_id: Some(task), vault, .. } = &self.surroundings
        else {
            return Ok(None);
        };
        let named = |name, why| Fault::invalid_with_hint(words::bad_variable(name, &why), words::UNSET_IT);
        let claim = claim.to_string_lossy().parse().map_err(|why| named("TOLLGATE_CLAIM_ID", why))?;
        let task = task.to_string_lossy().parse().map_err(|why| named("TOLLGATE_TASK_ID", why))?;
        let fence = ClaimFence::given(workspace, vault.as_deref(), |home| self.task_options(&home.root))?;
        Ok(Some(fence.around(task, claim)))
    }

    /// The ledger alone. It can be read even if the workspace cannot be opened.
    pub(crate) fn ledger(&self) -> Result<Ledger, Fault> {
        let (root, _) = self.root()?;
        let state = root.join(STATE_FOLDER);
        let max_size = LedgerSettings::default().max_size.0;
        let head = self.ledger_head(&root)?;
        Ok(Ledger::new(&state, &state.join("locks").join("ledger"), max_size, head))
    }

    /// The file with the last known head of the ledger; `None` if the user has no folder for state.
    pub(crate) fn ledger_head(&self, root: &Path) -> Result<Option<PathBuf>, Fault> {
        let id = workspace_id(root)?;
        Ok(self.surroundings.state.as_ref().map(|state| state.join("tollgate").join("heads").join(id)))
    }

    /// The file with the tokens of agents; `None` if the user has no folder for state.
    pub(crate) fn token_file(&self, root: &Path) -> Result<Option<TokenFile>, Fault> {
        let name = format!("{}.json", workspace_id(root)?);
        Ok(self.user_state().map(|state| TokenFile::new(state.join("tokens").join(name))))
    }

    /// Who the user is for the engine that the workspace uses.
    pub(crate) fn store_login(&self) -> tollgate::error::Result<Option<StoreLogin>> {
        login(&self.surroundings.store_login, "TOLLGATE_STORE_USER", "TOLLGATE_STORE_PASSWORD")
    }

    /// Who the user is for the engine that a vault is copied to or from.
    pub(crate) fn copy_login(&self) -> tollgate::error::Result<Option<StoreLogin>> {
        login(&self.surroundings.copy_login, "TOLLGATE_COPY_USER", "TOLLGATE_COPY_PASSWORD")
    }

    /// The user's folder for tollgate's state.
    pub(crate) fn user_state(&self) -> Option<PathBuf> {
        self.surroundings.state.as_ref().map(|state| state.join("tollgate"))
    }

    /// The turn given by an argument or by the environment.
    pub(crate) fn turn_id(&self) -> Result<Option<TurnId>, CliError> {
        match (&self.global.turn, &self.surroundings.turn) {
            (Some(id), _) => Ok(Some(id.clone())),
            (None, Some(id)) => from_environment("TOLLGATE_TURN", id).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The turn of this command: the given one, else a new one for this command alone.
    pub(crate) fn turn(&self, gate: &Gate) -> Result<Box<dyn TurnState>, CliError> {
        if self.turn_id()?.is_some() && self.inner_state().is_none() {
            self.turn_used.get_or_init(|| gate.workspace().clone());
            return Ok(Box::new(self.shared_turn()?.1));
        }
        let agent = self.agent()?;
        let session = self.session(gate, &agent)?;
        Ok(Box::new(Turn::begin_in(TurnId::new()?, agent, session)))
    }

    /// What this agent knew in earlier turns and commands, if the settings ask for it.
    pub(crate) fn session(&self, gate: &Gate, agent: &Agent) -> Result<Session, Fault> {
        match gate.workspace().settings().into() {
            _ if self.inner_state().is_some() => Ok(Session::default()),
            Leaves::Known => self.new_turns()?.session(agent),
            Leaves::Nothing => Ok(Session::default()),
        }
    }
}

fn from_environment<T>(name: &'static str, value: &OsString) -> Result<T, CliError>
where
    T: std::str::FromStr<Err = Fault>,
{
    let parsed = value.to_string_lossy().parse();
    parsed.map_err(|why| CliError::usage(words::bad_variable(name, &why), words::UNSET_IT))
}

/// Settings for files in the view of a run, whose commit compares them with what the agent knows.
fn judged_later(mut settings: Settings) -> Settings {
    settings.guard.unread = Unread::Allow;
    settings.guard.unfinished = Unfinished::Allow;
    settings.git.stay = false;
    settings
}

/// A login from two variables, which are set both or not at all.
fn login(
    values: &(Option<String>, Option<String>),
    user_name: &str,
    password_name: &str,
) -> tollgate::error::Result<Option<StoreLogin>> {
    match values.clone() {
        (Some(user), Some(password)) => Ok(Some(StoreLogin { user, password })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Fault::invalid(words::half_a_login(user_name, password_name))),
        (None, Some(_)) => Err(Fault::invalid(words::half_a_login(password_name, user_name))),
    }
}

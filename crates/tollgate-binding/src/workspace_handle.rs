//! An open workspace.
//!
//! A turn opens the workspace for its own agent, because what an agent may write depends on its name and on whether there is
//! a vault now. The handle keeps what each agent knows beyond one turn, for `unread = "known"`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::gate::Gate;
use tollgate::name::Agent;
use tollgate::tasks::open_workspace;
use tollgate::turn::Session;
use tollgate::workspace::{Workspace, canonical_root};

use crate::environment;
use crate::failure::Answered;
use crate::turn_handle::TurnHandle;

/// An open workspace. Clones share it.
#[derive(Clone)]
pub struct WorkspaceHandle {
    root: PathBuf,
    sessions: Arc<Mutex<HashMap<Agent, Session>>>,
}

impl WorkspaceHandle {
    /// Opens this folder as a workspace, and heals what a crash left. Creates its state if there is none.
    pub fn open(folder: &Path) -> Answered<Self> {
        let handle = Self { root: canonical_root(folder)?, sessions: Arc::default() };
        handle.workspace(None)?;
        Ok(handle)
    }

    /// The folder, absolute.
    pub fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn workspace(&self, agent: Option<&Agent>) -> Answered<Workspace> {
        Ok(open_workspace(&self.root, agent, environment::options(&self.root)?)?)
    }

    /// Begins a turn of this agent, or of the one that the environment names.
    pub fn turn(&self, agent: Option<&str>) -> Answered<TurnHandle> {
        let agent = environment::agent(agent)?;
        let workspace = self.workspace(Some(&agent))?;
        let gate = match environment::given_fence(&workspace)? {
            Some(fence) => Gate::new(workspace).fenced(fence),
            None => Gate::new(workspace),
        };
        let session = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.entry(agent.clone()).or_default().clone()
        };
        TurnHandle::begin(gate, agent, session)
    }
}

//! How the server gets its workspace.
//!
//! The program that starts the server finds and opens the workspace. Nothing in this crate reads the environment.

use std::path::{Path, PathBuf};

use tollgate::error::Result;
use tollgate::gate::Gate;
use tollgate::name::Agent;
use tollgate::shared_turn::SharedTurns;
use tollgate::vault::Vault;

/// Finds and opens the workspace.
pub trait WorkspaceProvider: Send + Sync + 'static {
    /// The folder that is served, canonical.
    fn root(&self) -> &Path;

    /// The folder of the vault, whether it exists or not. Only its appearance and disappearance are watched.
    fn vault(&self) -> PathBuf;

    /// Opens the workspace. Returns `None`, and creates nothing, where tollgate is not set up.
    fn open(&self) -> Result<Option<OpenWorkspace>>;

    /// Opens the gate for one agent, whose own tasks are among the files that it may write. Called only where tollgate is
    /// set up.
    fn gate_of(&self, agent: &Agent) -> Result<Gate>;
}

/// An open workspace.
pub struct OpenWorkspace {
    /// The gate, and through it the workspace and its ledger.
    pub gate: Gate,
    /// The vault, if the workspace has one.
    pub vault: Option<Vault>,
    /// The turns that several processes share.
    pub turns: Vec<SharedTurns>,
}

//! `Workspace`.

use std::path::PathBuf;

use napi::bindgen_prelude::*;
use napi_derive::napi;
use serde_json::Value;
use tollgate_binding::{Missing, PastSelection, TurnHandle, VaultHandle, WorkspaceHandle};

use crate::job::{Job, job, json_job};
use crate::turn::NativeTurn;
use crate::vault::NativeVault;

#[napi]
pub struct NativeWorkspace(WorkspaceHandle);

/// Opens a folder as a workspace.
#[napi]
pub fn open_workspace(path: String) -> AsyncTask<Job<WorkspaceHandle, NativeWorkspace>> {
    job(move || WorkspaceHandle::open(&PathBuf::from(path)), NativeWorkspace)
}

#[napi]
impl NativeWorkspace {
    #[napi(getter)]
    pub fn path(&self) -> String {
        self.0.path().to_string_lossy().into_owned()
    }

    #[napi]
    pub fn turn(&self, agent: Option<String>) -> AsyncTask<Job<TurnHandle, NativeTurn>> {
        let workspace = self.0.clone();
        job(move || workspace.turn(agent.as_deref()), NativeTurn)
    }

    #[napi]
    pub fn vault(&self, create: bool) -> AsyncTask<Job<VaultHandle, NativeVault>> {
        let (workspace, missing) = (self.0.clone(), if create { Missing::Create } else { Missing::Fails });
        job(move || VaultHandle::open(&workspace, missing), NativeVault)
    }

    #[napi]
    pub fn history(
        &self,
        path: Option<String>,
        agent: Option<String>,
        task: Option<String>,
        since: Option<String>,
        limit: Option<u32>,
    ) -> AsyncTask<Job<Value, String>> {
        let workspace = self.0.clone();
        let selection = PastSelection { path: path.map(PathBuf::from), agent, task, since, limit };
        json_job(move || workspace.history(&selection))
    }

    #[napi]
    pub fn blame(&self, path: String, why: bool) -> AsyncTask<Job<Value, String>> {
        let workspace = self.0.clone();
        json_job(move || workspace.blame(&PathBuf::from(path), why))
    }
}

//! `Vault`.

use napi::bindgen_prelude::*;
use napi_derive::napi;
use serde_json::Value;
use tollgate::vault::ClaimKind;
use tollgate_binding::{ClaimHandle, VaultHandle};

use crate::claim::NativeClaim;
use crate::job::{Job, job, json_job};

#[napi]
pub struct NativeVault(pub(crate) VaultHandle);

fn kind(leased: bool) -> ClaimKind {
    if leased { ClaimKind::Leased } else { ClaimKind::Held }
}

#[napi]
impl NativeVault {
    #[napi]
    pub fn add(&self, task: String, text: String) -> AsyncTask<Job<Value, String>> {
        let vault = self.0.clone();
        json_job(move || vault.add(&task, &text))
    }

    #[napi]
    pub fn list(&self, state: Option<String>) -> AsyncTask<Job<Value, String>> {
        let vault = self.0.clone();
        json_job(move || vault.list(state.as_deref()))
    }

    #[napi]
    pub fn get(&self, task: String) -> AsyncTask<Job<Value, String>> {
        let vault = self.0.clone();
        json_job(move || vault.get(&task))
    }

    #[napi]
    pub fn claim(
        &self,
        task: String,
        agent: Option<String>,
        leased: bool,
    ) -> AsyncTask<Job<ClaimHandle, NativeClaim>> {
        let vault = self.0.clone();
        job(move || vault.claim(&task, agent.as_deref(), kind(leased)), NativeClaim)
    }

    #[napi]
    pub fn claim_next(
        &self,
        agent: Option<String>,
        leased: bool,
    ) -> AsyncTask<Job<ClaimHandle, NativeClaim>> {
        let vault = self.0.clone();
        job(move || vault.claim_next(agent.as_deref(), kind(leased)), NativeClaim)
    }
}

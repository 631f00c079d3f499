//! `Claim`.

use napi::bindgen_prelude::*;
use napi_derive::napi;
use serde_json::Value;
use tollgate_binding::{ClaimEnd, ClaimHandle, TurnHandle};

use crate::job::{Job, job, json_job};
use crate::turn::NativeTurn;

#[napi]
pub struct NativeClaim(pub(crate) ClaimHandle);

#[napi]
impl NativeClaim {
    /// What programs see of the claim, as JSON.
    #[napi(getter)]
    pub fn payload(&self) -> String {
        self.0.shown().to_string()
    }

    #[napi(getter)]
    pub fn ended(&self) -> bool {
        self.0.is_ended()
    }

    #[napi]
    pub fn text(&self) -> AsyncTask<Job<Value, String>> {
        let claim = self.0.clone();
        json_job(move || Ok(claim.text()?.into()))
    }

    #[napi]
    pub fn turn(&self) -> AsyncTask<Job<TurnHandle, NativeTurn>> {
        let claim = self.0.clone();
        job(move || claim.turn(), NativeTurn)
    }

    #[napi]
    pub fn fence(&self, turn: &NativeTurn) {
        self.0.fence(&turn.0);
    }

    #[napi]
    pub fn verify(&self) -> AsyncTask<Job<Value, String>> {
        let claim = self.0.clone();
        json_job(move || Ok(claim.verify()?.into()))
    }

    #[napi]
    pub fn renew(&self) -> AsyncTask<Job<Value, String>> {
        let claim = self.0.clone();
        json_job(move || claim.renew())
    }

    #[napi]
    pub fn progress(&self, text: String) -> AsyncTask<Job<Value, String>> {
        let claim = self.0.clone();
        json_job(move || claim.progress(&text).map(|()| Value::Null))
    }

    #[napi]
    pub fn draft(&self, text: String) -> AsyncTask<Job<Value, String>> {
        let claim = self.0.clone();
        json_job(move || claim.draft(&text).map(|()| Value::Null))
    }

    /// Releases the task: `success`, `failure`, or anything else to give it back.
    #[napi]
    pub fn release(
        &self,
        result: String,
        to: Option<String>,
        note: Option<String>,
    ) -> AsyncTask<Job<Value, String>> {
        let end = match result.as_str() {
            "success" => ClaimEnd::Success(to),
            "failure" => ClaimEnd::Failure(to),
            _ => ClaimEnd::GiveBack,
        };
        let claim = self.0.clone();
        json_job(move || claim.release(&end, note.as_deref()))
    }
}

//! `Turn`, and what it reads.

use std::path::PathBuf;

use napi::bindgen_prelude::*;
use napi_derive::napi;
use serde_json::Value;
use tollgate_binding::{FileRead, TurnHandle};

use crate::job::{Job, Reply, json_job, json_reply, reply};

#[napi]
pub struct NativeTurn(pub(crate) TurnHandle);

/// A file as it was read.
#[napi(object)]
pub struct NativeRead {
    pub path: String,
    pub sha256: String,
    pub size: f64,
    pub bytes: Buffer,
}

/// The bytes of a file: text, in UTF-8, or bytes.
type Content = Either<String, Buffer>;

fn bytes(content: Content) -> Vec<u8> {
    match content {
        Either::A(text) => text.into_bytes(),
        Either::B(bytes) => bytes.to_vec(),
    }
}

#[napi]
impl NativeTurn {
    #[napi(getter)]
    pub fn id(&self) -> String {
        self.0.id().to_owned()
    }

    #[napi(getter)]
    pub fn agent(&self) -> String {
        self.0.agent().to_owned()
    }

    #[napi]
    pub fn read(
        &self,
        path: String,
        from: Option<u32>,
        to: Option<u32>,
        sync: Option<bool>,
    ) -> Result<Reply<FileRead, NativeRead>> {
        let turn = self.0.clone();
        let lines = from.map(|from| (from as usize, to.map(|to| to as usize)));
        reply(
            sync,
            move || turn.read(&PathBuf::from(path), lines),
            |read| {
                // A number of JavaScript is exact up to nine petabytes.
                let size = read.size as f64;
                NativeRead { path: read.path, sha256: read.sha256, size, bytes: read.bytes.into() }
            },
        )
    }

    #[napi]
    pub fn write(
        &self,
        path: String,
        content: Content,
        expected: Option<String>,
        sync: Option<bool>,
    ) -> Result<Reply<Value, String>> {
        let (turn, content) = (self.0.clone(), bytes(content));
        json_reply(sync, move || turn.write(&PathBuf::from(path), content, expected.as_deref()))
    }

    #[napi]
    pub fn create(&self, path: String, content: Content) -> AsyncTask<Job<Value, String>> {
        let (turn, content) = (self.0.clone(), bytes(content));
        json_job(move || turn.create(&PathBuf::from(path), content))
    }

    #[napi]
    pub fn edit(
        &self,
        path: String,
        old: String,
        new: String,
        all: bool,
        expected: Option<String>,
        sync: Option<bool>,
    ) -> Result<Reply<Value, String>> {
        let turn = self.0.clone();
        json_reply(sync, move || turn.edit(&PathBuf::from(path), old, new, all, expected.as_deref()))
    }

    #[napi]
    pub fn delete(&self, path: String, expected: Option<String>) -> AsyncTask<Job<Value, String>> {
        let turn = self.0.clone();
        json_job(move || turn.delete(&PathBuf::from(path), expected.as_deref()))
    }

    #[napi]
    pub fn move_file(
        &self,
        path: String,
        to: String,
        expected: Option<String>,
    ) -> AsyncTask<Job<Value, String>> {
        let turn = self.0.clone();
        json_job(move || turn.move_file(&PathBuf::from(path), &PathBuf::from(to), expected.as_deref()))
    }

    /// The list is JSON.
    #[napi]
    pub fn apply(&self, changes: String) -> Result<AsyncTask<Job<Value, String>>> {
        let turn = self.0.clone();
        let changes: Value =
            serde_json::from_str(&changes).map_err(|error| Error::from_reason(error.to_string()))?;
        Ok(json_job(move || turn.apply(changes)))
    }

    #[napi]
    pub fn initial_hash(&self, path: String) -> AsyncTask<Job<Value, String>> {
        let turn = self.0.clone();
        json_job(move || Ok(turn.initial_hash(&PathBuf::from(path))?.into()))
    }

    #[napi]
    pub fn merge(&self, path: String) -> AsyncTask<Job<Value, String>> {
        let turn = self.0.clone();
        json_job(move || turn.merge(&PathBuf::from(path)))
    }

    #[napi]
    pub fn end(&self) -> AsyncTask<Job<Value, String>> {
        let turn = self.0.clone();
        json_job(move || turn.end().map(|()| Value::Null))
    }
}

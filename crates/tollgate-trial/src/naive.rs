//! The control: a writer with a naive check. It loses updates, which shows that the trials can detect a loss.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tollgate::error::Result;

use crate::agent::{Keep, add_line};
use crate::{Answer, at};

#[derive(clap::Args)]
pub(crate) struct Naive {
    #[arg(long)]
    root: PathBuf,
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    name: String,
    /// Stop when this file exists
    #[arg(long)]
    until: PathBuf,
}

impl Naive {
    pub(crate) fn run(self) -> Result<Answer> {
        let path = self.root.join(&self.file);
        let temporary = self.root.join(format!(".{}.tmp", self.name));
        let (mut written, mut stale) = (0, 0);
        while !self.until.exists() {
            let known = fs::read(&path).map_err(at("read", &path))?;
            let next = add_line(&known, &format!("agent {} {written}\n", self.name), Keep::Foreign);
            if fs::read(&path).map_err(at("read", &path))? != known {
                stale += 1;
                continue;
            }
            fs::write(&temporary, next).map_err(at("write", &temporary))?;
            fs::rename(&temporary, &path).map_err(at("rename", &path))?;
            written += 1;
        }
        Ok(Answer::Done(json!({ "written": written, "stale": stale })))
    }
}

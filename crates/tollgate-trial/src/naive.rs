//! The control: a writer with a naive check. It loses updates, which shows that the trials can detect a loss.

use std::fs;
use std::path::{Path, PathBuf};

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
    /// What is compared before the rename
    #[arg(long, value_enum, default_value_t = Check::Bytes)]
    check: Check,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Check {
    /// The bytes
    Bytes,
    /// The time of change and the size
    Stamp,
}

impl Check {
    fn look(self, path: &Path) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Bytes => fs::read(path),
            Self::Stamp => {
                let found = fs::metadata(path)?;
                Ok(format!("{:?} {}", found.modified()?, found.len()).into_bytes())
            }
        }
    }
}

impl Naive {
    pub(crate) fn run(self) -> Result<Answer> {
        let path = self.root.join(&self.file);
        let temporary = self.root.join(format!(".{}.tmp", self.name));
        let (mut written, mut stale) = (0, 0);
        while !self.until.exists() {
            let seen = self.check.look(&path).map_err(at("look at", &path))?;
            let known = fs::read(&path).map_err(at("read", &path))?;
            let next = add_line(&known, &format!("agent {} {written}\n", self.name), Keep::Foreign);
            if self.check.look(&path).map_err(at("look at", &path))? != seen {
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

//! An agent: adds numbered lines to a file, through the gate, until all are written.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use serde_json::json;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::part::Part;
use tollgate::refusal::ErrorType;
use tollgate::turn::Turn;
use tollgate::workspace::{Options, Workspace};

use crate::{Answer, at};

#[derive(clap::Args)]
pub(crate) struct Agent {
    #[arg(long)]
    root: PathBuf,
    /// Relative to the root
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    name: String,
    /// The number of lines to add
    #[arg(long, default_value_t = u32::MAX)]
    lines: u32,
    /// Stop when this file exists
    #[arg(long)]
    until: Option<PathBuf>,
    /// The log of acknowledged lines
    #[arg(long)]
    log: Option<PathBuf>,
    /// Create this file after the first read
    #[arg(long)]
    ready: Option<PathBuf>,
    /// The lines of the old text to keep
    #[arg(long, value_enum, default_value_t = Keep::All)]
    keep: Keep,
    /// Whether to read before every write, or only after a refusal
    #[arg(long, value_enum, default_value_t = Reads::Always)]
    reads: Reads,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Keep {
    All,
    /// All but the agents' own lines, so that the file grows only by what outsiders add
    Foreign,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reads {
    Always,
    /// Once, then after each refusal: the turn must remember its own writes
    WhenRefused,
}

impl Agent {
    pub(crate) fn run(self) -> Result<Answer> {
        let gate = Gate::new(Workspace::open(&self.root, Options::default())?);
        let name = self.name.parse().map_err(|_| Fault::invalid("not a name"))?;
        let turn = gate.begin_turn(name)?;
        let mut log = match &self.log {
            Some(path) => Some((path, File::create(path).map_err(at("create", path))?)),
            None => None,
        };
        let (mut stale, mut busy, mut written) = (0, 0, 0);
        let mut known = self.read(&gate, &turn)?;
        if let Some(ready) = &self.ready {
            fs::write(ready, "").map_err(at("write", ready))?;
        }
        while written < self.lines && !self.until.as_ref().is_some_and(|file| file.exists()) {
            let line = format!("agent {} {written}\n", self.name);
            let next = add_line(&known, &line, self.keep);
            match gate.write(&turn, &self.file, next.clone(), Expected::Baseline)? {
                Outcome::Done(_) => {
                    written += 1;
                    if let Some((path, file)) = &mut log {
                        file.write_all(line.as_bytes()).map_err(at("write", path))?;
                    }
                    known = match self.reads {
                        Reads::Always => self.read(&gate, &turn)?,
                        Reads::WhenRefused => next,
                    };
                }
                Outcome::Refused(refused) => match refused.refusals()[0].error_type() {
                    ErrorType::StaleFile => {
                        stale += 1;
                        known = self.read(&gate, &turn)?;
                    }
                    ErrorType::FileBusy => busy += 1,
                    other => return Err(Fault::invalid(format!("refused: {other:?}"))),
                },
            }
        }
        gate.end_turn(turn)?;
        Ok(Answer::Done(json!({ "written": written, "stale": stale, "busy": busy })))
    }

    fn read(&self, gate: &Gate, turn: &Turn) -> Result<Vec<u8>> {
        match gate.read(turn, &self.file, Part::Whole)? {
            Outcome::Done(read) => Ok(read.bytes),
            Outcome::Refused(refused) => Err(Fault::invalid(format!("{refused:?}"))),
        }
    }
}

/// The old text with one more line.
pub(crate) fn add_line(known: &[u8], line: &str, keep: Keep) -> Vec<u8> {
    let kept = known.split_inclusive(|&byte| byte == b'\n');
    let mut next: Vec<u8> = match keep {
        Keep::All => known.to_vec(),
        Keep::Foreign => kept.filter(|line| !line.starts_with(b"agent ")).flatten().copied().collect(),
    };
    next.extend_from_slice(line.as_bytes());
    next
}

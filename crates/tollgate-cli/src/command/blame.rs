//! `tollgate blame`: who wrote each line of a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use tollgate::error::{At, Fault};
use tollgate::history::blame::{BlamedLine, Writer, blame};
use tollgate::history::turn::{KnownReads, ReadsOfTurns};
use tollgate::workspace::Workspace;

use super::past::{ledger_name, open_turns, recorded};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Show who wrote each line of a file: which agent, in which change, or which commit
///
/// Lines that a guarded change brought have its number, for `tollgate show`. What a program that does not use tollgate saved
/// between two guarded changes is seen by the hashes, and is `somebody else`'s. Lines that are older than the first guarded change of
/// the file are left to `git blame`, which tollgate calls.
///
/// With --why, also what the agent of each line had read before in the same turn.
///
/// The comparison needs the bytes of each version. Where some are no longer kept (`[history]` in the settings), a line has all
/// changes with which it may have come.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate blame src/a.rs
  tollgate blame src/a.rs:42 --why
  tollgate blame src/a.rs --json | jq '.[] | select(.agent == \"blue\") | .line'")]
pub(crate) struct BlameArgs {
    /// The file, and the number of a line if only one is asked for
    #[arg(value_name = "FILE[:LINE]", value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// Show what the agents had read before they wrote the lines
    #[arg(long)]
    why: bool,
}

/// The number of reads in an answer. Each line may be the work of a turn with thousands of them; `tollgate show` has all.
const READS: usize = 10_000;

pub(crate) fn run(invocation: &Invocation, args: &BlameArgs) -> Result<Answer, CliError> {
    let (path, only) = file_and_line(invocation, &args.path)?;
    let on_disk = invocation.path(&path)?;
    let Ok(bytes) = String::from_utf8(fs::read(&on_disk).at("read", &on_disk)?) else {
        return Err(Fault::invalid_with_hint(
            "only texts in UTF-8 have lines that somebody wrote",
            "run `tollgate history FILE` to see who changed it",
        )
        .into());
    };
    // Of a symbolic link, the lines of the file to which it leads.
    let file = on_disk.canonicalize().at("find", &on_disk)?;
    let workspace = recorded(invocation)?;
    let mut lines = match &workspace {
        Some(workspace) => {
            let name = ledger_name(invocation, workspace, &file)?;
            blame(workspace, &name, &file, bytes.as_bytes())?
        }
        None => BlamedLine::older(&file, bytes.as_bytes())?,
    };
    if let Some(only) = only {
        lines.retain(|line| line.number == only);
        if lines.is_empty() {
            return Err(CliError::usage(
                format!("the file has no line {only}"),
                "give the number of one of its lines, from 1",
            ));
        }
    }
    let texts: Vec<&str> =
        bytes.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line)).collect();
    let text = |line: &BlamedLine| texts.get(line.number - 1).copied().unwrap_or_default();
    let reads = match workspace.filter(|_| args.why) {
        Some(workspace) => reads_of(invocation, &workspace, &lines)?,
        None => BTreeMap::new(),
    };
    let mut room = READS;
    let json = lines.iter().map(|line| line_json(line, text(line), &reads, &mut room)).collect();
    let mut words = words::blamed(&lines, text);
    if !reads.is_empty() {
        let changes = reads.iter().map(|(change, (agent, known))| (*change, agent.as_str(), known));
        words += &format!("\n\n{}", words::reads_of_changes(changes));
    }
    Ok(Answer::Long(Reply::new(words, json)))
}

/// By the number of a line's change: its agent, and what it had read.
type ReadsOfChanges = BTreeMap<u64, (String, KnownReads)>;

fn reads_of(
    invocation: &Invocation,
    workspace: &Workspace,
    lines: &[BlamedLine],
) -> Result<ReadsOfChanges, CliError> {
    let open = open_turns(invocation);
    let mut turns = ReadsOfTurns::new(workspace, &open);
    let mut found = BTreeMap::new();
    for line in lines {
        if let Writer::Step(step) = &line.writer
            && !found.contains_key(&step.seq)
        {
            let agent = step.agent.as_ref().map_or("-", |agent| agent.as_str()).to_owned();
            let reads = turns.of([(step.turn.as_ref(), Some(step.time))])?;
            found.insert(step.seq, (agent, reads));
        }
    }
    Ok(found)
}

/// `FILE:LINE`, unless there is a file with that name.
fn file_and_line(invocation: &Invocation, given: &Path) -> Result<(PathBuf, Option<usize>), CliError> {
    let split = given.to_str().and_then(|text| text.rsplit_once(':'));
    match split.and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) if invocation.path(given)?.symlink_metadata().is_err() => {
            Ok((file.into(), Some(line)))
        }
        _ => Ok((given.to_owned(), None)),
    }
}

fn line_json(line: &BlamedLine, text: &str, reads: &ReadsOfChanges, room: &mut usize) -> Value {
    let mut json = line.json_with(text);
    if let Writer::Step(step) = &line.writer
        && let Some((_, known)) = reads.get(&step.seq)
    {
        known.put(&mut json, room);
    }
    json
}

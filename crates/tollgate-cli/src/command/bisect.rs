//! `tollgate bisect`: finds the change with which a command began to fail.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tempfile::TempDir;
use tollgate::Digest;
use tollgate::error::{At as _, Fault};
use tollgate::gate::Gate;
use tollgate::history::content::{Contents, OnDisk};
use tollgate::history::listing::FileDiff;
use tollgate::history::step::{Back, Step, Steps, What, found};
use tollgate::history::turn::ReadsOfTurns;
use tollgate_run::{RunEnd, trial};

use super::past::{no, open_turns};
use super::restore::{At, at};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::report::history::ShownChanges;
use crate::words;

/// The exit code of a command that cannot say whether a state is good, as for `git bisect run`.
const CANNOT_SAY: u8 = 125;

/// Ends a line of the script that makes a state: if the line fails, the state cannot be tested.
const UNTESTABLE: &[u8] = b" || exit 125\n";

/// Find the change with which a command began to fail
///
/// Runs COMMAND in the states between the changes that agents have made, each in a private view of the workspace that is thrown away:
/// nobody's files are touched, and others go on working. Takes about log2(n) runs for n changes. As for `git bisect run`, exit code
/// 0 is good, 125 means that this state cannot be tested, and everything else is bad.
///
/// COMMAND must fail now, and succeed in the state before the first change. Folders that git ignores, such as `target/`, are shared by
/// all runs. A state whose bytes are no longer kept is skipped.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate bisect -- make test
  tollgate bisect --since yesterday -- grep -q 'port = 80' app.conf
  tollgate bisect --since 12 --steps -- make test")]
pub(crate) struct BisectArgs {
    /// Only changes since this time, or from this change on [default: all whose states can be rebuilt]
    #[arg(long, value_name = "TIME|N", value_parser = at)]
    since: Option<At>,
    /// Only show the states, and how many runs it takes
    #[arg(long)]
    steps: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// What a command said of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
    CannotSay,
}

/// The states between changes.
struct States<'a> {
    gate: &'a Gate,
    contents: Contents<'a>,
    /// The oldest first.
    steps: &'a [Step],
    /// The files that they changed, as they are now.
    now: BTreeMap<String, Option<OnDisk>>,
    /// Where each change begins in `steps`. State `n` is before change `n`; the last one is what is on disk now.
    changes: Vec<usize>,
    command: &'a [OsString],
    folder: PathBuf,
    runs: usize,
}

pub(crate) fn run(invocation: &Invocation, args: &BisectArgs) -> Result<Answer, CliError> {
    let gate = invocation.gate()?;
    let back = match args.since {
        None => Back::ToTheStart,
        Some(At::Time(time)) => Back::To(time),
        Some(At::Line(line)) => Back::ToLine(line),
    };
    let mut steps =
        Steps::read(gate.workspace().ledger(), back, |_| std::ops::ControlFlow::Continue(true))?.steps;
    // The files of a moved folder have no lines of their own, so what is before cannot be rebuilt.
    if let Some(folder) = steps.iter().rposition(|step| step.what == What::Folder) {
        steps.drain(..=folder);
    }
    let contents = Contents::of(gate.workspace()).left_by(&steps);
    let mut changes: Vec<usize> =
        (0..steps.len()).filter(|at| *at == 0 || steps[*at].change != steps[at - 1].change).collect();
    if args.since.is_none() {
        drop_unknown(&contents, &steps, &mut changes)?;
    }
    if changes.is_empty() {
        return Ok(no("no_changes", words::NOTHING_TO_BISECT));
    }
    let folder = invocation.base()?;
    let mut now = BTreeMap::new();
    for path in found(&steps).into_keys() {
        now.insert(path.to_owned(), contents.on_disk(path)?);
    }
    let command = &args.command;
    let mut states = States { gate: &gate, contents, steps: &steps, now, changes, command, folder, runs: 0 };
    if args.steps {
        return Ok(plan(&states));
    }
    match states.search(invocation)? {
        Found::Change(low, high) => found_change(invocation, &states, low, high),
        Found::SucceedsNow => Ok(no("succeeds_now", words::BISECT_SUCCEEDS)),
        Found::FailsBefore => Ok(no("fails_before", words::BISECT_FAILS_BEFORE)),
        Found::CannotSay(why) => Ok(no("cannot_say", &words::bisect_cannot_say(&why))),
    }
}

/// Leaves out the changes before the first state that can be rebuilt, and from which on all can.
fn drop_unknown(contents: &Contents<'_>, steps: &[Step], changes: &mut Vec<usize>) -> Result<(), Fault> {
    let mut kept = changes.len();
    let mut next = steps.len();
    for (index, start) in changes.iter().enumerate().rev() {
        for (_, before, _) in steps[*start..next].iter().flat_map(Step::effects) {
            if let Some(digest) = before
                && contents.find(digest)?.is_none()
            {
                changes.drain(..kept);
                return Ok(());
            }
        }
        (kept, next) = (index, *start);
    }
    Ok(())
}

/// What the search has found.
enum Found {
    /// The last good state, and the first bad one that could be tested.
    Change(usize, usize),
    SucceedsNow,
    FailsBefore,
    /// A state could not be tested, for this reason.
    CannotSay(String),
}

impl States<'_> {
    fn search(&mut self, invocation: &Invocation) -> Result<Found, CliError> {
        let (mut good, mut bad) = (0, self.changes.len());
        match self.judge(invocation, bad)? {
            Verdict::Good => return Ok(Found::SucceedsNow),
            Verdict::CannotSay => {
                return Ok(Found::CannotSay("the present state cannot be tested".to_owned()));
            }
            Verdict::Bad => {}
        }
        match self.judge(invocation, good)? {
            Verdict::Bad => return Ok(Found::FailsBefore),
            Verdict::CannotSay => {
                return Ok(Found::CannotSay("the oldest state cannot be tested".to_owned()));
            }
            Verdict::Good => {}
        }
        let mut skipped: Vec<usize> = Vec::new();
        loop {
            // Of the states in between that can be tested, the one in the middle.
            let open: Vec<usize> = (good + 1..bad).filter(|state| !skipped.contains(state)).collect();
            let Some(middle) = open.get(open.len() / 2).copied() else { return Ok(Found::Change(good, bad)) };
            match self.judge(invocation, middle)? {
                Verdict::Good => good = middle,
                Verdict::Bad => bad = middle,
                Verdict::CannotSay => skipped.push(middle),
            }
        }
    }

    /// What each file held in a state that was changed by a step.
    fn held(&self, state: usize) -> BTreeMap<&str, Option<Digest>> {
        let mut held: BTreeMap<&str, Option<Digest>> =
            self.now.iter().map(|(path, now)| (&**path, now.as_ref().map(|now| now.digest))).collect();
        held.extend(self.changes.get(state).map(|start| found(&self.steps[*start..])).unwrap_or_default());
        held
    }

    /// Runs the command in a state.
    fn judge(&mut self, invocation: &Invocation, state: usize) -> Result<Verdict, CliError> {
        let Some((_keep, command)) = self.prepared(state)? else { return Ok(Verdict::CannotSay) };
        self.runs += 1;
        let end = trial(self.gate, &command, &self.folder)?.map_err(|why| {
            CliError::Fault(Fault::invalid_with_hint(
                format!("there can be no private view here: {why}"),
                "`tollgate doctor` says what is missing",
            ))
        })?;
        let verdict = match end {
            RunEnd::Exited(0) => Verdict::Good,
            RunEnd::Exited(CANNOT_SAY) => Verdict::CannotSay,
            RunEnd::NotFound | RunEnd::NotExecutable => {
                return Err(CliError::usage(
                    "the command cannot be executed".to_owned(),
                    "check its name".to_owned(),
                ));
            }
            RunEnd::Exited(_) | RunEnd::Killed(_) => Verdict::Bad,
        };
        let word = match verdict {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::CannotSay => "cannot be tested",
        };
        let before = self.changes.get(state).map(|at| self.steps[*at].change);
        if invocation.form() == crate::answer::Form::Words {
            output::tell(&words::bisect_progress(self.runs, before, word));
        }
        Ok(verdict)
    }

    /// The command for a state, behind a script that makes the state in the view. `None`: bytes of the state are no longer kept.
    fn prepared(&self, state: usize) -> Result<Option<(TempDir, Vec<OsString>)>, CliError> {
        let keep = tempfile::tempdir().at("make", "a temporary folder")?;
        // Deletions first: a file may have been where a folder must be.
        let (mut script, mut writes): (Vec<u8>, Vec<u8>) = Default::default();
        for (number, (path, digest)) in self.held(state).into_iter().enumerate() {
            let now = self.now[path].as_ref();
            let is_link = now.is_some_and(|now| now.is_link);
            if is_link && now.map(|now| now.digest) == digest {
                continue;
            }
            let to = quoted(self.contents.path(path).as_os_str().as_bytes());
            // A write through a link would change another file.
            if digest.is_none() || is_link {
                script.extend([b"rm -f -- ", &*to, UNTESTABLE].concat());
            }
            let Some(digest) = digest else { continue };
            let bytes = match now {
                Some(OnDisk { digest: now, bytes, .. }) if *now == digest => bytes.clone(),
                _ => self.contents.find(digest)?,
            };
            let Some(bytes) = bytes else { return Ok(None) };
            let file = keep.path().join(number.to_string());
            fs::write(&file, bytes).at("write", &file)?;
            let from = quoted(file.as_os_str().as_bytes());
            writes.extend([b"mkdir -p -- \"$(dirname -- ", &*to, b")\"", UNTESTABLE].concat());
            writes.extend([b"cat < ", &*from, b" > ", &*to, UNTESTABLE].concat());
        }
        script.extend(writes);
        script.extend(b"exec \"$@\" >&2\n");
        let file = keep.path().join("script");
        fs::write(&file, script).at("write", &file)?;
        let mut command: Vec<OsString> = vec!["sh".into(), file.into()];
        command.extend(self.command.iter().cloned());
        Ok(Some((keep, command)))
    }
}

/// A word of a shell script.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = b"'".to_vec();
    for byte in bytes {
        match byte {
            b'\'' => word.extend(b"'\\''"),
            byte => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

fn plan(states: &States<'_>) -> Answer {
    let changes: Vec<&Step> = states.changes.iter().map(|at| &states.steps[*at]).collect();
    // Both ends, and then the middle of what is left.
    let runs = 2 + changes.len().next_power_of_two().trailing_zeros() as usize;
    let json = json!({
        "changes": changes.iter().map(|step| step.change).collect::<Vec<_>>(),
        "runs": runs,
    });
    Answer::Long(Reply::new(words::bisect_plan(&changes, runs), json))
}

fn found_change(
    invocation: &Invocation,
    states: &States<'_>,
    good: usize,
    bad: usize,
) -> Result<Answer, CliError> {
    let start = states.changes[good];
    let end = states.changes.get(bad).copied().unwrap_or(states.steps.len());
    let meant: Vec<&Step> = states.steps[start..end].iter().collect();
    // What differs between the two states: the change, and what others have saved before the next one.
    let (before, after) = (states.held(good), states.held(bad));
    let left: BTreeMap<&str, Option<Digest>> =
        meant.iter().flat_map(|step| step.effects()).map(|(path, _, after)| (path, after)).collect();
    let (mut files, mut others) = (Vec::new(), Vec::new());
    for (path, before) in before {
        let after = after[path];
        if before != after {
            files.push(FileDiff::of(&states.contents, path, [before, after])?);
        }
        if before != after && left.get(path) != Some(&after) {
            others.push(path);
        }
    }
    let first = meant[0];
    let is_one = bad == good + 1;
    let mut json = json!({
        "found": is_one,
        "seq": first.change,
        "agent": first.agent,
        "turn": first.turn,
        "time": first.time,
        "paths": files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        "changes": files.iter().map(FileDiff::json).collect::<Vec<_>>(),
        "others": others,
        "runs": states.runs,
    });
    if !is_one {
        let mut lines: Vec<u64> = meant.iter().map(|step| step.change).collect();
        lines.dedup();
        json["seqs"] = lines.into();
    }
    let what = format!("change {}", first.change);
    let (workspace, open) = (states.gate.workspace(), open_turns(invocation));
    let reads = ReadsOfTurns::new(workspace, &open)
        .of(meant.iter().map(|step| (step.turn.as_ref(), Some(step.time))))?;
    reads.put(&mut json, &mut { usize::MAX });
    let shown = ShownChanges { what: &what, steps: meant, files, reads, about: None };
    let words = words::bisected(&invocation.viewpoint(), &shown, is_one, &others, states.runs);
    Ok(Answer::Done(Reply::new(words, json)))
}

//! `tollgate ledger`: what happened here.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use notify::{RecursiveMode, Watcher};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use tollgate::error::Fault;
use tollgate::ledger::{ActionType, Ledger, Line, Verdict};
use tollgate::name::Agent;

use crate::answer::{Answer, Form, Said, Stop, json_line};
use crate::door::Door;
use crate::words;

/// Follow and verify the ledger: one line for everything that happened
///
/// The ledger is `.tollgate/ledger.jsonl`, one JSON object a line. Each line holds the SHA-256 of the one before, so that
/// an edited, removed or reordered line is found.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate ledger tail -f
  tollgate ledger tail --type MUTATION_CONFLICT --agent blue
  tollgate ledger verify")]
pub(crate) struct Wish {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Tail(Tail),
    /// Read the whole ledger and name the first line that is not as it was written
    ///
    /// A cut end is found by the last known head, which is kept outside the workspace, in your own state folder. The exit
    /// code is 1 if something is wrong.
    #[command(after_help = "Example\n  tollgate ledger verify && echo untouched")]
    Verify,
}

/// Print the newest lines, oldest first
///
/// With --json it prints a list of the lines. With --json and -f together, which has no end, each line is one JSON document
/// of its own. The agent is chosen by --agent.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate ledger tail -n 50
  tollgate ledger tail -f --json | jq .action_type")]
struct Tail {
    /// Go on, and print lines as they come
    #[arg(short, long)]
    follow: bool,
    /// How many lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Only lines of this type
    #[arg(
        long = "type",
        value_name = "TYPE",
        ignore_case = true,
        value_parser = PossibleValuesParser::new(ActionType::ALL.iter().map(|known| known.as_str()))
    )]
    action_type: Option<String>,
}

/// Which lines are wanted.
struct Wanted<'a> {
    agent: Option<&'a Agent>,
    action_type: Option<&'a str>,
}

impl Wanted<'_> {
    fn takes(&self, line: &Line) -> bool {
        self.agent.is_none_or(|agent| line.agent.as_ref() == Some(agent))
            && self.action_type.is_none_or(|wanted| line.action_type.eq_ignore_ascii_case(wanted))
    }
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    match &wish.what {
        What::Tail(tail) => print_tail(door, tail),
        What::Verify => verify(door),
    }
}

fn print_tail(door: &Door, wish: &Tail) -> Result<Answer, Stop> {
    let ledger = door.ledger()?;
    let wanted = Wanted { agent: door.named_agent(), action_type: wish.action_type.as_deref() };
    if wish.follow {
        return follow(door, &ledger, wish, &wanted);
    }
    let newest = Newest::of(&ledger, wish.lines, &wanted)?;
    Ok(Answer::Done(Said {
        words: newest.lines.iter().map(words::ledger_line).collect::<Vec<_>>().join("\n"),
        notes: words::damaged_lines(newest.damaged),
        json: newest.lines.iter().map(line_json).collect(),
    }))
}

/// The newest lines, the oldest of them first.
struct Newest {
    lines: VecDeque<Line>,
    /// The number of the last line, wanted or not.
    last: u64,
    damaged: usize,
}

impl Newest {
    fn of(ledger: &Ledger, count: usize, wanted: &Wanted<'_>) -> Result<Self, Fault> {
        let mut newest = Self { lines: VecDeque::new(), last: 0, damaged: 0 };
        for line in ledger.newest_first()? {
            match line {
                Ok(line) => {
                    newest.last = newest.last.max(line.seq);
                    if newest.lines.len() == count {
                        break;
                    }
                    if wanted.takes(&line) {
                        newest.lines.push_front(line);
                    }
                }
                Err(Fault::Damaged { .. }) => newest.damaged += 1,
                Err(fault) => return Err(fault),
            }
        }
        Ok(newest)
    }
}

/// Changes are announced by the kernel. Where it does not (network folders), and to notice that nobody listens any
/// more, one look a second is often enough.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn follow(door: &Door, ledger: &Ledger, wish: &Tail, wanted: &Wanted<'_>) -> Result<Answer, Stop> {
    // Watching begins before the first look, so that no line falls in between.
    let (announce, announced) = mpsc::channel();
    let watcher = notify::recommended_watcher(move |_| {
        // If the other end is gone, so is the process.
        let _ = announce.send(());
    });
    let mut watcher = watcher.ok();
    let mut watched = false;
    let mut stdout = BufWriter::new(io::stdout().lock());
    let newest = Newest::of(ledger, wish.lines, wanted)?;
    let mut last = newest.last;
    let mut fresh: Vec<Line> = newest.lines.into();
    loop {
        for line in &fresh {
            match door.form() {
                Form::Words => writeln!(stdout, "{}", words::ledger_line(line))?,
                Form::Json => writeln!(stdout, "{}", json_line(&line_json(line)))?,
            }
        }
        stdout.flush()?;
        // The state may not be there yet; then it is tried again. What came before it was watched is looked at at once.
        let begins = !watched
            && watcher
                .as_mut()
                .zip(ledger.path().parent())
                .is_some_and(|(watcher, state)| watcher.watch(state, RecursiveMode::NonRecursive).is_ok());
        watched |= begins;
        if !begins {
            match announced.recv_timeout(LOOK_EVERY) {
                // One look serves all that was announced meanwhile.
                Ok(()) => while announced.try_recv().is_ok() {},
                Err(RecvTimeoutError::Timeout) => {}
                // There is no watcher on this system.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
            }
            if nobody_listens() {
                return Err(Stop::Hangup);
            }
        }
        fresh = ledger.lines_after(last)?;
        last = fresh.last().map_or(last, |line| line.seq);
        fresh.retain(|line| wanted.takes(line));
    }
}

/// Whether the reader of our stdout has gone.
fn nobody_listens() -> bool {
    let stdout = io::stdout();
    let mut stdout = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut stdout, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
        && stdout[0].revents().contains(PollFlags::ERR)
}

fn line_json(line: &Line) -> Value {
    // It was read from JSON, so it can be written as JSON.
    serde_json::to_value(line).unwrap_or_default()
}

fn verify(door: &Door) -> Result<Answer, Stop> {
    let verdict = door.ledger()?.verify()?;
    let head_file = door.ledger_head(&door.root()?.0)?;
    let said = Said {
        words: words::verdict(door, &verdict, head_file.as_deref()),
        json: verdict_json(&verdict, head_file.as_deref()),
        ..Said::default()
    };
    Ok(if verdict.problem.is_none() { Answer::Done(said) } else { Answer::NotValid(said) })
}

/// By hand, because a path in it need not be UTF-8.
fn verdict_json(verdict: &Verdict, head_file: Option<&std::path::Path>) -> Value {
    let problem = verdict.problem.as_ref().map(|problem| {
        json!({
            "file": problem.file.to_string_lossy(),
            "line": problem.line,
            "seq": problem.seq,
            "missing": problem.missing,
            "wrong": problem.wrong,
        })
    });
    json!({
        "valid": problem.is_none(),
        "lines": verdict.lines,
        "first_seq": verdict.first_seq,
        "head": verdict.head,
        "remembered": verdict.remembered,
        "head_file": head_file.map(std::path::Path::to_string_lossy),
        "problem": problem,
    })
}

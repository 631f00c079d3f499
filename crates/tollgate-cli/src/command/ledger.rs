//! `tollgate ledger`: shows, follows, verifies and audits the ledger.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::audit::{AuditReport, AuditScope, audit};
use tollgate::error::Fault;
use tollgate::event::Event;
use tollgate::ledger::{Cursor, Followed, Ledger, Line, Verification};
use tollgate::name::Agent;
use tollgate::tasks::VaultHome;

use crate::answer::{Answer, Form, Reply, json_line};
use crate::command::moment::moment;
use crate::command::number::number;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::ledger_watch::{LedgerWatch, reader_is_gone};
use crate::progress::Progress;
use crate::words;

/// Show, follow, verify and audit the ledger, which has one line per event
///
/// The ledger is `.tollgate/ledger.jsonl`, with one JSON object per line. Each line has the SHA-256 of the previous line, so
/// `verify` finds edited, removed and reordered lines. `audit` checks what the lines say: that no change was lost and that each
/// task had one owner at a time.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate ledger tail -f
  tollgate ledger tail --type MUTATION_CONFLICT --agent blue
  tollgate ledger verify
  tollgate ledger audit")]
pub(crate) struct LedgerArgs {
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    Tail(LedgerTailArgs),
    /// Read the whole ledger and report the first line that was tampered with
    ///
    /// A truncated end is found by comparison with the last known line, which is kept outside the workspace, in your state
    /// folder. The exit code is 1 if something is wrong.
    #[command(after_help = "Example\n  tollgate ledger verify && echo untouched")]
    Verify,
    Audit(LedgerAuditArgs),
}

/// Print the newest lines, oldest first
///
/// With --json it prints a list of lines. With --json and -f it prints one JSON document per line. With --agent it prints
/// only the lines of that agent.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate ledger tail -n 50
  tollgate ledger tail --since yesterday --agent blue
  tollgate ledger tail -f --json | jq .action_type")]
struct LedgerTailArgs {
    /// Keep running and print new lines
    #[arg(short, long)]
    follow: bool,
    /// Number of lines [default: 20; with --since, all]
    #[arg(short = 'n', long, value_name = "N", value_parser = |text: &str| number(text, 0..=1_000_000_000_usize))]
    lines: Option<usize>,
    /// Only lines since this time, such as `yesterday`, `2h` or `2026-11-18`
    #[arg(long, value_name = "TIME", value_parser = |text: &str| moment(text, Timestamp::now()))]
    since: Option<Timestamp>,
    /// Only lines of this type
    #[arg(
        long = "type",
        value_name = "TYPE",
        ignore_case = true,
        value_parser = PossibleValuesParser::new(Event::ACTION_TYPES)
    )]
    action_type: Option<String>,
}

/// Prove from the ledger that no change was lost and that each task had one owner at a time
///
/// Each change of a file must find the bytes that the change before it left. If it finds others, a program that does not use
/// tollgate has changed the file in between, and that is counted. If it finds the bytes that the change before had replaced,
/// that is a doubt: the ledger alone cannot tell a restored file from a lost change. With --records nothing is left in doubt.
/// The exit code is 1 if the ledger contradicts a promise.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate ledger audit
  tollgate ledger audit --records agents.jsonl --records editors.jsonl --json")]
struct LedgerAuditArgs {
    /// A file in which participants recorded what they did, one JSON object per line (can be repeated)
    #[arg(long, value_name = "FILE")]
    records: Vec<PathBuf>,
    /// Other machines have changed the tasks too, and their lines are in other ledgers [default: taken from the settings]
    #[arg(long)]
    shared: bool,
}

impl LedgerTailArgs {
    fn lines(&self) -> usize {
        self.lines.unwrap_or(if self.since.is_some() { usize::MAX } else { 20 })
    }
}

/// A filter for lines.
struct LineFilter<'a> {
    agent: Option<&'a Agent>,
    action_type: Option<&'a str>,
    since: Option<Timestamp>,
}

/// Lines are in the order in which they were written. Their times may differ from it a little, because processes look at the clock
/// before they wait for each other.
const OUT_OF_ORDER: Duration = Duration::from_secs(60);

impl LineFilter<'_> {
    fn takes(&self, line: &Line) -> bool {
        self.agent.is_none_or(|agent| line.agent.as_ref() == Some(agent))
            && self.action_type.is_none_or(|wanted| line.event.action_type().eq_ignore_ascii_case(wanted))
            && self.since.is_none_or(|since| line.time >= since)
    }

    /// Whether no line before this one can be taken.
    fn ends_at(&self, line: &Line) -> bool {
        self.since.is_some_and(|since| line.time < since.saturating_sub(OUT_OF_ORDER).unwrap_or(since))
    }
}

pub(crate) fn run(invocation: &Invocation, args: &LedgerArgs) -> Result<Answer, CliError> {
    match &args.command {
        LedgerCommand::Tail(tail) => print_tail(invocation, tail),
        LedgerCommand::Verify => verify(invocation),
        LedgerCommand::Audit(args) => audit_ledger(invocation, args),
    }
}

fn print_tail(invocation: &Invocation, args: &LedgerTailArgs) -> Result<Answer, CliError> {
    let ledger = invocation.ledger()?;
    let wanted = LineFilter {
        agent: invocation.named_agent(),
        action_type: args.action_type.as_deref(),
        since: args.since,
    };
    if args.follow {
        return follow(invocation, &ledger, args, &wanted);
    }
    let newest = NewestLines::of(&ledger, args.lines(), &wanted)?;
    Ok(Answer::Done(Reply {
        words: newest.lines.iter().map(words::ledger_line).collect::<Vec<_>>().join("\n"),
        notes: newest.notes(args.lines()),
        json: newest.lines.iter().map(Line::json).collect(),
    }))
}

/// The newest lines, in the order of the ledger.
struct NewestLines {
    lines: VecDeque<Line>,
    /// The place after the last line, even if the filter rejects that line.
    end: Cursor,
    damaged: usize,
}

impl NewestLines {
    /// Why there are no lines, or fewer than in the file. This many were asked for.
    fn notes(&self, count: usize) -> String {
        match self.damaged {
            0 if self.end == Cursor::START => words::EMPTY_LEDGER.to_owned(),
            0 if self.lines.is_empty() && count > 0 => words::NO_LINE_MATCHES.to_owned(),
            damaged => words::damaged_lines(damaged),
        }
    }

    fn of(ledger: &Ledger, count: usize, wanted: &LineFilter<'_>) -> Result<Self, Fault> {
        let mut newest = Self { lines: VecDeque::new(), end: Cursor::START, damaged: 0 };
        for line in ledger.newest_first()? {
            match line {
                Ok(line) => {
                    if newest.end == Cursor::START {
                        newest.end = line.cursor();
                    }
                    if newest.lines.len() == count || wanted.ends_at(&line) {
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

/// The number of lines that are read before they are printed. It bounds memory and the number of flushes.
const AT_ONCE: usize = 1000;

fn follow(
    invocation: &Invocation,
    ledger: &Ledger,
    args: &LedgerTailArgs,
    wanted: &LineFilter<'_>,
) -> Result<Answer, CliError> {
    let mut watch = LedgerWatch::new(ledger);
    let mut more = false;
    let mut stdout = BufWriter::new(io::stdout().lock());
    let newest = NewestLines::of(ledger, args.lines(), wanted)?;
    let (mut follower, mut fresh): (_, Vec<Line>) = (ledger.follow_from(newest.end), newest.lines.into());
    loop {
        for line in &fresh {
            match invocation.form() {
                Form::Words => writeln!(stdout, "{}", words::ledger_line(line))?,
                Form::Json => writeln!(stdout, "{}", json_line(&line.json()))?,
            }
        }
        stdout.flush()?;
        if !std::mem::take(&mut more) {
            watch.wait();
            if reader_is_gone() {
                return Err(CliError::Hangup);
            }
        }
        fresh = Vec::new();
        let followed = follower.advance(AT_ONCE, |line| {
            if wanted.takes(&line) {
                fresh.push(line);
            }
        })?;
        match followed {
            Followed::ToTheEnd | Followed::Doubtful => {}
            Followed::Further => more = true,
            // The place is gone, because the ledger was moved or truncated.
            Followed::Lost(_) => (follower, more) = (ledger.follow(), true),
        }
    }
}

fn verify(invocation: &Invocation) -> Result<Answer, CliError> {
    let progress = Progress::of("verifying the ledger");
    let verdict = invocation.ledger()?.verify()?;
    drop(progress);
    let head_file = invocation.ledger_head(&invocation.root()?.0)?;
    let said = Reply::new(
        words::verdict(&invocation.viewpoint(), &verdict, head_file.as_deref()),
        verdict_json(&verdict, head_file.as_deref()),
    );
    Ok(if verdict.problem.is_none() { Answer::Done(said) } else { Answer::NotValid(said) })
}

fn audit_ledger(invocation: &Invocation, args: &LedgerAuditArgs) -> Result<Answer, CliError> {
    let own = VaultHome::at(invocation.root()?.0)?;
    // If the vault of a worktree cannot be found, its own settings tell.
    let home = VaultHome::of(&own.root, &own.settings).unwrap_or(own);
    let shared = args.shared || home.has_other_ledgers();
    let scope = AuditScope { records: args.records.clone(), shared };
    let progress = Progress::of("auditing the ledger");
    let report = audit(&invocation.ledger()?, &scope)?;
    drop(progress);
    let said = Reply::new(words::audited(&report, &scope), audit_json(&report, shared));
    Ok(if report.is_sound() { Answer::Done(said) } else { Answer::NotValid(said) })
}

fn audit_json(report: &AuditReport, shared: bool) -> Value {
    json!({
        "valid": report.is_sound(),
        "lines": report.lines,
        "first_seq": report.first_seq,
        "files": report.files,
        "changes": report.changes,
        "outside_changes": report.outside_changes,
        "tasks": report.tasks,
        "claims": report.claims,
        "shared": shared,
        "records": report.records,
        "flaws": report.flaws,
        "doubts": report.doubts,
        "left_off": report.left_off,
    })
}

/// Without serde, because a path in it may not be UTF-8.
fn verdict_json(verdict: &Verification, head_file: Option<&std::path::Path>) -> Value {
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

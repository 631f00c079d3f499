//! `tollgate work`: claims tasks and runs a command for each, until there are none, or forever.
//!
//! `queue` knows which tasks can be claimed now and waits for more. `pool` has the threads. Each thread runs one `job` after
//! the other, from the claim to the release. `heartbeat` tells the store that a job is alive, `timeout` ends a
//! job that takes too long, `relay` keeps what its command printed. `breaker` stops the worker if its command always fails.
//! `shift` is shared by all jobs.

mod breaker;
mod heartbeat;
mod job;
mod pool;
mod queue;
mod relay;
mod shift;
mod timeout;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tollgate::settings::Wait;
use tollgate::vault::{ClaimKind, ClaimRequest};
use tollgate::visible::plain;

use self::pool::Pool;
use self::queue::{Queue, QueueAnswer};
use self::shift::Shift;
use crate::answer::{Answer, Form, Reply};
use crate::command::number::number;
use crate::command::task;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::words;

/// Claim tasks and run a command for each
///
/// COMMAND runs once for each claimed task, with TOLLGATE_TASK (the path of the claimed file), TOLLGATE_TASK_ID,
/// TOLLGATE_CLAIM_ID, TOLLGATE_VAULT (the workspace of the vault), TOLLGATE_AGENT, TOLLGATE_ACTION and TOLLGATE_MODE (`execute`
/// or `draft`) in its environment. Once the claim has ended, tollgate refuses the writes of all processes that have these
/// variables. With exit code 0 the task is done; a draft then waits for approval. Any other exit code is a failed attempt: the end of what COMMAND
/// printed is added to the task, which can be claimed again after a pause (`[vault] retry`). After the last attempt the task
/// is rejected. After several quick failures in a row (`[work] breaker`) the worker claims no tasks for a while, then tries
/// one; with --once it ends.
///
/// If COMMAND succeeds, the claim ends with it. Otherwise the claim lasts until COMMAND and all processes that it started have
/// ended or died, and nobody else gets the task before that. With git or an engine, other machines cannot see these
/// processes, so the claim has a lease. If it cannot be renewed, COMMAND and its process group are killed before another machine
/// can take the task. New tasks are noticed at once.
///
/// Without COMMAND it claims one task with a lease and prints it, like `task claim --next`.
///
/// On SIGTERM or SIGINT it claims no more tasks, lets running commands finish within --grace, then stops them and returns
/// their tasks. A second signal stops them at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate work --agent blue -- sh -c 'my-agent --prompt-file \"$TOLLGATE_TASK\"'
  tollgate work --agent blue --once --jobs 4 -- ./do-task
  tollgate work --agent blue --once")]
pub(crate) struct WorkArgs {
    /// Work through all claimable tasks, then exit
    #[arg(long)]
    once: bool,
    /// Check the folders at least every S seconds, even without a notification of changes
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = |text: &str| number(text, 1..=86_400_u64))]
    interval: u64,
    /// Number of tasks to run in parallel
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = |text: &str| number(text, 1..=256_u16))]
    jobs: u16,
    /// Number of seconds that running commands have to finish after a signal
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = |text: &str| number(text, 0..=86_400_u64))]
    grace: u64,
    /// Time limit for a command, such as `90s` or `10m`; a command that exceeds it is stopped, and the attempt counts as failed
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Wait>,
    /// The command to run for each task
    #[arg(last = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

pub(crate) fn run(invocation: &Invocation, args: &WorkArgs) -> Result<Answer, CliError> {
    let agent = invocation.agent()?;
    if let Some(program) = args.command.first()
        && !is_program(program, invocation.surroundings().path.as_deref())
    {
        // Otherwise a typo would use up all attempts of all tasks.
        return Err(CliError::usage(
            format!("command not found: `{}`", plain(&program.to_string_lossy())),
            "check the name and `PATH`; for shell built-ins use `sh -c '...'`",
        ));
    }
    let tasks = invocation.tasks()?;
    let _view = tasks.keep_view()?;
    let kind = if args.command.is_empty() { ClaimKind::Leased } else { ClaimKind::Held };
    let request = ClaimRequest { agent: agent.clone(), kind, renamed_in: false };
    // The tasks of a machine that died come back within three leases, however short a lease is. On etcd it takes two looks: one
    // begins the grace period of its process, and one finds that it is over.
    let beat = tasks.vault.store().heartbeat_interval().unwrap_or(Duration::MAX);
    let interval = Duration::from_secs(args.interval).min(beat);
    let queue = Queue::new(invocation, &tasks, request, args.once, interval);
    let _watch = queue.watch();
    if args.command.is_empty() {
        if !args.once && invocation.form() == Form::Words {
            output::tell(&words::waits_for_one(&invocation.viewpoint(), &agent, &tasks.folder));
        }
        return match queue.take()? {
            QueueAnswer::Task(claimed) => Ok(task::said_claimed(invocation, &claimed)),
            QueueAnswer::NoMore(sentence) => Ok(task::said_nothing_to_claim(&agent, &sentence)),
        };
    }
    let quiet = invocation.form() == Form::Json;
    let shift =
        Shift::new(invocation, &tasks, &agent, &args.command, args.timeout.map(|limit| limit.0), quiet);
    let (tally, fault) = Pool::new(&shift, &queue).work(args.jobs, Duration::from_secs(args.grace))?;
    if let Some(fault) = fault {
        if !tally.is_nothing() {
            shift.show(&words::work_done(&tally));
        }
        return Err(fault.into());
    }
    let mut json = json!({
        "agent": agent, "done": tally.done, "drafted": tally.drafted, "failed": tally.failed,
        "given_back": tally.given_back, "lost": tally.lost, "faulted": tally.faulted,
    });
    let stopped = !queue.learn(|breaker| breaker.is_closed());
    if stopped {
        json["breaker"] = "open".into();
    }
    let said = Reply::new(
        match (tally.is_nothing(), args.once) {
            (true, true) => words::no_work(),
            (true, false) => String::new(),
            (false, _) => words::work_done(&tally),
        },
        json,
    );
    Ok(if args.once && (tally.failed + tally.undone + tally.faulted > 0 || stopped) {
        Answer::NotValid(said)
    } else {
        Answer::Done(said)
    })
}

/// Whether the program exists and is executable.
fn is_program(program: &OsStr, search: Option<&OsStr>) -> bool {
    let runs = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if Path::new(program).components().count() > 1 {
        return runs(Path::new(program));
    }
    search.is_none_or(|search| std::env::split_paths(search).any(|folder| runs(&folder.join(program))))
}

//! `tollgate work`: claims tasks and runs a command for each, as long as there are any, or for ever.
//!
//! `queue` knows what can be claimed now and waits for more; `errand` does one task, from the claim to the release;
//! `crew` is the threads that do errands and what happens when they are asked to stop; `launch` is the small program
//! between this one and the command.

mod crew;
mod errand;
mod heart;
mod launch;
mod queue;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tollgate::vault::{Asked, Not, Reason, Wish as Lasting};

use self::crew::Crew;
use self::queue::{Queue, Taken};
use crate::answer::{Answer, Form, Said, Stop};
use crate::command::task;
use crate::door::Door;
use crate::words;

pub(crate) use self::crew::Tally;
pub(crate) use self::launch::{Launch, launch};

/// Claim tasks and run a command for each
///
/// COMMAND is run once for each claimed task, with TOLLGATE_TASK (the path of the claimed file), TOLLGATE_TASK_ID,
/// TOLLGATE_CLAIM_ID, TOLLGATE_AGENT, TOLLGATE_ACTION and TOLLGATE_MODE (`execute` or `draft`) in its environment. Exit code 0: done,
/// or, of a draft, to be approved. Anything else: a failed attempt; after the last one the task is rejected.
///
/// The claim lasts exactly as long as the command and what it starts: nobody else gets the task while one of them runs,
/// however long that is, and it is free at once when all of them are gone, however that came about. New tasks are seen
/// at once.
///
/// Without COMMAND one task is claimed with a lease and printed, as by `task claim --next`.
///
/// SIGTERM or SIGINT: takes no more tasks, lets the commands finish within --grace, then ends them and gives their tasks
/// back. A second signal ends them at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate work --agent blue -- sh -c 'my-agent --prompt-file \"$TOLLGATE_TASK\"'
  tollgate work --agent blue --once --jobs 4 -- ./do-task
  tollgate work --agent blue --once")]
pub(crate) struct Wish {
    /// End when nothing more can be claimed
    #[arg(long)]
    once: bool,
    /// Look at the folders at least every so many seconds, also if nothing seems to have happened
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: u64,
    /// So many tasks at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// When asked to stop, give the commands so many seconds to finish
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    grace: u64,
    /// What to run for each task
    #[arg(last = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let agent = door.agent()?;
    if let Some(program) = wish.command.first()
        && !is_program(program, door.search_path())
    {
        // Otherwise a slip of the finger would use up the attempts of every task.
        return Err(words::no_such_program(program));
    }
    let tasks = door.tasks()?;
    let lasting = if wish.command.is_empty() { Lasting::Leased } else { Lasting::Held };
    let asked = Asked { agent: agent.clone(), wish: lasting, renamed_in: false };
    let queue = Queue::new(door, &tasks, asked, wish.once, Duration::from_secs(wish.interval));
    let _watch = queue.watch();
    if wish.command.is_empty() {
        return match queue.take()? {
            Taken::Task(claimed) => Ok(task::said_claimed(door, &claimed)),
            Taken::NoMore(sentence) => {
                let not = Not { reason: Reason::None, sentence, wait: None };
                Ok(task::said_not_claimed(&agent, None, &not))
            }
        };
    }
    let quiet = door.form() == Form::Json;
    let crew = Crew::new(door, &tasks, &queue, &agent, &wish.command, quiet);
    let tally = crew.work(wish.jobs, Duration::from_secs(wish.grace))?;
    let said = Said {
        words: if tally.is_nothing() { String::new() } else { words::work_done(&tally) },
        json: json!({
            "agent": agent, "done": tally.done, "drafted": tally.drafted, "failed": tally.failed,
            "given_back": tally.given_back,
        }),
        ..Said::default()
    };
    Ok(if wish.once && tally.failed > 0 { Answer::NotValid(said) } else { Answer::Done(said) })
}

/// Whether this can be run, as far as can be told without running it.
fn is_program(program: &OsStr, search: Option<&OsStr>) -> bool {
    let runs = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if Path::new(program).components().count() > 1 {
        return runs(Path::new(program));
    }
    search.is_none_or(|search| std::env::split_paths(search).any(|folder| runs(&folder.join(program))))
}

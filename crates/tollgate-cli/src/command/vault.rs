//! `tollgate vault`: copies a vault between folders, git and engines.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;
use tollgate::settings::StoreChoice;
use tollgate::tasks::check_store;
use tollgate::vault::copy::{CopiedHistory, copy};
use tollgate::visible::plain;

use crate::answer::{Answer, Form, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::words;

/// Copy tasks between the store of this workspace and another store
///
/// A store is `folder`, `git`, or the address of an engine, as in `[vault] store`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate vault copy --to postgres://ada@db/work")]
pub(crate) struct VaultArgs {
    #[command(subcommand)]
    command: VaultCommand,
}

#[derive(Debug, Subcommand)]
enum VaultCommand {
    /// Copy all tasks and their history to or from another store, and compare both afterwards
    ///
    /// Nothing is copied while an agent works, and no task of the target is replaced. The source stays as it is. If the copy is
    /// interrupted, run the command again. To use the copy, name its store in `[vault] store`, on every machine.
    ///
    /// The other store gets the login in TOLLGATE_COPY_USER and TOLLGATE_COPY_PASSWORD, never that of this workspace.
    #[command(after_help = "\
Example
  tollgate vault copy --to postgres://ada@db/work
  tollgate vault copy --from git")]
    Copy(CopyArgs),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct CopyArgs {
    /// Copy the vault of this workspace to this store
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Copy the vault in this store to that of this workspace
    #[arg(long, value_name = "URL")]
    from: Option<String>,
}

/// How often a copy that takes long says how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(invocation: &Invocation, args: &VaultArgs) -> Result<Answer, CliError> {
    // A copy could bring tasks that look approved.
    if invocation.inside_an_agent().is_some() {
        return Err(CliError::usage(
            "agents may not copy vaults",
            "ask a person to run this command outside the agent",
        ));
    }
    let VaultCommand::Copy(args) = &args.command;
    let url = args.to.as_ref().or(args.from.as_ref()).map_or("", String::as_str);
    check_address(url, ["TOLLGATE_COPY_USER", "TOLLGATE_COPY_PASSWORD"])?;
    let own = invocation.fresh_tasks()?;
    if *own.home.settings.vault.chosen_store() == check_store(url)? {
        return Err(CliError::usage(
            format!("`{}` is the store of this workspace already, so there is nothing to copy", plain(url)),
            "give another store; `tollgate vault --help` says which there are",
        ));
    }
    let other = invocation.tasks_in(url)?;
    other.vault.store().sync()?;
    let (from, to) = if args.to.is_some() { (&*own, &other) } else { (&other, &*own) };
    let mut told = Instant::now();
    let mut progress = |done, all| {
        if told.elapsed() >= TOLD_EVERY && invocation.form() == Form::Words {
            output::tell(&words::copying(done, all));
            told = Instant::now();
        }
    };
    match copy(from.vault.store(), to.vault.store(), invocation.now(), &mut progress)? {
        Ok(report) => Ok(Answer::Done(Reply {
            json: json!({
                "copied": true,
                "from": from.store,
                "to": to.store,
                "tasks": report.tasks.iter().map(|(state, count)| (state.to_string(), json!(count))).collect::<serde_json::Map<_, _>>(),
                "sha256": report.digest.to_string(),
                "events": match report.history {
                    CopiedHistory::Added(count) | CopiedHistory::AddedLatest(count) => json!(count),
                    CopiedHistory::OwnHistory => json!(null),
                },
            }),
            words: words::vault_copied(&report, from.store, to.store),
            notes: words::unfit(&report.unfit),
        })),
        Err(denial) => Ok(Answer::NotValid(Reply {
            json: json!({"copied": false, "reason": denial.to_string()}),
            words: String::new(),
            notes: words::not_copied(&denial),
        })),
    }
}

/// Refuses the address of a store that has a password in it. The login belongs into these variables.
pub(super) fn check_address(url: &str, [user, password]: [&str; 2]) -> Result<(), CliError> {
    if !StoreChoice::has_password(url) {
        return Ok(());
    }
    Err(CliError::usage(
        "the address of the store has a password, which others could read",
        format!(
            "delete the password from the address, and set `{user}` and `{password}` in your environment"
        ),
    ))
}

//! `tollgate task`: the commands for tasks, for people and for agents.

mod add;
mod claim;
mod decide;
mod edit;
mod foreign;
mod import;
mod list;
mod own;
mod prose;
mod show;

use clap::Args;

use super::dispatch::commands;
use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;

pub(crate) use claim::{said_claimed, said_nothing_to_claim};

/// Add, list, claim, release, approve and reject tasks: Markdown files in the folders of a vault
///
/// A task's state is its folder: `Needs_Action`, `In_Progress/<agent>`, `Pending_Approval`, `Approved`, `Done` or `Rejected`. A
/// claim moves the file, so only one of several agents gets it. The owner then proves the claim with its claim ID, by
/// --claim-id or TOLLGATE_CLAIM_ID; the ID of an old claim is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate init --vault
  tollgate task add 'Water the plants' --priority high
  tollgate task list
  tollgate task claim --next --agent blue
  tollgate task release water-the-plants --claim-id c-0123456789abcdef")]
pub(crate) struct TaskArgs {
    #[command(subcommand)]
    command: TaskCommand,
}

commands! {
    /// The commands of a task, in the order of the help.
    enum TaskCommand {
        Add(add::TaskAddArgs) => add::run,
        Import(import::TaskImportArgs) => import::run,
        List(list::TaskListArgs) => list::run,
        Show(show::TaskShowArgs) => show::run,
        Why(show::TaskWhyArgs) => show::why,
        Claim(claim::TaskClaimArgs) => claim::run,
        Verify(own::TaskVerifyArgs) => own::verify,
        Renew(own::TaskRenewArgs) => own::renew,
        Progress(own::TaskProgressArgs) => own::progress,
        Draft(own::TaskDraftArgs) => own::draft,
        Release(own::TaskReleaseArgs) => own::release,
        Approve(decide::TaskApproveArgs) => decide::approve,
        Reject(decide::TaskRejectArgs) => decide::reject,
        Retry(decide::TaskRetryArgs) => decide::retry,
        Return(decide::TaskReturnArgs) => decide::give_back,
        Edit(edit::TaskEditArgs) => edit::run,
        Reclaim(decide::TaskReclaimArgs) => decide::reclaim,
        Figures(list::TaskFiguresArgs) => list::figures,
    }
}

pub(crate) fn run(invocation: &Invocation, args: &TaskArgs) -> Result<Answer, CliError> {
    args.command.run(invocation)
}

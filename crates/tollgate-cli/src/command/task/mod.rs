//! `tollgate task`: the list of tasks, for people and for agents.

mod add;
mod claim;
mod decide;
mod list;
mod own;
mod show;

use clap::{Args, Subcommand};

use crate::answer::{Answer, Stop};
use crate::door::Door;

pub(crate) use claim::{said_claimed, said_not_claimed};

/// Add, list, claim, release and decide on tasks: markdown files in the folders of a vault
///
/// The folder that a task lies in is its state: `Needs_Action`, `In_Progress/<agent>`, `Pending_Approval`, `Approved`, `Done`,
/// `Rejected`. A claim moves the file, and the move decides: of all that ask at once, one gets it. Whoever has claimed a
/// task shows its claim id from then on, by --claim-id or TOLLGATE_CLAIM_ID; an old one is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate init --vault
  tollgate task add 'Water the plants' --priority high
  tollgate task list
  tollgate task claim --next --agent blue
  tollgate task release water-the-plants --claim-id c-0123456789abcdef")]
pub(crate) struct Wish {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Add(add::Wish),
    List(list::Wish),
    Show(show::Wish),
    Why(show::Why),
    Claim(claim::Wish),
    Verify(own::Verify),
    Renew(own::Renew),
    Progress(own::Progress),
    Release(own::Release),
    Approve(decide::Approve),
    Reject(decide::Reject),
    Reclaim(decide::Reclaim),
    Figures(list::Figures),
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    match &wish.what {
        What::Add(wish) => add::run(door, wish),
        What::List(wish) => list::run(door, wish),
        What::Show(wish) => show::run(door, wish),
        What::Why(wish) => show::why(door, wish),
        What::Claim(wish) => claim::run(door, wish),
        What::Verify(wish) => own::verify(door, wish),
        What::Renew(wish) => own::renew(door, wish),
        What::Progress(wish) => own::progress(door, wish),
        What::Release(wish) => own::release(door, wish),
        What::Approve(wish) => decide::approve(door, wish),
        What::Reject(wish) => decide::reject(door, wish),
        What::Reclaim(wish) => decide::reclaim(door, wish),
        What::Figures(wish) => list::figures(door, wish),
    }
}

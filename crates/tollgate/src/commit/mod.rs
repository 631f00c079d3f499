//! Changing files: one, or many as one. No other code does.
//!
//! Every change of a file is a `Plan`. All plans of a commit are applied or none is, also if the process or the
//! machine dies in between, and no save of another program is lost on the way. The steps, for all plans together:
//!
//! 1. **Stage** the new bytes with the owner, mode and attributes of the old file, and flush them.
//! 2. Make every target **quiet**: the kernel's lease fails while anyone has the file open for writing.
//! 3. **Hash** through that descriptor and compare. Only here is a file called stale.
//! 4. **Journal**, if there is more than one thing to do: which names, which hashes.
//! 5. **Swap** each staged file with its target, in one step of the kernel. Both contents are on disk all the time.
//! 6. Flush the folders, then **verify**: what came out is the inode that was hashed, and still nobody has asked to write
//!    it. If not, a foreign save came in between: swap back, begin again at 1.
//! 7. **Ledger line**: the commit point. Before it, a crash undoes a journalled commit; after it, the commit stands.
//! 8. What came out stays under its stage name. After a grace time it gets a **second look** (see `heal.rs`): who
//!    had resolved the path before step 2 and opened it after step 6 has written into it, and that is found, kept and
//!    reported.
//!
//! A commit of one file needs no journal: its stage name says it all.

mod journal;
mod step;

use std::time::{Duration, Instant};

use crate::digest::Digest;
use crate::disk::{Folder, Swap};
use crate::error::{Fault, Result};
use crate::ledger::{ActionType, Entry, Flush};
use crate::lock::Pauses;
use crate::name::{Agent, TurnId};
use crate::path::FilePath;
use crate::place::Place;
use crate::refusal::{Reason, Refusal, Stale};
use crate::settings::Durability;
use crate::stage::ChangeId;
use crate::turn::FileState;
use crate::workspace::Workspace;

pub(crate) use journal::{Content as JournalContent, Journal, Record, finish_journalled, undo_journalled};
pub(crate) use step::{Displaced, finish_swap, give_back, put_back, remove_folder, stage_file_name};
use step::{Looked, Step};

/// How often a commit begins again because a foreign save came in between, before it says that the file is busy. Each
/// round takes a fraction of a millisecond, so only a program that saves without a pause comes near.
const ROUNDS: usize = 200;

/// How long a file may be missing before it counts as deleted: some editors move the old file away before they write the
/// new one.
const GAP: Duration = Duration::from_millis(200);

/// One change of one file.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) place: Place,
    pub(crate) deed: Deed,
    pub(crate) base: Base,
}

/// What is done to the file.
#[derive(Debug)]
pub(crate) enum Deed {
    /// It gets these bytes, and is made if it is not there.
    Put(Vec<u8>),
    /// It is taken away.
    Remove,
    /// It gets another name, which must be free.
    MoveTo(Place),
}

/// What has to be on disk for the change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// Whatever is there.
    Any,
    /// This, or the change is refused.
    Exactly(FileState),
    /// This, or a line in the ledger says that the change would have been refused.
    Observed(FileState),
}

/// In whose name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) turn: Option<&'a TurnId>,
    pub(crate) tool: &'a str,
}

impl Author<'_> {
    /// A ledger line in this name.
    pub(crate) fn entry(
        &self,
        workspace: &Workspace,
        action_type: ActionType,
        payload: serde_json::Value,
        result: serde_json::Value,
    ) -> Entry {
        Entry {
            time: workspace.now(),
            agent: Some(self.agent.clone()),
            turn: self.turn.cloned(),
            action_type,
            payload,
            result,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Committed {
    /// All of it is done. The refusals are those that were only observed.
    Applied { changes: Vec<Applied>, observed: Vec<Refusal>, left: Left },
    /// Nothing was changed.
    Refused(Vec<Refusal>),
}

/// What a commit that stands has left lying about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Something could not be tidied up. Until that is healed, a new file may still have a second name in the stage.
    Something,
}

/// One change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The id of the change, in the ledger and in recovery.
    pub id: String,
    /// The file.
    pub path: FilePath,
    /// Where it is now, if it was moved.
    pub moved_to: Option<FilePath>,
    /// What it was.
    pub before: FileState,
    /// What it is.
    pub after: FileState,
    /// How well it was protected against programs that know nothing of tollgate.
    pub guarantee: Guarantee,
}

/// How well a change was protected against programs that know nothing of tollgate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// No foreign save can be lost; one that comes late is kept and reported.
    Full,
    /// No kernel lease (another user's file, a network file system): a save in place that comes in between is found by
    /// the second look, after the write was acknowledged.
    NoQuiet,
    /// On another file system than the state: no second look.
    NoSecondLook,
    /// The file system cannot exchange two names: a save that falls between check and rename is lost.
    NoExchange,
}

/// The locks of all places are held by the caller.
pub(crate) fn commit(workspace: &Workspace, plans: Vec<Plan>, author: Author<'_>) -> Result<Committed> {
    let begun = Instant::now();
    let mut steps = Vec::with_capacity(plans.len());
    for plan in plans {
        steps.push(Step::new(workspace, plan, author)?);
    }
    let outcome = rounds(workspace, &mut steps, author, begun);
    if !matches!(outcome, Ok(Committed::Applied { .. })) {
        for step in &mut steps {
            step.discard_unexposed();
        }
        for step in steps.iter_mut().rev() {
            step.remove_made_folders(workspace)?;
        }
    }
    outcome
}

fn rounds(
    workspace: &Workspace,
    steps: &mut [Step],
    author: Author<'_>,
    begun: Instant,
) -> Result<Committed> {
    let settings = &workspace.settings().guard;
    let mut busy = Pauses::lasting(settings.quiet_wait.0);
    for _ in 0..ROUNDS {
        let staged = look_at_all(steps, |step| step.stage(workspace))?;
        if !staged.refused.is_empty() {
            return Ok(Committed::Refused(staged.refused));
        }
        let looked = look_at_all(steps, Step::look)?;
        if !looked.refused.is_empty() {
            return Ok(Committed::Refused(looked.refused));
        }
        let again = staged.again.or(looked.again);
        if let Some(refusal) = again {
            // Whoever waits for us must get through before we ask again.
            steps.iter_mut().for_each(Step::let_go);
            if !busy.pause() {
                return Ok(Committed::Refused(vec![refusal]));
            }
            continue;
        }
        match apply(workspace, steps, author, begun)? {
            Tried::Done(changes, left) => {
                let observed = steps.iter().filter_map(Step::observed).collect();
                return Ok(Committed::Applied { changes, observed, left });
            }
            Tried::Missed => steps.iter_mut().for_each(Step::let_go),
        }
    }
    let refusals = steps.iter().map(|step| step.refusal(Reason::Busy { holder: None }));
    Ok(Committed::Refused(refusals.collect()))
}

/// What a look at all files gave together.
#[derive(Default)]
struct LookedAtAll {
    refused: Vec<Refusal>,
    /// One that somebody is writing, if there is one.
    again: Option<Refusal>,
}

fn look_at_all(steps: &mut [Step], mut look: impl FnMut(&mut Step) -> Result<Looked>) -> Result<LookedAtAll> {
    let mut all = LookedAtAll::default();
    for step in steps {
        match look(step)? {
            Looked::Ready => {}
            Looked::Refused(reason) => all.refused.push(step.refusal(reason)),
            Looked::Taken(reason) => all.refused.push(step.refusal_of_target(reason)),
            Looked::Busy | Looked::Disturbed => all.again = Some(step.refusal(Reason::Busy { holder: None })),
        }
    }
    Ok(all)
}

enum Tried {
    Done(Vec<Applied>, Left),
    /// A foreign save came in between; everything is as it was.
    Missed,
}

fn apply(workspace: &Workspace, steps: &mut [Step], author: Author<'_>, begun: Instant) -> Result<Tried> {
    let durability = workspace.settings().guard.durability;
    for step in steps.iter_mut() {
        step.name_stage(workspace)?;
    }
    let journal = if steps.len() > 1 || steps.iter().any(Step::needs_journal) {
        Some(Journal::write(workspace, author, steps.iter().map(Step::record).collect(), durability)?)
    } else {
        None
    };
    for step in steps.iter_mut() {
        step.forget_beside()?;
    }
    let attempt = swap_and_verify(steps, durability).and_then(|matched| {
        if matched {
            // The commit point. If the line cannot be written, the change is taken back.
            let mut lines: Vec<Entry> = steps.iter().map(|step| step.line(workspace, author)).collect();
            // Once for all files of the commit.
            if let Some(first) = lines.first_mut() {
                first.payload["took_us"] =
                    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX).into();
            }
            let flush = match durability {
                // A lone swap or removal has left the displaced file under a name from which the line can be made again.
                Durability::Durable if journal.is_some() || steps.iter().any(Step::leaves_no_trace) => {
                    Flush::Data
                }
                _ => Flush::No,
            };
            workspace.ledger().append(&lines, flush)?;
        }
        Ok(matched)
    });
    if matches!(attempt, Ok(true)) {
        let changes = steps.iter().map(Step::applied).collect();
        // From here on the change stands: what follows is tidying, and a failure in it is left to the next who comes by.
        let mut tidy = true;
        for step in steps.iter_mut() {
            tidy &= step.finish(workspace).is_ok();
        }
        // Last, and only if the rest is done: on another file system it is the journal that knows what is left to tidy up.
        tidy = tidy && journal.is_none_or(|journal| journal.remove().is_ok());
        return Ok(Tried::Done(changes, if tidy { Left::Nothing } else { Left::Something }));
    }
    for step in steps.iter_mut().rev() {
        step.undo(workspace)?;
    }
    flush_folders(steps, durability)?;
    if let Some(journal) = journal {
        journal.remove_for_good()?;
    }
    attempt.map(|_| Tried::Missed)
}

/// Whether everything could be swapped and nothing foreign came in between.
fn swap_and_verify(steps: &mut [Step], durability: Durability) -> Result<bool> {
    for step in steps.iter_mut() {
        if !step.swap()? {
            return Ok(false);
        }
    }
    // Before the last check, not after it: whoever is on the way to an open file has this long to be noticed.
    flush_folders(steps, durability)?;
    for step in steps.iter_mut() {
        if !step.verify()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Without this, a power cut after the acknowledgement could bring the old names back.
fn flush_folders(steps: &[Step], durability: Durability) -> Result<()> {
    // In the order in which they were changed.
    let mut folders: Vec<Folder> = steps.iter().flat_map(Step::folders).collect();
    if let Some(last) = folders.last()
        && folders.iter().all(|folder| folder.flushes_all() && folder.same_device(last))
    {
        return last.flush(durability);
    }
    folders.sort_by(|a, b| a.shown().cmp(b.shown()));
    folders.dedup_by(|a, b| a.shown() == b.shown());
    folders.iter().try_for_each(|folder| folder.flush(durability))
}

/// The ledger's line for a change that was made.
pub(crate) fn mutation_payload(
    id: &ChangeId,
    tool: &str,
    target: &std::path::Path,
    before: FileState,
    after: FileState,
) -> serde_json::Value {
    serde_json::json!({
        "id": id.as_str(),
        "tool_name": tool,
        "target_file": target.display().to_string(),
        "hash_before": prefixed(before.digest()),
        "hash_after": prefixed(after.digest()),
    })
}

/// As hashes are written in the ledger.
pub(crate) fn prefixed(digest: Option<Digest>) -> Option<String> {
    digest.map(|digest| format!("sha256:{digest}"))
}

pub(crate) fn stale(expected: FileState, actual: FileState) -> Reason {
    Reason::Stale(Stale { expected, actual, changed_by: None, diff: None })
}

impl Guarantee {
    fn of(swap: Option<Swap>, quiet: bool, second_look: bool) -> Self {
        match (swap, quiet, second_look) {
            (Some(Swap::Renamed), _, _) => Self::NoExchange,
            (_, _, false) => Self::NoSecondLook,
            (_, false, _) => Self::NoQuiet,
            _ => Self::Full,
        }
    }
}

fn nothing_there(place: &Place) -> Fault {
    Fault::Missing { what: format!("`{}`", place.path) }
}

//! From the changes of a file to what one agent may commit of it. This file does no I/O.

use super::history::{Content, Step, Trace};
use crate::merge::{self, MergeLimit, NoMerge};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;

/// What the agent may commit of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Share {
    /// Nothing: the agent has changed nothing that HEAD does not have.
    None,
    /// The file as it is on disk, with its mode: all of it is the agent's own, or HEAD's.
    Whole,
    /// These bytes, or no file.
    Part(Option<Vec<u8>>),
    /// Nothing, because its changes cannot be told apart from somebody else's.
    Left(Option<Agent>, WhyLeft),
}

/// Why changes of the agent stay uncommitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyLeft {
    /// They touch lines that somebody else has changed, and that are not committed.
    Conflict,
    /// They are between changes of somebody else, and the text from before or after them is no longer kept.
    NotKept,
    /// Somebody else has changed the file, too, and it is not text.
    NotText,
    /// Somebody else has changed the file, too, and it is too large, or too different, to be merged.
    TooLarge,
    /// Somebody else has moved the file.
    Moved,
}

impl std::fmt::Display for WhyLeft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Conflict => {
                "your changes are in the same lines as changes of somebody else that are not committed"
            }
            Self::NotKept => {
                "somebody else has changed the file, too, and tollgate no longer has the text before or after your change"
            }
            Self::NotText => "somebody else has changed the file, too, and it is not text",
            Self::TooLarge => "somebody else has changed the file, too, and it is too large to be merged",
            Self::Moved => "somebody else has moved the file, and the move is not committed",
        })
    }
}

/// What the file is in HEAD and on disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) head: Option<Digest>,
    pub(super) disk: Option<Digest>,
    /// A symbolic link: it has no lines.
    pub(super) is_link: bool,
}

/// The text of a state of the file.
pub(super) type TextOf<'a> = dyn FnMut(Digest) -> Result<Option<Vec<u8>>> + 'a;

/// What this agent may commit. Texts are asked for only if the file has two authors.
pub(super) fn share(
    trace: &Trace,
    agent: &Agent,
    ends: Ends,
    disk: Option<&[u8]>,
    text: &mut TextOf<'_>,
) -> Result<Share> {
    let is_own = |step: &Step| step.agent.as_ref() == Some(agent);
    if !trace.steps.iter().any(is_own) {
        return Ok(Share::None);
    }
    if trace.steps.iter().all(is_own) && leads(&trace.steps, ends.head, ends.disk) {
        return Ok(Share::Whole);
    }
    let other = trace.steps.iter().rev().find(|step| !is_own(step));
    let author = other.and_then(|step| step.agent.clone());
    if trace.steps.iter().any(|step| step.is_move && !is_own(step)) {
        return Ok(Share::Left(author, WhyLeft::Moved));
    }
    if ends.is_link {
        return Ok(Share::Left(author, WhyLeft::NotText));
    }
    // Always there: git has it.
    let before = ends.head.map(&mut *text).transpose()?.flatten();
    let is_explained = leads(&trace.steps, ends.head, ends.disk);
    let runs = runs(&trace.steps, agent);
    for skipped in 0..runs.len() {
        let made = match apply_all(before.clone(), &runs[skipped..], text)? {
            Ok(made) => made,
            Err(why) => return Ok(Share::Left(author, why)),
        };
        // Without a gap, nothing that HEAD once had can be among the changes. With one, perhaps the oldest are.
        if is_explained || is_on_disk(before.as_deref(), made.as_deref(), disk) {
            let changes = made != before || trace.name != trace.origin;
            return Ok(if changes { Share::Part(made) } else { Share::None });
        }
    }
    Ok(Share::None)
}

/// Whether everything that is to be committed is also on disk. Somebody may have committed an old change of the agent with git, and
/// reverted it since: then it is not to be committed again.
fn is_on_disk(before: Option<&[u8]>, made: Option<&[u8]>, disk: Option<&[u8]>) -> bool {
    match (before, made, disk) {
        _ if made == disk || made == before => true,
        (Some(before), Some(made), Some(disk)) => merge::merge(before, made, disk, MergeLimit::Whole)
            .is_ok_and(|merged| merged.is_ok_and(|merged| merged.as_bytes() == disk)),
        _ => false,
    }
}

fn apply_all(
    mut made: Option<Vec<u8>>,
    runs: &[[&Step; 2]],
    text: &mut TextOf<'_>,
) -> Result<std::result::Result<Option<Vec<u8>>, WhyLeft>> {
    for run in runs {
        match apply(made, *run, text)? {
            Ok(next) => made = next,
            why => return Ok(why),
        }
    }
    Ok(Ok(made))
}

/// Whether these steps lead from one state to the other without a gap.
fn leads(steps: &[Step], from: Option<Digest>, to: Option<Digest>) -> bool {
    let mut now = from;
    for step in steps {
        if !step.before.fits(now) {
            return false;
        }
        if let Content::Known(after) = step.after {
            now = after;
        }
    }
    now == to
}

/// The agent's steps that follow each other without a gap: the first and the last of each run. Fewer texts are needed then.
fn runs<'t>(steps: &'t [Step], agent: &Agent) -> Vec<[&'t Step; 2]> {
    let mut runs: Vec<[&Step; 2]> = Vec::new();
    let mut last: Option<&Step> = None;
    for step in steps {
        let is_own = step.agent.as_ref() == Some(agent);
        // A move changes no bytes.
        let changes = step.before != step.after;
        let follows = last.is_some_and(|last| {
            last.agent.as_ref() == Some(agent) && last.after == step.before && last.before != last.after
        });
        match runs.last_mut() {
            Some(run) if is_own && changes && follows => run[1] = step,
            _ if is_own && changes => runs.push([step, step]),
            _ => {}
        }
        last = Some(step);
    }
    runs
}

/// Makes the change of a run in these bytes.
fn apply(
    made: Option<Vec<u8>>,
    [first, last]: [&Step; 2],
    text: &mut TextOf<'_>,
) -> Result<std::result::Result<Option<Vec<u8>>, WhyLeft>> {
    let (Content::Known(before), Content::Known(after)) = (first.before, last.after) else {
        return Ok(Err(WhyLeft::NotKept));
    };
    let now = made.as_deref().map(Digest::of);
    if now == after {
        return Ok(Ok(made));
    }
    let mut text_of = |digest: Option<Digest>| match digest {
        Some(digest) => Ok(text(digest)?.map(Some).ok_or(WhyLeft::NotKept)),
        None => Ok::<_, Fault>(Ok(None)),
    };
    let wanted = match text_of(after)? {
        Ok(wanted) => wanted,
        Err(why) => return Ok(Err(why)),
    };
    // Nobody else has changed it, so the bytes need not be text.
    if now == before {
        return Ok(Ok(wanted));
    }
    let base = match text_of(before)? {
        Ok(base) => base,
        Err(why) => return Ok(Err(why)),
    };
    let (Some(base), Some(wanted), Some(made)) = (base, wanted, made) else {
        // Made or deleted a file that somebody else has changed.
        return Ok(Err(WhyLeft::Conflict));
    };
    Ok(match merge::merge(&base, &wanted, &made, MergeLimit::Whole) {
        Ok(Ok(merged)) => Ok(Some(merged.into_bytes())),
        Ok(Err(_)) => Err(WhyLeft::Conflict),
        Err(NoMerge::TooLarge) => Err(WhyLeft::TooLarge),
        Err(_) => Err(WhyLeft::NotText),
    })
}

//! The search for the change with which a command began to fail.

use tollgate::history::step::Step;
use tollgate::visible::plain;

use super::history::shown_changes;
use super::text::{Viewpoint, count, moment, short};
use crate::report::history::ShownChanges;

pub(crate) const NOTHING_TO_BISECT: &str = "nothing to search: the ledger has no change whose state before can be rebuilt\nhint: run `tollgate history` to see all changes";

pub(crate) const BISECT_SUCCEEDS: &str =
    "the command succeeds now, so no change is to be found\nhint: the command must fail now";

pub(crate) const BISECT_FAILS_BEFORE: &str = "the command fails in the oldest state, too, so none of these changes is the cause\nhint: give an earlier `--since`, or look at \
     `git bisect` for what was committed before";

pub(crate) fn bisect_cannot_say(why: &str) -> String {
    format!(
        "{why}: the command says so (exit code 125), or its bytes are no longer kept\nhint: give a later `--since`"
    )
}

/// What one run has said, while the search goes on.
pub(crate) fn bisect_progress(run: usize, before: Option<u64>, verdict: &str) -> String {
    match before {
        Some(change) => format!("run {run}: before change {change}: {verdict}"),
        None => format!("run {run}: now: {verdict}"),
    }
}

/// The changes among which is searched.
pub(crate) fn bisect_plan(changes: &[&Step], runs: usize) -> String {
    let changes: Vec<String> = changes
        .iter()
        .map(|step| {
            let agent = step.agent.as_ref().map_or("-", |agent| agent.as_str());
            format!("{:>6}  {}  {agent}  {}", step.change, moment(step.time), short(&plain(step.landed())))
        })
        .collect();
    format!("{}, about {}\n{}", count(changes.len(), "change"), count(runs, "run"), changes.join("\n"))
}

/// The change that was found, with its diff.
pub(crate) fn bisected(
    view: &Viewpoint,
    shown: &ShownChanges<'_>,
    is_one: bool,
    others: &[&str],
    runs: usize,
) -> String {
    let runs = count(runs, "run");
    let mut words = match is_one {
        true => format!("found in {runs}: with this change the command began to fail\n"),
        false => format!(
            "after {runs}: one of these changes is the cause; what is between them cannot be tested\n"
        ),
    };
    words += &shown_changes(view, shown);
    for path in others {
        words += &format!(
            "\nnote: somebody else has changed `{}` before the next guarded change of it",
            short(&plain(path))
        );
    }
    words
}

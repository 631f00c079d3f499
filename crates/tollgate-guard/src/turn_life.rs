//! The beginning and the end of a turn: its lines in the ledger, and its record.

use crate::git_rules;
use crate::left_turn;
use crate::open_turn;
use crate::repository::{ChangedRepository, Moment};
use crate::root::Root;
use crate::shared_turn::SharedTurns;
use crate::turn::{Asked, Head, TurnStart, TurnState};
use crate::turn_record;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, TurnMark};
use tollgate_base::settings::Durability;
use tollgate_base::working_tree::WorkingTree;

/// A turn begins.
pub(crate) fn begins(root: &Root, turn: &dyn TurnState, asked: Asked) -> Result<()> {
    git_rules::turn_begins(root, turn)?;
    // Nothing depends on these records. If one cannot be written now, the next turn tries again.
    let _ = left_turn::take(root, |left, used| turn_record::keep(root, left, used, None));
    let start = start(root, asked);
    open_turn::begin(root, turn, &start)?;
    turn.began(&start)?;
    record(root, turn, Event::TurnStarted(TurnMark {}))
}

/// A turn ends.
pub(crate) fn ends(root: &Root, turn: &dyn TurnState) -> Result<()> {
    open_turn::end(root, turn.id())?;
    turn_record::keep(root, turn, root.now(), head(root))?;
    record(root, turn, Event::TurnEnded(TurnMark {}))
}

/// A command begins in a turn of its own, which has no lines in the ledger.
pub(crate) fn lone_begins(root: &Root, turn: &dyn TurnState) -> Result<()> {
    turn.began(&start(root, Asked::default()))
}

/// That command has ended.
pub(crate) fn lone_ends(root: &Root, turn: &dyn TurnState) -> Result<()> {
    turn_record::keep(root, turn, root.now(), head(root))
}

/// Keeps the records of turns that nobody has ended, before they are deleted.
pub(crate) fn keep_forgotten(root: &Root, turns: &SharedTurns) -> Result<()> {
    for (turn, last) in turns.forgotten(root.now())? {
        turn_record::keep(root, &turn, last, None)?;
    }
    Ok(())
}

fn start(root: &Root, mut asked: Asked) -> TurnStart {
    asked.prompt_sha256 = asked.prompt.as_ref().map(|prompt| Digest::of(prompt.as_bytes()));
    asked.prompt = asked.prompt.filter(|_| root.settings().history.prompts);
    TurnStart { began: root.now(), head_before: head(root), asked }
}

/// Where HEAD is in the working tree of the workspace.
fn head(root: &Root) -> Option<Head> {
    let tree = WorkingTree::around(root.path())?;
    // The branches of a linked working tree are in the main one.
    let common = WorkingTree { git_dir: tree.common_dir(), ..tree.clone() };
    let mut head = ChangedRepository::unchanged(tree).head(Moment::Before);
    if let (Some(branch), None) = (&head.branch, &head.commit) {
        head.commit = ChangedRepository::unchanged(common).reference(branch, Moment::Before);
    }
    Some(head)
}

fn record(root: &Root, turn: &dyn TurnState, event: Event) -> Result<()> {
    let entry = root.entry(Some(turn.agent()), Some(turn.id()), event);
    root.ledger().append(&[entry], Durability::Fast).map(drop)
}

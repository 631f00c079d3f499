//! Settling tool calls whose end the agent program never reported: their results are recorded, and their reservations end.

use std::fs;
use std::path::Path;

use tollgate::error::Fault;
use tollgate::gate::{Gate, ToolResult};
use tollgate::shared_turn::SharedTurns;
use tollgate::turn::Turn;

use super::pending_call::{self, PendingCall, peek, take};
use super::prologue::Prologue;
use crate::session_turns::AGENTS;

/// Settles the calls of one session whose files hold what they were expected to write, except the call of this name.
pub(super) fn finished(turns: &SharedTurns, gate: &Gate, folder: &Path, except: &str) -> Result<(), Fault> {
    each(pending_call::all(folder), |path| {
        let is_done = !path.ends_with(except) && peek(path).is_some_and(|call| call.is_done());
        if is_done { taken(turns, gate, path, |_| ToolResult::Succeeded) } else { Ok(()) }
    })
}

/// Settles all calls of one session: its agent waits, or has begun something else.
pub(super) fn all(turns: &SharedTurns, gate: &Gate, folder: &Path) -> Result<(), Fault> {
    each(pending_call::all(folder), |path| taken(turns, gate, path, |_| ToolResult::Failed))
}

/// Settles the calls of all sessions that are certainly over: their files hold what they were expected to write, or the
/// program that ran the tool is dead.
pub(super) fn abandoned(gate: &Gate, places: &[SharedTurns]) -> Result<(), Fault> {
    let result = |call: &PendingCall| if call.is_done() { ToolResult::Succeeded } else { ToolResult::Failed };
    each(places, |turns| {
        let sessions = fs::read_dir(turns.folder().join(AGENTS)).into_iter().flatten().flatten();
        each(sessions.flat_map(|session| pending_call::all(&session.path())), |path| {
            let is_over = peek(path).is_some_and(|call| call.host_is_dead() || call.is_done());
            if is_over { taken(turns, gate, path, result) } else { Ok(()) }
        })
    })
}

/// Settles each of these, even if one of them fails. Returns the first fault.
fn each<T>(
    items: impl IntoIterator<Item = T>,
    mut settle: impl FnMut(&T) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut done = Ok(());
    for item in items {
        done = done.and(settle(&item));
    }
    done
}

/// Takes the call in this file, if no other process has taken it, and settles it.
fn taken(
    turns: &SharedTurns,
    gate: &Gate,
    path: &Path,
    result: impl FnOnce(&PendingCall) -> ToolResult,
) -> Result<(), Fault> {
    let Some((call, _)) = take(path)? else { return Ok(()) };
    let result = result(&call);
    settle(turns, gate, call, result)
}

/// Settles a call that was taken. Whatever fails, its reservations end.
pub(super) fn settle(
    turns: &SharedTurns,
    gate: &Gate,
    call: PendingCall,
    result: ToolResult,
) -> Result<(), Fault> {
    call.prologues.iter().for_each(Prologue::remove);
    let Some(mut ticket) = call.ticket else { return Ok(()) };
    // Nobody knows what the agent was shown.
    ticket.judge_reads(|_, _| None);
    match turns.open(&call.turn) {
        Ok(turn) => gate.post_tool_use(&turn, ticket, result),
        Err(fault) => {
            gate.post_tool_use(&Turn::begin(call.turn, call.agent), ticket, result)?;
            // Nothing will ask a turn that has ended.
            if matches!(fault, Fault::Missing { .. }) { Ok(()) } else { Err(fault) }
        }
    }
}

//! Settling tool calls whose end the agent program never reported: their results are recorded, and their reservations end.

use std::fs;
use std::path::Path;

use tollgate::error::Fault;
use tollgate::gate::{Gate, ToolResult};
use tollgate::shared_turn::SharedTurns;
use tollgate::turn::{Turn, TurnState};

use super::pending_call::{self, PendingCall, peek, take};
use super::prologue::Prologue;

/// Settles the calls of one session whose files hold what they were expected to write, except the call of this name.
pub(super) fn finished(turns: &SharedTurns, gate: &Gate, folder: &Path, except: &str) -> Result<(), Fault> {
    for path in pending_call::all(folder) {
        if !path.ends_with(except)
            && peek(&path).is_some_and(|call| call.is_done())
            && let Some((call, _)) = take(&path)?
        {
            settle(turns, gate, call, ToolResult::Succeeded)?;
        }
    }
    Ok(())
}

/// Settles all calls of one session: its agent waits, or has begun something else.
pub(super) fn all(turns: &SharedTurns, gate: &Gate, folder: &Path) -> Result<(), Fault> {
    for path in pending_call::all(folder) {
        if let Some((call, _)) = take(&path)? {
            settle(turns, gate, call, ToolResult::Failed)?;
        }
    }
    Ok(())
}

/// Settles the calls of all sessions that are certainly over: their files hold what they were expected to write, or the
/// program that ran the tool is dead.
pub(super) fn abandoned(gate: &Gate, places: &[SharedTurns]) -> Result<(), Fault> {
    for turns in places {
        for entry in fs::read_dir(turns.folder().join("hooks")).into_iter().flatten().flatten() {
            for path in pending_call::all(&entry.path()) {
                if peek(&path).is_some_and(|call| call.host_is_dead() || call.is_done())
                    && let Some((call, _)) = take(&path)?
                {
                    let result = if call.is_done() { ToolResult::Succeeded } else { ToolResult::Failed };
                    settle(turns, gate, call, result)?;
                }
            }
        }
    }
    Ok(())
}

fn settle(turns: &SharedTurns, gate: &Gate, call: PendingCall, result: ToolResult) -> Result<(), Fault> {
    call.prologues.iter().for_each(Prologue::remove);
    let Some(mut ticket) = call.ticket else { return Ok(()) };
    let turn: Box<dyn TurnState> = match turns.open(&call.turn) {
        Ok(turn) => Box::new(turn),
        // The turn has ended, so nothing will ask it any more. The reservations must end all the same.
        Err(Fault::Missing { .. }) => Box::new(Turn::begin(call.turn, call.agent)),
        Err(fault) => return Err(fault),
    };
    // Nobody knows what the agent was shown.
    ticket.judge_reads(|_, _| None);
    gate.post_tool_use(turn.as_ref(), ticket, result)
}

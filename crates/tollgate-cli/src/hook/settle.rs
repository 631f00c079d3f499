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
        for entry in fs::read_dir(turns.folder().join(AGENTS)).into_iter().flatten().flatten() {
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

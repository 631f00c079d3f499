//! The turns of one agent in all workspaces that it has used.
//!
//! Each workspace has turns of its own, and the nearest workspace above a file knows what the agent has read in it. But a command may
//! change files of several workspaces, if one of them is inside another. So a run must know all turns of its agent.

use std::path::{Path, PathBuf};

use tollgate::name::TurnId;
use tollgate::path::unescape;
use tollgate::shared_turn::{SharedTurn, SharedTurns};
use tollgate::turn::TurnState;
use tollgate_base::private;

/// The folder of the agents, beside the turns of a workspace.
pub(crate) const AGENTS: &str = "hooks";

/// A running turn, and its workspace.
pub(crate) struct WorkspaceTurn {
    pub(crate) root: PathBuf,
    pub(crate) turn: SharedTurn,
}

/// The folders of the agent with this key, one for each workspace that knows it, and the workspaces. `places` are the folders that hold the
/// turns of all workspaces.
pub(crate) fn folders_of(key: &str, places: &[PathBuf]) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let in_place = |folder: &PathBuf| {
        let names = private::names(folder).unwrap_or_default();
        names.into_iter().map(|name| folder.join(name)).collect::<Vec<_>>()
    };
    places.iter().flat_map(in_place).filter_map(move |turns| {
        let agent = turns.join(AGENTS).join(key);
        let root = unescape(private::read_to_string(&agent.join("root")).ok()?.trim_end())?;
        root.is_absolute().then_some((agent, root))
    })
}

/// The running turns of the agent with this key, those of inner workspaces first.
pub(crate) fn turns_of(key: &str, places: &[PathBuf]) -> Vec<WorkspaceTurn> {
    let running = |(agent, root): (PathBuf, PathBuf)| {
        let turns = agent.parent()?.parent()?.to_owned();
        let turn = SharedTurns::new(turns).ok()?.open(&turn_in(&agent)?).ok()?;
        Some(WorkspaceTurn { root, turn })
    };
    let mut turns: Vec<WorkspaceTurn> = folders_of(key, places).filter_map(running).collect();
    turns.sort_by_key(|found| std::cmp::Reverse(found.root.components().count()));
    turns
}

/// The key of the agent whose running turn this is, in this folder of turns.
pub(crate) fn key_of_turn(turns: &Path, id: &TurnId) -> Option<String> {
    let agents = private::names(&turns.join(AGENTS)).ok()?;
    let mut found =
        agents.into_iter().filter(|name| turn_in(&turns.join(AGENTS).join(name)).as_ref() == Some(id));
    found.next()?.into_string().ok()
}

/// The id of the running turn of an agent with this folder.
fn turn_in(agent: &Path) -> Option<TurnId> {
    private::read_to_string(&agent.join("turn")).ok()?.split_whitespace().next()?.parse().ok()
}

/// Puts the turn of a call into the turns of its agent, instead of another one of the same workspace: that of a call may have ended, or
/// may be in another place. Returns where it is.
pub(crate) fn put_own(turns: &mut Vec<WorkspaceTurn>, own: WorkspaceTurn) -> usize {
    turns.retain(|found| found.root != own.root);
    let at = turns.iter().position(|found| own.root.starts_with(&found.root)).unwrap_or(turns.len());
    turns.insert(at, own);
    at
}

/// Those of these turns that must learn about a file: that of its nearest workspace, and all that know it.
pub(crate) fn learners<'t>(
    turns: &'t [WorkspaceTurn],
    file: &tollgate::path::FilePath,
) -> Vec<&'t SharedTurn> {
    let above = turns.iter().filter(|found| file.as_path().starts_with(&found.root));
    let knows = |turn: &SharedTurn| turn.get(file).is_ok_and(|known| known.is_some());
    above
        .enumerate()
        .filter(|(at, found)| *at == 0 || knows(&found.turn))
        .map(|(_, found)| &found.turn)
        .collect()
}

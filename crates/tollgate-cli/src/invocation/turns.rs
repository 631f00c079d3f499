//! Where the turns of agents are that short-lived processes share.

use std::path::PathBuf;

use tollgate::error::Fault;
use tollgate::shared_turn::{SharedTurn, SharedTurns};
use tollgate::turn::TurnState;

use super::Invocation;
use crate::error::CliError;
use crate::turn_place::{TurnPlace, turn_folders_without_runtime, turn_place_in_workspace, turn_places};

impl Invocation {
    /// The given turn, and the folder with all turns.
    pub(crate) fn shared_turn(&self) -> Result<(SharedTurns, SharedTurn), CliError> {
        let Some(id) = self.turn_id()? else {
            return Err(CliError::usage(
                "no turn given",
                "start one with `tollgate turn begin`, then give `--turn ID` or set `TOLLGATE_TURN`",
            ));
        };
        let mut why_not = Fault::no_turn(&id);
        for place in self.existing_turn_places()? {
            // A folder that cannot be used is an error only if no other has the turn: another user may have created it.
            let found = place.open().and_then(|turns| turns.open(&id).map(|turn| (turns, turn)));
            match (found, &self.global.agent) {
                (Ok((_, turn)), Some(agent)) if agent != turn.agent() => {
                    return Err(CliError::usage(
                        format!("the turn `{}` belongs to `{}`, not to `{agent}`", turn.id(), turn.agent()),
                        format!("omit `--agent`, or start a turn with `tollgate turn begin --agent {agent}`"),
                    ));
                }
                (Ok(found), _) => return Ok(found),
                (Err(Fault::Missing { .. }), _) => {}
                (Err(fault), _) => why_not = fault,
            }
        }
        Err(why_not.into())
    }

    /// What the agent of the given turn should hear, once the call is answered. If that cannot be found out, nothing.
    pub(crate) fn notes(&self) -> String {
        let Some(workspace) = self.turn_used.get() else { return String::new() };
        let folder = self.viewpoint().base.unwrap_or_default();
        let notes = self.shared_turn().ok().and_then(|(_, turn)| workspace.notes(&turn, &folder).ok());
        notes.unwrap_or_default()
    }

    /// All existing folders with turns.
    pub(crate) fn existing_turns(&self) -> Result<Vec<SharedTurns>, Fault> {
        self.existing_turn_places()?.iter().map(TurnPlace::open).collect()
    }

    /// The turn of the run for which this process carries out a call. The call's own turn would not know what the agent has seen.
    pub(crate) fn carried_turn(&self) -> Option<SharedTurn> {
        let path = self.surroundings.carried_turn.as_ref()?;
        let id = path.file_name()?.to_str()?.parse().ok()?;
        SharedTurns::new(path.parent()?.to_owned()).ok()?.open(&id).ok()
    }

    /// All existing places, not only the best: a turn may have begun when there was no runtime folder.
    fn existing_turn_places(&self) -> Result<Vec<TurnPlace>, Fault> {
        let mut places = self.turn_places()?;
        places.retain(TurnPlace::exists);
        Ok(places)
    }

    /// The folder for new turns: the first place that can be used.
    pub(crate) fn new_turns(&self) -> Result<SharedTurns, Fault> {
        self.first_turns(|_| true)
    }

    /// The folder for new turns of agents whose commands look into it, perhaps in a sandbox.
    pub(crate) fn new_turns_for_runs(&self) -> Result<SharedTurns, Fault> {
        self.first_turns(TurnPlace::is_seen_in_sandboxes)
    }

    /// The folder in the workspace for what commands tell the hooks.
    pub(crate) fn run_folder(&self) -> Result<PathBuf, Fault> {
        let place = turn_place_in_workspace(&self.root()?.0, self.surroundings.uid);
        Ok(place.open()?.folder().join("records"))
    }

    fn first_turns(&self, fits: impl Fn(&TurnPlace) -> bool) -> Result<SharedTurns, Fault> {
        let mut refused = Fault::invalid("there is no folder for turns");
        for place in self.turn_places()?.into_iter().filter(fits) {
            match place.open() {
                Ok(turns) => return Ok(turns),
                Err(fault) => refused = fault,
            }
        }
        Err(refused)
    }

    /// The folders outside of workspaces that hold the turns of all workspaces, each in a folder of its own.
    pub(crate) fn folders_of_turns(&self) -> Vec<PathBuf> {
        let runtime = self.surroundings.runtime.as_ref().map(|folder| folder.join("tollgate"));
        runtime.into_iter().chain(turn_folders_without_runtime(self.surroundings.uid)).collect()
    }

    /// The folders of the turns of all workspaces, and that in this workspace.
    pub(crate) fn all_folders_of_turns(&self) -> Vec<PathBuf> {
        let here =
            self.root().ok().map(|(root, _)| turn_place_in_workspace(&root, self.surroundings.uid).folder());
        self.folders_of_turns().into_iter().chain(here).collect()
    }

    fn turn_places(&self) -> Result<Vec<TurnPlace>, Fault> {
        turn_places(&self.root()?.0, self.surroundings.uid, self.surroundings.runtime.as_deref())
    }
}

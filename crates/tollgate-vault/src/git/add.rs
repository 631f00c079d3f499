//! New tasks: on the branch first, then in the tree. A new task has no card.

use jiff::Timestamp;

use super::clone::{Conversation, LocalClone};
use super::commit::{NewCommit, PathChange};
use super::remote::{Pushed, Update};
use crate::state::{Slot, State};
use crate::store::{Landed, Store};
use tollgate_base::error::Result;
use tollgate_base::task::TaskName;

/// How often a commit is made again because the branch has moved. Each time somebody else got through, so this number is
/// reached only if hundreds push all the time.
pub(super) const TRIES: u32 = 300;

impl LocalClone {
    /// Puts a new task on the branch and into the tree. `None` if there is one of this name.
    pub(super) fn add(&self, task: &TaskName, text: &[u8], now: Timestamp) -> Result<Option<Landed>> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        self.probe_once(&talk)?;
        self.add_to_branch(&talk, task, text, now)
    }

    fn add_to_branch(
        &self,
        talk: &Conversation,
        task: &TaskName,
        text: &[u8],
        now: Timestamp,
    ) -> Result<Option<Landed>> {
        let (folder, slot) = (self.folder(), Slot::NEEDS_ACTION);
        let mut commits = Vec::new();
        for _ in 0..TRIES {
            if self.seen()?.tip.is_empty() {
                self.look(talk)?;
            }
            if folder.get(task, Some(State::NeedsAction), now)?.is_some() {
                return Ok(None);
            }
            let mut seen = self.seen()?;
            let change = PathChange::Put(self.tree.branch.path_of(task, &slot), text.to_vec());
            let message = format!("tollgate: new task {}", task.stem());
            let made = self.maker.make(&[], &[NewCommit { message, changes: vec![change] }], &seen.tip)?;
            let (name, old, new) =
                (self.remote.branch_ref(), seen.tip.clone(), made.commits.first().cloned());
            commits.extend(made.commits);
            match self.remote.push(&[Update { name, old: Some(old), new }], &talk.0)? {
                Pushed::Taken => {
                    let landed = folder.add(task, text, now)?;
                    // Only now: if the process dies before this, the next look brings the task in.
                    seen.tip = commits.pop().unwrap_or_default();
                    seen.imported = Some(seen.tip.clone());
                    self.keep(&seen)?;
                    return Ok(landed);
                }
                Pushed::Refused(what) => return Err(self.refused(&what)),
                Pushed::Moved(_) => drop(self.look(talk)?),
                Pushed::Unclear(what) => drop(self.look(talk).map_err(|_| self.remote.unreachable(&what))?),
            }
            if self.any_landed(&commits)? {
                let path = Some(folder.path(task, &slot));
                return Ok(Some(Landed { task: task.clone(), slot, path }));
            }
        }
        Err(self.remote.unreachable("it does not take a push and gives no reason"))
    }
}

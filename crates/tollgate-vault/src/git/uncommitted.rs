//! Files in the person's `Needs_Action/` that are in no commit. Over git nobody can claim them, and their author must learn why.

use std::collections::HashSet;
use std::{fs, io};

use super::clone::GitStore;
use crate::state::{Slot, State};
use crate::store::{NotATask, Scan};
use tollgate_base::error::{At, Result};
use tollgate_base::task::TaskName;

impl GitStore {
    /// Those among the files that are neither in this scan of the branch nor in the person's last commit.
    ///
    /// A file of the last commit that is not in the scan was claimed in the meantime, or is not pushed, and the report about the working
    /// tree says so. While the person has another branch checked out, its files say nothing about the tasks.
    pub(super) fn uncommitted(&self, scan: &Scan) -> Result<Vec<NotATask>> {
        let folder = self.repository.top.join(&self.repository.prefix).join(State::NeedsAction.as_str());
        let known: HashSet<&TaskName> = scan.tasks.iter().map(|task| &task.name).collect();
        let mut names = Vec::new();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("read", &folder)?,
        };
        for entry in entries {
            let entry = entry.at("read", &folder)?;
            let name = entry.file_name().to_str().and_then(|name| TaskName::of_file(name).ok());
            let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
            names.extend(name.filter(|name| !known.contains(name) && is_file()));
        }
        let own = self.remote.branch_ref();
        if names.is_empty() || self.repository.checked_out()?.0 != own {
            return Ok(Vec::new());
        }
        let committed = self.tree.branch.names_in(&own, &Slot::NEEDS_ACTION)?;
        let why = || "no agent can claim it before it is committed and pushed".to_owned();
        let left = names.into_iter().filter(|name| !committed.contains(name.as_str()));
        Ok(left
            .map(|name| NotATask { name: name.to_string(), state: State::NeedsAction, why: why() })
            .collect())
    }
}

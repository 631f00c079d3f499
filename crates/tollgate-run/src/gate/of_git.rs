//! A command moves HEAD, makes a commit or deletes a stash.
//!
//! git writes the new version of such a file beside it, and renames it over the old one. So the rename is judged, with everything that
//! the command has changed before. Other files of git are git's own business.

use std::path::{Path, PathBuf};

use super::files::{Files, Guarded, Judged};
use super::tracee::Tracee;
use tollgate_base::error::Result;

impl Files<'_> {
    /// The answer if a file of git must not be replaced by this one, or deleted.
    pub(super) fn judge_file_of_git(
        &mut self,
        tracee: &Tracee,
        file: &Path,
        new: Option<&Path>,
    ) -> Result<Judged<()>> {
        if !self.program.judges_file_of_git(file) {
            return Ok(Ok(()));
        }
        self.record_all_so_far()?;
        let mut answer = Ok(());
        for refusal in self.program.judge_file_of_git(file, new)? {
            answer = Err(self.refuse(refusal)?);
        }
        self.refuses_switch(tracee, file, new, answer.is_err());
        Ok(answer)
    }

    /// A refused switch leaves no branch: git makes that of `switch -c` first, in the same process.
    fn refuses_switch(&mut self, tracee: &Tracee, file: &Path, new: Option<&Path>, is_refused: bool) {
        let moved = self.memory.moved_branch.take().filter(|(thread, _)| thread == tracee.thread());
        match (moved, new) {
            // If somebody has moved the branch since, it is theirs.
            (Some((_, branch)), _) if is_refused && file.ends_with("HEAD") => drop(branch.roll_back()),
            (_, Some(new)) if !is_refused => {
                let branch = self.program.moved_branch(file, new);
                self.memory.moved_branch = branch.map(|branch| (tracee.thread().to_owned(), branch));
            }
            _ => {}
        }
    }

    /// The answer if a folder must not get another name, because that would move unfinished work away.
    pub(super) fn judge_folder(&mut self, folder: &Path) -> Result<Judged<()>> {
        if !self.program.judges_folder(folder) {
            return Ok(Ok(()));
        }
        self.record_all_so_far()?;
        let mut answer = Ok(());
        for refusal in self.program.judge_folder(folder)? {
            answer = Err(self.refuse(refusal)?);
        }
        Ok(answer)
    }

    /// Records what the command has changed: it is its agent's own.
    fn record_all_so_far(&mut self) -> Result<()> {
        let changed = self.memory.known.iter().filter(|(_, known)| known.before.is_some());
        let changed: Vec<PathBuf> = changed.map(|(path, _)| path.clone()).collect();
        changed.into_iter().try_for_each(|path| self.record_so_far(&Guarded { given: path.clone(), path }))
    }
}

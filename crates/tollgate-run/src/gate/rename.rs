//! A command renames a file: whether it may, and what to record.
//!
//! If it can, the supervisor renames a file over another one itself, so that no save falls between the comparison and the
//! change.

use std::path::Path;

use super::call::PathArgument;
use super::files::{Files, Guarded, Judged, PathKind, there};
use super::remembered::KnownFile;
use super::tracee::Tracee;
use crate::sys::seccomp::CallAnswer;
use tollgate_base::error::Result;
use tollgate_guard::change::Action;
use tollgate_guard::supervised::MadeChange;
use tollgate_guard::turn::{Extent, FileState};

impl Files<'_> {
    pub(super) fn rename(
        &mut self,
        tracee: &Tracee,
        from: &PathArgument,
        to: &PathArgument,
        flags: u32,
    ) -> Result<Judged<()>> {
        // First, and whatever else applies to the paths: a folder takes with it what is in it, and a link brings it.
        if let Err(answer) = self.must_carry_nothing_protected(tracee, [from, to])? {
            return Ok(Err(answer));
        }
        let mut ends = Vec::with_capacity(2);
        for path in [from, to] {
            match self.led_by_name(tracee, path)? {
                Ok(end) => ends.push(end),
                Err(answer) => return Ok(Err(answer)),
            }
        }
        let (Some(to), Some(from)) = (ends.pop(), ends.pop()) else { return Ok(Ok(())) };
        let mut moves = vec![(&from, &to)];
        moves.extend((flags & libc::RENAME_EXCHANGE != 0).then_some((&to, &from)));
        for (from, to) in moves {
            if let Err(answer) = self.must_plant_no_command(from.as_ref(), to.as_ref())? {
                return Ok(Err(answer));
            }
        }
        if let Some(to) = &to
            && let Err(answer) =
                self.judge_file_of_git(tracee, &to.path, from.as_ref().map(|from| from.path.as_path()))?
        {
            return Ok(Err(answer));
        }
        let (from, to) = match (self.under_guard(from)?, self.under_guard(to)?) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(answer), _) | (_, Err(answer)) => return Ok(Err(answer)),
        };
        if let Some(from) = from.as_ref().filter(|from| there(&from.path) == PathKind::Folder)
            && let Err(answer) = self.judge_folder(&from.path)?
        {
            return Ok(Err(answer));
        }
        if let (Some(from), Some(to)) = (&from, &to)
            && there(&from.path) == PathKind::Folder
        {
            self.memory.moved_folder(&from.path, &to.path);
            return Ok(Ok(()));
        }
        let is_taken = to.as_ref().is_some_and(|to| there(&to.path) != PathKind::Nothing);
        if flags & libc::RENAME_NOREPLACE != 0 && is_taken {
            // The kernel makes sure that nothing is replaced.
            return Ok(Ok(()));
        }
        if let (Some(from), Some(to), 0) = (&from, &to, flags)
            && let Some(answer) = self.replace(tracee, from, to)?
        {
            return Ok(Err(answer));
        }
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        // The states before the call: what comes to `to`, and what is there.
        let mut states = [FileState::Absent; 2];
        for (end, state) in [&from, &to].into_iter().zip(&mut states) {
            let Some(end) = end.as_ref().filter(|end| there(&end.path) == PathKind::File) else { continue };
            match self.judge(end, Action::by_program(Extent::Whole))? {
                Ok(found) => *state = found,
                Err(answer) => return Ok(Err(answer)),
            }
        }
        let comes = match &from {
            Some(_) => states[0],
            None => FileState::Unreadable,
        };
        let open = from
            .as_ref()
            .and_then(|from| self.memory.known.get_mut(&from.path))
            .map_or(0, |known| std::mem::take(&mut known.open));
        if let Some(from) = &from {
            self.memory.becomes(&from.path, states[0], if exchange { states[1] } else { FileState::Absent });
        }
        if let Some(to) = &to {
            self.memory.becomes(&to.path, states[1], comes);
            if open > 0 {
                self.memory.closed.watch(&to.path);
                self.memory.known.entry(to.path.clone()).or_default().open = open;
            }
        }
        Ok(Ok(()))
    }

    /// Renames a file over another one for the tracee, if that is possible: nothing can come between the comparison and the
    /// change then.
    fn replace(&mut self, tracee: &Tracee, from: &Guarded, to: &Guarded) -> Result<Option<CallAnswer>> {
        let is_open = |path: &Path| self.memory.known.get(path).is_some_and(|known| known.open > 0);
        if !self.memory.may_act
            || [from, to].iter().any(|end| there(&end.path) != PathKind::File || is_open(&end.path))
            || !tracee.has_rights_of(&self.memory.view)
        {
            return Ok(None);
        }
        let state = match self.judge(from, Action::by_program(Extent::Whole))? {
            Ok(state) => state,
            Err(answer) => return Ok(Some(answer)),
        };
        self.record_so_far(to)?;
        let known = self.memory.known.get(&to.path).map_or(&[][..], |known| known.states.as_slice());
        match self.program.replace(&from.path, &to.path, known)? {
            Ok(None) => Ok(None),
            Ok(Some(made)) => {
                self.memory.refused.remove(&to.path);
                self.memory.becomes(&from.path, state, FileState::Absent);
                let known = self.memory.known.entry(to.path.clone()).or_default();
                *known = KnownFile { states: vec![made.after], ..KnownFile::default() };
                self.memory.made.push(made);
                Ok(Some(CallAnswer::Made))
            }
            Err(refusal) => self.refuse(refusal).map(Some),
        }
    }

    /// Records what the command has written into a file, before it goes on with it.
    pub(super) fn record_so_far(&mut self, guarded: &Guarded) -> Result<()> {
        let Some(before) = self.memory.known.get(&guarded.path).and_then(|known| known.before) else {
            return Ok(());
        };
        let after = self.look(guarded)?;
        let Some(known) = self.memory.known.get_mut(&guarded.path) else { return Ok(()) };
        if before != after && known.states.contains(&after) {
            let made = MadeChange { path: self.program.file(&guarded.path)?, before, after };
            self.program.record_changes(std::slice::from_ref(&made))?;
            known.before = None;
            self.memory.made.push(made);
        }
        Ok(())
    }
}

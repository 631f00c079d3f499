//! Whether a path may be changed at all: what is protected, closed, or carries something that is.
//!
//! These rules come before every comparison, and they apply to names that do not exist, too.

use std::ffi::OsStr;
use std::path::Path;

use super::call::PathArgument;
use super::files::{Files, Guarded, Judged, PathKind, there};
use super::tracee::{FinalLink, Lead, Tracee};
use crate::sys::seccomp::CallAnswer;
use tollgate_base::error::Result;
use tollgate_guard::supervised::SupervisedProgram;

impl<'a> Files<'a> {
    /// Where a path leads, if it is under guard.
    pub(super) fn lead(
        &self,
        tracee: &Tracee,
        path: &PathArgument,
        last: FinalLink,
    ) -> Judged<Option<Guarded>> {
        Ok(match self.find(tracee, path, last)? {
            Lead::Outside(_) => None,
            Lead::Inside { given, path } => Some(Guarded { given, path }),
        })
    }

    fn find(&self, tracee: &Tracee, path: &PathArgument, last: FinalLink) -> Judged<Lead> {
        // What cannot be read is refused: nobody knows what it would change.
        let found = tracee.lead(&self.memory.view, path.at, &path.text, last);
        found.map_err(|_| CallAnswer::Fails(libc::EACCES))
    }

    /// Where the path of a change leads. `None` if no rule applies to it. A change of a protected path is refused, every
    /// change in another working tree, and every change if the agent has lost its claim.
    pub(super) fn named(
        &mut self,
        tracee: &Tracee,
        path: &PathArgument,
        last: FinalLink,
    ) -> Result<Judged<Option<Guarded>>> {
        match self.led(tracee, path, last)? {
            Ok(led) => self.under_guard(led),
            Err(answer) => Ok(Err(answer)),
        }
    }

    /// Where the path of a change leads, also if only the rules for protected paths apply to it.
    pub(super) fn led(
        &mut self,
        tracee: &Tracee,
        path: &PathArgument,
        last: FinalLink,
    ) -> Result<Judged<Option<Guarded>>> {
        self.led_unless(tracee, path, last, SupervisedProgram::is_closed)
    }

    /// The same for a name that a link or a folder gets or loses, which must not take something closed away, or bring it.
    pub(super) fn led_by_name(
        &mut self,
        tracee: &Tracee,
        path: &PathArgument,
    ) -> Result<Judged<Option<Guarded>>> {
        self.led_unless(tracee, path, FinalLink::Keep, |program, path| {
            program.is_closed(path) || program.holds_closed(path)
        })
    }

    /// `is_closed`: whether the command must not change a path outside of the workspace.
    fn led_unless(
        &mut self,
        tracee: &Tracee,
        path: &PathArgument,
        last: FinalLink,
        is_closed: impl Fn(&SupervisedProgram<'a>, &Path) -> bool,
    ) -> Result<Judged<Option<Guarded>>> {
        let guarded = match self.find(tracee, path, last) {
            Ok(Lead::Inside { given, path }) => Guarded { given, path },
            Ok(Lead::Outside(Some(path))) if is_closed(&self.program, &path) => {
                if tracee.is_tollgate(&self.memory.view) {
                    return Ok(Ok(None));
                }
                let refusal = self.program.protected(&path);
                return self.refuse(refusal).map(Err);
            }
            Ok(Lead::Outside(Some(path))) if !tracee.is_tollgate(&self.memory.view) => {
                return Ok(self.must_be_in_own_tree(&path)?.map(|()| None));
            }
            Ok(Lead::Outside(_)) => return Ok(Ok(None)),
            Err(answer) => return Ok(Err(answer)),
        };
        // Every tollgate guards its own writes. What it changes is news to the command.
        if tracee.is_tollgate(&self.memory.view) {
            self.memory.known.remove(&guarded.path);
            return Ok(Ok(None));
        }
        if self.program.is_protected(&guarded.given, &guarded.path) || self.memory.is_closed(&guarded.path) {
            let refusal = self.program.protected(&guarded.path);
            return self.refuse(refusal).map(Err);
        }
        Ok(Ok(Some(guarded)))
    }

    /// The path of a change, if all rules apply to it.
    pub(super) fn under_guard(&mut self, led: Option<Guarded>) -> Result<Judged<Option<Guarded>>> {
        let Some(guarded) = led else { return Ok(Ok(None)) };
        let passes = self.memory.passes(&guarded.path);
        // If the settings only observe, the change is recorded when it is judged.
        if (passes || !self.program.observes())
            && let Err(answer) = self.must_be_in_own_tree(&guarded.path)?
        {
            return Ok(Err(answer));
        }
        if passes {
            return Ok(Ok(None));
        }
        match self.program.fenced(&guarded.path)? {
            Some(refusal) => self.refuse(refusal).map(Err),
            None => Ok(Ok(Some(guarded))),
        }
    }

    /// The answer to a change in another working tree than the one in which the agent began.
    fn must_be_in_own_tree(&mut self, path: &Path) -> Result<Judged<()>> {
        let Some(folder) = path.parent() else { return Ok(Ok(())) };
        if self.memory.in_own_tree.contains(folder) {
            return Ok(Ok(()));
        }
        if !self.program.is_in_other_tree(folder)? {
            self.memory.in_own_tree.insert(folder.to_owned());
            return Ok(Ok(()));
        }
        match self.program.other_tree(path)? {
            Some(refusal) => self.refuse(refusal).map(Err),
            None => Ok(Ok(())),
        }
    }

    /// What comes to a configuration of git must not plant a command there. `None`: nobody knows what comes, or it comes from
    /// outside of the workspace.
    pub(super) fn must_plant_no_command(
        &mut self,
        from: Option<&Guarded>,
        to: Option<&Guarded>,
    ) -> Result<Judged<()>> {
        match to {
            Some(to) if self.program.plants_command(from.map(|from| from.path.as_path()), &to.path) => {
                let refusal = self.program.protected(&to.path);
                self.refuse(refusal).map(Err)
            }
            _ => Ok(Ok(())),
        }
    }

    /// A rename of a folder or a link must not bring protected names to a path, or take them away.
    pub(super) fn must_carry_nothing_protected(
        &mut self,
        tracee: &Tracee,
        ends: [&PathArgument; 2],
    ) -> Result<Judged<()>> {
        for end in ends {
            let carries = |end: &Guarded| matches!(there(&end.path), PathKind::Folder | PathKind::Link);
            match self.lead(tracee, end, FinalLink::Keep) {
                Ok(Some(end)) if carries(&end) => return self.must_bring_nothing_protected(tracee, &ends),
                Ok(_) => {}
                Err(answer) => return Ok(Err(answer)),
            }
        }
        Ok(Ok(()))
    }

    /// Nothing protected is at these paths, or could come to them.
    pub(super) fn must_bring_nothing_protected(
        &mut self,
        tracee: &Tracee,
        ends: &[&PathArgument],
    ) -> Result<Judged<()>> {
        // tollgate guards itself.
        if tracee.is_tollgate(&self.memory.view) {
            return Ok(Ok(()));
        }
        for end in ends {
            let end = match self.lead(tracee, end, FinalLink::Keep) {
                Ok(Some(end)) => end,
                Ok(None) => continue,
                Err(answer) => return Ok(Err(answer)),
            };
            let file = self.program.file_itself(&end.path)?;
            if let Some(protected) = self.program.protected_around(&file).first() {
                let refusal = self.program.protected(protected);
                return self.refuse(refusal).map(Err);
            }
        }
        Ok(Ok(()))
    }

    /// A program may show itself files under other names, in a namespace of its own: they are recognised there. But not in the
    /// namespace of others, and not as a layer that the kernel writes into.
    pub(super) fn mount(&self, tracee: &Tracee, kind: Option<&OsStr>) -> Judged<()> {
        let is_refused =
            kind.is_some_and(|kind| kind == "overlay") || tracee.is_in_namespace_of(&self.memory.view);
        if is_refused { Err(CallAnswer::Fails(libc::EPERM)) } else { Ok(()) }
    }
}

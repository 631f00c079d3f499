//! The protocol: what each process does in each of its steps.

use super::state::Outsider::{
    ReadsAndRenamesOver, Removes, RenamesOver, RenamesSameOver, RewritesSameInPlace, WritesInPlace,
};
use super::state::{
    ATTEMPTS, Answer, Away, Bytes, Clause, Exposed, File, Grace, Healer, Kind, Lease, Moment, ORIGINAL,
    Protocol, Race, Set, Stage, Step, Verdict, file_of_attempt, file_of_outsider,
};

impl Race {
    pub(super) fn has(&self, clause: Clause) -> bool {
        match &self.protocol {
            Protocol::Naive => false,
            Protocol::Guarded { without } => {
                !without.contains(&clause) && ![Clause::AskBefore, Clause::AskAfter].contains(&clause)
            }
            Protocol::Leaseless { without } => clause != Clause::Lease && !without.contains(&clause),
        }
    }

    /// Whether the kernel says who has a file open for writing, by a lease or otherwise.
    fn can_ask(&self) -> bool {
        self.has(Clause::Lease) || matches!(self.protocol, Protocol::Leaseless { .. })
    }

    pub(super) fn stages(&self) -> impl Iterator<Item = Stage> + use<> {
        (0..self.commits.len())
            .flat_map(|committer| (0..ATTEMPTS).map(move |attempt| Stage { committer, attempt }))
    }

    /// Nobody has work in progress, and every late-write check was made. Outsiders that have not begun need not begin, so a
    /// configuration contains all smaller ones.
    pub(super) fn is_quiet(&self, now: &Moment) -> bool {
        !now.is_locked()
            && now.outsiders.iter().all(|away| matches!(away, Away::Idle | Away::Done))
            && self.stages().all(|stage| now.file_at(stage).is_none())
    }

    /// Whether a committer can take its next step without waiting.
    pub(super) fn may_go_on(&self, now: &Moment, index: usize) -> bool {
        match now.committers[index].step {
            Step::Idle => {
                let left_over = || {
                    self.stages().any(|stage| {
                        let staged = now.stages[stage.committer][stage.attempt];
                        staged.file.is_some() && !staged.settled
                    })
                };
                // The author of a sequel reads now. All others read before the race.
                let has_read = || {
                    let base = self.commits[index].base;
                    base == Bytes::Base || now.path.is_some_and(|file| now.content(file) == base)
                };
                !now.is_locked() && has_read() && !(self.has(Clause::HealFirst) && left_over())
            }
            Step::Opened(file) => {
                !(self.has(Clause::Lease) || self.has(Clause::AskBefore)) || !now.has_writer(file)
            }
            Step::Answered(_) | Step::Dead => false,
            _ => true,
        }
    }

    pub(super) fn may_outsider_go_on(&self, now: &Moment, index: usize) -> bool {
        match now.outsiders[index] {
            Away::Waiting(file) => !now.is_leased(file),
            Away::Done => false,
            _ => true,
        }
    }

    pub(super) fn may_check(&self, now: &Moment, stage: Stage) -> bool {
        let staged = now.stages[stage.committer][stage.attempt];
        staged.settled
            && staged.file.is_some_and(|file| {
                (self.grace == Grace::Nothing || !now.is_being_looked_up(file))
                    && !(self.grace == Grace::Writers && now.has_writer(file))
                    && !(self.can_ask() && self.has(Clause::QuietCheck) && now.has_writer(file))
            })
    }

    /// One step of a committer.
    pub(super) fn commit(&self, now: &mut Moment, index: usize) {
        let commit = self.commits[index];
        let stage = Stage { committer: index, attempt: now.committers[index].attempt };
        let step = now.committers[index].step;
        let intact = |now: &Moment, file| !self.has(Clause::Lease) || now.lease == Lease::Held(file);
        now.committers[index].step = match step {
            Step::Idle => self.stage_new(now, stage),
            Step::Staged if commit.kind == Kind::Create => {
                if now.path.is_some() {
                    self.refuse(now, stage, Answer::Stale)
                } else {
                    // link(2): fails if the name exists, and leaves the stage name for the healer to compare.
                    now.path = now.file_at(stage);
                    Step::Verified { over: commit.base }
                }
            }
            Step::Staged => match now.path {
                None => self.refuse(now, stage, Answer::Stale),
                Some(file) => Step::Opened(file),
            },
            Step::Opened(file) => {
                if self.has(Clause::Lease) {
                    now.lease = Lease::Held(file);
                }
                Step::Hashed(file, now.content(file))
            }
            Step::Hashed(file, bytes) => {
                if !intact(now, file) || now.path != Some(file) {
                    now.lease = Lease::Free;
                    Step::Staged
                } else if bytes != commit.base
                    && self.has(Clause::AskBefore)
                    && (now.has_writer(file) || now.content(file) != bytes)
                {
                    Step::Staged
                } else if bytes != commit.base {
                    self.refuse(now, stage, Answer::Stale)
                } else {
                    Step::Checked(file)
                }
            }
            Step::Checked(hashed) => self.swap(now, stage, hashed),
            Step::Swapped { hashed, over } => {
                let out = now.file_at(stage);
                let same = if self.has(Clause::Lease) {
                    out == Some(hashed) && (intact(now, hashed) || !self.has(Clause::StillQuiet))
                } else {
                    out.is_some_and(|file| {
                        now.content(file) == commit.base
                            && (out == Some(hashed) || !self.can_ask())
                            && !(self.has(Clause::AskAfter) && now.has_writer(file))
                    })
                };
                now.seen.cut_off |= same && out.is_some_and(|file| now.has_writer(file));
                if same || !self.has(Clause::Verify) {
                    Step::Verified { over }
                } else {
                    now.seen.undone = true;
                    Step::Undoing { expected: file_of_attempt(stage) }
                }
            }
            Step::Undoing { expected } => match self.undo(now, stage, expected) {
                Some(next) if self.swaps_again(stage, expected) => Step::Undoing { expected: next },
                _ => Step::Undone,
            },
            Step::Undone => self.settle_undone(now, stage),
            Step::Verified { over } => {
                now.seen.blind |= over != commit.base;
                let out = now.file_at(stage);
                now.committers[index].applied = Some((stage.attempt, out));
                now.staged(stage).settled = self.has(Clause::CheckLedger);
                Step::Logged
            }
            Step::Logged => {
                now.lease = Lease::Free;
                if commit.kind == Kind::Create {
                    now.staged(stage).file = None;
                } else if !self.has(Clause::LateWriteCheck) {
                    self.drop_at_once(now, stage);
                }
                Step::Answered(Answer::Done)
            }
            Step::Answered(_) | Step::Dead => unreachable!("it is finished"),
        };
    }

    pub(super) fn stage_new(&self, now: &mut Moment, stage: Stage) -> Step {
        if self.commits[stage.committer].kind != Kind::Delete {
            now.staged(stage).file = Some(file_of_attempt(stage));
        }
        Step::Staged
    }

    /// The step that changes the path.
    pub(super) fn swap(&self, now: &mut Moment, stage: Stage, hashed: File) -> Step {
        let Some(out) = now.path else {
            now.lease = Lease::Free;
            return Step::Staged;
        };
        let over = now.content(out);
        let commit = self.commits[stage.committer];
        if commit.kind == Kind::Delete {
            now.path = None;
            now.staged(stage).file = Some(out);
            return Step::Swapped { hashed, over };
        }
        let ours = now.file_at(stage).expect("staged");
        now.seen.spoilt |= now.content(ours) != commit.new;
        now.exchange(stage);
        if matches!(self.protocol, Protocol::Naive) {
            now.staged(stage).file = None;
            return Step::Verified { over };
        }
        Step::Swapped { hashed, over }
    }

    /// Puts the displaced file back. If another swap is needed, returns the file that should come out of it.
    pub(super) fn undo(&self, now: &mut Moment, stage: Stage, expected: File) -> Option<File> {
        let put = now.file_at(stage);
        if let Some(Bytes::Foreign(outsider)) = put.map(|file| now.content(file))
            && self.has(Clause::CopyBeforeReturn)
        {
            now.copied.insert(outsider);
        }
        if self.commits[stage.committer].kind == Kind::Delete {
            // RENAME_NOREPLACE: a new file at the path stays, and ours goes to recovery.
            if now.path.is_none() {
                now.path = now.staged(stage).file.take();
            }
            return None;
        }
        if !now.exchange(stage) {
            // An outsider deleted the file that we put there. Its deletion is the newest change.
            return None;
        }
        if now.file_at(stage) == Some(expected) { None } else { put }
    }

    pub(super) fn swaps_again(&self, stage: Stage, expected: File) -> bool {
        let first = expected == file_of_attempt(stage);
        self.has(if first { Clause::SwapAgain } else { Clause::SwapUntilOurs })
    }

    pub(super) fn settle_undone(&self, now: &mut Moment, stage: Stage) -> Step {
        now.lease = Lease::Free;
        let is_ours = now.file_at(stage) == Some(file_of_attempt(stage));
        if !self.has(Clause::FreshStage) && is_ours {
            return Step::Staged;
        }
        if !self.has(Clause::LateWriteCheck) || !self.has(Clause::CheckExposed) && is_ours {
            self.drop_at_once(now, stage);
        }
        now.staged(stage).settled = self.has(Clause::Settle);
        if stage.attempt + 1 == ATTEMPTS {
            return Step::Answered(Answer::Busy);
        }
        now.committers[stage.committer].attempt += 1;
        self.stage_new(now, Stage { attempt: stage.attempt + 1, ..stage })
    }

    /// Without a late-write check: deletes a file with known bytes at once, keeps and reports any other.
    pub(super) fn drop_at_once(&self, now: &mut Moment, stage: Stage) {
        let commit = self.commits[stage.committer];
        let Some(file) = now.staged(stage).file.take() else { return };
        if ![commit.base, commit.new].contains(&now.content(file)) {
            now.recovery.insert(file);
            now.seen.reported.insert(file);
        }
    }

    /// Before the swap, the staged file was never visible at the path, so it can be deleted at once.
    pub(super) fn refuse(&self, now: &mut Moment, stage: Stage, answer: Answer) -> Step {
        now.seen.false_stale |= answer == Answer::Stale && !now.seen.differed[stage.committer];
        now.lease = Lease::Free;
        now.staged(stage).file = None;
        Step::Answered(answer)
    }

    /// The healer sees a name, the content of its file, and no ledger line.
    pub(super) fn judge(&self, now: &Moment, stage: Stage) -> Verdict {
        let commit = self.commits[stage.committer];
        let file = now.file_at(stage).expect("a leftover");
        let bytes = now.content(file);
        match commit.kind {
            // After link(2), both names are the same file, even if an outsider has written into it since.
            Kind::Create if now.path == Some(file) && self.has(Clause::CompareInodes) => Verdict::Applied,
            Kind::Create | Kind::Update if bytes == commit.new => Verdict::NeverApplied,
            Kind::Update | Kind::Delete if bytes == commit.base => Verdict::Applied,
            _ => Verdict::ForeignSave,
        }
    }

    pub(super) fn heal(&self, now: &mut Moment) {
        now.healer = match now.healer {
            Healer::Resting => unreachable!("begins with a judgement"),
            Healer::Judged(stage, Verdict::NeverApplied) => Healer::Decided(stage),
            Healer::Judged(stage, Verdict::Applied) => {
                let out = now.file_at(stage);
                now.committers[stage.committer].applied = Some((stage.attempt, out));
                now.staged(stage).settled = self.has(Clause::CheckLedger);
                if self.commits[stage.committer].kind == Kind::Create {
                    now.staged(stage).file = None;
                }
                Healer::Decided(stage)
            }
            Healer::Judged(stage, Verdict::ForeignSave) => {
                let commit = self.commits[stage.committer];
                match (commit.kind, now.path) {
                    (Kind::Update, Some(file)) if now.content(file) == commit.new => {
                        Healer::Returning { stage, expected: file }
                    }
                    (Kind::Delete, None) => Healer::Returning { stage, expected: ORIGINAL },
                    _ => Healer::Decided(stage),
                }
            }
            Healer::Returning { stage, expected } => match self.undo(now, stage, expected) {
                Some(expected) => Healer::Returning { stage, expected },
                None => Healer::Decided(stage),
            },
            Healer::Decided(stage) => {
                now.staged(stage).settled = true;
                Healer::Resting
            }
        };
    }

    pub(super) fn check(&self, now: &mut Moment, stage: Stage) {
        let commit = self.commits[stage.committer];
        let Some(file) = now.staged(stage).file.take() else { return };
        let linked = commit.kind == Kind::Create
            && now.committers[stage.committer].applied.is_some_and(|(attempt, _)| attempt == stage.attempt);
        if linked {
            return;
        }
        let bytes = now.content(file);
        if bytes == commit.new && self.exposed == Exposed::Unlinked {
            return;
        }
        now.recovery.insert(file);
        if bytes != commit.base && bytes != commit.new {
            now.seen.reported.insert(file);
            now.seen.false_report |= !matches!(bytes, Bytes::Foreign(_));
        }
    }

    pub(super) fn outsider(&self, now: &mut Moment, index: usize) {
        let own = file_of_outsider(index);
        let kind = self.outsiders[index];
        now.outsiders[index] = match now.outsiders[index] {
            Away::Idle => match kind {
                RenamesOver | RenamesSameOver => {
                    now.replace(Some(own), Set::default());
                    Away::Done
                }
                ReadsAndRenamesOver => Away::Read { hidden: now.hidden() },
                Removes => {
                    if now.path.is_some() {
                        now.replace(None, Set::default());
                    }
                    Away::Done
                }
                WritesInPlace | RewritesSameInPlace => match now.path {
                    Some(file) => Away::Found(file),
                    None => {
                        // O_CREAT: look-up and creation are one step under the lock of the directory.
                        now.replace(Some(own), Set::default());
                        Away::Truncated(own)
                    }
                },
            },
            Away::Found(file) if now.is_leased(file) => {
                now.lease = Lease::Breaking(file);
                Away::Waiting(file)
            }
            Away::Found(file) | Away::Waiting(file) => Away::Open(file),
            Away::Open(file) => {
                now.overwrite(file);
                now.bytes[usize::from(file)] = Bytes::Torn;
                Away::Truncated(file)
            }
            Away::Truncated(file) => {
                now.overwrite(file);
                now.bytes[usize::from(file)] = kind.bytes(index);
                if now.seen.unlinked.contains(file) {
                    now.overwrite(file);
                }
                Away::Done
            }
            Away::Read { hidden } => {
                now.replace(Some(own), hidden);
                Away::Done
            }
            Away::Done => unreachable!("it is finished"),
        };
    }

    /// Records which committers may now truthfully answer that the path holds other bytes.
    pub(super) fn notice_differences(&self, now: &mut Moment) {
        for (index, commit) in self.commits.iter().enumerate() {
            let step = now.committers[index].step;
            let own_doing = matches!(step, Step::Swapped { .. } | Step::Undoing { .. } | Step::Undone);
            let not_read_yet = step == Step::Idle && commit.base != Bytes::Base;
            if own_doing || not_read_yet {
                continue;
            }
            now.seen.differed[index] |= match (commit.kind, now.path.map(|file| now.content(file))) {
                (Kind::Create, there) => there.is_some(),
                (_, None) => true,
                (_, Some(Bytes::Torn)) => false,
                (_, Some(bytes)) => bytes != commit.base,
            };
        }
    }
}

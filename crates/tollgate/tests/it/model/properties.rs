//! What must hold in every state, and the interface to the checker.

use std::collections::BTreeSet;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use super::state::Outsider::{ReadsAndRenamesOver, RenamesOver, RenamesSameOver, WritesInPlace};
use super::state::{
    ATTEMPTS, Answer, Away, Bytes, COMMITTERS, Committer, FILES, File, Healer, Kind, Lease, Moment, Move,
    ORIGINAL, OUTSIDERS, Race, Seen, Set, Stage, Step, file_of_attempt, file_of_outsider,
};

pub(super) const FOREIGN_WRITES: &str =
    "no foreign write is lost: it is at the path, or kept and reported, or was copied before it went back";
pub(super) const FOREIGN_BYTES: &str = "no foreign bytes are destroyed: they are at the path or kept";
pub(super) const REFUSED: &str = "a refused write is neither at the path nor in the ledger";
pub(super) const NEWEST: &str = "after a refusal, the path has the file that outsiders last put there";
pub(super) const APPLIED: &str = "an acknowledged write is overwritten by outsiders only";
pub(super) const STALE: &str = "a write is called stale only if the path held other finished bytes";
pub(super) const BLIND: &str = "a write is acknowledged only over the bytes that its author read";
pub(super) const ALL_OR_NOTHING: &str = "a killed write is applied and logged, or leaves nothing";
pub(super) const REPORTS: &str = "only finished foreign writes are reported";
pub(super) const SPOILT: &str = "the file that goes to the path holds the staged bytes";
pub(super) const DISPLACED: &str = "the file that an acknowledged write displaced is kept";
pub(super) const CUT_OFF: &str =
    "no write is acknowledged while a program has the file open that was displaced";
pub(super) const WAITING: &str = "nobody waits forever";

impl Race {
    fn keeps_foreign_writes(&self, now: &Moment) -> bool {
        self.foreign_writes(now).all(|file| {
            now.path == Some(file)
                || now.recovery.contains(file) && now.seen.reported.contains(file)
                || self.is_copied(now, file)
        })
    }

    fn keeps_foreign_bytes(&self, now: &Moment) -> bool {
        self.foreign_writes(now)
            .all(|file| now.path == Some(file) || now.recovery.contains(file) || self.is_copied(now, file))
    }

    fn is_copied(&self, now: &Moment, file: File) -> bool {
        matches!(now.content(file), Bytes::Foreign(outsider) if now.copied.contains(outsider))
    }

    /// The files with foreign writes that no other outsider has overwritten.
    fn foreign_writes<'a>(&'a self, now: &'a Moment) -> impl Iterator<Item = File> + 'a {
        (0..FILES as File).filter(|file| match now.content(*file) {
            Bytes::Foreign(outsider) => {
                now.outsiders[usize::from(outsider)] == Away::Done && !now.seen.overwritten.contains(outsider)
            }
            _ => false,
        })
    }

    /// The path has no file of this committer, except one that an outsider has overwritten since.
    fn left_nothing(&self, now: &Moment, index: usize) -> bool {
        match self.commits[index].kind {
            Kind::Delete => {
                let others = || now.committers.iter().any(|committer| committer.applied.is_some());
                now.path.is_some() || now.seen.newest.is_none() || others()
            }
            Kind::Create | Kind::Update => (0..ATTEMPTS).all(|attempt| {
                let file = file_of_attempt(Stage { committer: index, attempt });
                now.path != Some(file) || now.seen.overwritten_new.contains(file)
            }),
        }
    }

    fn keeps_applied_writes(&self, now: &Moment) -> bool {
        (0..self.commits.len()).all(|index| {
            let Some((attempt, out)) = now.committers[index].applied else {
                return now.committers[index].step != Step::Answered(Answer::Done);
            };
            if self.commits[index].kind == Kind::Delete {
                return now.path.is_none() || now.path != out;
            }
            let file = file_of_attempt(Stage { committer: index, attempt });
            let built_upon = || {
                now.committers
                    .iter()
                    .any(|other| other.applied.is_some_and(|(_, displaced)| displaced == Some(file)))
            };
            now.path == Some(file) || now.seen.overwritten_new.contains(file) || built_upon()
        })
    }

    /// The undo of a delete finds nothing at the path. It cannot tell whether an outsider saved and deleted a file in the
    /// meantime, so the old file comes back.
    fn deletes(&self) -> bool {
        self.commits.iter().any(|commit| commit.kind == Kind::Delete)
    }

    fn answered(&self, now: &Moment, answers: &[Answer]) -> bool {
        now.committers
            .iter()
            .any(|committer| matches!(committer.step, Step::Answered(answer) if answers.contains(&answer)))
    }

    /// Explores all states: every property holds.
    pub(super) fn holds(self, floor: usize) {
        self.holds_but(&[], floor);
    }

    /// Explores all states: exactly these properties have counterexamples.
    pub(super) fn holds_but(self, exceptions: &[&str], floor: usize) {
        let checker = self.checker().threads(2).spawn_bfs().join();
        for property in checker.model().properties() {
            if exceptions.contains(&property.name) {
                checker.assert_any_discovery(property.name);
            } else {
                match property.expectation {
                    Expectation::Sometimes => drop(checker.assert_any_discovery(property.name)),
                    _ => checker.assert_no_discovery(property.name),
                }
            }
        }
        let states = checker.unique_state_count();
        assert!(states >= floor, "only {states} states: the model has become trivial");
    }

    /// Explores until this property has a counterexample.
    pub(super) fn breaks(self, property: &'static str) {
        let checker = self
            .checker()
            .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([property])))
            .threads(2)
            .spawn_bfs()
            .join();
        checker.assert_any_discovery(property);
    }
}

impl Model for Race {
    type State = Moment;
    type Action = Move;

    fn init_states(&self) -> Vec<Moment> {
        assert!(self.commits.len() <= COMMITTERS && self.outsiders.len() <= OUTSIDERS, "too many");
        let mut bytes = [Bytes::Base; FILES];
        for (index, outsider) in self.outsiders.iter().enumerate() {
            bytes[usize::from(file_of_outsider(index))] = match outsider {
                RenamesOver | ReadsAndRenamesOver | RenamesSameOver => outsider.bytes(index),
                _ => Bytes::Torn,
            };
        }
        for stage in self.stages() {
            bytes[usize::from(file_of_attempt(stage))] = self.commits[stage.committer].new;
        }
        let path = if self.commits[0].kind == Kind::Create { None } else { Some(ORIGINAL) };
        let committer = Committer { step: Step::Idle, attempt: 0, applied: None };
        vec![Moment {
            bytes,
            path,
            stages: Default::default(),
            recovery: Set::default(),
            copied: Set::default(),
            lease: Lease::Free,
            committers: [committer; COMMITTERS],
            healer: Healer::Resting,
            outsiders: [Away::Idle; OUTSIDERS],
            kills: self.kills,
            seen: Seen { newest: path, ..Seen::default() },
        }]
    }

    fn actions(&self, now: &Moment, moves: &mut Vec<Move>) {
        for index in 0..self.commits.len() {
            if self.may_go_on(now, index) {
                moves.push(Move::Commit(index));
            }
            match now.committers[index].step {
                Step::Idle | Step::Answered(_) | Step::Dead => {}
                step => {
                    if matches!(step, Step::Staged | Step::Opened(_))
                        && self.commits[index].kind != Kind::Create
                    {
                        moves.push(Move::GiveUp(index));
                    }
                    if now.kills > 0 {
                        moves.push(Move::Kill(index));
                    }
                }
            }
        }
        for stage in self.stages() {
            let staged = now.stages[stage.committer][stage.attempt];
            if staged.file.is_some() && !staged.settled && !now.is_locked() {
                moves.push(Move::Judge(stage));
            }
            if self.may_check(now, stage) {
                moves.push(Move::Check(stage));
            }
        }
        if now.healer != Healer::Resting {
            moves.push(Move::Heal);
            if now.kills > 0 {
                moves.push(Move::KillHealer);
            }
        }
        moves.extend(
            (0..self.outsiders.len())
                .filter(|index| self.may_outsider_go_on(now, *index))
                .map(Move::Outsider),
        );
        if self.revokes && matches!(now.lease, Lease::Breaking(_)) {
            moves.push(Move::Revoke);
        }
    }

    fn next_state(&self, before: &Moment, step: Move) -> Option<Moment> {
        let mut now = before.clone();
        match step {
            Move::Commit(index) => self.commit(&mut now, index),
            Move::GiveUp(index) => {
                let stage = Stage { committer: index, attempt: now.committers[index].attempt };
                now.committers[index].step = self.refuse(&mut now, stage, Answer::Busy);
            }
            Move::Kill(index) => {
                // The kernel releases lock, lease and descriptors. What only the process knew is lost.
                now.committers[index].step = Step::Dead;
                now.lease = Lease::Free;
                now.kills -= 1;
            }
            Move::Judge(stage) => now.healer = Healer::Judged(stage, self.judge(&now, stage)),
            Move::Heal => self.heal(&mut now),
            Move::KillHealer => {
                now.healer = Healer::Resting;
                now.kills -= 1;
            }
            Move::Check(stage) => self.check(&mut now, stage),
            Move::Outsider(index) => self.outsider(&mut now, index),
            Move::Revoke => now.lease = Lease::Free,
        }
        self.notice_differences(&mut now);
        Some(now)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(FOREIGN_WRITES, |race, now| {
                !race.is_quiet(now) || race.keeps_foreign_writes(now)
            }),
            Property::<Self>::always(FOREIGN_BYTES, |race, now| {
                !race.is_quiet(now) || race.keeps_foreign_bytes(now)
            }),
            Property::<Self>::always(REFUSED, |race, now| {
                !race.is_quiet(now)
                    || (0..race.commits.len()).all(|index| match now.committers[index].step {
                        Step::Answered(Answer::Stale | Answer::Busy) => {
                            now.committers[index].applied.is_none() && race.left_nothing(now, index)
                        }
                        _ => true,
                    })
            }),
            // Not after a kill: between two swaps of an undo, a healer cannot tell which of two foreign saves is newer. It
            // keeps and reports the one that is not at the path.
            Property::<Self>::always(NEWEST, |race, now| {
                !race.is_quiet(now)
                    || now.kills < race.kills
                    || race.answered(now, &[Answer::Done])
                    || now.path == now.seen.newest
                    || race.deletes() && now.seen.newest.is_none()
            }),
            Property::<Self>::always(APPLIED, |race, now| {
                !race.is_quiet(now) || race.keeps_applied_writes(now)
            }),
            Property::<Self>::always(DISPLACED, |race, now| {
                !race.is_quiet(now)
                    || now.committers.iter().zip(&race.commits).all(|(committer, commit)| {
                        let Some((_, Some(out))) = committer.applied else { return true };
                        commit.kind == Kind::Create || now.recovery.contains(out)
                    })
            }),
            Property::<Self>::always(STALE, |_, now| !now.seen.false_stale),
            Property::<Self>::always(BLIND, |_, now| !now.seen.blind),
            Property::<Self>::always(ALL_OR_NOTHING, |race, now| {
                !race.is_quiet(now)
                    || (0..race.commits.len()).all(|index| {
                        let committer = now.committers[index];
                        committer.step != Step::Dead
                            || committer.applied.is_some()
                            || race.left_nothing(now, index)
                    })
            }),
            Property::<Self>::always(REPORTS, |_, now| !now.seen.false_report),
            Property::<Self>::always(SPOILT, |_, now| !now.seen.spoilt),
            Property::<Self>::always(CUT_OFF, |_, now| !now.seen.cut_off),
            Property::<Self>::always(WAITING, |race, now| {
                let mut moves = Vec::new();
                race.actions(now, &mut moves);
                !moves.is_empty() || race.is_quiet(now)
            }),
            Property::<Self>::sometimes("a write is done", |race, now| race.answered(now, &[Answer::Done])),
        ];
        let updates = self.commits.iter().all(|commit| commit.kind == Kind::Update);
        if updates && self.outsiders.contains(&WritesInPlace) {
            properties.extend([
                Property::<Self>::sometimes("a write is stale", |race, now| {
                    race.answered(now, &[Answer::Stale])
                }),
                Property::<Self>::sometimes("a swap is undone", |_, now| now.seen.undone),
                Property::<Self>::sometimes("a late write is reported", |race, now| {
                    race.answered(now, &[Answer::Done]) && now.seen.reported != Set::default()
                }),
            ]);
        }
        properties
    }
}

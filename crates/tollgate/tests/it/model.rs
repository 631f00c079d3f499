//! The protocol of one guarded write, checked in every interleaving.
//!
//! # What is modelled
//!
//! One path, the inodes that it and the stage names point to, what is in them, who has them open for writing, and the one
//! read lease. A step is a system call (or a few of which the others cannot tell the order). Against each other run:
//!
//! - up to two *committers*, under one lock, each with one update, create or delete;
//! - *outsiders* that know nothing of us: they write in place (look the name up, open and wait for the lease, truncate,
//!   write), rename a file of their own over the path, or remove it. Some write the very bytes that were there before;
//! - `kill -9` at every step, and the *healer* that cleans up afterwards, which can be killed too;
//! - the *second look* at each file that a commit left behind, and the kernel, which takes a lease away by force when
//!   its holder is too slow.
//!
//! # What is left out, and why that is enough
//!
//! - Contents are names instead of bytes: the protocol only asks whether two contents are the same.
//! - Hashing is one step: while the lease is held nobody can write, and a hash that was taken while the lease broke is
//!   thrown away. (The degraded level without leases is checked for loss only, where a torn hash is one more mismatch.)
//! - The baseline is read before the race begins; that a baseline is never half of somebody's write is the reader's task.
//! - Time: the second look comes when the grace time has outlasted every look-up of a name that began before the swap.
//!   What it costs if the grace is too short has a test of its own.
//! - Power cuts (what fsync is for), links, modes, directories, other paths: this is about order, not about durability.
//! - Whoever appends instead of truncating, or writes through a mapping, is one of the in-place writers: to the protocol
//!   they differ only in what they write. A mapping that the lease does not see (overlayfs) is the level without leases.
//! - Everything at the path is compared by inode while a descriptor pins it, so numbers are never reused here.
//!
//! # How to read it
//!
//! [`Race`] is a configuration, [`Moment`] a state, [`Move`] a step of somebody. What must hold is in
//! [`Race::properties`]. [`Clause`] lists what the protocol consists of; the tests at the end check the whole protocol, and
//! then that without any one of the clauses the checker finds the accident which that clause is there for. So nobody can
//! drop a clause as superfluous, and the model cannot have become too weak to see.

use std::collections::BTreeSet;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use self::Outsider::{Removes, RenamesOver, RenamesSameOver, RewritesSameInPlace, WritesInPlace};

/// An inode. Numbers are fixed beforehand, so that the same situation is the same state in whatever order it arose:
/// 0 is the file that the author read, then one for each outsider, then one for each attempt of each committer.
type File = u8;

const ORIGINAL: File = 0;
const OUTSIDERS: usize = 4;
const COMMITTERS: usize = 2;

/// A write that had to be undone is tried again once: the second attempt meets everything that a third would.
const ATTEMPTS: usize = 2;
const FILES: usize = 1 + OUTSIDERS + COMMITTERS * ATTEMPTS;

const fn file_of_outsider(outsider: usize) -> File {
    (1 + outsider) as File
}

const fn file_of_attempt(stage: Stage) -> File {
    (1 + OUTSIDERS + stage.committer * ATTEMPTS + stage.attempt) as File
}

/// A set of inodes or outsiders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Set(u16);

impl Set {
    fn insert(&mut self, member: u8) {
        self.0 |= 1 << member;
    }

    fn contains(self, member: u8) -> bool {
        self.0 & (1 << member) != 0
    }
}

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bytes {
    /// What the author of the guarded write read.
    Base,
    /// What a committer writes.
    New(u8),
    /// What an outsider writes.
    Foreign(u8),
    /// Truncated by somebody who has not written yet.
    Torn,
}

/// A part of the protocol that can be left out, to see what it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clause {
    /// Hash and swap under a read lease.
    Lease,
    /// After the swap: is what came out the file that was hashed? Else undo.
    Verify,
    /// ... and is the lease still whole? Else undo.
    StillQuiet,
    /// After undoing: did our own file come out? Else an outsider saved meanwhile: swap again, theirs is the newest.
    SwapAgain,
    /// ... and again, until what comes out is what was put in: another outsider may save between these swaps too.
    SwapUntilOurs,
    /// A staged file that was seen at the path is not used for the next attempt.
    FreshStage,
    /// What is displaced is kept and hashed once more after the grace time.
    SecondLook,
    /// ... and so is our own file when it was seen at the path and taken back.
    LookAtExposed,
    /// The second look takes a lease too: it waits for whoever has the file open.
    QuietLook,
    /// A staged file that was taken back is renamed at once, so that no healer judges it by its content later on.
    Settle,
    /// The healer leaves alone what the ledger says was applied.
    AskLedger,
    /// The healer knows a finished create by its inode, which has both names. Its content is the new one either way.
    CompareInodes,
    /// Whoever gets the lock heals what the dead left for this path before staging anything.
    HealFirst,
}

/// How a committer goes about it.
#[derive(Clone, Debug)]
enum Protocol {
    /// What everybody does: compare, then rename over.
    Naive,
    /// Ours, without these clauses.
    Guarded { without: &'static [Clause] },
}

const FULL: Protocol = Protocol::Guarded { without: &[] };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Update,
    Create,
    Delete,
}

/// One guarded write: its author read `base` and wants `new` (of no meaning to a delete).
#[derive(Clone, Copy, Debug)]
struct Commit {
    kind: Kind,
    base: Bytes,
    new: Bytes,
}

const UPDATE: Commit = Commit { kind: Kind::Update, base: Bytes::Base, new: Bytes::New(0) };
const CREATE: Commit = Commit { kind: Kind::Create, ..UPDATE };
const DELETE: Commit = Commit { kind: Kind::Delete, ..UPDATE };
/// A second author who read the same and writes something else.
const RIVAL: Commit = Commit { new: Bytes::New(1), ..UPDATE };
/// A second author who read what the first one wrote.
const SEQUEL: Commit = Commit { kind: Kind::Update, base: Bytes::New(0), new: Bytes::New(1) };

/// What an outsider does, once, at any time or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outsider {
    WritesInPlace,
    RenamesOver,
    Removes,
    RewritesSameInPlace,
    RenamesSameOver,
}

impl Outsider {
    fn bytes(self, index: usize) -> Bytes {
        match self {
            WritesInPlace | RenamesOver | Removes => Bytes::Foreign(index as u8),
            RewritesSameInPlace | RenamesSameOver => Bytes::Base,
        }
    }
}

/// What the time before the second look outlasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grace {
    /// Nothing: the second look may come at once.
    Nothing,
    /// Whoever looked the name up before the swap has reached its open(2).
    Lookups,
    /// ... and has closed the file again. Needed where there are no leases to tell.
    Writers,
}

/// What becomes of our own file when it was seen at the path, taken back, and found unchanged by the second look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposed {
    Unlinked,
    Kept,
}

/// A configuration: who takes part.
#[derive(Clone, Debug)]
struct Race {
    protocol: Protocol,
    commits: Vec<Commit>,
    outsiders: Vec<Outsider>,
    /// How often somebody of ours is killed, at most.
    kills: u8,
    /// Whether the kernel may take a lease away.
    revokes: bool,
    grace: Grace,
    exposed: Exposed,
}

/// The stage name of one attempt. It carries the target, the base and the new hash: all a healer has to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stage {
    committer: usize,
    attempt: usize,
}

/// What a stage name points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Staged {
    file: Option<File>,
    /// Its fate is decided, by a new name or by a line in the ledger: only the second look is due.
    settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Done,
    Stale,
    Busy,
}

/// Where a committer stands, named for what it did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Staged,
    Opened(File),
    Hashed(File, Bytes),
    Checked(File),
    /// What came out was `over` at that moment (for the properties; the committer does not know it).
    Swapped {
        hashed: File,
        over: Bytes,
    },
    /// Swaps until what comes out is the file that it put in.
    Undoing {
        expected: File,
    },
    Undone,
    Verified {
        over: Bytes,
    },
    Logged,
    Answered(Answer),
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Committer {
    step: Step,
    attempt: usize,
    /// The attempt that the ledger says was applied, and the file that it displaced.
    applied: Option<(usize, Option<File>)>,
}

/// What the healer makes of a stage name from its content alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verdict {
    NeverApplied,
    Applied,
    ForeignSave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Healer {
    Resting,
    Judged(Stage, Verdict),
    Returning { stage: Stage, expected: File },
    Decided(Stage),
}

/// Where an outsider stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Away {
    Idle,
    /// Has looked the name up, and not yet met the lease.
    Found(File),
    /// Waits in open(2) until the lease is gone. The kernel counts it as a writer from here on.
    Waiting(File),
    Open(File),
    Truncated(File),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lease {
    Free,
    Held(File),
    /// Somebody waits for it: fcntl(F_GETLEASE) tells.
    Breaking(File),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Moment {
    bytes: [Bytes; FILES],
    path: Option<File>,
    stages: [[Staged; ATTEMPTS]; COMMITTERS],
    recovery: Set,
    lease: Lease,
    committers: [Committer; COMMITTERS],
    healer: Healer,
    outsiders: [Away; OUTSIDERS],
    kills: u8,
    seen: Seen,
}

/// What only the one who watches knows: history, for the properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    /// Files found changed by the second look, and told.
    reported: Set,
    /// Something was reported that was no finished foreign write.
    false_report: bool,
    /// Outsiders whose write another outsider overwrote, replaced or removed: that is between them.
    overwritten: Set,
    /// Our files to which an outsider did that.
    overwritten_new: Set,
    /// Files that an outsider unlinked.
    unlinked: Set,
    /// What outsiders last put at the path.
    newest: Option<File>,
    /// The path held finished bytes other than this committer's base.
    differed: [bool; COMMITTERS],
    /// Somebody was told "stale" and it was not so.
    false_stale: bool,
    /// Somebody was told "done" over bytes that its author had not read.
    blind: bool,
    /// A file went to the path that no longer held what was staged.
    spoilt: bool,
    /// A swap was undone.
    undone: bool,
}

/// Somebody's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Commit(usize),
    /// Out of patience: answered "busy".
    GiveUp(usize),
    Kill(usize),
    Judge(Stage),
    Heal,
    KillHealer,
    Look(Stage),
    Outsider(usize),
    Revoke,
}

impl Moment {
    fn staged(&mut self, stage: Stage) -> &mut Staged {
        &mut self.stages[stage.committer][stage.attempt]
    }

    fn file_at(&self, stage: Stage) -> Option<File> {
        self.stages[stage.committer][stage.attempt].file
    }

    fn content(&self, file: File) -> Bytes {
        self.bytes[usize::from(file)]
    }

    fn is_leased(&self, file: File) -> bool {
        matches!(self.lease, Lease::Held(leased) | Lease::Breaking(leased) if leased == file)
    }

    fn has_writer(&self, file: File) -> bool {
        self.outsiders.iter().any(|away| {
            matches!(*away, Away::Waiting(open) | Away::Open(open) | Away::Truncated(open) if open == file)
        })
    }

    fn is_being_looked_up(&self, file: File) -> bool {
        self.outsiders.contains(&Away::Found(file))
    }

    /// The lock is held by whoever of ours is in the middle of something.
    fn is_locked(&self) -> bool {
        self.healer != Healer::Resting
            || self
                .committers
                .iter()
                .any(|committer| !matches!(committer.step, Step::Idle | Step::Answered(_) | Step::Dead))
    }

    /// `renameat2(RENAME_EXCHANGE)`; fails if there is nothing at the path.
    fn exchange(&mut self, stage: Stage) -> bool {
        if self.path.is_none() {
            return false;
        }
        let displaced = self.path;
        self.path = self.file_at(stage);
        self.staged(stage).file = displaced;
        true
    }

    /// An outsider overwrites or unlinks what is in this file.
    fn overwrite(&mut self, file: File) {
        match self.content(file) {
            Bytes::Foreign(outsider) => self.seen.overwritten.insert(outsider),
            Bytes::New(_) => self.seen.overwritten_new.insert(file),
            Bytes::Base | Bytes::Torn => {}
        }
    }

    /// An outsider renames its file over the path, or removes it.
    fn replace(&mut self, by: Option<File>) {
        if let Some(old) = self.path {
            self.overwrite(old);
            self.seen.unlinked.insert(old);
        }
        self.path = by;
        self.seen.newest = by;
    }
}

impl Race {
    fn has(&self, clause: Clause) -> bool {
        match &self.protocol {
            Protocol::Naive => false,
            Protocol::Guarded { without } => !without.contains(&clause),
        }
    }

    fn stages(&self) -> impl Iterator<Item = Stage> + use<> {
        (0..self.commits.len())
            .flat_map(|committer| (0..ATTEMPTS).map(move |attempt| Stage { committer, attempt }))
    }

    /// Nobody is in the middle of anything, and every second look was taken. Outsiders that have not begun need not begin:
    /// so a configuration contains all the smaller ones.
    fn is_quiet(&self, now: &Moment) -> bool {
        !now.is_locked()
            && now.outsiders.iter().all(|away| matches!(away, Away::Idle | Away::Done))
            && self.stages().all(|stage| now.file_at(stage).is_none())
    }

    /// What a committer can do next, if it need not wait.
    fn may_go_on(&self, now: &Moment, index: usize) -> bool {
        match now.committers[index].step {
            Step::Idle => {
                let left_over = || {
                    self.stages().any(|stage| {
                        let staged = now.stages[stage.committer][stage.attempt];
                        staged.file.is_some() && !staged.settled
                    })
                };
                // The author of a sequel reads now; all others read before the race.
                let has_read = || {
                    let base = self.commits[index].base;
                    base == Bytes::Base || now.path.is_some_and(|file| now.content(file) == base)
                };
                !now.is_locked() && has_read() && !(self.has(Clause::HealFirst) && left_over())
            }
            Step::Opened(file) => !self.has(Clause::Lease) || !now.has_writer(file),
            Step::Answered(_) | Step::Dead => false,
            _ => true,
        }
    }

    fn may_outsider_go_on(&self, now: &Moment, index: usize) -> bool {
        match now.outsiders[index] {
            Away::Waiting(file) => !now.is_leased(file),
            Away::Done => false,
            _ => true,
        }
    }

    fn may_look(&self, now: &Moment, stage: Stage) -> bool {
        let staged = now.stages[stage.committer][stage.attempt];
        staged.settled
            && staged.file.is_some_and(|file| {
                (self.grace == Grace::Nothing || !now.is_being_looked_up(file))
                    && !(self.grace == Grace::Writers && now.has_writer(file))
                    && !(self.has(Clause::Lease) && self.has(Clause::QuietLook) && now.has_writer(file))
            })
    }

    /// One step of a committer.
    fn commit(&self, now: &mut Moment, index: usize) {
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
                    out.is_some_and(|file| now.content(file) == commit.base)
                };
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
                now.staged(stage).settled = self.has(Clause::AskLedger);
                Step::Logged
            }
            Step::Logged => {
                now.lease = Lease::Free;
                if commit.kind == Kind::Create {
                    now.staged(stage).file = None;
                } else if !self.has(Clause::SecondLook) {
                    self.drop_at_once(now, stage);
                }
                Step::Answered(Answer::Done)
            }
            Step::Answered(_) | Step::Dead => unreachable!("has nothing left to do"),
        };
    }

    fn stage_new(&self, now: &mut Moment, stage: Stage) -> Step {
        if self.commits[stage.committer].kind != Kind::Delete {
            now.staged(stage).file = Some(file_of_attempt(stage));
        }
        Step::Staged
    }

    /// The one step at which the path changes.
    fn swap(&self, now: &mut Moment, stage: Stage, hashed: File) -> Step {
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

    /// Puts back what came out. If that was not all, tells which file should come out at the next swap.
    fn undo(&self, now: &mut Moment, stage: Stage, expected: File) -> Option<File> {
        if self.commits[stage.committer].kind == Kind::Delete {
            // RENAME_NOREPLACE: if there is a new file by now, it stays, and ours goes to recovery.
            if now.path.is_none() {
                now.path = now.staged(stage).file.take();
            }
            return None;
        }
        let put = now.file_at(stage);
        if !now.exchange(stage) {
            // An outsider removed what we had put there: theirs is the newest, and it is nothing.
            return None;
        }
        if now.file_at(stage) == Some(expected) { None } else { put }
    }

    fn swaps_again(&self, stage: Stage, expected: File) -> bool {
        let first = expected == file_of_attempt(stage);
        self.has(if first { Clause::SwapAgain } else { Clause::SwapUntilOurs })
    }

    fn settle_undone(&self, now: &mut Moment, stage: Stage) -> Step {
        now.lease = Lease::Free;
        let is_ours = now.file_at(stage) == Some(file_of_attempt(stage));
        if !self.has(Clause::FreshStage) && is_ours {
            return Step::Staged;
        }
        if !self.has(Clause::SecondLook) || !self.has(Clause::LookAtExposed) && is_ours {
            self.drop_at_once(now, stage);
        }
        now.staged(stage).settled = self.has(Clause::Settle);
        if stage.attempt + 1 == ATTEMPTS {
            return Step::Answered(Answer::Busy);
        }
        now.committers[stage.committer].attempt += 1;
        self.stage_new(now, Stage { attempt: stage.attempt + 1, ..stage })
    }

    /// Without a second look: what is known not to be foreign goes at once, the rest is kept and reported.
    fn drop_at_once(&self, now: &mut Moment, stage: Stage) {
        let commit = self.commits[stage.committer];
        let Some(file) = now.staged(stage).file.take() else { return };
        if ![commit.base, commit.new].contains(&now.content(file)) {
            now.recovery.insert(file);
            now.seen.reported.insert(file);
        }
    }

    /// Before the swap: what was staged was never seen at the path, it can go at once.
    fn refuse(&self, now: &mut Moment, stage: Stage, answer: Answer) -> Step {
        now.seen.false_stale |= answer == Answer::Stale && !now.seen.differed[stage.committer];
        now.lease = Lease::Free;
        now.staged(stage).file = None;
        Step::Answered(answer)
    }

    /// What the healer sees: a name, the content behind it, and no line in the ledger.
    fn judge(&self, now: &Moment, stage: Stage) -> Verdict {
        let commit = self.commits[stage.committer];
        let file = now.file_at(stage).expect("a leftover");
        let bytes = now.content(file);
        match commit.kind {
            // After link(2) both names are one file, whatever somebody has written into it since.
            Kind::Create if now.path == Some(file) && self.has(Clause::CompareInodes) => Verdict::Applied,
            Kind::Create | Kind::Update if bytes == commit.new => Verdict::NeverApplied,
            Kind::Update | Kind::Delete if bytes == commit.base => Verdict::Applied,
            _ => Verdict::ForeignSave,
        }
    }

    fn heal(&self, now: &mut Moment) {
        now.healer = match now.healer {
            Healer::Resting => unreachable!("begins with a judgement"),
            Healer::Judged(stage, Verdict::NeverApplied) => Healer::Decided(stage),
            Healer::Judged(stage, Verdict::Applied) => {
                let out = now.file_at(stage);
                now.committers[stage.committer].applied = Some((stage.attempt, out));
                now.staged(stage).settled = self.has(Clause::AskLedger);
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

    fn look(&self, now: &mut Moment, stage: Stage) {
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

    fn outsider(&self, now: &mut Moment, index: usize) {
        let own = file_of_outsider(index);
        let kind = self.outsiders[index];
        now.outsiders[index] = match now.outsiders[index] {
            Away::Idle => match kind {
                RenamesOver | RenamesSameOver => {
                    now.replace(Some(own));
                    Away::Done
                }
                Removes => {
                    if now.path.is_some() {
                        now.replace(None);
                    }
                    Away::Done
                }
                WritesInPlace | RewritesSameInPlace => match now.path {
                    Some(file) => Away::Found(file),
                    None => {
                        // O_CREAT: look-up and creation are one step under the lock of the directory.
                        now.replace(Some(own));
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
            Away::Done => unreachable!("has nothing left to do"),
        };
    }

    /// Notes who could truthfully be told by now that the path holds something else.
    fn notice_differences(&self, now: &mut Moment) {
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

    fn keeps_foreign_writes(&self, now: &Moment) -> bool {
        self.foreign_writes(now).all(|file| {
            now.path == Some(file) || now.recovery.contains(file) && now.seen.reported.contains(file)
        })
    }

    fn keeps_foreign_bytes(&self, now: &Moment) -> bool {
        self.foreign_writes(now).all(|file| now.path == Some(file) || now.recovery.contains(file))
    }

    /// The files with the foreign writes that no other outsider has undone.
    fn foreign_writes<'a>(&'a self, now: &'a Moment) -> impl Iterator<Item = File> + 'a {
        (0..FILES as File).filter(|file| match now.content(*file) {
            Bytes::Foreign(outsider) => {
                now.outsiders[usize::from(outsider)] == Away::Done && !now.seen.overwritten.contains(outsider)
            }
            _ => false,
        })
    }

    /// Nothing of this committer is at the path but what an outsider has overwritten since.
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

    /// A delete that is undone finds nothing at the path, and cannot tell its own doing from that of an outsider who saved
    /// and removed a file meanwhile: then the old file comes back.
    fn deletes(&self) -> bool {
        self.commits.iter().any(|commit| commit.kind == Kind::Delete)
    }

    fn answered(&self, now: &Moment, answers: &[Answer]) -> bool {
        now.committers
            .iter()
            .any(|committer| matches!(committer.step, Step::Answered(answer) if answers.contains(&answer)))
    }
}

const FOREIGN_WRITES: &str = "no foreign write is lost: it is at the path, or kept and reported";
const FOREIGN_BYTES: &str = "no foreign bytes are destroyed: they are at the path or kept";
const REFUSED: &str = "a refused write is neither at the path nor in the ledger";
const NEWEST: &str = "a refusal leaves at the path what outsiders last put there";
const APPLIED: &str = "an acknowledged write is overwritten by outsiders only";
const STALE: &str = "stale is said only of a path that held other finished bytes";
const BLIND: &str = "a write is acknowledged only over what its author read";
const ALL_OR_NOTHING: &str = "of a killed write all is left and logged, or nothing";
const REPORTS: &str = "only finished foreign writes are reported";
const SPOILT: &str = "what goes to the path is what was staged";
const DISPLACED: &str = "what an acknowledged write displaced is kept";
const WAITING: &str = "nobody waits for ever";

impl Model for Race {
    type State = Moment;
    type Action = Move;

    fn init_states(&self) -> Vec<Moment> {
        assert!(self.commits.len() <= COMMITTERS && self.outsiders.len() <= OUTSIDERS, "too many");
        let mut bytes = [Bytes::Base; FILES];
        for (index, outsider) in self.outsiders.iter().enumerate() {
            bytes[usize::from(file_of_outsider(index))] = match outsider {
                RenamesOver | RenamesSameOver => outsider.bytes(index),
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
            if self.may_look(now, stage) {
                moves.push(Move::Look(stage));
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
                // The kernel lets go of lock, lease and descriptors. What is known only to the process is gone.
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
            Move::Look(stage) => self.look(&mut now, stage),
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
            // Not after a kill: between two swaps of an undo, a healer cannot tell the newer of two foreign saves. The one
            // that is not at the path is then kept and reported.
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

impl Race {
    fn of(commits: &[Commit], outsiders: &[Outsider]) -> Self {
        Self {
            protocol: FULL,
            commits: commits.to_vec(),
            outsiders: outsiders.to_vec(),
            kills: 0,
            revokes: false,
            grace: Grace::Lookups,
            exposed: Exposed::Unlinked,
        }
    }

    fn without(self, without: &'static [Clause]) -> Self {
        Self { protocol: Protocol::Guarded { without }, ..self }
    }

    /// Explores everything.
    fn holds(self, floor: usize) {
        self.holds_but(&[], floor);
    }

    /// Explores everything: these properties have counterexamples, and only these.
    fn holds_but(self, exceptions: &[&str], floor: usize) {
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
    fn breaks(self, property: &'static str) {
        let checker = self
            .checker()
            .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([property])))
            .threads(2)
            .spawn_bfs()
            .join();
        checker.assert_any_discovery(property);
    }
}

// The whole protocol. The floors are a little below what was counted when this was written.

#[test]
fn an_update_loses_no_foreign_write_and_calls_nothing_stale_that_is_not() {
    let race = Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver, RenamesOver]);
    Race { revokes: true, ..race }.holds(50_000);
    Race::of(&[UPDATE], &[WritesInPlace, RenamesOver, RenamesOver, RenamesOver]).holds(10_000);
}

#[test]
fn an_update_brings_nothing_back_that_an_outsider_removed() {
    let race = Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver, Removes]);
    Race { revokes: true, ..race }.holds(30_000);
}

#[test]
fn rewriting_the_same_bytes_raises_no_alarm() {
    let race = Race::of(&[UPDATE], &[WritesInPlace, RewritesSameInPlace, RenamesSameOver]);
    Race { revokes: true, ..race }.holds(15_000);
    Race::of(&[UPDATE], &[RewritesSameInPlace, RewritesSameInPlace, RenamesSameOver]).holds(10_000);
}

#[test]
fn a_delete_loses_no_foreign_write() {
    let race = Race::of(&[DELETE], &[WritesInPlace, WritesInPlace, RenamesOver, Removes]);
    Race { revokes: true, ..race }.holds(20_000);
}

#[test]
fn an_update_that_is_killed_at_any_step_heals_to_all_or_nothing() {
    let race = Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver, RenamesOver]);
    Race { kills: 2, revokes: true, ..race }.holds(190_000);
    let race = Race::of(&[UPDATE], &[WritesInPlace, RewritesSameInPlace, RenamesOver, Removes]);
    Race { kills: 2, ..race }.holds(130_000);
}

#[test]
fn a_delete_that_is_killed_at_any_step_heals_to_all_or_nothing() {
    let race = Race::of(&[DELETE], &[WritesInPlace, RewritesSameInPlace, RenamesOver, Removes]);
    Race { kills: 2, ..race }.holds(50_000);
}

#[test]
fn a_create_overwrites_nothing_and_heals_to_all_or_nothing() {
    let race = Race::of(&[CREATE], &[WritesInPlace, WritesInPlace, RenamesOver, Removes]);
    Race { kills: 2, ..race }.holds(15_000);
}

#[test]
fn two_committers_under_one_lock_lose_neither_write() {
    let create = Commit { new: Bytes::New(1), ..CREATE };
    for (commits, floor) in [
        ([UPDATE, RIVAL], 22_000),
        ([UPDATE, SEQUEL], 11_000),
        ([UPDATE, DELETE], 14_000),
        ([DELETE, DELETE], 8_000),
        ([DELETE, CREATE], 7_000),
        ([CREATE, create], 2_500),
        ([CREATE, SEQUEL], 5_000),
    ] {
        Race { kills: 2, revokes: true, ..Race::of(&commits, &[WritesInPlace, RenamesOver]) }.holds(floor);
    }
}

/// A healer goes by content. So two authors of the same bytes are the hard case: one must not undo the other's.
#[test]
fn two_committers_that_write_the_same_bytes_are_not_taken_for_each_other() {
    let race = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace]);
    Race { kills: 2, revokes: true, ..race }.holds(80_000);
}

/// Where there is no lease: nothing is lost if the grace time outlasts the writers, but half a write is called stale.
#[test]
fn without_leases_nothing_is_lost_but_stale_can_be_said_too_early() {
    let outsiders = [WritesInPlace, WritesInPlace, RenamesOver];
    let portable = |commit| Race {
        kills: 2,
        grace: Grace::Writers,
        protocol: Protocol::Guarded { without: &[Clause::Lease, Clause::QuietLook] },
        ..Race::of(&[commit], &outsiders)
    };
    portable(UPDATE).holds_but(&[STALE], 20_000);
    portable(DELETE).holds_but(&[STALE], 10_000);
}

#[test]
fn a_grace_time_too_short_costs_the_report_but_never_the_bytes_if_all_is_kept() {
    let hasty = |exposed| Race {
        kills: 1,
        grace: Grace::Nothing,
        exposed,
        ..Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver])
    };
    hasty(Exposed::Kept).holds_but(&[FOREIGN_WRITES], 10_000);
    hasty(Exposed::Unlinked).breaks(FOREIGN_BYTES);
    // Even if the second look does not wait for those who have the file open. It then tells of half a write, too.
    hasty(Exposed::Kept).without(&[Clause::QuietLook]).holds_but(&[FOREIGN_WRITES, REPORTS], 10_000);
}

/// One outsider of each kind more.
#[test]
fn two_committers_among_more_outsiders_lose_nothing() {
    let rivals = Race::of(&[UPDATE, RIVAL], &[WritesInPlace, WritesInPlace, RenamesOver]);
    Race { kills: 2, revokes: true, ..rivals }.holds(300_000);
    let twins = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace, RenamesSameOver]);
    Race { kills: 2, revokes: true, ..twins }.holds(1_000_000);
}

// The controls: what each clause is there for.

#[test]
fn compare_then_rename_loses_any_foreign_write() {
    for outsider in [WritesInPlace, RenamesOver] {
        Race { protocol: Protocol::Naive, ..Race::of(&[UPDATE], &[outsider]) }.breaks(FOREIGN_BYTES);
    }
}

#[test]
fn exchange_alone_is_enough_for_renames_but_loses_a_write_in_place() {
    let alone = |outsiders| Race::of(&[UPDATE], outsiders).without(&[Clause::Lease, Clause::SecondLook]);
    alone(&[RenamesOver, RenamesOver]).holds_but(&[DISPLACED], 100);
    alone(&[WritesInPlace]).breaks(FOREIGN_BYTES);
}

#[test]
fn lease_and_exchange_without_a_second_look_lose_the_late_opener() {
    Race::of(&[UPDATE], &[WritesInPlace]).without(&[Clause::SecondLook]).breaks(FOREIGN_BYTES);
}

#[test]
fn without_a_lease_the_same_bytes_rewritten_are_called_stale() {
    Race::of(&[UPDATE], &[RewritesSameInPlace, RenamesSameOver]).without(&[Clause::Lease]).breaks(STALE);
}

#[test]
fn what_came_out_must_be_the_file_that_was_hashed() {
    Race::of(&[UPDATE], &[RenamesOver]).without(&[Clause::Verify]).breaks(BLIND);
    Race::of(&[DELETE], &[RenamesOver]).without(&[Clause::Verify]).breaks(BLIND);
}

#[test]
fn the_lease_must_be_whole_after_the_exchange() {
    let race = Race::of(&[UPDATE], &[WritesInPlace]).without(&[Clause::StillQuiet]);
    Race { revokes: true, ..race }.breaks(BLIND);
}

#[test]
fn undoing_must_go_on_until_our_own_file_comes_out() {
    Race::of(&[UPDATE], &[RenamesOver, RenamesOver]).without(&[Clause::SwapAgain]).breaks(NEWEST);
    let thrice = Race::of(&[UPDATE], &[RenamesOver, RenamesOver, RenamesOver]);
    thrice.without(&[Clause::SwapUntilOurs]).breaks(NEWEST);
}

#[test]
fn a_file_that_was_seen_at_the_path_must_not_be_staged_again() {
    Race::of(&[UPDATE], &[WritesInPlace, RewritesSameInPlace]).without(&[Clause::FreshStage]).breaks(SPOILT);
}

#[test]
fn a_file_that_was_seen_at_the_path_must_not_be_unlinked_at_once() {
    Race::of(&[UPDATE], &[WritesInPlace, RenamesOver])
        .without(&[Clause::LookAtExposed])
        .breaks(FOREIGN_BYTES);
}

#[test]
fn the_second_look_must_wait_for_those_who_have_the_file_open() {
    let race = || Race::of(&[UPDATE], &[WritesInPlace, RenamesOver]).without(&[Clause::QuietLook]);
    race().breaks(FOREIGN_WRITES);
    race().breaks(FOREIGN_BYTES);
}

#[test]
fn a_file_that_was_taken_back_must_not_be_judged_by_a_healer() {
    let alone = Race::of(&[UPDATE], &[WritesInPlace, RenamesOver]);
    alone.without(&[Clause::Settle]).breaks(REFUSED);
    let twins = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace]);
    twins.without(&[Clause::Settle]).breaks(APPLIED);
}

#[test]
fn a_healer_must_ask_the_ledger() {
    Race::of(&[UPDATE], &[WritesInPlace]).without(&[Clause::AskLedger]).breaks(APPLIED);
}

#[test]
fn leftovers_must_be_healed_before_the_next_write_is_staged() {
    let twins = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace]);
    Race { kills: 1, ..twins }.without(&[Clause::HealFirst]).breaks(APPLIED);
}

#[test]
fn a_healer_must_know_a_finished_create_by_its_inode() {
    Race { kills: 1, ..Race::of(&[CREATE], &[]) }.without(&[Clause::CompareInodes]).breaks(ALL_OR_NOTHING);
}

//! The vocabulary of the model: files, leases, committers, outsiders, the healer, and one state of all of them.

use self::Outsider::{
    ReadsAndRenamesOver, Removes, RenamesOver, RenamesSameOver, RewritesSameInPlace, WritesInPlace,
};

/// An inode. The numbers are fixed, so that the same situation is the same state, regardless of the order of events: 0 is the
/// file that the author read, then one for each outsider, then one for each attempt of each committer.
pub(super) type File = u8;

pub(super) const ORIGINAL: File = 0;
pub(super) const OUTSIDERS: usize = 4;
pub(super) const COMMITTERS: usize = 2;

/// A write that had to be undone is tried again once. A third attempt would not meet anything new.
pub(super) const ATTEMPTS: usize = 2;
pub(super) const FILES: usize = 1 + OUTSIDERS + COMMITTERS * ATTEMPTS;

pub(super) const fn file_of_outsider(outsider: usize) -> File {
    (1 + outsider) as File
}

pub(super) const fn file_of_attempt(stage: Stage) -> File {
    (1 + OUTSIDERS + stage.committer * ATTEMPTS + stage.attempt) as File
}

/// A set of inodes or outsiders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Set(u16);

impl Set {
    pub(super) fn insert(&mut self, member: u8) {
        self.0 |= 1 << member;
    }

    pub(super) fn contains(self, member: u8) -> bool {
        self.0 & (1 << member) != 0
    }
}

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bytes {
    /// The bytes that the author of the guarded write read.
    Base,
    /// The bytes that a committer writes.
    New(u8),
    /// The bytes that an outsider writes.
    Foreign(u8),
    /// Truncated by an outsider that has not written yet.
    Torn,
}

/// A part of the protocol. A test can leave it out, to show what it prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clause {
    /// Hash and swap under a read lease.
    Lease,
    /// After the swap: undo, unless the displaced file is the one that was hashed.
    Verify,
    /// After the swap: undo, unless the lease still holds.
    StillQuiet,
    /// After an undo: if our own file did not come out, an outsider has saved in the meantime. Its save is the newest: swap
    /// again.
    SwapAgain,
    /// Swap again until the file comes out that the last swap put in: another outsider may save between these swaps too.
    SwapUntilOurs,
    /// Before a foreign save goes back to the path, a copy of it goes to recovery.
    CopyBeforeReturn,
    /// A staged file that was visible at the path is not used for the next attempt.
    FreshStage,
    /// The displaced file is kept, and hashed again after the grace time.
    LateWriteCheck,
    /// Our own file is checked as well, if it was visible at the path before an undo.
    CheckExposed,
    /// The late-write check takes a lease too, so it waits until the file is closed.
    QuietCheck,
    /// A staged file is renamed at once after an undo, so that no healer judges it by its content later.
    Settle,
    /// The healer leaves a change alone that has a ledger line.
    CheckLedger,
    /// The healer recognises a finished create by its inode, which has both names. The content does not tell.
    CompareInodes,
    /// Where there are no leases: a file that a program has open for writing is waited for before it is hashed, and a hash that
    /// differs is taken again.
    AskBefore,
    /// Where there are no leases: undo, if a program has the displaced file open for writing.
    AskAfter,
    /// The next process to take the lock heals what dead ones left for this path, before it stages anything.
    HealFirst,
}

/// The protocol of a committer.
#[derive(Clone, Debug)]
pub(super) enum Protocol {
    /// The usual one: compare, then rename over.
    Naive,
    /// Ours, without these clauses.
    Guarded { without: &'static [Clause] },
    /// Ours where the kernel grants no leases but says who has a file open, without these clauses.
    Leaseless { without: &'static [Clause] },
}

pub(super) const FULL: Protocol = Protocol::Guarded { without: &[] };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Update,
    Create,
    Delete,
}

/// One guarded write: its author read `base` and wants `new` (ignored by a delete).
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    pub(super) kind: Kind,
    pub(super) base: Bytes,
    pub(super) new: Bytes,
}

pub(super) const UPDATE: Commit = Commit { kind: Kind::Update, base: Bytes::Base, new: Bytes::New(0) };
pub(super) const CREATE: Commit = Commit { kind: Kind::Create, ..UPDATE };
pub(super) const DELETE: Commit = Commit { kind: Kind::Delete, ..UPDATE };
/// A second author, who read the same bytes and writes others.
pub(super) const RIVAL: Commit = Commit { new: Bytes::New(1), ..UPDATE };
/// A second author, who read what the first one wrote.
pub(super) const SEQUEL: Commit = Commit { kind: Kind::Update, base: Bytes::New(0), new: Bytes::New(1) };

/// What an outsider does, once, at any time or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outsider {
    WritesInPlace,
    RenamesOver,
    /// Reads the file, and later renames what it made of it over the path.
    ReadsAndRenamesOver,
    Removes,
    RewritesSameInPlace,
    RenamesSameOver,
}

impl Outsider {
    pub(super) fn bytes(self, index: usize) -> Bytes {
        match self {
            WritesInPlace | RenamesOver | ReadsAndRenamesOver | Removes => Bytes::Foreign(index as u8),
            RewritesSameInPlace | RenamesSameOver => Bytes::Base,
        }
    }
}

/// What has ended by the time of the late-write check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grace {
    /// Nothing: the check may come at once.
    Nothing,
    /// Look-ups: every outsider that looked the name up before the swap has reached its open(2).
    Lookups,
    /// Writes: every such outsider has closed the file. Needed where there are no leases.
    Writers,
}

/// What happens to our own file if it was visible at the path, and the late-write check finds it unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposed {
    Unlinked,
    Kept,
}

/// A configuration: who takes part.
#[derive(Clone, Debug)]
pub(super) struct Race {
    pub(super) protocol: Protocol,
    pub(super) commits: Vec<Commit>,
    pub(super) outsiders: Vec<Outsider>,
    /// The largest number of kills.
    pub(super) kills: u8,
    /// Whether the kernel may revoke a lease.
    pub(super) revokes: bool,
    pub(super) grace: Grace,
    pub(super) exposed: Exposed,
}

/// The stage name of one attempt. It carries the target, the base and the new hash: all that a healer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stage {
    pub(super) committer: usize,
    pub(super) attempt: usize,
}

/// What a stage name points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Staged {
    pub(super) file: Option<File>,
    /// The fate of the change is decided, by a new name or by a ledger line: only the late-write check is left.
    pub(super) settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Done,
    Stale,
    Busy,
}

/// The position of a committer, named after what it did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Idle,
    Staged,
    Opened(File),
    Hashed(File, Bytes),
    Checked(File),
    /// The displaced file held `over` at that moment. For the properties: the committer does not know it.
    Swapped {
        hashed: File,
        over: Bytes,
    },
    /// Swaps until the file comes out that it put in.
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
pub(super) struct Committer {
    pub(super) step: Step,
    pub(super) attempt: usize,
    /// The attempt that the ledger says was applied, and the file that it displaced.
    pub(super) applied: Option<(usize, Option<File>)>,
}

/// What the healer concludes from the content of a staged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    NeverApplied,
    Applied,
    ForeignSave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Healer {
    Resting,
    Judged(Stage, Verdict),
    Returning { stage: Stage, expected: File },
    Decided(Stage),
}

/// The position of an outsider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Away {
    Idle,
    /// Has looked the name up, and has not met the lease yet.
    Found(File),
    /// Waits in open(2) until the lease ends. From now on, the kernel counts it as a writer.
    Waiting(File),
    Open(File),
    Truncated(File),
    /// Has read the path. A committer hid these finished saves from it.
    Read {
        hidden: Set,
    },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lease {
    Free,
    Held(File),
    /// An outsider waits for it, as fcntl(F_GETLEASE) tells.
    Breaking(File),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Moment {
    pub(super) bytes: [Bytes; FILES],
    pub(super) path: Option<File>,
    pub(super) stages: [[Staged; ATTEMPTS]; COMMITTERS],
    pub(super) recovery: Set,
    /// The outsiders whose saves were copied to recovery.
    pub(super) copied: Set,
    pub(super) lease: Lease,
    pub(super) committers: [Committer; COMMITTERS],
    pub(super) healer: Healer,
    pub(super) outsiders: [Away; OUTSIDERS],
    pub(super) kills: u8,
    pub(super) seen: Seen,
}

/// The history, which only the properties know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    /// Files that the late-write check found changed and reported.
    pub(super) reported: Set,
    /// Something was reported that was not a finished foreign write.
    pub(super) false_report: bool,
    /// Outsiders whose write another outsider overwrote, replaced or deleted. That is not our fault.
    pub(super) overwritten: Set,
    /// Our files to which an outsider did that.
    pub(super) overwritten_new: Set,
    /// Files that an outsider unlinked.
    pub(super) unlinked: Set,
    /// The file that outsiders last put at the path.
    pub(super) newest: Option<File>,
    /// The path held finished bytes other than this committer's base.
    pub(super) differed: [bool; COMMITTERS],
    /// A committer answered "stale" although that was not true.
    pub(super) false_stale: bool,
    /// A committer answered "done" over bytes that its author had not read.
    pub(super) blind: bool,
    /// A write was found good although a program had the displaced file open for writing.
    pub(super) cut_off: bool,
    /// A file went to the path that no longer held the staged bytes.
    pub(super) spoilt: bool,
    /// A swap was undone.
    pub(super) undone: bool,
}

/// The next step of one of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Commit(usize),
    /// The committer stops waiting and answers "busy".
    GiveUp(usize),
    Kill(usize),
    Judge(Stage),
    Heal,
    KillHealer,
    Check(Stage),
    Outsider(usize),
    Revoke,
}

impl Moment {
    pub(super) fn staged(&mut self, stage: Stage) -> &mut Staged {
        &mut self.stages[stage.committer][stage.attempt]
    }

    pub(super) fn file_at(&self, stage: Stage) -> Option<File> {
        self.stages[stage.committer][stage.attempt].file
    }

    pub(super) fn content(&self, file: File) -> Bytes {
        self.bytes[usize::from(file)]
    }

    pub(super) fn is_leased(&self, file: File) -> bool {
        matches!(self.lease, Lease::Held(leased) | Lease::Breaking(leased) if leased == file)
    }

    pub(super) fn has_writer(&self, file: File) -> bool {
        self.outsiders.iter().any(|away| {
            matches!(*away, Away::Waiting(open) | Away::Open(open) | Away::Truncated(open) if open == file)
        })
    }

    pub(super) fn is_being_looked_up(&self, file: File) -> bool {
        self.outsiders.contains(&Away::Found(file))
    }

    /// A committer or healer that has begun and not finished holds the lock.
    pub(super) fn is_locked(&self) -> bool {
        self.healer != Healer::Resting
            || self
                .committers
                .iter()
                .any(|committer| !matches!(committer.step, Step::Idle | Step::Answered(_) | Step::Dead))
    }

    /// `renameat2(RENAME_EXCHANGE)`; fails if there is nothing at the path.
    pub(super) fn exchange(&mut self, stage: Stage) -> bool {
        if self.path.is_none() {
            return false;
        }
        let displaced = self.path;
        self.path = self.file_at(stage);
        self.staged(stage).file = displaced;
        true
    }

    /// The finished saves that an outsider does not see if it reads the path now.
    pub(super) fn hidden(&self) -> Set {
        let mut hidden = Set::default();
        for (file, bytes) in self.bytes.iter().enumerate() {
            if let Bytes::Foreign(outsider) = *bytes
                && self.outsiders[usize::from(outsider)] == Away::Done
                && !self.seen.overwritten.contains(outsider)
                && self.path != Some(file as File)
            {
                hidden.insert(outsider);
            }
        }
        hidden
    }

    /// An outsider overwrites or unlinks this file.
    pub(super) fn overwrite(&mut self, file: File) {
        match self.content(file) {
            Bytes::Foreign(outsider) => self.seen.overwritten.insert(outsider),
            Bytes::New(_) => self.seen.overwritten_new.insert(file),
            Bytes::Base | Bytes::Torn => {}
        }
    }

    /// An outsider renames its file over the path, or deletes the file there. If it could not know of a save there because a
    /// committer hid it, then that is our fault.
    pub(super) fn replace(&mut self, by: Option<File>, hidden: Set) {
        if let Some(old) = self.path {
            match self.content(old) {
                Bytes::Foreign(outsider) if hidden.contains(outsider) => {}
                _ => self.overwrite(old),
            }
            self.seen.unlinked.insert(old);
        }
        self.path = by;
        self.seen.newest = by;
    }
}

impl Race {
    pub(super) fn of(commits: &[Commit], outsiders: &[Outsider]) -> Self {
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

    pub(super) fn without(self, without: &'static [Clause]) -> Self {
        Self { protocol: Protocol::Guarded { without }, ..self }
    }
}

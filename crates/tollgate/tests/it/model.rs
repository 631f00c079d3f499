//! The protocol of one guarded write, checked in every interleaving.
//!
//! # What is modelled
//!
//! One path, the inodes that it and the stage names point to, their contents, the processes that have them open for
//! writing, and the one read lease. A step is a system call, or a few whose order nobody else can see. These run against
//! each other:
//!
//! - up to two *committers*, under one lock, each with one update, create or delete;
//! - *outsiders*, which are unaware of tollgate: they write in place (look the name up, open and wait for the lease,
//!   truncate, write), rename a file of their own over the path, with or without a look at the old one before, or delete
//!   it. Some write the same bytes again;
//! - `kill -9` at every step, and the *healer* that cleans up afterwards, which can be killed too;
//! - the *late-write check* of each replaced file, and the kernel, which revokes a lease when its holder is too slow.
//!
//! # What is left out, and why that is enough
//!
//! - Contents are names instead of bytes: the protocol only asks whether two contents are equal.
//! - Hashing is one step: while the lease is held nobody can write, and a hash that was taken while the lease broke is
//!   discarded. (Without leases, only loss is checked, and a hash of half a write is one more mismatch.)
//! - The baseline is read before the race begins. The reader makes sure that it is never half of a write.
//! - Time: the late-write check comes after every look-up of a name that began before the swap has ended. Another test
//!   shows what happens if the grace time is too short.
//! - Power failures (fsync), links, modes, directories, other paths: the model is about order, not about durability.
//! - Programs that append, or write through a mapping, count as in-place writers: for the protocol, only their bytes
//!   differ. A mapping that the lease does not see (overlayfs) is the case without leases.
//! - The protocol compares inodes only while a descriptor pins them, so numbers are never reused here.
//!
//! # How to read it
//!
//! `state.rs` has the vocabulary: `Race` is a configuration, `Moment` a state, `Move` a step. `steps.rs` has the protocol,
//! `properties.rs` has what must hold. `Clause` lists the parts of the protocol. The tests below check the whole protocol.
//! Then they check that without any one clause, the checker finds the accident that the clause prevents. So no clause is
//! superfluous, and the model is strong enough to see each accident.

mod properties;
mod state;
mod steps;

use self::properties::{
    ALL_OR_NOTHING, APPLIED, BLIND, CUT_OFF, DISPLACED, FOREIGN_BYTES, FOREIGN_WRITES, NEWEST, REFUSED,
    REPORTS, SPOILT, STALE,
};
use self::state::Outsider::{
    ReadsAndRenamesOver, Removes, RenamesOver, RenamesSameOver, RewritesSameInPlace, WritesInPlace,
};
use self::state::{
    Bytes, CREATE, Clause, Commit, DELETE, Exposed, Grace, Protocol, RIVAL, Race, SEQUEL, UPDATE,
};

// The whole protocol. The floors are a little below the number of states when this was written.

#[test]
fn an_update_loses_no_foreign_write_and_gives_no_false_alarm() {
    let race = Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver, RenamesOver]);
    Race { revokes: true, ..race }.holds(50_000);
    Race::of(&[UPDATE], &[WritesInPlace, RenamesOver, RenamesOver, RenamesOver]).holds(10_000);
}

#[test]
fn an_update_never_restores_a_file_that_an_outsider_deleted() {
    let race = Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver, Removes]);
    Race { revokes: true, ..race }.holds(30_000);
}

#[test]
fn a_rewrite_of_the_same_bytes_gives_no_false_alarm() {
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
fn an_update_killed_at_any_step_heals_to_all_or_nothing() {
    let race = Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver, RenamesOver]);
    Race { kills: 2, revokes: true, ..race }.holds(190_000);
    let race = Race::of(&[UPDATE], &[WritesInPlace, RewritesSameInPlace, RenamesOver, Removes]);
    Race { kills: 2, ..race }.holds(130_000);
}

/// It reads the path while a committer's bytes are there that are taken back later, and replaces a save that it never saw.
#[test]
fn a_program_that_reads_before_it_replaces_destroys_no_save_that_was_hidden_from_it() {
    for (commit, floor) in [(UPDATE, 20_000), (DELETE, 9_000)] {
        let race =
            Race { kills: 2, ..Race::of(&[commit], &[WritesInPlace, RenamesOver, ReadsAndRenamesOver]) };
        race.clone().holds(floor);
        race.without(&[Clause::CopyBeforeReturn]).breaks(FOREIGN_BYTES);
    }
}

#[test]
fn a_delete_killed_at_any_step_heals_to_all_or_nothing() {
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

/// A healer compares contents. So two authors of the same bytes are the hard case: one must not undo the other's write.
#[test]
fn two_committers_that_write_the_same_bytes_are_not_confused() {
    let race = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace]);
    Race { kills: 2, revokes: true, ..race }.holds(80_000);
}

/// The level of macOS: no leases, but the kernel says who has a file open. A save is never lost. A save by a program that opened the
/// file just after it was displaced ends in recovery, and is reported.
#[test]
fn without_leases_but_with_a_look_at_open_files_nothing_is_lost_and_nothing_is_called_stale_that_is_not() {
    let leaseless = |commit, outsiders: &[_]| Race {
        kills: 2,
        protocol: Protocol::Leaseless { without: &[] },
        ..Race::of(&[commit], outsiders)
    };
    leaseless(UPDATE, &[WritesInPlace, WritesInPlace, RenamesOver]).holds(8_000);
    leaseless(UPDATE, &[WritesInPlace, WritesInPlace, RenamesOver, RenamesOver]).holds(30_000);
    leaseless(UPDATE, &[WritesInPlace, RenamesOver, ReadsAndRenamesOver]).holds(5_000);
    leaseless(DELETE, &[WritesInPlace, WritesInPlace, RenamesOver]).holds(4_000);
    leaseless(CREATE, &[WritesInPlace, WritesInPlace, RenamesOver, Removes]).holds(10_000);
}

/// The swap may come while the rewrite has truncated the file. That is no harm: when the write is acknowledged, the file has its bytes
/// again, and nobody has it open.
#[test]
fn without_leases_a_rewrite_of_the_same_bytes_is_not_called_stale() {
    let race = |without| Race {
        protocol: Protocol::Leaseless { without },
        ..Race::of(&[UPDATE], &[RewritesSameInPlace, RenamesSameOver])
    };
    race(&[]).holds_but(&[BLIND], 100);
    race(&[Clause::AskBefore]).breaks(STALE);
}

#[test]
fn without_leases_a_program_that_has_the_file_open_must_be_found_after_the_swap() {
    let race = |without| Race {
        protocol: Protocol::Leaseless { without },
        ..Race::of(&[UPDATE], &[WritesInPlace, RenamesOver])
    };
    race(&[]).holds(100);
    race(&[Clause::AskAfter]).breaks(CUT_OFF);
}

/// Without leases, nothing is lost if the grace time is longer than any write, but half a write is called stale.
#[test]
fn without_leases_nothing_is_lost_but_half_a_write_may_be_called_stale() {
    let outsiders = [WritesInPlace, WritesInPlace, RenamesOver];
    let portable = |commit| Race {
        kills: 2,
        grace: Grace::Writers,
        protocol: Protocol::Guarded { without: &[Clause::Lease, Clause::QuietCheck] },
        ..Race::of(&[commit], &outsiders)
    };
    portable(UPDATE).holds_but(&[CUT_OFF, STALE], 20_000);
    portable(DELETE).holds_but(&[CUT_OFF, STALE], 10_000);
}

#[test]
fn a_short_grace_time_loses_the_report_but_not_the_bytes_if_all_files_are_kept() {
    let hasty = |exposed| Race {
        kills: 1,
        grace: Grace::Nothing,
        exposed,
        ..Race::of(&[UPDATE], &[WritesInPlace, WritesInPlace, RenamesOver])
    };
    hasty(Exposed::Kept).holds_but(&[FOREIGN_WRITES], 10_000);
    hasty(Exposed::Unlinked).breaks(FOREIGN_BYTES);
    // Even if the late-write check does not wait until the file is closed. It then reports half a write, too.
    hasty(Exposed::Kept).without(&[Clause::QuietCheck]).holds_but(&[FOREIGN_WRITES, REPORTS], 10_000);
}

/// One more outsider of each kind.
#[test]
fn two_committers_among_more_outsiders_lose_nothing() {
    let rivals = Race::of(&[UPDATE, RIVAL], &[WritesInPlace, WritesInPlace, RenamesOver]);
    Race { kills: 2, revokes: true, ..rivals }.holds(300_000);
    let twins = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace, RenamesSameOver]);
    Race { kills: 2, revokes: true, ..twins }.holds(1_000_000);
}

// The controls: what each clause prevents.

#[test]
fn compare_then_rename_loses_any_foreign_write() {
    for outsider in [WritesInPlace, RenamesOver] {
        Race { protocol: Protocol::Naive, ..Race::of(&[UPDATE], &[outsider]) }.breaks(FOREIGN_BYTES);
    }
}

#[test]
fn exchange_alone_is_enough_for_renames_but_loses_a_write_in_place() {
    let alone = |outsiders| Race::of(&[UPDATE], outsiders).without(&[Clause::Lease, Clause::LateWriteCheck]);
    alone(&[RenamesOver, RenamesOver]).holds_but(&[DISPLACED], 100);
    alone(&[WritesInPlace]).breaks(FOREIGN_BYTES);
}

#[test]
fn without_the_late_write_check_a_late_write_is_lost() {
    Race::of(&[UPDATE], &[WritesInPlace]).without(&[Clause::LateWriteCheck]).breaks(FOREIGN_BYTES);
}

#[test]
fn without_a_lease_a_rewrite_of_the_same_bytes_is_called_stale() {
    Race::of(&[UPDATE], &[RewritesSameInPlace, RenamesSameOver]).without(&[Clause::Lease]).breaks(STALE);
}

#[test]
fn the_displaced_file_must_be_the_one_that_was_hashed() {
    Race::of(&[UPDATE], &[RenamesOver]).without(&[Clause::Verify]).breaks(BLIND);
    Race::of(&[DELETE], &[RenamesOver]).without(&[Clause::Verify]).breaks(BLIND);
}

#[test]
fn the_lease_must_still_hold_after_the_exchange() {
    let race = Race::of(&[UPDATE], &[WritesInPlace]).without(&[Clause::StillQuiet]);
    Race { revokes: true, ..race }.breaks(BLIND);
}

#[test]
fn an_undo_must_continue_until_our_own_file_comes_out() {
    Race::of(&[UPDATE], &[RenamesOver, RenamesOver]).without(&[Clause::SwapAgain]).breaks(NEWEST);
    let thrice = Race::of(&[UPDATE], &[RenamesOver, RenamesOver, RenamesOver]);
    thrice.without(&[Clause::SwapUntilOurs]).breaks(NEWEST);
}

#[test]
fn a_file_that_was_visible_at_the_path_must_not_be_staged_again() {
    Race::of(&[UPDATE], &[WritesInPlace, RewritesSameInPlace]).without(&[Clause::FreshStage]).breaks(SPOILT);
}

#[test]
fn a_file_that_was_visible_at_the_path_must_not_be_deleted_at_once() {
    Race::of(&[UPDATE], &[WritesInPlace, RenamesOver]).without(&[Clause::CheckExposed]).breaks(FOREIGN_BYTES);
}

#[test]
fn the_late_write_check_must_wait_until_the_file_is_closed() {
    let race = || Race::of(&[UPDATE], &[WritesInPlace, RenamesOver]).without(&[Clause::QuietCheck]);
    race().breaks(FOREIGN_WRITES);
    race().breaks(FOREIGN_BYTES);
}

#[test]
fn a_rolled_back_file_must_not_be_judged_by_the_healer() {
    let alone = Race::of(&[UPDATE], &[WritesInPlace, RenamesOver]);
    alone.without(&[Clause::Settle]).breaks(REFUSED);
    let twins = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace]);
    twins.without(&[Clause::Settle]).breaks(APPLIED);
}

#[test]
fn the_healer_must_check_the_ledger() {
    Race::of(&[UPDATE], &[WritesInPlace]).without(&[Clause::CheckLedger]).breaks(APPLIED);
}

#[test]
fn leftovers_must_be_healed_before_the_next_write_is_staged() {
    let twins = Race::of(&[UPDATE, UPDATE], &[WritesInPlace, RewritesSameInPlace]);
    Race { kills: 1, ..twins }.without(&[Clause::HealFirst]).breaks(APPLIED);
}

#[test]
fn the_healer_must_recognise_a_finished_create_by_its_inode() {
    Race { kills: 1, ..Race::of(&[CREATE], &[]) }.without(&[Clause::CompareInodes]).breaks(ALL_OR_NOTHING);
}

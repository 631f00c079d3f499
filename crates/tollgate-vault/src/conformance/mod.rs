//! Checks that any store can be put through. They end with a race.
//!
//! Write a function that makes a fresh [`Harness`] around your store and call [`run`] in a test:
//!
//! ```text
//! conformance::run(&|| Harness::new(Arc::new(MyStore::new()), kill, by_hand));
//! ```
//!
//! A check panics and says what it expected. Each check gets a fresh store.

mod approval;
mod doubt;
mod events;
mod forward;
mod harness;
mod life;
mod lost_answers;
mod pages;
mod pause;
mod person;
mod race;
mod recovery;
mod world;

#[cfg(test)]
use std::sync::Arc;

#[cfg(test)]
use crate::store::Store;

// For `forward_store`.
#[doc(hidden)]
pub use jiff::Timestamp;
#[doc(hidden)]
pub use tollgate_base::error::Result;

pub use harness::{ByHand, Fresh, Harness, Interrupt, Interrupted};

/// All checks.
pub fn run(fresh: Fresh<'_>) {
    let checks: [fn(Fresh<'_>); 37] = [
        life::a_task_is_added_once,
        life::a_task_goes_through_its_life,
        life::a_stale_step_does_nothing,
        life::a_lease_lasts_as_long_as_it_is_renewed,
        life::failed_work_is_retried_and_then_rejected,
        life::nothing_is_overwritten,
        life::order_and_dependencies,
        life::every_lost_claim_is_counted_once,
        pages::pages_of_the_queue_say_what_a_scan_says,
        life::what_waits_for_ever_is_explained,
        life::a_draft_needs_no_file,
        approval::an_approval_is_for_this_text_and_once,
        approval::an_edit_is_approved_with_the_rest,
        approval::a_move_approves_nothing_by_default,
        approval::a_move_approves_only_what_was_offered,
        approval::a_move_out_of_the_hands_of_an_agent_ends_its_claim,
        approval::a_sensitive_execution_is_not_repeated,
        doubt::an_owner_cannot_make_a_task_harmless,
        doubt::a_sensitive_task_that_was_moved_is_for_a_person,
        pause::a_failed_attempt_is_followed_by_a_growing_pause,
        pause::a_person_ends_a_pause,
        pause::a_rejected_task_is_retried_with_all_its_attempts,
        approval::an_approval_is_taken_back_until_somebody_executes_it,
        approval::a_draft_is_sent_back_with_a_reason,
        approval::a_rejection_is_taken_back,
        person::a_person_edits_a_task_that_nobody_has_claimed,
        person::a_person_returns_a_claim,
        recovery::a_dead_owner_is_replaced_and_fenced_off,
        recovery::a_zombie_changes_nothing,
        recovery::interrupted_steps_are_healed,
        lost_answers::a_lost_answer_is_asked_for_again,
        lost_answers::a_lost_answer_has_the_name_that_the_task_got,
        lost_answers::an_owner_that_gets_no_answer_has_one_effect_and_a_fault,
        lost_answers::a_task_whose_answer_was_lost_is_added_once,
        lost_answers::a_task_that_was_added_and_claimed_is_not_added_again,
        events::events_have_no_gaps,
        race::claimants_race_for_tasks,
    ];
    for check in checks {
        check(fresh);
    }
}

/// The check of interrupted steps alone.
#[cfg(test)]
pub(crate) fn check_interrupted_steps(fresh: Fresh<'_>) {
    recovery::interrupted_steps_are_healed(fresh);
}

/// This store, with an empty `heal`.
#[cfg(test)]
pub(crate) fn without_healing(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let mut store = lost_answers::Forgetful::new(store);
    store.heals = false;
    Arc::new(store)
}

//! What the command prints for people and for models: answers, refusals, faults, and pieces of sentences. A usage error and a
//! finding have their sentences where they are found.
//!
//! A message is lowercase, without a final period, with names of things in backticks. It states the fact first, then what to
//! do, on a separate line. Text from outside (names, ledger lines, bytes of files) passes through `visible::plain` before it
//! reaches a terminal.
//!
//! The functions here take plain data. The time and the reader's folder come as a [`Viewpoint`].

mod bisect;
mod change;
mod claim;
mod commit;
mod error;
mod export;
mod git;
mod greeting;
mod history;
mod hook;
mod init;
mod ledger;
mod merge;
mod reads;
mod recovery;
mod refusal;
mod run;
mod serve;
mod status;
mod task;
mod text;
mod token;
mod trust;
mod turn;
mod usage;
mod vault;
mod work;

pub(crate) use bisect::{
    BISECT_FAILS_BEFORE, BISECT_SUCCEEDS, NOTHING_TO_BISECT, bisect_cannot_say, bisect_plan, bisect_progress,
    bisected,
};
pub(crate) use change::{STDIN_IS_READ, applied, guarantee, weaker_guarantees};
pub(crate) use claim::{
    NOT_VALID, claimed, decide, decided, decision_denied, decision_refused, draft_added, edit_is_kept,
    no_draft, nobody_decides, not_as_expected, not_claimed, not_confirmed, not_edited, not_the_owner,
    nothing_to_claim, pausing, progress_noted, reclaimed, released, renewed, skipped, skipped_faults,
    too_long_to_decide, verification_failed, verified,
};
pub(crate) use commit::{committed, left, not_committed, nothing_to_commit};
pub(crate) use error::{error, error_json, fault_words, hint};
pub(crate) use export::{export_notice, exported};
pub(crate) use git::{
    VIEW_KEPT_ELSEWHERE, fenced_off, keeps_view, may_be_old, not_following, put_aside, silent_for_a_lease,
    slept_for_a_lease, synced, together, view_notice, view_round,
};
pub(crate) use greeting::hook_greeting;
pub(crate) use history::{
    NO_CHANGE_MATCHES, NOT_KEPT, blamed, file_diffs, file_to_restore, history, nothing_known_then,
    nothing_recorded, shown_changes,
};
pub(crate) use hook::{
    HOOK_VAGUE, hook_fault, hook_lost, hook_not_recorded, hook_other_name, hook_people_only, hook_refused,
    unknown_shell,
};
pub(crate) use init::{
    created_state, found_by, home_is_not_set_up, hooked, init, man_pages, next_steps, nothing_changed,
    password_unencrypted, programs_found, registered, store_chosen, vault_kept, vault_made,
};
pub(crate) use ledger::{
    EMPTY_LEDGER, NO_LINE_MATCHES, audited, damaged_lines, ledger_fault, ledger_line, start_new_ledger,
    verdict,
};
pub(crate) use merge::{
    NO_REFUSED_RUN, RUN_CONFLICTS, RUN_IS_WRITTEN, merge_diff, merge_notes, merged_run, no_merge,
    run_merge_notes,
};
pub(crate) use reads::{reads_of_changes, turn_without_changes};
pub(crate) use recovery::{
    ALREADY_UNDONE, DRY_UNDO, NOT_UNDONE, UNDO_QUESTION, folder_is_not_moved_back, kept, nobody_undoes,
    nothing_to_undo, to_restore, to_undo, undo_conflicts, undo_of_another, undo_without_name,
};
pub(crate) use refusal::refused;
pub(crate) use run::{
    NoteReader, did_not_start, no_prologue, no_refused_command, run_killed, run_notes, run_refused,
};
pub(crate) use serve::{NOTIFY_NOT_TRUSTED, agent_of_server, serving};
pub(crate) use status::{missing_vault, status, unfinished_files};
pub(crate) use task::{
    bad_priority, bad_verdict, board, closes_a_circle, event_line, figures, imported, log_line, may_claim,
    no_vault, not_imported, not_prose, task_added, task_for_decision, task_is_there, task_shown, unfit,
};
pub(crate) use text::{Viewpoint, ago, count, counted, quoted, short, shown, size, word};
pub(crate) use token::{token_added, token_removed, tokens};
pub(crate) use trust::{
    NOT_TRUSTED, TRUST_QUESTION, foreign_state, forgotten, half_a_login, held, hook_untrusted, ignored_state,
    nobody_trusts, to_trust, trust_refused, trusted, untrusted_log,
};
pub(crate) use turn::{turn_ended, turn_shown, turns};
pub(crate) use usage::{
    UNSET_IT, bad_line_number, bad_number, bad_variable, lines_backwards, needs_dashes, other_command,
    parse_error_json,
};
pub(crate) use vault::{copying, not_copied, vault_copied};
pub(crate) use work::{
    asked_to_stop, breaker_closed, breaker_is_open, breaker_opened, cannot_run, cannot_start, claim_is_gone,
    claim_was_lost, exit_status, given_back, no_work, not_watching, released_by_command,
    something_still_runs, success, task_is_gone, task_was_moved, timed_out, undone, waits_for_one,
    work_begins, work_done, work_ended, work_fault, work_starts, work_stops,
};

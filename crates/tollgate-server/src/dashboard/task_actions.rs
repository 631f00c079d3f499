//! What a person can do with a task that does not wait for approval, as forms.

use maud::{Markup, html};
use tollgate::digest::Digest;
use tollgate::vault::state::State;

use super::decision_form::with_reason;
use super::new_task::priorities;
use super::sheet::Sheet;
use super::text::encode;
use super::visit::Visit;

/// The forms for this task, as it is now.
pub(super) fn actions(visit: &Visit, sheet: &Sheet) -> Markup {
    let stored = &sheet.stored;
    let path = |verb: &str| format!("/tasks/{}/{verb}", encode(stored.name.as_str()));
    let token = html! { input type="hidden" name="token" value=(visit.token()); };
    match stored.slot.state() {
        State::NeedsAction => html! {
            section.actions aria-label="Actions" {
                @if let (Ok(brief), Some(seen)) = (&stored.brief, &sheet.exact) {
                    form method="post" action=(path("priority")) {
                        (token)
                        input type="hidden" name="seen" value=(seen);
                        label {
                            "Priority "
                            select name="priority" {
                                @for word in priorities() {
                                    option value=(word) selected[word == brief.priority.as_str()] { (word) }
                                }
                            }
                        }
                        button { "Change" span.unseen { " the priority" } }
                    }
                }
                @if let Some(seen) = &sheet.exact { (text_and_end(&token, seen, sheet, &path)) }
                @if stored.record.attempts > 0 { (one(&token, &path("retry"), "Retry now", "Its attempts are counted from zero.")) }
            }
        },
        State::InProgress => html! {
            section.actions aria-label="Actions" {
                form method="post" action=(path("return")) {
                    (token)
                    input type="hidden" name="claim" value=[stored.record.claim.as_ref().map(|claim| claim.id.to_string())];
                    button.danger { "Return" }
                    span.quiet { "Ends the claim. The agent must stop; its later writes under this claim are refused." }
                }
            }
        },
        State::Rejected => html! {
            section.actions aria-label="Actions" {
                (one(&token, &path("retry"), "Retry", "Moves it back to Needs action. Its attempts are counted from zero."))
                (one(&token, &path("undo"), "Decide again", "Moves it to Pending approval."))
            }
        },
        State::Approved => html! {
            section.actions aria-label="Actions" {
                (one(&token, &path("undo"), "Undo the approval", "Possible until an agent executes it."))
            }
        },
        State::PendingApproval | State::Done => html! {},
    }
}

/// Forms that change the text of a task that nobody has claimed, and that cancel it.
fn text_and_end(token: &Markup, seen: &Digest, sheet: &Sheet, path: &dyn Fn(&str) -> String) -> Markup {
    let hidden = html! { (token) input type="hidden" name="seen" value=(seen); };
    html! {
        details.edit {
            summary #edit aria-keyshortcuts="e" { "Edit the text" }
            form method="post" action=(path("text")) {
                (hidden)
                label { "Task text" textarea name="text" rows="12" required spellcheck="true" dir="auto" { "\n" (sheet.text) } }
                p { button.primary { "Save" } " " button.cancel type="reset" { "Cancel" } }
            }
        }
        (with_reason(&hidden, ("reject", "r", "Cancel the task"), &path("cancel"), &html! { button.danger { "Move it to Rejected" } }))
    }
}

fn one(token: &Markup, path: &str, button: &str, note: &str) -> Markup {
    html! { form method="post" action=(path) { (token) button { (button) } span.quiet { (note) } } }
}

/// The button that takes an approval or a rejection back, for the notice after a decision.
pub(super) fn undo(visit: &Visit, task: &str) -> Markup {
    html! {
        form.undo method="post" action=(format!("/tasks/{}/undo", encode(task))) {
            input type="hidden" name="token" value=(visit.token());
            button #undo aria-keyshortcuts="u" { "Undo" }
        }
    }
}

//! What a person can do with a task that does not wait for approval, as forms.

use maud::{Markup, html};
use tollgate::vault::state::State;

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

fn one(token: &Markup, path: &str, button: &str, note: &str) -> Markup {
    html! { form method="post" action=(path) { (token) button { (button) } span.quiet { (note) } } }
}

/// The button that takes an approval back, for the notice after a decision.
pub(super) fn undo(visit: &Visit, task: &str) -> Markup {
    html! {
        form.undo method="post" action=(format!("/tasks/{}/undo", encode(task))) {
            input type="hidden" name="token" value=(visit.token());
            button #undo aria-keyshortcuts="u" { "Undo" }
        }
    }
}

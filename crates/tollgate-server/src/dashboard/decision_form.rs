//! The form with which a person approves, rejects, sends back or edits a task.
//!
//! The form carries the hash of the file as it was shown, so that nothing else can be decided.

use maud::{Markup, html};
use tollgate::vault::TaskName;
use tollgate::vault::anatomy::Anatomy;

use super::sheet::Sheet;
use super::text::{SafeText, encode};
use super::visit::Visit;

/// The address of the approvals page with this task open.
pub(super) fn address(task: &str) -> String {
    format!("/approvals?task={}", encode(task))
}

/// The address of the page that decides about all tasks of this action.
pub(super) fn address_of_all(action: &str) -> String {
    format!("/approvals/all?action={}", encode(action))
}

/// The form, for a task that waits for approval. `next` is the task to open after the decision.
pub(super) fn decision(
    visit: &Visit,
    sheet: &Sheet,
    anatomy: &Anatomy<'_>,
    next: Option<&TaskName>,
) -> Markup {
    let Some(seen) = &sheet.exact else {
        return html! {
            div.alert {
                p {
                    "This task is too long to show in full, or contains bytes that are not text, so you cannot decide it here. "
                    "Read the file, then run " code { "tollgate task approve" } " in the workspace."
                }
            }
        };
    };
    let path = |verb: &str| format!("/tasks/{}/{verb}", encode(sheet.stored.name.as_str()));
    let hidden = html! {
        input type="hidden" name="token" value=(visit.token());
        input type="hidden" name="seen" value=(seen);
        @if let Some(next) = next { input type="hidden" name="next" value=(next); }
    };
    let (label, text) = match anatomy.draft.clone() {
        Some(draft) => ("Draft", sheet.text[draft].trim_matches('\n')),
        None => ("Task text", sheet.text.as_str()),
    };
    html! {
        section.decision aria-label="Decision" {
            p.changed.alert role="alert" hidden {
                strong { "This task was changed or decided in the meantime." } " The version below is the one that you opened. "
                a href=(address(sheet.stored.name.as_str())) { "Show the current version" }
            }
            @if anatomy.draft.is_none() {
                p.lacks.alert {
                    strong { "There is no draft." }
                    " If you approve, an agent executes the task as it is written below."
                }
            }
            form.approve method="post" action=(path("approve")) {
                (hidden)
                button.primary #approve aria-keyshortcuts="a" {
                    @if anatomy.draft.is_some() { "Approve" } @else { "Approve without a draft" }
                }
                span.quiet { "as " (SafeText(&visit.site.options.person)) ", exactly as shown" }
            }
            (with_reason(&hidden, ("changes", "c", "Request changes"), &path("changes"), &html! { button { "Send back" } }))
            (with_reason(&hidden, ("reject", "r", "Reject"), &path("reject"), &html! { button.danger { "Reject it" } }))
            details.edit {
                summary #edit aria-keyshortcuts="e" { "Edit" }
                form method="post" action=(path("edit")) {
                    (hidden)
                    label {
                        (label)
                        textarea name="text" rows="12" required spellcheck="true" dir="auto" { "\n" (text) }
                    }
                    p {
                        button.primary name="then" value="approve" { "Save and approve" } " "
                        button name="then" value="wait" { "Save" } " "
                        button.cancel type="reset" { "Cancel" }
                    }
                }
            }
        }
    }
}

/// A decision that needs a reason: behind a button, so that one press shows what will happen and the next one does it.
pub(super) fn with_reason(
    hidden: &Markup,
    (id, key, summary): (&str, &str, &str),
    path: &str,
    button: &Markup,
) -> Markup {
    html! {
        details class=(id) {
            summary id=(id) aria-keyshortcuts=(key) { (summary) }
            form method="post" action=(path) {
                (hidden)
                label {
                    @if id == "changes" { "What should be different" } @else { "Reason" }
                    input name="reason" required maxlength="500" autocomplete="off";
                }
                p { (button) " " button.cancel type="reset" { "Cancel" } }
            }
        }
    }
}

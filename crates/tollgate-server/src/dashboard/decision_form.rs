//! The form with which a person approves, rejects or edits a task.
//!
//! The form carries the hash of the file as it was shown, so that nothing else can be decided.

use maud::{Markup, html};
use tollgate::vault::anatomy::Anatomy;

use super::sheet::Sheet;
use super::text::{SafeText, encode};
use super::visit::Visit;

/// The address of the approvals page with this task open.
pub(super) fn address(task: &str) -> String {
    format!("/approvals?task={}", encode(task))
}

/// The form, for a task that waits for approval.
pub(super) fn decision(visit: &Visit, sheet: &Sheet, anatomy: &Anatomy<'_>) -> Markup {
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
            form.approve method="post" action=(path("approve")) {
                (hidden)
                button.primary #approve aria-keyshortcuts="a" { "Approve" }
                span.quiet { "as " (SafeText(&visit.site.options.person)) ", exactly as shown" }
            }
            details.reject {
                summary #reject aria-keyshortcuts="r" { "Reject" }
                form method="post" action=(path("reject")) {
                    (hidden)
                    label { "Reason" input name="reason" required maxlength="500" autocomplete="off"; }
                    p { button.danger { "Reject" } " " button.cancel type="reset" { "Cancel" } }
                }
            }
            details.edit {
                summary #edit aria-keyshortcuts="e" { "Edit" }
                form method="post" action=(path("edit")) {
                    (hidden)
                    label {
                        (label)
                        textarea name="text" rows="12" required spellcheck="true" dir="auto" { "\n" (text) }
                    }
                    p { button.primary { "Save and approve" } " " button.cancel type="reset" { "Cancel" } }
                }
            }
        }
    }
}

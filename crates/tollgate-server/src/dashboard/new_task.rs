//! `/new`: the form for a new task.

use maud::html;
use serde::Deserialize;
use tollgate::vault::brief::Priority;

use super::trouble::Trouble;
use super::view::{PageContent, no_vault};
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// What a person has typed.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct NewTaskForm {
    pub(super) token: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) priority: String,
    #[serde(default)]
    pub(super) action: String,
    #[serde(default)]
    pub(super) due: String,
    #[serde(default)]
    pub(super) body: String,
}

pub(super) fn view(
    visit: &Visit,
    open: &OpenWorkspace,
    typed: &NewTaskForm,
    trouble: Option<&Trouble>,
) -> PageContent {
    if open.vault.is_none() {
        return PageContent::new("New task", html! { h1 { "New task" } (no_vault(open)) });
    }
    let selected = |word: &str| {
        let wanted = if typed.priority.is_empty() { Priority::default().as_str() } else { &typed.priority };
        word == wanted
    };
    let main = html! {
        h1 { "New task" }
        @if let Some(trouble) = trouble { (trouble.show(None)) }
        form.sheet.fields method="post" action="/tasks" {
            input type="hidden" name="token" value=(visit.token());
            label {
                "What to do, in one line"
                input name="title" value=(typed.title) required maxlength="200" autocomplete="off" autofocus;
            }
            div.pair {
                label {
                    "Priority"
                    select name="priority" {
                        @for word in priorities() { option value=(word) selected[selected(word)] { (word) } }
                    }
                }
                label {
                    "Action, if only some agents may do it"
                    input name="action" value=(typed.action) maxlength="128" autocomplete="off" spellcheck="false";
                }
            }
            label { "Due, if there is a day" input type="date" name="due" value=(typed.due); }
            label { "More text, in Markdown" textarea name="body" rows="10" dir="auto" { "\n" (typed.body) } }
            p { button.primary { "Add the task" } " " a href="/" { "Cancel" } }
        }
    };
    let status = trouble.map_or(axum::http::StatusCode::OK, Trouble::status);
    PageContent { status, ..PageContent::new("New task", main) }
}

/// The words for priorities, the most urgent first.
pub(super) fn priorities() -> impl Iterator<Item = &'static str> {
    (0..5).map(|level| Priority(level).as_str())
}

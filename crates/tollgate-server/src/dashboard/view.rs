//! The content of a page.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::text::SafeText;
use crate::workspace_provider::OpenWorkspace;

/// The pages in the navigation.
pub(super) const SECTIONS: [(&str, &str); 6] = [
    ("/", "Workspace"),
    ("/board", "Board"),
    ("/approvals", "Approvals"),
    ("/agents", "Agents"),
    ("/conflicts", "Conflicts"),
    ("/ledger", "Ledger"),
];

/// The content of a page.
pub(super) struct PageContent {
    pub(super) title: String,
    pub(super) main: Markup,
    pub(super) status: StatusCode,
}

impl PageContent {
    pub(super) fn new(title: impl Into<String>, main: Markup) -> Self {
        Self { title: title.into(), main, status: StatusCode::OK }
    }

    /// There is nothing at this address, and why.
    pub(super) fn not_found(sentence: &Markup) -> Self {
        let main = html! {
            div.lost {
                p.number aria-hidden="true" { "404" }
                h1 { "Not found" }
                p { (sentence) }
                p { a.button href="/" { "Back to the workspace" } }
            }
        };
        Self { status: StatusCode::NOT_FOUND, ..Self::new("Not found", main) }
    }
}

/// How to create a vault, for pages that need one.
pub(super) fn no_vault(open: &OpenWorkspace) -> Markup {
    let folder = open.gate.workspace().settings().vault.dir().display().to_string();
    html! {
        div.empty {
            p { "There is no vault for tasks yet. In the workspace, run:" }
            dl.commands {
                dt { code { "tollgate init --vault" } }
                dd { "creates it in " code { (SafeText(&folder)) } }
                dt { code { "tollgate task add 'what to do'" } }
                dd { "adds a task" }
            }
        }
    }
}

//! The content of a page.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::text::SafeText;
use crate::workspace_provider::OpenWorkspace;

/// The pages in the navigation.
pub(super) const SECTIONS: [(&str, &str); 6] = [
    ("/", "Board"),
    ("/approvals", "Approvals"),
    ("/agents", "Agents"),
    ("/conflicts", "Conflicts"),
    ("/turns", "Turns"),
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

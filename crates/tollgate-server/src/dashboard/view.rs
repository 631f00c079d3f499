//! What a page is made from, and what it makes.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::page_cache::PageCache;
use super::text::SafeText;
use crate::site::Site;
use crate::workspace_provider::OpenWorkspace;

/// One request for a page.
pub(super) struct Visit<'a> {
    pub(super) site: &'a Site,
    pub(super) cache: &'a PageCache,
    /// The token that the page's forms must carry.
    pub(super) token: &'a str,
}

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

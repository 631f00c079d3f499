//! Which page an address means, and what a page is made from.

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::{Fault, Result};
use tollgate::vault::TaskName;
use tollgate::vault::state::State;

use super::desk::Desk;
use super::{agents, approvals, board, conflicts, ledger, task, tasks, turns};
use crate::site::{Open, Site};

/// The addresses of pages.
pub(super) const PATHS: [&str; 8] =
    ["/", "/tasks", "/tasks/{task}", "/approvals", "/agents", "/conflicts", "/turns", "/ledger"];

/// One page, as asked for.
#[derive(Debug, Clone)]
pub(super) enum Page {
    Board,
    /// All tasks of one state, from the so many-th on.
    Tasks(State, usize),
    Task(TaskName),
    Approvals(approvals::Asked),
    Agents,
    /// Before this line of the ledger.
    Conflicts(Option<u64>),
    Turns,
    Ledger(ledger::Asked),
}

/// Who looks, and with what.
pub(super) struct Visit<'a> {
    pub(super) site: &'a Site,
    pub(super) desk: &'a Desk,
    /// What forms must carry.
    pub(super) token: &'a str,
}

/// What a page shows.
pub(super) struct View {
    pub(super) title: String,
    pub(super) main: Markup,
    pub(super) status: StatusCode,
}

impl View {
    pub(super) fn new(title: impl Into<String>, main: Markup) -> Self {
        Self { title: title.into(), main, status: StatusCode::OK }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    state: String,
    from: usize,
    before: Option<u64>,
}

impl Page {
    pub(super) fn parse(uri: &Uri) -> Option<Self> {
        let asked = || Query::<Asked>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        Some(match uri.path() {
            "/" => Self::Board,
            "/tasks" => Self::Tasks(asked().state.parse().ok()?, asked().from),
            "/approvals" => Self::Approvals(Query::try_from_uri(uri).ok()?.0),
            "/agents" => Self::Agents,
            "/conflicts" => Self::Conflicts(asked().before),
            "/turns" => Self::Turns,
            "/ledger" => Self::Ledger(Query::try_from_uri(uri).ok()?.0),
            path => Self::Task(TaskName::of_file(&decode(path.strip_prefix("/tasks/")?)?).ok()?),
        })
    }

    /// The address of the section of the site that it belongs to.
    pub(super) fn section(&self) -> &'static str {
        match self {
            Self::Board | Self::Tasks(..) | Self::Task(_) => "/",
            Self::Approvals(_) => "/approvals",
            Self::Agents => "/agents",
            Self::Conflicts(_) => "/conflicts",
            Self::Turns => "/turns",
            Self::Ledger(_) => "/ledger",
        }
    }

    /// What it shows now. Reads the disk.
    pub(super) fn view(&self, visit: &Visit<'_>) -> Result<View> {
        let open = match visit.site.open() {
            Ok(Some(open)) => open,
            Ok(None) => return Ok(not_set_up()),
            Err(fault) => return Ok(broken(&fault)),
        };
        let view = match self {
            Self::Board => board::view(visit, &open),
            Self::Tasks(state, from) => tasks::view(visit, &open, *state, *from),
            Self::Task(task) => task::view(visit, &open, task),
            Self::Approvals(asked) => approvals::view(visit, &open, asked),
            Self::Agents => agents::view(visit, &open),
            Self::Conflicts(before) => conflicts::view(&open, *before),
            Self::Turns => turns::view(&open),
            Self::Ledger(asked) => ledger::view(visit, &open, asked),
        };
        match view {
            Err(fault @ Fault::Missing { .. }) => Ok(missing(&fault)),
            Err(fault) => Ok(broken(&fault)),
            view => view,
        }
    }
}

/// Why a page is not there. Not a fault of the server: the page says it, and is live like any other.
fn missing(fault: &Fault) -> View {
    let main = html! { h1 { "Not here" } p { (fault.to_string()) } p { a href="/" { "Back to the board" } } };
    View { status: StatusCode::NOT_FOUND, ..View::new("Not here", main) }
}

fn broken(fault: &Fault) -> View {
    let main = html! {
        h1 { "Something is broken" }
        div.alert role="alert" { p { (super::text::Shown(&fault.to_string())) } }
        p { "Run " code { "tollgate doctor" } " in the workspace: it says what is wrong and what to do." }
    };
    View { status: StatusCode::INTERNAL_SERVER_ERROR, ..View::new("Broken", main) }
}

fn not_set_up() -> View {
    let main = html! {
        h1 { "This folder is not set up yet" }
        div.empty {
            p { "Nothing was changed in it. In a terminal, in this folder:" }
            dl.commands {
                dt { code { "tollgate init" } }
                dd { "writes " code { ".tollgate/config.toml" } ", so that files are guarded" }
                dt { code { "tollgate init --vault" } }
                dd { "also makes folders for tasks" }
                dt { code { "tollgate init --host all" } }
                dd { "also sets up the hooks of the agent programs that are found" }
            }
            p { "This page begins by itself when that is done." }
        }
    };
    View::new("Set up", main)
}

/// What there is to do where there is no vault.
pub(super) fn no_vault(open: &Open) -> Markup {
    let folder = open.gate.workspace().settings().vault.dir.display().to_string();
    html! {
        div.empty {
            p { "There is no vault for tasks yet. In the workspace:" }
            dl.commands {
                dt { code { "tollgate init --vault" } }
                dd { "makes it, in " code { (super::text::Shown(&folder)) } }
                dt { code { "tollgate task add 'what is to be done'" } }
                dd { "adds a task" }
            }
        }
    }
}

/// A path segment with its `%XX` undone.
fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_mean_pages() {
        let page = |address: &str| Page::parse(&address.parse().unwrap());
        assert!(matches!(page("/"), Some(Page::Board)));
        assert!(matches!(page("/tasks?state=Done&from=100"), Some(Page::Tasks(State::Done, 100))));
        assert!(matches!(page("/conflicts?before=7"), Some(Page::Conflicts(Some(7)))));
        assert!(matches!(page("/conflicts"), Some(Page::Conflicts(None))));
        let Some(Page::Task(task)) = page("/tasks/a%20b%2E%C3%B6.md") else { panic!("no task") };
        assert_eq!(task.as_str(), "a b.ö.md");
        for bad in [
            "/tasks",
            "/tasks?state=Gone",
            "/tasks/..%2f..%2fetc%2fpasswd.md",
            "/tasks/x",
            "/tasks/%ff.md",
            "/tasks/a%0Ab.md",
            "/tasks/%2",
            "/nothing",
        ] {
            assert!(page(bad).is_none(), "{bad}");
        }
    }
}

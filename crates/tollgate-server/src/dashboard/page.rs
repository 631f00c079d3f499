//! Which page an address means.

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::{Fault, Result};
use tollgate::vault::TaskName;
use tollgate::vault::state::State;

use super::charts::TimeSpan;
use super::new_task::NewTaskForm;
use super::text::SafeText;
use super::trouble::Trouble;
use super::view::PageContent;
use super::visit::Visit;
use super::{agents, approvals, board, bulk, conflicts, ledger, new_task, search, task, tasks, turns};

/// The addresses of all pages.
pub(super) const PATHS: [&str; 11] = [
    "/",
    "/new",
    "/search",
    "/tasks",
    "/tasks/{task}",
    "/approvals",
    "/approvals/all",
    "/agents",
    "/conflicts",
    "/turns",
    "/ledger",
];

/// One page, with its query.
#[derive(Debug, Clone)]
pub(super) enum Page {
    /// The board, with plots of this span.
    Board(Option<TimeSpan>),
    /// All tasks in one state, starting at this index.
    Tasks(State, usize),
    Task(task::TaskQuery),
    /// The form for a new task, as a person has filled it in, and why it was not added.
    New(Box<(NewTaskForm, Option<Trouble>)>),
    Approvals(approvals::ApprovalsQuery),
    Bulk(bulk::BulkQuery),
    Agents,
    Conflicts(conflicts::ConflictsQuery),
    Turns,
    Ledger(ledger::LedgerQuery),
    Search(search::SearchQuery),
    /// No address that leads anywhere.
    NotFound,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageQuery {
    state: String,
    from: usize,
    span: Option<TimeSpan>,
    acted: bool,
}

impl Page {
    pub(super) fn parse(uri: &Uri) -> Option<Self> {
        let query = || Query::<PageQuery>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        Some(match uri.path() {
            "/" => Self::Board(query().span),
            "/tasks" => Self::Tasks(query().state.parse().ok()?, query().from),
            "/search" => Self::Search(Query::try_from_uri(uri).ok()?.0),
            "/new" => Self::New(Box::default()),
            "/approvals" => Self::Approvals(Query::try_from_uri(uri).ok()?.0),
            "/approvals/all" => Self::Bulk(Query::try_from_uri(uri).ok()?.0),
            "/agents" => Self::Agents,
            "/conflicts" => Self::Conflicts(Query::try_from_uri(uri).ok()?.0),
            "/turns" => Self::Turns,
            "/ledger" => Self::Ledger(Query::try_from_uri(uri).ok()?.0),
            path => {
                let task = TaskName::of_file(&decode(path.strip_prefix("/tasks/")?)?).ok()?;
                Self::Task(task::TaskQuery::new(task, query().acted))
            }
        })
    }

    /// The address of the section that the page belongs to.
    pub(super) fn section(&self) -> &'static str {
        match self {
            Self::Board(_) | Self::Tasks(..) | Self::Task(_) | Self::New(_) => "/",
            Self::Approvals(_) | Self::Bulk(_) => "/approvals",
            Self::Agents => "/agents",
            Self::Conflicts(_) => "/conflicts",
            Self::Turns => "/turns",
            Self::Ledger(_) => "/ledger",
            Self::Search(_) | Self::NotFound => "",
        }
    }

    /// What the person has searched for.
    pub(super) fn searched(&self) -> Option<&str> {
        match self {
            Self::Search(query) => Some(&query.q).filter(|q| !q.is_empty()).map(String::as_str),
            _ => None,
        }
    }

    /// The content now. Reads the disk.
    pub(super) fn view(&self, visit: &Visit) -> Result<PageContent> {
        if matches!(self, Self::NotFound) {
            return Ok(not_found(&html! { "There is no page at this address." }));
        }
        let open = match visit.site.open() {
            Ok(Some(open)) => open,
            Ok(None) => return Ok(not_set_up()),
            Err(fault) => return Ok(broken(&fault)),
        };
        let view = match self {
            Self::Board(span) => board::view(visit, &open, *span),
            Self::Tasks(state, from) => tasks::view(visit, &open, *state, *from),
            Self::Task(task) => task::view(visit, &open, task),
            Self::New(form) => Ok(new_task::view(visit, &open, &form.0, form.1.as_ref())),
            Self::Approvals(query) => approvals::view(visit, &open, query),
            Self::Bulk(query) => bulk::view(visit, &open, query),
            Self::Agents => agents::view(visit, &open),
            Self::Conflicts(query) => conflicts::view(visit, &open, query),
            Self::Turns => turns::view(&open),
            Self::Ledger(query) => ledger::view(visit, &open, query),
            Self::Search(query) => search::view(visit, &open, query),
            Self::NotFound => Ok(not_found(&html! {})),
        };
        match view {
            Err(fault @ Fault::Missing { .. }) => Ok(missing(&fault)),
            Err(fault) => Ok(broken(&fault)),
            view => view,
        }
    }
}

/// The page for a task that does not exist. It is live like any other, so it shows the task once it appears.
fn missing(fault: &Fault) -> PageContent {
    not_found(&html! { (SafeText(&fault.to_string())) })
}

fn not_found(sentence: &Markup) -> PageContent {
    let main = html! {
        div.lost {
            p.number aria-hidden="true" { "404" }
            h1 { "Not found" }
            p { (sentence) }
            p { a.button href="/" { "Back to the board" } }
        }
    };
    PageContent { status: StatusCode::NOT_FOUND, ..PageContent::new("Not found", main) }
}

fn broken(fault: &Fault) -> PageContent {
    let main = html! {
        h1 { "Something is broken" }
        div.alert role="alert" { p { (SafeText(&fault.to_string())) } }
        p { "Run " code { "tollgate doctor" } " in the workspace. It says what is wrong and how to fix it." }
    };
    PageContent { status: StatusCode::INTERNAL_SERVER_ERROR, ..PageContent::new("Broken", main) }
}

fn not_set_up() -> PageContent {
    let main = html! {
        h1 { "This folder is not set up yet" }
        div.empty {
            p { "tollgate has changed nothing in it. In a terminal, in this folder, run:" }
            dl.commands {
                dt { code { "tollgate init" } }
                dd { "writes " code { ".tollgate/config.toml" } ", so that files are guarded" }
                dt { code { "tollgate init --vault" } }
                dd { "also creates the folders for tasks" }
                dt { code { "tollgate init --host all" } }
                dd { "also sets up the hooks of the installed agent programs" }
            }
            p { "This page updates once the folder is set up." }
        }
    };
    PageContent::new("Not set up", main)
}

/// Decodes the `%XX` of a path segment.
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
    fn addresses_are_parsed_into_pages() {
        let page = |address: &str| Page::parse(&address.parse().unwrap());
        assert!(matches!(page("/"), Some(Page::Board(None))));
        assert!(matches!(page("/?span=24h"), Some(Page::Board(Some(TimeSpan::Day)))));
        assert!(matches!(page("/tasks?state=Done&from=100"), Some(Page::Tasks(State::Done, 100))));
        assert!(
            matches!(page("/conflicts?before=7"), Some(Page::Conflicts(query)) if query.before == Some(7))
        );
        assert!(matches!(page("/conflicts"), Some(Page::Conflicts(query)) if query.before.is_none()));
        let Some(Page::Task(task)) = page("/tasks/a%20b%2E%C3%B6.md") else { panic!("no task") };
        assert_eq!(task.name().as_str(), "a b.ö.md");
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

//! Which page an address means.

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use maud::html;
use serde::Deserialize;
use tollgate::error::{Fault, Result};
use tollgate::history::chosen::Which;
use tollgate::vault::TaskName;
use tollgate::vault::state::State;

use super::charts::TimeSpan;
use super::new_task::NewTaskForm;
use super::text::SafeText;
use super::trouble::Trouble;
use super::view::PageContent;
use super::visit::Visit;
use super::{
    agent, agents, approvals, board, bulk, change, changes, conflicts, file, ledger, merge, new_task, search,
    task, tasks, undo, workspace,
};

/// The addresses of all pages.
pub(super) const PATHS: [&str; 19] = [
    "/",
    "/board",
    "/new",
    "/search",
    "/tasks",
    "/tasks/{task}",
    "/approvals",
    "/approvals/all",
    "/agents",
    "/agents/{agent}",
    "/conflicts",
    "/conflicts/{line}/merge",
    "/changes",
    "/changes/{line}",
    "/changes/{line}/undo",
    "/turns/{turn}",
    "/turns/{turn}/undo",
    "/files",
    "/ledger",
];

/// One page, with its query.
#[derive(Debug, Clone)]
pub(super) enum Page {
    /// What happens now, and why something that a person did there was not done.
    Workspace(Option<Trouble>),
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
    Agent(agent::AgentQuery),
    Conflicts(conflicts::ConflictsQuery),
    Merge(merge::MergeQuery),
    Changes(changes::ChangesQuery),
    /// A change, or all of a turn.
    Change(change::ChangeQuery),
    Undo(undo::UndoQuery),
    File(file::FileQuery),
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
            "/" => Self::Workspace(None),
            "/board" => Self::Board(query().span),
            "/tasks" => Self::Tasks(query().state.parse().ok()?, query().from),
            "/search" => Self::Search(Query::try_from_uri(uri).ok()?.0),
            "/new" => Self::New(Box::default()),
            "/approvals" => Self::Approvals(Query::try_from_uri(uri).ok()?.0),
            "/approvals/all" => Self::Bulk(Query::try_from_uri(uri).ok()?.0),
            "/agents" => Self::Agents,
            "/conflicts" => Self::Conflicts(Query::try_from_uri(uri).ok()?.0),
            "/changes" => Self::Changes(Query::try_from_uri(uri).ok()?.0),
            "/files" => Self::File(Query::try_from_uri(uri).ok()?.0).named()?,
            "/ledger" => Self::Ledger(Query::try_from_uri(uri).ok()?.0),
            path => return Self::parse_named(uri, path),
        })
    }

    /// A page whose path names what it is about.
    fn parse_named(uri: &Uri, path: &str) -> Option<Self> {
        let parts: Vec<String> = path.strip_prefix('/')?.split('/').map(decode).collect::<Option<_>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Some(match parts[..] {
            ["tasks", task] => {
                let query = Query::<PageQuery>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
                Self::Task(task::TaskQuery::new(TaskName::of_file(task).ok()?, query.acted))
            }
            ["agents", agent] => {
                Self::Agent(agent::AgentQuery::new(agent.parse().ok()?, &Query::try_from_uri(uri).ok()?.0))
            }
            ["conflicts", line, "merge"] => Self::Merge(merge::MergeQuery::new(line.parse().ok()?)),
            [kind @ ("changes" | "turns"), name] => {
                Self::Change(change::ChangeQuery::new(which(kind, name)?, &Query::try_from_uri(uri).ok()?.0))
            }
            [kind @ ("changes" | "turns"), name, "undo"] => {
                Self::Undo(undo::UndoQuery::new(which(kind, name)?))
            }
            _ => return None,
        })
    }

    /// A page about a file, if it names one.
    fn named(self) -> Option<Self> {
        match &self {
            Self::File(query) if query.is_empty() => None,
            _ => Some(self),
        }
    }

    /// Whether an open page stays as it is: it cannot change, would change under the hands of a person who decides, or costs too much.
    pub(super) fn is_still(&self) -> bool {
        match self {
            Self::NotFound | Self::Bulk(_) | Self::Undo(_) | Self::Merge(_) => true,
            Self::Change(query) => query.is_finished(),
            Self::File(query) => query.is_costly(),
            _ => false,
        }
    }

    /// The address of the section that the page belongs to.
    pub(super) fn section(&self) -> &'static str {
        match self {
            Self::Workspace(_) | Self::Changes(_) | Self::Change(_) | Self::Undo(_) | Self::File(_) => "/",
            Self::Board(_) | Self::Tasks(..) | Self::Task(_) | Self::New(_) => "/board",
            Self::Approvals(_) | Self::Bulk(_) => "/approvals",
            Self::Agents | Self::Agent(_) => "/agents",
            Self::Conflicts(_) | Self::Merge(_) => "/conflicts",
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
            return Ok(PageContent::not_found(&html! { "There is no page at this address." }));
        }
        let open = match visit.site.open() {
            Ok(Some(open)) => open,
            Ok(None) => return Ok(not_set_up()),
            Err(fault) => return Ok(broken(&fault)),
        };
        let view = match self {
            Self::Workspace(trouble) => workspace::view(visit, &open, trouble.as_ref()),
            Self::Board(span) => board::view(visit, &open, *span),
            Self::Tasks(state, from) => tasks::view(visit, &open, *state, *from),
            Self::Task(task) => task::view(visit, &open, task),
            Self::New(form) => Ok(new_task::view(visit, &open, &form.0, form.1.as_ref())),
            Self::Approvals(query) => approvals::view(visit, &open, query),
            Self::Bulk(query) => bulk::view(visit, &open, query),
            Self::Agents => agents::view(visit, &open),
            Self::Agent(query) => agent::view(visit, &open, query),
            Self::Conflicts(query) => conflicts::view(visit, &open, query),
            Self::Merge(query) => merge::view(visit, &open, query),
            Self::Changes(query) => changes::view(&open, *query),
            Self::Change(query) => change::view(&open, query),
            Self::Undo(query) => undo::view(visit, &open, query),
            Self::File(query) => file::view(&open, query),
            Self::Ledger(query) => ledger::view(visit, &open, query),
            Self::Search(query) => search::view(visit, &open, query),
            Self::NotFound => Ok(PageContent::not_found(&html! {})),
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
    PageContent::not_found(&html! { (SafeText(&fault.to_string())) })
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

/// The changes that a path names.
fn which(kind: &str, name: &str) -> Option<Which> {
    Some(match kind {
        "changes" => Which::Line(name.parse().ok()?),
        _ => Which::Turn(name.parse().ok()?),
    })
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
        assert!(matches!(page("/"), Some(Page::Workspace(None))));
        assert!(matches!(page("/board"), Some(Page::Board(None))));
        assert!(matches!(page("/board?span=24h"), Some(Page::Board(Some(TimeSpan::Day)))));
        for page_of_files in [
            "/changes",
            "/changes/7",
            "/changes/7/undo",
            "/turns/t-0123456789abcdef",
            "/turns/t-0123456789abcdef/undo",
            "/files?path=a%2Fb",
            "/agents/blue",
            "/conflicts/7/merge",
        ] {
            assert!(page(page_of_files).is_some(), "{page_of_files}");
        }
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
            "/files",
            "/changes/seven",
            "/changes/7/redo",
            "/changes/7/",
            "/agents/..%2f..%2fx",
            "/turns/%0a",
            "/conflicts/7",
        ] {
            assert!(page(bad).is_none(), "{bad}");
        }
    }
}

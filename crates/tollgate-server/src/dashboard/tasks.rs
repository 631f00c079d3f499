//! `/tasks?state=STATE`: all tasks in one state, a hundred at a time.

use maud::html;
use tollgate::error::Result;
use tollgate::vault::state::State;

use super::task_row::{rows, state_words};
use super::text::count;
use super::view::{PageContent, no_vault};
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of tasks on one page. Each is read from the disk.
const AT_ONCE: usize = 100;

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, state: State, from: usize) -> Result<PageContent> {
    let (name, none) = state_words(state);
    let Some(vault) = &open.vault else {
        return Ok(PageContent::new(name, html! { h1 { (name) } (no_vault(open)) }));
    };
    let now = open.gate.workspace().now();
    let (mut all, mut first, mut shown) = (0, 0, Vec::new());
    if let Some(board) = visit.site.board()? {
        let column = board.column(state);
        all = column.len();
        first = from.min(all.saturating_sub(1)) / AT_ONCE * AT_ONCE;
        shown.extend(column.tasks().skip(first).take(AT_ONCE).cloned());
    }
    let at = |from: usize| format!("/tasks?state={state}&from={from}");
    let main = html! {
        h1 { (name) " " span.count { (count(all, "task", "tasks")) } }
        @if shown.is_empty() { p.none { (none) } }
        ul.tasks.wide { @for row in rows(vault, &shown, now) { li { (row.show(now)) } } }
        nav.pages aria-label="Parts of the list" {
            @if first > 0 { a rel="prev" href=(at(first - AT_ONCE)) { "Previous" } }
            @if all > AT_ONCE { span { (first + 1) " to " (first + shown.len()) " of " (all) } }
            @if first + AT_ONCE < all { a rel="next" href=(at(first + AT_ONCE)) { "Next" } }
        }
    };
    Ok(PageContent::new(name, main))
}

//! `/`: the board. The first tasks of each state, and the recent activity.

use maud::html;
use tollgate::error::Result;
use tollgate::vault::figures::Figures;

use super::ledger::sentence;
use super::overview::FIRST;
use super::text::{SafeText, count};
use super::view::{PageContent, Visit, no_vault};
use crate::workspace_provider::OpenWorkspace;

/// The number of ledger lines under "Recent activity".
const LATEST: usize = 8;

pub(super) fn view(visit: &Visit<'_>, open: &OpenWorkspace) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let tail = visit.cache.tail(visit.site, open)?;
    let latest = html! {
        section.latest aria-labelledby="latest" {
            h2 #latest { "Recent activity" }
            @if tail.is_empty() {
                p.empty { "Nothing yet. Every guarded write and every claim will appear here." }
            } @else {
                ol.lines { @for line in tail.iter().take(LATEST) { (sentence(line, now)) } }
                p.more { a href="/ledger" { "Full ledger" } }
            }
        }
    };
    let overview = visit.cache.overview(visit.site)?;
    let Some(overview) = &*overview else {
        return Ok(PageContent::new("Board", html! { h1 { "Board" } (no_vault(open)) (latest) }));
    };
    let figures = open.vault.as_ref().map(|vault| vault.figures(now)).transpose()?;
    let stopped: Vec<String> =
        figures.iter().flat_map(|(_, each)| each).filter_map(Figures::stopped).collect();
    let all: usize = overview.columns.iter().map(|column| column.len).sum();
    let main = html! {
        h1.unseen { "Board" }
        @for sentence in &stopped { p.bad { (SafeText(sentence)) } }
        @if all == 0 {
            div.empty {
                p { "No tasks yet. In the workspace, run:" }
                dl.commands {
                    dt { code { "tollgate task add 'what to do'" } }
                    dd { "adds a task; or save a Markdown file in " code { "Needs_Action/" } " in the vault" }
                    dt { code { "tollgate work --agent blue -- COMMAND" } }
                    dd { "runs COMMAND once for each task" }
                }
            }
        }
        div.board {
            @for column in overview.columns.iter().filter(|column| !column.state.is_final()) { (column.show(now)) }
            (latest)
            @for column in overview.columns.iter().filter(|column| column.state.is_final()) { (column.show(now)) }
        }
        @if !overview.unfit.is_empty() {
            section.unfit aria-labelledby="unfit" {
                h2 #unfit { (count(overview.unfit.len(), "file cannot be a task", "files cannot be tasks")) }
                ul {
                    @for unfit in overview.unfit.iter().take(FIRST) {
                        li { code { (unfit.state) "/" (SafeText(&unfit.name)) } ": " (SafeText(&unfit.why)) }
                    }
                }
            }
        }
    };
    Ok(PageContent::new("Board", main))
}

//! `/board`: the tasks. Trends, the first tasks of each state, failed attempts, and the recent activity.

use maud::html;
use tollgate::error::Result;

use super::charts::{self, TimeSpan};
use super::failures::FailedTask;
use super::ledger::{sentence, tail};
use super::overview::Overview;
use super::text::{SafeText, count};
use super::view::{PageContent, no_vault};
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of ledger lines under "Recent activity".
const LATEST: usize = 12;

/// The number of files that cannot be tasks.
const UNFIT: usize = 6;

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, span: Option<TimeSpan>) -> Result<PageContent> {
    let now = open.gate.workspace().now();
    let tail = tail(open)?;
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
    let (Some(overview), Some(vault)) = (Overview::read(&visit.site)?, &open.vault) else {
        let main = html! { h1 { "Board" } (no_vault(open)) div.below { (latest) } };
        return Ok(PageContent::new("Board", main));
    };
    let failures = FailedTask::newest(vault, &tail, now)?;
    let all: usize = overview.columns.iter().map(|column| column.len).sum();
    let main = html! {
        h1.unseen { "Board" }
        @if all == 0 {
            div.empty {
                p { "No tasks yet. " a href="/new" { "Add the first one" } ", or run in the workspace:" }
                dl.commands {
                    dt { code { "tollgate task add 'what to do'" } }
                    dd { "adds a task; or save a Markdown file in " code { "Needs_Action/" } " in the vault" }
                    dt { code { "tollgate work --agent blue -- COMMAND" } }
                    dd { "runs COMMAND once for each task" }
                }
            }
        }
        @if !tail.is_empty() { (charts::overview(visit, span, now)) }
        div.toolbar { h2 { "Tasks" } a.button href="/new" aria-keyshortcuts="n" { "New task" } }
        div.board role="region" aria-label="Tasks by state" tabindex="0" {
            @for column in &overview.columns { (column.show(now)) }
        }
        div.below {
            @if !failures.is_empty() {
                section.failures aria-labelledby="failures" {
                    h2 #failures { "Failed attempts" }
                    ul { @for failed in &failures { (failed.show(now)) } }
                }
            }
            (latest)
        }
        @if !overview.unfit.is_empty() {
            section.unfit aria-labelledby="unfit" {
                h2 #unfit { (count(overview.unfit.len(), "file cannot be a task", "files cannot be tasks")) }
                ul {
                    @for unfit in overview.unfit.iter().take(UNFIT) {
                        li { code { (unfit.state) "/" (SafeText(&unfit.name)) } ": " (SafeText(&unfit.why)) }
                    }
                }
            }
        }
    };
    Ok(PageContent::new("Board", main))
}

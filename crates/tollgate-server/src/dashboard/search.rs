//! `/search?q=TEXT`: tasks, agents and files whose name has this text.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde::Deserialize;
use tollgate::error::Result;
use tollgate::event::{Event, Mutation};
use tollgate::vault::state::State;

use super::ledger::tail;
use super::task_row::{state_words, title};
use super::text::{SafeText, encode};
use super::view::PageContent;
use super::visit::Visit;
use crate::workspace_provider::OpenWorkspace;

/// The number of results of each kind.
const MOST: usize = 30;

/// The query.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SearchQuery {
    q: String,
}

/// One result: its address, its name, and what it is.
struct SearchHit {
    address: String,
    name: String,
    about: String,
}

pub(super) fn view(visit: &Visit, open: &OpenWorkspace, query: &SearchQuery) -> Result<PageContent> {
    let text = query.q.trim();
    let wanted = text.to_lowercase();
    let has = |name: &str| name.to_lowercase().contains(&wanted);
    let (mut tasks, mut agents, mut files) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    if !wanted.is_empty() {
        if let Some(board) = visit.site.board()? {
            let all = State::ALL.into_iter().flat_map(|state| board.column(state).tasks());
            for task in all.filter(|task| has(title(task)) || has(task.name.as_str())).take(MOST) {
                tasks.push(SearchHit {
                    address: format!("/tasks/{}", encode(task.name.as_str())),
                    name: title(task).to_owned(),
                    about: state_words(task.slot.state()).0.to_owned(),
                });
            }
        }
        for line in &tail(open)? {
            agents.extend(
                line.agent.as_ref().map(|agent| agent.as_str().to_owned()).filter(|agent| has(agent)),
            );
            files.extend(file(&line.event).filter(|file| has(file)).map(str::to_owned));
        }
        agents.extend(
            open.gate.workspace().settings().agent.keys().map(ToString::to_string).filter(|agent| has(agent)),
        );
    }
    let agents = agents.into_iter().take(MOST).map(|agent| SearchHit {
        address: format!("/ledger?agent={}", encode(&agent)),
        about: "agent".to_owned(),
        name: agent,
    });
    let files = files.into_iter().take(MOST).map(|file| SearchHit {
        address: format!("/ledger?text={}", encode(&file)),
        about: "file".to_owned(),
        name: file,
    });
    let hits: Vec<SearchHit> = tasks.into_iter().chain(agents).chain(files).collect();
    let main = html! {
        h1 { "Search" }
        div.results {
            @if hits.is_empty() && !text.is_empty() { p.none { "Nothing has this in its name." } }
            ul.hits { @for hit in &hits { (hit.show()) } }
            @if !text.is_empty() {
                p.more { a href=(format!("/ledger?text={}", encode(text))) { "Search the ledger for “" (SafeText(text)) "”" } }
            }
        }
    };
    Ok(PageContent::new("Search", main))
}

impl SearchHit {
    fn show(&self) -> Markup {
        html! { li { a href=(self.address) { (SafeText(&self.name)) } " " span.quiet { (self.about) } } }
    }
}

/// The file that an event is about.
fn file(event: &Event) -> Option<&str> {
    match event {
        Event::MutationConflict(write, ..) | Event::MutationRefused(write, ..) => Some(&write.target_file),
        Event::Mutation(Mutation::File(changed), _) => Some(&changed.target_file),
        Event::LateExternalWrite(late) => Some(&late.target_file),
        _ => None,
    }
}

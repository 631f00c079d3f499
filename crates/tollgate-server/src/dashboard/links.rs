//! Links to the pages of what a sentence names: an agent, a file, a turn, a task.

use maud::{Markup, html};
use tollgate::name::{Agent, TurnId};
use tollgate::vault::TaskName;

use super::text::{SafeText, encode};

/// An agent; somebody, if the ledger names none.
pub(super) fn agent(agent: Option<&Agent>) -> Markup {
    html! {
        @match agent {
            Some(agent) => a.agent href=(agent_address(agent.as_str())) { (agent) },
            None => span.agent { "an unknown agent" },
        }
    }
}

/// The address of the page about an agent.
pub(super) fn agent_address(name: &str) -> String {
    format!("/agents/{}", encode(name))
}

/// A file, as the ledger names it.
pub(super) fn file(name: &str) -> Markup {
    html! { a href=(file_address(name)) { code { (SafeText(name)) } } }
}

/// The address of the page about a file.
pub(super) fn file_address(name: &str) -> String {
    format!("/files?path={}", encode(name))
}

/// A turn.
pub(super) fn turn(turn: &TurnId) -> Markup {
    html! { a href=(turn_address(turn)) { code { (turn) } } }
}

/// The address of the page about a turn.
pub(super) fn turn_address(turn: &TurnId) -> String {
    format!("/turns/{}", encode(turn.as_str()))
}

/// A task.
pub(super) fn task(task: &TaskName) -> Markup {
    html! { a href=(format!("/tasks/{}", encode(task.as_str()))) { (SafeText(task.stem())) } }
}

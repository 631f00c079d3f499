//! What people read of an event, on the command line, on the dashboard and in the agents' logs.
//!
//! A sentence comes in parts, so that a terminal can escape and a page can link what it shows. Nothing here is escaped.

use crate::task::State;

/// An event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described<'a> {
    /// One short sentence, without a period.
    pub sentence: Vec<Fragment<'a>>,
    /// More, for those who look closely.
    pub detail: Option<String>,
    /// Why, in the words of an agent, a person or the system.
    pub reason: Option<&'a str>,
    /// Whether it is good or bad news.
    pub tone: Tone,
}

/// A part of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment<'a> {
    /// Our own words, with the spaces around them.
    Words(&'static str),
    /// The agent that the line names.
    Agent,
    /// The path of a file or folder.
    File(&'a str),
    /// A task, by the name of its file.
    Task(&'a str),
    /// The name that a person gave.
    Person(&'a str),
    /// The state of a task.
    State(State),
    /// A word of the ledger.
    Code(&'a str),
}

/// Good or bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Something was achieved.
    Good,
    /// Somebody may want to look at it.
    Bad,
    /// Neither.
    Neutral,
}

impl<'a> Described<'a> {
    /// The first file or task in the sentence, and the second if there is one.
    pub fn targets(&self) -> impl Iterator<Item = &'a str> {
        self.sentence.iter().filter_map(|part| match part {
            Fragment::File(name) | Fragment::Task(name) => Some(*name),
            Fragment::Words(_)
            | Fragment::Agent
            | Fragment::Person(_)
            | Fragment::State(_)
            | Fragment::Code(_) => None,
        })
    }
}

/// The sentence of this template, with these parts where it has `{}`.
pub(super) fn filled<'a>(template: &'static str, parts: Vec<Fragment<'a>>) -> Vec<Fragment<'a>> {
    let mut parts = parts.into_iter();
    let mut sentence = Vec::new();
    for words in template.split("{}") {
        sentence.extend(Some(Fragment::Words(words)).filter(|_| !words.is_empty()));
        sentence.extend(parts.next());
    }
    sentence
}

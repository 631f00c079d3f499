//! What agents had read, and who asked for their turns.

use std::collections::HashMap;
use std::path::Path;

use tollgate::history::turn::{Head, KnownReads, TurnAbout, UnknownReads};
use tollgate::turn::Extent;
use tollgate::visible::plain;

use super::text::{Viewpoint, ago, count, moment, short};

/// The number of files that one line names.
const NAMED: usize = 10;

/// What an agent had read, on one line.
pub(crate) fn reads(known: &KnownReads) -> String {
    let mut places: HashMap<&Path, usize> = HashMap::new();
    let mut files: Vec<(&Path, bool)> = Vec::new();
    for read in &known.reads {
        let at = *places.entry(&read.path).or_insert(files.len());
        if at == files.len() {
            files.push((&read.path, false));
        }
        files[at].1 |= read.shown == Extent::Whole;
    }
    let why = known.unknown.map(|why| match why {
        UnknownReads::NoLongerKept => "the record of the turn is no longer kept",
        UnknownReads::NoRecord => "the turn has not ended yet, or it left no record",
    });
    match (files.is_empty(), why) {
        (true, Some(why)) => format!("not known: {why}"),
        (true, None) => "nothing".to_owned(),
        (false, why) => {
            let name = |(path, whole): &(&Path, bool)| {
                let part = if *whole { "" } else { " (in part)" };
                short(&plain(&path.to_string_lossy())) + part
            };
            let mut names: Vec<String> = files.iter().take(NAMED).map(name).collect();
            if files.len() > NAMED {
                names.push(format!("and {} more", files.len() - NAMED));
            }
            let more = why.map_or(String::new(), |why| format!("; what else is not known: {why}"));
            format!("{}: {}{more}", count(files.len(), "file"), names.join(", "))
        }
    }
}

/// What the agent of each of these changes had read, a line for each.
pub(crate) fn reads_of_changes<'a>(changes: impl Iterator<Item = (u64, &'a str, &'a KnownReads)>) -> String {
    let line = |(change, agent, known): (u64, &str, &KnownReads)| {
        format!("change {change} by `{agent}` had read {}", reads(known))
    };
    changes.map(line).collect::<Vec<_>>().join("\n")
}

/// Who asked for a turn, and where HEAD was: indented lines, each after a line break.
pub(super) fn record(about: &TurnAbout) -> String {
    let asked = &about.start.asked;
    let mut said: Vec<String> =
        [&asked.host, &asked.model].into_iter().flatten().map(|text| plain(text)).collect();
    match (&asked.prompt, asked.prompt_sha256) {
        (Some(prompt), _) => said.push(format!("\"{}\"", short(&plain(prompt)))),
        (None, Some(digest)) => said.push(format!("prompt {}", digest.short())),
        (None, None) => {}
    }
    let mut words = String::new();
    if !said.is_empty() {
        words += &format!("\n  asked {}", said.join(", "));
    }
    let heads: Vec<String> =
        [&about.start.head_before, &about.head_after].into_iter().flatten().map(head).collect();
    match &heads[..] {
        [] => {}
        [before, after] if before != after => words += &format!("\n  head  {before} -> {after}"),
        [head, ..] => words += &format!("\n  head  {head}"),
    }
    words
}

fn head(head: &Head) -> String {
    let commit = head.commit.as_deref().map_or("no commit", |commit| commit.get(..8).unwrap_or(commit));
    match &head.branch {
        Some(branch) => format!("{} {commit}", plain(branch.strip_prefix("refs/heads/").unwrap_or(branch))),
        None => commit.to_owned(),
    }
}

/// A turn that has changed nothing.
pub(crate) fn turn_without_changes(view: &Viewpoint, about: &TurnAbout, known: &KnownReads) -> String {
    let TurnAbout { turn, agent, start, task, .. } = about;
    let mut words = format!(
        "turn `{turn}` by `{agent}`, {} ({}), has changed nothing",
        moment(start.began),
        ago(view.now, start.began)
    );
    if let Some(task) = task {
        words += &format!("\n  task  {}", plain(task.as_str()));
    }
    words + &record(about) + &format!("\n  read  {}", reads(known))
}

//! Turns: which ones run, what each has seen, how they end.

use tollgate::name::TurnId;
use tollgate::path::FilePath;
use tollgate::shared_turn::SharedTurn;
use tollgate::turn::{Extent, Sighting, TurnState};

use super::text::{Viewpoint, ago, count, hash_or_none, shown};

pub(crate) fn turn_ended(id: &TurnId, files: usize) -> String {
    format!("ended `{id}`: {} tracked", count(files, "file"))
}

pub(crate) fn turn_shown(view: &Viewpoint, turn: &SharedTurn, files: &[(FilePath, Sighting)]) -> String {
    let started = ago(view.now, turn.started());
    let mut words = format!(
        "turn `{}` of `{}`, started {started}: {} tracked",
        turn.id(),
        turn.agent(),
        count(files.len(), "file")
    );
    if !files.is_empty() {
        words += &format!("\n  {:<10}  {:<10}  file", "first read", "last known");
    }
    for (path, sighting) in files {
        let (first, last) = (sighting.initial().into(), sighting.baseline(Extent::Whole));
        let (path, first) = (shown(view, path.as_path()), hash_or_none(first));
        words += &format!("\n  {first:<10}  {:<10}  {path}", hash_or_none(last));
    }
    words
}

pub(crate) fn turns(view: &Viewpoint, turns: &[(SharedTurn, usize)]) -> String {
    if turns.is_empty() {
        return "no running turns\nhint: run `tollgate turn begin` to start one".into();
    }
    let line = |(turn, files): &(SharedTurn, usize)| {
        let started = ago(view.now, turn.started());
        format!("{}  {}  started {started}, {} tracked", turn.id(), turn.agent(), count(*files, "file"))
    };
    turns.iter().map(line).collect::<Vec<_>>().join("\n")
}

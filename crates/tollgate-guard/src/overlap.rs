//! Overlaps: files on which agents work at the same time, in one tree or in several working trees of one repository.
//!
//! Two turns that go on overlap on a file if both have changed it, or one has changed it and the other one has read all of it. In a
//! repository with several working trees, the same path in another tree is the same file: somebody will have to merge the two. Each agent is told once of
//! each other agent and file. Nothing is refused.
//!
//! A subagent and its caller know of each other, and do not overlap.
//!
//! Limits: a turn in which nothing was read or changed for an hour does not count. The workspaces of other trees are found at
//! the place in their tree that this one has in its own, and count if they belong to the same user.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::explain::current_text;
use crate::open_turn::{self, OpenTurn, TurnChange};
use crate::path::FilePath;
use crate::premise::{ChangedPremise, changed_lines};
use crate::recovery;
use crate::root::Root;
use crate::state_folder::STATE_FOLDER;
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::visible::plain;
use tollgate_base::working_tree::WorkingTree;

/// A turn in which nothing was read or changed for this long has probably ended without a word.
const GOES_ON: SignedDuration = SignedDuration::from_hours(1);

/// The number of overlaps of which one answer tells.
const TOLD: usize = 10;

/// A file on which several agents work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Overlap {
    /// The file, relative to the workspace.
    pub path: PathBuf,
    /// The agents, at least two: those first that have changed it, by name.
    pub workers: Vec<Worker>,
}

/// One of the agents that work on a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// The agent.
    pub agent: Agent,
    /// Its turn.
    pub turn: TurnId,
    /// The root of its workspace, if it works in another working tree.
    pub tree: Option<PathBuf>,
    /// Whether it has changed the file. Otherwise it has read all of it.
    pub changed: bool,
    /// The lines that it has changed, counted from 1: the first and the last one. `None` if that is not known.
    pub lines: Option<(usize, usize)>,
    /// When it last changed or read the file.
    pub time: Timestamp,
}

/// A turn of another agent, and the root of its workspace.
struct OtherTurn {
    root: PathBuf,
    turn: OpenTurn,
}

/// The turns that go on in a workspace, the oldest first.
pub fn open_turns(root: &Root) -> Result<Vec<OpenTurn>> {
    open_turn::all(&root.state_path(), root.now() - GOES_ON, None)
}

/// The files of a workspace on which several agents work, in order of their paths.
pub fn list(root: &Root) -> Result<Vec<Overlap>> {
    let turns = turns_around(root, None)?;
    let mut files: BTreeMap<PathBuf, BTreeMap<Agent, Worker>> = BTreeMap::new();
    for (at, one) in turns.iter().enumerate() {
        for other in &turns[at + 1..] {
            let is_here = [one, other].iter().any(|turn| turn.root == root.path());
            if work_together(&one.turn.agent, &other.turn.agent) || !is_here {
                continue;
            }
            for path in one.turn.shared_with(&other.turn) {
                let workers = files.entry(path.clone()).or_default();
                for turn in [one, other] {
                    let Some(worker) = worker(root, turn, &path) else { continue };
                    match workers.get(&worker.agent) {
                        Some(known) if (known.changed, known.time) >= (worker.changed, worker.time) => {}
                        _ => drop(workers.insert(worker.agent.clone(), worker)),
                    }
                }
            }
        }
    }
    let overlap = |(path, workers): (PathBuf, BTreeMap<Agent, Worker>)| {
        let mut workers: Vec<Worker> = workers.into_values().collect();
        workers.sort_by_key(|worker| !worker.changed);
        Overlap { path, workers }
    };
    Ok(files.into_iter().map(overlap).collect())
}

/// One note for each overlap of this turn of which its agent was not told. Now it is. `changed` are the changes of which it is told at the same
/// time: their authors need no second note.
pub(crate) fn news(
    root: &Root,
    own: &OpenTurn,
    changed: &[ChangedPremise],
    folder: &Path,
) -> Result<Vec<String>> {
    let others = turns_around(root, Some(&own.id))?;
    let (mut told, mut notes): (Vec<(&Agent, &Path, PathBuf)>, _) = (Vec::new(), Vec::new());
    for other in others.iter().filter(|other| !work_together(&other.turn.agent, &own.agent)) {
        let (agent, at) = (&other.turn.agent, other.root.as_path());
        let mut shared: Vec<PathBuf> = own.shared_with(&other.turn).collect();
        shared.sort();
        for path in shared {
            let is_told = told.iter().any(|known| *known == (agent, at, path.clone()));
            if is_told || own.was_told_of(agent, at, &path) {
                continue;
            }
            let here = root.path().join(&path);
            let is_named = |premise: &ChangedPremise| {
                premise.path.as_path() == here && premise.changed_by.as_ref() == Some(agent)
            };
            if let Some(worker) = worker(root, other, &path)
                && !changed.iter().any(is_named)
            {
                notes.push(note(&worker, &here, folder));
            }
            told.push((agent, at, path));
        }
    }
    let told = told.iter().map(|(agent, at, path)| (*agent, *at, path.as_path()));
    open_turn::told_of(root, &own.id, told);
    if notes.len() > TOLD {
        let more = notes.len() - TOLD;
        notes.truncate(TOLD);
        notes.push(format!(
            "note: and {more} more: `tollgate status` counts the files on which several agents work"
        ));
    }
    Ok(notes)
}

/// Whether two names are those of one agent, or of a subagent and its caller, which know of each other.
fn work_together(one: &Agent, other: &Agent) -> bool {
    let [a, b] = [one, other].map(Agent::as_str);
    one.is_same_session(other) && (a.starts_with(b) || b.starts_with(a))
}

fn note(worker: &Worker, path: &Path, folder: &Path) -> String {
    let path = plain(&path.strip_prefix(folder).unwrap_or(path).to_string_lossy());
    let agent = &worker.agent;
    let tree = worker.tree.as_ref().map(|tree| relative(tree, folder)).unwrap_or_default();
    let tree = if tree.is_empty() { tree } else { format!(", in its working tree {}", plain(&tree)) };
    match (worker.changed, worker.lines) {
        (true, Some((first, last))) if first == last => {
            format!("note: `{agent}` is also working on `{path}` (line {first}){tree}")
        }
        (true, Some((first, last))) => {
            format!("note: `{agent}` is also working on `{path}` (lines {first} to {last}){tree}")
        }
        (true, None) => format!("note: `{agent}` is also working on `{path}`{tree}"),
        (false, _) => format!("note: `{agent}` has read `{path}`, which you have changed{tree}"),
    }
}

/// A path as it is reached from a folder.
fn relative(path: &Path, from: &Path) -> String {
    let shared = path.components().zip(from.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| "..".into());
    let down = path.components().skip(shared).map(|part| part.as_os_str().to_owned());
    let parts: PathBuf = up.chain(down).collect();
    parts.to_string_lossy().into_owned()
}

/// What a turn has to do with a file.
fn worker(root: &Root, OtherTurn { root: at, turn }: &OtherTurn, path: &Path) -> Option<Worker> {
    let file = turn.file(path)?;
    let change = file.change();
    Some(Worker {
        agent: turn.agent.clone(),
        turn: turn.id.clone(),
        tree: (at != root.path()).then(|| at.clone()),
        changed: change.is_some(),
        lines: change.and_then(|change| lines(root, at, path, change)),
        time: change.map(|change| change.time).or(file.read)?,
    })
}

/// The lines that a turn has changed in a file, as far as the bytes are kept.
fn lines(root: &Root, at: &Path, path: &Path, change: TurnChange) -> Option<(usize, usize)> {
    let kept = |digest: Digest| match at == root.path() {
        true => recovery::find(root, digest).ok()?.bytes(),
        false => recovery::peek(&at.join(STATE_FOLDER), digest),
    };
    let after = change.after.digest()?;
    let on_disk = current_text(root, &FilePath::trusted(at.join(path)), after).ok().flatten();
    let after = on_disk.or_else(|| kept(after))?;
    let before = match change.before {
        FileState::Present(digest) => kept(digest)?,
        FileState::Absent => Vec::new(),
        FileState::Unreadable => return None,
    };
    changed_lines(&before, &after)
}

/// The turns that go on in this workspace and in those of the other working trees, without this one.
fn turns_around(root: &Root, except: Option<&TurnId>) -> Result<Vec<OtherTurn>> {
    let since = root.now() - GOES_ON;
    let here = open_turn::all(&root.state_path(), since, except)?;
    let mut turns: Vec<OtherTurn> =
        here.into_iter().map(|turn| OtherTurn { root: root.path().to_owned(), turn }).collect();
    for beside in workspaces_beside(root) {
        // What cannot be read there is no fault here.
        let there = open_turn::all(&beside.join(STATE_FOLDER), since, except).unwrap_or_default();
        turns.extend(there.into_iter().map(|turn| OtherTurn { root: beside.clone(), turn }));
    }
    Ok(turns)
}

/// The roots of the workspaces in the other working trees of the repository.
fn workspaces_beside(root: &Root) -> Vec<PathBuf> {
    let Some(tree) = WorkingTree::around(root.path()) else { return Vec::new() };
    // Most repositories have one tree.
    if !tree.common_dir().join("worktrees").exists() {
        return Vec::new();
    }
    let Ok(below) = root.path().strip_prefix(&tree.top) else { return Vec::new() };
    let owner = |root: &Path| fs::symlink_metadata(root.join(STATE_FOLDER)).ok().map(|found| found.uid());
    let beside = tree.beside().into_iter().map(|top| top.join(below).components().collect::<PathBuf>());
    let own = owner(root.path());
    beside.filter(|beside| beside != root.path() && own.is_some() && owner(beside) == own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_who_works_on_which_lines_and_where() {
        for (changed, lines, tree, words) in [
            (true, Some((10, 24)), None, "note: `red` is also working on `src/a.rs` (lines 10 to 24)"),
            (true, Some((3, 3)), None, "note: `red` is also working on `src/a.rs` (line 3)"),
            (true, None, None, "note: `red` is also working on `src/a.rs`"),
            (
                true,
                Some((10, 24)),
                Some("/r/b"),
                "note: `red` is also working on `src/a.rs` (lines 10 to 24), in its working tree ../b",
            ),
            (false, None, None, "note: `red` has read `src/a.rs`, which you have changed"),
            (
                false,
                None,
                Some("/other"),
                "note: `red` has read `src/a.rs`, which you have changed, in its working tree ../../other",
            ),
        ] {
            let worker = Worker {
                agent: "red".parse().unwrap(),
                turn: TurnId::new().unwrap(),
                tree: tree.map(PathBuf::from),
                changed,
                lines,
                time: Timestamp::UNIX_EPOCH,
            };
            assert_eq!(note(&worker, Path::new("/r/a/src/a.rs"), Path::new("/r/a")), words);
        }
    }
}

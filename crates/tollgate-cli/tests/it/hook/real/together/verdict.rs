//! What has become of everybody's work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{AGENTS, Log, PERSON, lines_in};
use crate::world::World;

/// Everything that is in the files and in the commits and stashes which still exist.
const EVERYTHING: &str = "git ls-files -z -c -o --exclude-standard | xargs -0 cat 2> /dev/null
    git log --all -p -m --format=; git stash list --format=%H | while read -r stash; do
    git log -p -m --format= $stash; git log -p --format= $stash^3 2> /dev/null; done; true";

/// Each commit that was ever made, with its subject and the lines that it adds and deletes.
const COMMITS: &str = "git log --all --reflog --no-merges -p -U0 --format='commit %s'";

/// The commits that were made on each branch.
const BRANCHES: &str = "git for-each-ref --format='%(refname:short)' refs/heads | while read -r branch; do
    git reflog show --format=\"$branch %gs\" \"$branch\" --; done";

pub(super) struct Verdict {
    written: usize,
    refused: usize,
    pub(super) commits: BTreeMap<&'static str, usize>,
    /// Lines that are nowhere
    pub(super) lost: Vec<String>,
    /// Lines in commits of agents that had not seen them
    pub(super) unseen: Vec<String>,
    /// Commits on a branch that their author did not mean
    wrong_branch: Vec<String>,
}

impl Verdict {
    pub(super) fn of(world: &World, log: &Log) -> Self {
        let text = |script: &str| world.script(script).ends().is(0).stdout();
        let everything = text(EVERYTHING);
        let there: BTreeSet<&str> = lines_in(&everything).collect();
        let lost = log.written.keys().filter(|line| !there.contains(line.as_str())).cloned().collect();
        let mut commits: BTreeMap<_, _> =
            AGENTS.iter().map(|(name, _)| *name).chain([PERSON]).map(|name| (name, 0)).collect();
        let mut wrong_branch = Vec::new();
        for line in text(BRANCHES).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if let [branch, "commit:", author, _, meant] = words[..] {
                *commits.get_mut(author).unwrap() += 1;
                if branch != meant {
                    wrong_branch.push(line.to_owned());
                }
            }
        }
        let (written, refused) = (log.written.len(), log.refused);
        Self { written, refused, commits, lost, unseen: unseen(&text(COMMITS), log), wrong_branch }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.unseen.is_empty() && self.wrong_branch.is_empty()
    }
}

/// Lines that agents have committed without having seen them.
fn unseen(commits: &str, log: &Log) -> Vec<String> {
    let mut unseen = Vec::new();
    let mut author = None;
    for line in commits.lines() {
        if let Some(subject) = line.strip_prefix("commit ") {
            let words: Vec<&str> = subject.split(' ').collect();
            author = match words[..] {
                [name, act, _] => AGENTS
                    .iter()
                    .find(|(agent, _)| *agent == name)
                    .map(|(agent, _)| (*agent, act.parse::<usize>().unwrap(), subject)),
                _ => None,
            };
        } else if let Some((name, act, subject)) = author
            && (line.starts_with('+') || line.starts_with('-'))
            && !line.starts_with("+++")
            && !line.starts_with("---")
        {
            for word in lines_in(&line[1..]).filter(|word| !word.starts_with(name)) {
                let is_seen = log.seen.get(&(name, word.to_owned())).is_some_and(|since| *since <= act);
                if !is_seen {
                    unseen.push(format!("{subject}: {line}"));
                }
            }
        }
    }
    unseen
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} lines written, {} calls refused, commits: {:?}",
            self.written, self.refused, self.commits
        )?;
        writeln!(f, "{} lost: {:?}", self.lost.len(), self.lost)?;
        writeln!(f, "{} committed unseen: {:#?}", self.unseen.len(), self.unseen)?;
        writeln!(f, "{} on the wrong branch: {:#?}", self.wrong_branch.len(), self.wrong_branch)
    }
}

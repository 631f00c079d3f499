//! Talking to the remote: one look that brings everything, one push that is taken whole or not at all.
//!
//! A push is a compare-and-swap on the server: it is sent with what every ref is believed to be, and refused if one is
//! not. What git's exit code says is not the truth: a connection that is cut after the server has taken the push looks
//! like a failure. So whatever is not plainly accepted or plainly refused is [`Pushed::Unclear`], and whoever asked looks
//! again.
//!
//! Invariants: every ref that is pushed has an explicit lease; the branch is only ever pushed forward, by a commit whose
//! parent is what the lease names; nothing is forced, nothing is merged.

use std::fs::File;

use super::card::{Card, is_oid, ref_of};
use super::run::{Git, Ran};
use crate::error::{Fault, Result};

/// Where the copies of the remote's refs are kept in the user's repository.
const MIRROR: &str = "refs/tollgate/seen";

/// The remote, and which of its refs matter.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    pub(super) git: Git,
    pub(super) name: String,
    pub(super) branch: String,
    pub(super) refs: String,
}

/// What one look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) tip: String,
    /// By the last part of the ref's name: the object, and the card if it can be understood.
    pub(super) cards: Vec<(String, String, Option<Card>)>,
}

/// A change of one ref of the remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: String,
    /// `None`: it must not be there yet.
    pub(super) old: Option<String>,
    /// `None`: it is removed.
    pub(super) new: Option<String>,
}

/// What came of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The remote has taken it.
    Taken,
    /// It has not: some ref was not what it was believed to be. Somebody was quicker, if a look shows that. In its words.
    Moved(String),
    /// It has not, and would not the next time: a rule, a hook, a missing right. In its own words.
    Refused(String),
    /// It may have taken it or not: look again. What git complained about.
    Unclear(String),
}

impl Remote {
    /// The whole name of the branch.
    pub(super) fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// The whole name of a card's ref.
    pub(super) fn card_ref(&self, name: &str) -> String {
        format!("{}/{name}", self.refs)
    }

    /// Fetches the branch and all cards. One conversation.
    pub(super) fn look(&self, lock: &File) -> Result<View> {
        let specs =
            [format!("+{}:{MIRROR}/branch", self.branch_ref()), format!("+{}/*:{MIRROR}/cards/*", self.refs)];
        let mut arguments: Vec<String> =
            ["fetch", "--quiet", "--prune", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
                .map(str::to_owned)
                .to_vec();
        arguments.extend(["--".to_owned(), self.name.clone()]);
        arguments.extend(specs);
        let ran = self.git.remote(arguments, lock)?;
        if !ran.ok {
            return Err(self.not_fetched(&ran));
        }
        let format = "--format=%(refname) %(objectname) %(contents:subject)";
        let listed = self.git.must(["for-each-ref", format, MIRROR])?;
        self.view(&listed)
    }

    fn view(&self, listed: &str) -> Result<View> {
        let mut view = View { tip: String::new(), cards: Vec::new() };
        for line in listed.lines() {
            let mut parts = line.splitn(3, ' ');
            let (Some(name), Some(oid)) = (parts.next(), parts.next()) else { continue };
            let Some(name) = name.strip_prefix(MIRROR).filter(|_| is_oid(oid)) else { continue };
            if name == "/branch" {
                view.tip = oid.to_owned();
            } else if let Some(name) = name.strip_prefix("/cards/") {
                // One that speaks of another task than its name says is not believed.
                let card = Card::from_line(parts.next().unwrap_or_default());
                let card = card.filter(|card| ref_of(&card.task) == name);
                view.cards.push((name.to_owned(), oid.to_owned(), card));
            }
        }
        if view.tip.is_empty() { Err(self.no_branch()) } else { Ok(view) }
    }

    fn no_branch(&self) -> Fault {
        Fault::invalid(format!(
            "the remote `{}` has no branch `{}`: push it once, or name another in `[vault] branch`",
            self.name, self.branch
        ))
    }

    fn not_fetched(&self, ran: &Ran) -> Fault {
        if ran.err.contains("couldn't find remote ref") {
            return self.no_branch();
        }
        self.unreachable(&if ran.hung { "it does not answer".to_owned() } else { why(&ran.err) })
    }

    pub(super) fn unreachable(&self, what: &str) -> Fault {
        Fault::Unreachable { remote: self.name.clone(), what: what.to_owned() }
    }

    /// Changes these refs, all of them or none.
    pub(super) fn push(&self, updates: &[Update], lock: &File) -> Result<Pushed> {
        let mut arguments: Vec<String> =
            ["push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"]
                .map(str::to_owned)
                .to_vec();
        if updates.len() > 1 {
            arguments.push("--atomic".to_owned());
        }
        for update in updates {
            let old = update.old.as_deref().unwrap_or_default();
            arguments.push(format!("--force-with-lease={}:{old}", update.name));
        }
        arguments.extend(["--".to_owned(), self.name.clone()]);
        for update in updates {
            arguments.push(format!("{}:{}", update.new.as_deref().unwrap_or_default(), update.name));
        }
        let ran = self.git.remote(arguments, lock)?;
        Ok(judge(&ran, updates))
    }
}

/// What git's porcelain says, ref by ref; only if it says so of every ref is a push taken.
fn judge(ran: &Ran, updates: &[Update]) -> Pushed {
    let out = String::from_utf8_lossy(&ran.out);
    let told: Vec<(char, &str, &str)> = out.lines().filter_map(told).collect();
    let unclear = || {
        let why = if ran.hung { "it does not answer".to_owned() } else { why(&ran.err) };
        Pushed::Unclear(why)
    };
    if ran.ok {
        let taken = |update: &Update| {
            // `=`: it was there already. That is no proof that it was ours, so it is looked at.
            told.iter().any(|(flag, name, _)| *name == update.name && matches!(flag, ' ' | '*' | '-' | '+'))
        };
        return if updates.iter().all(taken) { Pushed::Taken } else { unclear() };
    }
    let rejected: Vec<&str> =
        told.iter().filter(|(flag, ..)| *flag == '!').map(|(_, _, summary)| *summary).collect();
    // The others of an atomic push are only told that it failed.
    let causes: Vec<&str> = rejected.iter().copied().filter(|text| !text.contains("atomic")).collect();
    let causes = if causes.is_empty() { &rejected } else { &causes };
    if causes.iter().any(|text| is_a_rule(text)) {
        return Pushed::Refused(complaint(causes, &ran.err));
    }
    if !causes.is_empty() && causes.iter().all(|text| is_a_race(text)) {
        return Pushed::Moved(causes.join("; "));
    }
    if ran.err.contains("does not support --atomic") {
        return Pushed::Refused("it cannot change several refs at once (no `--atomic`)".to_owned());
    }
    // A right that is missing is told before any ref is.
    let denied = ["ermission denied", "denied to", "not allowed to push", "403", "read-only", "read only"];
    if rejected.is_empty() && denied.iter().any(|word| ran.err.contains(word)) {
        return Pushed::Refused(why(&ran.err));
    }
    unclear()
}

/// `<flag>\t<from>:<to>\t<summary>`
fn told(line: &str) -> Option<(char, &str, &str)> {
    let mut parts = line.splitn(3, '\t');
    let flag = parts.next()?.chars().next()?;
    let (_, name) = parts.next()?.rsplit_once(':')?;
    Some((flag, name, parts.next().unwrap_or_default()))
}

/// The ref was not what it was believed to be.
fn is_a_race(summary: &str) -> bool {
    let words = [
        "stale info",
        "fetch first",
        "non-fast-forward",
        "needs force",
        "already exists",
        "failed to update ref",
        "failed to lock",
        "cannot lock ref",
        "incorrect old value",
        "expected old value",
        "reference does not exist",
        "atomic",
    ];
    words.iter().any(|word| summary.contains(word))
}

/// The remote has a rule against it.
fn is_a_rule(summary: &str) -> bool {
    let words =
        ["declined", "hidden ref", "protected", "prohibited", "denied", "funny refname", "not allowed"];
    summary.contains("[remote rejected]") && words.iter().any(|word| summary.contains(word))
}

/// The rule, and what the server said about it.
fn complaint(causes: &[&str], err: &str) -> String {
    let reason = causes.iter().find(|text| is_a_rule(text)).and_then(|text| text.rsplit_once('('));
    let reason = reason.map_or("refused", |(_, reason)| reason.trim_end_matches(')'));
    let remote = err.lines().filter_map(|line| line.strip_prefix("remote:")).map(str::trim);
    match remote.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ") {
        said if said.is_empty() => reason.to_owned(),
        said => format!("{reason}: {said}"),
    }
}

/// The line of git's complaints that says most.
fn why(err: &str) -> String {
    let telling =
        |line: &&str| line.starts_with("fatal:") || line.starts_with("error:") || line.starts_with("ssh:");
    let line = err.lines().find(telling).or_else(|| err.lines().next()).unwrap_or("git did not say why");
    line.trim_start_matches("fatal: ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(name: &str) -> Update {
        Update { name: name.into(), old: None, new: Some("1".repeat(40)) }
    }

    fn ran(ok: bool, out: &str, err: &str) -> Ran {
        Ran { ok, out: out.as_bytes().to_vec(), err: err.into(), hung: false }
    }

    #[test]
    fn a_card_that_speaks_of_another_task_is_not_believed() {
        use crate::vault::claim::Note;
        use crate::vault::state::Slot;
        let git = Git::new("git".as_ref(), "/".as_ref(), std::time::Duration::ZERO);
        let remote = Remote { git, name: "origin".into(), branch: "main".into(), refs: "refs/t".into() };
        let card = Card::new(&"x".parse().unwrap(), "there", 1, Note::new(Slot::NEEDS_ACTION)).unwrap();
        let (oid, line) = ("1".repeat(40), card.to_line().unwrap());
        let (own, other) = (ref_of(&card.task), ref_of(&"y".parse().unwrap()));
        let listed = format!(
            "{MIRROR}/branch {oid} x\n{MIRROR}/cards/{own} {oid} {line}\n{MIRROR}/cards/{other} {oid} {line}"
        );
        let view = remote.view(&listed).unwrap();
        assert_eq!(view.cards, [(own, oid.clone(), Some(card)), (other, oid, None)]);
        assert!(remote.view("").is_err(), "no branch");
    }

    #[test]
    fn what_git_says_is_told_apart() {
        let both = [update("refs/t/x"), update("refs/heads/main")];
        let taken = "To r\n*\t1:refs/t/x\t[new reference]\n \t1:refs/heads/main\ta..b\nDone\n";
        assert_eq!(judge(&ran(true, taken, ""), &both), Pushed::Taken);
        let there = "To r\n=\t1:refs/t/x\t[up to date]\n \t1:refs/heads/main\ta..b\nDone\n";
        assert!(matches!(judge(&ran(true, there, ""), &both), Pushed::Unclear(_)), "not ours for certain");
        let half = "To r\n*\t1:refs/t/x\t[new reference]\nDone\n";
        assert!(matches!(judge(&ran(true, half, ""), &both), Pushed::Unclear(_)));
        for race in [
            "!\t1:refs/t/x\t[rejected] (stale info)",
            "!\t1:refs/heads/main\t[rejected] (fetch first)",
            "!\t1:refs/heads/main\t[rejected] (non-fast-forward)",
            "!\t1:refs/t/x\t[remote rejected] (failed to update ref)",
            "!\t1:refs/t/x\t[remote rejected] (reference already exists)",
            "!\t1:refs/t/x\t[remote rejected] (incorrect old value provided)",
            "!\t1:refs/t/x\t[rejected] (atomic push failed)\n!\t1:refs/heads/main\t[rejected] (stale info)",
            "!\t1:refs/t/x\t[remote rejected] (atomic transaction failed)",
        ] {
            let judged = judge(&ran(false, race, "error: failed to push"), &both);
            assert!(matches!(judged, Pushed::Moved(_)), "{race}: {judged:?}");
        }
        let rule = "!\t1:refs/heads/main\t[remote rejected] (pre-receive hook declined)";
        let said = "remote: only on Sundays\nremote:\nerror: failed to push some refs";
        let refused = Pushed::Refused("pre-receive hook declined: only on Sundays".into());
        assert_eq!(judge(&ran(false, rule, said), &both), refused);
        let hidden = "!\t1:refs/t/x\t[remote rejected] (deny updating a hidden ref)";
        assert!(matches!(judge(&ran(false, hidden, ""), &both), Pushed::Refused(_)));
        let denied = "remote: Permission to a/b.git denied to c.\nfatal: unable to access 'https://x/': 403";
        assert!(matches!(judge(&ran(false, "", denied), &both), Pushed::Refused(_)));
        for cut in [
            "fatal: the remote end hung up unexpectedly",
            "fatal: Could not read from remote repository.",
            "",
        ] {
            assert!(matches!(judge(&ran(false, "", cut), &both), Pushed::Unclear(_)), "{cut}");
        }
        let odd = "!\t1:refs/t/x\t[remote rejected] (unpacker error)";
        assert!(matches!(judge(&ran(false, odd, ""), &both), Pushed::Unclear(_)));
    }
}

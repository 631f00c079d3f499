//! The remote: one look fetches everything, and the remote takes a push as a whole or not at all.
//!
//! A push is a compare-and-swap on the server: it says what every ref is believed to be, and the server refuses it if one
//! is not. The exit code of git is not proof: a connection that is cut after the server took the push looks like a failure.
//! So every push that is neither clearly taken nor clearly refused is [`PushResult::Unclear`], and the caller looks again.
//!
//! Invariants: every ref that is pushed has an explicit lease. The branch is only pushed forward, by a commit whose parent
//! is the tip that the lease names. Nothing is forced, nothing is merged.

use std::fs::File;

use super::card::{Card, is_oid, ref_of};
use super::run::{Git, ProgramOutput};
use tollgate_base::error::{Fault, MissingKind, Result};

/// Where the copies of the remote's refs are kept in the user's repository.
const MIRROR: &str = "refs/tollgate/seen";

/// The remote, and which of its refs matter.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    pub(super) git: Git,
    pub(super) name: String,
    pub(super) branch: String,
    /// The beginning of the names of the cards' refs.
    pub(super) claim_refs: String,
}

/// What one look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteView {
    pub(super) tip: String,
    /// The last part of the ref's name, the object, and the card if it can be read.
    pub(super) cards: Vec<(String, String, Option<Card>)>,
}

/// A change of one ref of the remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: String,
    /// `None`: it must not exist yet.
    pub(super) old: Option<String>,
    /// `None`: it is deleted.
    pub(super) new: Option<String>,
}

/// What came of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PushResult {
    /// The remote took it.
    Taken,
    /// The remote did not take it, because some ref was not what it was believed to be. If a look shows a change, somebody
    /// else was faster. In the remote's words.
    Moved(String),
    /// The remote does not take it and will not the next time: a rule, a hook, a missing permission. In its own words.
    Refused(String),
    /// The remote may or may not have taken it: look again. With git's error message.
    Unclear(String),
}

impl Remote {
    /// The full name of the branch.
    pub(super) fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// The full name of a card's ref.
    pub(super) fn card_ref(&self, name: &str) -> String {
        format!("{}/{name}", self.claim_refs)
    }

    /// Fetches the branch and all cards in one conversation.
    pub(super) fn look(&self, lock: &File) -> Result<RemoteView> {
        let specs = [
            format!("+{}:{MIRROR}/branch", self.branch_ref()),
            format!("+{}/*:{MIRROR}/cards/*", self.claim_refs),
        ];
        let mut arguments = vec![
            "fetch",
            "--quiet",
            "--prune",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
        ];
        arguments.extend(["--", &self.name, &specs[0], &specs[1]]);
        let ran = self.git.remote(&arguments, lock)?;
        if !ran.ok {
            let is_missing = ran.err.contains("couldn't find remote ref");
            return Err(if is_missing { self.no_branch() } else { self.unreachable(&why(&ran)) });
        }
        let format = "--format=%(refname) %(objectname) %(contents:subject)";
        self.view(&self.git.must(&["for-each-ref", format, MIRROR], &[])?.text())
    }

    fn view(&self, listed: &str) -> Result<RemoteView> {
        let mut view = RemoteView { tip: String::new(), cards: Vec::new() };
        for line in listed.lines() {
            let mut parts = line.splitn(3, ' ');
            let (Some(name), Some(oid)) = (parts.next(), parts.next()) else { continue };
            let Some(name) = name.strip_prefix(MIRROR).filter(|_| is_oid(oid)) else { continue };
            if name == "/branch" {
                view.tip = oid.to_owned();
            } else if let Some(name) = name.strip_prefix("/cards/") {
                // A card in the ref of another task is not trusted.
                let card = Card::from_line(parts.next().unwrap_or_default());
                let card = card.filter(|card| ref_of(&card.task) == name);
                view.cards.push((name.to_owned(), oid.to_owned(), card));
            }
        }
        if view.tip.is_empty() { Err(self.no_branch()) } else { Ok(view) }
    }

    fn no_branch(&self) -> Fault {
        let what = format!("the branch `{}` of the remote `{}`", self.branch, self.name);
        Fault::missing(MissingKind::Branch, what)
    }

    pub(super) fn unreachable(&self, what: &str) -> Fault {
        Fault::Unreachable { remote: self.name.clone(), what: what.to_owned() }
    }

    pub(super) fn refused(&self, what: &str) -> Fault {
        Fault::RemoteRefused { remote: self.name.clone(), what: what.to_owned() }
    }

    /// The fault after too many tries.
    pub(super) fn takes_nothing(&self) -> Fault {
        self.unreachable("it does not take a push and gives no reason")
    }

    /// Changes all of these refs, or none.
    pub(super) fn push(&self, updates: &[Update], lock: &File) -> Result<PushResult> {
        let mut arguments: Vec<String> = Vec::new();
        for Update { name, old, .. } in updates {
            arguments.push(format!("--force-with-lease={name}:{}", old.as_deref().unwrap_or_default()));
        }
        arguments.extend(["--".to_owned(), self.name.clone()]);
        for Update { name, new, .. } in updates {
            arguments.push(format!("{}:{name}", new.as_deref().unwrap_or_default()));
        }
        let mut all =
            vec!["push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no"];
        all.extend((updates.len() > 1).then_some("--atomic"));
        all.extend(arguments.iter().map(String::as_str));
        let ran = self.git.remote(&all, lock)?;
        Ok(judge(&ran, updates))
    }
}

/// Reads git's report, which has a line for each ref. A push was taken only if the report says so for every ref.
fn judge(ran: &ProgramOutput, updates: &[Update]) -> PushResult {
    let out = String::from_utf8_lossy(&ran.out);
    let report: Vec<(char, &str, &str)> = out.lines().filter_map(report_line).collect();
    let unclear = || PushResult::Unclear(why(ran));
    if ran.ok {
        let taken = |update: &Update| {
            // `=`: the ref already had this value. That does not prove that this push set it, so the caller looks.
            report.iter().any(|(flag, name, _)| *name == update.name && matches!(flag, ' ' | '*' | '-' | '+'))
        };
        return if updates.iter().all(taken) { PushResult::Taken } else { unclear() };
    }
    let rejected: Vec<&str> =
        report.iter().filter(|(flag, ..)| *flag == '!').map(|(_, _, summary)| *summary).collect();
    // For the other refs of an atomic push, the report only says that the push failed.
    let causes: Vec<&str> = rejected.iter().copied().filter(|text| !text.contains("atomic")).collect();
    let causes = if causes.is_empty() { &rejected } else { &causes };
    if causes.iter().any(|text| is_a_rule(text)) {
        return PushResult::Refused(complaint(causes, &ran.err));
    }
    if !causes.is_empty() && causes.iter().all(|text| is_a_race(text)) {
        return PushResult::Moved(causes.join("; "));
    }
    if ran.err.contains("does not support --atomic") {
        return PushResult::Refused("it cannot change several refs in one act (no `--atomic`)".to_owned());
    }
    // A missing permission is reported before any ref.
    let denied = ["ermission denied", "denied to", "not allowed to push", "403", "read-only", "read only"];
    if rejected.is_empty() && denied.iter().any(|word| ran.err.contains(word)) {
        return PushResult::Refused(why(ran));
    }
    unclear()
}

/// `<flag>\t<from>:<to>\t<summary>`
fn report_line(line: &str) -> Option<(char, &str, &str)> {
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

/// The rule, and the server's own words about it.
fn complaint(causes: &[&str], err: &str) -> String {
    let reason = causes.iter().find(|text| is_a_rule(text)).and_then(|text| text.rsplit_once('('));
    let reason = reason.map_or("refused", |(_, reason)| reason.trim_end_matches(')'));
    let remote = err.lines().filter_map(|line| line.strip_prefix("remote:")).map(str::trim);
    match remote.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ") {
        said if said.is_empty() => reason.to_owned(),
        said => format!("{reason}: {said}"),
    }
}

/// Why a program failed: the most useful line of its error messages.
fn why(ran: &ProgramOutput) -> String {
    let is_reason = |line: &&str| ["fatal:", "error:", "ssh:"].iter().any(|word| line.starts_with(word));
    let line = ran.killed.or_else(|| ran.err.lines().find(is_reason)).or_else(|| ran.err.lines().next());
    line.unwrap_or("git gave no reason")
        .trim_start_matches("fatal: ")
        .trim_start_matches("error: ")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(name: &str) -> Update {
        Update { name: name.into(), old: None, new: Some("1".repeat(40)) }
    }

    fn ran(ok: bool, out: &str, err: &str) -> ProgramOutput {
        ProgramOutput { ok, out: out.as_bytes().to_vec(), err: err.into(), killed: None }
    }

    #[test]
    fn a_card_in_the_ref_of_another_task_is_not_trusted() {
        use crate::claim::ClaimRecord;
        use crate::state::Slot;
        let [program, folder, talking] = ["git", "/", "/"].map(std::path::PathBuf::from);
        let patience = std::time::Duration::ZERO;
        let git = Git { program, folder, repository: None, talking, patience, batch_ssh: false };
        let remote =
            Remote { git, name: "origin".into(), branch: "main".into(), claim_refs: "refs/t".into() };
        let card =
            Card::new(&"x".parse().unwrap(), "there", 1, ClaimRecord::new(Slot::NEEDS_ACTION)).unwrap();
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
    fn the_reports_of_git_are_told_apart() {
        let both = [update("refs/t/x"), update("refs/heads/main")];
        let taken = "To r\n*\t1:refs/t/x\t[new reference]\n \t1:refs/heads/main\ta..b\nDone\n";
        assert_eq!(judge(&ran(true, taken, ""), &both), PushResult::Taken);
        let there = "To r\n=\t1:refs/t/x\t[up to date]\n \t1:refs/heads/main\ta..b\nDone\n";
        assert!(
            matches!(judge(&ran(true, there, ""), &both), PushResult::Unclear(_)),
            "perhaps not by this push"
        );
        let half = "To r\n*\t1:refs/t/x\t[new reference]\nDone\n";
        assert!(matches!(judge(&ran(true, half, ""), &both), PushResult::Unclear(_)));
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
            assert!(matches!(judged, PushResult::Moved(_)), "{race}: {judged:?}");
        }
        let rule = "!\t1:refs/heads/main\t[remote rejected] (pre-receive hook declined)";
        let said = "remote: only on Sundays\nremote:\nerror: failed to push some refs";
        let refused = PushResult::Refused("pre-receive hook declined: only on Sundays".into());
        assert_eq!(judge(&ran(false, rule, said), &both), refused);
        let hidden = "!\t1:refs/t/x\t[remote rejected] (deny updating a hidden ref)";
        assert!(matches!(judge(&ran(false, hidden, ""), &both), PushResult::Refused(_)));
        let denied = "remote: Permission to a/b.git denied to c.\nfatal: unable to access 'https://x/': 403";
        assert!(matches!(judge(&ran(false, "", denied), &both), PushResult::Refused(_)));
        for cut in [
            "fatal: the remote end hung up unexpectedly",
            "fatal: Could not read from remote repository.",
            "",
        ] {
            assert!(matches!(judge(&ran(false, "", cut), &both), PushResult::Unclear(_)), "{cut}");
        }
        let odd = "!\t1:refs/t/x\t[remote rejected] (unpacker error)";
        assert!(matches!(judge(&ran(false, odd, ""), &both), PushResult::Unclear(_)));
    }
}

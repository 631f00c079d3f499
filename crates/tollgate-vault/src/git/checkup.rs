//! One round with the remote, and the checkup: what the remote allows, tasks in two folders, cards of tasks that are gone.
//!
//! In every round the person's working tree follows by a fast-forward that git itself allows, and only while the person is on
//! the branch and has no commit that the remote lacks. Git refuses if a file that would change is edited, staged or in the
//! way; then nothing is changed. Nothing is ever stashed, merged or rebased for a person.
//!
//! A claim needs refs of its own, and several changes in one act. That is tried once for each remote, before the first push,
//! with refs that are deleted at once: some hosts refuse the claim of a push and take the rest, even with `--atomic`.
//!
//! Invariants: a superfluous copy of a task is set aside, never only deleted. A card is deleted only if it is still the one
//! that was seen, and only if its owner cannot be alive.

use std::collections::BTreeMap;

use super::branch::{Delta, NewCommit};
use super::card::{Card, ref_of};
use super::clone::{Conversation, GitStore};
use super::remote::{PushResult, Update};
use super::seen::SeenRemote;
use super::tree::read;
use crate::block::author_len;
use crate::checkup::{Finding, LocalCopy, SyncRound};
use crate::claim::ClaimRecord;
use crate::claim_lock::Liveness;
use crate::state::{Slot, State};
use crate::store::Store;
use tollgate_base::error::Result;
use tollgate_base::name::random_id;
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// The state that has come furthest comes first.
const FURTHEST: [State; 6] = [
    State::Done,
    State::Rejected,
    State::PendingApproval,
    State::InProgress,
    State::Approved,
    State::NeedsAction,
];

impl GitStore {
    /// Tries what the remote allows, unless that was tried before. A refusal is a fault.
    pub(super) fn probe_once(&self, talk: &Conversation) -> Result<()> {
        if read(&self.private.join("probed"))?.is_some_and(|bytes| bytes == self.probed().as_bytes()) {
            return Ok(());
        }
        match self.probe(talk)? {
            None => Ok(()),
            Some(said) => Err(self.remote.refused(&format!(
                "{} ({said}); try `claim_refs = \"refs/heads/tollgate/claims\"`",
                self.probed_refs()
            ))),
        }
    }

    /// What a claim needs, for messages.
    fn probed_refs(&self) -> String {
        format!("refs under `{}`", self.remote.claim_refs)
    }

    /// The remote and the refs that were tried.
    fn probed(&self) -> String {
        format!("{} {}\n", self.remote.name, self.remote.claim_refs)
    }

    /// Tries it now, and remembers the result. The answer is why the remote refuses, in its own words.
    fn probe(&self, talk: &Conversation) -> Result<Option<String>> {
        let path = self.private.join("probed");
        let refused = self.try_claim_refs(talk)?;
        if refused.is_none() {
            self.tasks().disk().replace_file(&path, self.probed().as_bytes(), Durability::Fast)?;
        } else {
            let _ = private::remove_file(&path);
        }
        Ok(refused)
    }

    fn try_claim_refs(&self, talk: &Conversation) -> Result<Option<String>> {
        let mut updates = Vec::new();
        for _ in 0..2 {
            let task: TaskName = format!("probe-{}", random_id()?).parse()?;
            let card = Card::new(&task, &self.id, 0, ClaimRecord::new(Slot::NEEDS_ACTION))?;
            let (name, new) = (self.remote.card_ref(&ref_of(&task)), self.tree.branch.make_card(&card)?);
            updates.push(Update { name, old: None, new: Some(new) });
        }
        match self.remote.push(&updates, talk.0.file())? {
            PushResult::Taken => {}
            PushResult::Refused(what) => return Ok(Some(what)),
            PushResult::Moved(what) | PushResult::Unclear(what) => {
                return Err(self.remote.unreachable(&what));
            }
        }
        for update in &mut updates {
            update.old = update.new.take();
        }
        Ok(match self.remote.push(&updates, talk.0.file())? {
            PushResult::Refused(what) => Some(format!("refs cannot be deleted: {what}")),
            _ => None,
        })
    }

    /// Looks at the remote, the tree and the person's working tree, and fixes what can be fixed.
    pub(super) fn check_all(&self) -> Result<Vec<Finding>> {
        let talk = self.converse()?;
        if let Some(said) = self.probe(&talk)? {
            let what = format!("the remote refuses what claims need ({}): {said}", self.probed_refs());
            return Ok(vec![Finding::problem(what).fix(
                "allow refs under `[vault] claim_refs`, or set `claim_refs = \"refs/heads/tollgate/claims\"` in every clone",
            )]);
        }
        let (branch, remote) = (&self.remote.branch, &self.remote.name);
        let allowed = format!("branch `{branch}` of `{remote}` allows everything that a claim needs");
        let mut findings = vec![Finding::ok(allowed)];
        let synced = self.sync_once(&talk)?;
        self.fix_twice(&talk, &mut findings)?;
        self.delete_orphans(&talk, &mut findings)?;
        findings.extend(synced.followed.and_then(|followed| followed.why_not).map(Finding::warning));
        let aside = self.tree.kept_aside();
        if let Some(folder) = aside.first().and_then(|path| path.parent()) {
            let what = format!("files set aside: {}", aside.len());
            let fix = format!("check the files in `{}`, then delete them", folder.display());
            findings.push(Finding::warning(what).fix(fix));
        }
        Ok(findings)
    }

    /// Settles what was interrupted, looks at the remote, and brings the tree and the working tree up to date.
    pub(super) fn sync_once(&self, talk: &Conversation) -> Result<SyncRound> {
        let (aside, imported) = (self.tree.kept_aside(), self.seen()?.imported.clone());
        self.settle(talk)?;
        self.look(talk)?;
        let seen = self.seen()?;
        let followed = self.options.follow.then(|| self.follow(&seen.tip)).transpose()?;
        Ok(SyncRound {
            news: seen.imported != imported,
            aside: self.tree.kept_aside().into_iter().filter(|path| !aside.contains(path)).collect(),
            tip: seen.tip.clone(),
            followed,
        })
    }

    fn follow(&self, tip: &str) -> Result<LocalCopy> {
        let followed = |word| Ok(LocalCopy { word, why_not: None });
        let not_followed = |word, why: &str| {
            let why_not = Some(format!("the working tree was not updated: {why}"));
            Ok(LocalCopy { word, why_not })
        };
        let in_the_way =
            |what: &str| not_followed("in_the_way", &format!("{what}; commit it or move it away"));
        let (git, branch, own) = (&self.remote.git, &self.tree.branch, self.remote.branch_ref());
        let (name, merging) = self.repository.checked_out()?;
        let head = git.local(&["rev-parse", "--verify", "--quiet", &own], &[])?;
        if !head.ok || name != own {
            return not_followed("other_branch", "another branch is checked out; claims still work");
        }
        let head = head.text();
        if head == tip {
            return followed("up_to_date");
        }
        if !branch.is_ancestor(&head, tip)? {
            if branch.is_ancestor(tip, &head)? {
                return followed("ahead");
            }
            let why = "it has commits that the remote lacks; run `git pull --rebase`, then `git push`";
            return not_followed("diverged", why);
        }
        if let Some(file) = merging {
            return in_the_way(&format!("You have not concluded your merge ({file} exists)."));
        }
        let merge = ["-c", "merge.autoStash=false", "merge", "--ff-only", "--quiet", "--no-stat", tip];
        let ran = git.local(&merge, &[])?;
        if ran.ok {
            return followed("forward");
        }
        let lines = ran.err.lines();
        let mut lines = lines.skip_while(|line| line.starts_with("hint:") || line.starts_with("Updating "));
        let line = lines.next().unwrap_or("git gave no reason").trim_start_matches("error: ");
        // After a colon git lists the files, and then says what to do.
        let mut files = lines.take_while(|text| line.ends_with(':') && !text.starts_with("Please "));
        in_the_way(&match (files.next(), files.count()) {
            (None, _) => line.to_owned(),
            (Some(first), 0) => format!("{line} {first}"),
            (Some(first), more) => format!("{line} {first} and {more} more"),
        })
    }

    /// Fixes tasks that are in several folders, as merges by people leave them.
    fn fix_twice(&self, talk: &Conversation, findings: &mut Vec<Finding>) -> Result<()> {
        let mut found = Vec::new();
        let is_fixed = self.publish(talk, &mut Vec::new(), |seen| {
            self.catch_up()?;
            found = self.twice(seen)?;
            let copies =
                found.iter().flat_map(|(task, _, removed)| removed.iter().map(move |slot| (task, slot)));
            let changes: Vec<_> =
                copies.map(|(task, slot)| (self.tree.branch.path_of(task, slot), None)).collect();
            let names: Vec<&str> = found.iter().map(|(task, ..)| task.stem()).collect();
            let message = format!("tollgate: {} was in several folders", names.join(", "));
            Ok((!found.is_empty()).then_some((NewCommit { message, changes }, None)))
        })?;
        for (task, kept, removed) in found.into_iter().filter(|_| is_fixed) {
            for slot in &removed {
                self.tree.set_aside(&self.tasks().path(&task, slot), &task)?;
            }
            let removed: Vec<_> = removed.iter().map(|slot| format!("`{slot}`")).collect();
            findings.push(Finding::warning(format!(
                "`{task}` was also in {}; kept it in `{kept}` and set the other copy aside",
                removed.join(", ")
            )));
        }
        self.catch_up()
    }

    /// The tasks that are in several folders: where each belongs, and where its copies are. Two tasks of one name are not
    /// one task if their authors wrote different texts.
    fn twice(&self, seen: &SeenRemote) -> Result<Vec<(TaskName, Slot, Vec<Slot>)>> {
        let mut places: BTreeMap<TaskName, Vec<(Slot, String)>> = BTreeMap::new();
        for Delta { task, slot, new, .. } in self.tree.branch.diff(None, &seen.tip)? {
            places.entry(task).or_default().extend(new.map(|oid| (slot, oid)));
        }
        places.retain(|_, slots| slots.len() > 1);
        let contents = self.tree.branch.blobs(places.values().flatten().map(|(_, oid)| oid))?;
        let author = |oid: &String| contents.get(oid).map(|bytes| &bytes[..author_len(bytes)]);
        let mut found = Vec::new();
        for (task, mut slots) in places {
            let card = seen.card(&task).and_then(|found| found.card.as_ref()).map(|card| &card.record.slot);
            // It belongs where its card says; without a card, where it has come furthest.
            slots.sort_by_key(|(slot, _)| {
                (card != Some(slot), FURTHEST.iter().position(|state| *state == slot.state()))
            });
            let (kept, first) = slots.remove(0);
            let removed: Vec<Slot> = slots
                .into_iter()
                .filter(|(slot, oid)| !slot.state().is_final() && author(oid) == author(&first))
                // A finished task that a person puts back into `Needs_Action` is new, even with the same text.
                .filter(|(slot, _)| !(kept.state().is_final() && *slot == Slot::NEEDS_ACTION))
                .map(|(slot, _)| slot)
                .collect();
            if !removed.is_empty() {
                found.push((task, kept, removed));
            }
        }
        Ok(found)
    }

    /// Deletes the cards of tasks that are not where the card says and whose owners are gone.
    fn delete_orphans(&self, talk: &Conversation, findings: &mut Vec<Finding>) -> Result<()> {
        let seen = self.seen()?;
        let on_branch = self.tree.branch.diff(None, &seen.tip)?;
        for (name, found) in &seen.cards {
            let name = self.remote.card_ref(name);
            let Some(card) = &found.card else {
                findings.push(
                    Finding::warning(format!("this version cannot read `{name}`"))
                        .fix("install a newer tollgate; if there is none, delete that ref"),
                );
                continue;
            };
            // A task that a person moved keeps its card, because the card has the fencing number.
            let is_used = on_branch.iter().any(|Delta { task, slot, .. }| {
                *task == card.task && (*slot == card.record.slot || !slot.state().is_final())
            });
            let is_alive = match &card.record.claim {
                Some(claim) if card.clone == self.id => {
                    matches!(self.tasks().liveness(claim)?, Liveness::Alive)
                }
                _ => !found.is_silent(card),
            };
            if is_used || is_alive {
                continue;
            }
            let delete = Update { name, old: Some(found.oid.clone()), new: None };
            if self.remote.push(&[delete], talk.0.file())? == PushResult::Taken {
                let task = &card.task;
                findings.push(Finding::warning(format!(
                    "deleted a claim of `{task}`, which is no longer where the claim says"
                )));
            }
        }
        self.look(talk)
    }
}

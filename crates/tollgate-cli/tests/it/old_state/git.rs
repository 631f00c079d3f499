//! The vault over git: what a clone was doing when it was killed, and what it did while the remote was unreachable.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{OldState, Origin, each};
use crate::git::git;
use crate::world::until;

const CLONES: [&str; 4] = ["git/a", "git/b", "git/c", "git/offline"];

/// Tells a story of both states, after the person has deleted the setting that was removed.
fn each_upgraded(story: impl Fn(&OldState) + Sync) {
    each(|old| {
        let refused = old.run("git/offline", "sync");
        assert!(refused.filtered.contains("delete this line"), "{refused}");
        let config = old.path("git/offline/.tollgate/config.toml");
        let text = fs::read_to_string(&config).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("offline"));
        fs::write(&config, lines.collect::<Vec<_>>().join("\n")).unwrap();
        story(old);
    });
}

/// The commit of the remote's branch.
fn tip(old: &OldState) -> String {
    git(&old.path("git/remote.git"), &["rev-parse", "main"])
}

/// The tasks on the remote's branch: the folder of each, by its name.
fn on_branch(old: &OldState) -> BTreeMap<String, String> {
    let listed = git(&old.path("git/remote.git"), &["ls-tree", "-r", "--name-only", "main", "vault/"]);
    let tasks: Vec<(String, String)> = listed
        .lines()
        .map(|path| {
            let (folder, name) = path.strip_prefix("vault/").unwrap().rsplit_once('/').unwrap();
            (name.to_owned(), folder.to_owned())
        })
        .collect();
    let by_name: BTreeMap<_, _> = tasks.iter().cloned().collect();
    assert_eq!(by_name.len(), tasks.len(), "each task is in one folder: {tasks:?}");
    by_name
}

/// The file of a task, as the remote has it.
fn remote_text(old: &OldState, task: &str) -> String {
    let name = format!("{task}.md");
    let path = format!("main:vault/{}/{name}", on_branch(old)[&name]);
    git(&old.path("git/remote.git"), &["cat-file", "blob", &path])
}

#[track_caller]
fn count_of(old: &OldState, words: &str) -> usize {
    let subjects = git(&old.path("git/remote.git"), &["log", "--format=%s", "main"]);
    subjects.lines().filter(|line| *line == words).count()
}

#[test]
fn what_was_pushed_stands_and_what_was_not_never_happened() {
    each_upgraded(|old| {
        for clone in CLONES {
            old.run(clone, "sync").is(0);
        }
        // The remote had the release, the tree had not.
        assert_eq!(old.state("git/a", "release-pushed"), "Done");
        assert_eq!(old.told("git/a", "release-pushed"), ["CLAIM", "RELEASE"]);
        assert!(remote_text(old, "release-pushed").contains("pushed"));
        // The remote had the claim, the tree had half of it. Its owner was never told, so it has the lease to wait for.
        let shown = old.json("git/b", "task show claim-pushed");
        assert_eq!((&shown["state"], &shown["agent"]), (&"In_Progress".into(), &"cloud".into()));
        assert_eq!(old.told("git/b", "claim-pushed"), ["CLAIM"]);
        assert_eq!(count_of(old, "tollgate: cloud claims claim-pushed"), 1);
        let id = shown["claim_id"].as_str().unwrap();
        let released = old.json("git/b", &format!("task release claim-pushed --claim-id {id}"));
        assert_eq!(released["state"], "Done");
        // The remote never heard of this claim.
        assert_eq!(old.state("git/c", "claim-not-pushed"), "Needs_Action");
        assert_eq!(old.told("git/c", "claim-not-pushed"), Vec::<String>::new());
        assert_eq!(old.json("git/c", "task claim claim-not-pushed --agent cloud")["claimed"], true);
        nothing_is_lost(old);
    });
}

#[test]
fn owners_over_git_go_on_or_are_taken_back() {
    each_upgraded(|old| {
        let epoch = |value: &Value| value["epoch"].as_u64().unwrap();
        let alive = old.claim_id("git/a", "leased-alive").to_owned();
        for clone in ["git/a", "git/b"] {
            old.run(clone, &format!("task verify leased-alive --claim-id {alive}")).is(0);
        }
        let refused = old.run("git/b", "task claim leased-alive --agent third --json").is(1).json();
        assert_eq!(refused["reason"], "lost");
        let progress = format!("task progress leased-alive further --claim-id {alive}");
        old.run("git/a", &progress).is(0);
        let released = old.json("git/a", &format!("task release leased-alive --claim-id {alive}"));
        assert_eq!(released["state"], "Done");

        // An expired lease is reclaimed, also by a clone that has just seen it.
        until("the expired claim to be reclaimed", || {
            old.run("git/a", "task reclaim").is(0);
            (old.state("git/a", "leased-lapsed") == "Needs_Action").then_some(())
        });
        let claim = old.json("git/a", "task claim leased-lapsed --agent local");
        assert!(epoch(&claim) > epoch(old.task("git/a", "leased-lapsed")), "{claim}");

        // The lock of a held claim is on the machine of its clone. A copy is another clone and waits for the lease.
        let held = match old.origin {
            Origin::UpgradedInPlace => "Needs_Action",
            Origin::Copied => "In_Progress",
        };
        assert_eq!(old.state("git/a", "held-dead"), held);
        let claim = old.json("git/a", "task claim returned --agent local");
        assert!(epoch(&claim) > epoch(old.task("git/a", "returned")), "{claim}");
        assert_eq!(old.json("git/a", "task show returned")["attempts"], 2);
        nothing_is_lost(old);
    });
}

#[test]
fn what_was_done_offline_reaches_the_remote() {
    each_upgraded(|old| {
        let synced = old.json("git/offline", "sync");
        assert_eq!(synced["aside"], json!([]));
        let branch = on_branch(old);
        assert_eq!(
            (branch["done-offline.md"].as_str(), branch["new-offline.md"].as_str()),
            ("Done", "Needs_Action")
        );
        assert!(remote_text(old, "done-offline").contains("done offline"));
        let before = tip(old);
        old.run("git/offline", "sync").is(0);
        assert_eq!(tip(old), before, "once");
        old.run("git/b", "sync").is(0);
        assert_eq!(old.state("git/b", "done-offline"), "Done");
        nothing_is_lost(old);
    });
}

/// Every clone looks at the remote once. Then the branch has every task, and each begins with what its author wrote.
#[track_caller]
fn nothing_is_lost(old: &OldState) {
    for clone in CLONES {
        old.run(clone, "sync").is(0);
        assert_eq!(old.run(clone, "doctor --json").is(0).json()["healthy"], true, "{clone}");
    }
    let branch = on_branch(old);
    let mut authors = BTreeMap::new();
    for clone in CLONES {
        authors.extend(old.authors(clone));
    }
    assert!(branch.keys().eq(authors.keys()), "{branch:?}");
    for (name, author) in authors {
        let text = remote_text(old, Path::new(&name).file_stem().unwrap().to_str().unwrap());
        assert!(text.starts_with(author.trim_end()), "{name}: {text}");
    }
}

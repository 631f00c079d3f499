//! The vault: where every task is, who owns it, and that all of them can be worked to their end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{OldState, Origin, each, task_files};

/// Where each task is when the old state is opened: its state, whose it is, and the number of attempts.
const TASKS: [(&str, &str, &str, u64); 38] = [
    ("waiting", "Needs_Action", "", 0),
    ("waiting-important", "Needs_Action", "", 0),
    ("waiting-by-hand", "Needs_Action", "", 0),
    ("überweisung", "Needs_Action", "", 0),
    ("lost-race", "Needs_Action", "", 0),
    ("taken-away", "Needs_Action", "", 0),
    ("returned-once", "Needs_Action", "", 1),
    ("returned-twice", "Needs_Action", "", 2),
    // No agent got the answer to these claims, so nobody works on them. The attempt did not begin and does not count.
    ("claim-cut-moved-321", "Needs_Action", "", 0),
    ("claim-cut-told", "Needs_Action", "", 0),
    ("claim-cut-approved", "Approved", "", 1),
    // Every other interrupted step is completed.
    ("reclaim-cut-moved", "Needs_Action", "", 1),
    ("release-cut-written", "Done", "", 0),
    ("release-cut-moved", "Done", "", 0),
    ("release-cut-told", "Done", "", 0),
    ("owed-release", "Done", "", 0),
    ("neighbour-release", "Done", "", 0),
    ("approve-cut-moved", "Approved", "", 1),
    ("leased-alive", "In_Progress", "cloud", 1),
    ("leased-alive-payment", "In_Progress", "local", 1),
    ("leased-lapsed", "In_Progress", "cloud", 1),
    ("leased-lapsed-payment", "In_Progress", "local", 1),
    ("held-dead", "In_Progress", "local", 1),
    ("held-dead-payment", "In_Progress", "local", 1),
    ("no-claim", "In_Progress", "local", 0),
    ("draft", "Pending_Approval", "", 1),
    ("approved", "Approved", "", 1),
    ("approved-by-hand", "Approved", "", 1),
    ("approved-then-changed", "Approved", "", 1),
    ("done", "Done", "", 0),
    ("same-name", "Done", "", 0),
    ("from-the-neighbour", "Done", "", 0),
    ("gave-up", "Rejected", "", 0),
    ("rejected-by-person", "Rejected", "", 0),
    ("bulk-00", "Needs_Action", "", 0),
    ("bulk-13", "Needs_Action", "", 0),
    ("bulk-26", "Needs_Action", "", 0),
    ("bulk-39", "Needs_Action", "", 0),
];

/// Everything that was in the vault, by the manifests of the two workspaces that share it.
fn authors(old: &OldState) -> BTreeMap<String, String> {
    let mut authors = old.authors("folder");
    authors.extend(old.authors("neighbour"));
    assert!(authors.len() > 70, "{}", authors.len());
    authors
}

/// The tasks are those of the manifest, each in one folder, and each begins with what its author wrote.
#[track_caller]
fn nothing_is_lost(old: &OldState) {
    let files = task_files(&old.path("folder/vault"));
    let authors = authors(old);
    assert!(files.keys().eq(authors.keys()), "{:?}", files.keys());
    for (name, author) in authors {
        let text = String::from_utf8(files[&name].1.clone()).unwrap();
        assert!(text.starts_with(&author), "{name}: {text}");
    }
}

#[test]
fn every_task_is_where_it_was_with_every_byte() {
    each(|old| {
        let before = task_files(&old.path("folder/vault"));
        let board = old.board("folder");
        assert!(board.keys().eq(authors(old).keys()), "{:?}", board.keys());
        for (task, state, agent, attempts) in TASKS {
            let row = &board[&format!("{task}.md")];
            let found =
                (row["state"].as_str(), row["agent"].as_str().unwrap_or(""), row["attempts"].as_u64());
            assert_eq!(found, (Some(state), agent, Some(attempts)), "{task}");
            if state == "In_Progress" {
                assert_eq!(row["claim_id"], old.task("folder", task)["claim_id"], "{task}");
            }
        }
        nothing_is_lost(old);
        let after = task_files(&old.path("folder/vault"));
        for (name, found) in &before {
            if !name.contains("-cut-") {
                assert_eq!(found, &after[name], "{name} stays as it was");
            }
        }
        // An interrupted step is rolled back or completed.
        for task in ["claim-cut-moved-321", "claim-cut-told"] {
            let author = old.task("folder", task)["author"].as_str().unwrap().as_bytes();
            assert_eq!(after[&format!("{task}.md")].1, author, "{task}");
        }
        for task in ["release-cut-written", "release-cut-moved", "release-cut-told"] {
            let text = String::from_utf8(after[&format!("{task}.md")].1.clone()).unwrap();
            for word in ["## Completion", "**Result**: success", "cut short"] {
                assert_eq!(text.matches(word).count(), 1, "{task}: {text}");
            }
        }
        let leased = String::from_utf8(after["leased-alive.md"].1.clone()).unwrap();
        assert!(leased.contains("half way"), "{leased}");
    });
}

#[test]
fn living_owners_keep_their_tasks() {
    each(|old| {
        for task in ["leased-alive", "leased-alive-payment"] {
            let id = old.claim_id("folder", task);
            let shown = old.json("folder", &format!("task show {task}"));
            assert_eq!(
                (&shown["claim_id"], &shown["epoch"]),
                (&id.into(), &old.task("folder", task)["epoch"])
            );
            old.run("folder", &format!("task verify {task} --claim-id {id}")).is(0);
            let stranger =
                old.run("folder", &format!("task verify {task} --claim-id c-0123456789abcdef --json"));
            assert_eq!(stranger.is(1).json()["valid"], false, "{task}");
            let answer = old.run("folder", &format!("task claim {task} --agent third --json")).is(1).json();
            assert_eq!(answer["claimed"], false, "{task}");
            old.run("folder", &format!("task progress {task} further --claim-id {id}")).is(0);
            old.run("folder", &format!("task renew {task} --claim-id {id}")).is(0);
            let released = old.json("folder", &format!("task release {task} --claim-id {id}"));
            assert_eq!(released["state"], "Done", "{task}");
            old.run("folder", &format!("task verify {task} --claim-id {id}")).is(1);
        }
        nothing_is_lost(old);
    });
}

#[test]
fn only_the_tasks_of_dead_owners_are_reclaimed() {
    each(|old| {
        let dead = [
            ("held-dead-payment", "local", "Pending_Approval"),
            ("held-dead", "local", "Needs_Action"),
            ("leased-lapsed-payment", "local", "Pending_Approval"),
            ("leased-lapsed", "cloud", "Needs_Action"),
        ];
        let row = |(task, agent, state): (&str, &str, &str)| json!({"task": format!("{task}.md"), "agent": agent, "state": state, "reason": "interrupted"});
        let mut reclaimed = old.json("folder", "task reclaim").as_array().unwrap().clone();
        reclaimed.sort_by_key(|row| row["task"].to_string());
        assert_eq!(reclaimed, dead.map(row));
        assert_eq!(old.json("folder", "task reclaim"), json!([]), "once");
        for (task, _, state) in dead {
            let id = old.claim_id("folder", task);
            // The old owner is fenced off.
            old.run("folder", &format!("task release {task} --claim-id {id}")).is(1);
            assert_eq!(old.state("folder", task), state, "{task}");
        }
        nothing_is_lost(old);
    });
}

#[test]
fn attempts_and_fencing_numbers_continue() {
    each(|old| {
        let fails = |task: &str| {
            let claim = old.json("folder", &format!("task claim {task} --agent local"));
            let epoch = |value: &Value| value["epoch"].as_u64().unwrap();
            assert!(epoch(&claim) > epoch(old.task("folder", task)), "{task}: {claim}");
            let id = claim["claim_id"].as_str().unwrap();
            let words = format!("task release {task} --claim-id {id} --result failure --note no");
            old.json("folder", &words)["state"].as_str().unwrap().to_owned()
        };
        assert_eq!(fails("returned-twice"), "Rejected", "the third of three attempts");
        assert_eq!(fails("returned-once"), "Needs_Action");
        assert_eq!(fails("returned-once"), "Rejected");
        assert_eq!(fails("reclaim-cut-moved"), "Needs_Action");
        // A person moved it away from its owner: the attempts start again, the fencing number does not.
        assert_eq!(fails("taken-away"), "Needs_Action");
        assert_eq!(old.json("folder", "task show taken-away")["attempts"], 1);
        nothing_is_lost(old);
    });
}

#[test]
fn an_approval_holds_for_the_bytes_that_were_approved() {
    each(|old| {
        for task in ["approved", "approved-by-hand", "approve-cut-moved", "claim-cut-approved"] {
            let refused = old.run("folder", &format!("task claim {task} --agent cloud --json")).is(1).json();
            assert_eq!(refused["reason"], "not_eligible", "{task}");
            let claim = old.json("folder", &format!("task claim {task} --agent local"));
            assert_eq!(claim["mode"], "execute", "{task}");
        }
        let refused = old.run("folder", "task claim approved-then-changed --agent local --json").is(1).json();
        assert_eq!(refused["reason"], "not_eligible");
        assert_eq!(old.state("folder", "approved-then-changed"), "Pending_Approval");
        // The draft is the one that was offered, also if a person approves it by moving it.
        let vault = old.path("folder/vault");
        std::fs::rename(vault.join("Pending_Approval/draft.md"), vault.join("Approved/draft.md")).unwrap();
        assert_eq!(old.json("folder", "task claim draft --agent local")["mode"], "execute");
        nothing_is_lost(old);
    });
}

#[test]
fn the_figures_are_kept() {
    each(|old| {
        old.board("folder");
        let figures = old.json("folder", "task figures");
        let rows = figures["agents"].as_array().unwrap();
        let known = old.known("folder")["figures"].as_object().unwrap();
        assert_eq!((rows.len(), known.len()), (3, 3));
        for row in rows {
            let known = &known[row["agent_name"].as_str().unwrap()];
            for key in ["total_claims", "claim_conflicts_avoided", "claim_success_rate"] {
                assert_eq!(row[key], known[key], "{key} of {row}");
            }
        }
    });
}

#[test]
fn a_worker_can_finish_everything() {
    each(|old| {
        let words = "work --agent local --once --jobs 2 --json -- true";
        let done = old.run("folder", words).is(0).json();
        assert_eq!(done["failed"], 0, "{done}");
        let board = old.board("folder");
        let left = |state: &str| -> Vec<&str> {
            board.iter().filter(|(_, row)| row["state"] == state).map(|(name, _)| name.as_str()).collect()
        };
        assert_eq!(left("Needs_Action"), Vec::<&str>::new());
        assert_eq!(left("Approved"), Vec::<&str>::new());
        assert_eq!(left("In_Progress"), ["leased-alive-payment.md", "leased-alive.md", "no-claim.md"]);
        assert_eq!(
            left("Pending_Approval"),
            ["approved-then-changed.md", "draft.md", "held-dead-payment.md", "leased-lapsed-payment.md"]
        );
        assert_eq!(left("Rejected"), ["gave-up.md", "rejected-by-person.md"]);
        nothing_is_lost(old);
        let doctor = old.run("folder", "doctor --json").is(0).json();
        assert_eq!(doctor["healthy"], true, "{doctor}");
    });
}

#[test]
fn the_neighbour_sees_the_same_tasks() {
    each(|old| {
        let ours: Vec<_> = old.board("folder").into_keys().collect();
        let theirs = old.board("neighbour");
        assert!(theirs.keys().eq(&ours), "{:?}", theirs.keys());
        let id = old.claim_id("folder", "leased-alive");
        old.run("neighbour", &format!("task verify leased-alive --claim-id {id}")).is(0);
        let told = old.told("neighbour", "neighbour-release");
        // A copy may leave the line to the workspace that it was copied from.
        let left = old.origin == Origin::Copied && told == ["CLAIM"];
        assert!(left || told == ["CLAIM", "RELEASE"], "{told:?}");
    });
}

//! Drafts that somebody moves to `Approved/` with a tool that knows nothing of tollgate, as an agent's program can.

use std::fs;

use crate::world::World;

const ROLES: &str = "[vault]\nsettle = \"0ms\"\ndurability = \"fast\"\nretry = []\n";
const AGENTS: &str = "[agent.cloud]\nsensitive = [\"payment\"]\n[agent.local]\nallowed = [\"payment\"]\n";

/// A workspace in which `rent` and `wages` wait for a person, under these settings of the vault.
fn pending(settings: &str) -> World {
    let world = World::with(&format!("{ROLES}{settings}{AGENTS}"));
    world.run("init --vault").is(0);
    for task in ["rent", "wages"] {
        world.run(&format!("task add {task} --action payment")).is(0);
        let id =
            world.json(&format!("task claim {task} --agent cloud"))["claim_id"].as_str().unwrap().to_owned();
        world
            .tollgate(["task", "draft", task, "--claim-id", &id, &format!("pay 900 for {task}")])
            .ends()
            .is(0);
        world.run(&format!("task release {task} --claim-id {id}")).is(0);
    }
    world
}

fn shell(world: &World, script: &str) {
    let ran = world.program("sh", ["-ec", script]).folder(world.path("vault")).ends();
    ran.is(0);
}

/// Nobody executes the task, by name or from the queue; it waits for a person, who learns why.
fn is_sent_back(world: &World, script: &str, why: &str) {
    world.run("task claim rent --agent local --json").is(1);
    let ran = world.tollgate(["work", "--agent", "local", "--once", "--json", "--", "true"]).ends().is(0);
    assert_eq!(ran.json()["done"], 0, "{script}");
    let row = &world.json("task show rent");
    assert_eq!(row["state"], "Pending_Approval", "{script}");
    let reason = row["reason"].as_str().unwrap_or_default();
    assert!(reason.contains(why) && reason.contains("`tollgate task approve`"), "{script}: {reason}");
    assert!(world.run("task list").is(0).stdout().contains(why), "{script}");
    assert_eq!(world.json("ledger tail --type CLAIM --agent local").as_array().unwrap().len(), 0, "{script}");
}

const MOVE: &str = "mv Pending_Approval/rent.md Approved/";

#[test]
fn a_moved_draft_is_not_executed() {
    for script in [
        MOVE,
        "cp Pending_Approval/rent.md Approved/; rm Pending_Approval/rent.md",
        "ln Pending_Approval/rent.md Approved/; rm Pending_Approval/rent.md",
        "mv Pending_Approval/rent.md Needs_Action/; mv Needs_Action/rent.md Approved/",
        "mv Pending_Approval/rent.md Approved/; mv Approved/rent.md Pending_Approval/; mv Pending_Approval/rent.md Approved/",
        "cat Pending_Approval/rent.md > Approved/rent.md; rm Pending_Approval/rent.md",
    ] {
        let world = pending("");
        shell(&world, script);
        is_sent_back(&world, script, "which approves nothing here");
        shell(&world, MOVE);
        is_sent_back(&world, script, "which approves nothing here");
    }
}

#[test]
fn a_person_approves_a_draft_that_somebody_has_moved() {
    let world = pending("");
    shell(&world, MOVE);
    let said = world.tollgate(["task", "approve", "rent"]).typed("yes").is(0);
    assert!(said.shown.contains("pay 900 for rent"), "{}", said.shown);
    assert_eq!(world.json("task claim rent --agent local")["mode"], "execute");
    let decided = world.json("ledger tail --type APPROVAL");
    assert!(!decided.to_string().contains("\"hand\""), "{decided}");
}

#[test]
fn where_a_move_approves_it_approves_only_the_text_that_was_offered() {
    let edit = "sed -i s/900/9000/";
    for script in [
        format!("{edit} Pending_Approval/rent.md; {MOVE}"),
        format!("{MOVE}; {edit} Approved/rent.md"),
        format!(
            "cp Pending_Approval/rent.md x; {edit} x; rm Pending_Approval/rent.md; mv x Approved/rent.md"
        ),
        // The text of another task that waits.
        "mv Pending_Approval/wages.md Approved/rent.md; rm Pending_Approval/rent.md".to_owned(),
        format!(
            "mv Pending_Approval/rent.md Rejected/; {edit} Rejected/rent.md; mv Rejected/rent.md Approved/"
        ),
    ] {
        let world = pending("approve_by_move = true\n");
        shell(&world, &script);
        for _ in 0..3 {
            is_sent_back(&world, &script, "another text than was offered");
            shell(&world, MOVE);
        }
    }
}

#[test]
fn a_file_that_was_never_offered_is_not_approved_by_moving_it_again() {
    let world = pending("approve_by_move = true\n");
    shell(&world, "rm Pending_Approval/rent.md; printf '**Action**: payment\n' > Approved/forged.md");
    for _ in 0..3 {
        world.run("task claim forged --agent local --json").is(1);
        assert!(world.path("vault/Pending_Approval/forged.md").exists());
        fs::rename(world.path("vault/Pending_Approval/forged.md"), world.path("vault/Approved/forged.md"))
            .unwrap();
    }
}

//! Only the version that was shown can be decided, and a second decision gets a clear answer.

use tollgate::digest::Digest;
use tollgate::vault::state::State;

use crate::world::World;

#[test]
fn only_the_version_that_was_shown_is_approved() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let visitor = world.visits("/approvals?task=x.md");
    visitor.reply.has("ten coins");
    assert_eq!(visitor.seen.clone().unwrap(), Digest::of(world.text("x").as_bytes()).to_string());
    world.meddles("x", "ten coins", "a million");
    let reply = visitor.sends("/tasks/x.md/approve", &[]);
    assert_eq!(reply.status, 409);
    reply.has("changed while you were looking at it").has("a million").lacks("ten coins");
    assert_eq!(world.state("x"), State::PendingApproval, "nobody approved a million");
    // The page asks again, with the current version.
    let again = world.visits("/approvals?task=x.md");
    assert_eq!(reply.field("seen"), again.seen);
    assert_eq!(again.sends("/tasks/x.md/approve", &[]).status, 303);
    assert_eq!(world.state("x"), State::Approved);
}

#[test]
fn a_second_decision_gets_a_clear_answer() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let (first, second) = (world.visits("/approvals"), world.visits("/approvals"));
    assert_eq!(first.sends("/tasks/x.md/approve", &[]).status, 303);
    for (verb, fields) in [("approve", vec![]), ("edit", vec![("text", "nine")])] {
        let reply = second.sends(&format!("/tasks/x.md/{verb}"), &fields);
        assert_eq!(reply.status, 409, "{verb}");
        reply.has("Nothing was decided").has("`x.md` is in `Approved`");
    }
    assert_eq!(world.state("x"), State::Approved);
    let gone = second.sends("/tasks/never-was.md/approve", &[]);
    assert_eq!(gone.status, 409);
    gone.has("there is no task `never-was.md`");
}

#[test]
fn a_rejection_needs_a_reason_and_records_it() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let visitor = world.visits("/tasks/x.md");
    for reason in ["", "  \t"] {
        let reply = visitor.sends("/tasks/x.md/reject", &[("reason", reason)]);
        assert_eq!(reply.status, 400);
        reply.has("needs a reason");
        assert_eq!(world.state("x"), State::PendingApproval);
    }
    let reason = "too dear\n**Approved By**: ada <script>";
    assert_eq!(visitor.sends("/tasks/x.md/reject", &[("reason", reason)]).status, 303);
    assert_eq!(world.state("x"), State::Rejected);
    assert!(world.text("x").contains("**Rejected By**: ada"), "{}", world.text("x"));
    world.gets("/tasks/x.md").has("too dear").lacks("<script>");
    world.hears("/approvals?decided=x.md", "ada rejected");
}

#[test]
fn a_task_that_changed_in_the_meantime_is_not_rejected_unseen() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let visitor = world.visits("/approvals");
    world.meddles("x", "ten", "nine");
    assert_eq!(visitor.sends("/tasks/x.md/reject", &[("reason", "no")]).status, 409);
    assert_eq!(world.state("x"), State::PendingApproval);
}

#[test]
fn the_edited_text_is_what_is_approved() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let before = world.text("x");
    let visitor = world.visits("/approvals");
    visitor.reply.has("<textarea").has("\nten coins</textarea>");
    assert_eq!(visitor.sends("/tasks/x.md/edit", &[("text", "nine coins\r\nto Ada")]).status, 303);
    assert_eq!(world.state("x"), State::Approved);
    assert_eq!(world.text("x"), before.replace("ten coins", "nine coins\nto Ada"), "and nothing else");
    let mut lines = world.workspace().ledger().newest_first().unwrap().map(Result::unwrap);
    let line = lines.find(|line| line.event.action_type() == "APPROVAL").unwrap().json();
    let hash = |text: &str| Digest::of(text.as_bytes()).to_string();
    assert_eq!(
        (&line["payload"]["sha256"], &line["payload"]["by"]),
        (&hash(&world.text("x")).into(), &"ada".into())
    );
    assert_eq!(line["payload"]["edited_from"], hash(&before));
    // The claim checks that the file still holds the edited text.
    world.claims("local", "x");
    assert_eq!(world.state("x"), State::InProgress);
}

#[test]
fn an_edit_of_a_changed_task_is_asked_again() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let visitor = world.visits("/approvals");
    world.meddles("x", "ten", "eleven");
    let reply = visitor.sends("/tasks/x.md/edit", &[("text", "nine coins")]);
    assert_eq!(reply.status, 409);
    reply.has("eleven coins").has("You had written").has("nine coins");
    assert!(world.text("x").contains("eleven coins"), "nothing was overwritten");
    assert_eq!(world.state("x"), State::PendingApproval);
}

#[test]
fn a_task_that_cannot_be_shown_in_full_is_not_decided_on_the_page() {
    let world = World::new();
    world.drafted("long", &"x".repeat(600 << 10));
    world.gets("/approvals").has("you cannot decide it here").lacks("id=\"approve\"");
    let odd = World::new();
    odd.drafted("odd", "ten");
    let mut bytes = std::fs::read(odd.place("odd")).unwrap();
    bytes.push(0xff);
    std::fs::write(odd.place("odd"), bytes).unwrap();
    odd.gets("/tasks/odd.md").has("you cannot decide it here").lacks("id=\"approve\"");
}

#[test]
fn after_a_decision_nothing_is_open() {
    let world = World::new();
    world.drafted("x", "ten coins");
    world.drafted("y", "a million");
    let visitor = world.visits("/approvals");
    visitor.reply.has("ten coins").lacks("a million");
    let reply = visitor.sends("/tasks/x.md/approve", &[]);
    // A stray key press must not decide a task that nobody has looked at.
    world
        .gets(reply.header("location").unwrap())
        .has("/approvals?task=y.md")
        .lacks("id=\"approve\"")
        .lacks("a million");
}

//! Only the version that was shown can be decided, and a second decision gets a clear answer.

use jiff::Timestamp;
use tollgate::digest::Digest;
use tollgate::vault::state::State;

use crate::world::{World, name};

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
fn after_a_decision_the_next_task_is_open_and_cannot_be_decided_at_once() {
    let world = World::new();
    for (task, draft) in [("x", "ten coins"), ("y", "a million"), ("z", "a house")] {
        world.drafted(task, draft);
    }
    let visitor = world.visits("/approvals?task=y.md");
    visitor.reply.has("a million").has("name=\"next\" value=\"z.md\"").lacks("arming");
    let reply = visitor.sends("/tasks/y.md/approve", &[("next", "z.md")]);
    let location = reply.header("location").unwrap().to_owned();
    assert_eq!(location, "/approvals?decided=y.md&task=z.md");
    // The stylesheet and the script refuse a stray click or key, because of `arming`.
    world.gets(&location).has("a house").has("arming").has("name=\"next\" value=\"x.md\"");
    // Somebody else has decided the next one: the oldest is open instead.
    world.vault().reject(&name("z"), "me", "no", Timestamp::now()).unwrap().unwrap();
    world.hears(&location, "ten coins").has("arming").lacks("is not waiting for a decision");
    let last = world.visits("/approvals");
    last.reply.lacks("name=\"next\"");
    let reply = last.sends("/tasks/x.md/approve", &[]);
    world.hears(reply.header("location").unwrap(), "Nothing is waiting for you");
}

#[test]
fn a_draft_is_sent_back_with_what_should_be_different() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let visitor = world.visits("/approvals");
    let nothing = visitor.sends("/tasks/x.md/changes", &[("reason", " ")]);
    assert_eq!(nothing.status, 400);
    nothing.has("needs a reason");
    assert_eq!(world.state("x"), State::PendingApproval);
    assert_eq!(visitor.sends("/tasks/x.md/changes", &[("reason", "nine <b>coins</b>")]).status, 303);
    assert_eq!(world.state("x"), State::NeedsAction);
    assert!(world.text("x").contains("**Reason**: nine <b>coins</b>\n"), "{}", world.text("x"));
    world.hears("/tasks/x.md", "nine &lt;b&gt;coins").lacks("<h3 id=\"draft-title\"");
    // What was changed in the meantime is not sent back unseen.
    world.drafted("y", "ten coins");
    let visitor = world.visits("/approvals?task=y.md");
    world.meddles("y", "ten", "eleven");
    assert_eq!(visitor.sends("/tasks/y.md/changes", &[("reason", "nine")]).status, 409);
    assert_eq!(world.state("y"), State::PendingApproval);
}

#[test]
fn an_edited_draft_waits_if_it_is_only_saved() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let before = world.text("x");
    let visitor = world.visits("/approvals");
    let saved = visitor.sends("/tasks/x.md/edit", &[("text", "nine coins"), ("then", "wait")]);
    assert_eq!(saved.header("location"), Some("/approvals?decided=x.md&task=x.md"));
    assert_eq!(world.state("x"), State::PendingApproval);
    assert_eq!(world.text("x"), before.replace("ten coins", "nine coins"));
    world.hears(saved.header("location").unwrap(), "ada edited").has("nine coins").has("id=\"approve\"");
    // The first page shows a text that is not there any more.
    assert_eq!(visitor.sends("/tasks/x.md/approve", &[]).status, 409);
    assert_eq!(world.state("x"), State::PendingApproval);
}

#[test]
fn a_task_without_a_draft_does_not_look_like_one_with_a_draft() {
    let world = World::new();
    world.drafted("x", "ten coins");
    world.gets("/tasks/x.md").has("Drafted by").has(">Approve<").lacks("There is no draft");
    world.vault().approve(&name("x"), "ada", None, Timestamp::now()).unwrap().unwrap();
    // It may have been executed, so a person decides whether it should happen again.
    let executing = world.claims("local", "x");
    let failed = tollgate::vault::Release::failure("no money");
    world.vault().release(&name("x"), &executing.claim.id, &failed, Timestamp::now()).unwrap().unwrap();
    world.add("y", "---\naction: pay\n---\n# Pay\n");
    let failing = world.claims("green", "y");
    world.vault().release(&name("y"), &failing.claim.id, &failed, Timestamp::now()).unwrap().unwrap();
    if world.state("y") == State::NeedsAction {
        let by_hand = world.root().join("vault/Pending_Approval/y.md");
        std::fs::rename(world.place("y"), by_hand).unwrap();
    }
    world
        .hears("/tasks/y.md", "There is no draft")
        .has("Approve without a draft")
        .has("Last owner")
        .lacks("Drafted by");
}

#[test]
fn a_rejection_is_undone() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let reply = world.visits("/approvals").sends("/tasks/x.md/reject", &[("reason", "no")]);
    let decided = world.visits(reply.header("location").unwrap());
    decided.reply.has("id=\"undo\"");
    assert_eq!(decided.sends("/tasks/x.md/undo", &[]).status, 303);
    assert_eq!(world.state("x"), State::PendingApproval);
    world.hears("/approvals?task=x.md", "ten coins").has("id=\"approve\"").lacks("There is no draft");
}

#[test]
fn tasks_of_one_action_are_decided_together_as_they_were_shown() {
    let world = World::new();
    for (task, draft) in
        [("a", "one coin"), ("b", "two coins"), ("c", "<i>three</i> coins"), ("d", "four coins")]
    {
        world.drafted(task, draft);
    }
    world.gets("/approvals").has("/approvals/all?action=pay");
    let visitor = world.visits("/approvals/all?action=pay");
    visitor.reply.has("one coin").has("two coins").has("&lt;i&gt;three&lt;/i&gt; coins").has("four coins");
    let shown = |task: &str| format!("{} {task}.md", Digest::of(world.text(task).as_bytes()));
    let (a, b, c, d) = (shown("a"), shown("b"), shown("c"), shown("d"));
    world.meddles("b", "two", "two million");
    let fields = [("action", "pay"), ("task", a.as_str()), ("task", &b), ("decision", "approve")];
    let reply = visitor.sends("/approvals/all", &fields);
    assert_eq!(reply.status, 200);
    reply.has("1 task was approved").has("1 task was not decided").has("b.md").has("two million");
    assert_eq!(world.state("a"), State::Approved);
    for task in ["b", "c", "d"] {
        assert_eq!(world.state(task), State::PendingApproval, "{task}");
    }
    let rest = |decision: &'static str, reason: &'static str, task: &str| {
        let fields = [("action", "pay"), ("decision", decision), ("reason", reason), ("task", task)];
        visitor.sends("/approvals/all", &fields).status
    };
    assert_eq!(rest("reject", " ", &c), 400, "a reason is required");
    assert_eq!(rest("approve", "", "x c.md"), 409);
    assert_eq!(rest("sing", "", &c), 409);
    assert_eq!(world.state("c"), State::PendingApproval);
    assert_eq!((rest("reject", "no", &c), rest("changes", "less", &d)), (200, 200));
    assert_eq!((world.state("c"), world.state("d")), (State::Rejected, State::NeedsAction));
    let nobody = world.asks("POST", "/approvals/all", &[("Cookie", "")], "");
    assert_eq!(nobody.status, 401);
    let forged = [("action", "pay"), ("token", ""), ("decision", "approve"), ("task", b.as_str())];
    let forged = world.asks(
        "POST",
        "/approvals/all",
        &[("Cookie", &visitor.cookie), ("Content-Type", "application/x-www-form-urlencoded")],
        &crate::world::form(&forged),
    );
    assert!(forged.status == 403, "{}", forged.status);
    assert_eq!(world.state("b"), State::PendingApproval);
}

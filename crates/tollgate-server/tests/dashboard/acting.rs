//! What people do with tasks besides deciding: add, retry, give back, change the priority, undo an approval.

use jiff::Timestamp;
use tollgate::vault::Release;
use tollgate::vault::brief::Priority;
use tollgate::vault::state::State;

use crate::install::browser;
use crate::world::{World, name};

fn priority(world: &World, task: &str) -> Priority {
    world.vault().get(&name(task), Timestamp::now()).unwrap().brief.unwrap().priority
}

#[test]
fn a_task_is_added_on_the_page() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    browser.opens(&world, "/board");
    browser.presses("n");
    browser.until("document.activeElement.name === 'title'");
    browser.presses("Water the <b>plants</b>");
    browser.clicks("select[name=priority] option[value=high]");
    browser.types("textarea[name=body]", "All of them.\nTwice.");
    browser.clicks(".fields button.primary");
    browser.shows("Water the <b>plants</b>");
    let task = "water-the-b-plants-b";
    assert_eq!((world.state(task), priority(&world, task)), (State::NeedsAction, Priority(1)));
    assert_eq!(
        world.text(task),
        "---\npriority: high\n---\n# Water the <b>plants</b>\n\nAll of them.\nTwice.\n"
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_task_that_cannot_be_read_is_not_added_and_nothing_typed_is_lost() {
    let world = World::new();
    let visitor = world.visits("/new");
    let fields = [("title", "Do it"), ("action", "read"), ("body", "**Action**: pay"), ("priority", "high")];
    let reply = visitor.sends("/tasks", &fields);
    assert_eq!(reply.status, 409, "{}", reply.body);
    reply.has("value=\"Do it\"").has("**Action**: pay</textarea>").has("Nothing was decided.");
    assert!(world.vault().get(&name("do-it"), Timestamp::now()).is_err());
    assert_eq!(visitor.sends("/tasks", &[("title", " ")]).status, 409);
}

#[test]
fn a_rejected_task_is_retried() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.add("x", "please");
    world.vault().reject(&name("x"), "me", "no", Timestamp::now()).unwrap().unwrap();
    browser.opens(&world, "/tasks/x.md");
    browser.clicks(".actions button");
    browser.shows("ada wants");
    assert_eq!(world.state("x"), State::NeedsAction);
    // A second press finds nothing to do, and says so.
    let visitor = world.visits("/tasks/x.md");
    let reply = visitor.sends("/tasks/x.md/retry", &[]);
    assert_eq!(reply.status, 409);
    reply.has("Nothing was decided.");
}

#[test]
fn the_text_of_a_task_is_edited_unless_it_has_changed() {
    let world = World::new();
    world.add("x", "---\npriority: high\n---\n# Do it\n");
    let visitor = world.visits("/tasks/x.md");
    visitor.reply.has("name=\"text\"").has("priority: high\n---\n# Do it");
    let unreadable = visitor.sends("/tasks/x.md/text", &[("text", "---\npriority: banana\n---\n# Do it\n")]);
    assert_eq!(unreadable.status, 409);
    unreadable.has("an agent could not read this task").has("You had written").has("banana");
    assert_eq!(visitor.sends("/tasks/x.md/text", &[("text", "# Do it well\r\n\r\nToday.\r\n")]).status, 303);
    assert_eq!(world.text("x"), "# Do it well\n\nToday.\n");
    // The first page shows a text that is not there any more.
    let late = visitor.sends("/tasks/x.md/text", &[("text", "# Something else\n")]);
    assert_eq!(late.status, 409);
    late.has("The task was changed while you were looking at it").has("Something else");
    let page = world.visits("/tasks/x.md");
    world.claims("blue", "x");
    assert_eq!(page.sends("/tasks/x.md/text", &[("text", "# Too late\n")]).status, 409);
    assert!(!world.text("x").contains("Too late"));
}

#[test]
fn a_task_is_cancelled_with_a_reason_before_anybody_claims_it() {
    let world = World::new();
    world.add("x", "please");
    let visitor = world.visits("/tasks/x.md");
    assert_eq!(visitor.sends("/tasks/x.md/cancel", &[("reason", " ")]).status, 400);
    assert_eq!(world.state("x"), State::NeedsAction);
    assert_eq!(visitor.sends("/tasks/x.md/cancel", &[("reason", "not needed")]).status, 303);
    assert_eq!(world.state("x"), State::Rejected);
    assert!(world.text("x").contains("**Reason**: not needed"));
    assert_eq!(visitor.sends("/tasks/x.md/cancel", &[("reason", "again")]).status, 409);
}

#[test]
fn a_due_date_is_given_and_shown() {
    let world = World::new();
    let visitor = world.visits("/new");
    assert_eq!(visitor.sends("/tasks", &[("title", "Pay"), ("due", "2020-01-02")]).status, 303);
    assert_eq!(visitor.sends("/tasks", &[("title", "Plan"), ("due", "2999-01-02")]).status, 303);
    world.hears("/tasks?state=Needs_Action", "due 2999-01-02").has("due bad\">due 2020-01-02");
}

#[test]
fn a_claimed_task_is_given_back_but_not_a_later_claim() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.add("x", "please");
    let first = world.claims("blue", "x");
    let old_page = world.visits("/tasks/x.md");
    browser.opens(&world, "/tasks/x.md");
    browser.clicks(".actions button");
    browser.shows("returned by ada");
    assert_eq!(world.state("x"), State::NeedsAction);
    let second = world.claims("red", "x");
    let reply = old_page.sends("/tasks/x.md/return", &[("claim", first.claim.id.as_str())]);
    assert_eq!(reply.status, 409);
    reply.has("The task was changed while you were looking at it");
    assert!(
        world.vault().verify(&name("x"), &second.claim.id, Timestamp::now()).unwrap(),
        "red still owns it"
    );
}

#[test]
fn the_priority_is_changed_unless_the_task_has_changed() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.add("x", "---\naction: pay\n---\n# Do it\n");
    browser.opens(&world, "/tasks/x.md");
    let old_page = world.visits("/tasks/x.md");
    browser.clicks("select[name=priority] option[value=critical]");
    browser.clicks(".actions button");
    browser.shows("ada edited");
    assert_eq!(world.text("x"), "---\npriority: critical\naction: pay\n---\n# Do it\n");
    let reply = old_page.sends("/tasks/x.md/priority", &[("priority", "low")]);
    assert_eq!(reply.status, 409);
    assert_eq!(priority(&world, "x"), Priority(0));
    assert_eq!(old_page.sends("/tasks/x.md/priority", &[("priority", "banana")]).status, 409);
}

#[test]
fn an_approval_is_undone_until_somebody_executes_it() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("x", "ten coins");
    browser.opens(&world, "/approvals");
    browser.presses("a");
    browser.shows("ada approved x");
    browser.until("document.getElementById('live').textContent === 'live'");
    browser.presses("u");
    browser.shows("ten coins");
    world.becomes("x", State::PendingApproval);
    browser.until("document.getElementById('live').textContent === 'live'");
    browser.presses("a");
    world.becomes("x", State::Approved);
    // On the task's own page, too.
    browser.opens(&world, "/tasks/x.md");
    browser.clicks(".actions button");
    browser.shows("ten coins");
    world.becomes("x", State::PendingApproval);
    browser.opens(&world, "/approvals");
    browser.presses("a");
    browser.until("document.getElementById('undo')");
    let late = world.visits("/approvals?decided=x.md");
    let executing = world.claims("local", "x");
    // The open page takes the button away as soon as somebody executes the task.
    browser.until("!document.getElementById('undo')");
    let reply = late.sends("/tasks/x.md/undo", &[]);
    assert_eq!(reply.status, 409);
    reply.has("Nothing was decided.").has("`x.md` is in `In_Progress/local`");
    world
        .vault()
        .release(&executing.task, &executing.claim.id, &Release::success(), Timestamp::now())
        .unwrap()
        .unwrap();
    assert_eq!(world.state("x"), State::Done);
}

#[test]
fn an_edit_is_cancelled_and_there_is_one_primary_button_at_a_time() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("x", "ten coins");
    browser.opens(&world, "/approvals");
    let primary = "return [...document.querySelectorAll('button.primary')].filter((button) => button.checkVisibility())\
        .map((button) => button.textContent).join()";
    assert_eq!(browser.script(primary), "Approve");
    browser.presses("e");
    browser.until("document.activeElement.name === 'text'");
    assert_eq!(browser.script(primary), "Save and approve");
    browser.types(".edit textarea", "nine or ");
    browser.clicks(".edit .cancel");
    browser.until("!document.querySelector('.edit').open");
    assert_eq!(browser.script(primary), "Approve");
    assert_eq!(browser.script("return document.querySelector('.edit textarea').value"), "ten coins");
    assert_eq!(world.state("x"), State::PendingApproval);
}

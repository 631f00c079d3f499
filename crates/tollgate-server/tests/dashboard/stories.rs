//! What people do on the pages, in a real browser.

use tollgate::vault::state::State;

use crate::browser::{Browser, ENTER, PHONE};
use crate::install::browser;
use crate::world::World;

#[test]
fn a_new_task_appears_on_the_open_page() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    browser.opens(&world, "/board");
    browser.shows("No tasks yet");
    browser.script("window.mark = 'same page'");
    world.add("water-the-plants", "please");
    browser.shows("water-the-plants");
    assert!(!browser.text().contains("No tasks yet"));
    world.claims("blue", "water-the-plants");
    browser.shows("blue claimed water-the-plants");
    assert_eq!(browser.script("return window.mark"), "same page", "the page was not loaded again");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn focus_and_open_details_survive_an_update() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.add("first", "please");
    browser.opens(&world, "/board");
    browser.presses("j");
    browser.until("document.activeElement.textContent === 'first'");
    world.drafted("another", "ten coins");
    browser.shows("another");
    assert_eq!(browser.script("return document.activeElement.textContent"), "first");
    assert_eq!(browser.script("return document.title"), "(1) Board · tollgate");
    assert_eq!(
        browser.script("return document.getElementById('news').textContent"),
        "1 task is waiting for approval"
    );
    browser.opens(&world, "/ledger");
    browser.clicks("#l-2 summary");
    world.conflict("a");
    browser.shows("is stale");
    assert_eq!(browser.script("return document.querySelector('#l-2 details').open"), true);
}

#[test]
fn approve_with_the_mouse() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("x", "ten coins");
    browser.opens(&world, "/board");
    browser.clicks("nav a[href='/approvals']");
    browser.shows("ten coins");
    browser.clicks("#approve");
    browser.shows("ada approved x");
    assert_eq!(world.state("x"), State::Approved);
    browser.shows("Nothing is waiting for you");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn approve_and_reject_with_keys_alone() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    for task in ["first", "second", "third"] {
        world.drafted(task, &format!("coins for {task}"));
    }
    browser.opens(&world, "/approvals");
    browser.shows("coins for first");
    // The task that is highlighted is the one that is open, so it is the one that keys decide about.
    let highlighted = |browser: &Browser, task: &str| {
        browser.shows(&format!("coins for {task}"));
        browser.until(&format!("document.querySelector('ol.queue [aria-current]').textContent === '{task}'"));
        browser.until("document.getElementById('live').textContent === 'live'");
    };
    highlighted(&browser, "first");
    browser.presses("j");
    highlighted(&browser, "second");
    browser.presses("j");
    highlighted(&browser, "third");
    browser.presses("k");
    highlighted(&browser, "second");
    browser.presses("a");
    browser.shows("ada approved second");
    assert_eq!(world.state("second"), State::Approved);
    assert_eq!(
        (world.state("first"), world.state("third")),
        (State::PendingApproval, State::PendingApproval)
    );
    // The next task has opened by itself. For a moment, neither a key nor a second click decides about it.
    highlighted(&browser, "third");
    browser.script(
        "const early = new KeyboardEvent('keydown', {key: 'a', bubbles: true});
         Object.defineProperty(early, 'timeStamp', {value: 300});
         document.body.dispatchEvent(early)",
    );
    browser.until(
        "document.querySelector('.decision').getAnimations().some((one) => one.animationName === 'arm') \
         || performance.now() > 600",
    );
    browser.until("performance.now() > 700");
    assert_eq!(world.state("third"), State::PendingApproval);
    browser.presses("k");
    highlighted(&browser, "first");
    browser.presses("r");
    browser.until("document.activeElement.name === 'reason'");
    browser.presses("ja, too dear");
    browser.presses(ENTER);
    browser.shows("ada rejected first");
    assert_eq!(world.state("first"), State::Rejected);
    assert!(world.text("first").contains("ja, too dear"));
    assert_eq!(world.state("third"), State::PendingApproval);
    // The rejection was a mistake.
    highlighted(&browser, "third");
    browser.presses("u");
    highlighted(&browser, "first");
    world.becomes("first", State::PendingApproval);
    browser.presses("c");
    browser.until("document.activeElement.closest('.changes')");
    browser.presses("nine coins");
    browser.presses(ENTER);
    browser.shows("ada wants");
    assert_eq!(world.state("first"), State::NeedsAction);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_key_opens_a_task_that_has_the_focus_but_is_not_open() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("first", "coins for first");
    world.drafted("second", "coins for second");
    browser.opens(&world, "/approvals");
    browser.shows("coins for first");
    browser.script("document.querySelector('ol.queue li:nth-child(2) a').focus()");
    browser.presses("a");
    browser.shows("coins for second");
    assert_eq!(
        (world.state("first"), world.state("second")),
        (State::PendingApproval, State::PendingApproval)
    );
}

#[test]
fn a_phone_shows_the_queue_first_and_then_the_chosen_task() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    for task in ["first", "second"] {
        world.drafted(task, &format!("coins for {task}"));
    }
    browser.looks_like(PHONE);
    browser.opens(&world, "/approvals");
    let top = |css: &str| format!("document.querySelector('{css}').getBoundingClientRect().top");
    browser.until(&format!("{} < 400", top("ol.queue")));
    browser.until("!document.querySelector('.sheet').offsetParent");
    browser.clicks("ol.queue li:nth-child(2) a");
    browser.shows("coins for second");
    browser.until(&format!("{} < {}", top(".sheet"), top("ol.queue")));
    assert_eq!(browser.overflow(), 0);
}

#[test]
fn tasks_of_one_action_are_looked_at_and_decided_on_one_page() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    for task in ["first", "second", "third"] {
        world.drafted(task, &format!("coins for {task}"));
    }
    browser.opens(&world, "/approvals");
    browser.clicks(".together a");
    for task in ["first", "second", "third"] {
        browser.shows(&format!("coins for {task}"));
    }
    browser.clicks(".bulk li:nth-child(2) input");
    browser.clicks(".bulk button.primary");
    browser.shows("2 tasks were approved");
    let states = ["first", "second", "third"].map(|task| world.state(task));
    assert_eq!(states, [State::Approved, State::PendingApproval, State::Approved]);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn keys_are_explained_and_the_queue_is_filtered() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("rent", "ten coins");
    world.drafted("mail", "nine coins");
    browser.opens(&world, "/approvals");
    browser.presses("?");
    browser.until("document.getElementById('keys').open");
    // Keys have no effect while the help is open.
    browser.presses("a");
    browser.presses("\u{e00c}");
    browser.until("!document.getElementById('keys').open");
    assert_eq!(world.state("rent"), State::PendingApproval);
    browser.presses("f");
    browser.presses("mai");
    browser.until("[...document.querySelectorAll('ol.queue li:not([hidden])')].map(li => li.dataset.key).join() === 'mail.md'");
    assert_eq!(world.state("rent"), State::PendingApproval, "letters typed into a field are not commands");
}

#[test]
fn reject_needs_a_reason_with_the_mouse_too() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("x", "ten coins");
    browser.opens(&world, "/tasks/x.md");
    browser.clicks("#reject");
    browser.clicks(".reject button");
    browser.until("document.querySelector('.reject input[name=reason]').matches(':invalid')");
    assert_eq!(world.state("x"), State::PendingApproval);
    browser.types(".reject input[name=reason]", "too dear");
    browser.clicks(".reject button");
    browser.shows("ada rejected x");
    assert_eq!(world.state("x"), State::Rejected);
}

#[test]
fn edit_then_approve() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("x", "ten coins");
    let before = world.text("x");
    browser.opens(&world, "/approvals");
    browser.presses("e");
    browser.until("document.activeElement.name === 'text'");
    assert_eq!(browser.script("return document.activeElement.value"), "ten coins");
    browser.types(".edit textarea", "nine or ");
    browser.clicks(".edit button");
    browser.shows("ada edited and approved x");
    assert_eq!(world.text("x"), before.replace("ten coins", "nine or ten coins"));
    assert_eq!(world.state("x"), State::Approved);
}

#[test]
fn a_task_that_changes_while_it_is_open_is_asked_again() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("x", "ten coins");
    browser.opens(&world, "/approvals");
    browser.shows("ten coins");
    world.meddles("x", "ten coins", "a million");
    // The open version is not replaced. A notice appears, and the version can no longer be approved.
    browser.shows("changed or decided in the meantime");
    assert!(browser.text().contains("ten coins") && !browser.text().contains("a million"));
    browser.presses("a");
    assert_eq!(browser.script("return document.getElementById('approve').disabled"), true);
    assert_eq!(world.state("x"), State::PendingApproval);
    browser.clicks(".changed a");
    browser.shows("a million");
    browser.until("document.getElementById('live').textContent === 'live'");
    browser.clicks("#approve");
    browser.shows("ada approved x");
    assert_eq!(world.state("x"), State::Approved);
}

#[test]
fn a_form_that_is_too_late_gets_the_current_version() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.drafted("x", "ten coins");
    world.drafted("y", "nine coins");
    browser.opens(&world, "/approvals?task=x.md");
    // The task changes at the same moment as the click, before the page can show the notice.
    browser.script(
        "document.querySelector('.approve').append(Object.assign(document.createElement('p'), {id: 'kept'}))",
    );
    world.meddles("x", "ten coins", "a million");
    browser.script("document.querySelector('form.approve').submit()");
    browser.shows("The task was changed while you were looking at it");
    browser.shows("a million");
    assert_eq!(world.state("x"), State::PendingApproval);
    // Somebody else decides the task first.
    browser.opens(&world, "/approvals?task=y.md");
    let visitor = world.visits("/approvals?task=y.md");
    assert_eq!(visitor.sends("/tasks/y.md/reject", &[("reason", "no")]).status, 303);
    browser.script("document.querySelector('form.approve').submit()");
    browser.shows("Nothing was decided. `y.md` is in `Rejected`");
}

#[test]
fn a_conflict_appears_with_its_diff() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    browser.opens(&world, "/conflicts");
    browser.shows("No conflicts.");
    let blue = world.conflict("app.conf");
    browser.shows("red had changed the file");
    let line = |class: &str| {
        browser.script(&format!("return document.querySelector('.panes td.{class}').textContent"))
    };
    assert_eq!((line("cut"), line("add")), ("one".into(), "two".into()));
    browser.shows("open");
    blue.reads("app.conf");
    assert!(blue.writes("app.conf", "three\n"));
    browser.shows("resolved: written");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_page_reconnects_after_a_restart_of_the_server() {
    let Some(mut browser) = browser() else { return };
    let mut world = World::new();
    world.drafted("x", "ten coins");
    browser.opens(&world, "/approvals");
    world.restart();
    world.add("new-one", "please");
    world.drafted("y", "nine coins");
    // The queue is current again, and the page has a valid token.
    browser.shows("y");
    browser.until("document.querySelectorAll('ol.queue li').length === 2");
    browser.clicks("#approve");
    browser.shows("ada approved x");
    assert_eq!(world.state("x"), State::Approved);
}

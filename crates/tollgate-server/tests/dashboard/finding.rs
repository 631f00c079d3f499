//! Finding things: search everywhere, filters and the export of the ledger; pages for addresses that lead nowhere.

use serde_json::json;
use tollgate::settings::Durability;

use crate::browser::{DESKTOP, ENTER, PHONE};
use crate::install::{axe, browser};
use crate::lively::{claim, entry, write};
use crate::world::World;

#[test]
fn search_finds_tasks_by_title_and_name_agents_and_files() {
    let world = World::new();
    world.add("t-1", "# Water the <b>plants</b>\n");
    world.add("t-2", "# Feed the cat\n");
    world.conflict("src/plants.rs");
    let page = world.hears("/search?q=PLANTS", "src/plants.rs");
    page.has("/tasks/t-1.md\"")
        .has("Water the &lt;b&gt;plants&lt;/b&gt;</a>")
        .lacks("Feed the cat")
        .lacks("<b>");
    page.has("value=\"PLANTS\"");
    world.gets("/search?q=t-2").has("Feed the cat").lacks("Water");
    world.gets("/search?q=blu").has("/agents/blue\">blue</a>");
    world.gets("/search?q=clou").has("/agents/cloud");
    world.gets("/search?q=nowhere").has("Nothing was found").has("/ledger?text=nowhere");
    world.gets("/search?typing=true&q=nowhere").has("Nothing has this in its name");
    world.gets("/search").lacks("Nothing");
    let hostile = world.gets("/search?q=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E");
    hostile.lacks("<script>alert");
}

#[test]
fn search_reads_texts_counts_states_and_has_pages() {
    let world = World::new();
    for number in 0..40 {
        world.add(&format!("t-{number}"), "# Same title\n\nAbout a login that fails.\n");
    }
    world.add("pay", "---\naction: pay\npriority: high\nafter: [t-1]\n---\n# Another login\n");
    world.claims("blue", "t-0");
    let page = world.hears("/search?q=LOGIN", "In progress 1");
    page.has("41 tasks").has("all 41").has("Needs action 40").has("1 to 30 of 41").has("rel=\"next\"");
    // Titles are the same, so names tell the tasks apart.
    page.has("<code>t-1.md</code>").has("<code>t-2.md</code>");
    let next = world.gets("/search?q=login&from=30");
    next.has("31 to 41 of 41").has("rel=\"prev\"").lacks("rel=\"next\"");
    world.gets("/search?q=login&state=In_Progress").has("<code>t-0.md</code>").lacks("<code>t-1.md</code>");
    world.gets("/search?q=login&agent=blue").has("<code>t-0.md</code>").lacks("<code>t-1.md</code>");
    world.gets("/search?priority=high").has("<code>pay.md</code>").lacks("<code>t-1.md</code>");
    world.gets("/search?action=pay").has("<code>pay.md</code>").lacks("<code>t-1.md</code>");
    world
        .gets("/search?blocked=true")
        .has("<code>pay.md</code>")
        .has("blocked by t-1")
        .lacks("<code>t-1.md</code>");
    // While somebody types, only names and titles count.
    world
        .gets("/search?typing=true&q=login")
        .has("Another login")
        .lacks("Same title")
        .has("Search in texts, too");
    world.gets("/search?typing=true&q=conf").has("href=\"/conflicts\"");
    world.gets("/search?typing=true&q=new").has("href=\"/new\"");
    let done = world.claims("red", "t-1");
    world
        .vault()
        .release(&done.task, &done.claim.id, &tollgate::vault::Release::success(), jiff::Timestamp::now())
        .unwrap()
        .unwrap();
    world.hears("/search?blocked=true", "Nothing was found");
}

#[test]
fn search_is_one_key_away_and_shows_results_while_typing() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.add("t-1", "# Water the plants\n");
    world.add("t-2", "# Plant a tree\n");
    browser.opens(&world, "/ledger");
    browser.presses("/");
    browser.until("document.activeElement.id === 'find'");
    browser.presses("plant");
    browser.until("document.querySelectorAll('#found .hits li').length === 2");
    // Down to the second result, and open it.
    browser.presses("\u{e015}\u{e015}");
    browser.until("document.activeElement.textContent === 'Plant a tree'");
    browser.presses(ENTER);
    browser.until("location.pathname === '/tasks/t-2.md'");
    browser.until("document.getElementById('live')?.textContent === 'live'");
    browser.chord('\u{e009}', 'k');
    browser.until("document.activeElement.id === 'find'");
    browser.presses("water");
    browser.until("document.querySelector('#found a')?.textContent === 'Water the plants'");
    browser.presses("\u{e00c}");
    browser.until("document.getElementById('found').hidden");
    // Escape has cleared the field.
    browser.types("#find", "water\u{e007}");
    browser.until("location.pathname === '/search'");
    browser.shows("Water the plants");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn history() -> World {
    let world = World::new();
    let ago = jiff::SignedDuration::from_hours;
    let entries: Vec<_> = (0..200_i64)
        .map(|number| {
            let event = if number % 2 == 0 { claim(&format!("t-{number}.md"), 5) } else { write("src/a.rs") };
            entry(ago(200 - number), if number % 5 == 0 { "blue" } else { "red" }, event)
        })
        .collect();
    world.workspace().ledger().append(&entries, Durability::Fast).unwrap();
    world
}

#[test]
fn the_ledger_is_filtered_by_time_and_exported_as_it_stands() {
    let world = history();
    let minute = |hours: i64| {
        let time = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
        time.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%dT%H:%M").to_string()
    };
    // The lines 51 to 100 are between 150 and 101 hours old. An hour more on both sides, so that no line is on the edge.
    let (since, until) = (minute(150).replace(':', "%3A"), minute(101).replace(':', "%3A"));
    let span = format!("since={since}&until={until}");
    let page = world.gets(&format!("/ledger?{span}"));
    let count = |text: &str, what: &str| text.matches(what).count();
    assert!(
        (49..=51).contains(&count(&page.body, "class=\"line\"")),
        "{}",
        count(&page.body, "class=\"line\"")
    );
    page.lacks("rel=\"next\"")
        .has(&format!("/ledger/export?agent=&amp;kind=&amp;text=&amp;{}", span.replace('&', "&amp;")));
    let whole = std::fs::read_to_string(world.root().join(".tollgate/ledger.jsonl")).unwrap();
    let export = world.gets("/ledger/export");
    assert_eq!(export.text(), whole, "every line, byte for byte");
    assert!(export.header("content-disposition").unwrap().starts_with("attachment"));
    let some = world.gets(&format!("/ledger/export?agent=blue&kind=CLAIM&{span}")).text();
    assert!((4..=6).contains(&some.lines().count()), "{some}");
    for line in some.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["agent"], &line["action_type"]), (&json!("blue"), &json!("CLAIM")));
        assert!(whole.contains(line["prev"].as_str().unwrap()));
    }
    // A page that ends inside the span leads on to the rest of it, and no further.
    let first = world.gets(&format!("/ledger?since={}", minute(120).replace(':', "%3A")));
    assert_eq!(count(&first.body, "class=\"line\""), 60);
    let next = first
        .body
        .split_once("rel=\"next\" href=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap()
        .replace("&amp;", "&");
    let rest = world.gets(&next);
    assert!((59..=61).contains(&count(&rest.body, "class=\"line\"")));
    rest.lacks("rel=\"next\"");
    let nobody = world.asks("GET", "/ledger/export", &[("Cookie", "")], "");
    assert_eq!(nobody.status, 401);
}

#[test]
fn an_address_that_leads_nowhere_has_a_page_too() {
    let Some(mut browser) = browser() else { return };
    let Some(axe) = axe() else { return };
    let world = World::new();
    browser.opens(&world, "/");
    for screen in [DESKTOP, PHONE] {
        browser.looks_like(screen);
        browser.goes_to("/nothing/here");
        browser.shows("There is no page at this address");
        browser.until("getComputedStyle(document.querySelector('.lost')).textAlign === 'center'");
        assert_eq!(browser.overflow(), 0);
        assert_eq!(crate::access::findings(&browser, &axe), Vec::<String>::new());
    }
    let html = [("Accept", "text/html")];
    assert_eq!(world.asks("GET", "/nothing", &html, "").status, 404);
    world.asks("GET", "/nothing", &html, "").has("Not found").has("<nav");
    assert_eq!(world.gets("/nothing").body, "no such page\n", "programs get a sentence");
    assert_eq!(
        world.asks("GET", "/nothing", &[("Cookie", ""), html[0]], "").status,
        401,
        "strangers learn nothing"
    );
}

#[test]
fn the_page_that_asks_for_the_token_has_a_style_and_lets_people_in() {
    let Some(mut browser) = browser() else { return };
    let Some(axe) = axe() else { return };
    let world = World::new();
    for screen in [DESKTOP, PHONE] {
        browser.looks_like(screen);
        browser.visits_as_a_stranger(&world, "/");
        browser.shows("Open the address that tollgate serve printed");
        assert_eq!(
            browser.script("return getComputedStyle(document.querySelector('main')).borderRadius"),
            "12px"
        );
        assert_eq!(browser.overflow(), 0);
        assert_eq!(crate::access::findings(&browser, &axe), Vec::<String>::new());
    }
    browser.types("#token", world.secret.reveal());
    browser.presses(ENTER);
    browser.shows("No tasks yet");
}

#[test]
fn a_new_approval_is_notified_if_the_person_wants_it() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    browser.opens(&world, "/");
    let bell = "document.getElementById('notify')";
    browser.permits_notifications(&world, "denied");
    browser.opens(&world, "/ledger");
    browser.until(&format!("{bell}.disabled && {bell}.textContent.includes('blocked')"));
    browser.permits_notifications(&world, "granted");
    browser.opens(&world, "/ledger");
    // As the browser's own, but they are only listed.
    browser.script(
        "window.shown = []; const real = Notification; window.Notification = class extends EventTarget {
           constructor(title, options) { super(); shown.push(options.body); }
           static get permission() { return real.permission; }
           static requestPermission() { return real.requestPermission(); } }",
    );
    world.drafted("quiet", "ten coins");
    browser.until("document.title.startsWith('(1)')");
    assert_eq!(browser.script("return shown"), json!([]), "nobody has asked for it");
    browser.clicks("#notify");
    browser.until(&format!("{bell}.getAttribute('aria-pressed') === 'true'"));
    world.drafted("loud", "ten coins");
    browser.until("shown.length === 1");
    assert_eq!(browser.script("return shown"), json!(["2 tasks are waiting for approval"]));
    world.add("other", "please");
    world.conflict("a");
    browser.shows("is stale");
    assert_eq!(browser.script("return shown.length"), 1, "only approvals are notified");
    browser.clicks("#notify");
    browser.until(&format!("{bell}.getAttribute('aria-pressed') === 'false'"));
    world.drafted("quiet-again", "ten coins");
    browser.until("document.title.startsWith('(3)')");
    assert_eq!(browser.script("return shown.length"), 1);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

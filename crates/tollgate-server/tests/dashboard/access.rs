//! Accessibility: everybody can use the pages, on a phone, in dark mode, without a mouse, with a screen reader.

use serde_json::Value;

use crate::browser::{Browser, DESKTOP, PHONE, Screen};
use crate::install::{axe, browser};
use crate::world::World;

const PAGES: [&str; 20] = [
    "/",
    "/board",
    "/search?q=w",
    "/new",
    "/tasks/waits.md",
    "/tasks?state=Needs_Action",
    "/tasks/x.md",
    "/approvals",
    "/approvals?decided=x.md",
    "/approvals/all?action=pay",
    "/agents",
    "/conflicts",
    "/conflicts/7/merge",
    "/changes",
    "/changes/9",
    "/changes/9/undo",
    "/files?path=app.conf",
    "/files?path=app.conf&lines=true",
    "/agents/red",
    "/ledger",
];

fn busy() -> World {
    let world = World::new();
    world.add("waits", "---\npriority: critical\naction: pay\ndue: 2026-11-20\nafter: [x]\n---\nplease");
    world.add("worked", "please");
    world.claims("blue", "worked");
    world.drafted("x", "# Letter\n\n- *ten* coins\n\n> said\n\n| a | b |\n|---|---|\n| 1 | `2` |\n\n```\ncode\n```\n\n[web](https://example.org)");
    world.conflict("app.conf");
    let red = world.agent("red");
    red.reads("app.conf");
    assert!(red.writes("app.conf", "six\n"));
    let turns = tollgate::shared_turn::SharedTurns::new(world.root().join(".tollgate/run")).unwrap();
    let id = tollgate::name::TurnId::new().unwrap();
    let turn = turns
        .begin(id, "green".parse().unwrap(), jiff::Timestamp::now(), tollgate::shared_turn::Leaves::Nothing)
        .unwrap();
    let gate = tollgate::gate::Gate::new(world.workspace());
    let _ = gate.read(&turn, "app.conf", tollgate::part::Part::Whole).unwrap();
    world.is_a_repository();
    assert!(world.agent(&"long".repeat(16)).writes("new", "x\n"));
    world.hears("/", "Unfinished files");
    world
}

/// The accessibility problems that axe finds.
pub(crate) fn findings(browser: &Browser, axe: &str) -> Vec<String> {
    browser.script(axe);
    let found = browser.later(
        "const done = arguments[arguments.length - 1];
         axe.run(document, {resultTypes: ['violations']}).then(
           (all) => done(all.violations.filter((one) => ['serious', 'critical', 'moderate'].includes(one.impact))
             .map((one) => `${one.impact} ${one.id}: ${one.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | ')}`)),
           (error) => done([String(error)]))",
    );
    found.as_array().unwrap().iter().map(Value::to_string).collect()
}

#[test]
fn axe_finds_no_accessibility_problems() {
    let Some(mut browser) = browser() else { return };
    let Some(axe) = axe() else { return };
    let world = busy();
    let empty = World::new();
    for scheme in ["light", "dark"] {
        for screen in [Screen { scheme, ..DESKTOP }, Screen { scheme, ..PHONE }] {
            browser.looks_like(screen);
            for page in PAGES {
                assert_eq!(world.gets(page).status, 200, "{page}");
                browser.opens(&world, page);
                // Open everything that is behind a click.
                browser.script(
                    "for (const details of document.querySelectorAll('details')) details.open = true",
                );
                assert_eq!(
                    findings(&browser, &axe),
                    Vec::<String>::new(),
                    "{page}, {scheme}, {}",
                    screen.width
                );
            }
        }
        for page in PAGES.into_iter().filter(|page| !page.contains(".md")) {
            browser.opens(&empty, page);
            assert_eq!(findings(&browser, &axe), Vec::<String>::new(), "{page}, empty, {scheme}");
        }
    }
    browser.opens(&world, "/");
    browser.presses("?");
    browser.until("document.getElementById('keys').open");
    assert_eq!(findings(&browser, &axe), Vec::<String>::new(), "the keys");
}

#[test]
fn a_phone_shows_everything_without_scrolling_sideways() {
    let Some(mut browser) = browser() else { return };
    let (world, bare) = (busy(), World::bare());
    browser.looks_like(PHONE);
    for page in PAGES {
        browser.opens(&world, page);
        browser.script("for (const details of document.querySelectorAll('details')) details.open = true");
        assert_eq!(browser.overflow(), 0, "{page}");
    }
    browser.opens(&bare, "/");
    assert_eq!(browser.overflow(), 0, "set up");
}

#[test]
fn ages_grow_without_a_request_and_show_the_exact_time() {
    let Some(mut browser) = browser() else { return };
    let world = World::new();
    world.add("x", "please");
    browser.opens(&world, "/board");
    let time = browser.script(
        "const t = document.querySelector('.tasks time'); return [t.dateTime, t.title, t.textContent]",
    );
    assert_eq!(time[0], time[1]);
    assert!(time[0].as_str().unwrap().ends_with('Z'), "{time}");
    // As if the task had been written two hours ago. The page updates the age without a request.
    browser.script(
        "document.querySelector('.tasks time').dateTime = new Date(Date.now() - 7200e3).toISOString()",
    );
    browser.until("document.querySelector('.tasks time').textContent === '2 h'");
}

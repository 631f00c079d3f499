//! Hostile task names and texts have no effect: no script, no dialog, no request, no broken page.

use crate::browser::{DESKTOP, PHONE};
use crate::install::browser;
use crate::world::{World, encode};

/// Names that file systems accept.
const NAMES: [&str; 5] = [
    "<script>alert(1)<\u{2044}script>",
    "\"><img src=x onerror=alert(1)>",
    "\u{202e}gpj.exe \u{2066}x",
    "' onmouseover='alert(1)",
    "${7*7}{{7*7}}%00&lt;",
];

const BODY: &str = "# <script>document.title='owned'</script>\n\n\
    <img src=x onerror=\"document.title='owned'\">\n\n\
    [click](javascript:document.title='owned') ![see](http://192.0.2.1/pixel.png)\n\n\
    <iframe srcdoc=\"<script>parent.document.title='owned'</script>\"></iframe>\n\n\
    <form action=/tasks/x.md/approve method=post><button>Win</button></form>\n\n\
    \u{1b}[2J\u{1b}]0;owned\u{7} \u{202e}reversed\u{202c} \u{200b}hidden\n\n\
    <style>body { display: none }</style>\n\n</textarea></pre></main><base href=//192.0.2.1>\n\n";

fn hostile() -> World {
    let world = World::new();
    let long = "W".repeat(10_000);
    for (index, name) in NAMES.iter().enumerate() {
        let draft = format!("{BODY}\n\n{long}\n\n| a | {long} |\n|---|---|\n| `{long}` | b |\n");
        if index % 2 == 0 {
            world.drafted(name, &draft);
        } else {
            world.add(name, &format!("---\naction: \"<b>x</b>\"\n---\nplease\n\n{draft}"));
        }
    }
    world.add(&"L".repeat(250), BODY);
    world.conflict("<img src=x onerror=alert(1)>.txt");
    world
}

fn pages() -> Vec<String> {
    let mut pages: Vec<String> = [
        "/",
        "/approvals",
        "/agents",
        "/conflicts",
        "/board",
        "/changes",
        "/ledger",
        "/tasks?state=Needs_Action",
    ]
    .map(str::to_owned)
    .into();
    for name in NAMES {
        pages.push(format!("/tasks/{}.md", encode(name)));
    }
    pages.push(format!("/approvals?task={}.md", encode(NAMES[0])));
    pages
}

#[test]
fn everything_is_escaped() {
    let world = hostile();
    for page in pages() {
        let reply = world.gets(&page);
        assert_eq!(reply.status, 200, "{page}");
        for tag in
            ["<script>", "<img", "<iframe", "<style", "<base", "<form action=/", "href=\"javascript", "<b>x"]
        {
            reply.lacks(tag);
        }
        for mark in ['\u{202e}', '\u{2066}', '\u{1b}', '\u{7}', '\u{200b}'] {
            let visible =
                reply.body.split("<textarea").map(|part| part.rsplit("</textarea>").next().unwrap_or(part));
            assert!(!visible.collect::<String>().contains(mark), "{page}: {mark:?}");
        }
    }
}

#[test]
fn hostile_text_has_no_effect_in_the_browser() {
    let Some(mut browser) = browser() else { return };
    let world = hostile();
    for screen in [DESKTOP, PHONE] {
        browser.looks_like(screen);
        for page in pages() {
            browser.opens(&world, &page);
            assert!(!browser.has_dialog(), "{page}");
            let title = browser.script("return document.title");
            assert!(title.as_str().unwrap().ends_with("· tollgate"), "{page}: {title}");
            assert_eq!(browser.overflow(), 0, "{page} at {} pixels", screen.width);
            let strangers = "return [...document.querySelectorAll('main img, main iframe, main script, main style, base')].length";
            assert_eq!(browser.script(strangers), 0, "{page}");
            assert_eq!(browser.complaints(), Vec::<String>::new(), "{page}");
        }
    }
    // The same for a task that arrives on an open page.
    browser.opens(&world, "/board");
    world.add("zzz\"><svg onload=alert(1)>", &format!("please\n\n{BODY}"));
    browser.shows("zzz\"><svg onload=alert(1)>");
    assert!(!browser.has_dialog());
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

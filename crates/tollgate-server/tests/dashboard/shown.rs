//! What is shown is what is approved.

use tollgate::vault::state::State;

use crate::world::{World, name};

/// The page without anything that is behind a click.
fn unfolded(page: &str) -> String {
    let mut parts = page.split("<details");
    let mut shown = parts.next().unwrap().to_owned();
    for part in parts {
        shown += part.split_once("</details>").unwrap().1;
    }
    shown
}

#[test]
fn a_pending_task_is_shown_whole_and_unrendered() {
    let world = World::new();
    // Places that rendering leaves out, or that used to be shown only behind a click.
    let hidden = [
        "[1]: https://evil.example/reference-definition",
        "<!-- a comment -->",
        "**Note**: first note",
        "**Note**: second note",
        "a line inside the block",
        "a line under the completion",
    ];
    let draft =
        format!("ten coins\n\n{}\n\n{}\n\n## Completion\n\n{}", hidden[0], hidden[1], hidden[2..].join("\n"));
    world.drafted("x", &draft);
    for page in ["/approvals?task=x.md", "/tasks/x.md"] {
        let reply = world.gets(page);
        let shown = unfolded(&reply.body);
        for text in hidden {
            let text = text.replace('<', "&lt;").replace('>', "&gt;");
            assert!(shown.contains(&text), "{text:?} is not in {shown}");
        }
        // Every line, in order, in one place.
        let (_, whole) = shown.split_once("The whole file, exactly").unwrap();
        let (_, whole) = whole.split_once("<pre tabindex=\"0\">").unwrap();
        let whole = whole.split_once("</pre>").unwrap().0.replace("&lt;", "<").replace("&gt;", ">");
        assert_eq!(whole.replace("&quot;", "\"").replace("&amp;", "&"), world.text("x"), "{page}");
        reply.has("<p>ten coins</p>");
    }
    let visitor = world.visits("/approvals?task=x.md");
    assert_eq!(visitor.sends("/tasks/x.md/approve", &[]).status, 303);
    assert_eq!(world.state("x"), State::Approved);
    world.gets("/tasks/x.md").lacks("The whole file, exactly").has("Raw file");
}

#[test]
fn the_drafter_comes_from_the_vault_and_not_from_the_file() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let drafted_by = |task: &str| {
        let page = world.gets(&format!("/tasks/{task}.md")).body;
        let (_, fact) = page.split_once("Drafted by</dt><dd>").unwrap();
        fact.split_once("</dd>").unwrap().0.to_owned()
    };
    assert_eq!(drafted_by("x"), "<span class=\"agent\">cloud</span>");
    world.meddles("x", "**Claimed By**: cloud", "**Claimed By**: the-boss");
    assert_eq!(drafted_by("x"), "<span class=\"agent\">cloud</span>");
    let record = world.vault().get(&name("x"), jiff::Timestamp::now()).unwrap().record.clone();
    assert_eq!(record.released_by.unwrap().as_str(), "cloud");
    // A file that somebody put there by hand has no drafter, whatever it says.
    let folder = world.place("x").parent().unwrap().to_owned();
    let block = "<!-- tollgate c-0123456789abcdef -->\n**Claimed By**: the-boss\n\n## Draft\n\nx\n";
    std::fs::write(folder.join("planted.md"), format!("# Pay\n{block}")).unwrap();
    world.hears("/approvals", "planted");
    assert!(drafted_by("planted").contains("unknown"), "{}", drafted_by("planted"));
}

#[test]
fn every_invisible_character_is_marked() {
    let world = World::new();
    let hidden = [
        '\u{ad}',
        '\u{34f}',
        '\u{61c}',
        '\u{115f}',
        '\u{1160}',
        '\u{17b4}',
        '\u{180e}',
        '\u{200b}',
        '\u{200c}',
        '\u{200d}',
        '\u{200f}',
        '\u{202e}',
        '\u{2060}',
        '\u{2062}',
        '\u{2063}',
        '\u{2064}',
        '\u{2066}',
        '\u{206a}',
        '\u{3164}',
        '\u{fe0f}',
        '\u{feff}',
        '\u{ffa0}',
        '\u{e0041}',
        '\u{e0100}',
    ];
    let draft: String = hidden.iter().map(|c| format!("pay{c} ")).collect();
    world.drafted("x", &draft);
    let page = world.gets("/approvals?task=x.md");
    page.has("24 invisible characters");
    let shown = unfolded(&page.body);
    for c in hidden {
        let mark =
            format!("pay<span class=\"mark\" title=\"invisible character\">U+{:04X}</span>", u32::from(c));
        assert_eq!(shown.matches(&mark).count(), 2, "{mark}: once in the draft, once in the file");
        assert!(!shown.contains(c), "U+{:04X}", u32::from(c));
    }
}

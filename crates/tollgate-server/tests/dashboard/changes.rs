//! The pages about changes, turns and files, and what a person does there: undo, merge, dismiss.

use std::fs;

use crate::world::{AGENT_TOKEN, Reply, World, encode, form};

const TEN: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";

/// What follows the first `before` on a page, up to the end of the attribute.
fn after<'r>(reply: &'r Reply, before: &str) -> &'r str {
    let found = reply.body.split_once(before);
    let (_, rest) = found.unwrap_or_else(|| panic!("{before:?} is not in {}", reply.body));
    rest.split('"').next().unwrap()
}

/// The number of the newest change.
fn newest(world: &World) -> u64 {
    after(&world.gets("/changes"), "href=\"/changes/").parse().unwrap()
}

fn on_disk(world: &World, file: &str) -> String {
    fs::read_to_string(world.root().join(file)).unwrap()
}

/// `red` changes the second line of a file with ten lines. Returns the number of the change.
fn changed(world: &World) -> u64 {
    fs::write(world.root().join("a.txt"), TEN).unwrap();
    let red = world.agent("red");
    red.reads("a.txt");
    assert!(red.writes("a.txt", &TEN.replace("two", "2 <b>")));
    newest(world)
}

#[test]
fn every_write_leads_to_its_diff() {
    let world = World::new();
    let line = changed(&world);
    for page in ["/", "/board", "/agents", "/agents/red", "/ledger", "/changes", "/files?path=a.txt"] {
        world.hears(page, &format!("href=\"/changes/{line}\""));
    }
    let page = world.gets(&format!("/changes/{line}"));
    page.has("<del>-two\n</del>").has("<ins>+2 &lt;b&gt;\n</ins>").lacks("<b>");
    page.has("href=\"/agents/red\"")
        .has("href=\"/turns/t-")
        .has("write_file")
        .has("href=\"/files?path=a.txt\"");
    page.has("+1").has("−1").has(&format!("href=\"/changes/{line}/undo\""));
    for missing in ["/changes/999", &format!("/changes/{}", line - 1), "/turns/t-0123456789abcdef"] {
        assert_eq!(world.gets(missing).status, 404, "{missing}");
    }
    // A program without tollgate overwrites what red has written, whose bytes are nowhere else.
    fs::write(world.root().join("a.txt"), "foreign\n").unwrap();
    world.gets(&format!("/changes/{line}")).has("no longer kept").lacks("<del>");
}

#[test]
fn a_person_undoes_a_change_and_keeps_what_is_newer() {
    let world = World::new();
    let line = changed(&world);
    let blue = world.agent("blue");
    blue.reads("a.txt");
    assert!(blue.writes("a.txt", &TEN.replace("two", "2 <b>").replace("nine", "9")));
    let visitor = world.visits(&format!("/changes/{line}/undo"));
    visitor.reply.has("keeps what is newer").has("<ins>+two\n</ins>").lacks("<b>");
    assert_eq!(on_disk(&world, "a.txt"), TEN.replace("two", "2 <b>").replace("nine", "9"), "only shown");
    let reply = visitor.sends(&format!("/changes/{line}/undo"), &[]);
    assert_eq!(reply.status, 303, "{reply:?}");
    assert_eq!(on_disk(&world, "a.txt"), TEN.replace("nine", "9"));
    let made = world.gets(reply.header("location").unwrap());
    made.has("This is the change that was made")
        .has("<span class=\"kind\">undo</span>")
        .has("href=\"/agents/ada\"");
    // A second press finds nothing to undo, and the undo can be undone.
    let again = visitor.sends(&format!("/changes/{line}/undo"), &[]);
    assert_eq!(again.status, 409);
    again.has("There is nothing to undo").has("Nothing was written");
    let undo = newest(&world);
    assert_eq!(
        world.visits(&format!("/changes/{undo}/undo")).sends(&format!("/changes/{undo}/undo"), &[]).status,
        303
    );
    assert_eq!(on_disk(&world, "a.txt"), TEN.replace("two", "2 <b>").replace("nine", "9"));
}

#[test]
fn a_turn_is_shown_and_undone_as_a_whole() {
    let world = World::new();
    fs::write(world.root().join("a"), "one\n").unwrap();
    let red = world.agent("red");
    red.reads("a");
    assert!(red.writes("a", "two\n") && red.writes("a", "three\n") && red.writes("b", "new\n"));
    let turn = format!("/turns/{}", after(&world.gets("/changes/3"), "href=\"/turns/"));
    let page = world.gets(&turn);
    page.has("<del>-one\n</del>").has("<ins>+three\n</ins>").has("<ins>+new\n</ins>").lacks("+two");
    page.has("Changes <span class=\"count\">3</span>");
    let visitor = world.visits(&format!("{turn}/undo"));
    visitor.reply.has("is deleted").has("Undo 2 files");
    assert_eq!(visitor.sends(&format!("{turn}/undo"), &[]).status, 303);
    assert_eq!(on_disk(&world, "a"), "one\n");
    assert!(!world.root().join("b").exists());
}

#[test]
fn a_conflict_is_shown_and_nothing_is_written() {
    let world = World::new();
    let line = changed(&world);
    let path = format!("/changes/{line}/undo");
    let before = world.visits(&path);
    let newer = TEN.replace("two", "zwei <i>");
    let blue = world.agent("blue");
    blue.reads("a.txt");
    assert!(blue.writes("a.txt", &newer));
    let page = world.visits(&path);
    page.reply
        .has("1 file cannot be undone")
        .has("zwei &lt;i&gt;")
        .has("on disk")
        .lacks("name=\"seen\"")
        .lacks("<i>");
    // The form of the page that was opened before, and a form that somebody makes.
    assert_eq!(before.sends(&path, &[]).status, 409);
    let token = before.token.clone().unwrap();
    for seen in ["0".repeat(64), before.seen.clone().unwrap()] {
        let fields = form(&[("token", &token), ("seen", &seen)]);
        let reply = world.asks("POST", &path, &pairs(&headers(&world, &before.cookie)), &fields);
        assert_eq!(reply.status, 409, "{reply:?}");
    }
    assert_eq!(on_disk(&world, "a.txt"), newer);
}

#[test]
fn an_undo_writes_only_what_the_page_has_shown() {
    let world = World::new();
    let line = changed(&world);
    let path = format!("/changes/{line}/undo");
    let visitor = world.visits(&path);
    // Another line: an undo is still possible, but it is not the one that was shown.
    let newer = TEN.replace("two", "2 <b>").replace("ten", "10");
    let blue = world.agent("blue");
    blue.reads("a.txt");
    assert!(blue.writes("a.txt", &newer));
    let reply = visitor.sends(&path, &[]);
    assert_eq!(reply.status, 409);
    reply.has("changed while you were looking").has("keeps what is newer");
    assert_eq!(on_disk(&world, "a.txt"), newer);
    let seen = reply.field("seen").unwrap();
    let fields = form(&[("token", visitor.token.as_deref().unwrap()), ("seen", &seen)]);
    assert_eq!(world.asks("POST", &path, &pairs(&headers(&world, &visitor.cookie)), &fields).status, 303);
    assert_eq!(on_disk(&world, "a.txt"), TEN.replace("ten", "10"));
}

fn headers(world: &World, cookie: &str) -> [(&'static str, String); 3] {
    let kind = "application/x-www-form-urlencoded".to_owned();
    [("Cookie", cookie.to_owned()), ("Origin", format!("http://{}", world.address)), ("Content-Type", kind)]
}

fn pairs<'h>(headers: impl IntoIterator<Item = &'h (&'static str, String)>) -> Vec<(&'static str, &'h str)> {
    headers.into_iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[test]
fn no_other_site_and_no_agent_writes_anything() {
    let world = World::new();
    let line = changed(&world);
    let turn = after(&world.gets(&format!("/changes/{line}")), "href=\"/turns/").to_owned();
    world.conflict("b.txt");
    let refused =
        after(&world.gets("/conflicts"), "action=\"/conflicts/").split('/').next().unwrap().to_owned();
    let (a, b) = (on_disk(&world, "a.txt"), on_disk(&world, "b.txt"));
    let paths = [
        format!("/changes/{line}/undo"),
        format!("/turns/{turn}/undo"),
        format!("/conflicts/{refused}/merge"),
        format!("/conflicts/{refused}/dismiss"),
    ];
    for path in &paths {
        let (visitor, other) = (world.visits(&format!("/changes/{line}/undo")), world.visits("/"));
        let (token, seen) = (visitor.token.clone().unwrap(), visitor.seen.clone().unwrap());
        let good = form(&[("token", &token), ("seen", &seen)]);
        let without = form(&[("seen", &seen)]);
        let wrong = form(&[("token", &seen), ("seen", &seen)]);
        let [cookie, ours, kind] = headers(&world, &visitor.cookie);
        let [theirs, ..] = headers(&world, &other.cookie);
        let agent = ("Authorization", format!("Bearer {AGENT_TOKEN}"));
        let nobody = ("Cookie", String::new());
        let evil = ("Origin", "http://evil.example".to_owned());
        let plain = ("Content-Type", "text/plain".to_owned());
        for (what, sent, body, status) in [
            ("no cookie", vec![&nobody, &ours, &kind], &good, 401_u16),
            ("the token of an agent", vec![&nobody, &agent, &ours, &kind], &good, 403),
            ("another browser's cookie", vec![&theirs, &ours, &kind], &good, 403),
            ("no form token", vec![&cookie, &ours, &kind], &without, 422),
            ("a wrong form token", vec![&cookie, &ours, &kind], &wrong, 403),
            ("the origin of another site", vec![&cookie, &evil, &kind], &good, 403),
            ("text that looks like a form", vec![&cookie, &ours, &plain], &good, 415),
        ] {
            let reply = world.asks("POST", path, &pairs(sent), body);
            assert_eq!(reply.status, status, "{path} with {what}: {}", reply.body);
        }
        // A link is not a form.
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            world.asks(method, &format!("{path}?seen={seen}"), &[("Cookie", &visitor.cookie)], "");
        }
    }
    assert_eq!((on_disk(&world, "a.txt"), on_disk(&world, "b.txt")), (a, b));
    world.gets("/conflicts").has("class=\"fate bad\">open").lacks("dismissed</p>");
}

#[test]
fn a_refused_write_is_merged_or_dismissed() {
    let world = World::new();
    fs::write(world.root().join("a"), TEN).unwrap();
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    blue.reads("a");
    red.reads("a");
    assert!(red.writes("a", &TEN.replace("two", "2")));
    assert!(!blue.writes("a", &TEN.replace("nine", "9")));
    let page = world.hears("/", "Refused writes");
    let address =
        format!("/conflicts/{}/merge", after(&page, "href=\"/conflicts/").split('/').next().unwrap());
    page.has("href=\"/agents/blue\"").has("<button>Dismiss</button>");
    let visitor = world.visits(&address);
    visitor.reply.has("<ins>+9\n</ins>").has("Write the merge");
    let reply = visitor.sends(&address, &[]);
    assert_eq!(reply.status, 303, "{reply:?}");
    assert_eq!(on_disk(&world, "a"), TEN.replace("two", "2").replace("nine", "9"));
    world.gets("/").lacks("Refused writes");
    world.gets("/conflicts").has("resolved: ").lacks("fate bad");
    assert_eq!(visitor.sends(&address, &[]).status, 409, "it is written once");
    // The same lines: nothing to press but "dismiss".
    world.conflict("b");
    let page = world.visits("/");
    let line = after(&page.reply, "action=\"/conflicts/").split('/').next().unwrap().to_owned();
    let merge = world.gets(&format!("/conflicts/{line}/merge"));
    merge.has("changed the same lines").has("three").lacks("name=\"seen\"");
    let reply = page.sends(&format!("/conflicts/{line}/dismiss"), &[("from", "conflicts")]);
    assert_eq!((reply.status, reply.header("location")), (303, Some("/conflicts")));
    world.gets("/").lacks("Refused writes");
    world.gets("/conflicts").has("<p class=\"fate\">dismissed</p>");
    assert_eq!(
        world.gets("/conflicts?state=dismissed").body.matches("<article class=\"conflict\"").count(),
        1
    );
    assert_eq!(on_disk(&world, "b"), "two\n");
    let visitor = world.visits("/changes/3/undo");
    assert_eq!(visitor.sends("/conflicts/3/dismiss", &[]).status, 409, "a change is not a refusal");
}

#[test]
fn the_first_page_is_the_workspace() {
    let world = World::new();
    world.add("waits", "please");
    world.conflict("app.conf");
    let turns = tollgate::shared_turn::SharedTurns::new(world.root().join(".tollgate/run")).unwrap();
    let id = tollgate::name::TurnId::new().unwrap();
    let nothing = tollgate::shared_turn::Leaves::Nothing;
    let turn = turns.begin(id.clone(), "green".parse().unwrap(), jiff::Timestamp::now(), nothing).unwrap();
    let gate = tollgate::gate::Gate::new(world.workspace());
    for file in ["app.conf", "<b>.txt"] {
        fs::write(world.root().join("<b>.txt"), "one").unwrap();
        drop(gate.read(&turn, file, tollgate::part::Part::Whole).unwrap());
    }
    let page = world.hears("/", "2 files read, 0 changed");
    page.has("At work now <span class=\"count\">2</span>").has("<strong>1</strong> needs action");
    page.has("<code>&lt;b&gt;.txt</code></a> <span class=\"quiet\">read</span>").lacks("<b>");
    let who = ["red</a>, read by ", "blue</a>, ", "green</a>"];
    let [red, blue, green] =
        ["red", "blue", "green"].map(|name| format!("<a class=\"agent\" href=\"/agents/{name}\">"));
    page.has(&format!("changed by {red}{}{blue}{}{green}{}", who[0], who[1], who[2]));
    let own = world.gets(&format!("/turns/{id}"));
    own.has("has changed nothing yet").has("href=\"/files?path=app.conf\"").has("&lt;b&gt;.txt").lacks("<b>");
    assert_eq!(world.gets("/turns").header("location"), Some("/agents"));
    world.gets("/agents").has("2 files read, 0 changed");
    turns.end(turn).unwrap();
    let ended = |body: &str| !body.contains("href=\"/agents/green\"");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !ended(&world.gets("/").body) {
        assert!(std::time::Instant::now() < deadline, "the turn has ended");
    }
}

/// The ledger knows no reads, so this is known from the turns that go on.
#[test]
fn the_first_page_names_all_agents_that_work_on_a_file() {
    let world = World::new();
    fs::write(world.root().join("shared.txt"), "one\n").unwrap();
    let gate = tollgate::gate::Gate::new(world.workspace());
    let [reader, writer] = ["reader", "writer"].map(|name| gate.begin_turn(name.parse().unwrap()).unwrap());
    for turn in [&reader, &writer] {
        drop(gate.read(turn, "shared.txt", tollgate::part::Part::Whole).unwrap());
    }
    let expected = tollgate::guard::Expected::Baseline;
    drop(gate.write(&writer, "shared.txt", "two\n", expected).unwrap());
    let who = "changed by <a class=\"agent\" href=\"/agents/writer\">writer</a>, read by \
               <a class=\"agent\" href=\"/agents/reader\">reader</a>";
    world.hears("/", who);
}

#[test]
fn a_file_has_its_history_under_all_names_and_each_line_its_writer() {
    let world = World::new();
    let line = changed(&world);
    let gate = tollgate::gate::Gate::new(world.workspace());
    let blue = gate.begin_turn("blue".parse().unwrap()).unwrap();
    gate.move_file(&blue, "a.txt", "b.txt", tollgate::guard::Expected::Baseline)
        .unwrap()
        .into_result()
        .unwrap();
    let red = world.agent("red");
    red.reads("b.txt");
    assert!(red.writes("b.txt", &TEN.replace("two", "2 <b>").replace("ten", "10")));
    let page = world.gets("/files?path=b.txt");
    assert_eq!(page.body.matches("<li class=\"line\"").count(), 3);
    page.has(&format!("href=\"/changes/{line}\"")).has("moved ");
    let page = world.gets("/files?path=b.txt&lines=true");
    page.has("Lines 1 to 10 of 10").has("2 &lt;b&gt;").has("before").lacks("<b>");
    let row = page.body.split("<tr").find(|row| row.contains("2 &lt;b&gt;")).unwrap();
    assert!(
        row.contains("href=\"/agents/red\"") && row.contains(&format!("href=\"/changes/{line}\"")),
        "{row}"
    );
    for (path, says) in [
        ("nothing.txt", "Nobody has changed this file"),
        ("../../etc/passwd", "Nobody has changed this file"),
        ("/etc/passwd", "Nobody has changed this file"),
        ("nothing.txt&lines=true", "there is no such file now"),
        ("%2Fetc%2Fpasswd&lines=true", "not a file of this workspace"),
        ("..%2F..%2F..%2F..%2F..%2F..%2Fetc%2Fpasswd&lines=true", "not a file of this workspace"),
        (".tollgate%2Fversion&lines=true", "not a file of this workspace"),
        ("%00&lines=true", "not a file of this workspace"),
    ] {
        let page = world.gets(&format!("/files?path={path}"));
        assert_eq!(page.status, 200, "{path}");
        page.has(says).lacks("root:");
    }
    std::os::unix::fs::symlink("/etc/passwd", world.root().join("out")).unwrap();
    world.gets("/files?path=out&lines=true").lacks("root:");
}

/// All numbers of changes that the pages of a list have.
fn listed(world: &World, mut page: String) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let reply = world.gets(&page);
        let changes =
            reply.body.split("data-key=\"").skip(1).map(|part| part.split('"').next().unwrap().to_owned());
        found.extend(changes.filter(|key| key.parse::<u64>().is_ok()));
        assert!(reply.body.len() < 200_000, "{page}: {}", reply.body.len());
        match reply.body.split_once("rel=\"next\" href=\"") {
            Some((_, next)) => page = next.split('"').next().unwrap().replace("&amp;", "&"),
            None => return found,
        }
        assert!(found.len() < 1000, "{page}");
    }
}

#[test]
fn of_many_changes_each_is_on_one_page() {
    let world = World::new();
    let (red, blue) = (world.agent("red"), world.agent("blue"));
    for number in 0..60 {
        assert!(red.writes("a", &format!("{number}\n")) && blue.writes(&format!("b-{number}"), "x\n"));
    }
    let gate = tollgate::gate::Gate::new(world.workspace());
    let green = gate.begin_turn("green".parse().unwrap()).unwrap();
    gate.move_file(&green, "a", "c", tollgate::guard::Expected::Baseline).unwrap().into_result().unwrap();
    let red = world.agent("red");
    for number in 0..60 {
        red.reads("c");
        assert!(red.writes("c", &format!("{number} c\n")));
    }
    for (page, number) in
        [("/changes", 181), ("/agents/red", 120), ("/agents/blue", 60), ("/files?path=c", 121)]
    {
        let mut found = listed(&world, page.to_owned());
        let all = found.len();
        found.dedup();
        assert_eq!((all, found.len()), (number, number), "{page}");
    }
}

#[test]
fn hostile_texts_and_names_are_escaped() {
    let world = World::new();
    let name = "\"><img src=x onerror=alert(1)>\u{202e}.txt";
    let text = "<script>alert(1)</script>\u{1b}[2J\n</pre></main>\n";
    fs::write(world.root().join(name), "one\n").unwrap();
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    blue.reads(name);
    red.reads(name);
    assert!(red.writes(name, text));
    assert!(!blue.writes(name, &format!("{text}{text}")));
    let line = newest(&world);
    let path = encode(name);
    for page in [
        "/".to_owned(),
        "/changes".to_owned(),
        format!("/changes/{line}"),
        format!("/changes/{line}/undo"),
        format!("/conflicts/{}/merge", line + 1),
        format!("/files?path={path}"),
        format!("/files?path={path}&lines=true"),
        "/agents/red".to_owned(),
        "/agents".to_owned(),
    ] {
        let reply = world.gets(&page);
        assert_eq!(reply.status, 200, "{page}");
        for bad in ["<script>alert", "<img", "</pre></main>\n<", "\u{202e}", "\u{1b}"] {
            reply.lacks(bad);
        }
        reply.has("U+202E");
    }
}

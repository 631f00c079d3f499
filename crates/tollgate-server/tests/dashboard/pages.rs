//! The content of the pages, read over HTTP without a browser.

use std::fs;

use crate::world::{World, encode};

#[test]
fn the_board_shows_each_state_with_owner_age_and_attempt() {
    let world = World::new();
    world.add("waits", "---\npriority: high\n---\nplease");
    world.add("worked", "please");
    let failed = world.claims("blue", "worked");
    let release = tollgate::vault::Release::failure("no luck");
    world.vault().release(&failed.task, &failed.claim.id, &release, jiff::Timestamp::now()).unwrap().unwrap();
    world.claims("red", "worked");
    world.drafted("draft", "ten");
    let page = world.hears("/board", "Pending Approval</span>");
    page.has("waits").has(">high<").has("<span class=\"agent\">red</span>").has("attempt 2");
    page.has("Pending approval <span class=\"count\">1</span>")
        .has("<time datetime=\"20")
        .has("<title>(1) Board");
}

#[test]
fn the_board_says_whose_files_are_in_no_commit() {
    let world = World::new();
    world.gets("/").lacks("Unfinished files");
    world.is_a_repository();
    fs::write(world.root().join("people's"), "x\n").unwrap();
    for (agent, file) in [("red", "a"), ("blue", "b"), ("blue", "c")] {
        assert!(world.agent(agent).writes(file, "one\n"));
    }
    // The state of tollgate has a file that belongs into a commit.
    let page = world.hears("/", "Unfinished files <span class=\"count\">5</span>");
    for (who, files) in [("blue</a>", "2 files"), ("red</a>", "1 file"), ("programs", "2 files")] {
        page.has(&format!("{who} <span class=\"quiet\">{files}</span>"));
    }
    // Without git, nobody knows what is committed. The rest of the board is there.
    fs::write(world.root().join(".git/HEAD"), "nothing").unwrap();
    world.hears("/", "git says nothing about").has("At work now");
}

#[test]
fn tasks_are_called_by_their_titles() {
    let world = World::new();
    world.add("t-1", "# Water the plants\n\nplease");
    world.add("t-2", "---\ntitle: 'Feed <b>the</b> cat'\n---\nplease");
    world.add("t-3", "please");
    world.drafted_as("t-4", "Pay the rent", "ten coins");
    let page = world.hears("/board", "t-3");
    page.has("title=\"t-1.md\">Water the plants</a>").has("Feed &lt;b&gt;the&lt;/b&gt; cat</a>");
    page.has("title=\"t-3.md\">t-3</a>").has("title=\"t-4.md\">Pay the rent</a>");
    world.gets("/tasks?state=Needs_Action").has(">Water the plants</a>");
    world.gets("/approvals").has("title=\"t-4.md\" aria-current=\"true\">Pay the rent</a>");
    world.gets("/tasks/t-1.md").has("<title>(1) Water the plants").has("<code>t-1.md</code>");
}

#[test]
fn the_board_has_one_column_for_each_state_and_plots_of_the_ledger() {
    let world = World::new();
    world.add("x", "please");
    let claimed = world.claims("blue", "x");
    let done = tollgate::vault::Release::success();
    world.vault().release(&claimed.task, &claimed.claim.id, &done, jiff::Timestamp::now()).unwrap().unwrap();
    world.conflict("a");
    world.drafted("y", "ten coins");
    let page = world.hears("/board", "aria-label=\"1 done, 0 rejected in the last hour\"");
    for state in ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"] {
        assert_eq!(
            page.body.matches(&format!("class=\"column\" data-state=\"{state}\"")).count(),
            1,
            "{state}"
        );
    }
    let page = world.hears("/board?span=24h", "50 %, 1 of 2 in the last 24 hours");
    page.has("Done per hour")
        .has("median waiting time")
        .has("Oldest approval")
        .has("UTC: 1 done, 0 rejected</title>");
    page.has("href=\"/approvals\"><time");
    world.gets("/board?span=7d").has("Done per 6 hours").has("Last 7 days");
}

#[test]
fn a_failed_attempt_shows_its_output_until_the_task_goes_on() {
    let world = World::new();
    world.add("x", "# Compile it\n");
    let fails = || {
        let failed = world.claims("blue", "x");
        let failure = tollgate::vault::Release::failure("exit status 1");
        let release = tollgate::vault::Release { output: Some("error: <b>no</b>\nline 2".into()), ..failure };
        world
            .vault()
            .release(&failed.task, &failed.claim.id, &release, jiff::Timestamp::now())
            .unwrap()
            .unwrap();
    };
    fails();
    let page = world.hears("/board", "Failed attempts");
    page.has("exit status 1").has("error: &lt;b&gt;no&lt;/b&gt;\nline 2</pre>").has("blue</span> failed ");
    world.gets("/tasks/x.md").has("error: &lt;b&gt;no&lt;/b&gt;");
    // A person moves the file: nothing in the ledger says so.
    let done = world.root().join("vault/Done/x.md");
    fs::rename(world.place("x"), &done).unwrap();
    world.hears("/board", "Done <span class=\"count\">1</span>").lacks("Failed attempts");
    fs::rename(&done, world.root().join("vault/Needs_Action/x.md")).unwrap();
    world.hears("/board", "Failed attempts");
    world.claims("red", "x");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while world.gets("/board").body.contains("Failed attempts") {
        assert!(std::time::Instant::now() < deadline, "somebody works on it again");
    }
}

#[test]
fn an_open_breaker_is_told_on_every_page_until_it_closes() {
    use tollgate::settings::Durability;
    let world = World::new();
    world.add("x", "please");
    world.claims("blue", "x");
    let turned = |until: Option<&str>| {
        let payload = serde_json::json!({"failures": 5, "reason": "exit status <1>", "until": until});
        let status = if until.is_some() { "OPEN" } else { "CLOSED" };
        serde_json::json!({"action_type": "BREAKER", "payload": payload, "result": {"status": status}})
    };
    let tells = |event| {
        let entry = crate::lively::entry(jiff::SignedDuration::ZERO, "blue", event);
        world.workspace().ledger().append(&[entry], Durability::Fast).unwrap();
    };
    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5)).to_string();
    tells(turned(Some(&soon)));
    for page in ["/", "/approvals", "/ledger", "/tasks/x.md"] {
        world
            .hears(page, "Breaker open.")
            .has("`blue` has stopped claiming tasks")
            .has("exit status &lt;1&gt;");
    }
    tells(turned(None));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while world.gets("/").body.contains("Breaker open.") {
        assert!(std::time::Instant::now() < deadline, "it is closed");
    }
}

#[test]
fn of_many_tasks_the_board_shows_the_first_and_the_number() {
    let world = World::new();
    let folder = world.root().join("vault/Needs_Action");
    for number in 0..1234 {
        fs::write(folder.join(format!("t-{number:04}.md")), "please").unwrap();
    }
    let page = world.hears("/board", "<span class=\"count\">1234");
    page.has("Needs action <span class=\"count\">1234</span>").has("1214 more").lacks("t-1000");
    assert!(page.body.len() < 40_000, "{}", page.body.len());
    let rest = world.gets("/tasks?state=Needs_Action&from=1200");
    rest.has("1201 to 1234 of 1234").has("from=1100").lacks("from=1300");
    assert_eq!(rest.body.matches("class=\"task\"").count(), 34);
}

#[test]
fn a_task_shows_its_text_its_draft_and_its_history() {
    let world = World::new();
    world.drafted_as("x", "Pay for it", "- **ten** coins");
    let page = world.hears("/tasks/x.md", "released ");
    page.has("Drafted by").has("action: pay").has("<strong>ten</strong> coins").has("<h4>Pay for it</h4>");
    page.has("claimed it").has("success").has("cloud</a> claimed ").has("cloud</a> released ");
    assert_eq!(world.gets("/tasks/none.md").status, 404);
    world.gets("/tasks/none.md").has("the task `none.md`");
}

#[test]
fn a_conflict_shows_who_changed_the_file_the_diff_and_the_outcome() {
    let world = World::new();
    let blue = world.conflict("app.conf");
    let page = world.hears("/conflicts", "1 refusal");
    page.has("<code>app.conf</code>")
        .has("class=\"cut\">one</td>")
        .has("class=\"add\">two</td>")
        .has("class=\"add\">three</td>")
        .has("1 write and 1 refusal");
    page.has("<span class=\"agent\">red</span> had changed the file")
        .has("class=\"fate bad\">open")
        .has("<svg");
    blue.reads("app.conf");
    assert!(blue.writes("app.conf", "three\n"));
    world.gets("/conflicts").has("resolved: ").lacks("fate bad");
    // The author of a change from outside tollgate is unknown.
    let red = world.agent("red");
    red.reads("app.conf");
    fs::write(world.root().join("app.conf"), "four\n").unwrap();
    assert!(!red.writes("app.conf", "five\n"));
    world.gets("/conflicts").has("changed by a program outside tollgate").has("class=\"add\">four</td>");
}

#[test]
fn a_conflict_marks_the_words_that_both_sides_changed() {
    let world = World::new();
    fs::write(world.root().join("a"), "x\nlet rate = 5 percent;\ny\n").unwrap();
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    blue.reads("a");
    red.reads("a");
    assert!(red.writes("a", "x\nlet rate = 7 percent;\ny\n"));
    assert!(!blue.writes("a", "x\nlet rate = 5 <b>;\ny\n"));
    let panes = |page: &crate::world::Reply| {
        page.has("let rate = <del>5</del> <del>percent;</del>").has("let rate = <ins>7</ins> percent;");
        page.has("let rate = 5 <ins>&lt;b&gt;;</ins>").has("<td class=\"no\">2</td>").lacks("<b>");
    };
    panes(&world.gets("/conflicts"));
    // What was on disk then is shown even after it was replaced.
    red.reads("a");
    assert!(red.writes("a", "another\n"));
    panes(&world.gets("/conflicts"));
}

#[test]
fn conflicts_are_grouped_by_file_and_filtered() {
    let world = World::new();
    world.conflict("src/a.rs");
    let blue = world.conflict("src/b.rs");
    blue.reads("src/b.rs");
    assert!(blue.writes("src/b.rs", "three\n"));
    let green = world.agent("green");
    green.reads("src/a.rs");
    fs::write(world.root().join("src/a.rs"), "foreign\n").unwrap();
    assert!(!green.writes("src/a.rs", "mine\n"));
    let shown = |query: &str| {
        let page = world.gets(&format!("/conflicts?{query}"));
        (
            page.body.matches("<section class=\"conflicts\"").count(),
            page.body.matches("<article class=\"conflict\"").count(),
        )
    };
    assert_eq!(shown(""), (2, 3));
    assert_eq!((shown("agent=green"), shown("agent=blue"), shown("agent=b")), ((1, 1), (2, 2), (0, 0)));
    assert_eq!((shown("file=a.rs"), shown("file=src%2F")), ((1, 2), (2, 3)));
    assert_eq!(
        (shown("state=resolved"), shown("state=open"), shown("state=ended")),
        ((1, 1), (1, 2), (0, 0))
    );
    world.gets("/conflicts?agent=%22%3E%3Cb%3E").has("No matching conflicts").lacks("<b>");
}

#[test]
fn agents_show_what_they_are_doing_now() {
    let world = World::new();
    world.add("x", "please");
    world.claims("blue", "x");
    let red = world.agent("red");
    fs::write(world.root().join("a"), "one").unwrap();
    red.reads("a");
    assert!(red.writes("a", "two"));
    let page = world.hears("/agents", "red</a> wrote");
    page.has("working on 1 task").has("red</a> wrote <a href=\"/changes/").has("blue</a> claimed ");
}

#[test]
fn the_ledger_is_filtered_paged_and_verified() {
    let world = World::new();
    for number in 0..70 {
        world.add(&format!("t-{number}"), "please");
        world.claims(if number % 2 == 0 { "blue" } else { "red" }, &format!("t-{number}"));
    }
    let first = world.gets("/ledger");
    assert_eq!(first.body.matches("class=\"line\"").count(), 60);
    first.has("before=11").has("id=\"l-70\"").lacks("id=\"l-10\"");
    let second = world.gets("/ledger?before=11");
    assert_eq!(second.body.matches("class=\"line\"").count(), 10);
    second.has("id=\"l-10\"").has("Newest").lacks("Older");
    let blue = world.gets("/ledger?agent=blue");
    assert_eq!(blue.body.matches("class=\"line\"").count(), 35);
    assert_eq!(world.gets("/ledger?text=t-69").body.matches("class=\"line\"").count(), 1);
    assert_eq!(world.gets("/ledger?kind=RELEASE").body.matches("class=\"line\"").count(), 0);
    world
        .gets(&format!("/ledger?text={}", encode("\"><script>x")))
        .has("No matching lines")
        .lacks("<script>x");
}

#[test]
fn an_edited_ledger_is_reported() {
    let mut world = World::new();
    world.conflict("a");
    let path = world.root().join(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"agent\":\"blue\"", "\"agent\":\"grey\"", 1)).unwrap();
    world.restart();
    world.hears("/ledger", "The ledger was changed after it was written").has("edited");
}

#[test]
fn empty_pages_say_what_to_do_next() {
    let world = World::bare();
    for path in ["/", "/approvals", "/ledger"] {
        world.gets(path).has("not set up").has("tollgate init --vault").has("tollgate init --host all");
    }
    assert!(fs::read_dir(world.root()).unwrap().next().is_none(), "nothing was created");
    let world = World::new();
    world.gets("/board").has("tollgate task add").has("tollgate work --agent");
    world.gets("/").has("No tasks yet").has("No agent is at work").has("tollgate mcp --agent");
    world.gets("/changes").has("Nothing was changed yet");
    world.gets("/approvals").has("Nothing is waiting for you").has("sensitive");
    world.gets("/agents").has("tollgate init --host all");
    world.gets("/conflicts").has("tollgate mcp --agent");
    world.gets("/ledger").has("Nothing has happened yet");
}

#[test]
fn other_addresses_are_not_found() {
    let world = World::new();
    for path in
        ["/nothing", "/tasks?state=Gone", "/tasks/..%2f..%2fx.md", "/tasks/a%00.md", "/events?page=/nothing"]
    {
        assert_eq!(world.gets(path).status, 404, "{path}");
    }
}

#[test]
fn of_many_refusals_each_is_on_one_page_and_all_are_in_the_chart() {
    let world = World::new();
    let blue = world.conflict("a");
    for _ in 0..44 {
        assert!(!blue.writes("a", "again\n"));
    }
    let first = world.hears("/conflicts", "45 refusals");
    first.has("1 write and 45 refusals");
    let (mut page, mut seen) = (first, Vec::new());
    loop {
        let found = page.body.split("<article class=\"conflict\" id=\"").skip(1);
        seen.extend(found.map(|part| part.split('"').next().unwrap().to_owned()));
        let Some((_, next)) = page.body.split_once("rel=\"next\" href=\"") else { break };
        page = world.gets(&next.split('"').next().unwrap().replace("&amp;", "&"));
        assert!(seen.len() <= 45, "{seen:?}");
    }
    let all = seen.len();
    seen.dedup();
    assert_eq!((seen.len(), all), (45, 45), "{seen:?}");
}

//! `tollgate task import`: the tasks of other trackers, once each.

use std::fs;

use serde_json::json;

use crate::world::World;

fn world() -> World {
    let world = World::with("[vault]\ndurability = \"fast\"\nsettle = \"50ms\"\n");
    world.run("init --vault").is(0);
    world
}

fn task(world: &World, name: &str) -> String {
    fs::read_to_string(world.path("vault/Needs_Action").join(name)).unwrap()
}

/// As Backlog.md writes its files.
fn backlog(world: &World, id: &str, status: &str, more: &str) {
    let folder = world.path("backlog/tasks");
    fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "---\nid: {id}\ntitle: 'Task {id}: it''s due'\nstatus: {status}\nassignee:\n  - '@codex'\n\
         created_date: '2026-04-25 21:01'\nlabels:\n  - docs\n{more}---\n\n## Description\n\n\
         <!-- SECTION:DESCRIPTION:BEGIN -->\nWhat to do.\n<!-- SECTION:DESCRIPTION:END -->\n"
    );
    fs::write(folder.join(format!("{} - Title.md", id.to_lowercase())), text).unwrap();
}

#[test]
fn the_open_tasks_of_backlog_md_are_imported_once() {
    let world = world();
    backlog(&world, "TASK-1", "Done", "dependencies: []\npriority: high\n");
    backlog(&world, "TASK-2", "To Do", "dependencies: []\npriority: high\n");
    backlog(&world, "TASK-3", "In Progress", "dependencies:\n  - task-1\n  - TASK-2\npriority: medium\n");
    fs::write(world.path("backlog/tasks/broken.md"), "no frontmatter").unwrap();
    insta::assert_snapshot!(world.run("task import backlog").filtered, @r"
    exit 0
    --- stdout
    imported `task-2.md`
    imported `task-3.md`
    imported 2 tasks; 0 already there, 1 closed
    --- stderr
    skipped: `broken.md`: it has no frontmatter
    ");
    insta::assert_snapshot!(task(&world, "task-3.md"), @r"
    ---
    priority: normal
    after:
      - task-2.md
    ---
    # Task TASK-3: it's due

    ## Description

    What to do.

    Imported from Backlog.md TASK-3
    ");
    assert!(task(&world, "task-2.md").starts_with("---\npriority: high\n---\n"));
    // Somebody works on one of them. It is not imported again.
    world.run("task claim task-2 --agent blue").is(0);
    backlog(&world, "TASK-4", "To Do", "");
    let again = world.json("task import backlog/tasks");
    assert_eq!(again["imported"], json!(["task-4.md"]));
    assert_eq!(again["present"], json!(["task-2.md", "task-3.md"]));
    assert_eq!(again["closed"], 1);
}

#[test]
fn the_open_issues_of_beads_are_imported_with_what_blocks_them() {
    let world = world();
    let issues = [
        json!({"id": "bd-1", "title": "First", "status": "closed", "priority": 1}),
        json!({"id": "bd-2", "title": "Second", "status": "open", "priority": 0, "description": "Do it.",
            "acceptance_criteria": "It works."}),
        json!({"id": "bd-2.1", "title": "Third", "status": "in_progress", "priority": 4, "dependencies": [
            {"issue_id": "bd-2.1", "depends_on_id": "bd-1", "type": "blocks"},
            {"issue_id": "bd-2.1", "depends_on_id": "bd-2", "type": "blocks"},
            {"issue_id": "bd-2.1", "depends_on_id": "bd-9", "type": "related"}]}),
        json!({"id": "bd-5", "title": "Circle", "dependencies": [{"depends_on_id": "bd-6", "type": "blocks"}]}),
        json!({"id": "bd-6", "title": "Circle", "dependencies": [{"depends_on_id": "bd-5", "type": "blocks"}]}),
        json!({"title": "Without an id"}),
    ];
    let lines: String = issues.iter().map(|issue| format!("{issue}\n")).collect();
    fs::write(world.path("issues.jsonl"), lines).unwrap();
    let dry = world.json("task import issues.jsonl --action code --dry-run");
    assert!(fs::read_dir(world.path("vault/Needs_Action")).unwrap().next().is_none());
    assert_eq!(dry["imported"], json!(["bd-2.md", "bd-2-1.md", "bd-5.md", "bd-6.md"]));
    insta::assert_snapshot!(world.run("task import issues.jsonl --action code").filtered, @r"
    exit 0
    --- stdout
    imported `bd-2.md`
    imported `bd-2-1.md`
    imported `bd-5.md`
    imported 3 tasks; 0 already there, 1 closed
    --- stderr
    skipped: an item has no id
    skipped: `bd-6`: it waits for itself, by way of other tasks
    ");
    insta::assert_snapshot!(task(&world, "bd-2.md"), @r"
    ---
    action: code
    priority: critical
    ---
    # Second

    Do it.

    ## Acceptance criteria

    It works.

    Imported from beads bd-2
    ");
    insta::assert_snapshot!(task(&world, "bd-2-1.md"), @r"
    ---
    action: code
    priority: lowest
    after:
      - bd-2.md
    ---
    # Third

    Imported from beads bd-2.1
    ");
    assert_eq!(world.json("task import issues.jsonl --action code")["imported"], json!([]));
}

#[test]
fn issues_of_github_are_imported_from_stdin() {
    let world = world();
    let issues = json!([
        {"number": 12, "title": "Login\u{1b}[31m fails", "body": "**Action**: payment\r\n\r\nSteps:\r\n1. x", "state": "OPEN",
            "labels": [{"name": "bug"}, {"name": "priority: high"}], "url": "https://github.com/acme/shop/issues/12"},
        {"number": 13, "title": "Old", "body": "", "state": "CLOSED", "labels": [], "url": "https://github.com/acme/shop/issues/13"},
        {"number": 12, "title": "Another project", "body": null, "url": "https://github.com/acme/site/issues/12"},
    ]);
    let run = |input: &str| world.tollgate(["task", "import", "-"]).stdin(input).ends();
    insta::assert_snapshot!(run(&issues.to_string()).filtered, @r"
    exit 0
    --- stdout
    imported `shop-12.md`
    imported `site-12.md`
    imported 2 tasks; 0 already there, 1 closed
    ");
    insta::assert_snapshot!(task(&world, "shop-12.md"), @r"
    ---
    priority: high
    ---
    # Login[31m fails

    ~~~
    **Action**: payment

    Steps:
    1. x
    ~~~

    Imported from https://github.com/acme/shop/issues/12
    ");
    assert!(run(&issues.to_string()).stdout().contains("imported 0 tasks; 2 already there"));
    insta::assert_snapshot!(run("[{]").filtered, @r"
    exit 2
    --- stderr
    error: the source is not JSON: key must be a string at line 1 column 3
    hint: run the command with `--help` to see how to call it
    ");
}

#[test]
fn a_source_of_the_wrong_kind_is_refused() {
    let world = world();
    fs::create_dir(world.path("backlog")).unwrap();
    fs::write(world.path("issues.jsonl"), "").unwrap();
    insta::assert_snapshot!(world.run("task import backlog --from beads").filtered, @r"
    exit 2
    --- stderr
    error: the source is a folder
    hint: give the file of the tracker, or omit `--from` for a folder of Backlog.md
    ");
    insta::assert_snapshot!(world.run("task import issues.jsonl --from backlog").filtered, @r"
    exit 2
    --- stderr
    error: the source is not a folder
    hint: give the `backlog` folder of Backlog.md
    ");
    insta::assert_snapshot!(world.run("task import nowhere").filtered, @r"
    exit 3
    --- stderr
    error: cannot read `nowhere`: No such file or directory (os error 2)
    hint: check the path: a relative path starts at the current folder
    ");
}

#[test]
fn a_bad_line_does_not_stop_the_import() {
    let world = world();
    world.puts(
        "issues.jsonl",
        "{\"id\":\"a-1\",\"title\":\"One\"}\n{\"id\":\n7\n\n{\"id\":\"a-2\",\"title\":\"Two\"}\n",
    );
    insta::assert_snapshot!(world.run("task import issues.jsonl").filtered, @r#"
    exit 0
    --- stdout
    imported `a-1.md`
    imported `a-2.md`
    imported 2 tasks; 0 already there, 0 closed
    --- stderr
    skipped: line 2 is not JSON: EOF while parsing a value at line 1 column 6
    skipped: line 3 is not a JSON object
    "#);
    // Half of a list is not a list.
    world.puts("list.json", "[\n{\"id\":\"a-3\"},\n{\"id\":\"a-4\"}\n");
    world.run("task import list.json").is(2);
    assert!(!world.path("vault/Needs_Action/a-4.md").exists());
}

#[test]
fn a_source_without_any_task_is_no_success() {
    let world = world();
    insta::assert_snapshot!(world.run("task import .").filtered, @r#"
    exit 2
    --- stderr
    error: `.` has no tasks of Backlog.md: no folder `tasks`, and no Markdown files
    hint: give the `backlog` folder of Backlog.md, or the file of another tracker; see `tollgate task import --help`
    "#);
    world.puts("bad.json", "{\"a\": 1}");
    insta::assert_snapshot!(world.run("task import bad.json").filtered, @r#"
    exit 1
    --- stdout
    imported 0 tasks; 0 already there, 0 closed
    --- stderr
    skipped: an item has no id
    "#);
    world.puts("README.md", "# Read me\n");
    world.run("task import .").is(1);
    // No open issue, and a project without tasks, are no mistakes.
    world.puts("none.json", "[]");
    world.run("task import none.json").is(0);
    fs::create_dir_all(world.path("backlog/tasks")).unwrap();
    world.run("task import backlog").is(0);
}

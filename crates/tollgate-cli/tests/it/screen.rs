//! What a person sees on a terminal, and what a pipe gets instead.

use crate::world::World;

/// A workspace in which deleting `a` in this turn is refused.
fn stale() -> (World, String) {
    let world = World::new();
    world.puts("a", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.puts("a", "two\n");
    (world, turn)
}

#[test]
fn a_terminal_gets_colours_and_a_pipe_gets_plain_text_and_the_report() {
    let (world, turn) = stale();
    let delete = || world.tollgate(["delete", "a", "--turn", &turn]).env("TERM", "xterm");
    let shown = delete().typed("").is(1).shown;
    assert!(shown.contains("\x1b[31mrefused:\x1b[0m `a` is stale"), "{shown:?}");
    assert!(shown.contains("    \x1b[31m-one\x1b[0m\n    \x1b[32m+two\x1b[0m\n"), "{shown:?}");
    assert!(!shown.contains("error_type"), "{shown}");
    for (name, value) in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        let shown = delete().env(name, value).typed("").is(1).shown;
        assert!(shown.contains("refused: `a` is stale") && !shown.contains('\x1b'), "{name}: {shown:?}");
    }
    let piped = delete().typed_with_stdout("").is(1);
    assert!(piped.stdout.starts_with("{\"error_type\":\"STALE_FILE\""), "{}", piped.stdout);
    assert!(!piped.stdout.contains('\x1b'), "{}", piped.stdout);
    let ran = delete().env("CLICOLOR_FORCE", "1").ends().is(1);
    assert!(ran.stderr().contains("\x1b[31mrefused:"), "{ran}");
    assert_eq!(delete().ends().is(1).reports().len(), 1);
}

#[test]
fn a_table_fits_the_width_of_the_terminal() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.tollgate(["task", "add", "A title that is much longer than the terminal is wide"]).ends().is(0);
    world.run("task add Short --action triage").is(0);
    let wide = world.run("task list").is(0).stdout();
    assert!(wide.lines().any(|line| line.chars().count() > 60), "{wide}");
    let shown = world.tollgate(["task", "list"]).on_columns(40).is(0).shown;
    assert!(shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
    assert!(shown.lines().any(|line| line.ends_with('…')), "{shown}");
    assert!(shown.contains("short.md"), "{shown}");
}

#[test]
fn a_command_that_people_try_leads_to_the_right_one() {
    let world = World::new();
    insta::assert_snapshot!(world.run("log").filtered, @r"
    exit 2
    --- stderr
    error: unrecognized subcommand 'log'

      tip: to do that, run `tollgate history`

    Usage: tollgate [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(world.run("restore x --json").filtered, @r#"
    exit 2
    --- stdout
    {"error":"USAGE","message":"the following required arguments were not provided: --at <TIME|N>","hint":"run the command with `--help` to see how to call it"}
    "#);
    for (tried, right) in [
        ("list", "tollgate task list"),
        ("ls", "tollgate task list"),
        ("rm", "tollgate delete FILE"),
        ("approve", "tollgate task approve TASK"),
        ("setup", "tollgate init --host HOST"),
    ] {
        let ran = world.run(tried).is(2);
        assert!(ran.stderr().contains(&format!("tip: to do that, run `{right}")), "{ran}");
    }
    // clap still knows the similar ones.
    let ran = world.run("statsu").is(2);
    assert!(ran.stderr().contains("'status'"), "{ran}");
}

#[test]
fn usage_errors_are_json_if_json_is_asked_for() {
    let world = World::new();
    for line in ["write --json", "task claim --json", "--json nonsense", "ledger tail --json --lines"] {
        let ran = world.run(line).is(2);
        ran.fault("USAGE");
    }
    insta::assert_snapshot!(world.run("undo --to --json").filtered, @r#"
    exit 2
    --- stdout
    {"error":"USAGE","message":"a value is required for '--to <ID>' but none was supplied","hint":"run the command with `--help` to see how to call it"}
    "#);
}

#[test]
fn man_pages_for_every_command() {
    let world = World::new();
    let json = world.json("man pages");
    let page = |name: &str| std::fs::read_to_string(world.path("pages").join(name)).unwrap();
    for name in ["tollgate.1", "tollgate-status.1", "tollgate-task-claim.1", "tollgate-merge.1"] {
        assert!(page(name).starts_with(".ie"), "{name}");
    }
    let pages = std::fs::read_dir(world.path("pages")).unwrap().count();
    assert_eq!(json["pages"], pages);
    assert!(pages > 50, "{pages}");
    insta::assert_snapshot!(world.run("man pages").filtered.replace(&pages.to_string(), "[N]"), @r"
    exit 0
    --- stdout
    wrote [N] man pages to `pages`
    ");
    world.puts("file", "");
    insta::assert_snapshot!(world.run("man file").filtered, @r"
    exit 3
    --- stderr
    error: cannot write man pages to `file`: File exists (os error 17)
    hint: try again; if it fails again, run `tollgate doctor`
    ");
}

#[test]
fn an_export_on_a_terminal_has_no_control_characters_and_a_pipe_gets_the_bytes() {
    let world = World::new();
    let name = "a\u{9b}31mb\u{85}\u{202e}";
    world.tollgate(["write", name]).stdin("x").ends().is(0);
    for format in ["ndjson", "cloudevents", "otlp", "agent-trace"] {
        let export = || world.tollgate(["export", "--to", format]);
        let shown = export().typed("").is(0).shown;
        assert!(shown.contains("a\\u009b31mb\\u0085\\u202e"), "{format}: {shown}");
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'),
            "{format}: {shown:?}"
        );
        let piped = export().typed_with_stdout("").is(0).stdout;
        assert!(piped.contains(name), "{format}: {piped:?}");
        let read = |text: &str| -> Vec<serde_json::Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(read(&shown).len(), read(&piped).len(), "{format}");
    }
}

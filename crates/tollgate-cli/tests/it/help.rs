//! Help and completions.

use crate::world::World;

const COMMANDS: &[&str] = &[
    "",
    "init",
    "turn",
    "turn begin",
    "turn end",
    "turn show",
    "turn list",
    "turn hash",
    "read",
    "write",
    "edit",
    "create",
    "delete",
    "move",
    "apply",
    "task",
    "task add",
    "task list",
    "task show",
    "task why",
    "task claim",
    "task verify",
    "task renew",
    "task progress",
    "task release",
    "task approve",
    "task reject",
    "task reclaim",
    "task figures",
    "work",
    "sync",
    "mcp",
    "serve",
    "recovery",
    "recovery list",
    "recovery show",
    "recovery restore",
    "ledger",
    "ledger tail",
    "ledger verify",
    "hook",
];

#[test]
fn every_command_has_help_with_an_example() {
    let world = World::new();
    for command in COMMANDS.iter().copied().chain(["doctor", "completions"]) {
        let help = world.run(&format!("{command} --help")).is(0).stdout();
        let (about, example) = help.split_once("Example").unwrap_or_else(|| panic!("{command}: {help}"));
        let last = command.split(' ').next_back().unwrap();
        assert!(example.contains("tollgate") && example.contains(last), "{command}: {example}");
        assert!(about.len() > 40, "{command}: {about}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{command}: {help}");
    }
}

#[test]
fn the_list_above_is_all_there_is() {
    let world = World::new();
    let listed = |help: &str| -> Vec<String> {
        let list = help.split("Commands:").nth(1).map_or("", |rest| rest.split("Options:").next().unwrap());
        let name = |line: &str| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned);
        list.lines().filter_map(name).filter(|name| !name.is_empty() && name != "help").collect()
    };
    for name in listed(&world.run("--help").stdout()) {
        assert!(
            COMMANDS.contains(&name.as_str()) || ["doctor", "completions"].contains(&name.as_str()),
            "{name}"
        );
        for below in listed(&world.run(&format!("{name} --help")).stdout()) {
            assert!(COMMANDS.contains(&format!("{name} {below}").as_str()), "{name} {below}");
        }
    }
}

#[test]
fn the_first_page_of_help() {
    insta::assert_snapshot!(World::new().run("-h").filtered, @r#"
    exit 0
    --- stdout
    Many agents, one workspace, nothing lost

    Usage: tollgate [OPTIONS] <COMMAND>

    Commands:
      init         Prepare a workspace: write `.tollgate/config.toml`
      turn         Begin, end and look at a turn: what an agent has read, and may therefore overwrite
      read         Print a file, and let the turn remember what was seen
      write        Replace a file by what is on stdin, unless it has changed since it was read
      edit         Replace old text by new text in a file
      create       Make a new file from what is on stdin; refused if there is one already
      delete       Take a file away, unless it has changed since it was read
      move         Give a file another path; refused if it has changed since it was read, or if the new
                   path is taken
      apply        Make many changes at once, all or none, from JSON on stdin
      task         Add, list, claim, release and decide on tasks: markdown files in the folders of a
                   vault
      work         Claim tasks and run a command for each
      sync         One round with the git remote: look, bring in what is new, take back what silent
                   owners have left
      mcp          Serve the workspace to one agent over MCP, on stdin and stdout
      serve        Serve the dashboard of this workspace, its figures, and MCP for agents
      recovery     List, show and restore what guarded writes replaced
      ledger       Follow and verify the ledger: one line for everything that happened
      hook         Answer an agent program that is about to use a tool, or has used it
      doctor       Look at the workspace: how well files are protected here, what is broken, and how to
                   mend it
      completions  Print the completions for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Everywhere:
      -C, --workspace <DIR>  The workspace [default: the nearest folder upward with `.tollgate`, else
                             the git root, else here]
          --json             Print one JSON document and nothing else on stdout
          --turn <ID>        The turn, as `turn begin` named it [default: TOLLGATE_TURN; else the
                             command is a turn of its own]
          --agent <NAME>     Who acts [default: TOLLGATE_AGENT, else your user name]; in `ledger tail`,
                             whose lines to show

    Example: read, think, write, in a turn
      export TOLLGATE_TURN=$(tollgate turn begin --agent blue)
      tollgate read src/a.rs > draft
      (change the draft)
      tollgate write src/a.rs < draft || echo 'read it again and redo the change'
      tollgate turn end

    Exit codes
      0 done   1 refused, or not valid   2 usage   3 fault

    Output
      With --json, stdout is one JSON document: the answer, the payload of a refusal, or
      {"error","message","hint"} of a fault. Without it, refusals and faults are words on stderr;
      for each stale file of a refused change, stdout has its report as one line of JSON.
    "#);
}

#[test]
fn completions_for_each_shell() {
    let world = World::new();
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef tollgate"), ("fish", "complete -c tollgate")]
    {
        let script = world.run(&format!("completions {shell}")).is(0).stdout();
        assert!(script.contains(sign) && script.contains("recovery"), "{shell}");
        let json = world.json(&format!("completions {shell}"));
        assert_eq!(json["script"].as_str().unwrap(), script.trim_end());
    }
    world.script("tollgate completions bash | bash -n && source <(tollgate completions bash)").ends().is(0);
}

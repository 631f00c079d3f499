//! Help and completions.

use std::collections::BTreeSet;

use crate::world::World;

/// All commands of the help. The first, which has no name, is `tollgate` itself.
pub(crate) fn commands(world: &World) -> BTreeSet<String> {
    let listed = |command: &str| -> Vec<String> {
        let help = world.run(&format!("{command} --help")).is(0).stdout();
        let list = help.split("Commands:").nth(1).map_or("", |rest| rest.split("Options:").next().unwrap());
        let name = |line: &str| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned);
        list.lines().filter_map(name).filter(|name| !name.is_empty() && name != "help").collect()
    };
    let mut commands = BTreeSet::from([String::new()]);
    for name in listed("") {
        commands.extend(listed(&name).iter().map(|below| format!("{name} {below}")));
        commands.insert(name);
    }
    assert!(commands.len() > 50, "{commands:?}");
    commands
}

#[test]
fn every_command_has_help_with_an_example() {
    let world = World::new();
    for command in commands(&world) {
        let help = world.run(&format!("{command} --help")).is(0).stdout();
        let (about, example) = help.split_once("Example").unwrap_or_else(|| panic!("{command}: {help}"));
        let last = command.split(' ').next_back().unwrap();
        assert!(example.contains("tollgate") && example.contains(last), "{command}: {example}");
        assert!(about.len() > 40, "{command}: {about}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{command}: {help}");
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
      init         Set up a workspace: write `.tollgate/config.toml`
      status       Show what is guarded here, who works here, and what waits for a person
      turn         Start, end and show a turn: the files that an agent has read, and may therefore
                   overwrite
      read         Print a file, and record its hash in the turn
      write        Write stdin to a file; refused if the file has changed since it was read
      edit         Replace old text with new text in a file
      create       Create a file from stdin; refused if the file already exists
      delete       Delete a file; refused if it has changed since it was read
      move         Move or rename a file; refused if it has changed since it was read, or if the new
                   path exists
      apply        Make several changes atomically, from JSON on stdin
      commit       Commit your own changes in git, and nobody else's
      merge        Merge a refused write with the file on disk
      run          Run a command; refused if it would overwrite a change that its author has not seen
      task         Add, list, claim, release, approve and reject tasks: Markdown files in the folders of
                   a vault
      work         Claim tasks and run a command for each
      sync         Synchronise once with the git remote: fetch new commits, and reclaim the tasks of
                   dead owners
      vault        Copy tasks between the store of this workspace and another store
      mcp          Serve the workspace to one agent over MCP, on stdin and stdout
      serve        Serve the dashboard of this workspace, figures for monitoring, and MCP for agents
      token        Add, list and remove the tokens of agents and monitoring programs
      history      Show what agents have changed, newest first
      show         Show the diff of a change, of a whole turn, or of all that was done for a task
      blame        Show who wrote each line of a file: which agent, in which change, or which commit
      bisect       Find the change with which a command began to fail
      diff         Show what has changed since some time, or since a change, in the files that agents
                   have changed
      undo         Undo a change: the last one, that of a file, a whole turn, or all that was done for a
                   task
      restore      Restore a file as it was at some time, or after a change
      recovery     List, show and restore the bytes that guarded writes replaced
      ledger       Show, follow, verify and audit the ledger, which has one line per event
      export       Export the ledger to other systems: NDJSON, CloudEvents, OpenTelemetry, Agent Trace
      hook         Check an agent program's tool call, before and after it runs
      doctor       Check the workspace: how well files are protected here, what is broken, and how to
                   fix it
      trust        Trust the commands, addresses and folders in this workspace's configuration
      man          Write man pages into a folder, one for each command
      completions  Print a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Global options:
      -C, --workspace <DIR>  Workspace [default: the nearest folder upward with `.tollgate` or `.git`,
                             else the current folder]
          --json             Print one JSON document and nothing else on stdout
          --turn <ID>        Turn ID, as printed by `turn begin` [default: TOLLGATE_TURN; without one,
                             the command is its own turn]
          --agent <NAME>     Agent name [default: TOLLGATE_AGENT, else your user name]; `ledger tail`
                             shows only this agent's lines

    Example: read, think, write, in a turn
      export TOLLGATE_TURN=$(tollgate turn begin --agent blue)
      tollgate read src/a.rs > draft
      (change the draft)
      tollgate write src/a.rs < draft || echo 'read it again and redo the change'
      tollgate turn end

    Exit codes
      0 done   1 refused, or not valid   2 usage error   3 fault

    Output
      With --json, stdout is one JSON document: the answer, the payload of a refusal, or
      {"error","message","hint"} of a fault. Without it, refusals and faults are text on stderr;
      for each stale file of a refused change, stdout has its report as one line of JSON, unless it is
      a terminal. On a terminal, text has colours; NO_COLOR=1 or CLICOLOR=0 switches them off.
    "#);
}

#[test]
fn completions_for_each_shell() {
    let world = World::new();
    for (shell, sign) in
        [("bash", "complete -o"), ("zsh", "#compdef tollgate"), ("fish", "complete --keep-order")]
    {
        let script = world.run(&format!("completions {shell}")).is(0).stdout();
        assert!(script.contains(sign) && script.contains("TOLLGATE_COMPLETE"), "{shell}: {script}");
        let json = world.json(&format!("completions {shell}"));
        assert_eq!(json["script"].as_str().unwrap(), script.trim_end());
    }
}

/// Presses Tab after this line in bash, and returns what is offered.
fn completed(world: &World, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let script = format!(
        "source <(tollgate completions bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9; \
         _clap_complete_tollgate tollgate '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    world.script(&script).ends().is(0).stdout()
}

#[test]
fn bash_completes_tasks_agents_and_recovery_ids() {
    let world =
        World::with("[vault]\ndurability = \"fast\"\nsettle = \"50ms\"\n[agent.violet]\nallowed = [\"x\"]\n");
    world.run("init --vault").is(0);
    for title in ["Pay the rent", "Paint it"] {
        world.tollgate(["task", "add", title]).ends().is(0);
    }
    // Completing a name must not run what is in it.
    std::fs::write(world.path("vault/Needs_Action/pa$(touch hacked);x.md"), "# x\n").unwrap();
    assert_eq!(completed(&world, "tollgate task show pa"), "paint-it\npay-the-rent\n");
    assert_eq!(completed(&world, "tollgate task clai"), "claim\n");
    assert_eq!(completed(&world, "tollgate task claim --next --agent vi"), "violet\n");
    std::fs::write(world.path("a"), "one").unwrap();
    let turn = world.run("turn begin --agent blue").stdout();
    world.tollgate(["read", "a", "--turn", turn.trim()]).ends().is(0);
    world.tollgate(["write", "a", "--turn", turn.trim()]).stdin("two").ends().is(0);
    let id = world.json("recovery list")[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(completed(&world, "tollgate recovery show 0"), format!("{id}\n"));
    assert_eq!(completed(&world, "tollgate undo --to 0"), format!("{id}\n"));
    assert!(!world.path("hacked").exists());
    // Outside of any workspace nothing is offered, and nothing is created.
    let bare = World::bare();
    assert_eq!(completed(&bare, "tollgate task show x"), "\n");
    assert!(!bare.path(".tollgate").exists());
}

/// `tollgate work` calls `tollgate launch`. People never do.
#[test]
fn the_internal_command_launch_is_not_offered() {
    let world = World::new();
    assert_eq!(completed(&world, "tollgate la"), "\n");
    for line in ["lunch", "launc", "launch", "launch 1 make"] {
        let ran = world.run(line).is(2);
        assert!(!ran.stderr().contains("similar"), "{ran}");
    }
    assert!(!world.run("help").stdout().contains("launch"));
}

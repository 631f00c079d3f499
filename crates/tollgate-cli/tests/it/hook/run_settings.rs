//! Which settings let commands run as transactions, and what `init` and `doctor` say about it.

use std::fs;

use super::run::{HOSTS, SETTINGS, repository, runs};
use super::{Program, Tool};
use crate::world::World;

#[test]
fn commands_are_blocked_if_the_run_cannot_be_prepared_and_run_by_default() {
    let world = repository(SETTINGS);
    let agent = Program::new(&world, "claude-code", "s");
    runs(&agent, "cat f");
    fs::remove_dir_all(world.path(".tollgate/run")).unwrap();
    world.puts(".tollgate/run", "not a folder");
    assert!(agent.asks(&agent.before(&Tool::Shell("python3 fix.py"), "c")).is_some());
    let world = repository("");
    let agent = Program::new(&world, "claude-code", "s");
    assert_eq!(agent.asks(&agent.before(&Tool::Shell("python3 fix.py"), "c")), None);
}

#[test]
fn the_doctor_sends_a_command_through_the_hooks_and_tells_the_level() {
    let world = World::with(SETTINGS);
    for host in HOSTS {
        world.run(&format!("init --host {host}")).is(0);
    }
    let said = world.run("doctor").stdout();
    for host in HOSTS {
        let line = said.lines().find(|line| line.contains(&format!("`{host}`: hooks"))).unwrap_or_default();
        assert!(line.contains("`tollgate run`, level `transaction`"), "{host}: {said}");
    }
    let world = World::with("");
    world.run("init --host copilot").is(0);
    let said = world.run("doctor").stdout();
    let line = said.lines().find(|line| line.contains("`copilot`: hooks")).unwrap();
    assert!(!line.contains("tollgate run"), "commands are only parsed: {line}");
}

#[test]
fn init_lets_commands_run_where_the_program_was_tried_with_it() {
    let line = |world: &World, key: &str| {
        let text = fs::read_to_string(world.path(".tollgate/config.toml")).unwrap();
        text.lines().find(|line| line.contains(&format!("{key} = "))).map(str::to_owned)
    };
    let shell = |world: &World| line(world, "shell");
    let (runs, parses) = ("shell = \"transaction\"", "# shell = \"parse\"");
    for (hosts, shell, parse) in [
        ("--host codex --host copilot", runs, "# parse = []"),
        ("--host cline --host opencode", runs, "# parse = []"),
        ("--host kilo", runs, "# parse = []"),
        ("--host claude-code", runs, "# parse = []"),
        ("--host copilot --host gemini", runs, "parse = [\"gemini\"]"),
        ("--host gemini", parses, "parse = [\"gemini\"]"),
        ("--host qwen", parses, "parse = [\"qwen\"]"),
        ("", parses, "# parse = []"),
    ] {
        let world = World::new();
        world.run(&format!("init {hosts}")).is(0);
        assert_eq!(line(&world, "shell").as_deref(), Some(shell), "{hosts}");
        assert_eq!(line(&world, "parse").as_deref(), Some(parse), "{hosts}");
        world.run("init --remove").is(0);
        assert!(!world.path(".tollgate/config.toml").exists(), "{hosts}: it is the unchanged template");
    }
    let world = World::new();
    world.run("init").is(0);
    world.run("init --host cline").is(0);
    assert_eq!(
        shell(&world).as_deref(),
        Some("shell = \"transaction\""),
        "the template said nothing about it"
    );
    let world = World::with("[run]\nshell = \"parse\"\n");
    world.run("init --host cline").is(0);
    assert_eq!(shell(&world).as_deref(), Some("shell = \"parse\""), "the user has decided");
}

#[test]
fn a_program_can_be_left_to_the_parser() {
    let world = repository(&format!("{SETTINGS}parse = [\"gemini\"]\n"));
    let answer_to = |host: &'static str| {
        let program = Program::new(&world, host, "s");
        program.hook(&program.before(&Tool::Shell("python3 fix.py"), "c")).stdout()
    };
    assert!(answer_to("copilot").contains("python3 fix.py"), "its command gets a line in front");
    assert_eq!(answer_to("gemini"), "", "its command stays as it is");
}

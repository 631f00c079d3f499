//! Hooks find the workspace from each file, wherever the payload says that the agent is.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Came, HOSTS, Program, Tool, reserved};
use crate::world::World;

const FAST: &str = "[guard]\ndurability = \"fast\"\nquiet_wait = \"20ms\"\n[vault]\ndurability = \"fast\"\n";

/// A workspace, a folder beside it, and an agent that has read two files.
fn everywhere(story: impl Fn(&World, &Program<'_>)) {
    for host in HOSTS {
        let world = World::with(FAST);
        world.run("init --vault").is(0);
        fs::create_dir(world.tmp().join("elsewhere")).unwrap();
        world.puts("a.txt", "one\n");
        world.puts("sub/b.txt", "one\n");
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt").reads("sub/b.txt");
        story(&world, &agent);
    }
}

/// The payload, from an agent in this folder.
pub(super) fn from(mut payload: Value, folder: &Path) -> Value {
    for key in ["cwd", "directory"] {
        if payload.get(key).is_some() {
            payload[key] = json!(folder);
        }
    }
    for key in ["workspace_roots", "workspaceRoots"] {
        if payload.get(key).is_some() {
            payload[key] = json!([folder]);
        }
    }
    payload
}

pub(super) fn asked(agent: &Program<'_>, tool: &Tool<'_>, folder: &Path) -> Came {
    match agent.asks(&from(agent.before(tool, "elsewhere"), folder)) {
        Some(reason) => Came::Blocked(reason),
        None => Came::Ran(String::new()),
    }
}

fn in_w(world: &World, name: &str) -> String {
    world.path(name).to_str().unwrap().to_owned()
}

#[test]
fn an_agent_that_is_elsewhere_is_judged_by_the_workspace_of_the_file() {
    everywhere(|world, agent| {
        let elsewhere = world.tmp().join("elsewhere");
        for file in [".tollgate/config.toml", "vault/Approved/x.md", ".claude/settings.json", ".git/config"] {
            let path = in_w(world, file);
            asked(agent, &Tool::Write(&path, "x\n"), &elsewhere).refused("PROTECTED_PATH");
            asked(agent, &Tool::Shell(&format!("echo x > {path}")), &elsewhere).refused("PROTECTED_PATH");
            asked(agent, &Tool::Shell(&format!("cd ../w && echo x > {file}")), &elsewhere)
                .refused("PROTECTED_PATH");
        }
        world.puts("a.txt", "foreign\n");
        let path = in_w(world, "a.txt");
        asked(agent, &Tool::Write(&path, "mine\n"), &elsewhere).refused("STALE_FILE");
        asked(agent, &Tool::Shell(&format!("echo mine > {path}")), &elsewhere).refused("STALE_FILE");
        asked(agent, &Tool::Shell("echo mine > ../w/a.txt"), &elsewhere).refused("STALE_FILE");
        asked(agent, &Tool::Write(&path, "mine\n"), Path::new("/no/such/folder")).refused("STALE_FILE");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "no state where no workspace is");
        // After a re-read from there, the write is the agent's own.
        let read = Tool::Shell("cat ../w/a.txt");
        asked(agent, &read, &elsewhere).ran();
        agent.says(&from(agent.after(&read, "elsewhere", "foreign\n"), &elsewhere));
        asked(agent, &Tool::Write(&path, "mine\n"), &elsewhere).ran();
        assert_eq!(reserved(world), 1);
        world.puts("a.txt", "mine\n");
        // The agent has gone on when the tool has run.
        agent.says(&from(agent.after(&Tool::Write(&path, "mine\n"), "elsewhere", "written"), Path::new("/")));
        assert_eq!(reserved(world), 0);
        agent.writes("a.txt", "more\n").ran();
    });
}

#[test]
fn a_new_state_folder_takes_no_file_out_of_its_workspace() {
    everywhere(|world, agent| {
        let sub = world.path("sub");
        // By a program that no hook sees.
        world.puts("sub/.tollgate/config.toml", "[guard]\nmode = \"off\"\n[hooks]\non_fault = \"allow\"\n");
        world.puts("vault/.tollgate/config.toml", "[guard]\nmode = \"off\"\n");
        world.puts("a.txt", "foreign\n");
        world.puts("sub/b.txt", "foreign\n");
        for file in ["a.txt", "sub/b.txt"] {
            let path = in_w(world, file);
            asked(agent, &Tool::Write(&path, "mine\n"), &sub).refused("STALE_FILE");
            asked(agent, &Tool::Shell(&format!("echo mine > {path}")), &sub).refused("STALE_FILE");
        }
        asked(agent, &Tool::Shell("echo mine > ../a.txt"), &sub).refused("STALE_FILE");
        asked(agent, &Tool::Shell("echo mine > b.txt"), &sub).refused("STALE_FILE");
        for file in
            ["vault/Approved/x.md", "vault/In_Progress/x/y.md", ".mcp.json", "sub/.tollgate/config.toml"]
        {
            asked(agent, &Tool::Write(&in_w(world, file), "x\n"), &sub).refused("PROTECTED_PATH");
        }
        assert_eq!(reserved(world), 0);
    });
}

#[test]
fn a_call_with_files_in_two_workspaces_needs_the_consent_of_both() {
    for host in ["codex", "opencode", "copilot", "cline"] {
        let world = World::with(FAST);
        let other = World::with(FAST);
        world.puts("a.txt", "one\n");
        other.puts("b.txt", "one\n");
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt").reads(other.path("b.txt").to_str().unwrap());
        let patch = format!(
            "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** Update File: {}\n@@\n-one\n+two\n*** End Patch",
            other.path("b.txt").display()
        );
        other.puts("b.txt", "foreign\n");
        assert!(agent.asks(&agent.before(&Tool::Patch(&patch), "c1")).unwrap().contains("STALE_FILE"));
        assert_eq!((reserved(&world), reserved(&other)), (0, 0), "{host}");
        other.puts("b.txt", "one\n");
        assert_eq!(agent.asks(&agent.before(&Tool::Patch(&patch), "c2")), None);
        assert_eq!((reserved(&world), reserved(&other)), (1, 1), "{host}");
        // The end of the work ends the reservations in both.
        agent.stops();
        assert_eq!((reserved(&world), reserved(&other)), (0, 0), "{host}");
    }
}

#[test]
fn the_root_of_the_agents_checkout_is_nearer_than_a_state_further_up() {
    for host in HOSTS {
        // A stray state in a folder above, which has not been used.
        let world = World::new();
        world.puts("proj/a.txt", "one\n");
        fs::create_dir(world.path("proj/.git")).unwrap();
        let (agent, proj) = (Program::new(&world, host, "s"), world.path("proj"));
        let path = in_w(&world, "proj/a.txt");
        asked(&agent, &Tool::Write(&path, "mine\n"), &proj).ran();
        assert!(proj.join(".tollgate/ledger.jsonl").exists(), "{host}");
        // What the workspace above protects stays protected.
        world.puts(".tollgate/config.toml", "[guard]\nprotected = [\"proj/b.txt\"]\n");
        asked(&agent, &Tool::Write(&in_w(&world, "proj/b.txt"), "x\n"), &proj).refused("PROTECTED_PATH");
    }
}

#[test]
fn a_new_checkout_takes_no_file_out_of_its_workspace() {
    everywhere(|world, agent| {
        let sub = world.path("sub");
        fs::create_dir(sub.join(".git")).unwrap();
        world.puts("sub/b.txt", "foreign\n");
        asked(agent, &Tool::Write(&in_w(world, "sub/b.txt"), "mine\n"), &sub).refused("STALE_FILE");
        asked(agent, &Tool::Shell("echo mine > b.txt"), &sub).refused("STALE_FILE");
    });
}

/// Another session has the first number outside, so the agent has two names.
#[test]
fn an_agent_in_an_inner_workspace_acts_under_its_name_there() {
    for host in HOSTS {
        let world = World::with(FAST);
        world.puts("a.txt", "one\n");
        world.puts("inner/.tollgate/config.toml", FAST);
        Program::new(&world, host, "first").reads("a.txt");
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt");
        let claim = |name: &str| {
            let command = format!("tollgate task claim --next --agent {name}; cat {}", in_w(&world, "a.txt"));
            asked(&agent, &Tool::Shell(&command), &world.path("inner"))
        };
        assert!(matches!(claim(&format!("{host}-1")), Came::Ran(_)), "{host}");
        assert!(matches!(claim("boss"), Came::Blocked(_)), "{host}");
    }
}

#[test]
fn hooks_create_no_state_in_the_home_folder() {
    let world = World::bare();
    let agent = Program::new(&world, "claude-code", "s");
    let payload = agent.before(&Tool::Write("a.txt", "x\n"), "c").to_string();
    let hook =
        || world.tollgate(["hook", "claude-code"]).env("HOME", world.root()).stdin(&payload).ends().is(0);
    let answer = hook().stdout();
    assert!(answer.contains("contains your home folder") && answer.contains("tollgate init"), "{answer}");
    assert!(!world.path(".tollgate").exists());
    world.tollgate(["init"]).env("HOME", world.root()).ends().is(0);
    assert_eq!(hook().stdout(), "");
}

/// The workspace of the agent and two others, in which it has read a file. They are broken one after the other.
fn with_one_broken(story: impl Fn(&World, &Program<'_>, [&Path; 3], &dyn Fn())) {
    for broken in 0..3 {
        let world = World::with(FAST);
        let roots = [world.root(), world.tmp().join("one"), world.tmp().join("two")];
        let agent = Program::new(&world, "claude-code", "s");
        for root in &roots {
            world.puts(root.join(".tollgate/config.toml"), FAST);
            world.puts(root.join("a.txt"), "one\n");
            agent.reads(root.join("a.txt").to_str().unwrap());
        }
        let breaks = || world.puts(roots[broken].join(".tollgate/config.toml"), "nonsense");
        let [home, one, two] = &roots;
        let mut roots = [home.as_path(), one, two];
        roots.swap(0, broken);
        story(&world, &agent, roots, &breaks);
    }
}

#[test]
fn a_turn_begins_in_all_workspaces_even_if_one_is_broken() {
    with_one_broken(|_, agent, [_, good, better], breaks| {
        breaks();
        agent.prompts();
        for root in [good, better] {
            let ledger = fs::read_to_string(root.join(".tollgate/ledger.jsonl")).unwrap();
            let begun = ledger.lines().filter(|line| line.contains("TURN_STARTED")).count();
            assert_eq!(begun, 2, "{}", root.display());
        }
    });
}

#[test]
fn after_a_tool_no_workspace_keeps_a_reservation_because_another_is_broken() {
    with_one_broken(|world, agent, roots, breaks| {
        let files = roots.map(|root| root.join("a.txt").display().to_string());
        let tool = format!("echo x > {}; echo x > {}; echo x > {}", files[0], files[1], files[2]);
        let tool = Tool::Shell(&tool);
        assert_eq!(agent.asks(&agent.before(&tool, "c")), None);
        files.iter().for_each(|file| world.puts(file, "x\n"));
        breaks();
        let told = agent.hook(&agent.after(&tool, "c", "")).stdout();
        for root in &roots[1..] {
            let left = tollgate_guard::doctor::leftovers(&root.join(".tollgate")).unwrap();
            assert_eq!(left.reservations.len(), 0, "{}: {told}", root.display());
        }
    });
}

//! The names of agents that call hooks: a number for each session, and never two sessions with one name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Barrier;

use serde_json::{Value, json};
use tollgate_testing::strace;

use super::{Program, Tool};
use crate::task_crash::{CALLS, changing_calls};
use crate::world::{Run, World};

const FAST: &str = "[guard]\ndurability = \"fast\"\n";

/// The hook at the start of a session in this folder. Its answer tells the agent its name.
fn start<'w>(world: &'w World, folder: &Path, session: &str) -> Run<'w> {
    let payload = json!({"session_id": session, "transcript_path": "/t", "cwd": folder,
        "hook_event_name": "SessionStart", "source": "startup"});
    world.tollgate(["hook", "claude-code"]).stdin(payload.to_string())
}

/// The name that the agent of this session is told at its start.
fn name_in(world: &World, folder: &Path, session: &str) -> String {
    let told = start(world, folder, session).ends().is(0).stdout();
    told.split_once("--agent ").unwrap().1.split(['`', ' ']).next().unwrap().to_owned()
}

fn name(world: &World, session: &str) -> String {
    name_in(world, &world.root(), session)
}

/// The agents that have begun turns, in order.
fn begun(world: &World) -> Vec<String> {
    let ledger = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap();
    let lines = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines = lines.filter(|line| line["action_type"] == "TURN_STARTED");
    lines.map(|line| line["agent"].as_str().unwrap().to_owned()).collect()
}

fn numbered(count: usize) -> BTreeSet<String> {
    (1..=count).map(|number| format!("claude-code-{number}")).collect()
}

fn list(world: &World) -> Value {
    serde_json::from_slice(&fs::read(world.path(".tollgate/agents.json")).unwrap()).unwrap()
}

/// Makes all sessions look as if they had called their last hook this number of days ago.
fn age(world: &World, days: i64) {
    let mut list = list(world);
    let then = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
    for session in list["sessions"].as_array_mut().unwrap() {
        session["used"] = then.to_string().into();
    }
    world.puts(".tollgate/agents.json", list.to_string());
}

/// Makes all private folders look as if their session had noted its name two hours ago.
fn age_kept_names(world: &World) {
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    for folder in fs::read_dir(world.tmp().join("run/tollgate")).unwrap() {
        for agent in fs::read_dir(folder.unwrap().path().join("hooks")).unwrap() {
            let kept = fs::File::options().write(true).open(agent.unwrap().path().join("name")).unwrap();
            kept.set_modified(then).unwrap();
        }
    }
}

fn is_hashed(name: &str) -> bool {
    let hash = name.strip_prefix("claude-code-").unwrap();
    hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A vault keeps its own state in a folder of the same name.
#[test]
fn a_vault_alone_is_no_workspace_and_gets_no_state() {
    let world = World::bare();
    world.puts(".tollgate/vault", "1\n");
    assert_eq!(start(&world, &world.root(), "s").ends().is(0).stdout(), "");
    assert!(!world.path(".tollgate/version").exists());
}

#[test]
fn sessions_that_start_at_the_same_moment_get_different_names() {
    const SESSIONS: usize = 16;
    let world = World::with(FAST);
    let barrier = Barrier::new(SESSIONS);
    let names: Vec<String> = std::thread::scope(|scope| {
        let started = |number| {
            barrier.wait();
            name(&world, &format!("s{number}"))
        };
        let threads: Vec<_> = (0..SESSIONS).map(|number| scope.spawn(move || started(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), SESSIONS, "{names:?}");
    // On a machine that is too busy, a session may wait too long for the lock. Then it has a hash.
    let is_as_told = |name: &String| numbered(SESSIONS).contains(name) || is_hashed(name);
    assert!(names.iter().all(is_as_told), "{names:?}");
    for (number, given) in names.iter().enumerate() {
        assert_eq!(name(&world, &format!("s{number}")), *given);
    }
}

#[test]
fn hooks_of_one_session_that_run_at_the_same_moment_have_one_name() {
    const HOOKS: usize = 8;
    let world = World::with(FAST);
    world.puts("a.txt", "one\n");
    let barrier = Barrier::new(HOOKS);
    std::thread::scope(|scope| {
        for number in 0..HOOKS {
            let (world, barrier) = (&world, &barrier);
            scope.spawn(move || {
                let agent = Program::new(world, "claude-code", "s").subagent(&format!("a{number}"));
                let payload = agent.before(&Tool::Read("a.txt"), "c");
                barrier.wait();
                assert_eq!(agent.asks(&payload), None);
            });
        }
    });
    let begun = begun(&world);
    assert_eq!(begun.len(), HOOKS);
    // Each subagent is an agent of its own, with the name of the session in front.
    assert_eq!(begun.iter().collect::<BTreeSet<_>>().len(), HOOKS, "{begun:?}");
    assert!(begun.iter().all(|name| name.starts_with("claude-code-1.")), "{begun:?}");
    assert_eq!(list(&world)["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_session_keeps_its_name_whatever_ends_in_between() {
    let world = World::with(FAST);
    world.puts("a.txt", "one\n");
    let agents = ["s1", "s2"].map(|session| Program::new(&world, "claude-code", session));
    for agent in &agents {
        agent.reads("a.txt");
    }
    Program::new(&world, "codex", "s1").reads("a.txt");
    assert_eq!(begun(&world), ["claude-code-1", "claude-code-2", "codex-1"]);
    // The session ends and is resumed; the machine is started again, so that what is in memory is gone.
    agents[0].leaves();
    agents[1].prompts();
    fs::remove_dir_all(world.tmp().join("run/tollgate")).unwrap();
    agents[1].reads("a.txt");
    agents[0].reads("a.txt");
    assert_eq!(begun(&world)[3..], ["claude-code-2", "claude-code-2", "claude-code-1"]);
    assert_eq!(name(&world, "s3"), "claude-code-3");
    // Somebody deletes the file while the sessions go on.
    fs::remove_file(world.path(".tollgate/agents.json")).unwrap();
    assert_eq!(name(&world, "s2"), "claude-code-2");
}

#[test]
fn an_agent_writes_the_tasks_that_it_claimed_under_its_name_and_no_others() {
    let world = World::with(FAST);
    world.run("init --vault").is(0);
    world.puts("vault/Needs_Action/pay.md", "# Pay\n");
    let [one, two] = ["s1", "s2"].map(|session| Program::new(&world, "claude-code", session));
    let claimer = name(&world, "s1");
    assert_ne!(name(&world, "s2"), claimer);
    world.tollgate(["task", "claim", "pay", "--agent", &claimer]).ends().is(0);
    let file = format!("vault/In_Progress/{claimer}/pay.md");
    for agent in [&one, &one.subagent("helper")] {
        agent.reads(&file);
        agent.writes(&file, "# Pay\n\nHalf of it.\n").ran();
    }
    two.reads(&file);
    two.writes(&file, "# Mine\n").refused("PROTECTED_PATH");
    // Nor those of the user who started it.
    let theirs = "vault/In_Progress/ada/theirs.md";
    world.puts(theirs, "# Theirs\n");
    let one = one.started_with(vec![("USER", "ada".into())]);
    one.reads(theirs);
    one.writes(theirs, "# Mine\n").refused("PROTECTED_PATH");
}

#[test]
fn a_number_is_free_a_week_after_its_session_unless_something_has_its_name() {
    let world = World::with(&format!("{FAST}unread = \"known\"\n[agent.claude-code-4]\nallowed = []\n"));
    world.run("init --vault").is(0);
    world.puts("a.txt", "one\n");
    let agents = ["s1", "s2", "s3"].map(|session| Program::new(&world, "claude-code", session));
    for agent in &agents {
        agent.reads("a.txt");
    }
    assert_eq!(begun(&world), ["claude-code-1", "claude-code-2", "claude-code-3"]);
    world.puts("vault/In_Progress/claude-code-3/pay.md", "# Pay\n");
    for agent in &agents[1..] {
        agent.leaves();
    }
    // What the agents know outlives their sessions, and 4 has a table.
    age(&world, 8);
    assert_eq!(name(&world, "s5"), "claude-code-5");
    let known = |name: &str| {
        let folders = fs::read_dir(world.tmp().join("run/tollgate")).unwrap();
        folders.map(|folder| folder.unwrap().path().join("known").join(name)).find(|known| known.exists())
    };
    for agent in ["claude-code-1", "claude-code-2", "claude-code-3"] {
        fs::remove_dir_all(known(agent).unwrap()).unwrap();
    }
    // 1 has a running turn, 2 has nothing any more, 3 has a task.
    assert_eq!(name(&world, "s6"), "claude-code-2");
    assert_eq!(name(&world, "s7"), "claude-code-6");
    fs::remove_file(world.path("vault/In_Progress/claude-code-3/pay.md")).unwrap();
    assert_eq!(name(&world, "s8"), "claude-code-3");
    age(&world, 6);
    assert_eq!(name(&world, "s9"), "claude-code-7", "a week has not passed");
}

#[test]
fn a_session_that_is_in_use_notes_it_so_that_nobody_gets_its_name() {
    let world = World::with(FAST);
    assert_eq!(name(&world, "s1"), "claude-code-1");
    age(&world, 8);
    age_kept_names(&world);
    assert_eq!(name(&world, "s1"), "claude-code-1");
    assert_eq!(name(&world, "s2"), "claude-code-2");
}

#[test]
fn a_session_keeps_its_number_while_the_file_cannot_be_changed() {
    let world = World::with(FAST);
    assert_eq!(name(&world, "s1"), "claude-code-1");
    let names = fs::read(world.path(".tollgate/agents.json")).unwrap();
    for text in ["{\"version\":2,\"sessions\":[]}", "nonsense"] {
        world.puts(".tollgate/agents.json", text);
        age_kept_names(&world);
        assert_eq!(name(&world, "s1"), "claude-code-1", "{text}");
        world.holds(".tollgate/agents.json", text);
    }
    // Once somebody has repaired the file, the session notes there that it is in use, without waiting for another hour.
    world.puts(".tollgate/agents.json", names);
    age(&world, 8);
    assert_eq!((name(&world, "s1"), name(&world, "s2")), ("claude-code-1".into(), "claude-code-2".into()));
}

#[test]
fn a_subagent_has_its_own_name_for_files_and_that_of_its_session_for_tasks() {
    let world = World::with(FAST);
    world.run("init --vault").is(0);
    world.puts("vault/Needs_Action/pay.md", "# Pay\n");
    world.puts("a.txt", "one\n");
    let main = Program::new(&world, "claude-code", "s");
    let subagent = main.subagent("helper");
    let hinted = |command: &str| {
        let reason = subagent.runs(command).blocked();
        assert!(reason.contains("OTHER_NAME"), "{command}: {reason}");
        reason.split_once("with `--agent ").unwrap().1.split_once('`').unwrap().0.to_owned()
    };
    main.reads("a.txt");
    subagent.reads("a.txt");
    let own = hinted("echo mine | tollgate write a.txt --agent boss");
    assert_ne!(own, "claude-code-1");
    assert_eq!(hinted("echo mine | tollgate write a.txt --agent claude-code-1"), own);
    subagent.runs(&format!("echo mine | tollgate write a.txt --agent {own}")).ran();
    world.holds("a.txt", "mine\n");
    subagent.writes("a.txt", "more\n").ran();
    main.writes("a.txt", "main's\n").refused("STALE_FILE");
    for name in ["boss", &own] {
        assert_eq!(hinted(&format!("tollgate task claim pay --agent {name}")), "claude-code-1");
    }
    subagent.runs("tollgate task claim pay --agent claude-code-1").ran();
    assert!(world.path("vault/In_Progress/claude-code-1/pay.md").exists());
}

#[test]
fn where_a_number_cannot_be_unique_the_name_has_a_hash() {
    // Other machines claim tasks in the same vault, and have sessions of their own.
    let world = World::with(&format!("{FAST}[vault]\nsync = \"git\"\n"));
    let names = ["s1", "s2"].map(|session| name(&world, session));
    assert!(names.iter().all(|name| is_hashed(name)) && names[0] != names[1], "{names:?}");
    assert_eq!(name(&world, "s1"), names[0]);
    // A later tollgate has written the file, or it is damaged.
    for text in ["{\"version\":2,\"sessions\":[]}", "nonsense"] {
        let world = World::with(FAST);
        world.puts(".tollgate/agents.json", text);
        let given = name(&world, "s1");
        assert!(is_hashed(&given), "{given}");
        world.holds(".tollgate/agents.json", text);
        // The session keeps it.
        fs::remove_file(world.path(".tollgate/agents.json")).unwrap();
        assert_eq!((name(&world, "s1"), name(&world, "s2").as_str()), (given, "claude-code-1"));
    }
}

#[test]
fn all_worktrees_of_a_repository_share_the_names() {
    let world = World::with(FAST);
    let git = |line: &str| {
        let words = ["-c", "user.name=t", "-c", "user.email=t@t"];
        world.program("git", words.into_iter().chain(line.split(' '))).ends().is(0);
    };
    git("init -q");
    world.puts("a.txt", "one\n");
    git("add -A");
    git("commit -q -m first");
    git("worktree add -q ../tree");
    let tree = world.tmp().join("tree");
    assert!(tree.join(".tollgate").is_dir() && !tree.join(".tollgate/agents.json").exists());
    assert_eq!(name_in(&world, &tree, "s1"), "claude-code-1");
    assert_eq!(name(&world, "s2"), "claude-code-2");
    assert_eq!(name_in(&world, &tree, "s3"), "claude-code-3");
    assert_eq!(name_in(&world, &tree, "s1"), "claude-code-1");
    assert!(!tree.join(".tollgate/agents.json").exists());
}

#[test]
fn a_hook_that_is_killed_anywhere_leaves_no_name_twice_and_none_unused() {
    let world = World::with(FAST);
    let log = world.tmp().join("strace");
    let payload = |session: &str| {
        json!({"session_id": session, "cwd": world.root(), "hook_event_name": "SessionStart"}).to_string()
    };
    let trace = |session: &str, kill: &[String]| {
        let hook = [env!("CARGO_BIN_EXE_tollgate"), "hook", "claude-code"];
        let _ = world
            .program("strace", strace::arguments(CALLS, &log, kill, hook))
            .stdin(payload(session))
            .ends();
        fs::read_to_string(&log).unwrap()
    };
    assert_eq!(name(&world, "first"), "claude-code-1");
    let calls = changing_calls(&trace("second", &[]));
    assert!(calls.len() > 5, "{calls:?}");
    let mut names = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let session = format!("s{number}");
        let log = trace(&session, &[call.inject("signal=KILL")]);
        assert!(log.contains("killed by SIGKILL"), "{call:?}\n{log}");
        names.push(name(&world, &session));
        assert_eq!(name(&world, &session), names[number], "{call:?}");
    }
    names.extend(["first", "second"].map(|session| name(&world, session)));
    assert_eq!(names.iter().cloned().collect::<BTreeSet<_>>(), numbered(names.len()), "{names:?}");
}

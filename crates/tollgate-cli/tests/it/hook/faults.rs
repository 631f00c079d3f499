//! Faults: a hook that cannot judge a write blocks it.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::{HOSTS, Program, Tool, reserved};
use crate::world::World;

#[test]
fn an_unreadable_payload_blocks() {
    let world = World::new();
    for host in HOSTS {
        for payload in [
            "",
            "{",
            "[]",
            "{}",
            "null",
            "\u{0}",
            "{\"hook_event_name\":\"PreToolUse\"",
            "{\"hook_event_name\": 7}",
        ] {
            let agent = Program::new(&world, host, "s");
            let ran = world.tollgate(["hook", host]).stdin(payload).ends().is(0);
            assert!(!ran.stdout().is_empty(), "{host}: {payload}");
            assert!(ran.json().to_string().contains("cannot understand"), "{host}: {payload}: {ran}");
            drop(agent);
        }
    }
}

#[test]
fn an_unreadable_payload_of_an_event_that_cannot_be_blocked_is_ignored() {
    let world = World::new();
    for (host, payload) in [
        ("claude-code", "{\"hook_event_name\":\"Stop\", "),
        ("codex", "{\"hook_event_name\":\"PostToolUse\""),
        ("gemini", "{\"hook_event_name\":\"AfterTool\""),
        ("opencode", "{\"hook\":\"session.idle\""),
    ] {
        let ran = world.tollgate(["hook", host]).stdin(payload).ends().is(0);
        assert_eq!(ran.stdout(), "", "{host}");
    }
}

#[test]
fn a_damaged_state_blocks_writes_but_not_reads() {
    for (file, text) in [
        (".tollgate/version", "nonsense"),
        (".tollgate/version", "99"),
        (".tollgate/config.toml", "[guard]\nmodus = 1"),
        (".tollgate", "not a folder"),
    ] {
        for host in HOSTS {
            let world = World::bare();
            world.puts("a.txt", "one\n");
            world.puts(file, text);
            let agent = Program::new(&world, host, "s");
            agent.uses(&Tool::Read("a.txt")).ran();
            agent.runs("ls").ran();
            let reason = agent.writes("a.txt", "mine\n").blocked();
            assert!(reason.starts_with("{\"error\":"), "{file}: {reason}");
            assert!(reason.contains("blocked the write") && reason.contains("Ask a person"), "{reason}");
            agent.runs("echo x > a.txt").blocked();
        }
    }
}

#[test]
fn a_setting_allows_writes_that_cannot_be_judged() {
    let world = World::with("[hooks]\non_fault = \"allow\"");
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "codex", "s");
    agent.reads("a.txt");
    for entry in fs::read_dir(world.tmp().join("run/tollgate")).unwrap().flatten() {
        fs::remove_dir_all(entry.path().join("turns")).unwrap();
        fs::write(entry.path().join("turns"), "not a folder").unwrap();
    }
    agent.writes("a.txt", "mine\n").ran();
}

fn hold_all_locks(world: &World) -> Vec<fs::File> {
    (0..256)
        .map(|stripe| world.path(format!(".tollgate/locks/{stripe:02x}")))
        .map(|path| fs::File::options().create(true).truncate(false).write(true).open(path).unwrap())
        .inspect(|file| file.lock().unwrap())
        .collect()
}

#[test]
fn a_lock_that_is_never_released_blocks_within_the_deadline() {
    let world = World::with("[guard]\nlock_wait = \"1h\"\n[hooks]\ndeadline = \"300ms\"");
    world.puts("a.txt", "one\n");
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt");
        let locks = hold_all_locks(&world);
        let started = std::time::Instant::now();
        let reason = agent.writes("a.txt", "mine\n").blocked();
        assert!(reason.contains("no answer within 300 ms"), "{reason}");
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
        drop(locks);
    }
}

#[test]
fn a_hook_that_ignores_its_deadline_is_killed_and_the_configured_fallback_blocks() {
    let world = World::with("[guard]\nlock_wait = \"1h\"\n[hooks]\ndeadline = \"200ms\"");
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "gemini", "s");
    agent.reads("a.txt");
    world.run("init --host gemini").is(0);
    let settings: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(world.path(".gemini/settings.json")).unwrap()).unwrap();
    let command = settings["hooks"]["BeforeTool"][0]["hooks"][0]["command"].as_str().unwrap();
    let _locks: Vec<fs::File> = hold_all_locks(&world);
    world.puts("payload.json", agent.before(&Tool::Write("a.txt", "mine\n"), "c").to_string());
    // Ignores signals, like a process that waits for a disk.
    world.puts(
        "deaf.pl",
        "use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGALRM)); exec @ARGV or exit 1",
    );
    let command = command.replace("; tollgate hook", "; perl deaf.pl tollgate hook");
    assert!(command.contains("deaf.pl"), "{command}");
    let ran = world.program("sh", ["-c", &format!("{{ {command}; }} < payload.json")]);
    let ran = ran.ends().is(0);
    assert!(ran.stderr().contains("Killed"), "{ran}");
    let answer: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    assert_eq!(answer["decision"], "deny");
    assert!(answer["reason"].as_str().unwrap().contains("the tollgate hook crashed"), "{answer}");
}

#[test]
fn a_damaged_record_of_a_call_does_not_stop_the_agent() {
    let world = World::new();
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "gemini", "s");
    let tool = Tool::Read("a.txt");
    assert_eq!(agent.asks(&agent.before(&tool, "c")), None);
    for workspace in fs::read_dir(world.tmp().join("run/tollgate")).unwrap().flatten() {
        for session in fs::read_dir(workspace.path().join("hooks")).unwrap().flatten() {
            for call in fs::read_dir(session.path().join("calls")).unwrap().flatten() {
                fs::write(call.path(), "nonsense").unwrap();
            }
        }
    }
    agent.says(&agent.after(&tool, "c", "one\n"));
    agent.reads("a.txt").writes("a.txt", "mine\n").ran();
}

/// The files with this name in the folders of all sessions and turns.
fn private_files(world: &World, folder: &str, name: &str) -> Vec<PathBuf> {
    let below = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = below(world.tmp().join("run/tollgate")).flat_map(|place| below(place.join(folder)));
    all.map(|entry| entry.join(name)).filter(|path| path.exists()).collect()
}

#[test]
fn commands_that_take_too_long_to_read_are_blocked_within_the_deadline() {
    let world = World::with("[guard]\ndurability = \"fast\"");
    let agent = Program::new(&world, "cline", "s");
    let mut payload = agent.before(&Tool::Shell("true"), "c");
    // To compare all these names with all these patterns takes more than half a minute of processor time.
    (0..1_000).for_each(|name| world.puts(format!("d/{name}"), ""));
    payload["tool_call"]["input"]["commands"] = vec!["rm d/*x ".repeat(100); 1_000].into();
    let started = std::time::Instant::now();
    let reason = agent.asks(&payload).expect("blocked");
    assert!(reason.contains("no answer within 8000 ms"), "{reason}");
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn a_fault_after_a_tool_is_told_to_the_agent_and_leaves_nothing_reserved() {
    for host in HOSTS {
        let world = World::with("[guard]\ndurability = \"fast\"");
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt");
        let tool = Tool::Write("a.txt", "mine\n");
        assert_eq!(agent.asks(&agent.before(&tool, "c")), None);
        world.puts("a.txt", "mine\n");
        assert_eq!(reserved(&world), 1);
        for turn in private_files(&world, "turns", "turn.json") {
            fs::write(turn, "nonsense").unwrap();
        }
        let told = agent.hook(&agent.after(&tool, "c", "written")).stdout();
        assert!(!told.contains("blocked") && !told.contains("deny"), "{host}: {told}");
        // These programs show their agent no message after a tool.
        let is_told = !["cursor", "copilot", "cline"].contains(&host);
        assert_eq!(told.contains("could not record that change"), is_told, "{host}: {told}");
        assert_eq!(reserved(&world), 0, "{host}");
    }
}

#[test]
fn a_record_of_a_later_format_is_left_to_the_tollgate_that_wrote_it() {
    let world = World::with("[guard]\ndurability = \"fast\"");
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "gemini", "s");
    let tool = Tool::Read("a.txt");
    assert_eq!(agent.asks(&agent.before(&tool, "c")), None);
    let folder = private_files(&world, "hooks", "calls").remove(0);
    let record = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&record).unwrap().replace("\"version\":1", "\"version\":2");
    fs::write(&record, &text).unwrap();
    agent.says(&agent.after(&tool, "c", "one\n"));
    agent.stops();
    assert_eq!(fs::read_to_string(&record).unwrap(), text);
}

#[test]
fn a_damaged_record_does_not_keep_the_reservations_of_other_calls() {
    for damaged in 0..2 {
        let world = World::with("[guard]\ndurability = \"fast\"");
        let agent = Program::new(&world, "claude-code", "s");
        for file in ["a.txt", "b.txt"] {
            world.puts(file, "one\n");
            agent.reads(file);
            assert_eq!(agent.asks(&agent.before(&Tool::Write(file, "mine\n"), file)), None);
        }
        assert_eq!(reserved(&world), 2);
        let folder = private_files(&world, "hooks", "calls").remove(0);
        let record = fs::read_dir(folder).unwrap().nth(damaged).unwrap().unwrap().path();
        fs::write(record, "nonsense").unwrap();
        agent.stops();
        // Nobody knows the files of the damaged one.
        assert_eq!(reserved(&world), 1);
    }
}

#[test]
fn a_first_refusal_is_not_called_the_second_if_it_cannot_be_remembered() {
    let world = World::with("[guard]\ndurability = \"fast\"");
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "gemini", "s");
    agent.reads("a.txt");
    world.puts("a.txt", "foreign\n");
    let calls = private_files(&world, "hooks", "calls").remove(0);
    fs::write(calls.with_file_name("refused"), "not a folder").unwrap();
    let reason = agent.writes("a.txt", "mine\n").blocked();
    assert!(reason.contains("STALE_FILE") && !reason.contains("the same call"), "{reason}");
}

#[test]
fn a_call_that_cannot_be_prepared_leaves_no_prologue() {
    let world = World::with(super::run::SETTINGS);
    let agent = Program::new(&world, "cline", "s");
    let mut payload = agent.before(&Tool::Shell("true"), "c");
    payload["tool_call"]["input"]["commands"] = vec!["true"; 2].into();
    let command = super::run::changed("cline", &agent.hook(&payload).json()).unwrap();
    let first = PathBuf::from(command[2..].split_once(" ||").unwrap().0);
    let second = first.to_str().unwrap().strip_suffix("-0").unwrap().to_owned() + "-1";
    for prologue in [&first, &PathBuf::from(&second)] {
        fs::remove_file(prologue).unwrap();
    }
    // The second one cannot be written.
    fs::create_dir(&second).unwrap();
    assert!(agent.asks(&payload).expect("blocked").contains("blocked the write"));
    assert!(!first.exists());
}

/// Runs a hook with at most one gigabyte of memory.
fn in_a_gigabyte(world: &World, host: &str, payload: &str) -> String {
    let script = format!("ulimit -v 1048576; exec tollgate hook {host}");
    world.program("sh", ["-c", &script]).stdin(payload).ends().is(0).stdout()
}

#[test]
fn large_payloads_are_answered_and_too_large_ones_block() {
    let world = World::with("[guard]\ndurability = \"fast\"\n[hooks]\ndeadline = \"50s\"");
    world.puts("a.txt", "one\n");
    for host in ["claude-code", "opencode"] {
        let agent = Program::new(&world, host, "s");
        agent.reads("a.txt");
        world.puts("a.txt", "foreign\n");
        let text = "x".repeat(50 << 20);
        let answer =
            in_a_gigabyte(&world, host, &agent.before(&Tool::Write("a.txt", &text), "c").to_string());
        assert!(answer.contains("STALE_FILE") && answer.len() < 4096, "{host}: {} bytes", answer.len());
        for (size, is_too_large) in [(64 << 20, false), ((64 << 20) + 1, true)] {
            let answer = in_a_gigabyte(&world, host, &" ".repeat(size));
            assert_eq!(answer.contains("larger than 64 MiB"), is_too_large, "{host}, {size}: {answer}");
        }
        // Nested so deeply that a recursive parser would run out of stack.
        let answer = in_a_gigabyte(&world, host, &"[".repeat(10 << 20));
        assert!(answer.contains("cannot understand"), "{host}: {} bytes", answer.len());
        world.puts("a.txt", "one\n");
    }
}

#[test]
fn deeply_nested_shell_text_is_answered_in_time() {
    let world = World::with("[guard]\ndurability = \"fast\"");
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "codex", "s");
    agent.reads("a.txt");
    world.puts("a.txt", "foreign\n");
    for opening in [
        "(",
        "$(",
        "{ ",
        "if true; then ",
        "for x in a; do ",
        "while (",
        "echo \"$(",
        "`",
        "<(",
        "[[ ",
        "case x in x) ",
        "${a:-",
        "$((",
        "! ",
        "f() { ",
        "bash -c '",
        "eval ",
        "cat <<E\n",
        "a=(",
        "time ",
        "env ",
        "\\",
    ] {
        let text = opening.repeat(200_000 / opening.len());
        for command in [format!("echo x > a.txt; {text}"), format!("{text}; echo x > a.txt")] {
            let payload = agent.before(&Tool::Shell(&command), "c").to_string();
            let answer = in_a_gigabyte(&world, "codex", &payload);
            // A certain write is refused. Unclear text is blocked or allowed, and nothing crashes.
            if command.starts_with("echo x") {
                assert!(!answer.is_empty(), "{opening:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Any bytes: a normal exit and no panic. `World` checks for panics.
    #[test]
    fn any_bytes_on_stdin(host in 0..HOSTS.len(), bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let world = World::new();
        let _ = world.tollgate(["hook", HOSTS[host]]).stdin(bytes).ends().is(0);
    }

    /// Payloads with one wrong value.
    #[test]
    fn payloads_with_something_wrong(host in 0..HOSTS.len(), at in 0..40usize, with in 0..6usize, text in "\\PC{0,40}") {
        let world = World::new();
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, HOSTS[host], "s");
        let mut payload = agent.before(&Tool::Write("a.txt", "x"), "c");
        let wrong = [
            serde_json::json!(null), serde_json::json!([]), serde_json::json!({}), serde_json::json!(7),
            serde_json::json!(text), serde_json::json!("a\u{0}b"),
        ];
        let mut left = at;
        replace(&mut payload, &mut left, &wrong[with]);
        let _ = world.tollgate(["hook", HOSTS[host]]).stdin(payload.to_string()).ends().is(0);
    }
}

fn replace(value: &mut serde_json::Value, left: &mut usize, with: &serde_json::Value) {
    use serde_json::Value;
    if *left == 0 {
        *value = with.clone();
    }
    *left = left.wrapping_sub(1);
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, left, with)),
        Value::Object(map) => map.values_mut().for_each(|value| replace(value, left, with)),
        _ => {}
    }
}

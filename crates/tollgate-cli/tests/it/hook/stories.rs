//! The same stories in every program's format, with the real command.

use std::fs;

use serde_json::{Value, json};

use super::{HOSTS, Program, Tool, change_in_secret, reserved};
use crate::world::{World, hash};

/// Runs a story once for each program.
pub(super) fn everywhere(story: impl Fn(&World, &Program<'_>)) {
    for host in HOSTS {
        let world = World::with("[guard]\nquiet_wait = \"50ms\"\ndurability = \"fast\"\n");
        world.puts("a.txt", "one\ntwo\n");
        story(&world, &Program::new(&world, host, "session-1"));
    }
}

pub(super) fn ledger(world: &World, action_type: &str) -> Vec<Value> {
    let text = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["action_type"] == action_type).collect()
}

#[test]
fn a_stale_overwrite_is_blocked_and_allowed_after_a_re_read() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        world.puts("a.txt", "foreign\n");
        let payload = agent.writes("a.txt", "mine\n").refused("STALE_FILE");
        assert_eq!(payload["expected_hash"], hash("one\ntwo\n"));
        assert_eq!(payload["actual_hash"], hash("foreign\n"));
        assert_eq!(payload["file_path"], world.path("a.txt").to_str().unwrap());
        world.holds("a.txt", "foreign\n");
        assert_eq!(ledger(world, "MUTATION_CONFLICT").len(), 1);
        agent.reads("a.txt").writes("a.txt", "mine\n").ran();
        world.holds("a.txt", "mine\n");
        assert_eq!(ledger(world, "MUTATION").len(), 1);
    });
}

#[test]
fn a_stale_edit_is_blocked() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        world.puts("a.txt", "one\ntwo\nthree\n");
        agent.edits("a.txt", "one", "ONE").refused("STALE_FILE");
        world.holds("a.txt", "one\ntwo\nthree\n");
        agent.reads("a.txt").edits("a.txt", "one", "ONE").ran();
        world.holds("a.txt", "ONE\ntwo\nthree\n");
    });
}

#[test]
fn a_stale_heredoc_is_blocked() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        world.puts("a.txt", "foreign\n");
        for command in [
            "cat > a.txt <<'EOF'\nmine\nEOF",
            "cat <<'EOF' | tee a.txt\nmine\nEOF",
            "cd . && echo mine > ./a.txt",
            "sed -i s/foreign/mine/ a.txt",
            "rm a.txt",
            "mv a.txt b.txt",
            "echo mine > m && cp m a.txt",
            "bash -c 'echo mine > a.txt'",
            "rm -rf ../w/a.*",
        ] {
            agent.runs(command).refused("STALE_FILE");
            world.holds("a.txt", "foreign\n");
        }
        agent.runs("cat a.txt").ran();
        agent.runs("cat > a.txt <<'EOF'\nmine\nEOF").ran();
        world.holds("a.txt", "mine\n");
    });
}

#[test]
fn a_folder_with_a_stale_file_cannot_be_deleted_or_moved() {
    everywhere(|world, agent| {
        world.puts("sub/b.txt", "one\n");
        agent.reads("sub/b.txt");
        world.puts("sub/b.txt", "foreign\n");
        agent.runs("rm -rf sub").refused("STALE_FILE");
        agent.runs("mv sub other").refused("STALE_FILE");
        agent.reads("sub/b.txt").runs("rm -rf sub").ran();
        assert!(!world.path("sub").exists());
    });
}

#[test]
fn a_change_with_the_same_size_and_mtime_is_found() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        change_in_secret(&world.path("a.txt"), "one\nTWO\n");
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    });
}

#[test]
fn a_deleted_file_is_not_created_again() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        fs::remove_file(world.path("a.txt")).unwrap();
        let payload = agent.writes("a.txt", "mine\n").refused("STALE_FILE");
        assert_eq!(payload["actual_hash"], Value::Null);
        assert!(!world.path("a.txt").exists());
        // After a read that finds no file, the agent may create it.
        agent.uses(&Tool::Read("a.txt")).ran();
        agent.writes("a.txt", "mine\n").ran();
    });
}

#[test]
fn no_false_alarms() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        agent.writes("a.txt", "first\n").ran();
        agent.writes("a.txt", "second\n").ran();
        agent.edits("a.txt", "second", "third").ran();
        // Touched, and written again with the same bytes.
        world.puts("a.txt", "third\n");
        fs::File::options()
            .write(true)
            .open(world.path("a.txt"))
            .unwrap()
            .set_modified(std::time::SystemTime::now())
            .unwrap();
        agent.writes("a.txt", "fourth\n").ran();
        agent.writes("new.txt", "new\n").ran();
        agent.writes("new.txt", "newer\n").ran();
        agent.runs("echo fifth > a.txt").ran();
        agent.writes("a.txt", "sixth\n").ran();
        assert_eq!(ledger(world, "MUTATION_CONFLICT"), Vec::<Value>::new());
    });
}

/// Nobody can tell whether an unknown program made the change, or somebody else while it ran. One more read is cheaper than
/// a lost save.
#[test]
fn a_change_that_a_command_does_not_announce_must_be_read_even_if_the_command_names_the_file() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        agent.runs("perl -e 'open(F, \">\", \"a.txt\"); print F \"changed\\n\"'").ran();
        world.holds("a.txt", "changed\n");
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
        agent.reads("a.txt");
        agent.writes("a.txt", "mine\n").ran();
    });
}

#[test]
fn a_save_during_a_command_that_only_names_the_file_is_foreign() {
    everywhere(|world, agent| {
        for command in [
            "wc -l a.txt",
            "ls -l a.txt",
            "cat a.txt > /dev/null",
            "true # pytest a.txt",
            "true a.txt",
            "touch a.txt",
            "cat a.txt | grep -c x > \"$NOWHERE/x\"",
        ] {
            agent.reads("a.txt");
            let mutations = ledger(world, "MUTATION").len();
            agent
                .uses_while(&Tool::Shell(command), || world.puts("a.txt", format!("saved: {command}\n")))
                .ran();
            agent.writes("a.txt", "mine\n").refused("STALE_FILE");
            assert_eq!(ledger(world, "MUTATION").len(), mutations, "{command}");
        }
    });
}

#[test]
fn a_change_by_a_command_that_does_not_name_the_file_is_foreign() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        world.puts("tool.sh", "f=a; echo changed > $f.txt\n");
        agent.runs("sh tool.sh").ran();
        world.holds("a.txt", "changed\n");
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    });
}

#[test]
fn a_partial_re_read_allows_edits_but_not_an_overwrite() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        world.puts("a.txt", "one\nforeign\n");
        agent.edits("a.txt", "one", "ONE").refused("STALE_FILE");
        agent.uses(&Tool::ReadPart("a.txt")).ran();
        let reason = agent.writes("a.txt", "mine\n").blocked();
        assert!(reason.contains("STALE_FILE") && reason.contains("Read the whole of"), "{reason}");
        agent.uses(&Tool::ReadPart("a.txt")).ran();
        agent.edits("a.txt", "one", "ONE").ran();
        world.holds("a.txt", "ONE\nforeign\n");
    });
}

#[test]
fn a_file_that_changes_during_a_read_counts_as_its_older_version() {
    everywhere(|world, agent| {
        agent.uses_while(&Tool::Read("a.txt"), || world.puts("a.txt", "foreign\n")).ran();
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    });
}

#[test]
fn a_patch_of_several_files_changes_none_if_one_is_stale() {
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+ONE\n*** Delete File: b.txt\n*** Add File: c.txt\n+new\n\
                 *** Update File: d.txt\n@@\n-four\n+FOUR\n*** End Patch";
    for host in ["codex", "opencode", "copilot", "cline"] {
        let world = World::with("[guard]\ndurability = \"fast\"");
        for (file, text) in [("a.txt", "one\n"), ("b.txt", "two\n"), ("d.txt", "four\n")] {
            world.puts(file, text);
        }
        let agent = Program::new(&world, host, "session-1");
        agent.reads("a.txt").reads("b.txt").reads("d.txt");
        world.puts("b.txt", "foreign\n");
        let payload = agent.uses(&Tool::Patch(patch)).refused("STALE_FILE");
        assert_eq!(payload["file_path"], world.path("b.txt").to_str().unwrap());
        assert_eq!(reserved(&world), 0);
        world.holds("a.txt", "one\n");
        agent.reads("b.txt").uses(&Tool::Patch(patch)).ran();
        agent.writes("c.txt", "newer\n").ran();
    }
}

#[test]
fn a_new_prompt_starts_a_turn_that_remembers_earlier_reads_if_the_settings_say_so() {
    for (unread, remembers) in [("allow", false), ("known", true)] {
        for host in HOSTS {
            let world = World::with(&format!("[guard]\nunread = \"{unread}\"\ndurability = \"fast\""));
            world.puts("a.txt", "one\n");
            let agent = Program::new(&world, host, "session-1");
            agent.prompts();
            agent.reads("a.txt").stops();
            world.puts("a.txt", "foreign\n");
            agent.prompts();
            let came = agent.writes("a.txt", "mine\n");
            match remembers {
                true => drop(came.refused("STALE_FILE")),
                false => drop(came.ran()),
            }
            assert_eq!(ledger(&world, "TURN_STARTED").len(), 2, "{host}");
            assert_eq!(ledger(&world, "TURN_ENDED").len(), 1, "{host}");
            agent.leaves();
            assert_eq!(ledger(&world, "TURN_ENDED").len(), 2, "{host}");
            let left = world.run("turn list").stdout();
            assert!(left.contains("no running turns"), "{host}: {left}");
        }
    }
}

#[test]
fn after_a_stop_the_turn_still_has_its_reads() {
    everywhere(|world, agent| {
        agent.reads("a.txt").stops();
        world.puts("a.txt", "foreign\n");
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    });
}

#[test]
fn subagents_are_separate_agents() {
    for host in ["claude-code", "codex", "cline", "qwen"] {
        let world = World::with("[guard]\ndurability = \"fast\"");
        world.puts("a.txt", "one\n");
        let main = Program::new(&world, host, "session-1");
        let subagent = main.subagent("subagent-1");
        main.reads("a.txt");
        subagent.reads("a.txt");
        subagent.writes("a.txt", "subagent's\n").ran();
        let reason = main.writes("a.txt", "main's\n").blocked();
        assert!(reason.contains("STALE_FILE") && reason.contains(&format!("`{host}-")), "{reason}");
    }
}

#[test]
fn a_repeated_call_is_told_that_it_is_the_same_and_what_changed() {
    everywhere(|world, agent| {
        let other = Program::new(world, "gemini", "other");
        agent.reads("a.txt");
        other.reads("a.txt").writes("a.txt", "one\nTWO\n").ran();
        let first = agent.writes("a.txt", "mine\n").blocked();
        assert!(!first.contains("same call") && first.contains("`gemini-"), "{first}");
        let second = agent.writes("a.txt", "mine\n").blocked();
        assert!(second.contains("This is the same call that was just refused"), "{second}");
        assert!(
            second.contains("-two") && second.contains("+TWO") && second.contains("`gemini-"),
            "{second}"
        );
        let third = agent.writes("a.txt", "another\n").blocked();
        assert!(!third.contains("same call"), "{third}");
    });
}

#[test]
fn observe_mode_blocks_nothing_and_records_conflicts() {
    for host in HOSTS {
        let world = World::with("[guard]\nmode = \"observe\"\ndurability = \"fast\"");
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, host, "session-1");
        agent.reads("a.txt");
        world.puts("a.txt", "foreign\n");
        agent.writes("a.txt", "mine\n").ran();
        let lines = ledger(&world, "MUTATION_CONFLICT");
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["result"]["status"], "OBSERVED");
        assert_eq!(agent.asks(&agent.before(&Tool::Write(".tollgate/config.toml", "x"), "c")), None);
    }
    let world = World::with("[guard]\nmode = \"off\"");
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "codex", "session-1");
    agent.reads("a.txt");
    world.puts("a.txt", "foreign\n");
    agent.writes("a.txt", "mine\n").ran();
}

#[test]
fn an_agent_cannot_disable_the_guard() {
    everywhere(|_, agent| {
        for file in
            [".tollgate/config.toml", ".claude/settings.json", ".codex/hooks.json", ".gemini/settings.json"]
        {
            agent.writes(file, "{}\n").refused("PROTECTED_PATH");
        }
        agent.runs("rm -f .opencode/plugin/tollgate.js").refused("PROTECTED_PATH");
        for command in ["rm -rf .tollgate", "rm -rf .tollgate/ledger.jsonl", "rm -rf .", "mv .tollgate x"] {
            agent.runs(command).refused("PROTECTED_PATH");
        }
    });
}

#[test]
fn files_outside_the_workspace_are_also_checked() {
    everywhere(|world, agent| {
        let outside = world.tmp().join("outside.txt");
        fs::write(&outside, "one\n").unwrap();
        let name = outside.to_str().unwrap();
        agent.reads(name);
        fs::write(&outside, "foreign\n").unwrap();
        agent.writes(name, "mine\n").refused("STALE_FILE");
        agent.reads(name).writes(name, "mine\n").ran();
    });
}

#[test]
fn programs_race_for_one_file_and_no_update_is_lost() {
    let world = World::with("[guard]\ndurability = \"fast\"\nquiet_wait = \"5s\"");
    world.puts("a.txt", "0\n");
    const ROUNDS: usize = 5;
    std::thread::scope(|scope| {
        for (host, session) in [("codex", "s1"), ("gemini", "s2"), ("opencode", "s3")] {
            let world = &world;
            scope.spawn(move || {
                let agent = Program::new(world, host, session);
                for _ in 0..ROUNDS {
                    loop {
                        // The agent builds on what it was shown, not on the file at the time of the write.
                        let seen = agent.uses(&Tool::Read("a.txt")).ran();
                        // The file was read while another tool was writing it, so the agent reads again.
                        let Ok(count) = seen.trim().parse::<usize>() else { continue };
                        if matches!(agent.writes("a.txt", &format!("{}\n", count + 1)), super::Came::Ran(_)) {
                            break;
                        }
                    }
                }
            });
        }
    });
    world.holds("a.txt", format!("{}\n", 3 * ROUNDS));
}

#[test]
fn many_hooks_of_one_turn_at_the_same_time() {
    let world = World::with("[guard]\ndurability = \"fast\"");
    let files: Vec<String> = (0..12).map(|n| format!("f{n}.txt")).collect();
    for file in &files {
        world.puts(file, "one\n");
    }
    std::thread::scope(|scope| {
        for (n, file) in files.iter().enumerate() {
            let world = &world;
            scope.spawn(move || {
                let agent = Program::new(world, "gemini", "one session");
                agent.reads(file);
                if n % 2 == 0 {
                    agent.writes(file, "mine\n").ran();
                }
            });
        }
    });
    assert_eq!(ledger(&world, "TURN_STARTED").len(), 1);
    assert_eq!(ledger(&world, "MUTATION").len(), 6);
    let agent = Program::new(&world, "gemini", "one session");
    for file in &files {
        world.puts(file, "foreign\n");
        agent.writes(file, "mine\n").refused("STALE_FILE");
    }
}

#[test]
fn an_agent_is_informed_at_the_start_of_a_session_where_its_program_allows_it() {
    const START: [&str; 8] = ["SessionStart", "SessionStart", "SessionStart", "", "", "", "", "SessionStart"];
    for host in ["claude-code", "gemini", "qwen"] {
        let world = World::new();
        let agent = Program::new(&world, host, "session-1");
        let start = || agent.event(START);
        let answer = agent.hook(&start()).json();
        let answer = &answer["hookSpecificOutput"];
        assert_eq!(answer["hookEventName"], "SessionStart");
        let text = answer["additionalContext"].as_str().unwrap();
        // Without transactions, one line more.
        let of_scripts = format!("`tollgate run --agent {host}-1 -- COMMAND`");
        assert!(text.lines().count() == 5 && text.contains(&of_scripts), "{text}");
        world.run(&format!("init --host {host}")).is(0);
        let now = agent.hook(&start()).json()["hookSpecificOutput"]["additionalContext"].to_string();
        assert_eq!(now.contains(&of_scripts), host != "claude-code", "{now}");
        assert!(text.contains("tollgate guards the files in this folder"), "{text}");
        assert!(text.contains("If `tollgate task list` shows tasks"), "{text}");
        let name = text.split("--next --agent ").nth(1).unwrap().split('`').next().unwrap().to_owned();
        // The agent has the same name in the ledger.
        agent.reads("a.txt").writes("a.txt", "new\n").ran();
        assert_eq!(ledger(&world, "MUTATION")[0]["agent"], name.as_str());
        world.run("init --vault").is(0);
        let text = agent.hook(&start()).json()["hookSpecificOutput"]["additionalContext"].to_string();
        assert!(text.contains("This folder has tasks: claim one"), "{text}");
        world.puts(".tollgate/config.toml", "[guard]\nmode = \"off\"\n");
        agent.says(&start());
        let elsewhere = World::bare();
        let agent = Program::new(&elsewhere, host, "session-1");
        agent.says(&agent.event(START));
        assert!(!elsewhere.path(".tollgate").exists());
    }
}

/// Kilo Code starts commands in the background with a tool of their own.
#[test]
fn a_command_of_kilo_in_the_background_is_a_command() {
    let world = World::new();
    world.puts("a.txt", "one\n");
    let agent = Program::new(&world, "kilo", "s");
    agent.reads("a.txt");
    world.puts("a.txt", "foreign\n");
    let mut payload = agent.before(&Tool::Shell("echo mine > a.txt"), "c1");
    payload["input"]["tool"] = "background_process".into();
    payload["output"]["args"]["action"] = "start".into();
    assert!(agent.asks(&payload).unwrap().contains("STALE_FILE"));
    payload["output"]["args"] = json!({"action": "stop", "id": "bgp_1"});
    assert_eq!(agent.asks(&payload), None);
}

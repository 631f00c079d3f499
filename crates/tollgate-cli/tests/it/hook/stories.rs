//! The same stories in every program's format, with the real command.

use std::fs;

use serde_json::Value;

use super::{HOSTS, Program, Tool, change_in_secret, reserved};
use crate::world::{World, hash};

/// Runs a story once for each program.
fn everywhere(story: impl Fn(&World, &Program<'_>)) {
    for host in HOSTS {
        let world = World::with("[guard]\nquiet_wait = \"50ms\"\ndurability = \"fast\"\n");
        world.puts("a.txt", "one\ntwo\n");
        story(&world, &Program::new(&world, host, "session-1"));
    }
}

fn ledger(world: &World, action_type: &str) -> Vec<Value> {
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
    for host in ["claude-code", "codex", "cline"] {
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
fn a_reservation_blocks_other_programs_until_the_tool_has_run() {
    let world = World::with("[guard]\nquiet_wait = \"50ms\"\ndurability = \"fast\"");
    world.puts("a.txt", "one\n");
    let (first, second) = (Program::new(&world, "gemini", "s1"), Program::new(&world, "codex", "s2"));
    first.reads("a.txt");
    second.reads("a.txt");
    let came = first.uses_while(&Tool::Write("a.txt", "first\n"), || {
        let reason = second.writes("a.txt", "second\n").blocked();
        assert!(reason.contains("FILE_BUSY") && reason.contains("`gemini-"), "{reason}");
        // Writes with the command line wait for it, too.
        world
            .tollgate(["write", "a.txt", "--json"])
            .stdin("ours\n")
            .ends()
            .payload("FILE_BUSY", "RETRY_LATER");
    });
    came.ran();
    second.writes("a.txt", "second\n").refused("STALE_FILE");
    world.holds("a.txt", "first\n");
    second.reads("a.txt").writes("a.txt", "second\n").ran();
}

#[test]
fn a_call_whose_end_is_never_reported_blocks_nobody_for_long() {
    everywhere(|world, agent| {
        let other = Program::new(world, "claude-code", "other");
        other.reads("a.txt");
        agent.reads("a.txt");
        // The call is interrupted: no hook runs after it. Then the agent stops.
        assert_eq!(agent.asks(&agent.before(&Tool::Write("a.txt", "cut off\n"), "cut")), None);
        other.writes("a.txt", "other's\n").refused("FILE_BUSY");
        agent.stops();
        other.writes("a.txt", "other's\n").ran();
    });
    everywhere(|world, agent| {
        let other = Program::new(world, "claude-code", "other");
        agent.reads("a.txt");
        // The tool wrote the file as expected, and only the hook after it is missing.
        assert_eq!(agent.asks(&agent.before(&Tool::Write("a.txt", "written\n"), "cut")), None);
        world.puts("a.txt", "written\n");
        other.reads("a.txt").writes("a.txt", "other's\n").ran();
        agent.writes("a.txt", "again\n").refused("STALE_FILE");
        agent.reads("a.txt");
        assert_eq!(agent.asks(&agent.before(&Tool::Write("a.txt", "more\n"), "cut-2")), None);
        world.puts("a.txt", "more\n");
        agent.writes("a.txt", "own second write\n").ran();
    });
}

#[test]
fn a_patch_whose_end_is_never_reported_is_over_when_its_files_are_as_expected() {
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+TWO\n*** Add File: new.txt\n+new\n*** End Patch";
    for host in ["codex", "opencode", "copilot", "cline"] {
        let world = World::with("[guard]\nquiet_wait = \"50ms\"\ndurability = \"fast\"");
        world.puts("a.txt", "one\ntwo\n");
        let agent = Program::new(&world, host, "session-1");
        let other = Program::new(&world, "gemini", "other");
        agent.reads("a.txt");
        assert_eq!(agent.asks(&agent.before(&Tool::Patch(patch), "cut")), None);
        world.puts("new.txt", "new\n");
        other.reads("a.txt").writes("a.txt", "other's\n").refused("FILE_BUSY");
        world.puts("a.txt", "one\nTWO\n");
        other.reads("a.txt").writes("a.txt", "other's\n").ran();
        assert_eq!(
            ledger(&world, "MUTATION")[0]["payload"]["hash_after"],
            format!("sha256:{}", hash("one\nTWO\n"))
        );
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    }
}

#[test]
fn a_dead_program_blocks_nobody() {
    let world = World::with("[guard]\nquiet_wait = \"20ms\"\ndurability = \"fast\"");
    world.puts("a.txt", "one\n");
    let dying = Program::new(&world, "codex", "dying");
    let payload = dying.before(&Tool::Write("a.txt", "never\n"), "c1");
    world.puts("payload.json", payload.to_string());
    // A program that is not a shell runs the hook and ends.
    let script = "system('tollgate hook codex < payload.json') == 0 or exit 1";
    world.program("perl", ["-e", script]).ends().is(0);
    let other = Program::new(&world, "gemini", "other");
    other.reads("a.txt").writes("a.txt", "other's\n").ran();
    world.holds("a.txt", "other's\n");
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
fn a_formatters_change_of_the_agents_text_counts_as_the_agents_own() {
    let world =
        World::with("[guard]\ndurability = \"fast\"\n[hooks.formatters]\ntxt = [\"tr\", \"a-z\", \"A-Z\"]\n");
    world.tollgate(["trust"]).typed("yes").is(0);
    for host in HOSTS {
        let name = format!("{host}.txt");
        let agent = Program::new(&world, host, "session-1");
        world.puts(&name, "one\n");
        agent.reads(&name);
        // Any change before the hook after the tool counts as the agent's own.
        let came = agent.writes(&name, "mine\n");
        came.ran();
        // Later, only the output of the configured formatter does.
        world.puts(&name, "MINE\n");
        agent.writes(&name, "more\n").ran();
        world.puts(&name, "MORE, and somebody's own\n");
        agent.writes(&name, "again\n").refused("STALE_FILE");
    }
}

#[test]
fn a_formatter_that_runs_before_the_hook_makes_nothing_stale() {
    everywhere(|world, agent| {
        agent.reads("a.txt");
        let tool = Tool::Write("a.txt", "mine\n");
        assert_eq!(agent.asks(&agent.before(&tool, "c1")), None);
        world.puts("a.txt", "formatted\n");
        agent.says(&agent.after(&tool, "c1", "written"));
        agent.writes("a.txt", "more\n").ran();
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
fn a_save_between_check_and_write_is_reported_recorded_and_kept_if_the_program_reports_it() {
    for host in ["claude-code", "gemini"] {
        let world = World::with("[guard]\ndurability = \"fast\"");
        world.puts("a.txt", "one\n");
        let agent = Program::new(&world, host, "session-1");
        agent.reads("a.txt");
        for (call, file, slipped_in) in [
            ("c1", "a.txt", Some("slipped in\n")),
            // No save in between: the text that the agent knew, from a program that drops the last newline.
            ("c2", "a.txt", None),
            // A file that appeared.
            ("c3", "new.txt", Some("appeared\n")),
        ] {
            let tool = Tool::Write(file, "mine\n");
            assert_eq!(agent.asks(&agent.before(&tool, call)), None);
            world.puts(file, "mine\n");
            let mut after = agent.after(&tool, call, "");
            let (path, found) = (world.path(file), slipped_in.unwrap_or("mine"));
            after["tool_response"] = match host {
                "gemini" => {
                    serde_json::json!({"llmContent": "", "returnDisplay": {"filePath": path, "originalContent": found}})
                }
                _ => {
                    serde_json::json!({"type": "update", "filePath": path, "content": "mine\n", "originalFile": found})
                }
            };
            let ran = world.tollgate(["hook", host]).stdin(after.to_string()).ends().is(0);
            let Some(slipped_in) = slipped_in else {
                assert_eq!(ran.stdout(), "", "{host}");
                continue;
            };
            let told = ran.json()["hookSpecificOutput"]["additionalContext"].as_str().unwrap().to_owned();
            assert!(told.contains(slipped_in) && told.contains(file), "{told}");
            let lines = ledger(&world, "LATE_EXTERNAL_WRITE");
            let line = lines.last().unwrap();
            assert_eq!(line["payload"]["target_file"], file);
            assert_eq!(line["payload"]["found_hash"], format!("sha256:{}", hash(slipped_in)));
            assert_eq!(line["result"]["status"], "KEPT");
            let id = line["payload"]["recovery_id"].as_str().unwrap();
            assert!(told.contains(&format!("tollgate recovery show {id}")), "{told}");
            assert_eq!(world.run(&format!("recovery show {id}")).stdout(), slipped_in);
        }
        assert_eq!(ledger(&world, "LATE_EXTERNAL_WRITE").len(), 2, "{host}");
    }
}

/// The command in the line about a merge.
fn merge_command(reason: &str) -> Option<&str> {
    let line = reason.lines().find(|line| line.starts_with("Or run `tollgate merge "))?;
    line.split('`').nth(1)
}

#[test]
fn a_refused_change_that_merges_cleanly_takes_one_more_command() {
    everywhere(|world, agent| {
        world.puts("a.txt", "1\n2\n3\n4\n");
        agent.reads("a.txt");
        world.puts("a.txt", "1\n2\n3\nFOUR\n");
        let reason = agent.writes("a.txt", "ONE\n2\n3\n4\n").blocked();
        let command = merge_command(&reason).unwrap_or_else(|| panic!("{reason}"));
        let said = agent.runs(command).ran();
        assert!(said.contains("-1\n    +ONE"), "{said}");
        world.holds("a.txt", "ONE\n2\n3\nFOUR\n");
        // The agent has seen the merge, so it may go on without another read.
        agent.writes("a.txt", "ONE\n2\n3\nFOUR\n5\n").ran();
        world.puts("a.txt", "foreign\n");
        let reason = agent.writes("a.txt", "mine\n").blocked();
        assert_eq!(merge_command(&reason), None, "a conflict");
    });
}

#[test]
fn a_refused_edit_is_kept_too() {
    everywhere(|world, agent| {
        world.puts("a.txt", "1\n2\n3\n4\n");
        agent.reads("a.txt");
        world.puts("a.txt", "1\n2\n3\nFOUR\n");
        let reason = agent.edits("a.txt", "1", "ONE").blocked();
        let command = merge_command(&reason).unwrap_or_else(|| panic!("{reason}"));
        agent.runs(command).ran();
        world.holds("a.txt", "ONE\n2\n3\nFOUR\n");
        // What others do under another name is still foreign.
        agent.reads("a.txt");
        world.tollgate(["write", "a.txt", "--agent", "red"]).stdin("red\n").ends().is(0);
        agent.runs("cat a.txt > /dev/null; tollgate merge a.txt").ran();
        agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    });
}

#[test]
fn an_agent_is_informed_at_the_start_of_a_session_where_its_program_allows_it() {
    for host in ["claude-code", "gemini"] {
        let world = World::new();
        let agent = Program::new(&world, host, "session-1");
        let start = || agent.event(["SessionStart", "SessionStart", "SessionStart", "", "", "", ""]);
        let answer = agent.hook(&start()).json();
        let answer = &answer["hookSpecificOutput"];
        assert_eq!(answer["hookEventName"], "SessionStart");
        let text = answer["additionalContext"].as_str().unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("tollgate guards the files in this folder"), "{text}");
        assert!(text.contains("If `tollgate task list` shows tasks"), "{text}");
        let name = text.split("--agent ").nth(1).unwrap().split('`').next().unwrap().to_owned();
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
        agent.says(&agent.event(["SessionStart", "SessionStart", "SessionStart", "", "", "", ""]));
        assert!(!elsewhere.path(".tollgate").exists());
    }
}

/// The edit keeps the line of somebody else, so the agent does not know the whole file: it must not overwrite it.
#[test]
fn a_save_between_check_and_edit_is_not_what_the_agent_knows() {
    for (host, reports) in HOSTS.map(|host| (host, true)).into_iter().chain(HOSTS.map(|host| (host, false))) {
        let world = World::with("[guard]\ndurability = \"fast\"");
        world.puts("a.txt", "one\ntwo\nthree\n");
        let agent = Program::new(&world, host, "session-1");
        agent.reads("a.txt");
        let tool = Tool::Edit("a.txt", "one", "1");
        assert_eq!(agent.asks(&agent.before(&tool, "c1")), None);
        let found = "one\ntwo\nforeign\n";
        world.puts("a.txt", found.replace("one", "1"));
        let mut after = agent.after(&tool, "c1", "");
        let path = world.path("a.txt");
        match host {
            "gemini" if reports => {
                after["tool_response"] = serde_json::json!({"llmContent": "", "returnDisplay": {"filePath": path, "originalContent": found}});
            }
            "claude-code" if reports => {
                after["tool_response"] = serde_json::json!({"filePath": path, "originalFile": found});
            }
            _ => {}
        }
        world.tollgate(["hook", host]).stdin(after.to_string()).ends().is(0);
        let payload = agent.writes("a.txt", "mine\n").refused("STALE_FILE");
        assert_eq!(payload["expected_hash"], hash("1\ntwo\nthree\n"), "{host}");
        agent.edits("a.txt", "two", "2").refused("STALE_FILE");
        world.holds("a.txt", "1\ntwo\nforeign\n");
        agent.reads("a.txt").writes("a.txt", "mine\n").ran();
    }
}

#[test]
fn a_formatter_that_runs_after_an_edit_makes_nothing_stale() {
    everywhere(|world, agent| {
        world.puts("b.js", "f('one')\ng()\n");
        agent.reads("b.js");
        let tool = Tool::Edit("b.js", "one", "two");
        assert_eq!(agent.asks(&agent.before(&tool, "c1")), None);
        world.puts("b.js", "f(\"two\");\ng();\n");
        agent.says(&agent.after(&tool, "c1", "edited"));
        agent.writes("b.js", "more\n").ran();
    });
}

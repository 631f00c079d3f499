//! Saves around a tool's own write: by somebody else after the check, and by formatters; and refused writes that are kept for a merge.

use super::stories::{everywhere, ledger};
use super::{HOSTS, Program, Tool};
use crate::world::{World, hash};

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
fn a_save_between_check_and_write_is_reported_recorded_and_kept_if_the_program_reports_it() {
    for host in ["claude-code", "gemini", "qwen"] {
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
                "gemini" | "qwen" => {
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
            "gemini" | "qwen" if reports => {
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

//! Copilot CLI calls the hooks of `.claude/settings.json` after its own. The payloads are those of version 1.0.102.

use std::fs;

use serde_json::{Value, json};

use crate::world::World;

struct Copilot<'w> {
    world: &'w World,
    session: &'static str,
}

impl Copilot<'_> {
    /// Sends one event to both hooks, as Copilot does, and returns their answers.
    fn event(&self, name: &str, own: &Value, snake: &Value) -> [String; 2] {
        let [mut camel, mut pascal] = [own.clone(), snake.clone()];
        camel["sessionId"] = self.session.into();
        camel["timestamp"] = 1_794_813_066_076_u64.into();
        pascal["session_id"] = self.session.into();
        pascal["timestamp"] = "2026-11-16T07:11:06.076Z".into();
        pascal["hook_event_name"] = name.into();
        [("copilot", camel), ("claude-code", pascal)].map(|(host, mut payload)| {
            payload["cwd"] = json!(self.world.root());
            self.world.tollgate(["hook", host]).stdin(payload.to_string()).ends().is(0).stdout()
        })
    }

    fn prompts(&self) {
        let prompt = json!({"prompt": "go"});
        assert_eq!(self.event("UserPromptSubmit", &prompt, &prompt), ["", ""]);
    }

    fn before(&self, tool: [&str; 2], args: &Value) -> [String; 2] {
        let (own, snake) = (
            json!({"toolName": tool[0], "toolArgs": args}),
            json!({"tool_name": tool[1], "tool_input": args}),
        );
        self.event("PreToolUse", &own, &snake)
    }

    fn after(&self, tool: [&str; 2], args: &Value, text: &str) {
        let own = json!({"toolName": tool[0], "toolArgs": args,
            "toolResult": {"resultType": "success", "textResultForLlm": text}});
        let snake = json!({"tool_name": tool[1], "tool_input": args,
            "tool_result": {"result_type": "success", "text_result_for_llm": text}});
        assert_eq!(self.event("PostToolUse", &own, &snake), ["", ""]);
    }

    fn stops(&self) {
        let own = json!({"stopReason": "end_turn", "transcriptPath": "/t", "stop_hook_active": false});
        let snake = json!({"stop_reason": "end_turn", "transcript_path": "/t", "stop_hook_active": false});
        assert_eq!(self.event("Stop", &own, &snake), ["", ""]);
    }

    fn reads(&self, file: &str, text: &str) {
        let args = json!({"path": self.world.path(file)});
        assert_eq!(self.before(["view", "Read"], &args), ["", ""]);
        self.after(["view", "Read"], &args, text);
    }
}

fn count(world: &World, action_type: &str) -> usize {
    let text = fs::read_to_string(world.path(".tollgate/ledger.jsonl")).unwrap_or_default();
    text.lines().filter(|line| line.contains(&format!("\"{action_type}\""))).count()
}

#[test]
fn one_call_is_one_judgement_and_one_line() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    world.run("init --host copilot --host claude-code").is(0);
    world.puts("a.txt", "one\n");
    let agent = Copilot { world: &world, session: "s-1" };
    agent.prompts();
    agent.reads("a.txt", "one\n");
    let create = json!({"path": world.path("new.txt"), "file_text": "mine\n"});
    assert_eq!(agent.before(["create", "Write"], &create), ["", ""]);
    world.puts("new.txt", "mine\n");
    agent.after(["create", "Write"], &create, "ok");
    assert_eq!(count(&world, "MUTATION"), 1);
    world.puts("a.txt", "foreign\n");
    let edit = json!({"path": world.path("a.txt"), "old_str": "foreign", "new_str": "mine"});
    let [own, other] = agent.before(["edit", "Edit"], &edit);
    assert!(own.contains("STALE_FILE") && other.is_empty(), "{own} {other}");
    assert_eq!(count(&world, "MUTATION_CONFLICT"), 1);
    agent.stops();
    agent.prompts();
    agent.stops();
    assert_eq!((count(&world, "TURN_STARTED"), count(&world, "TURN_ENDED")), (2, 1));
    let end = json!({"reason": "complete"});
    assert_eq!(agent.event("SessionEnd", &end, &end), ["", ""]);
    assert_eq!((count(&world, "TURN_STARTED"), count(&world, "TURN_ENDED")), (2, 2));
}

#[test]
fn the_hook_of_the_other_program_judges_if_the_own_one_does_not() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    world.run("init --host claude-code").is(0);
    world.puts("a.txt", "one\n");
    let doctor = world.run("doctor");
    let is_told = |text: &str| doctor.stdout().contains(text);
    assert!(!is_told("`copilot`"), "it is not used here: {doctor}");
    fs::create_dir_all(world.path(".github/copilot")).unwrap();
    let doctor = world.run("doctor").stdout();
    assert!(doctor.contains("`copilot` is guarded by the hooks of `claude-code`"), "{doctor}");
    let call = |payload: Value| {
        world.tollgate(["hook", "claude-code"]).stdin(payload.to_string()).ends().is(0).stdout()
    };
    let event = |name: &str, tool: &str, args: Value| {
        json!({"hook_event_name": name, "session_id": "s-2", "timestamp": "2026-11-16T07:11:06.076Z", "cwd": world.root(),
            "tool_name": tool, "tool_input": args, "tool_result": {"result_type": "success", "text_result_for_llm": "one\n"}})
    };
    let read = json!({"path": world.path("a.txt")});
    assert_eq!(call(event("PreToolUse", "Read", read.clone())), "");
    assert_eq!(call(event("PostToolUse", "Read", read)), "");
    world.puts("a.txt", "foreign\n");
    let write = json!({"path": world.path("a.txt"), "file_text": "mine\n"});
    assert!(call(event("PreToolUse", "Write", write)).contains("STALE_FILE"));
    // Its own hooks are removed while a session that has called them goes on.
    world.run("init --host copilot").is(0);
    let agent = Copilot { world: &world, session: "s-3" };
    agent.reads("a.txt", "foreign\n");
    world.run("init --remove --host copilot").is(0);
    world.puts("a.txt", "foreign again\n");
    let write = json!({"hook_event_name": "PreToolUse", "session_id": "s-3", "timestamp": "2026-11-16T07:11:06.076Z",
        "cwd": world.root(), "tool_name": "Write", "tool_input": {"path": world.path("a.txt"), "file_text": "mine\n"}});
    assert!(call(write).contains("STALE_FILE"));
}

//! `tollgate mcp` as a process: what it writes, which claims it holds, and what remains when it is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{Process, Run, World};

/// A client and its server.
pub(crate) struct Client {
    process: Process,
    input: BufReader<ChildStdout>,
    output: ChildStdin,
}

impl Client {
    pub(crate) fn of(world: &World, agent: &str) -> Self {
        Self::start(world.tollgate(["mcp", "--agent", agent]))
    }

    pub(crate) fn start(mut run: Run<'_>) -> Self {
        let command = run.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let mut client = Self { process: Process(child), input: BufReader::new(input), output };
        let who = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
        client.ask("initialize", who);
        client.says(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn says(&mut self, message: &Value) {
        writeln!(self.output, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.says(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        let mut line = String::new();
        self.input.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        answer["result"].clone()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    #[track_caller]
    pub(crate) fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert!(result.get("isError").is_none(), "{result}");
        result["structuredContent"].clone()
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    fn killed(mut self) {
        self.process.signal(Signal::KILL);
        self.process.ends();
    }
}

/// A vault with a long lease, so that only a released lock frees a task.
fn with_vault(more: &str) -> World {
    let world = World::with(&format!("[vault]\ndurability = \"fast\"\nlease = \"10h\"\nretry = []\n{more}"));
    world.run("init --vault").is(0);
    world
}

#[test]
fn known_remembers_what_the_agent_read_before_it_connected_again() {
    let world = World::with("[guard]\nunread = \"known\"\n");
    world.puts("a", "one");
    let mut client = Client::of(&world, "blue");
    client.done("read_text_file", json!({"path": "a"}));
    world.puts("a", "foreign");
    let write = json!({"path": "a", "content": "mine"});
    client.refused("write_file", write.clone());
    client.done("begin_turn", json!({}));
    assert_eq!(client.refused("write_file", write.clone())["error_type"], "STALE_FILE");
    client.killed();
    let mut client = Client::of(&world, "blue");
    assert_eq!(client.refused("write_file", write.clone())["error_type"], "STALE_FILE");
    world.holds("a", "foreign");
    client.done("read_text_file", json!({"path": "a"}));
    client.done("write_file", write);
}

#[test]
fn the_turn_of_a_killed_server_leaves_its_record() {
    let world = World::new();
    world.puts("a", "one\n");
    let mut client = Client::of(&world, "blue");
    client.done("read_text_file", json!({"path": "a"}));
    client.done("write_file", json!({"path": "b", "content": "new\n"}));
    let turn = world.json("history b")[0]["turn"].as_str().unwrap().to_owned();
    let reads = |of: &str| world.json(&format!("show {of}"))["reads"].clone();
    assert_eq!(reads(&turn)[0]["path"], "a", "while it goes on");
    client.killed();
    let record = world.path(".tollgate/history/turns").join(&turn);
    assert!(!record.exists());
    world.run("turn begin --agent red").is(0);
    assert!(record.exists() && !world.path(".tollgate/open").join(&turn).exists());
    assert_eq!(reads(&turn)[0]["path"], "a");
    assert_eq!(world.json("blame b --why")[0]["reads"][0]["path"], "a");
}

#[test]
fn a_client_writes_in_the_name_of_the_servers_agent() {
    let world = World::new();
    world.puts("a", "hello");
    let mut client = Client::of(&world, "blue");
    client.done("write_file", json!({"path": "a", "content": "new"}));
    world.holds("a", "new");
    let lines = world.run("ledger tail --json").is(0).stdout();
    assert!(lines.contains("\"agent\":\"blue\"") && lines.contains("MUTATION"), "{lines}");
}

#[test]
fn changed_settings_reach_a_running_server_and_its_turn_goes_on() {
    let world = World::with("");
    world.puts("a", "one");
    let mut client = Client::of(&world, "blue");
    let write = |file: &str| json!({"path": file, "content": "mine"});
    client.done("read_text_file", json!({"path": "a"}));
    client.done("write_file", write("b"));
    world.puts(".tollgate/config.toml", "[guard]\nprotected = [\"b\"]\n");
    assert_eq!(client.refused("write_file", write("b"))["error_type"], "PROTECTED_PATH");
    world.puts("a", "foreign");
    assert_eq!(client.refused("write_file", write("a"))["error_type"], "STALE_FILE");
    world.puts(".tollgate/config.toml", "[guard]\nmode = \"s3cret\"\n");
    for _ in 0..2 {
        let answer = client.call("write_file", write("c"));
        assert_eq!(answer["isError"], true, "{answer}");
        let why = answer["content"][0]["text"].as_str().unwrap();
        assert!(why.contains("line 2 of `") && !why.contains("s3cret"), "{why}");
    }
    assert!(!world.path("c").exists());
    std::fs::remove_file(world.path(".tollgate/config.toml")).unwrap();
    client.done("write_file", write("b"));
}

#[test]
fn a_server_whose_configuration_names_another_vault_must_be_started_again() {
    let world = with_vault("");
    world.run("task add One").is(0);
    let mut client = Client::of(&world, "blue");
    client.done("claim_task", json!({"task": "one"}));
    let found = std::fs::read_to_string(world.path(".tollgate/config.toml")).unwrap();
    for change in ["dir = \"other\"\n", "store = \"git\"\n"] {
        world.puts(".tollgate/config.toml", format!("[vault]\n{change}"));
        // Otherwise the vault with its claims would be a folder like any other.
        let answer = client.call("write_file", json!({"path": "vault/Approved/x.md", "content": "mine"}));
        assert_eq!(answer["isError"], true, "{answer}");
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("names another vault than before; start this server again"), "{text}");
        assert!(!world.path("vault/Approved/x.md").exists());
    }
    world.puts(".tollgate/config.toml", found);
    client.done("write_file", json!({"path": "a", "content": "mine"}));
}

#[test]
fn killing_the_server_frees_its_tasks_at_once() {
    let world = with_vault("");
    world.run("task add One").is(0);
    world.run("task add Two").is(0);
    let mut blue = Client::of(&world, "blue");
    for task in ["one", "two"] {
        let claimed = blue.done("claim_task", json!({"task": task}));
        assert!(claimed.get("lease_until").is_none(), "it is held: {claimed}");
    }
    let mut green = Client::of(&world, "green");
    assert_eq!(green.refused("claim_task", json!({"task": "one"}))["reason"], "lost");
    assert_eq!(world.json("task reclaim"), json!([]), "its owner is alive");
    blue.killed();
    assert_eq!(green.done("claim_task", json!({"task": "one"}))["agent"], "green");
    // Workers get it, too.
    let ran = world.run("work --agent red --once -- true").is(0);
    assert_eq!(world.json("task show two")["state"], "Done", "{ran}");
}

#[test]
fn a_server_returns_its_tasks_when_the_client_disconnects_or_a_signal_arrives() {
    let world = with_vault("");
    world.run("task add One").is(0);
    for asked in [false, true] {
        let mut blue = Client::of(&world, "blue");
        blue.done("claim_task", json!({}));
        blue.done("write_file", json!({"path": "a", "content": "x"}));
        let Client { mut process, output, .. } = blue;
        if asked {
            process.signal(Signal::TERM);
            assert!(process.ends().success());
        } else {
            drop(output);
            assert!(process.ends().success());
        }
        assert_eq!(world.json("task show one")["state"], "Needs_Action", "asked: {asked}");
    }
    for kind in ["TURN_STARTED", "TURN_ENDED"] {
        assert_eq!(world.json(&format!("ledger tail --type {kind}")).as_array().unwrap().len(), 2, "{kind}");
    }
}

#[test]
fn an_agent_writes_only_to_its_own_task() {
    let world = with_vault("");
    world.run("task add One").is(0);
    world.run("task add Two").is(0);
    let mut blue = Client::of(&world, "blue");
    let mut green = Client::of(&world, "green");
    blue.done("claim_task", json!({"task": "one"}));
    green.done("claim_task", json!({"task": "two"}));
    let (own, others) = ("vault/In_Progress/blue/one.md", "vault/In_Progress/green/two.md");
    let edit = |path| json!({"path": path, "edits": [{"oldText": "# ", "newText": "## Draft "}]});
    let marked = |path| json!({"path": path, "edits": [{"oldText": "## Progress", "newText": "## Draft\n\n## Progress"}]});
    blue.done("edit_file", marked(own));
    let protected = [
        ("edit_file", edit(others)),
        ("write_file", json!({"path": "vault/Approved/x.md", "content": "x"})),
        ("move_file", json!({"source": own, "destination": "vault/Approved/one.md"})),
        ("move_file", json!({"source": "vault/Pending_Approval", "destination": "vault/Approved/p"})),
        ("create_directory", json!({"path": "vault/Done/x"})),
    ];
    for (tool, arguments) in protected {
        let payload = blue.refused(tool, arguments.clone());
        assert_eq!(payload["error_type"], "PROTECTED_PATH", "{tool} {arguments}: {payload}");
    }
    blue.done("write_file", json!({"path": "vault/Needs_Action/new.md", "content": "# A new task\n"}));
}

#[test]
fn an_agent_inside_a_worker_can_use_the_workers_claim() {
    let world = with_vault("");
    let (claimed, done) = (world.tmp().join("claimed"), world.tmp().join("done"));
    world.run("task add One").is(0);
    let script = format!(
        "env > {0}.new; mv {0}.new {0}; while [ ! -e {1} ]; do sleep 0.02; done",
        claimed.display(),
        done.display()
    );
    let words = ["work", "--agent", "blue", "--once", "--", "sh", "-c", &script];
    let mut worker = world.tollgate(words).starts();
    let given = crate::world::until("the worker's command", || std::fs::read_to_string(&claimed).ok());
    let id = given.lines().find_map(|line| line.strip_prefix("TOLLGATE_CLAIM_ID=")).unwrap();
    let note = |text| json!({"task": "one", "claim_id": id, "text": text});
    let inside = world.tollgate(["mcp"]).env("TOLLGATE_AGENT", "blue").env("TOLLGATE_CLAIM_ID", id);
    Client::start(inside).done("report_progress", note("from inside"));
    // Another process with the same agent name does not have the claim.
    let payload = Client::of(&world, "blue").refused("report_progress", note("from outside"));
    assert_eq!(payload["reason"], "not_owner");
    std::fs::write(&done, "").unwrap();
    assert!(worker.ends().success());
    let text = world.json("task show one")["content"].as_str().unwrap().to_owned();
    assert!(text.contains("from inside") && !text.contains("from outside"), "{text}");
}

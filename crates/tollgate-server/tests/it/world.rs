//! A workspace, clients that speak JSON-RPC, and outsiders, so that tests read as stories.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::ledger::Line;
use tollgate::settings::{Durability, Settings};
use tollgate::vault::Vault;
use tollgate_server::mcp::{IDLE, Options, Server, Tasks};

#[path = "../../examples/shared/vault.rs"]
mod vault;

/// Every tool, in the order of the list.
pub(crate) const TOOLS: [&str; 25] = [
    "read_file",
    "read_text_file",
    "read_media_file",
    "read_multiple_files",
    "write_file",
    "edit_file",
    "create_directory",
    "list_directory",
    "list_directory_with_sizes",
    "directory_tree",
    "move_file",
    "search_files",
    "get_file_info",
    "list_allowed_directories",
    "delete_file",
    "write_files",
    "begin_turn",
    "end_turn",
    "get_initial_hash",
    "list_tasks",
    "get_task",
    "claim_task",
    "renew_task",
    "report_progress",
    "release_task",
];

pub(crate) struct World {
    keep: tempfile::TempDir,
    root: PathBuf,
    pub(crate) server: Server,
    gate: tollgate::gate::Gate,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With these settings. The disk is not flushed, as no test here cuts the power.
    pub(crate) fn with(settings: &str) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap().join("w");
        fs::create_dir(&root).unwrap();
        let mut settings: Settings = settings.parse().unwrap();
        settings.guard.durability = Durability::Fast;
        settings.vault.durability = Durability::Fast;
        let mut options = Options::new(&root, "blue".parse().unwrap());
        options.workspace.settings = Some(settings);
        let gate = tollgate::gate::Gate::new(
            tollgate::workspace::Workspace::open(&root, options.workspace.clone()).unwrap(),
        );
        let server = Server::over(gate.clone(), options.agent, options.idle);
        Self { keep, root, server, gate }
    }

    /// With a vault for tasks.
    pub(crate) fn with_vault(settings: &str) -> Self {
        let world = Self::with(settings);
        let server = world.serving_as("blue");
        Self { server, ..world }
    }

    /// The same workspace and vault behind a server for this agent.
    pub(crate) fn serving_as(&self, agent: &str) -> Server {
        let tasks = Tasks::new(self.vault(), Duration::ZERO);
        Server::over(self.gate.clone(), agent.parse().unwrap(), IDLE).with_tasks(tasks)
    }

    /// The vault, for what people do.
    pub(crate) fn vault(&self) -> Vault {
        let workspace = self.gate.workspace();
        fs::create_dir_all(self.root.join(&workspace.settings().vault.dir)).unwrap();
        vault::open(workspace).unwrap()
    }

    /// Somebody adds a task.
    pub(crate) fn adds(&self, task: &str, text: &str) {
        self.vault().add(&task.parse().unwrap(), text.as_bytes()).unwrap();
    }

    /// Where a task is, as a folder.
    pub(crate) fn slot(&self, task: &str) -> String {
        self.vault().get(&task.parse().unwrap(), Timestamp::now()).unwrap().slot.to_string()
    }

    /// The same workspace behind a server whose turns are over after this time.
    pub(crate) fn idle_after(&self, idle: Duration) -> Server {
        Server::over(self.gate.clone(), "blue".parse().unwrap(), idle)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.keep.path().canonicalize().unwrap()
    }

    pub(crate) fn path(&self, path: &str) -> String {
        self.root.join(path).to_str().unwrap().to_owned()
    }

    /// Somebody who knows nothing of tollgate writes a file.
    pub(crate) fn outsider_writes(&self, path: &str, bytes: impl AsRef<[u8]>) {
        if let Some(folder) = self.root.join(path).parent() {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(self.root.join(path), bytes).unwrap();
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        fs::read(self.root.join(path)).unwrap()
    }

    #[track_caller]
    pub(crate) fn holds(&self, path: &str, text: &str) {
        assert_eq!(String::from_utf8_lossy(&self.bytes(path)), text, "{path}");
    }

    pub(crate) fn ledger(&self, action_type: &str) -> Vec<Line> {
        let lines = self.gate.workspace().ledger().lines_after(0).unwrap();
        lines.into_iter().filter(|line| line.action_type == action_type).collect()
    }

    /// A client on a connection of its own, past its handshake.
    pub(crate) fn client(&self) -> Client {
        Client::of(self.server.clone())
    }
}

pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    tollgate::digest::Digest::of(bytes.as_ref()).to_string()
}

/// A client that speaks JSON-RPC by lines, on a socket or a child's pipes.
pub(crate) struct Client {
    input: Box<dyn BufRead + Send>,
    /// None once it has hung up.
    output: Option<Box<dyn Write + Send>>,
    next: i64,
    early: HashMap<i64, Value>,
    serving: Option<JoinHandle<()>>,
    hang_up: Option<UnixStream>,
}

impl Client {
    pub(crate) fn of(server: Server) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        // A server that does not answer fails the test, it does not hang it.
        ours.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let (read, write) = tokio::net::UnixStream::from_std(theirs).unwrap().into_split();
                server.serve(read, write).await.unwrap();
            });
        });
        let mut client = Self::new(ours.try_clone().unwrap(), ours.try_clone().unwrap());
        client.serving = Some(serving);
        client.hang_up = Some(ours);
        client.shake_hands();
        client
    }

    fn new(input: impl std::io::Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        Self {
            input: Box::new(BufReader::new(input)),
            output: Some(Box::new(output)),
            next: 0,
            early: HashMap::new(),
            serving: None,
            hang_up: None,
        }
    }

    pub(crate) fn shake_hands(&mut self) -> Value {
        let answer = self.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        );
        self.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        answer
    }

    pub(crate) fn line(&mut self, line: &str) {
        let output = self.output.as_mut().expect("has not hung up");
        output.write_all(line.as_bytes()).unwrap();
        output.write_all(b"\n").unwrap();
        output.flush().unwrap();
    }

    /// For bytes that are no line of text.
    pub(crate) fn raw(&mut self) -> &mut dyn Write {
        self.output.as_mut().expect("has not hung up")
    }

    /// Sends a request, does not wait, says its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        let id = self.next;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    pub(crate) fn send_call(&mut self, tool: &str, arguments: Value) -> i64 {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The next message, whatever it is. None at the end.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let mut line = String::new();
        if self.input.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// The answer to this request.
    pub(crate) fn wait(&mut self, id: i64) -> Value {
        loop {
            if let Some(message) = self.early.remove(&id) {
                return message;
            }
            let message = self.message().expect("the server answers before it ends");
            if let Some(id) = message["id"].as_i64() {
                self.early.insert(id, message);
            }
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.wait(id)
    }

    /// The result of a tool call, which fits the tool's schema.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.send_call(tool, arguments);
        self.result(tool, id)
    }

    #[track_caller]
    pub(crate) fn result(&mut self, tool: &str, id: i64) -> Value {
        let answer = self.wait(id);
        let result = answer["result"].clone();
        assert!(result.is_object(), "{answer}");
        fits_schema(tool, &result);
        result
    }

    /// The text of a call that is done.
    #[track_caller]
    pub(crate) fn done(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert!(result.get("isError").is_none(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The text of a call that failed and was not refused.
    #[track_caller]
    pub(crate) fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// What programs read of a call that is done.
    #[track_caller]
    pub(crate) fn value(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert!(result.get("isError").is_none(), "{result}");
        let value = result["structuredContent"].clone();
        assert_eq!(result["content"], json!([{"type": "text", "text": value.to_string()}]));
        value
    }

    /// The payload of a call that was refused for this reason.
    #[track_caller]
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value, error_type: &str) -> Value {
        let result = self.call(tool, arguments);
        refusal(&result, error_type)
    }

    /// Closes the connection and waits for the server to be done with it.
    pub(crate) fn closes(mut self) {
        self.output = None;
        if let Some(socket) = self.hang_up.take() {
            socket.shutdown(std::net::Shutdown::Write).unwrap();
        }
        while self.message().is_some() {}
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap();
        }
    }
}

/// The payload of a result that is a refusal of this kind; its text is the report.
#[track_caller]
pub(crate) fn refusal(result: &Value, error_type: &str) -> Value {
    assert_eq!(result["isError"], true, "{result}");
    let payload = &result["structuredContent"];
    assert_eq!(payload["error_type"], error_type, "{result}");
    let keys: Vec<&String> = payload.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["error_type", "file_path", "expected_hash", "actual_hash", "resolution"]);
    for item in result["content"].as_array().unwrap() {
        let report: Value = serde_json::from_str(item["text"].as_str().unwrap()).unwrap();
        serde_json::from_value::<tollgate::refusal::Report>(report).unwrap();
    }
    payload.clone()
}

/// As clients do: the structured content of done and refused calls must fit what the tool promises.
#[track_caller]
fn fits_schema(tool: &str, result: &Value) {
    static SCHEMAS: OnceLock<HashMap<String, jsonschema::Validator>> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(|| {
        let world = World::new();
        let mut client = world.client();
        let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
        let validator = |tool: &Value| jsonschema::validator_for(&tool["outputSchema"]).unwrap();
        let entry = |tool: &Value| (tool["name"].as_str().unwrap().to_owned(), validator(tool));
        tools.as_array().unwrap().iter().map(entry).collect()
    });
    match result.get("structuredContent") {
        Some(content) => {
            if let Err(error) = schemas[tool].validate(content) {
                panic!("{tool}: {error}: {content}");
            }
        }
        None => assert_eq!(result["isError"], true, "{tool}: {result}"),
    }
}

/// A program of this crate's examples.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is built by `cargo test -p tollgate-server`", path.display());
    path
}

/// A server that is a process of its own.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) client: Client,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let input: ChildStdout = child.stdout.take().unwrap();
        let output: ChildStdin = child.stdin.take().unwrap();
        Self { child, client: Client::new(input, output) }
    }

    pub(crate) fn serving(root: &Path) -> Self {
        Self::start(Command::new(example("mcp_stdio")).args(["--agent", "blue", "--fast"]).arg(root))
    }

    /// Closes its input and waits for it to end by itself.
    pub(crate) fn ends(mut self) -> std::process::ExitStatus {
        self.client.output = None;
        self.child.wait().unwrap()
    }
}

//! A workspace, clients that speak JSON-RPC, and programs outside tollgate, so that tests read as stories.

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
use tollgate::gate::Gate;
use tollgate::settings::{Durability, Settings, Wait};
use tollgate::vault::Vault;
use tollgate::workspace::{self, Workspace};
use tollgate_server::mcp::{self, ServedVault, Server, ServerOptions};

/// All tools, in the order of the server's list.
pub(crate) const TOOLS: [&str; 29] = [
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
    "merge_file",
    "commit_changes",
    "file_history",
    "blame",
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
    gate: Gate,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With these settings. Writes are not flushed, because no test here simulates a power loss.
    pub(crate) fn with(settings: &str) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap().join("w");
        fs::create_dir(&root).unwrap();
        let mut settings = Settings::parse(settings, "config.toml".as_ref()).unwrap();
        settings.guard.durability = Durability::Fast;
        settings.vault.durability = Durability::Fast;
        settings.vault.settle = Wait(Duration::ZERO);
        let options = workspace::Options { settings: Some(settings), ..Default::default() };
        let gate = Gate::new(Workspace::open(&root, options).unwrap());
        let server = Server::new(gate.clone(), serving("blue"));
        Self { keep, root, server, gate }
    }

    /// With a vault for tasks.
    pub(crate) fn with_vault(settings: &str) -> Self {
        let world = Self::with(settings);
        let server = world.serving_as("blue");
        Self { server, ..world }
    }

    /// A server for this agent, on the same workspace and vault.
    pub(crate) fn serving_as(&self, agent: &str) -> Server {
        let tasks = ServedVault::new(self.vault(), Duration::ZERO);
        Server::new(self.gate.clone(), serving(agent)).with_tasks(tasks)
    }

    /// The vault, for steps that people take.
    pub(crate) fn vault(&self) -> Vault {
        let workspace = self.gate.workspace();
        tollgate::tasks::create(workspace, Default::default()).unwrap().vault
    }

    /// Somebody adds a task.
    pub(crate) fn adds(&self, task: &str, text: &str) {
        self.vault().add(&task.parse().unwrap(), text.as_bytes(), Timestamp::now()).unwrap();
    }

    /// The folder that a task is in.
    pub(crate) fn slot(&self, task: &str) -> String {
        self.vault().get(&task.parse().unwrap(), Timestamp::now()).unwrap().slot.to_string()
    }

    /// A server on the same workspace whose turns end after this idle time.
    pub(crate) fn idle_after(&self, idle: Duration) -> Server {
        Server::new(self.gate.clone(), ServerOptions { idle, ..serving("blue") })
    }

    /// A server on the same workspace whose user has this home directory.
    pub(crate) fn at_home_in(&self, home: Option<&Path>) -> Server {
        let home = home.map(Path::to_owned);
        Server::new(self.gate.clone(), ServerOptions { home, ..serving("blue") })
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

    /// A program outside tollgate writes a file.
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

    pub(crate) fn ledger(&self, action_type: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        let mut follower = self.gate.workspace().ledger().follow();
        follower.advance(usize::MAX, |line| lines.push(line.json())).unwrap();
        lines.retain(|line: &Value| line["action_type"] == action_type);
        lines
    }

    /// A client on a new connection, after the handshake.
    pub(crate) fn client(&self) -> Client {
        Client::of(self.server.clone())
    }
}

/// The options of a server for this agent.
fn serving(agent: &str) -> ServerOptions {
    ServerOptions { home: std::env::home_dir(), ..ServerOptions::new(agent.parse().unwrap()) }
}

pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    tollgate::digest::Digest::of(bytes.as_ref()).to_string()
}

/// A client that sends JSON-RPC as lines, over a socket or the pipes of a child process.
pub(crate) struct Client {
    input: Box<dyn BufRead + Send>,
    /// `None` after the client has closed the connection.
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
        // If the server does not answer, the test fails instead of hanging.
        ours.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let (read, write) = tokio::net::UnixStream::from_std(theirs).unwrap().into_split();
                mcp::serve(&server, read, write).await.unwrap();
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
        let output = self.output.as_mut().expect("the connection is open");
        output.write_all(line.as_bytes()).unwrap();
        output.write_all(b"\n").unwrap();
        output.flush().unwrap();
    }

    /// Access to the stream, for bytes that are not a line of text.
    pub(crate) fn raw(&mut self) -> &mut dyn Write {
        self.output.as_mut().expect("the connection is open")
    }

    /// The stream of answers, for lines that do not survive a parser.
    pub(crate) fn input(&mut self) -> &mut dyn BufRead {
        &mut self.input
    }

    /// The stream of requests, for another thread.
    pub(crate) fn take_output(&mut self) -> Box<dyn Write + Send> {
        self.output.take().expect("the connection is open")
    }

    /// Sends a request without waiting for the answer. Returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> i64 {
        self.next += 1;
        let id = self.next;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    pub(crate) fn send_call(&mut self, tool: &str, arguments: Value) -> i64 {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The next message. `None` at the end.
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
            let message = self.message().expect("the server answers before it closes the connection");
            if let Some(id) = message["id"].as_i64() {
                self.early.insert(id, message);
            }
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.wait(id)
    }

    /// The result of a tool call. Checks it against the tool's schema.
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

    /// The text of a successful call.
    #[track_caller]
    pub(crate) fn done(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert!(result.get("isError").is_none(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The text of a call that fails for another reason than a refusal.
    #[track_caller]
    pub(crate) fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The structured content of a successful call.
    #[track_caller]
    pub(crate) fn value(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert!(result.get("isError").is_none(), "{result}");
        let value = result["structuredContent"].clone();
        assert_eq!(result["content"], json!([{"type": "text", "text": value.to_string()}]));
        value
    }

    /// The payload of a call that is refused with this error type.
    #[track_caller]
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value, error_type: &str) -> Value {
        let result = self.call(tool, arguments);
        refusal(&result, error_type)
    }

    /// Closes the connection and waits until the server has closed it, too.
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

/// The payload of a refusal with this error type. Checks that the text is a report.
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

/// The structured content of successful and refused calls must match the tool's schema, because clients validate it.
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

/// The path of one of this crate's examples.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is built by `cargo test -p tollgate-server`", path.display());
    path
}

/// A server in its own process.
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

    /// Closes its input and waits for it to end.
    pub(crate) fn ends(mut self) -> std::process::ExitStatus {
        self.client.output = None;
        self.child.wait().unwrap()
    }
}

//! A served workspace with a vault, agents that work in it, and a visitor who sends HTTP requests.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate::error::Result;
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::name::Agent;
use tollgate::part::Part;
use tollgate::settings::{Durability, Role, Settings, Wait};
use tollgate::shared_turn::SharedTurns;
use tollgate::turn::Turn;
use tollgate::vault::state::State;
use tollgate::vault::{ClaimKind, ClaimRequest, Claimed, Release, TaskName, Vault};
use tollgate::workspace::{Options, Workspace};
use tollgate_server::access::Credentials;
use tollgate_server::notices::NoticeTarget;
use tollgate_server::secret::Secret;
use tollgate_server::serve::{BoundServer, Stop};
use tollgate_server::site::{Site, SiteOptions};
use tollgate_server::workspace_provider::{OpenWorkspace, WorkspaceProvider};
use tollgate_testing::until_true;

/// The folder of the workspace.
#[derive(Clone)]
struct Here(PathBuf);

impl Here {
    fn workspace(&self) -> Result<Workspace> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let mut settings = Settings {
            agent: BTreeMap::from([
                ("cloud".parse()?, Role { role: None, allowed: Vec::new(), sensitive: words(&["pay"]) }),
                ("local".parse()?, Role { role: None, allowed: words(&["pay"]), sensitive: Vec::new() }),
            ]),
            ..Settings::default()
        };
        settings.guard.durability = Durability::Fast;
        settings.vault.durability = Durability::Fast;
        settings.vault.settle = Wait(Duration::ZERO);
        settings.vault.retry.clear();
        Workspace::open(&self.0, Options { settings: Some(settings), ..Options::default() })
    }

    fn tasks(&self, workspace: &Workspace) -> Result<Vault> {
        Ok(tollgate::tasks::create(workspace, Default::default())?.vault)
    }
}

impl WorkspaceProvider for Here {
    fn root(&self) -> &Path {
        &self.0
    }

    fn vault(&self) -> PathBuf {
        self.0.join("vault")
    }

    fn open(&self) -> Result<Option<OpenWorkspace>> {
        if !self.0.join(".tollgate").exists() {
            return Ok(None);
        }
        let workspace = self.workspace()?;
        let vault = match self.vault().join("Needs_Action").exists() {
            true => Some(self.tasks(&workspace)?),
            false => None,
        };
        let turns = vec![SharedTurns::new(self.0.join(".tollgate/run"))?];
        Ok(Some(OpenWorkspace { gate: Gate::new(workspace), vault, turns }))
    }

    fn gate_of(&self, _: &Agent) -> Result<Gate> {
        Ok(Gate::new(self.workspace()?))
    }
}

fn credentials(person: &Secret) -> Credentials {
    let agent = Some((AGENT.parse().unwrap(), Secret::chosen(AGENT_TOKEN.into()).unwrap()));
    Credentials { person: person.clone(), tokens: None, agent }
}

/// An agent with a token.
pub(crate) const AGENT: &str = "cloud";
pub(crate) const AGENT_TOKEN: &str = "the-token-of-the-agent-cloud";

fn options() -> SiteOptions {
    SiteOptions { person: "ada".to_owned(), home: None }
}

/// A workspace that is served until the test ends.
pub(crate) struct World {
    here: Here,
    pub(crate) address: SocketAddr,
    /// The person's secret. It stays the same when the server is restarted.
    pub(crate) secret: Secret,
    /// The cookie of a browser that is logged in.
    pub(crate) cookie: String,
    stop: Stop,
    serving: Option<JoinHandle<()>>,
    _keep: tempfile::TempDir,
}

impl World {
    /// With a vault.
    pub(crate) fn new() -> Self {
        Self::after(|here| drop(here.tasks(&here.workspace().unwrap()).unwrap()))
    }

    /// With a vault, which is prepared before the server starts.
    pub(crate) fn prepared(prepare: impl FnOnce(&Path, &Workspace)) -> Self {
        Self::after(|here| {
            let workspace = here.workspace().unwrap();
            drop(here.tasks(&workspace).unwrap());
            prepare(&here.0, &workspace);
        })
    }

    /// A folder where tollgate is not set up.
    pub(crate) fn bare() -> Self {
        Self::after(|_| {})
    }

    /// With a vault, and with somebody to tell.
    pub(crate) fn telling(target: NoticeTarget) -> Self {
        Self::start(|here| drop(here.tasks(&here.workspace().unwrap()).unwrap()), Some(target))
    }

    fn after(setup: impl FnOnce(&Here)) -> Self {
        Self::start(setup, None)
    }

    fn start(setup: impl FnOnce(&Here), target: Option<NoticeTarget>) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap().join("w");
        fs::create_dir(&root).unwrap();
        let here = Here(root);
        setup(&here);
        let secret = Secret::random().unwrap();
        let bound = BoundServer::new("127.0.0.1:0".parse().unwrap(), [], credentials(&secret)).unwrap();
        let (address, stop) = (bound.address(), bound.stop());
        let provider = Box::new(here.clone());
        let serving = std::thread::spawn(move || {
            let site = Site::new(provider, options()).unwrap();
            if let Some(target) = target {
                site.tell(target).unwrap();
            }
            bound.run(site).unwrap();
        });
        let cookie = String::new();
        let mut world = Self { here, address, secret, cookie, stop, serving: Some(serving), _keep: keep };
        world.cookie = world.logs_in();
        world
    }

    /// Restarts the server on the same workspace and address.
    pub(crate) fn restart(&mut self) {
        self.stop.stop();
        self.serving.take().unwrap().join().unwrap();
        let bound = BoundServer::new(self.address, [], credentials(&self.secret)).unwrap();
        self.stop = bound.stop();
        let provider = Box::new(self.here.clone());
        self.serving = Some(std::thread::spawn(move || {
            let site = Site::new(provider, options()).unwrap();
            bound.run(site).unwrap();
        }));
    }

    /// The vault as another process opens it. Creates what is missing.
    pub(crate) fn vault(&self) -> Vault {
        self.here.tasks(&self.workspace()).unwrap()
    }

    pub(crate) fn workspace(&self) -> Workspace {
        self.here.workspace().unwrap()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.here.0
    }

    pub(crate) fn add(&self, task: &str, text: &str) {
        self.vault().add(&name(task), text.as_bytes(), Timestamp::now()).unwrap();
    }

    /// An agent claims a task.
    pub(crate) fn claims(&self, agent: &str, task: &str) -> Claimed {
        let asked =
            ClaimRequest { agent: agent.parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
        match self.vault().claim(&name(task), &asked, Timestamp::now()).unwrap() {
            Ok(claimed) => claimed,
            Err(not) => panic!("{not:?}"),
        }
    }

    /// Adds a task, which an agent drafts and which then waits for approval.
    pub(crate) fn drafted(&self, task: &str, draft: &str) {
        self.drafted_as(task, task, draft);
    }

    /// The same, with a title.
    pub(crate) fn drafted_as(&self, task: &str, title: &str, draft: &str) {
        self.add(task, &format!("---\naction: pay\n---\n# {title}\n"));
        let claimed = self.claims("cloud", task);
        let path = self.place(task);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}\n## Draft\n\n{draft}\n")).unwrap();
        self.vault()
            .release(&name(task), &claimed.claim.id, &Release::success(), Timestamp::now())
            .unwrap()
            .unwrap();
        assert_eq!(self.state(task), State::PendingApproval);
        self.server_knows_what_waits();
    }

    /// Waits until the kernel has told the server about every task that waits for approval.
    fn server_knows_what_waits(&self) {
        let waiting =
            self.vault().store().scan(State::PendingApproval, Timestamp::now()).unwrap().tasks.len();
        self.hears("/health", &format!("\"pending_approvals\":{waiting},"));
    }

    pub(crate) fn state(&self, task: &str) -> State {
        self.vault().get(&name(task), Timestamp::now()).unwrap().slot.state()
    }

    /// Waits until a task is in this state: the page may show what is expected before the server has decided.
    #[track_caller]
    pub(crate) fn becomes(&self, task: &str, state: State) {
        until_true(&format!("{task} in {state}"), || self.state(task) == state);
    }

    /// The path of a task's file.
    pub(crate) fn place(&self, task: &str) -> PathBuf {
        self.vault().get(&name(task), Timestamp::now()).unwrap().path.clone().unwrap()
    }

    pub(crate) fn text(&self, task: &str) -> String {
        fs::read_to_string(self.place(task)).unwrap()
    }

    /// Somebody changes a task by hand.
    pub(crate) fn meddles(&self, task: &str, from: &str, to: &str) {
        let text = self.text(task);
        assert!(text.contains(from), "{text}");
        fs::write(self.place(task), text.replace(from, to)).unwrap();
    }

    pub(crate) fn agent(&self, agent: &str) -> Writer {
        let gate = Gate::new(self.workspace());
        let turn = gate.begin_turn(agent.parse().unwrap()).unwrap();
        Writer { gate, turn }
    }

    /// An agent's write is refused, because another agent has changed the file. Returns the refused agent.
    pub(crate) fn conflict(&self, file: &str) -> Writer {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "one\n").unwrap();
        let (blue, red) = (self.agent("blue"), self.agent("red"));
        blue.reads(file);
        red.reads(file);
        assert!(red.writes(file, "two\n"));
        assert!(!blue.writes(file, "three\n"));
        blue
    }

    /// Makes the workspace a git repository without a commit, so all files in it are unfinished.
    pub(crate) fn is_a_repository(&self) {
        let made = Command::new("git").args(["init", "-q"]).arg(self.root()).status().unwrap();
        assert!(made.success());
    }

    /// One request, as a browser would send it, with these headers.
    pub(crate) fn asks(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let host = self.address.to_string();
        let length = body.len().to_string();
        let usual =
            [("Host", host.as_str()), ("Content-Length", length.as_str()), ("Cookie", self.cookie.as_str())];
        let missing = |name: &str| !headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        for (name, value) in
            usual.into_iter().filter(|(name, _)| missing(name)).chain(headers.iter().copied())
        {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn gets(&self, path: &str) -> Reply {
        self.asks("GET", path, &[], "")
    }

    /// Loads the page until it contains the text.
    #[track_caller]
    pub(crate) fn hears(&self, path: &str, text: &str) -> Reply {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let reply = self.gets(path);
            if reply.body.contains(text) {
                return reply;
            }
            assert!(Instant::now() < deadline, "{text:?} is not in {}", reply.body);
        }
    }

    /// The address of a page, with the secret.
    pub(crate) fn with_secret(&self, path: &str) -> String {
        let mark = if path.contains('?') { '&' } else { '?' };
        format!("{path}{mark}token={}", self.secret.reveal())
    }

    /// A new browser opens the address that the server printed. Returns its cookie.
    pub(crate) fn logs_in(&self) -> String {
        let reply = self.asks("GET", &self.with_secret("/"), &[("Cookie", "")], "");
        assert_eq!((reply.status, reply.header("location")), (303, Some("/")), "{reply:?}");
        reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    /// A new browser on one page, with its cookie and the hidden fields of its forms.
    pub(crate) fn visits(&self, path: &str) -> Visitor<'_> {
        let cookie = self.logs_in();
        let reply = self.asks("GET", path, &[("Cookie", &cookie)], "");
        let field = |name: &str| reply.field(name);
        Visitor { world: self, token: field("token"), seen: field("seen"), cookie, reply }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// An agent with a turn.
pub(crate) struct Writer {
    gate: Gate,
    turn: Turn,
}

impl Writer {
    pub(crate) fn reads(&self, file: &str) {
        assert!(matches!(self.gate.read(&self.turn, file, Part::Whole).unwrap(), Outcome::Done(_)));
    }

    /// Returns whether the write was accepted.
    pub(crate) fn writes(&self, file: &str, text: &str) -> bool {
        matches!(self.gate.write(&self.turn, file, text, Expected::Baseline).unwrap(), Outcome::Done(_))
    }
}

/// One response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &&str| line.to_ascii_lowercase().starts_with(&format!("{name}:"));
        self.head.lines().find(line)?.split_once(": ").map(|(_, value)| value)
    }

    /// The body, if it was sent in chunks.
    pub(crate) fn text(&self) -> String {
        let (mut text, mut rest) = (String::new(), self.body.as_str());
        while let Some((length, after)) = rest.split_once("\r\n") {
            let length = usize::from_str_radix(length, 16).unwrap();
            text += &after[..length];
            rest = after[length..].trim_start_matches("\r\n");
        }
        text
    }

    /// The value of the first hidden field with this name.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let (_, rest) = self.body.split_once(&format!("name=\"{name}\" value=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    }

    #[track_caller]
    pub(crate) fn has(&self, text: &str) -> &Self {
        assert!(self.body.contains(text), "{text:?} is not in {}", self.body);
        self
    }

    #[track_caller]
    pub(crate) fn lacks(&self, text: &str) -> &Self {
        assert!(!self.body.contains(text), "{text:?} is in {}", self.body);
        self
    }
}

/// A browser on one page.
pub(crate) struct Visitor<'w> {
    world: &'w World,
    pub(crate) cookie: String,
    pub(crate) token: Option<String>,
    pub(crate) seen: Option<String>,
    pub(crate) reply: Reply,
}

impl Visitor<'_> {
    /// Sends a form with the page's hidden fields and these fields.
    pub(crate) fn sends(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let own = [("token", self.token.as_deref()), ("seen", self.seen.as_deref())];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let all: Vec<(&str, &str)> = own.chain(fields.iter().copied()).collect();
        let origin = format!("http://{}", self.world.address);
        let headers = [
            ("Cookie", self.cookie.as_str()),
            ("Origin", &origin),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        self.world.asks("POST", path, &headers, &form(&all))
    }
}

/// Encodes fields as a browser does.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

/// Encodes every byte as `%XX`, which is always valid.
pub(crate) fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub(crate) fn name(task: &str) -> TaskName {
    task.parse().unwrap()
}

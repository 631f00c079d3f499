//! The site of a workspace: the live feed, and the board that it keeps up to date.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use tollgate::error::Result;
use tollgate::event::{Event, TurnMark};
use tollgate::gate::Gate;
use tollgate::ledger::{Entry, Ledger};
use tollgate::name::{Agent, TurnId};
use tollgate::settings::{Durability, Settings, Wait};
use tollgate::shared_turn::{Leaves, SharedTurns};
use tollgate::vault::state::State;
use tollgate::vault::{ClaimKind, ClaimRequest, Release, TaskName, Vault};
use tollgate::workspace::{Options, Workspace};
use tollgate_server::access::Credentials;
use tollgate_server::feed::{FeedEvent, Subscription};
use tollgate_server::secret::Secret;
use tollgate_server::serve::{BoundServer, Stop};
use tollgate_server::site::{Site, SiteOptions};
use tollgate_server::workspace_provider::{OpenWorkspace, WorkspaceProvider};

struct Here(PathBuf);

impl Here {
    fn workspace(&self) -> Result<Workspace> {
        let mut settings = Settings::default();
        settings.vault.durability = Durability::Fast;
        settings.vault.settle = Wait(Duration::ZERO);
        Workspace::open(&self.0, Options { settings: Some(settings), ..Options::default() })
    }

    fn ledger(&self) -> Ledger {
        self.workspace().unwrap().ledger().clone()
    }

    /// The vault as another process opens it.
    fn tasks(&self) -> Result<Vault> {
        Ok(tollgate::tasks::create(&self.workspace()?, Default::default())?.vault)
    }

    fn turns(&self) -> Result<SharedTurns> {
        SharedTurns::new(self.0.join("turns"))
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
        let vault = self.tasks()?;
        let turns = vec![self.turns()?];
        Ok(Some(OpenWorkspace { gate: Gate::new(self.workspace()?), vault: Some(vault), turns }))
    }

    fn gate_of(&self, _: &Agent) -> Result<Gate> {
        Ok(Gate::new(self.workspace()?))
    }
}

/// A served site.
struct World {
    here: Here,
    person: Secret,
    site: Site,
    address: std::net::SocketAddr,
    stop: Stop,
    serving: Option<JoinHandle<Result<()>>>,
    runtime: tokio::runtime::Runtime,
    _keep: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap();
        let options = SiteOptions { person: "ada".into(), home: None };
        let site = Site::new(Box::new(Here(root.clone())), options).unwrap();
        let person = Secret::random().unwrap();
        let credentials = Credentials { person: person.clone(), tokens: None, agent: None };
        let bound = BoundServer::new("127.0.0.1:0".parse().unwrap(), [], credentials).unwrap();
        let (stop, address) = (bound.stop(), bound.address());
        let served = site.clone();
        let serving = Some(std::thread::spawn(move || bound.run(served)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let world = Self { here: Here(root), person, site, address, stop, serving, runtime, _keep: keep };
        // Wait until the server watches the folders and has read the ledger, so that the tests see no events of that.
        while !world.asks("/health").contains("\"state\":\"whole\"") {}
        world
    }

    fn asks(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(self.address).unwrap();
        let (host, token) = (self.address, self.person.reveal());
        let headers = format!("Host: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n");
        write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        text
    }

    fn subscribes(&self) -> Subscription {
        self.site.feed.subscribe()
    }

    #[track_caller]
    fn next(&self, events: &mut Subscription) -> FeedEvent {
        let next = self
            .runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(30), events.next()).await });
        next.expect("an event arrives").expect("the server keeps running")
    }

    #[track_caller]
    fn until(&self, events: &mut Subscription, mut wanted: impl FnMut(&FeedEvent) -> bool) {
        while !wanted(&self.next(events)) {}
    }

    fn appends(&self, count: u64) {
        let entry = Entry {
            time: Timestamp::now(),
            agent: Some("green".parse().unwrap()),
            turn: None,
            event: Event::TurnStarted(TurnMark {}),
        };
        let entries: Vec<Entry> = (0..count).map(|_| entry.clone()).collect();
        self.here.ledger().append(&entries, Durability::Fast).unwrap();
    }

    /// The names of the tasks that the board shows in a state.
    fn shown(&self, state: State) -> Vec<String> {
        let board = self.site.board().unwrap().unwrap();
        let mut names: Vec<String> = board.column(state).tasks().map(|task| task.name.to_string()).collect();
        assert_eq!(names.len(), board.column(state).len());
        names.sort();
        names
    }

    /// The names of the tasks in the folder of a state.
    fn on_disk(&self, state: State) -> Vec<String> {
        let scan = self.here.tasks().unwrap().store().scan(state, Timestamp::now()).unwrap();
        let mut names: Vec<String> = scan.tasks.iter().map(|task| task.name.to_string()).collect();
        names.sort();
        names
    }

    /// Waits until the board shows what is in the folders.
    #[track_caller]
    fn board_is_right(&self) {
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        for state in State::ALL {
            while self.shown(state) != self.on_disk(state) {
                assert!(std::time::Instant::now() < patience, "{state}: {:?}", self.shown(state));
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
        let served = self.serving.take().unwrap().join().unwrap();
        if !std::thread::panicking() {
            served.unwrap();
        }
    }
}

#[test]
fn the_feed_has_every_ledger_line_once_and_in_order() {
    let world = World::new();
    let mut events = world.subscribes();
    let mut seen = Vec::new();
    for (count, all) in [(1, 1), (3, 4), (7, 11)] {
        world.appends(count);
        while seen.len() < all {
            if let FeedEvent::Lines(lines) = world.next(&mut events) {
                seen.extend(lines.iter().map(|line| line.seq));
            }
        }
    }
    assert_eq!(seen, (1..=11).collect::<Vec<_>>());
    // If very many lines are added at once, the feed has only the newest.
    world.appends(5_000);
    let mut last = 11;
    world.until(&mut events, |event| {
        if let FeedEvent::Lines(lines) = event {
            assert!(lines.len() <= 256 && lines.is_sorted_by_key(|line| line.seq) && lines[0].seq > last);
            last = lines.last().unwrap().seq;
        }
        last == 5_011
    });
}

#[test]
fn reading_causes_no_events() {
    let world = World::new();
    world.here.tasks().unwrap().add(&"a".parse().unwrap(), b"# a\n", Timestamp::now()).unwrap();
    world.board_is_right();
    // In one burst the feed sends lines before the board. So the second line proves that the first burst, which includes
    // the new task, is over.
    let mut events = world.subscribes();
    for _ in 0..2 {
        world.appends(1);
        world.until(&mut events, |event| matches!(event, FeedEvent::Lines(_)));
    }
    let mut events = world.subscribes();
    for path in ["/", "/health", "/metrics"].repeat(5) {
        world.asks(path);
    }
    assert_eq!(fs::read_to_string(world.here.vault().join("Needs_Action/a.md")).unwrap(), "# a\n");
    // The next event is the first that a change caused.
    world
        .here
        .turns()
        .unwrap()
        .begin(TurnId::new().unwrap(), "green".parse().unwrap(), Timestamp::now(), Leaves::Nothing)
        .unwrap();
    assert!(matches!(world.next(&mut events), FeedEvent::Turns));
}

#[test]
fn changes_of_turns_and_tasks_are_in_the_feed() {
    let world = World::new();
    let mut events = world.subscribes();
    let turns = world.here.turns().unwrap();
    let turn = turns
        .begin(TurnId::new().unwrap(), "green".parse().unwrap(), Timestamp::now(), Leaves::Nothing)
        .unwrap();
    world.until(&mut events, |event| matches!(event, FeedEvent::Turns));
    world.here.tasks().unwrap().add(&"a".parse().unwrap(), b"# a\n", Timestamp::now()).unwrap();
    world.until(&mut events, |event| matches!(event, FeedEvent::Board));
    turns.end(turn).unwrap();
    world.until(&mut events, |event| matches!(event, FeedEvent::Turns));
    // The folder of this agent did not exist before.
    let asked = ClaimRequest { agent: "red".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
    world.here.tasks().unwrap().claim(&"a".parse().unwrap(), &asked, Timestamp::now()).unwrap().unwrap();
    world.until(&mut events, |event| matches!(event, FeedEvent::Board));
    world.board_is_right();
    let path = world.here.vault().join("In_Progress/red/a.md");
    fs::write(path.with_file_name("b.md"), "# by hand\n").unwrap();
    world.until(&mut events, |event| matches!(event, FeedEvent::Board));
    world.board_is_right();
}

#[test]
fn the_feed_ends_when_the_server_stops() {
    let world = World::new();
    let mut events = world.subscribes();
    world.stop.stop();
    // An event of the start may still arrive before the end.
    let end = async { while events.next().await.is_some() {} };
    let ended = world.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), end).await });
    ended.expect("the feed ends");
}

#[test]
fn the_board_always_shows_what_is_in_the_folders() {
    let world = World::new();
    let vault = world.here.tasks().unwrap();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    let folder = |state: State| world.here.vault().join(state.as_str());
    for round in 0..400 {
        let name = format!("t{}.md", roll(12));
        let task: TaskName = name.parse().unwrap();
        let now = Timestamp::now();
        let moves = |from: State, to: State| fs::rename(folder(from).join(&name), folder(to).join(&name));
        // Some steps fail. The folders are authoritative, and the board has to follow them.
        let _ = match roll(7) {
            0 => vault.add(&task, b"# x\n", now).is_ok(),
            1 => {
                let agent = ["red", "green"][usize::try_from(roll(2)).unwrap()].parse().unwrap();
                let asked = ClaimRequest { agent, kind: ClaimKind::Leased, renamed_in: true };
                match vault.claim(&task, &asked, now) {
                    Ok(Ok(claimed)) if roll(2) == 0 => {
                        vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now).is_ok()
                    }
                    claiming => claiming.is_ok(),
                }
            }
            // Changes by people, without tollgate.
            2 => fs::write(folder(State::NeedsAction).join(&name), "---\npriority: high\n---\n# y\n").is_ok(),
            3 => moves(State::NeedsAction, State::Approved).is_ok(),
            4 => moves(State::Approved, State::Rejected).is_ok(),
            5 => fs::remove_file(folder(State::Done).join(&name)).is_ok(),
            _ => fs::create_dir(folder(State::PendingApproval).join(&name)).is_ok(),
        };
        if round % 10 == 0 {
            world.board_is_right();
        }
    }
    world.board_is_right();
    // A whole folder disappears and comes back.
    fs::rename(folder(State::Approved), world.here.0.join("away")).unwrap();
    fs::rename(world.here.0.join("away"), folder(State::Approved)).unwrap();
    fs::write(folder(State::Approved).join("new.md"), "# new\n").unwrap();
    world.board_is_right();
    let board = world.site.board().unwrap().unwrap();
    let column = board.column(State::NeedsAction);
    let ranks: Vec<_> = column.tasks().map(|task| task.brief.as_ref().unwrap().rank(task.modified)).collect();
    assert!(ranks.is_sorted(), "in the order in which they are claimed");
    let oldest = column.tasks().map(|task| task.modified).min();
    assert_eq!(column.oldest().map(|(_, since)| since), oldest);
}

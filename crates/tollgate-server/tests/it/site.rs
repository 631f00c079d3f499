//! The site of a workspace: what is told, to whom, and when; and the board that is kept by it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tollgate::chronicle::Chronicle;
use tollgate::error::Result;
use tollgate::gate::Gate;
use tollgate::ledger::{ActionType, Entry, Flush, Ledger};
use tollgate::name::TurnId;
use tollgate::settings::Durability;
use tollgate::shared_turn::{Leaves, SharedTurns};
use tollgate::vault::folder::FolderOptions;
use tollgate::vault::state::State;
use tollgate::vault::{Asked, Claiming, FolderStore, Release, TaskName, Terms, Vault, Wish};
use tollgate::workspace::{Options, Workspace};
use tollgate_server::feed::{Happened, News};
use tollgate_server::serve::{Bound, Stop};
use tollgate_server::site::{Open, OpenVault, Premises, Site};

struct Here(PathBuf);

impl Here {
    fn workspace(&self) -> Result<Workspace> {
        Workspace::open(&self.0, Options::default())
    }

    fn ledger(&self) -> Ledger {
        self.workspace().unwrap().ledger().clone()
    }

    /// As another process would open it.
    fn tasks(&self) -> Result<Vault> {
        let options = FolderOptions {
            durability: Durability::Fast,
            settle: Duration::ZERO,
            journal: Arc::new(Chronicle::new(self.ledger(), "test".into(), Durability::Fast)),
            quiet: None,
        };
        Ok(Vault::new(Arc::new(FolderStore::open(&self.vault(), options)?), Terms::default()))
    }

    fn turns(&self) -> Result<SharedTurns> {
        SharedTurns::new(self.0.join("turns"))
    }
}

impl Premises for Here {
    fn root(&self) -> &Path {
        &self.0
    }

    fn vault(&self) -> PathBuf {
        self.0.join("vault")
    }

    fn open(&self) -> Result<Option<Open>> {
        let vault = OpenVault { vault: self.tasks()?, folder: self.vault() };
        let turns = vec![self.turns()?];
        Ok(Some(Open { gate: Gate::new(self.workspace()?), vault: Some(vault), turns }))
    }
}

/// A site that is served.
struct World {
    here: Here,
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
        let site = Site::new(Box::new(Here(root.clone())), "blue".parse().unwrap(), "ada".into()).unwrap();
        let bound = Bound::new("127.0.0.1:0".parse().unwrap(), [], None).unwrap();
        let (stop, address) = (bound.stop(), bound.address());
        let served = site.clone();
        let serving = Some(std::thread::spawn(move || bound.run(served)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let world = Self { here: Here(root), site, address, stop, serving, runtime, _keep: keep };
        // It serves, so it watches; it has read the ledger, so nothing more is told of that.
        while !world.asks("/health").contains("\"state\":\"whole\"") {}
        world
    }

    fn asks(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        text
    }

    fn news(&self) -> News {
        self.site.feed.subscribe()
    }

    #[track_caller]
    fn next(&self, news: &mut News) -> Happened {
        let next =
            self.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), news.next()).await });
        next.expect("something happens").expect("the server goes on")
    }

    #[track_caller]
    fn until(&self, news: &mut News, mut wanted: impl FnMut(&Happened) -> bool) {
        while !wanted(&self.next(news)) {}
    }

    fn appends(&self, count: u64) {
        let entry = Entry {
            time: Timestamp::now(),
            agent: Some("green".parse().unwrap()),
            turn: None,
            action_type: ActionType::Mutation,
            payload: json!({"target_file": "a"}),
            result: json!({"status": "APPLIED"}),
        };
        let entries: Vec<Entry> = (0..count).map(|_| entry.clone()).collect();
        self.here.ledger().append(&entries, Flush::No).unwrap();
    }

    /// What the board shows of a state, by name.
    fn shown(&self, state: State) -> Vec<String> {
        let board = self.site.board().unwrap().unwrap();
        let mut names: Vec<String> = board.column(state).tasks().map(|task| task.task.to_string()).collect();
        assert_eq!(names.len(), board.column(state).len());
        names.sort();
        names
    }

    fn lying(&self, state: State) -> Vec<String> {
        let scan = self.here.tasks().unwrap().list(state, Timestamp::now()).unwrap();
        let mut names: Vec<String> = scan.tasks.iter().map(|task| task.task.to_string()).collect();
        names.sort();
        names
    }

    /// The board comes to show what lies in the folders.
    #[track_caller]
    fn board_is_right(&self) {
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        for state in State::ALL {
            while self.shown(state) != self.lying(state) {
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
fn every_line_of_the_ledger_is_told_once_in_order() {
    let world = World::new();
    let mut news = world.news();
    let mut told = Vec::new();
    for (count, all) in [(1, 1), (3, 4), (7, 11)] {
        world.appends(count);
        while told.len() < all {
            if let Happened::Lines(lines) = world.next(&mut news) {
                told.extend(lines.iter().map(|line| line.seq));
            }
        }
    }
    assert_eq!(told, (1..=11).collect::<Vec<_>>());
    // Of very many, the newest.
    world.appends(5_000);
    let mut last = 11;
    world.until(&mut news, |happened| {
        if let Happened::Lines(lines) = happened {
            assert!(lines.len() <= 256 && lines.is_sorted_by_key(|line| line.seq) && lines[0].seq > last);
            last = lines.last().unwrap().seq;
        }
        last == 5_011
    });
}

#[test]
fn who_only_looks_wakes_nobody() {
    let world = World::new();
    world.here.tasks().unwrap().add(&"a".parse().unwrap(), b"# a\n").unwrap();
    world.board_is_right();
    // What the making of it has stirred up has been told by then.
    let mut news = world.news();
    world.appends(1);
    world.until(&mut news, |happened| matches!(happened, Happened::Lines(_)));
    let mut news = world.news();
    for path in ["/", "/health", "/metrics"].repeat(5) {
        world.asks(path);
    }
    assert_eq!(fs::read_to_string(world.here.vault().join("Needs_Action/a.md")).unwrap(), "# a\n");
    // The first that is told is the first that happened.
    world
        .here
        .turns()
        .unwrap()
        .begin(TurnId::new().unwrap(), "green".parse().unwrap(), Timestamp::now())
        .unwrap();
    assert!(matches!(world.next(&mut news), Happened::Turns));
}

#[test]
fn turns_and_tasks_are_told() {
    let world = World::new();
    let mut news = world.news();
    let turns = world.here.turns().unwrap();
    let turn = turns.begin(TurnId::new().unwrap(), "green".parse().unwrap(), Timestamp::now()).unwrap();
    world.until(&mut news, |happened| matches!(happened, Happened::Turns));
    world.here.tasks().unwrap().add(&"a".parse().unwrap(), b"# a\n").unwrap();
    world.until(&mut news, |happened| matches!(happened, Happened::Board));
    turns.end(turn, Leaves::Nothing).unwrap();
    world.until(&mut news, |happened| matches!(happened, Happened::Turns));
    // The folder of an agent that was never there before.
    let asked = Asked { agent: "red".parse().unwrap(), wish: Wish::Leased, renamed_in: true };
    world.here.tasks().unwrap().claim(&"a".parse().unwrap(), &asked, Timestamp::now()).unwrap();
    world.until(&mut news, |happened| matches!(happened, Happened::Board));
    world.board_is_right();
    let path = world.here.vault().join("In_Progress/red/a.md");
    fs::write(path.with_file_name("b.md"), "# by hand\n").unwrap();
    world.until(&mut news, |happened| matches!(happened, Happened::Board));
    world.board_is_right();
}

#[test]
fn the_end_of_the_server_is_the_end_of_the_news() {
    let world = World::new();
    let mut news = world.news();
    world.stop.stop();
    let next =
        world.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), news.next()).await });
    assert!(next.expect("it ends").is_none());
}

#[test]
fn the_board_shows_what_lies_in_the_folders_whatever_happens() {
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
        // What cannot be done is not done: the folders decide, and the board has to follow.
        let _ = match roll(7) {
            0 => vault.add(&task, b"# x\n").is_ok(),
            1 => {
                let agent = ["red", "green"][usize::try_from(roll(2)).unwrap()].parse().unwrap();
                let asked = Asked { agent, wish: Wish::Leased, renamed_in: true };
                match vault.claim(&task, &asked, now) {
                    Ok(Claiming::Claimed(claimed)) if roll(2) == 0 => {
                        vault.release(&claimed.task, &claimed.claim.id, &Release::success(), now).is_ok()
                    }
                    claiming => claiming.is_ok(),
                }
            }
            // People, who know nothing of tollgate.
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
    // A whole folder that goes and comes back.
    fs::rename(folder(State::Approved), world.here.0.join("away")).unwrap();
    fs::rename(world.here.0.join("away"), folder(State::Approved)).unwrap();
    fs::write(folder(State::Approved).join("new.md"), "# new\n").unwrap();
    world.board_is_right();
    let board = world.site.board().unwrap().unwrap();
    let column = board.column(State::NeedsAction);
    let ranks: Vec<_> = column.tasks().map(|task| task.brief.as_ref().unwrap().rank(task.modified)).collect();
    assert!(ranks.is_sorted(), "as they will be taken");
    let oldest = column.tasks().map(|task| task.modified).min();
    assert_eq!(column.oldest().map(|(_, since)| since), oldest);
}

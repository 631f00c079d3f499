//! A small world for tests that read like stories: a workspace, agents, and outsiders (programs unaware of tollgate).

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::digest::Digest;
use tollgate::edit::Edit;
use tollgate::gate::Gate;
use tollgate::guard::{Change, Expected, Outcome, Refused};
use tollgate::part::Part;
use tollgate::refusal::ErrorType;
use tollgate::settings::Settings;
use tollgate::turn::{Session, Turn};
use tollgate::workspace::{Options, Workspace};

pub(crate) struct World {
    keep: tempfile::TempDir,
    pub(crate) gate: Gate,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// A workspace with these settings. Nothing is flushed to disk, because no test here simulates a power failure.
    pub(crate) fn with(settings: &str) -> Self {
        let keep = tempfile::tempdir().unwrap();
        fs::create_dir(keep.path().join("w")).unwrap();
        let mut settings = parse(settings);
        settings.guard.durability = tollgate::settings::Durability::Fast;
        let gate = open(&keep.path().join("w"), settings);
        Self { keep, gate }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.gate.workspace().path().to_owned()
    }

    pub(crate) fn outside(&self) -> &Path {
        self.keep.path()
    }

    pub(crate) fn agent(&self, name: &str) -> Agent<'_> {
        self.agent_in(name, Session::default())
    }

    /// An agent in a turn of this session.
    pub(crate) fn agent_in(&self, name: &str, session: Session) -> Agent<'_> {
        let turn = self.gate.begin_turn_in(name.parse().unwrap(), session).unwrap();
        Agent { world: self, turn, last: RefCell::default() }
    }

    /// A program unaware of tollgate writes a file.
    pub(crate) fn outsider_writes(&self, path: &str, text: impl AsRef<[u8]>) {
        if let Some(folder) = self.root().join(path).parent() {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(self.root().join(path), text).unwrap();
    }

    pub(crate) fn outsider_removes(&self, path: &str) {
        fs::remove_file(self.root().join(path)).unwrap();
    }

    #[track_caller]
    pub(crate) fn holds(&self, path: &str, text: impl AsRef<[u8]>) {
        assert_eq!(
            String::from_utf8_lossy(&fs::read(self.root().join(path)).unwrap()),
            String::from_utf8_lossy(text.as_ref())
        );
    }

    /// The ledger, oldest line first.
    pub(crate) fn ledger(&self) -> Vec<Value> {
        let mut lines = Vec::new();
        self.gate.workspace().ledger().follow().advance(usize::MAX, |line| lines.push(line.json())).unwrap();
        lines
    }

    pub(crate) fn lines_of(&self, action_type: &str) -> Vec<Value> {
        self.ledger().into_iter().filter(|line| line["action_type"] == action_type).collect()
    }
}

pub(crate) fn parse(settings: &str) -> Settings {
    Settings::parse(settings, "config.toml".as_ref()).unwrap()
}

pub(crate) fn open(root: &Path, settings: Settings) -> Gate {
    Gate::new(Workspace::open(root, Options { settings: Some(settings), ..Options::default() }).unwrap())
}

pub(crate) struct Agent<'w> {
    pub(crate) world: &'w World,
    pub(crate) turn: Turn,
    last: RefCell<Option<Refused>>,
}

impl Agent<'_> {
    #[track_caller]
    pub(crate) fn reads(&self, path: &str) -> &Self {
        self.read(path, Part::Whole);
        self
    }

    #[track_caller]
    pub(crate) fn reads_line(&self, path: &str, line: usize) -> &Self {
        self.read(path, Part::Lines { from: line, to: Some(line) });
        self
    }

    #[track_caller]
    pub(crate) fn read(&self, path: &str, part: Part) -> (Vec<u8>, Digest) {
        match self.world.gate.read(&self.turn, path, part).unwrap() {
            Outcome::Done(read) => (read.bytes, read.sha256),
            Outcome::Refused(refused) => panic!("{refused:?}"),
        }
    }

    /// Reads a file that does not exist.
    pub(crate) fn misses(&self, path: &str) -> &Self {
        assert!(self.world.gate.read(&self.turn, path, Part::Whole).is_err());
        self
    }

    fn answered<T>(&self, outcome: Outcome<T>) -> &Self {
        *self.last.borrow_mut() = match outcome {
            Outcome::Done(_) => None,
            Outcome::Refused(refused) => Some(refused),
        };
        self
    }

    pub(crate) fn writes(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        self.writes_expecting(path, text, Expected::Baseline)
    }

    pub(crate) fn writes_expecting(&self, path: &str, text: impl AsRef<[u8]>, expected: Expected) -> &Self {
        self.answered(self.world.gate.write(&self.turn, path, text.as_ref(), expected).unwrap())
    }

    pub(crate) fn creates(&self, path: &str, text: &str) -> &Self {
        self.answered(self.world.gate.create(&self.turn, path, text).unwrap())
    }

    pub(crate) fn edits(&self, path: &str, old: &str, new: &str) -> &Self {
        let edits = vec![Edit::once(old, new)];
        self.answered(self.world.gate.edit(&self.turn, path, edits, Expected::Baseline).unwrap())
    }

    pub(crate) fn deletes(&self, path: &str) -> &Self {
        self.answered(self.world.gate.delete(&self.turn, path, Expected::Baseline).unwrap())
    }

    pub(crate) fn moves(&self, path: &str, to: &str) -> &Self {
        self.answered(self.world.gate.move_file(&self.turn, path, to, Expected::Baseline).unwrap())
    }

    pub(crate) fn applies(&self, changes: Vec<Change>) -> &Self {
        self.answered(self.world.gate.apply(&self.turn, changes).unwrap())
    }

    #[track_caller]
    pub(crate) fn done(&self) -> &Self {
        assert_eq!(*self.last.borrow(), None);
        self
    }

    #[track_caller]
    pub(crate) fn refused(&self, error_type: ErrorType) -> Refused {
        let refused = self.last.borrow().clone().expect("a refusal");
        assert_eq!(refused.refusals()[0].error_type(), error_type);
        refused
    }

    #[track_caller]
    pub(crate) fn refused_stale(&self) -> Refused {
        self.refused(ErrorType::StaleFile)
    }
}

/// Runs a test as an ordinary user, because permissions do not stop root. If this is root, starts the test again as
/// another user.
pub(crate) fn as_ordinary_user(name: &str, test: impl FnOnce()) {
    use std::os::unix::fs::MetadataExt;
    // The owner of a new file is the user of this process.
    let root = tempfile::tempfile().unwrap().metadata().unwrap().uid() == 0;
    if !root {
        return test();
    }
    // Other users may have no access to the folder of the test binary.
    let copy = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let program = copy.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", name, "--nocapture"])
        .output()
        .expect("`setpriv` of util-linux");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

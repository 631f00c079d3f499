//! A workspace in which several processes work at the same time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;

use serde_json::Value;
use tollgate::workspace::Workspace;
use tollgate_testing::until_true;

use crate::scene::open;
use crate::strace::{IN_PROCESS, TRIAL, folder, spawn};

/// The file system for trials with outsiders.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Disk {
    /// The file system of the checkout.
    Checkout,
    /// `/dev/shm`
    Memory,
}

pub(crate) struct Crew {
    keep: tempfile::TempDir,
}

impl Crew {
    /// A workspace with these files. `None`, with a message, if the file system does not exist.
    pub(crate) fn on(disk: Disk, config: &str, files: &[&str]) -> Option<Self> {
        let keep = match disk {
            Disk::Checkout => folder(),
            Disk::Memory => match tempfile::tempdir_in("/dev/shm") {
                Ok(folder) => folder,
                Err(error) => {
                    println!("skipped: the trials in memory need `/dev/shm`: {error}");
                    return None;
                }
            },
        };
        let crew = Self { keep };
        fs::create_dir(crew.root()).unwrap();
        for file in files {
            fs::create_dir(crew.beside(&format!("pile-{file}"))).unwrap();
        }
        for file in files {
            fs::write(crew.root().join(file), "start\n").unwrap();
        }
        // Creates the state.
        crew.workspace(|_| ());
        fs::write(crew.root().join(".tollgate/config.toml"), config).unwrap();
        Some(crew)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.keep.path().join("w")
    }

    /// A path outside the workspace, for logs and signals.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    /// Opens the workspace in this process.
    pub(crate) fn workspace<T>(&self, look: impl FnOnce(&Workspace) -> T) -> T {
        let _no_children = IN_PROCESS.read().unwrap_or_else(PoisonError::into_inner);
        look(&open(&self.root()))
    }

    /// Starts an actor. Paths that begin with `%` are beside the workspace.
    pub(crate) fn start(&self, actor: &str, arguments: &[&str]) -> Actor {
        let mut command = Command::new(TRIAL);
        command.arg(actor);
        if actor != "outsider" {
            command.arg("--root").arg(self.root());
        }
        for argument in arguments {
            match argument.strip_prefix('%') {
                Some(name) => command.arg(self.beside(name)),
                None => command.arg(argument),
            };
        }
        Actor(spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())))
    }

    /// Starts an outsider on this file.
    pub(crate) fn start_outsider(&self, kind: &str, file: &str, arguments: &[&str]) -> Actor {
        let (path, log, pile) = (self.root().join(file), format!("%log-{file}"), format!("%pile-{file}"));
        let own = ["--kind", kind, "--path", path.to_str().unwrap(), "--log", &log, "--pile", &pile];
        self.start("outsider", &[&own, arguments].concat())
    }

    /// Waits until a signal file exists.
    pub(crate) fn wait_for(&self, sign: &str) {
        until_true(sign, || self.beside(sign).exists());
    }

    /// All bytes that tollgate keeps, and those that the outsider itself replaced.
    pub(crate) fn kept(&self, file: &str) -> Vec<Vec<u8>> {
        fn walk(folder: &Path, kept: &mut Vec<Vec<u8>>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, kept) } else { kept.push(fs::read(path).unwrap()) }
            }
        }
        let mut kept = Vec::new();
        walk(&self.beside(&format!("pile-{file}")), &mut kept);
        for folder in ["stage", "history"] {
            walk(&self.root().join(".tollgate").join(folder), &mut kept);
        }
        kept
    }
}

/// A process of the crew.
pub(crate) struct Actor(Child);

impl Actor {
    /// kill -9
    pub(crate) fn dies(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until the process ends, which must succeed, and returns its answer.
    #[track_caller]
    pub(crate) fn ends(self) -> Value {
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

//! The engines that this machine has, started by the same scripts with which people try them.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::StoreKind;

pub(crate) struct Engines {
    running: Vec<Child>,
    /// Where the tasks of workers can be, and the settings for it, with `{}` for the name of the round.
    pub(crate) stores: Vec<(&'static str, &'static str)>,
    pub(crate) skipped: Vec<String>,
}

/// The script, the port that answers when the engine is ready, and the settings of a vault in it.
const ENGINES: [(StoreKind, &str, &str, &str, &str); 2] = [
    (
        StoreKind::Etcd,
        "etcd",
        "try-etcd",
        "127.0.0.1:23793",
        "store = \"etcd://127.0.0.1:23793,127.0.0.1:23794,127.0.0.1:23795/{}\"",
    ),
    (
        StoreKind::Postgres,
        "postgres",
        "try-postgres",
        "127.0.0.1:54329",
        "store = \"postgres://postgres@127.0.0.1:54329/postgres?schema={}&sslmode=disable\"",
    ),
];

/// The longest time until an engine answers.
const PATIENCE: Duration = Duration::from_secs(20);

impl Engines {
    pub(crate) fn start(wanted: &[StoreKind]) -> Self {
        let mut engines = Self { running: Vec::new(), stores: Vec::new(), skipped: Vec::new() };
        if wanted.contains(&StoreKind::Folder) {
            engines.stores.push(("folder", ""));
        }
        if wanted.contains(&StoreKind::Git) {
            match Command::new("git").arg("--version").stdout(Stdio::null()).status() {
                Ok(_) => engines.stores.push(("git", "sync = \"git\"")),
                Err(error) => engines.skipped.push(format!("tasks over git: cannot run `git`: {error}")),
            }
        }
        for (kind, name, script, address, settings) in ENGINES {
            if !wanted.contains(&kind) {
                continue;
            }
            match engines.start_one(script, address) {
                Ok(()) => engines.stores.push((name, settings)),
                Err(why) => engines.skipped.push(format!("tasks in {name}: {why}")),
            }
        }
        engines
    }

    fn start_one(&mut self, script: &str, address: &str) -> Result<(), String> {
        if TcpStream::connect(address).is_ok() {
            return Err(format!("another program uses {address}"));
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
        let mut command = Command::new("bash");
        command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| format!("cannot run `{}`: {error}", path.display()))?;
        let end = Instant::now() + PATIENCE;
        loop {
            if TcpStream::connect(address).is_ok() {
                self.running.push(child);
                // The port answers a moment before the engine does.
                std::thread::sleep(Duration::from_secs(1));
                return Ok(());
            }
            if child.try_wait().ok().flatten().is_some() {
                return Err(format!("`scripts/{script}` ended: is it installed?"));
            }
            if Instant::now() > end {
                stop(&mut child);
                return Err(format!("nothing answers at {address}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        self.running.iter_mut().for_each(stop);
    }
}

/// The script stops its engine and deletes its data.
fn stop(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let _ = child.wait();
}

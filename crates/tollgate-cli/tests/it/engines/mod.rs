//! Several machines and an engine, as whole programs: stories and campaigns, on each engine.

mod campaign;
mod check;
mod etcd;
mod postgres;
mod proxy;
mod stories;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::proxy::{Cut, Proxy};
use crate::world::World;

/// Makes the clock of a program wrong, but not its monotonic clock.
pub(crate) const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Faults of an engine: the name of each, and a function that says whether it did happen.
type Faults<E> = &'static [(&'static str, fn(&mut E) -> bool)];

/// An engine on servers of its own, with tasks at one address.
trait Engine: Sized + 'static {
    /// The ports of its servers.
    fn ports(&self) -> Vec<u16>;

    /// The address of the tasks, if the servers are at these ports.
    fn url_at(&self, ports: &[u16]) -> String;

    /// The address of the tasks.
    fn url(&self) -> String {
        self.url_at(&self.ports())
    }

    /// All events, in their order, read without tollgate.
    fn events(&self) -> Vec<Value>;

    /// The files with what its servers print, if it keeps any.
    fn log_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What can happen to it while it is whole.
    const FAULTS: Faults<Self>;

    /// Ends every fault. Then the engine takes writes.
    fn recover(&mut self);
}

/// A machine: a workspace of its own, whose tasks are at this address.
pub(crate) fn machine(url: &str, lease: &str) -> World {
    let world = World::new();
    let vault = format!("[vault]\nstore = \"{url}\"\nlease = \"{lease}\"\nmax_attempts = 1000\nretry = []\n");
    world.puts(".tollgate/config.toml", format!("{vault}[work]\nbreaker = 0\n[log]\ndir = \"log\"\n"));
    world
}

/// The ways of one machine to all servers of an engine.
struct Ways {
    proxies: Vec<Proxy>,
    /// The address of the tasks through these ways.
    url: String,
}

impl Ways {
    fn to(engine: &impl Engine) -> Self {
        Self::by(engine, Proxy::to)
    }

    /// Each way is made like this.
    fn by(engine: &impl Engine, way: fn(u16) -> Proxy) -> Self {
        let proxies: Vec<_> = engine.ports().into_iter().map(way).collect();
        let ports: Vec<_> = proxies.iter().map(|way| way.port).collect();
        Self { url: engine.url_at(&ports), proxies }
    }

    fn cut(&self, is_cut: bool) {
        let cut = || if is_cut { Cut::Everybody } else { Cut::Nobody };
        self.proxies.iter().for_each(|way| way.cut(cut()));
    }
}

pub(crate) fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

//! `tollgate serve`: the dashboard, figures for monitoring, and MCP over HTTP, for one workspace.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::workspace::{STATE_FOLDER, read_settings};
use tollgate_server::serve::Bound;
use tollgate_server::site::{Open, OpenVault, Premises, Site};

use crate::answer::{Answer, Form, Stop, json_line};
use crate::door::Door;
use crate::tasks::{is_vault, vault_folder};
use crate::words;

/// Serve the dashboard of this workspace, its figures, and MCP for agents
///
/// `/` is the dashboard, where people see what agents do and decide what waits for them. `/health` and `/metrics` are for
/// monitoring. `/mcp` is for agents, who write as --agent.
///
/// It listens on this machine only. Any other address needs a token, and so does whoever comes in. In a folder that was
/// never set up it makes nothing; it says how to, and begins when that is done. SIGINT or SIGTERM ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate serve
  tollgate serve --listen 127.0.0.1:0 --json
  TOLLGATE_TOKEN=$(openssl rand -hex 16) tollgate serve --listen 0.0.0.0:7311 --name box.local")]
pub(crate) struct Wish {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7311")]
    listen: SocketAddr,
    /// What visitors must show [default: TOLLGATE_TOKEN, which other users cannot see in the list of processes]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// A name that visitors may call this machine by, besides `localhost` and its address
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let token = wish.token.clone().map_or_else(|| door.token(), |token| Ok(Some(token)))?;
    if token.is_none() && !wish.listen.ip().is_loopback() {
        return Err(words::token_needed());
    }
    let here = Here::new(door)?;
    let root = here.root.clone();
    // Only people decide, also on pages.
    let person = door.inside_an_agent().is_none().then(|| door.person());
    let bound = Bound::new(wish.listen, wish.names.clone(), token)?;
    let url = format!("http://{}/", bound.address());
    let site = Site::new(Box::new(here), door.agent()?, person)?;
    let is_set_up = !matches!(site.open(), Ok(None));
    match door.form() {
        Form::Words => words::say(&words::serving(door, &url, &root, is_set_up))?,
        Form::Json => {
            let said = json!({"url": url, "workspace": root.to_string_lossy(), "set_up": is_set_up});
            words::say(&json_line(&said))?;
        }
    }
    stop_on_signals(&bound)?;
    bound.run(site)?;
    Ok(Answer::Streamed)
}

/// The first signal lets the server finish; it is waited for no longer than a few seconds.
fn stop_on_signals(bound: &Bound) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|source| Fault::Io {
        doing: "wait for",
        path: "signals".into(),
        source,
    })?;
    let stop = bound.stop();
    thread::spawn(move || {
        for _ in signals.forever() {
            stop.stop();
        }
    });
    Ok(())
}

/// The workspace that this process was called for.
struct Here {
    door: Door,
    root: PathBuf,
}

impl Here {
    fn new(door: &Door) -> Result<Self> {
        let root = door.root()?.0;
        Ok(Self { door: door.elsewhere(&root), root })
    }
}

impl Premises for Here {
    fn root(&self) -> &Path {
        &self.root
    }

    fn vault(&self) -> PathBuf {
        let settings = read_settings(&self.root.join(STATE_FOLDER).join("config.toml")).unwrap_or_default();
        vault_folder(&self.root, &settings)
    }

    fn open(&self) -> Result<Option<Open>> {
        let state = self.root.join(STATE_FOLDER);
        if !state.join("version").exists() && !state.join("config.toml").exists() {
            return Ok(None);
        }
        let workspace = self.door.workspace()?;
        let folder = vault_folder(&self.root, workspace.settings());
        let vault = match is_vault(&folder) {
            true => {
                let tasks = self.door.open_vault(&workspace, &folder)?;
                Some(OpenVault { vault: tasks.vault, folder: tasks.folder })
            }
            false => None,
        };
        // Made if there is none, because it can only be watched if it is there.
        self.door.new_turns()?;
        Ok(Some(Open { gate: Gate::new(workspace), vault, turns: self.door.existing_turns()? }))
    }
}

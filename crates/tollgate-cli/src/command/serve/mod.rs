//! `tollgate serve`: the dashboard, figures for monitoring, and MCP over HTTP, for one workspace.

mod demo;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::thread;

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::workspace::{STATE_FOLDER, read_settings};
use tollgate_server::serve::Bound;
use tollgate_server::site::{Open, OpenVault, Premises, Site};

use self::demo::Demo;
use crate::answer::{Answer, Form, Stop, json_line};
use crate::door::Door;
use crate::tasks::{has_vault, tasks_folder, vault_folder};
use crate::words;

/// Serve the dashboard of this workspace, its figures, and MCP for agents
///
/// `/` is the dashboard, where people see what agents do and decide what waits for them. `/health` and `/metrics` are for
/// monitoring. `/mcp` is for agents, who write as --agent.
///
/// It listens on this machine only. Any other address needs a token, and so does whoever comes in. In a folder that was
/// never set up it makes nothing; it says how to, and begins when that is done. SIGINT or SIGTERM ends it.
///
/// With --demo three agents and an outsider work in a temporary workspace, which is removed at the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate serve --demo
  tollgate serve
  tollgate serve --listen 127.0.0.1:0 --json
  TOLLGATE_TOKEN=$(openssl rand -hex 16) tollgate serve --listen 0.0.0.0:7311 --name box.local")]
pub(crate) struct Wish {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7311", value_parser = address)]
    listen: SocketAddr,
    /// What visitors must show [default: TOLLGATE_TOKEN, which other users cannot see in the list of processes]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// A name that visitors may call this machine by, besides `localhost` and its address
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// Let three agents and an outsider work in a temporary workspace, and serve that
    #[arg(long, conflicts_with = "workspace")]
    demo: bool,
}

/// Numbers only: which addresses a name stands for is not ours to choose.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give an address and a port, as in 127.0.0.1:7311 or [::1]:7311".to_owned())
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    if let Some(agent) = door.inside_an_agent() {
        // On its pages people decide.
        return Err(words::agents_do_not_serve(&agent));
    }
    let token = wish.token.clone().map_or_else(|| door.token(), |token| Ok(Some(token)))?;
    if token.as_ref().is_none_or(String::is_empty) && !wish.listen.ip().is_loopback() {
        return Err(words::token_needed());
    }
    // Before anything is made, so that a port that is taken leaves nothing behind.
    let bound = Bound::new(wish.listen, wish.names.clone(), token)?;
    // And before there is something to remove.
    stop_on_signals(&bound, wish.demo)?;
    let mut demo = wish.demo.then(Demo::new).transpose()?;
    let here = match &demo {
        Some(demo) => Here::new(demo.door(None))?,
        None => Here::new(door.elsewhere(&door.root()?.0))?,
    };
    let root = here.root.clone();
    let url = format!("http://{}/", bound.address());
    let site = Site::new(Box::new(here), door.agent()?, door.person())?;
    let is_set_up = !matches!(site.open(), Ok(None));
    match door.form() {
        Form::Words => words::say(&words::serving(door, &url, &root, is_set_up, wish.demo))?,
        Form::Json => {
            let said = json!({"url": url, "workspace": root.to_string_lossy(), "set_up": is_set_up});
            words::say(&json_line(&said))?;
        }
    }
    if let Some(demo) = &mut demo {
        demo.starts()?;
    }
    bound.run(site)?;
    Ok(Answer::Streamed)
}

/// The first signal lets the server finish; it is waited for no longer than a few seconds.
fn stop_on_signals(bound: &Bound, demo: bool) -> Result<()> {
    // A demo has something to remove also when its terminal is closed; a server may have been told to live on.
    let wanted: &[i32] = if demo { &[SIGINT, SIGTERM, SIGHUP] } else { &[SIGINT, SIGTERM] };
    let mut signals = Signals::new(wanted).map_err(|source| Fault::Io {
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
    /// Begun once, however often the workspace is opened.
    in_touch: Once,
}

impl Here {
    fn new(door: Door) -> Result<Self> {
        let root = door.root()?.0;
        Ok(Self { door, root, in_touch: Once::new() })
    }
}

impl Premises for Here {
    fn root(&self) -> &Path {
        &self.root
    }

    fn vault(&self) -> PathBuf {
        let settings = read_settings(&self.root.join(STATE_FOLDER).join("config.toml")).unwrap_or_default();
        tasks_folder(&vault_folder(&self.root, &settings), &settings)
    }

    fn open(&self) -> Result<Option<Open>> {
        let state = self.root.join(STATE_FOLDER);
        if !state.join("version").exists() && !state.join("config.toml").exists() {
            return Ok(None);
        }
        let workspace = self.door.workspace()?;
        let folder = vault_folder(&self.root, workspace.settings());
        let vault = if has_vault(&folder, workspace.settings()) {
            let tasks = self.door.open_vault(&workspace, &folder)?;
            self.in_touch.call_once(|| tasks.keep_in_touch());
            Some(OpenVault { vault: tasks.vault, folder: tasks.folder })
        } else {
            None
        };
        // Made if there is none, because it can only be watched if it is there.
        self.door.new_turns()?;
        Ok(Some(Open { gate: Gate::new(workspace), vault, turns: self.door.existing_turns()? }))
    }
}

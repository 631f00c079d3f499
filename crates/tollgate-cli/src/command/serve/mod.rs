//! `tollgate serve`: serves the dashboard, figures for monitoring, and MCP over HTTP, for one workspace.

mod demo;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tollgate::error::{At, Fault, Result};
use tollgate::gate::Gate;
use tollgate::name::Agent;
use tollgate::tasks::VaultHome;
use tollgate::vault::view::Maintainer;
use tollgate::workspace::{STATE_FOLDER, read_settings};
use tollgate_server::access::Credentials;
use tollgate_server::notices::NoticeTarget;
use tollgate_server::secret::Secret;
use tollgate_server::serve::BoundServer;
use tollgate_server::site::{Site, SiteOptions};
use tollgate_server::workspace_provider::{OpenWorkspace, WorkspaceProvider};

use self::demo::Demo;
use crate::answer::{Answer, Form, json_line};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::surroundings::Surroundings;
use crate::trust::TrustedNotify;
use crate::words;

/// Serve the dashboard of this workspace, figures for monitoring, and MCP for agents
///
/// `/` is the dashboard, where people see what agents do, and approve and reject tasks. The printed address contains a
/// secret: open it once, and the browser is logged in. `/health` and `/metrics` are for monitoring. `/mcp` is for agents, each
/// with its own token from `tollgate token add`; the token's name is the agent's name. With --agent, the server also makes a
/// token for this agent, prints it, and accepts it while it runs.
///
/// By default it listens on this machine only. For any other address you must choose the secret yourself. In a folder without
/// tollgate it creates nothing; it says how to set the folder up, and starts working once that is done. SIGINT or SIGTERM
/// stops it.
///
/// With --demo, four agents and an editor without tollgate work in a temporary workspace, which is deleted at the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate serve --demo
  tollgate serve
  tollgate serve --listen 127.0.0.1:0 --json
  TOLLGATE_TOKEN=$(openssl rand -hex 16) tollgate serve --listen 0.0.0.0:7311 --name box.local")]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7311", value_parser = address)]
    listen: SocketAddr,
    /// The person's secret, at least 22 characters [default: TOLLGATE_TOKEN, which other users cannot see in the process
    /// list; else a new one]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Host name of this machine that visitors may use, besides `localhost` and its address
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// Serve a temporary workspace in which four agents and an editor work
    #[arg(long, conflicts_with = "workspace")]
    demo: bool,
}

/// Only numeric addresses, because a host name may have several addresses.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give an address and a port, as in 127.0.0.1:7311 or [::1]:7311".to_owned())
}

pub(crate) fn run(invocation: &Invocation, args: &ServeArgs) -> Result<Answer, CliError> {
    if invocation.inside_an_agent().is_some() {
        return Err(CliError::usage(
            "agents may not start the dashboard, because approvals are made there",
            "start it outside the agent, or unset `TOLLGATE_AGENT`",
        ));
    }
    let chosen = args.token.clone().map_or_else(|| invocation.token(), |token| Ok(Some(token)))?;
    let person = match chosen.filter(|token| !token.is_empty()) {
        Some(token) => Secret::chosen(token).map_err(|why| {
            CliError::usage(
                why.to_string(),
                "use the output of `openssl rand -hex 16`, or omit the token: `tollgate serve` then makes one",
            )
        })?,
        None if args.listen.ip().is_loopback() => Secret::random()?,
        None => {
            return Err(CliError::usage(
                "a server that other machines can reach needs a token",
                "set `TOLLGATE_TOKEN` to a long random text, or omit `--listen`",
            ));
        },
    };
    let own_token = |agent: &Agent| Ok::<_, Fault>((agent.clone(), Secret::random()?));
    let agent = invocation.named_agent().map(own_token).transpose()?;
    let tokens = if args.demo { None } else { invocation.token_file(&invocation.root()?.0)? };
    // First, so that nothing is left behind if the port is taken.
    let credentials = Credentials { person: person.clone(), tokens, agent: agent.clone() };
    let bound = BoundServer::new(args.listen, args.names.clone(), credentials)?;
    // Before the demo creates its folder, so that a signal always deletes it.
    stop_on_signals(&bound, args.demo)?;
    let mut demo = args.demo.then(Demo::new).transpose()?;
    let here = match &demo {
        Some(demo) => LocalWorkspace::new(demo.invocation(None))?,
        None => LocalWorkspace::new(invocation.elsewhere(&invocation.root()?.0))?,
    };
    let root = here.root.clone();
    let address = visited_at(bound.address(), args.names.first());
    let url = format!("http://{address}/?token={}", encode(person.reveal()));
    let mcp = agent.map(|(agent, secret)| (agent, format!("http://{address}/mcp"), secret));
    let options = SiteOptions { person: invocation.person(), home: Surroundings::home() };
    let site = Site::new(Box::new(here), options)?;
    let is_set_up = !matches!(site.open(), Ok(None));
    if !args.demo {
        match invocation.trust().notify(&root)? {
            TrustedNotify::None => {}
            TrustedNotify::Trusted(settings) => {
                let secret = invocation.surroundings().notify_secret.as_deref();
                site.tell(NoticeTarget::new(settings, secret)?)?;
            }
            TrustedNotify::Untrusted => output::tell(words::NOTIFY_NOT_TRUSTED),
        }
    }
    match invocation.form() {
        Form::Words => {
            let mut said = words::serving(&invocation.viewpoint(), &url, &root, is_set_up, args.demo);
            if let Some((agent, url, secret)) = &mcp {
                said += &words::agent_of_server(agent, url, secret.reveal());
            }
            output::say(&said)?;
        }
        Form::Json => {
            let mut said = json!({"url": url, "workspace": root.to_string_lossy(), "set_up": is_set_up});
            if let Some((agent, url, secret)) = &mcp {
                said["mcp"] = json!({"agent": agent, "url": url, "token": secret.reveal()});
            }
            output::say(&json_line(&said))?;
        }
    }
    if let Some(demo) = &mut demo {
        demo.starts()?;
    }
    bound.run(site)?;
    Ok(Answer::Streamed)
}

/// The host and the port to visit. An address that stands for all addresses cannot be visited itself.
fn visited_at(address: SocketAddr, name: Option<&String>) -> String {
    match (name, address.ip()) {
        (Some(name), ip) if ip.is_unspecified() => format!("{name}:{}", address.port()),
        (None, IpAddr::V4(ip)) if ip.is_unspecified() => format!("127.0.0.1:{}", address.port()),
        (None, IpAddr::V6(ip)) if ip.is_unspecified() => format!("[::1]:{}", address.port()),
        _ => address.to_string(),
    }
}

/// A secret for the query of an address: everything except letters, digits and `-._~` becomes `%XX`.
fn encode(secret: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    secret.bytes().map(encoded).collect()
}

/// A signal stops the server, which has a few seconds to finish open requests.
fn stop_on_signals(bound: &BoundServer, demo: bool) -> Result<()> {
    // SIGHUP means that the terminal was closed. A demo then deletes its folder; a server may have been started to survive.
    let wanted: &[i32] = if demo { &[SIGINT, SIGTERM, SIGHUP] } else { &[SIGINT, SIGTERM] };
    let mut signals = Signals::new(wanted).map_err(|source| Fault::Io {
        doing: "wait for",
        path: "signals".into(),
        source,
    })?;
    let stop = bound.stop();
    let listen = move || signals.forever().for_each(|_| stop.stop());
    thread::Builder::new().spawn(listen).at("start", "the thread that waits for signals")?;
    Ok(())
}

/// The workspace of this call.
struct LocalWorkspace {
    invocation: Invocation,
    root: PathBuf,
    /// The vault for which the background thread was started: once, however often the workspace is opened.
    in_touch: Mutex<Option<VaultHome>>,
    /// As long as this lives, the folders show the tasks of an engine.
    view: OnceLock<Maintainer>,
}

impl LocalWorkspace {
    fn new(invocation: Invocation) -> Result<Self> {
        let root = invocation.root()?.0;
        Ok(Self { invocation, root, in_touch: Mutex::default(), view: OnceLock::new() })
    }
}

impl WorkspaceProvider for LocalWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn vault(&self) -> PathBuf {
        let settings = read_settings(&self.root.join(STATE_FOLDER).join("config.toml")).unwrap_or_default();
        let own = VaultHome { root: self.root.clone(), settings };
        VaultHome::of(&own.root, &own.settings).unwrap_or(own).tasks_folder()
    }

    fn open(&self) -> Result<Option<OpenWorkspace>> {
        let state = self.root.join(STATE_FOLDER);
        if !state.join("version").exists() && !state.join("config.toml").exists() {
            return Ok(None);
        }
        let workspace = self.invocation.workspace()?;
        let tasks = self.invocation.tasks_of(&workspace)?;
        let home = VaultHome::of(workspace.path(), workspace.settings())?;
        let mut in_touch = self.in_touch.lock().unwrap_or_else(PoisonError::into_inner);
        if in_touch.as_ref().is_some_and(|known| !known.is_same_vault(&home)) {
            return Err(home.another_vault());
        }
        if let Some(tasks) = &tasks {
            if in_touch.is_none() {
                tasks.keep_in_touch()?;
                *in_touch = Some(home);
            }
            drop(in_touch);
            if self.view.get().is_none()
                && let Some(view) = tasks.keep_view()?
            {
                // A second one, by another thread at this moment, ends here.
                let _ = self.view.set(view);
            }
        }
        let vault = tasks.map(|tasks| tasks.vault.clone());
        // Creates the folder if it is missing, because only an existing folder can be watched.
        self.invocation.new_turns()?;
        Ok(Some(OpenWorkspace {
            gate: Gate::new(workspace),
            vault,
            turns: self.invocation.existing_turns()?,
        }))
    }

    fn gate_of(&self, agent: &Agent) -> Result<Gate> {
        Ok(Gate::new(self.invocation.workspace_of(Some(agent))?))
    }
}

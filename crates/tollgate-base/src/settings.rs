//! The settings in `.tollgate/config.toml`, with their defaults.
//!
//! This file does no I/O: text in, settings out. An unknown key is an error, because a misspelt setting must not be
//! ignored silently.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::durability::Durability;
use crate::error::{Fault, Result};
pub use crate::git_settings::{CommitRule, GitSettings};
pub use crate::guard_settings::{
    GuardMode, GuardSettings, HardLinks, Premises, ReadOnly, Unfinished, Unread,
};
pub use crate::history_settings::HistorySettings;
use crate::name::Agent;
pub use crate::notify_settings::{NoticeKind, NotifySettings};
pub use crate::store_choice::StoreChoice;
pub use crate::units::{Size, Wait};
pub use crate::vault_settings::{Agents, Sync, VaultSettings, VaultTree};

/// The latest version of the configuration that this program can read.
const CONFIG_VERSION: u32 = 1;

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The version of the file's format.
    pub version: Option<u32>,
    /// How files are guarded.
    pub guard: GuardSettings,
    /// What is kept of the past, and how long.
    pub history: HistorySettings,
    /// What agents may do with git.
    pub git: GitSettings,
    /// The ledger.
    pub ledger: LedgerSettings,
    /// The tasks.
    pub vault: VaultSettings,
    /// What stops a worker.
    pub work: WorkSettings,
    /// What each agent may do: `[agent.NAME]`.
    pub agent: BTreeMap<Agent, Role>,
    /// The agents' log files.
    pub log: LogSettings,
    /// The hooks of agent programs.
    pub hooks: HookSettings,
    /// How commands run.
    pub run: RunSettings,
    /// Whom to tell when something needs a person.
    pub notify: NotifySettings,
}

/// `[agent.X]`: what one agent may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Role {
    /// A word for people.
    pub role: Option<String>,
    /// Actions that the agent executes.
    pub allowed: Vec<String>,
    /// Actions that the agent drafts, for a person to approve.
    pub sensitive: Vec<String>,
}

/// `[ledger]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerSettings {
    /// Beyond this size, the ledger continues in a new file.
    pub max_size: Size,
}

impl Default for LedgerSettings {
    fn default() -> Self {
        Self { max_size: Size(64 << 20) }
    }
}

/// `[work]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkSettings {
    /// After this many quick failures in a row, a worker claims no more tasks for a while. 0: never.
    pub breaker: u32,
}

impl Default for WorkSettings {
    fn default() -> Self {
        // Two or three bad tasks in a row happen. Five mean that the command itself is broken.
        Self { breaker: 5 }
    }
}

/// `[hooks]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookSettings {
    /// Whether a write goes through that could not be checked.
    pub on_fault: OnFault,
    /// After this time, a write counts as one that could not be checked.
    pub deadline: Wait,
    /// Formatters by file extension. A command reads the file on standard input and prints it formatted. `{path}` stands
    /// for the file.
    pub formatters: BTreeMap<String, Vec<String>>,
}

impl Default for HookSettings {
    fn default() -> Self {
        Self {
            on_fault: OnFault::default(),
            // Shorter than the 10 seconds that agent programs wait for a hook.
            deadline: Wait(Duration::from_secs(8)),
            formatters: BTreeMap::new(),
        }
    }
}

/// `[run]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// What hooks do with shell commands.
    pub shell: ShellCommands,
    /// The agent programs whose commands are only parsed, whatever `shell` says.
    pub parse: Vec<String>,
}

impl RunSettings {
    /// Whether the shell commands of this agent program run through `tollgate run`.
    pub fn runs(&self, program: &str) -> bool {
        self.shell == ShellCommands::Transaction && !self.parse.iter().any(|parsed| parsed == program)
    }
}

/// What hooks do with the shell commands of agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShellCommands {
    /// They check what the text of a command says about files, before it runs.
    #[default]
    Parse,
    /// They also let each command run through `tollgate run`.
    Transaction,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// The folder of the logs, relative to the workspace. `None`: the user's state folder.
    pub dir: Option<PathBuf>,
    /// Beyond this size, a log continues in a new file.
    pub max_size: Size,
    /// The number of old files that are kept.
    pub keep: u32,
}

impl Default for LogSettings {
    fn default() -> Self {
        // About fifty thousand operations per file: weeks of a busy agent, and still quick to search.
        Self { dir: None, max_size: Size(10 << 20), keep: 5 }
    }
}

/// Whether a write goes through that could not be checked, because the state is damaged or the disk is too slow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFault {
    /// The write is blocked, and the agent is told why.
    #[default]
    Block,
    /// The write goes through.
    Allow,
}

impl Settings {
    /// The settings in the text of the file at this path.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct OnlyVersion {
            version: Option<u32>,
        }
        let invalid = |error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            Fault::ConfigLine { path: path.to_owned(), line, quoted: error.to_string() }
        };
        // The version first: with a later format, a message about an unknown key would be misleading.
        match toml::from_str::<OnlyVersion>(text).map_err(invalid)?.version {
            Some(found) if found > CONFIG_VERSION => {
                Err(Fault::NewerConfig { path: path.to_owned(), found, known: CONFIG_VERSION })
            }
            _ => {
                let settings: Self = toml::from_str(text).map_err(invalid)?;
                if settings.vault.sync == Sync::Git && matches!(settings.vault.store, StoreChoice::Engine(_))
                {
                    let what =
                        "`sync = \"git\"` and an engine in `store` exclude each other: delete one of them";
                    return Err(Fault::Config { path: path.to_owned(), what: what.to_owned() });
                }
                if settings.guard.protected.iter().any(|path| path.as_os_str().is_empty()) {
                    let what = "`protected` has an empty path, which would protect every file: delete it";
                    return Err(Fault::Config { path: path.to_owned(), what: what.to_owned() });
                }
                Ok(settings)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(text, Path::new("config.toml"))
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        assert_eq!(parse("").unwrap(), Settings::default());
        assert_eq!(Settings::default().guard.unread, Unread::Allow);
    }

    #[test]
    fn every_setting_is_read() {
        let text = r#"
            version = 1
            [guard]
            mode = "observe"
            unread = "known"
            premises = "refuse"
            durability = "fast"
            quiet_wait = "250ms"
            lock_wait = "3s"
            grace = "1m"
            reservation = "2h"
            hard_links = "detach"
            read_only = "replace"
            protected = ["secrets"]
            [history]
            max_age = "2d"
            max_size = "1GiB"
            prompts = true
            [ledger]
            max_size = "512KiB"
            [vault]
            dir = "tasks"
            tree = "../main"
            lease = "1h"
            settle = "500ms"
            max_attempts = 5
            retry = ["1s", "2m"]
            agents = "listed"
            durability = "fast"
            store = "git"
            sync = "git"
            remote = "team"
            branch = "tasks"
            claim_refs = "refs/heads/claims"
            remote_timeout = "5s"
            follow = false
            view = true
            approve_by_move = true
            [work]
            breaker = 7
            [agent.cloud]
            role = "cloud"
            allowed = ["summarize", "triage"]
            sensitive = ["send_email", "payment"]
            [hooks]
            on_fault = "allow"
            deadline = "2s"
            formatters = { rs = ["rustfmt"] }
            [notify]
            command = ["notify-send", "tollgate"]
            webhook = "https://example.org/hook"
            on = ["approval", "breaker"]
            refusals = 5
        "#;
        let settings = parse(text).unwrap();
        assert_eq!(settings.guard.mode, GuardMode::Observe);
        assert_eq!(settings.guard.unread, Unread::Known);
        assert_eq!(settings.guard.premises, Premises::Refuse);
        assert_eq!(settings.guard.durability, Durability::Fast);
        assert_eq!(settings.guard.quiet_wait.0, Duration::from_millis(250));
        assert_eq!(settings.guard.reservation.0, Duration::from_secs(7200));
        assert_eq!(settings.history.max_size.0, 1 << 30);
        assert!(settings.history.prompts && !Settings::default().history.prompts);
        assert_eq!(settings.ledger.max_size.0, 512 << 10);
        let vault = VaultSettings {
            dir: Some("tasks".into()),
            tree: VaultTree::At("../main".into()),
            lease: Wait(Duration::from_secs(3600)),
            settle: Wait(Duration::from_millis(500)),
            max_attempts: 5,
            retry: vec![Wait(Duration::from_secs(1)), Wait(Duration::from_secs(120))],
            agents: Agents::Listed,
            durability: Durability::Fast,
            store: StoreChoice::Git,
            sync: Sync::Git,
            remote: "team".into(),
            branch: "tasks".into(),
            claim_refs: "refs/heads/claims".into(),
            remote_timeout: Wait(Duration::from_secs(5)),
            offline: (),
            follow: false,
            view: true,
            approve_by_move: true,
        };
        assert_eq!(settings.vault, vault);
        assert_eq!(settings.work.breaker, 7);
        let cloud = &settings.agent[&"cloud".parse::<Agent>().unwrap()];
        assert_eq!(cloud.role.as_deref(), Some("cloud"));
        assert_eq!(cloud.allowed, ["summarize", "triage"]);
        assert_eq!(cloud.sensitive, ["send_email", "payment"]);
        assert_eq!(settings.hooks.on_fault, OnFault::Allow);
        assert_eq!(settings.hooks.formatters["rs"], ["rustfmt"]);
        let notify = NotifySettings {
            command: vec!["notify-send".into(), "tollgate".into()],
            webhook: Some("https://example.org/hook".into()),
            on: vec![NoticeKind::Approval, NoticeKind::Breaker],
            refusals: 5,
        };
        assert_eq!(settings.notify, notify);
        assert!(notify.is_set() && !Settings::default().notify.is_set());
    }

    #[test]
    fn errors_name_the_key_or_value_that_is_wrong() {
        for (text, word) in [
            ("[guard]\nmodus = 1", "modus"),
            ("[guard]\ngrace = \"2 parsecs\"", "2 parsecs"),
            ("[guard]\nprotected = [\"a\", \"\"]", "an empty path"),
            ("[guard]\ngrace = 2", "in quotes"),
            ("[history]\nmax_size = \"99999999999GiB\"", "not a size"),
            ("version = 2\nnew_key = 1", "has version 2"),
            ("not toml", "not toml"),
            ("[vault]\nlease = \"soon\"", "soon"),
            ("[vault]\nremote_timeout = \"499ms\"", "at least `500ms`"),
            ("[vault]\nsync = \"dropbox\"", "dropbox"),
            ("[vault]\nstore = \"dropbox\"", "dropbox"),
            ("[vault]\nstore = \"etcd://a:b@c:1/x\"", "TOLLGATE_STORE_PASSWORD"),
            ("[vault]\nsync = \"git\"\nstore = \"etcd://c:1/x\"", "exclude each other"),
            ("[agent.\"a/b\"]\nrole = \"x\"", "a/b"),
            ("[agent.blue]\nallow = []", "allow"),
            ("[notify]\non = [\"lunch\"]", "lunch"),
        ] {
            let error = match parse(text).unwrap_err() {
                Fault::ConfigLine { quoted, .. } => quoted,
                fault => fault.to_string(),
            };
            assert!(error.contains(word), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn what_others_read_about_an_error_does_not_quote_the_settings() {
        for text in [
            "[vault]\n\nstore = \"etcd://a:s3cret@c:1/x\"",
            "[vault]\n\ns3cret = 1",
            "[vault]\n\nstore = \"s3cret\"",
            "[vault]\n\nlease = \"s3cret",
            "[vault]\n\ns3cret\n",
            "[vault]\n\nstore = [\"s3cret\"]",
        ] {
            let fault = parse(text).unwrap_err();
            let words = "line 3 of `config.toml` is not TOML, or not a setting that tollgate knows";
            assert_eq!((fault.to_string().as_str(), fault.code()), (words, "CONFIG_INVALID"), "{text}");
        }
    }
}

//! The settings in `.tollgate/config.toml`, with their defaults.
//!
//! Pure: text in, settings out. A key that tollgate does not know is an error, because a misspelt setting that is
//! silently ignored is worse than none.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use crate::name::Agent;
use crate::vault::roles::Role;

/// The latest version of the configuration that this program knows.
pub const CONFIG_VERSION: u32 = 1;

/// Everything in the file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The version of the file's format.
    pub version: Option<u32>,
    /// How files are guarded.
    pub guard: GuardSettings,
    /// What is kept of replaced bytes.
    pub recovery: RecoverySettings,
    /// The ledger.
    pub ledger: LedgerSettings,
    /// The tasks.
    pub vault: VaultSettings,
    /// What each agent may do: `[agent.NAME]`.
    pub agent: BTreeMap<Agent, Role>,
    /// The log of each agent.
    pub log: LogSettings,
    /// The hooks of agent programs.
    pub hooks: HookSettings,
}

/// `[guard]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuardSettings {
    /// Whether refusals are enforced.
    pub mode: Mode,
    /// What happens to writes of files that the turn has not read.
    pub unread: Unread,
    /// Whether an acknowledged write survives a power cut.
    pub durability: Durability,
    /// How long a write waits for other programs to close the file.
    pub quiet_wait: Wait,
    /// How long a write waits for another guarded write of the same file.
    pub lock_wait: Wait,
    /// How long after a write the replaced file is looked at once more.
    pub grace: Wait,
    /// After what time a reservation between two hooks is void.
    pub reservation: Wait,
    /// What happens to writes of files with several names.
    pub hard_links: HardLinks,
    /// What happens to writes of read-only files.
    pub read_only: ReadOnly,
    /// More paths that agents must not change, relative to the workspace.
    pub protected: Vec<PathBuf>,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            unread: Unread::default(),
            durability: Durability::default(),
            // An editor holds a file open for a few milliseconds while it saves; a second covers a slow one.
            quiet_wait: Wait(Duration::from_secs(1)),
            // The longest guarded write is a large file on a slow disk.
            lock_wait: Wait(Duration::from_secs(10)),
            // A late writer has resolved the path and is about to open it: microseconds, unless it is stopped.
            grace: Wait(Duration::from_secs(2)),
            reservation: Wait(Duration::from_secs(600)),
            hard_links: HardLinks::default(),
            read_only: ReadOnly::default(),
            protected: Vec::new(),
        }
    }
}

/// `[recovery]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecoverySettings {
    /// How long replaced bytes are kept.
    pub max_age: Wait,
    /// How many bytes are kept in all.
    pub max_size: Size,
}

impl Default for RecoverySettings {
    fn default() -> Self {
        Self { max_age: Wait(Duration::from_secs(7 * 24 * 3600)), max_size: Size(256 << 20) }
    }
}

/// `[ledger]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerSettings {
    /// Past this size the ledger goes on in a new file.
    pub max_size: Size,
}

impl Default for LedgerSettings {
    fn default() -> Self {
        Self { max_size: Size(64 << 20) }
    }
}

/// `[vault]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VaultSettings {
    /// Where the tasks are, relative to the workspace.
    pub dir: PathBuf,
    /// How long a claim without a lock lasts.
    pub lease: Wait,
    /// A file that was not renamed into place is complete when it has not changed for so long.
    pub settle: Wait,
    /// After so many attempts a task is rejected.
    pub max_attempts: u32,
    /// Whether what was answered survives a power cut.
    pub durability: Durability,
    /// Whether several machines work on these tasks, and how they agree.
    pub sync: Sync,
    /// With git: the name of the remote.
    pub remote: String,
    /// With git: the branch that the tasks are on.
    pub branch: String,
    /// With git: how the refs of the claims begin.
    pub claim_refs: String,
    /// With git: how long the remote may take for one answer.
    pub remote_timeout: Wait,
    /// With git: what happens when the remote cannot be reached.
    pub offline: Offline,
    /// With git: whether the working tree follows the branch.
    pub follow: bool,
}

impl Default for VaultSettings {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("vault"),
            // Longer than a slow model's longest thought, short enough that a person still waits for it.
            lease: Wait(Duration::from_secs(30 * 60)),
            // Editors and `cp` write in one go; what has been still for two seconds is not being written.
            settle: Wait(Duration::from_secs(2)),
            max_attempts: 3,
            durability: Durability::default(),
            sync: Sync::default(),
            remote: "origin".into(),
            branch: "main".into(),
            claim_refs: "refs/tollgate/claims".into(),
            // A slow line and a slow hook on the server; what takes longer is not slow, it hangs.
            remote_timeout: Wait(Duration::from_secs(30)),
            offline: Offline::default(),
            follow: true,
        }
    }
}

/// `[hooks]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookSettings {
    /// What happens to a write that could not be judged.
    pub on_fault: OnFault,
    /// After what time a write counts as one that could not be judged.
    pub deadline: Wait,
    /// Commands that format a file of this ending from standard input to standard output. `{path}` stands for the file.
    pub formatters: BTreeMap<String, Vec<String>>,
}

impl Default for HookSettings {
    fn default() -> Self {
        Self {
            on_fault: OnFault::default(),
            // Shorter than the 10 seconds for which agent programs are told to wait.
            deadline: Wait(Duration::from_secs(8)),
            formatters: BTreeMap::new(),
        }
    }
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Where the logs are, relative to the workspace; `None`: in the user's state folder.
    pub dir: Option<PathBuf>,
    /// Past this size a log goes on in a new file.
    pub max_size: Size,
    /// So many old files are kept.
    pub keep: u32,
}

impl Default for LogSettings {
    fn default() -> Self {
        // Some fifty thousand operations a file: weeks of a busy agent, and still quick to search.
        Self { dir: None, max_size: Size(10 << 20), keep: 5 }
    }
}

/// How machines agree on who works on what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    /// There is one machine.
    #[default]
    None,
    /// By a git remote.
    Git,
}

/// What happens when the remote cannot be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Offline {
    /// Nothing is claimed.
    #[default]
    Refuse,
    /// Tasks are claimed all the same, at the risk that another machine does them too.
    Allow,
}

/// What happens to a write that could not be judged, because the state is broken or the disk too slow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFault {
    /// It is not made, and the agent is told why.
    #[default]
    Block,
    /// It goes through.
    Allow,
}

/// Whether refusals are enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// What is stale is refused.
    #[default]
    Enforce,
    /// What would be refused is written to the ledger and goes through.
    Observe,
    /// Nothing is compared.
    Off,
}

/// What happens to writes of files that the turn has not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unread {
    /// They go through.
    #[default]
    Allow,
    /// They are compared with what earlier turns of the session knew, and go through if those knew nothing.
    Known,
    /// They are refused, unless they create the file.
    Refuse,
}

/// Whether an acknowledged write survives a power cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// It does: data and folders are flushed before the answer.
    #[default]
    Durable,
    /// It survives the end of the process, not of the machine.
    Fast,
}

/// What happens to writes of files with several names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HardLinks {
    /// They are refused.
    #[default]
    Refuse,
    /// The name that is written gets a file of its own; the others keep the old one.
    Detach,
}

/// What happens to writes of read-only files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadOnly {
    /// They are refused.
    #[default]
    Refuse,
    /// They are replaced by a read-only file with the new bytes.
    Replace,
}

/// A length of time, written as `2s`, `10m`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait(pub Duration);

/// A number of bytes, written as `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number and its unit, taken apart: `64 MiB` is `(64, "MiB")`.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim()))
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = number_and_unit(text).and_then(|(number, unit)| {
            let unit_ms = match unit {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            number.checked_mul(unit_ms)
        });
        parsed.map(|ms| Self(Duration::from_millis(ms))).ok_or_else(|| {
            format!("`{text}` is not a length of time: write `500ms`, `2s`, `10m`, `12h` or `7d`")
        })
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = number_and_unit(text).and_then(|(number, unit)| {
            let shift = match unit {
                "" | "B" => 0,
                "KiB" => 10,
                "MiB" => 20,
                "GiB" => 30,
                _ => return None,
            };
            number.checked_mul(1 << shift)
        });
        parsed
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a size: write `4096`, `512KiB`, `64MiB` or `2GiB`"))
    }
}

struct FromText<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> de::Visitor<'_> for FromText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number and its unit, in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText(std::marker::PhantomData))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText(std::marker::PhantomData))
    }
}

/// Why the text cannot be used as settings.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It is not TOML, or not these settings.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// It was written for a later tollgate.
    #[error("it has version {0}, this tollgate knows {CONFIG_VERSION}; install a newer tollgate")]
    Newer(u32),
}

impl FromStr for Settings {
    type Err = Unusable;

    fn from_str(text: &str) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct OnlyVersion {
            version: Option<u32>,
        }
        // The version first: a later format may have keys that would only confuse.
        match toml::from_str::<OnlyVersion>(text)?.version {
            Some(version) if version > CONFIG_VERSION => Err(Unusable::Newer(version)),
            _ => Ok(toml::from_str(text)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_the_defaults() {
        assert_eq!("".parse::<Settings>().unwrap(), Settings::default());
        assert_eq!(Settings::default().guard.unread, Unread::Allow);
    }

    #[test]
    fn every_setting_is_read() {
        let settings: Settings = r#"
            version = 1
            [guard]
            mode = "observe"
            unread = "known"
            durability = "fast"
            quiet_wait = "250ms"
            lock_wait = "3s"
            grace = "1m"
            reservation = "2h"
            hard_links = "detach"
            read_only = "replace"
            protected = ["secrets"]
            [recovery]
            max_age = "2d"
            max_size = "1GiB"
            [ledger]
            max_size = "512KiB"
            [vault]
            dir = "tasks"
            lease = "1h"
            settle = "500ms"
            max_attempts = 5
            durability = "fast"
            sync = "git"
            remote = "team"
            branch = "tasks"
            claim_refs = "refs/heads/claims"
            remote_timeout = "5s"
            offline = "allow"
            follow = false
            [agent.cloud]
            role = "cloud"
            allowed = ["summarize", "triage"]
            sensitive = ["send_email", "payment"]
            [hooks]
            on_fault = "allow"
            deadline = "2s"
            formatters = { rs = ["rustfmt"] }
        "#
        .parse()
        .unwrap();
        assert_eq!(settings.guard.mode, Mode::Observe);
        assert_eq!(settings.guard.unread, Unread::Known);
        assert_eq!(settings.guard.durability, Durability::Fast);
        assert_eq!(settings.guard.quiet_wait.0, Duration::from_millis(250));
        assert_eq!(settings.guard.reservation.0, Duration::from_secs(7200));
        assert_eq!(settings.recovery.max_size.0, 1 << 30);
        assert_eq!(settings.ledger.max_size.0, 512 << 10);
        let vault = VaultSettings {
            dir: "tasks".into(),
            lease: Wait(Duration::from_secs(3600)),
            settle: Wait(Duration::from_millis(500)),
            max_attempts: 5,
            durability: Durability::Fast,
            sync: Sync::Git,
            remote: "team".into(),
            branch: "tasks".into(),
            claim_refs: "refs/heads/claims".into(),
            remote_timeout: Wait(Duration::from_secs(5)),
            offline: Offline::Allow,
            follow: false,
        };
        assert_eq!(settings.vault, vault);
        let cloud = &settings.agent[&"cloud".parse::<Agent>().unwrap()];
        assert_eq!(cloud.role.as_deref(), Some("cloud"));
        assert_eq!(cloud.allowed, ["summarize", "triage"]);
        assert_eq!(cloud.sensitive, ["send_email", "payment"]);
        assert_eq!(settings.hooks.on_fault, OnFault::Allow);
        assert_eq!(settings.hooks.formatters["rs"], ["rustfmt"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("[guard]\nmodus = 1", "modus"),
            ("[guard]\ngrace = \"2 parsecs\"", "2 parsecs"),
            ("[guard]\ngrace = 2", "in quotes"),
            ("[recovery]\nmax_size = \"99999999999GiB\"", "not a size"),
            ("version = 2\nnew_key = 1", "newer tollgate"),
            ("not toml", "not toml"),
            ("[vault]\nlease = \"soon\"", "soon"),
            ("[vault]\nsync = \"dropbox\"", "dropbox"),
            ("[agent.\"a/b\"]\nrole = \"x\"", "a/b"),
            ("[agent.blue]\nallow = []", "allow"),
        ] {
            let error = text.parse::<Settings>().unwrap_err().to_string();
            assert!(error.contains(word), "{text:?} gave {error:?}");
        }
    }
}

//! What the user trusts in workspaces: the commands in a configuration, the addresses and folders that it names, and the state
//! of another user.
//!
//! A configuration comes with a cloned or synchronised folder, so its commands run only after the user has agreed to exactly
//! these bytes. State that another user owns is ignored unless the user has agreed to it. A credential goes only to an engine
//! whose address the user has chosen or agreed to. A vault or a log outside the workspace is used only if the user has chosen
//! that folder for this workspace, or has agreed to it. The agreements are kept in the user's own state folder: one file per
//! workspace, engine and folder, named after the hash of its path or address.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tollgate::digest::Digest;
use tollgate::error::{Fault, MissingKind};
use tollgate::settings::{HookSettings, NotifySettings, Settings, StoreChoice};
use tollgate::tasks::named_outside;
use tollgate::trust::{Agreements, outside, resolved};
use tollgate::workspace::{STATE_FOLDER, read_settings};
use tollgate_base::private;

use crate::replace::{FileAccess, replace_file};

/// Commands by file extension.
pub(crate) type Commands = BTreeMap<String, Vec<String>>;

/// The user's agreements.
#[derive(Debug)]
pub(crate) struct TrustStore {
    agreements: Agreements,
    /// The configuration that the user wrote, which needs no agreement.
    own_config: Option<PathBuf>,
}

/// The configuration of a workspace, as the user sees it before agreeing.
#[derive(Debug)]
pub(crate) struct Configured {
    pub(crate) path: PathBuf,
    /// Empty if there is no file.
    pub(crate) bytes: Vec<u8>,
    /// The commands in it.
    pub(crate) commands: Commands,
    /// Whom it tells when something needs a person.
    pub(crate) notify: NotifySettings,
    /// The address of the engine that it names, if any.
    pub(crate) engine: Option<String>,
    /// The folders outside the workspace that it names, or that links in the workspace lead to.
    pub(crate) outside: Vec<OutsideFolder>,
}

/// A folder outside a workspace.
#[derive(Debug, Clone)]
pub(crate) struct OutsideFolder {
    pub(crate) holds: FolderContent,
    pub(crate) path: PathBuf,
}

/// What is in a folder outside a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderContent {
    /// The tasks.
    Vault,
    /// The logs of agents.
    Logs,
}

/// Where the logs of agents are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogFolder {
    /// In the user's own state folder.
    Default,
    /// Here.
    At(PathBuf),
    /// The workspace names this folder outside of it, and the user has not agreed to that.
    Untrusted(PathBuf),
}

/// The formatter for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Formatter {
    /// None is configured.
    None,
    /// This command.
    Trusted(Vec<String>),
    /// The workspace names one that the user has not agreed to.
    Untrusted,
}

/// Whom to tell when something needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TrustedNotify {
    /// Nobody.
    None,
    /// By these settings.
    Trusted(NotifySettings),
    /// The workspace names a command or a webhook that the user has not agreed to.
    Untrusted,
}

impl Configured {
    pub(crate) fn read(root: &Path) -> Result<Self, Fault> {
        let path = root.join(STATE_FOLDER).join("config.toml");
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(|source| Fault::Io { doing: "read", path: path.clone(), source })?,
        };
        // From these bytes and not from the file, which may change at any time.
        let text = String::from_utf8_lossy(&bytes);
        let settings = Settings::parse(&text, &path).unwrap_or_default();
        let engine = match settings.vault.chosen_store() {
            StoreChoice::Engine(url) => Some(url.clone()),
            StoreChoice::Folder | StoreChoice::Git => None,
        };
        // A vault that another workspace names is for that one to agree to.
        let vault = named_outside(root, &settings).ok().flatten().filter(|(names, _)| names == root);
        let logs = settings.log.dir.as_deref().and_then(|dir| outside(root, dir));
        let vault = vault.map(|(_, path)| OutsideFolder { holds: FolderContent::Vault, path });
        let logs = logs.map(|path| OutsideFolder { holds: FolderContent::Logs, path });
        Ok(Self {
            path,
            bytes,
            commands: settings.hooks.formatters,
            notify: settings.notify,
            engine,
            outside: vault.into_iter().chain(logs).collect(),
        })
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }
}

impl TrustStore {
    pub(crate) fn new(state: Option<&Path>, config: Option<&Path>, uid: u32, sudo: Option<u32>) -> Self {
        let own_config = config.map(|config| config.join("tollgate").join("config.toml"));
        Self { agreements: Agreements::new(state, uid, sudo), own_config }
    }

    /// Whether the user has agreed to exactly this configuration.
    pub(crate) fn trusts(&self, root: &Path, configured: &Configured) -> bool {
        self.agreements.agreed(root).is_some_and(|(hash, _)| hash == configured.digest().to_string())
    }

    /// Remembers that the user agrees to this configuration, and to the owner of the state.
    pub(crate) fn agree(&self, root: &Path, configured: &Configured) -> Result<(), Fault> {
        let Some(record) = self.agreements.record(root) else {
            return Err(Fault::missing(
                MissingKind::Path,
                "the folder for your own state (`HOME` is not set)",
            ));
        };
        let owner = self.agreements.foreign_owner(root).map(|uid| uid.to_string()).unwrap_or_default();
        let text = format!("{}\n{owner}\n{}\n", configured.digest(), root.to_string_lossy());
        replace_file(&record, text.as_bytes(), FileAccess::Private)?;
        configured.outside.iter().try_for_each(|folder| self.agree_to_folder(root, &folder.path))?;
        configured.engine.as_ref().map_or(Ok(()), |url| self.agree_to_engine(url))
    }

    /// What the user has agreed to, for the library.
    pub(crate) fn agreements(&self) -> Agreements {
        self.agreements.clone()
    }

    /// Whether the user has chosen this folder outside the workspace, or has agreed to it.
    pub(crate) fn trusts_folder(&self, root: &Path, folder: &Path) -> bool {
        self.agreements.trusts_folder(root, folder)
    }

    /// Remembers that the user has chosen this folder outside the workspace.
    pub(crate) fn agree_to_folder(&self, root: &Path, folder: &Path) -> Result<(), Fault> {
        self.agreements.folder_record(root, folder).map_or(Ok(()), |record| {
            let text = format!("{}\n{}\n", root.to_string_lossy(), folder.to_string_lossy());
            replace_file(&record, text.as_bytes(), FileAccess::Private)
        })
    }

    /// Where the logs of agents are: by the user's own configuration, otherwise by that of the workspace.
    pub(crate) fn log_folder(&self, root: &Path, named: Option<&Path>) -> Result<LogFolder, Fault> {
        if let Some(config) = &self.own_config
            && let Some(own) = read_settings(config)?.log.dir
        {
            return Ok(LogFolder::At(root.join(own)));
        }
        let Some(named) = named else { return Ok(LogFolder::Default) };
        Ok(match outside(root, named) {
            Some(folder) if !self.trusts_folder(root, &folder) => LogFolder::Untrusted(folder),
            // Where it leads now, so that a link that is changed later leads nowhere else.
            _ => LogFolder::At(resolved(&root.join(named))),
        })
    }

    /// Remembers that the user has chosen this engine.
    pub(crate) fn agree_to_engine(&self, url: &str) -> Result<(), Fault> {
        // Without a folder for state nothing is remembered, and the engine gets no password.
        self.agreements.engine_record(url).map_or(Ok(()), |record| {
            replace_file(&record, format!("{url}\n").as_bytes(), FileAccess::Private)
        })
    }

    /// Forgets all agreements about this workspace. Whether there was one.
    pub(crate) fn forget(&self, root: &Path) -> Result<bool, Fault> {
        let configured = Configured::read(root)?;
        let engine = configured.engine.and_then(|url| self.agreements.engine_record(&url));
        let folders = configured.outside.iter();
        let folders = folders.filter_map(|folder| self.agreements.folder_record(root, &folder.path));
        for record in folders.chain(engine) {
            // It may not be there.
            let _ = private::remove_file(&record);
        }
        let Some(record) = self.agreements.record(root) else { return Ok(false) };
        match private::remove_file(&record) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(Fault::Io { doing: "remove", path: record, source }),
        }
    }

    /// The user that owns the state of this workspace, if it is somebody else and this user has not agreed to that.
    pub(crate) fn stranger(&self, root: &Path) -> Option<u32> {
        self.agreements.stranger(root)
    }

    /// Whom to tell when something needs a person: by the user's own configuration, otherwise by that of the workspace.
    pub(crate) fn notify(&self, root: &Path) -> Result<TrustedNotify, Fault> {
        if let Some(config) = &self.own_config {
            let own = read_settings(config)?.notify;
            if own.is_set() {
                return Ok(TrustedNotify::Trusted(own));
            }
        }
        let configured = Configured::read(root)?;
        Ok(match configured.notify.is_set() {
            false => TrustedNotify::None,
            true if self.trusts(root, &configured) => TrustedNotify::Trusted(configured.notify),
            true => TrustedNotify::Untrusted,
        })
    }

    /// Whether there can be a formatter: in these settings, or in the user's own.
    pub(crate) fn has_formatters(&self, settings: &HookSettings) -> bool {
        !settings.formatters.is_empty() || self.own_config.as_ref().is_some_and(|config| config.exists())
    }

    /// The formatter for files with this extension: the user's own, otherwise that of the workspace.
    pub(crate) fn formatter(&self, root: &Path, extension: &str) -> Result<Formatter, Fault> {
        if let Some(config) = &self.own_config
            && let Some(command) = read_settings(config)?.hooks.formatters.remove(extension)
        {
            return Ok(Formatter::Trusted(command));
        }
        let mut configured = Configured::read(root)?;
        Ok(match configured.commands.remove(extension) {
            None => Formatter::None,
            Some(command) if self.trusts(root, &configured) => Formatter::Trusted(command),
            Some(_) => Formatter::Untrusted,
        })
    }
}

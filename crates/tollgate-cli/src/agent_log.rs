//! One log per agent, `agent-<name>.log`: one line per event of its tasks, for people with `tail -f`.
//!
//! The ledger is the record, a log is a convenience. So a log that cannot be written never stops the work, and nothing is
//! flushed. Several processes append to one file, and each line is one write. A full file is renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use tollgate::error::Fault;
use tollgate::ledger::Entry;
use tollgate::name::Agent;
use tollgate::workspace::Workspace;
use tollgate_base::private;

use crate::trust::{LogFolder, TrustStore};
use crate::words;

/// The logs of a workspace's agents.
#[derive(Debug, Clone)]
pub(crate) struct AgentLogs {
    /// `None` if the user has no folder for state and the settings name no folder.
    folder: Option<PathBuf>,
    /// The workspace. The agents of all workspaces of a user share their logs.
    workspace: PathBuf,
    max_size: u64,
    keep: u32,
}

impl AgentLogs {
    /// The logs; and the folder that the configuration names for them, if the user has not agreed to it. Then they are where
    /// they are by default: a clone must not create and rename files anywhere.
    pub(crate) fn new(
        user_state: Option<PathBuf>,
        trust: &TrustStore,
        workspace: &Workspace,
    ) -> Result<(Self, Option<PathBuf>), Fault> {
        let settings = &workspace.settings().log;
        let default = || user_state.map(|state| state.join("log"));
        let (folder, untrusted) = match trust.log_folder(workspace.path(), settings.dir.as_deref())? {
            LogFolder::Default => (default(), None),
            LogFolder::At(folder) => (Some(folder), None),
            LogFolder::Untrusted(folder) => (default(), Some(folder)),
        };
        let logs = Self {
            folder,
            workspace: workspace.path().to_owned(),
            max_size: settings.max_size.0,
            keep: settings.keep,
        };
        Ok((logs, untrusted))
    }

    /// The path of an agent's log.
    pub(crate) fn path(&self, agent: &Agent) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(format!("agent-{agent}.log")))
    }

    /// An event of an agent, as the ledger records it.
    pub(crate) fn event(&self, entry: &Entry) {
        if let Some(agent) = &entry.agent {
            self.line(agent, entry.time, &words::event_line(entry));
        }
    }

    /// Appends one line. Ignores errors: a missing line must not stop the work.
    pub(crate) fn line(&self, agent: &Agent, time: Timestamp, text: &str) {
        if let Some(path) = self.path(agent) {
            let _ = self.append(&path, &format!("{}\n", words::log_line(time, &self.workspace, text)));
        }
    }

    fn append(&self, path: &Path, line: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let open = || private::open_with_mode(path, flags, Mode::from_raw_mode(0o640)).map(File::from);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private::create_folders(path.parent().unwrap_or(path), 0o777)?;
                open()?
            }
            file => file?,
        };
        if file.metadata()?.len() + line.len() as u64 > self.max_size {
            self.rotate(&file, path)?;
            return open()?.write_all(line.as_bytes());
        }
        (&file).write_all(line.as_bytes())
    }

    /// Renames `x.log` to `x.log.1`, `x.log.1` to `x.log.2` and so on. The last one is overwritten.
    fn rotate(&self, file: &File, path: &Path) -> io::Result<()> {
        // One process at a time. The second one finds that the file was renamed.
        file.lock()?;
        if fs::symlink_metadata(path)
            .map_or(true, |found| found.ino() != file.metadata().map_or(0, |own| own.ino()))
        {
            return Ok(());
        }
        let numbered = |number: u32| PathBuf::from(format!("{}.{number}", path.display()));
        if self.keep == 0 {
            return private::remove_file(path);
        }
        for number in (1..self.keep).rev() {
            match private::rename(&numbered(number), &numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        private::rename(path, &numbered(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_rotated_without_losing_recent_lines() {
        let folder = tempfile::tempdir().unwrap();
        let logs = AgentLogs {
            folder: Some(folder.path().join("log")),
            workspace: "/w".into(),
            max_size: 200,
            keep: 3,
        };
        let agent: Agent = "blue".parse().unwrap();
        for number in 0..24 {
            logs.line(&agent, Timestamp::UNIX_EPOCH, &format!("line {number:02}"));
        }
        let path = logs.path(&agent).unwrap();
        let mut all = String::new();
        for name in ["agent-blue.log.3", "agent-blue.log.2", "agent-blue.log.1", "agent-blue.log"] {
            let text = fs::read_to_string(path.with_file_name(name)).unwrap();
            assert!(text.len() <= 200, "{name}");
            all += &text;
        }
        let last: Vec<_> = all.lines().map(|line| line.split("line ").nth(1).unwrap()).collect();
        assert!(last.len() > 15 && last.last() == Some(&"23") && last.is_sorted(), "{all}");
        assert!(!path.with_file_name("agent-blue.log.4").exists());
    }
}

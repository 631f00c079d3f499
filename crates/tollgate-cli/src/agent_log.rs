//! One log per agent, `agent-<name>.log`: what became of its claims, a line each, for people with `tail -f`.
//!
//! The ledger is the record; a log is a convenience. So nothing that goes wrong with a log stops the work, and nothing is
//! flushed. Several processes append to one file: each line is one write. Past a size the file is moved aside.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tollgate::name::Agent;
use tollgate::vault::event::Event;
use tollgate::workspace::Workspace;

use crate::door::Door;
use crate::words;

/// The logs of a workspace's agents.
#[derive(Debug, Clone)]
pub(crate) struct AgentLogs {
    /// None if the user has no folder for state and the settings name none.
    folder: Option<PathBuf>,
    max_size: u64,
    keep: u32,
}

impl AgentLogs {
    pub(crate) fn new(door: &Door, workspace: &Workspace) -> Self {
        let settings = &workspace.settings().log;
        let folder = match &settings.dir {
            Some(dir) => Some(workspace.path().join(dir)),
            None => door.user_state().map(|state| state.join("log")),
        };
        Self { folder, max_size: settings.max_size.0, keep: settings.keep }
    }

    /// Where an agent's log is.
    pub(crate) fn path(&self, agent: &Agent) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(format!("agent-{agent}.log")))
    }

    /// What the vault tells about a task.
    pub(crate) fn event(&self, event: &Event) {
        if let Some(agent) = &event.agent {
            self.line(agent, event.time, &words::event_line(event));
        }
    }

    /// One line. That it cannot be written is no reason to stop.
    pub(crate) fn line(&self, agent: &Agent, time: Timestamp, text: &str) {
        if let Some(path) = self.path(agent) {
            let _ = self.append(&path, &format!("{}\n", words::log_line(time, text)));
        }
    }

    fn append(&self, path: &Path, line: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options
            .create(true)
            .append(true)
            .mode(0o640)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(path.parent().unwrap_or(path))?;
                options.open(path)?
            }
            file => file?,
        };
        if file.metadata()?.len() + line.len() as u64 > self.max_size {
            self.rotate(&file, path)?;
            return options.open(path)?.write_all(line.as_bytes());
        }
        (&file).write_all(line.as_bytes())
    }

    /// `x.log` becomes `x.log.1`, which becomes `x.log.2`; the last goes.
    fn rotate(&self, file: &File, path: &Path) -> io::Result<()> {
        // One at a time; who comes second finds that it has been done.
        file.lock()?;
        if fs::symlink_metadata(path)
            .map_or(true, |found| found.ino() != file.metadata().map_or(0, |own| own.ino()))
        {
            return Ok(());
        }
        let numbered = |number: u32| PathBuf::from(format!("{}.{number}", path.display()));
        if self.keep == 0 {
            return fs::remove_file(path);
        }
        for number in (1..self.keep).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(path, numbered(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_rotated_and_loses_no_line_that_it_should_keep() {
        let folder = tempfile::tempdir().unwrap();
        let logs = AgentLogs { folder: Some(folder.path().join("log")), max_size: 200, keep: 3 };
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

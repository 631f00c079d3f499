//! `.tollgate/config.toml`: the text that `init` writes, the lines that it adds, and when it may remove the file.
//!
//! Everything is checked before the file is written: a configuration that cannot take a line stays as it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate::error::{At, Fault};
use tollgate::settings::{Settings, StoreChoice};
use tollgate_base::private;

use crate::replace::{FileAccess, replace_file};
use crate::report::setup::ConfigSetup;

/// The defaults are commented out, because a later tollgate may have better ones. Settings that are set differ from the
/// default on purpose.
const TEMPLATE: &str = r#"# tollgate: how to guard the files of this workspace. This file is yours; you can commit it.
version = 1

[guard]
# What to do with a write to a file that was not read in the same turn:
#   "known"   compare the file with what the agent last saw in its earlier turns
#   "allow"   allow the write
#   "refuse"  refuse the write until the file has been read
unread = "known"

# What to do with a change that destroys unfinished work (bytes that are in no commit) which its agent has not seen:
#   "refuse"  refuse it
#   "note"    make it, and record it in the ledger
#   "allow"   make it
unfinished = "refuse"

# What an agent hears of files that it has read in its turn, and that somebody else has changed since:
#   "note"    it is told, once, with a diff
#   "refuse"  it is told, and may write nothing until it has read them again
#   "off"     nothing
premises = "note"

# "enforce" refuses stale writes, "observe" only records them in the ledger, "off" checks nothing.
# mode = "enforce"

# "durable": a confirmed write survives a power failure. "fast" does not wait for the disk.
# durability = "durable"

# How long a write waits for other programs to close the file, and for other guarded writes.
# quiet_wait = "1s"
# lock_wait = "10s"

# Writes to files with hard links and to read-only files are refused. "detach" and "replace" allow them.
# hard_links = "refuse"
# read_only = "refuse"

# More paths that agents must not change, relative to the workspace.
# protected = []

[git]
# What an agent may commit: "seen" only what it has read or written, on the branch that it has seen; "any" everything.
commit = "seen"
# Whether an agent changes files only in the working tree (`git worktree`) in which it began.
stay = true
# Whether `tollgate commit` names the agent in a trailer.
# commit_trailers = false

[history]
# How long bytes are kept that were replaced or refused, and how much space they may take.
# max_age = "7d"
# max_size = "256MiB"
# Whether the record of a turn has the text of its prompt, not only its hash.
# prompts = false

[ledger]
# When the ledger reaches this size, it continues in a new file.
# max_size = "64MiB"

[vault]
# The folder with the tasks, relative to the workspace.
# dir = "vault"

# Where the tasks are: "folder", "git", or an engine that several machines share, as in "etcd://a:2379,b:2379/team".
# store = "folder"

# How long a claim by `task claim` lasts unless it is renewed, and the number of attempts before a task is rejected.
# lease = "30m"
# max_attempts = 3

# The pauses between the attempts at a task.
# retry = ["10s", "1m", "5m"]

# Whether a move from `Pending_Approval` to `Approved` in a file manager approves a task. Programs of agents can move files, too.
approve_by_move = false

[run]
# What hooks do with the shell commands of agents: "transaction" lets each command run through `tollgate run`, "parse" only
# checks what its text says about files.
# shell = "parse"

# Agent programs whose commands are only checked, whatever `shell` says, by the names of `init --host`.
# parse = []

[work]
# After this many quick failures in a row, `tollgate work` claims no tasks for a while. 0: never.
# breaker = 5

# What each agent may do. An agent without a table may do everything.
# [agent.cloud]
# allowed = ["summarize"]
# sensitive = ["send_email"]
"#;

/// The template's line for the vault.
const DIR_LINE: &str = "# dir = \"vault\"\n";

/// The template's line for the store.
const STORE_LINE: &str = "# store = \"folder\"\n";

/// The template's line for shell commands, and the line for agent programs whose commands can run through `tollgate run`.
const SHELL_LINES: [&str; 2] = ["# shell = \"parse\"\n", "shell = \"transaction\"\n"];

/// The template's line for agent programs whose commands are only parsed.
const PARSE_LINE: &str = "# parse = []\n";

/// The configuration, with the lines that this call adds to it.
pub(super) struct ConfigFile {
    path: PathBuf,
    /// What was in the file; `None` if there was no file.
    found: Option<String>,
    text: String,
    settings: Settings,
    /// The lines that were added, without their newlines.
    added: Vec<String>,
}

impl ConfigFile {
    /// The configuration at this path, or the template. A configuration that is not valid is a fault.
    pub(super) fn read(path: &Path) -> Result<Self, Fault> {
        let found = found_at(path)?;
        let text = found.clone().unwrap_or_else(|| TEMPLATE.to_owned());
        let settings = Settings::parse(&text, path)?;
        Ok(Self { path: path.to_owned(), found, text, settings, added: Vec::new() })
    }

    /// The settings, with the added lines.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The lines that were added to a configuration that was there.
    pub(super) fn added(&self) -> &[String] {
        if self.found.is_some() { &self.added } else { &[] }
    }

    /// Lets shell commands run through `tollgate run`, except for those of the programs `parsed`, unless the user has decided
    /// about it.
    pub(super) fn let_commands_run(&mut self, run: bool, parsed: &[&str]) {
        let parse_line = format!("parse = {parsed:?}\n");
        let [parse, transaction] = SHELL_LINES;
        for (wanted, template, line) in
            [(run, parse, transaction), (!parsed.is_empty(), PARSE_LINE, &parse_line)]
        {
            if wanted && self.text.contains(template) {
                self.take(self.text.replacen(template, line, 1), line, |_| true);
            }
        }
    }

    /// Adds the vault, unless `known` says that the configuration names it already. Whether that is possible.
    #[must_use]
    pub(super) fn add_vault(&mut self, dir: &str, known: bool) -> bool {
        if known && !self.text.contains(DIR_LINE) {
            return true;
        }
        let line = format!("dir = {}\n", serde_json::Value::from(dir));
        self.take(with_line(&self.text, DIR_LINE, &line), &line, |now| now.vault.dir() == Path::new(dir))
    }

    /// Adds the store, unless it is the store already. Whether that is possible.
    #[must_use]
    pub(super) fn add_store(&mut self, store: &str, choice: &StoreChoice) -> bool {
        if self.settings.vault.chosen_store() == choice {
            return true;
        }
        let line = format!("store = {}\n", serde_json::Value::from(store));
        let is_chosen = |now: &Settings| now.vault.chosen_store() == choice;
        self.take(with_line(&self.text, STORE_LINE, &line), &line, is_chosen)
    }

    /// Takes a text with one more line, if it is valid and says what it should.
    fn take(&mut self, text: String, line: &str, says: impl Fn(&Settings) -> bool) -> bool {
        match Settings::parse(&text, &self.path) {
            Ok(settings) if says(&settings) => {
                (self.text, self.settings) = (text, settings);
                self.added.push(line.trim_end().to_owned());
                true
            }
            _ => false,
        }
    }

    /// Writes the file, unless nothing has changed. Makes its folder in the workspace.
    pub(super) fn save(&self, root: &Path) -> Result<ConfigSetup, Fault> {
        // As private as the state that will be in it: the group has access only if it may write to the workspace, other
        // users never.
        let mode = fs::metadata(root).at("look at", root)?.mode();
        let mode = if mode & 0o020 == 0 { 0o700 } else { 0o770 };
        let state = self.path.parent().unwrap_or(root);
        private::create_folder(state, mode).at("make", state)?;
        if self.found.is_some() && self.added.is_empty() {
            return Ok(ConfigSetup::Kept);
        }
        if found_at(&self.path)? != self.found {
            let what = "it was changed in the meantime; run the command again".to_owned();
            return Err(Fault::Config { path: self.path.clone(), what });
        }
        // Whole and flushed: an empty configuration would silently mean the defaults.
        replace_file(&self.path, self.text.as_bytes(), FileAccess::Normal)?;
        Ok(if self.found.is_some() { ConfigSetup::Changed } else { ConfigSetup::Written })
    }
}

/// The text of the configuration, if there is one.
fn found_at(path: &Path) -> Result<Option<String>, Fault> {
    match fs::read_to_string(path) {
        // A link that leads nowhere is the user's own, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => Ok(None),
        text => text.at("read", path).map(Some),
    }
}

/// The configuration with this line in `[vault]`, in place of the template's line if that is there.
fn with_line(text: &str, template: &str, line: &str) -> String {
    if text.contains(template) {
        return text.replacen(template, line, 1);
    }
    let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    match lines.iter().position(|found| found.trim_end() == "[vault]") {
        Some(at) => lines.insert(at + 1, line.to_owned()),
        None => lines.push(format!("\n[vault]\n{line}")),
    }
    lines.concat()
}

/// Whether the text is the template, with any vault and store, and with commands that run in any way.
pub(super) fn is_template(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let plain = |line: &str| match line.split_once(" = ") {
        Some(("dir", _)) => DIR_LINE.to_owned(),
        Some(("store", _)) => STORE_LINE.to_owned(),
        Some(("parse", _)) => PARSE_LINE.to_owned(),
        _ if SHELL_LINES.contains(&&*format!("{line}\n")) => SHELL_LINES[0].to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(plain).collect::<String>() == TEMPLATE
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::settings::{CommitRule, GitSettings, Unfinished, Unread};

    #[test]
    fn what_somebody_has_saved_in_the_meantime_is_not_overwritten() {
        for found in [None, Some("[guard]\n")] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(".tollgate/config.toml");
            fs::create_dir(path.parent().unwrap()).unwrap();
            if let Some(text) = found {
                fs::write(&path, text).unwrap();
            }
            let mut config = ConfigFile::read(&path).unwrap();
            assert!(config.add_vault("tasks", false));
            fs::write(&path, "version = 1\n").unwrap();
            let fault = config.save(folder.path()).unwrap_err().to_string();
            assert!(fault.contains("was changed in the meantime; run the command again"), "{fault}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "version = 1\n");
        }
    }

    #[test]
    fn the_template_has_the_defaults_except_for_what_the_agent_has_not_seen() {
        let parse = |text: &str| Settings::parse(text, Path::new("config.toml"));
        let mut settings = parse(TEMPLATE).unwrap();
        assert_eq!(settings.guard.unread, Unread::Known);
        assert_eq!(settings.guard.unfinished, Unfinished::Refuse);
        settings.guard.unread = Unread::default();
        settings.guard.unfinished = Unfinished::default();
        let git = std::mem::take(&mut settings.git);
        assert_eq!((git.commit, git.stay), (CommitRule::Seen, true));
        assert_eq!(settings, Settings { version: Some(1), ..Settings::default() });

        let uncomment = |line: &str| match line.strip_prefix("# ") {
            Some(setting) if setting.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
                setting.to_owned()
            }
            _ => line.to_owned(),
        };
        let (settings_part, roles) = TEMPLATE.split_once("# What each agent").unwrap();
        assert!(roles.lines().all(|line| line.starts_with("# ") || line.starts_with(" may")), "{roles}");
        let all: String = settings_part.lines().map(|line| uncomment(line) + "\n").collect();
        assert!(all.contains("\nmax_age = ") && all.contains("\nprotected = "), "{all}");
        let mut settings = parse(&all).unwrap();
        settings.guard.unread = Unread::default();
        settings.guard.unfinished = Unfinished::default();
        settings.git = GitSettings::default();
        // Named, it is the same folder, but one that must be there.
        let dir = settings.vault.dir.take();
        assert_eq!(dir.as_deref(), Some(Settings::default().vault.dir()));
        assert_eq!(settings, Settings { version: Some(1), ..Settings::default() });
    }

    #[test]
    fn the_vault_can_be_added_to_any_configuration() {
        let of = |text: &str| ConfigFile {
            path: "config.toml".into(),
            found: Some(String::new()),
            text: text.to_owned(),
            settings: Settings::parse(text, Path::new("config.toml")).unwrap(),
            added: Vec::new(),
        };
        for text in [TEMPLATE, "", "version = 1\n", "version = 1\n[vault]\nlease = \"1m\"\n"] {
            let mut config = of(text);
            assert!(config.add_vault("my tasks", false), "{text}");
            assert_eq!(config.settings().vault.dir(), Path::new("my tasks"), "{text}");
            assert_eq!(config.added(), ["dir = \"my tasks\""]);
        }
        let mut config = of(TEMPLATE);
        assert!(config.add_vault("my tasks", false));
        assert!(is_template(config.text.as_bytes()) && is_template(TEMPLATE.as_bytes()));
        assert!(!is_template(config.text.replace("known", "refuse").as_bytes()));
        // A configuration with another vault is left to its owner.
        let mut config = of("\n[vault]\ndir = \"other\"\n");
        assert!(!config.add_vault("my tasks", false) && config.added().is_empty());
        let mut config = of("[vault]\ndir = \"x\"\n");
        assert!(config.add_vault("x", true) && config.added().is_empty());
    }
}

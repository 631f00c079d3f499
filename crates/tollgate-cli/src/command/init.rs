//! `tollgate init`: writes the configuration, and nothing else unless asked.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::workspace::{STATE_FOLDER, read_settings};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::host::{self, Became, Host};
use crate::surroundings::Surroundings;
use crate::words;

/// Prepare a workspace: write `.tollgate/config.toml`
///
/// Writes a configuration that explains itself, and nothing else. A configuration that is there already stays as it
/// is, so it may be run again at any time. Files can be guarded without it: all settings have defaults.
///
/// With --remove the configuration is taken out again, unless you have changed it. The state (ledger, recovery) stays.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate init\n  tollgate init -C ~/notes\n  tollgate init --remove")]
pub(crate) struct Wish {
    /// Set up the hooks of an agent program in this workspace, beside what is there; `all`: of those that are found
    #[arg(long = "host", value_name = "HOST", value_parser = hosts())]
    hosts: Vec<String>,

    /// Take out what init put in; with --host only the hooks of that program
    #[arg(long)]
    remove: bool,
}

fn hosts() -> PossibleValuesParser {
    PossibleValuesParser::new(host::names().into_iter().chain(["all"]))
}

/// The hooks of one agent program, and what became of them.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Hooked {
    pub(crate) host: &'static str,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) done: Became,
    /// What a person still has to do.
    pub(crate) then: Option<&'static str>,
}

/// What became of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Done {
    /// It was written.
    Written,
    /// It was there.
    Kept,
    /// It was taken out.
    Removed,
    /// The user has changed it, so it was not taken out.
    KeptAsChanged,
    /// There was none to take out.
    NothingToRemove,
}

/// The defaults are commented out: a later tollgate may know better ones. What is set is set on purpose.
const TEMPLATE: &str = r#"# tollgate: how the files of this workspace are guarded. This file is yours; it may be committed.
version = 1

[guard]
# What happens to a write of a file that was not read in the same turn:
#   "known"   compare it with what the agent last knew from its earlier turns
#   "allow"   let it through
#   "refuse"  refuse it until the file has been read
unread = "known"

# "enforce" refuses stale writes, "observe" only writes them to the ledger, "off" compares nothing.
# mode = "enforce"

# "durable": an acknowledged write survives a power cut. "fast" does not wait for the disk.
# durability = "durable"

# How long a write waits for other programs to close the file, and for other guarded writes.
# quiet_wait = "1s"
# lock_wait = "10s"

# Files with several names, and read-only files, are refused. "detach" and "replace" write them all the same.
# hard_links = "refuse"
# read_only = "refuse"

# More paths that agents must not change, relative to the workspace.
# protected = []

[recovery]
# Bytes that guarded writes replaced are kept this long, and not more than this.
# max_age = "7d"
# max_size = "256MiB"

[ledger]
# Past this size the ledger goes on in a new file.
# max_size = "64MiB"
"#;

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let (root, found_by) = door.root()?;
    let state = root.join(STATE_FOLDER);
    let config = state.join("config.toml");
    let chosen = chosen(wish, &root);
    let mut hooked = Vec::new();
    for host in chosen {
        let setup = host.setup();
        let done = if wish.remove { setup.take(&root)? } else { setup.put(&root)? };
        let trust = host.trust(Surroundings::home().as_deref(), &root);
        let then = if wish.remove { None } else { trust.what_to_do() };
        hooked.push(Hooked { host: host.name(), files: setup.files(), done, then });
    }
    let done = match wish.remove {
        true if wish.hosts.is_empty() => remove(&state, &config)?,
        // Asked about one program only: the rest of what init put in stays.
        true if config.exists() => Done::Kept,
        true => Done::NothingToRemove,
        false => write(&root, &state, &config)?,
    };
    if done == Done::Kept {
        // Better now than at the next write.
        read_settings(&config)?;
    }
    let (git, state) = (root.join(".git").exists(), state.join("version").exists());
    Ok(Answer::Done(Said {
        words: words::init(&root, found_by, done, git, state) + &words::hooked(&hooked, wish.remove),
        json: json!({
            "workspace": root.to_string_lossy(),
            "config": config.to_string_lossy(),
            "done": done,
            "found": {"git": git, "state": state},
            "hosts": hooked,
        }),
        ..Said::default()
    }))
}

/// The programs that are meant. To be taken out: all that are set up, unless some are named.
fn chosen(wish: &Wish, root: &Path) -> Vec<&'static dyn Host> {
    let all = wish.hosts.iter().any(|name| name == "all");
    let is_meant = |host: &&'static dyn Host| {
        let named = wish.hosts.iter().any(|name| name == host.name());
        let there = || host.setup().is_there(root);
        let found = || host::is_found(*host, Surroundings::home().as_deref(), &Surroundings::path(), root);
        match wish.remove {
            true => named || (all || wish.hosts.is_empty()) && there(),
            false => named || all && found(),
        }
    };
    host::ALL.into_iter().filter(is_meant).collect()
}

fn write(root: &Path, state: &Path, config: &Path) -> Result<Done, Fault> {
    // As private as the state that will be in it: the group only if it may write the workspace, strangers never.
    let mode = fs::metadata(root).map_err(at("look at", root))?.mode();
    let mode = if mode & 0o020 == 0 { 0o700 } else { 0o770 };
    match fs::DirBuilder::new().mode(mode).create(state) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at("make", state)(error)),
        _ => {}
    }
    match fs::OpenOptions::new().write(true).create_new(true).open(config) {
        Ok(mut file) => {
            file.write_all(TEMPLATE.as_bytes()).map_err(at("write", config))?;
            Ok(Done::Written)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Done::Kept),
        Err(error) => Err(at("write", config)(error)),
    }
}

fn remove(state: &Path, config: &Path) -> Result<Done, Fault> {
    match fs::read(config) {
        Ok(text) if text == TEMPLATE.as_bytes() => {
            fs::remove_file(config).map_err(at("remove", config))?;
            // Only if it is empty: the state is not what init put in.
            let _ = fs::remove_dir(state);
            Ok(Done::Removed)
        }
        Ok(_) => Ok(Done::KeptAsChanged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Done::NothingToRemove),
        Err(error) => Err(at("read", config)(error)),
    }
}

fn at(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Fault {
    move |source| Fault::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::settings::{Settings, Unread};

    #[test]
    fn the_template_says_the_defaults_except_for_what_is_unread() {
        let mut settings: Settings = TEMPLATE.parse().unwrap();
        assert_eq!(settings.guard.unread, Unread::Known);
        settings.guard.unread = Unread::default();
        assert_eq!(settings, Settings { version: Some(1), ..Settings::default() });

        let uncomment = |line: &str| match line.strip_prefix("# ") {
            Some(setting) if setting.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
                setting.to_owned()
            }
            _ => line.to_owned(),
        };
        let all: String = TEMPLATE.lines().map(|line| uncomment(line) + "\n").collect();
        assert!(all.contains("\nmax_age = ") && all.contains("\nprotected = "), "{all}");
        let mut settings: Settings = all.parse().unwrap();
        settings.guard.unread = Unread::default();
        assert_eq!(settings, Settings { version: Some(1), ..Settings::default() });
    }
}

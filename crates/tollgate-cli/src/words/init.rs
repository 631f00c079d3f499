//! `tollgate init`: what it found, wrote and removed.

use std::path::{Path, PathBuf};

use tollgate::error::Fault;
use tollgate::settings::ShellCommands;
use tollgate::visible::plain;

use super::greeting::agent_instructions;
use super::text::{Viewpoint, short, shown};
use crate::host::SetupChange;
use crate::report::setup::{ConfigSetup, HostSetup};
use crate::root::RootReason;

/// Why this folder is the workspace.
pub(crate) fn found_by(found_by: RootReason) -> &'static str {
    match found_by {
        RootReason::Name => "given with `-C`",
        RootReason::State => "found `.tollgate`",
        RootReason::Git => "git root",
        RootReason::Here => "current folder",
    }
}

/// What happened to the configuration. `added`: the lines that were added to it.
pub(crate) fn init(
    root: &Path,
    found_by: RootReason,
    done: ConfigSetup,
    added: &[String],
    git: bool,
    state: bool,
) -> String {
    let root = short(&plain(&root.to_string_lossy()));
    let mut words = format!("workspace `{root}` ({})\n", self::found_by(found_by));
    let added: Vec<String> = added.iter().map(|line| format!("`{}`", plain(line))).collect();
    let added = format!("found `.tollgate/config.toml`, added {} to it", added.join(" and "));
    words += match done {
        ConfigSetup::Written => {
            "wrote `.tollgate/config.toml`: agents stay in their working tree, and do not destroy or commit unfinished work that they have not seen"
        }
        ConfigSetup::Kept => "found `.tollgate/config.toml`, not changed",
        ConfigSetup::Changed => &added,
        ConfigSetup::Removed => "removed `.tollgate/config.toml`",
        ConfigSetup::KeptAsChanged => {
            "kept `.tollgate/config.toml`, because it was edited\nhint: delete it yourself if you do not need it"
        }
        ConfigSetup::NothingToRemove => "no `.tollgate/config.toml` found, nothing to remove",
    };
    match done {
        ConfigSetup::Written | ConfigSetup::Kept | ConfigSetup::Changed => {
            if git {
                words += "\ngit repository: you can commit `.tollgate/config.toml`; the first guarded write adds a `.gitignore` for the rest";
            }
            if state {
                words += "\nfound state from earlier guarded writes";
            }
        }
        ConfigSetup::Removed | ConfigSetup::KeptAsChanged | ConfigSetup::NothingToRemove if state => {
            words += "\nkept the state (ledger, recovery) in `.tollgate`";
            words += "\nhint: if you need neither, delete that folder while no agent works here. When no workspace uses tollgate any \
                      more, delete `~/.local/state/tollgate`, too";
        }
        _ => {}
    }
    words
}

/// The fault of a file that `init` has checked before it changed anything.
pub(crate) fn nothing_changed(fault: Fault) -> Fault {
    match fault {
        Fault::Config { path, what } => Fault::Config { path, what: format!("{what}; nothing was changed") },
        Fault::ConfigLine { path, line, quoted } => {
            Fault::ConfigLine { path, line, quoted: format!("{quoted}; nothing was changed") }
        }
        fault => fault,
    }
}

/// The fault of a command in the user's home, or in a folder above it.
pub(crate) fn home_is_not_set_up(root: &Path) -> Fault {
    let root = plain(&root.to_string_lossy());
    Fault::invalid_with_hint(
        format!("`{root}` contains your home folder and is not set up, so tollgate creates no state there"),
        "run `tollgate init -C DIR` for the folder of your project and work there, or `tollgate init` here to guard this folder \
         and everything below it",
    )
}

/// State that a command created in a folder that was not set up.
pub(crate) fn man_pages(folder: &Path, pages: usize) -> String {
    format!("wrote {} to `{}`", super::text::count(pages, "man page"), plain(&folder.to_string_lossy()))
}

pub(crate) fn created_state(root: &Path) -> String {
    format!(
        "note: created `{}`, because no folder is set up here\nhint: run `tollgate init` to choose the settings, or delete that \
         folder if you meant another one",
        plain(&root.join(".tollgate").to_string_lossy())
    )
}

/// The programs that `--host all` found.
pub(crate) fn programs_found(found: &[(&'static str, String)], known: &[&str]) -> String {
    if found.is_empty() {
        return format!(
            "\nfound no agent program: none on PATH, and no files of one here or in your home\
             \nnext: name the program that you use with `tollgate init --host HOST`: {}",
            known.join(", ")
        );
    }
    let found: Vec<String> = found.iter().map(|(host, why)| format!("`{host}` ({why})")).collect();
    format!("\nfound {}", found.join(", "))
}

/// The next steps for people who guard files with the command itself, with hooks, or with the MCP server.
pub(crate) fn next_steps(hooked: &[HostSetup], registered: &[HostSetup]) -> String {
    match (hooked, registered) {
        ([], []) => {
            "\nnext: run `tollgate doctor` to check protection on this file system\
             \nnext: run `tollgate turn begin` to start a turn for `read` and `write`"
        }
        ([], _) => "\nnext: run `tollgate doctor` to check protection on this file system",
        _ => "\nnext: run `tollgate doctor` to test the hooks and to check protection on this file system",
    }
    .into()
}

pub(crate) fn vault_made(view: &Viewpoint, folder: &Path, new: bool) -> String {
    let folder = shown(view, folder);
    if new {
        format!("created the vault `{folder}`\nnext: run `tollgate task add TITLE` to add a task")
    } else {
        format!("found the vault `{folder}`")
    }
}

/// `init --remove` found tasks.
pub(crate) fn vault_kept(view: &Viewpoint, folder: &Path) -> String {
    format!("kept the vault `{}`, because it has tasks or other files", shown(view, folder))
}

pub(crate) fn store_chosen(store: &str) -> String {
    format!("the tasks are in the store `{}`\nnext: run `tollgate doctor` to test it", plain(store))
}

/// A store whose login everybody on the way can read.
pub(crate) fn password_unencrypted(store: &str) -> String {
    format!(
        "warning: your password crosses the network unencrypted to `{}`\n\
         hint: let the nodes use TLS, and name them with `etcds://`",
        plain(store)
    )
}

/// What `init` did about the hooks of agent programs.
pub(crate) fn hooked(hooked: &[HostSetup]) -> String {
    let mut words = String::new();
    for HostSetup { host, files, done, then, shell, .. } in hooked {
        let files = file_list(files);
        words += &match done {
            SetupChange::Written => format!("\ninstalled hooks for `{host}` in {files}"),
            SetupChange::Kept => format!("\nfound hooks for `{host}` in {files}, not changed"),
            SetupChange::Removed => format!("\nremoved the hooks for `{host}` from {files}"),
            SetupChange::NothingToRemove | SetupChange::ByHand => format!("\nno hooks for `{host}` found"),
        };
        if *shell == Some(ShellCommands::Parse) {
            words += &format!(
                "\nof shell commands of `{host}` only the text is judged, so what scripts do to files is not guarded"
            );
        }
        if let Some(then) = then {
            words += &format!("\nnext: {then}");
        }
    }
    let uninformed = |setup: &&HostSetup| setup.done == SetupChange::Written && !setup.greets;
    let names: Vec<_> = hooked.iter().filter(uninformed).map(|setup| format!("`{}`", setup.host)).collect();
    if !names.is_empty() {
        let is_shell_guarded =
            !hooked.iter().any(|setup| uninformed(&setup) && setup.shell == Some(ShellCommands::Parse));
        let text = agent_instructions(is_shell_guarded).replace('\n', "\n    ");
        words += &format!(
            "\nnext: tell the agents of {} about it, with these lines in `AGENTS.md`:\n    {text}",
            names.join(", ")
        );
    }
    words
}

fn file_list(files: &[PathBuf]) -> String {
    files.iter().map(|file| format!("`{}`", file.display())).collect::<Vec<_>>().join(", ")
}

/// What `init` did about the MCP server.
pub(crate) fn registered(registered: &[HostSetup]) -> String {
    let mut words = String::new();
    for HostSetup { host, files, done, then, .. } in registered {
        let files = file_list(files);
        words += &match done {
            SetupChange::Written => format!("\nregistered the MCP server with `{host}` in {files}"),
            SetupChange::Kept => format!("\nfound the MCP server for `{host}` in {files}, not changed"),
            SetupChange::Removed => format!("\nremoved the MCP server for `{host}` from {files}"),
            SetupChange::NothingToRemove => format!("\nno MCP server for `{host}` found"),
            SetupChange::ByHand => {
                format!("\n`{host}` keeps its MCP servers outside the workspace, so nothing was changed")
            }
        };
        if let Some(then) = then {
            words += &format!("\nnext: {then}");
        }
    }
    words
}

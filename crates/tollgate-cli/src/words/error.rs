//! Errors: what went wrong, and what to do about it.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use tollgate::error::{Fault, MissingKind};
use tollgate::visible::plain;

use super::text::{Viewpoint, short, shown};
use crate::error::CliError;

/// An error on stderr.
pub(crate) fn error(view: &Viewpoint, error: &CliError) -> String {
    match error {
        CliError::Usage { message, hint } => format!("error: {}\nhint: {}", plain(message), plain(hint)),
        CliError::Fault(fault) | CliError::RunFailed(fault) => {
            format!("error: {}\nhint: {}", fault_words(view, fault), plain(&hint(fault)))
        }
        CliError::Stdout(error) => format!(
            "error: cannot write to standard output: {}\nhint: redirect the output to a disk with free space; the \
             command itself has run, as `tollgate ledger tail` shows",
            plain(&error.to_string())
        ),
        CliError::WithHint(error, more) => self::error(view, error) + more,
        CliError::Hangup => String::new(),
    }
}

pub(crate) fn fault_words(view: &Viewpoint, fault: &Fault) -> String {
    match fault {
        Fault::Io { doing, path, source } => {
            format!("cannot {doing} `{}`: {}", shown(view, path), plain(&source.to_string()))
        }
        // The TOML parser shows the place on several lines.
        Fault::ConfigLine { path, quoted, .. } => {
            let lines =
                quoted.trim_end().lines().map(|line| format!("  {}", plain(line)).trim_end().to_owned());
            format!("`{}` is not valid\n{}", shown(view, path), lines.collect::<Vec<_>>().join("\n"))
        }
        Fault::Config { path, what } => match what.strip_prefix("it ") {
            Some(what) => format!("`{}` {}", shown(view, path), plain(what)),
            None => format!("`{}` is not valid: {}", shown(view, path), plain(what)),
        },
        Fault::NewerConfig { path, found, known } => {
            format!("`{}` has version {found}, this tollgate knows {known}", shown(view, path))
        }
        Fault::Damaged { path, what } => format!("`{}` is damaged: {}", shown(view, path), plain(what)),
        // A path in backticks, or a sentence about one.
        Fault::Missing { kind: MissingKind::Path, what } if what.starts_with('`') => {
            format!("`{}` does not exist", shown(view, Path::new(what.trim_matches('`'))))
        }
        fault => short(&plain(&fault.to_string())),
    }
}

/// An error in JSON.
pub(crate) fn error_json(error: &CliError) -> Value {
    let (message, hint) = message_and_hint(error);
    json!({"error": code(error), "message": message, "hint": hint})
}

fn code(error: &CliError) -> &'static str {
    match error {
        CliError::Usage { .. } => "USAGE",
        CliError::Fault(fault) | CliError::RunFailed(fault) => fault.code(),
        CliError::WithHint(error, _) => code(error),
        CliError::Hangup | CliError::Stdout(_) => "IO_ERROR",
    }
}

/// What programs are told about an error. They are told nothing about an error of stdout.
pub(super) fn message_and_hint(error: &CliError) -> (String, String) {
    match error {
        CliError::Usage { message, hint } => (message.clone(), hint.clone()),
        CliError::Fault(fault) | CliError::RunFailed(fault) => (fault.to_string(), hint(fault)),
        CliError::WithHint(error, more) => {
            let (message, hint) = message_and_hint(error);
            (message, hint + more)
        }
        CliError::Hangup | CliError::Stdout(_) => Default::default(),
    }
}

/// What to do about a fault. Every fault has a hint.
pub(crate) fn hint(fault: &Fault) -> String {
    let hint = match fault {
        Fault::Missing { kind, .. } => missing_hint(*kind),
        Fault::Invalid { hint, .. } => hint.unwrap_or("run the command with `--help` to see how to call it"),
        Fault::Io { doing: "open the workspace", .. } => {
            "give the path of a folder that exists; a relative path starts at the current folder"
        }
        Fault::Io { doing: "use the folder", .. } => {
            "delete the link, make a folder in its place, and move the tasks there that belong to this vault"
        }
        Fault::Io { doing: "listen on", source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            "another program uses this port, perhaps another `tollgate serve`; `--listen 127.0.0.1:0` picks a free port"
        }
        Fault::Io { doing: "listen on", .. } => {
            "`--listen` takes an address of this machine and a port above 1023, such as `127.0.0.1:7311`"
        }
        Fault::Io { source, .. } if source.kind() == io::ErrorKind::InvalidFilename => {
            "give a shorter path: a name has at most 255 bytes, a path at most 4095"
        }
        // Not for tollgate's own files, whose paths nobody has given.
        Fault::Io { source, path, .. }
            if source.kind() == io::ErrorKind::NotFound && !path.iter().any(|part| part == ".tollgate") =>
        {
            "check the path: a relative path starts at the current folder"
        }
        fault => fault.hint().unwrap_or("try again; if it fails again, run `tollgate doctor`"),
    };
    hint.into()
}

fn missing_hint(kind: MissingKind) -> &'static str {
    match kind {
        MissingKind::Turn => {
            "it has ended, was not used for a day, or belongs to another workspace: `unset TOLLGATE_TURN` if that names it; \
             `tollgate turn list` lists the running turns, `tollgate turn begin` starts one"
        }
        MissingKind::RecoveryEntry => "run `tollgate recovery list` to see all entries",
        MissingKind::Task => "run `tollgate task list` to see all tasks",
        MissingKind::Vault => {
            "run `tollgate init --vault` to create one, or set `dir` under `[vault]` in `.tollgate/config.toml` to its folder"
        }
        MissingKind::Branch => {
            "push the branch once, as in `git push -u origin main`, or set `branch` under `[vault]` in `.tollgate/config.toml`"
        }
        MissingKind::Token => "run `tollgate token list` to see all tokens of this workspace",
        MissingKind::CurrentFolder => "go to a folder that exists, or give the workspace with `-C DIR`",
        _ => "check the path: a relative path starts at the current folder, or at `-C DIR`",
    }
}

//! Formatters: if a project's formatter changed the agent's own text, the result still counts as the agent's own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::turn::{Extent, FileState, TurnState};
use tollgate::workspace::Workspace;
use tollgate_base::program::run_with_input;

use crate::trust::{Formatter, TrustStore};

/// The longest time for a formatter. If it takes longer, the file counts as changed by somebody else.
const PATIENCE: Duration = Duration::from_secs(3);

/// What became of a file that is not as the turn last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Adoption {
    /// The file is the agent's own text, formatted; or no formatter can tell.
    Done,
    /// The workspace has a formatter for it that the user has not trusted, so it was not run.
    Untrusted,
}

/// If the file is the formatted version of the text that the turn last saw, records in the turn that it has seen it.
pub(super) fn adopt(
    workspace: &Workspace,
    trust: &TrustStore,
    turn: &dyn TurnState,
    path: &Path,
) -> Result<Adoption, Fault> {
    let Some(ending) = path.extension().and_then(|ending| ending.to_str()) else { return Ok(Adoption::Done) };
    if !trust.has_formatters(&workspace.settings().hooks) {
        return Ok(Adoption::Done);
    }
    let canonical = workspace.canonical(path)?;
    let Some(known) = turn.get(&canonical)?.and_then(|sighting| sighting.baseline(Extent::Whole).digest())
    else {
        return Ok(Adoption::Done);
    };
    let Ok(there) = std::fs::read(canonical.as_path()) else { return Ok(Adoption::Done) };
    let there_digest = Digest::of(&there);
    if there_digest == known {
        return Ok(Adoption::Done);
    }
    let command = match trust.formatter(workspace.path(), ending)? {
        Formatter::None => return Ok(Adoption::Done),
        Formatter::Untrusted => return Ok(Adoption::Untrusted),
        Formatter::Trusted(command) => command,
    };
    if let Some(text) = turn.text(known)?
        && run(&command, workspace.path(), canonical.as_path(), &text)
            .is_some_and(|formatted| formatted == there)
    {
        turn.keep_text(there_digest, &there)?;
        turn.wrote(&canonical, FileState::Present(there_digest))?;
    }
    Ok(Adoption::Done)
}

fn run(command: &[String], root: &Path, path: &Path, text: &[u8]) -> Option<Vec<u8>> {
    let (program, arguments) = command.split_first()?;
    let path = path.to_string_lossy();
    let mut command = Command::new(program);
    command
        .args(arguments.iter().map(|argument| argument.replace("{path}", &path)))
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let ended = run_with_input(&mut command, text, PATIENCE).ok().flatten()?;
    ended.status.success().then_some(ended.output)
}

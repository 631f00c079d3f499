//! Commits of an agent's own changes.

use std::path::Path;

use tollgate::name::Agent;
use tollgate::own_commit::{CannotCommit, Left, OwnCommit};
use tollgate::visible::plain;

use super::text::{count, quoted};

/// What was committed, or would be.
pub(crate) fn committed(commit: &OwnCommit) -> String {
    let files = count(commit.paths.len(), "file");
    let branch =
        commit.branch.as_ref().map_or("no branch".to_owned(), |branch| format!("`{}`", plain(branch)));
    let mut words = match &commit.commit {
        Some(id) => format!("committed {files} on {branch}: {}", id.get(..12).unwrap_or(id)),
        None => format!("would commit {files} on {branch}"),
    };
    for path in &commit.paths {
        words += &format!("\n  {}", plain(path));
    }
    words
}

/// Changes of the agent that were left. Empty if there are none.
pub(crate) fn left(left: &[Left]) -> String {
    if left.is_empty() {
        return String::new();
    }
    format!(
        "{}\nhint: agree with the other author on who commits these files; to see both changes, run `git diff HEAD -- {}`",
        left_lines(left),
        left.iter().map(|left| quoted(Path::new(&left.path))).collect::<Vec<_>>().join(" ")
    )
}

fn left_lines(left: &[Left]) -> String {
    let line = |left: &Left| {
        let other = match &left.agent {
            Some(agent) => format!("`{agent}`"),
            None => "a program that does not use tollgate".to_owned(),
        };
        format!("left `{}`, which {other} has changed, too: {}", plain(&left.path), left.why)
    };
    left.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Nothing of this agent can be committed.
pub(crate) fn nothing_to_commit(agent: &Agent, left: &[Left], is_in_run: bool) -> String {
    if !left.is_empty() {
        return format!("nothing was committed\n{}", self::left(left));
    }
    let hint = if is_in_run {
        "what this command itself has changed counts when the command has ended: run `tollgate commit` as a command of its own"
    } else {
        "only changes that were made through tollgate count; `--agent NAME` commits those of another name"
    };
    format!("nothing to commit: HEAD has everything that `{agent}` has changed here\nhint: {hint}")
}

/// Why the commit was not made.
pub(crate) fn not_committed(why: &CannotCommit) -> String {
    match why {
        CannotCommit::InProgress(what) => format!(
            "refused: a {what} is in progress in this working tree, and a commit would become part of it\n\
             hint: let whoever began the {what} finish it with git, or end it with `git {what} {}`",
            if *what == "bisect" { "reset" } else { "--abort" }
        ),
        CannotCommit::Moved => "refused: others commit, switch the branch or save these files all the time\n\
             hint: look at `git log`, then try again"
            .to_owned(),
        CannotCommit::IndexLocked(lock) => format!(
            "refused: another git has locked the index: {} exists\nhint: try again; if no git is running, delete this file",
            quoted(lock)
        ),
        CannotCommit::Git(said) => {
            let said = if said.is_empty() { String::new() } else { format!(": {}", plain(said)) };
            format!(
                "git did not make the commit{said}\nhint: fix what git or a hook of the repository said, then try again"
            )
        }
    }
}

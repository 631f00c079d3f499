//! What a change does to the work of others, and what the agent is told.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use tollgate_base::name::Agent;

/// What a change does to the work of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Harm {
    /// It destroys unfinished work.
    Destroyed,
    /// It commits unfinished work.
    Committed,
    /// It moves HEAD in a tree in which another agent works.
    HeadMoved,
    /// It commits to another branch than its author has seen.
    OtherBranch,
    /// It deletes a stash.
    StashDropped,
}

impl Harm {
    /// What happened and what to do, as sentences.
    pub(crate) fn words(self, agent: Option<&Agent>) -> (Cow<'static, str>, &'static str) {
        let whose = match agent {
            Some(agent) => format!("agent '{agent}'"),
            None => "a person, or of a program that does not use tollgate".to_owned(),
        };
        let (message, hint) = match self {
            Self::Destroyed => (
                format!(
                    "The file holds unfinished work of {whose}. It is in no commit, and you have not seen it."
                ),
                "Leave the file as it is, and limit your command to files of your own. If you must change it, read the \
                 whole file first, or look at its 'git diff', or ask whose work it is.",
            ),
            Self::Committed => (
                format!("The commit would contain unfinished work of {whose}, which you have not seen."),
                "Commit your own changes with 'tollgate commit -m MESSAGE'. If you were asked to commit everything, look \
                 at the whole file or at its 'git diff' first.",
            ),
            Self::HeadMoved => (
                format!("The command would move HEAD while work of {whose} is going on in this tree."),
                "Stay on this branch, and commit your own changes with 'tollgate commit -m MESSAGE'. For another branch, \
                 make a working tree of your own with 'git worktree add', or ask.",
            ),
            Self::OtherBranch => (
                "Somebody has switched the branch since your turn began.".to_owned(),
                "Look at 'git status'. If the commit belongs to this branch, commit again; otherwise ask.",
            ),
            Self::StashDropped => (
                format!("The command would delete a stash, which is unfinished work of {whose}."),
                "Leave the stash where it is, or ask whose it is. 'git stash apply' brings its content and keeps it.",
            ),
        };
        (message.into(), hint)
    }
}

/// Whose unfinished work it is, in JSON.
pub(crate) fn unfinished_work(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "properties": {
            "agent": {"type": ["string", "null"]},
            "since": {"type": ["string", "null"], "format": "date-time"},
        },
        "required": ["agent", "since"],
        "additionalProperties": false,
    })
}

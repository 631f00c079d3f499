//! Usage errors: what is wrong with a call, and how to call it instead.

use std::fmt::Display;

use serde_json::{Value, json};
use tollgate::digest::NotADigest;
use tollgate::error::Fault;
use tollgate::visible::plain;

use super::text::{count, quoted, word};
use crate::error::UsageError;

/// The message and the hint of a usage error.
pub(super) fn usage(error: &UsageError) -> (String, String) {
    use UsageError as E;
    let (message, hint): (String, String) = match error {
        E::NoTurn => (
            "no turn given".into(),
            "start one with `tollgate turn begin`, then give `--turn ID` or set `TOLLGATE_TURN`".into(),
        ),
        E::OtherName { own, given } => (
            format!("this command runs for `{own}`, and would act under the name `{given}`"),
            format!("run it with `--agent {own}`"),
        ),
        E::NotInRun => (
            "this command does not work inside `tollgate run`".into(),
            "run it outside, or ask a person to run it in their own terminal".into(),
        ),
        E::NoDoor(why) => (
            format!("the process in front of this run, which alone can change tasks and state, cannot be reached: {why}"),
            "call `tollgate` before the command ends, from a process that may open sockets; otherwise run it outside of \
             `tollgate run`"
                .into(),
        ),
        E::TurnOfAnother { turn, owner, agent } => (
            format!("the turn `{turn}` belongs to `{owner}`, not to `{agent}`"),
            format!("omit `--agent`, or start a turn with `tollgate turn begin --agent {agent}`"),
        ),
        E::BadVariable { name, why } => (bad_variable(name, why), UNSET_IT.into()),
        E::UnpairedEdits { old, new } => (
            format!("{} but {}", count(*old, "old text"), count(*new, "new text")),
            "give one `--new` for each `--old`, in the same order; `--new ''` deletes the old text".into(),
        ),
        E::BadChanges(error) => (
            format!("standard input is not a list of changes: {error}"),
            "give a JSON list such as `[{\"path\":\"a.md\",\"content\":\"new\"}]`; see `tollgate apply --help`"
                .into(),
        ),
        E::NotOneAction { index, actions } => (
            match actions {
                0 => format!("change {} of the list has no action", index + 1),
                _ => format!("change {} of the list has {actions} actions", index + 1),
            },
            "give exactly one of `content`, `content_base64`, `edits`, `delete` and `move_to`".into(),
        ),
        E::NotBase64 { index } => (
            format!("`content_base64` or `path_base64` of change {} of the list is not base64", index + 1),
            "use the standard alphabet with padding and no line breaks, or give text as `content`".into(),
        ),
        E::NotOnePath { index } => (
            format!("change {} of the list has no path, or two", index + 1),
            "give exactly one of `path` and `path_base64`".into(),
        ),
        E::NoSuchHost(name) => (
            format!("unknown agent program `{}`", plain(name)),
            "run `tollgate hook --help` to see all agent programs".into(),
        ),
        E::HomeIsTheWorkspace(root) => (
            format!(
                "this folder belongs to the workspace `{}`, which contains your home folder",
                root.display()
            ),
            "run `tollgate init -C .` to set up this folder instead".into(),
        ),
        E::VaultOfMainTree(main) => (
            format!("this git worktree shares the vault of `{}`", main.display()),
            format!(
                "run `tollgate init --vault -C {}` to create or change it; for a vault of this tree alone, set `tree = \"own\"` under `[vault]` in \
                 `.tollgate/config.toml` first",
                quoted(main)
            ),
        ),
        E::HasHooks(host) => (
            format!(
                "`{host}` has hooks here; with the MCP server as well, tollgate would check each write of its agent twice"
            ),
            format!(
                "first remove the hooks with `tollgate init --host {host} --remove`, or, if you want both, run \
                 `tollgate init --host {host} --mcp {host}`"
            ),
        ),
        E::HasServer(host) => (
            format!(
                "`{host}` has the MCP server here; with hooks as well, tollgate would check each write of its agent twice"
            ),
            format!(
                "first remove the server with `tollgate init --mcp {host} --remove`, or, if you want both, run \
                 `tollgate init --host {host} --mcp {host}`"
            ),
        ),
        E::VaultNameIsNotText => {
            ("the name of the vault's folder is not UTF-8".into(), "choose another name".into())
        }
        E::NameTheVaultYourself(dir) => (
            "could not add the vault to `.tollgate/config.toml`, so nothing was changed: the file names another vault, or has an \
             unusual form"
                .into(),
            format!("set `dir = \"{}\"` under `[vault]` in that file, then run the command again", plain(dir)),
        ),
        E::ChooseTheStoreYourself(store) => (
            "could not add the store to `.tollgate/config.toml`, so nothing was changed: the file names another store, or has \
             an unusual form"
                .into(),
            format!("set `store = \"{}\"` under `[vault]` in that file", plain(store)),
        ),
        E::PasswordInAddress { user, password } => (
            "the address of the store has a password, which others could read".into(),
            format!("delete the password from the address, and set `{user}` and `{password}` in your environment"),
        ),
        E::TooLargeForJson(path) => (
            format!("`{}` has more than 256 MiB, too much for one JSON document", plain(&path.to_string_lossy())),
            "read a part with `--lines`, or without `--json`".into(),
        ),
        E::NoClaimId => (
            "no claim ID given".into(),
            "give `--claim-id ID`, as `task claim` printed it, or set `TOLLGATE_CLAIM_ID`".into(),
        ),
        E::BadTitle => (
            "the title is empty, or has more than one line".into(),
            "give one line; put more text into `--body`".into(),
        ),
        E::BadTask(why) => {
            (format!("an agent could not read this task: {why}"), "change the body or the options".into())
        }
        E::BadTaskOption { option, value } => (
            format!("invalid `--{option}`: `{}`", plain(value)),
            match *option {
                "due" => "give a day or a time, such as `2026-12-01` or `2026-12-01T09:00:00Z`",
                _ => "choose a simpler text, without spaces at its start or end",
            }
            .into(),
        ),
        E::ImportNeedsAFile => (
            "the source is a folder".into(),
            "give the file of the tracker, or omit `--from` for a folder of Backlog.md".into(),
        ),
        E::ImportNeedsAFolder => (
            "the source is not a folder".into(),
            "give the `backlog` folder of Backlog.md".into(),
        ),
        E::NothingToImport(folder) => (
            format!("`{}` has no tasks of Backlog.md: no folder `tasks`, and no Markdown files", plain(&folder.to_string_lossy())),
            "give the `backlog` folder of Backlog.md, or the file of another tracker; see `tollgate task import --help`".into(),
        ),
        E::BadEdit(why) => (format!("an agent could not read this task: {why}"), "correct the text".into()),
        E::EmptyEdit(task) => (
            "the new text is empty, so nothing was changed".into(),
            format!("to drop the task, run `tollgate task reject {} --reason TEXT`", word(task.stem())),
        ),
        E::EditorFailed(editor) => (
            format!("the editor `{}` failed, so nothing was changed", plain(editor)),
            "set `VISUAL` or `EDITOR` to the command of your editor, which must wait until you have closed the file"
                .into(),
        ),
        E::DraftIsNotText => ("the draft is not UTF-8".into(), "give the draft as text in UTF-8".into()),
        E::NoText(what) => (format!("the {what} is empty"), format!("give the text of the {what}")),
        E::FailedIsNotDone => (
            "failed work cannot go to `Done`".into(),
            "omit `--to` for another attempt, or give `--to Rejected` or `--to Pending_Approval`".into(),
        ),
        E::NobodyDecides => (
            "`--by` is empty".into(),
            "give the name of the person who decides, or omit `--by` to use your user name".into(),
        ),
        E::NoGitSync => (
            "the vault of this workspace has no remote".into(),
            "put the vault into a git clone and set `sync = \"git\"` under `[vault]` in `.tollgate/config.toml`".into(),
        ),
        E::NoView => (
            "this workspace has no folder view of an engine".into(),
            "name an engine as `store` and set `view = true` under `[vault]` in `.tollgate/config.toml`".into(),
        ),
        E::BadSince(text) => (
            format!("`{}` is neither a line number nor a time", plain(text)),
            "give a `seq` of the ledger, or a time such as `2026-11-16T12:00:00Z`".into(),
        ),
        E::OutInState => (
            "`--out` is in tollgate's own folder".into(),
            "choose a file outside of `.tollgate`".into(),
        ),
        E::BadHeaders(variable) => (
            format!("`{variable}` is not a list of headers"),
            "write it as `name=value,name=value`, with special characters as `%20`".into(),
        ),
        E::NoSuchProgram(program) => (
            format!("command not found: `{}`", plain(&program.to_string_lossy())),
            "check the name and `PATH`; for shell built-ins use `sh -c '...'`".into(),
        ),
        E::TokenNeeded => (
            "a server that other machines can reach needs a token".into(),
            "set `TOLLGATE_TOKEN` to a long random text, or omit `--listen`".into(),
        ),
        E::BadToken => (
            "`TOLLGATE_TOKEN` is not UTF-8".into(),
            "use letters and digits, for example the output of `openssl rand -hex 16`".into(),
        ),
        E::WeakToken(why) => (
            why.to_string(),
            "use the output of `openssl rand -hex 16`, or omit the token: `tollgate serve` then makes one".into(),
        ),
        E::AgentsGetTokens => (
            "agents may not manage tokens".into(),
            "ask a person to run this command outside the agent".into(),
        ),
        E::AgentsDoNotCopy => (
            "agents may not copy vaults".into(),
            "ask a person to run this command outside the agent".into(),
        ),
        E::SameStore(store) => (
            format!("`{}` is the store of this workspace already, so there is nothing to copy", plain(store)),
            "give another store; `tollgate vault --help` says which there are".into(),
        ),
        E::TokenExists(name) => (
            format!("there already is a token for `{name}`, and its secret cannot be shown again"),
            format!("run `tollgate token remove {name}` first, or choose another name"),
        ),
        E::NoPlaceForTokens => (
            "there is no folder for tokens, because neither `HOME` nor `XDG_STATE_HOME` is set".into(),
            "set `HOME` to your home folder".into(),
        ),
        E::AgentsDoNotServe => (
            "agents may not start the dashboard, because approvals are made there".into(),
            "start it outside the agent, or unset `TOLLGATE_AGENT`".into(),
        ),
        E::BadPayload { host, what } => (
            format!("cannot understand the input that `{host}` sent to its hook: {what}"),
            "check that `tollgate init --host` was run for this program, and that tollgate supports its version".into(),
        ),
        E::HookFailed(what) => (
            format!("the tollgate hook failed: {what}"),
            "run `tollgate doctor` to find the reason; `on_fault = \"allow\"` under `[hooks]` lets such writes through"
                .into(),
        ),
        E::HookTooSlow(deadline) => (
            format!("no answer within {} ms", deadline.as_millis()),
            "try again in a moment; if it fails again, run `tollgate doctor`".into(),
        ),
    };
    (message, hint)
}

/// What to do about a variable that is not valid.
pub(super) const UNSET_IT: &str = "set the variable to a valid value, or unset it";

pub(crate) fn bad_variable(name: &str, why: &Fault) -> String {
    format!("invalid `{name}`: {why}")
}

/// A usage error in JSON, from the text that clap prints: the error, perhaps tips, the usage.
pub(crate) fn parse_error_json(text: &str) -> Value {
    let one_line = |text: &str| plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut paragraphs = text.split("\n\n");
    let message = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|paragraph| paragraph.trim_start().strip_prefix("tip: "));
    json!({
        "error": "USAGE",
        "message": one_line(message.strip_prefix("error: ").unwrap_or(message)),
        "hint": tip.map_or_else(|| "run the command with `--help` to see how to call it".to_owned(), one_line),
    })
}

/// The command that a person probably wants, who tries a name that other programs have for it.
pub(crate) fn other_command(tried: &str) -> Option<String> {
    let command = match tried {
        "log" | "logs" | "history" | "tail" => "tollgate ledger tail",
        "list" | "ls" | "tasks" | "board" => "tollgate task list",
        "restore" | "revert" | "rollback" | "checkout" => "tollgate undo",
        "recover" => "tollgate recovery list",
        "add" | "new" => "tollgate task add TITLE",
        "show" => "tollgate task show TASK",
        "claim" => "tollgate task claim --next --agent NAME",
        "release" | "done" => "tollgate task release TASK --claim-id ID",
        "approve" | "reject" | "retry" => {
            return Some(format!("to do that, run `tollgate task {tried} TASK`"));
        }
        "check" | "verify" | "health" => "tollgate doctor",
        "info" | "ps" | "agents" | "who" => "tollgate status",
        "dashboard" | "web" | "ui" | "server" | "start" => "tollgate serve",
        "setup" | "install" | "hooks" | "guard" => "tollgate init --host HOST",
        "uninstall" => "tollgate init --host HOST --remove",
        "cat" => "tollgate read FILE",
        "rm" | "remove" => "tollgate delete FILE",
        "mv" | "rename" => "tollgate move FILE TO",
        "exec" => "tollgate run -- COMMAND",
        _ => return None,
    };
    Some(format!("to do that, run `{command}`"))
}

// Messages for values that clap cannot parse. Clap prints them.

pub(crate) fn bad_expectation(error: &NotADigest) -> String {
    format!("{error}; or give `absent` if the file must not exist")
}

pub(crate) fn bad_line_number(text: &str) -> String {
    format!("`{}` is not a line number; give lines from 1, as in `10:20`, `10:` or `:20`", plain(text))
}

pub(crate) fn bad_number(text: &str, least: impl Display, most: impl Display) -> String {
    format!("`{}` is not a whole number from {least} to {most}", plain(text))
}

pub(crate) fn lines_backwards(from: usize, to: usize) -> String {
    format!("line {to} comes before line {from}; give the smaller number first")
}

//! Trust: what the user is asked to agree to, and what is ignored without an agreement.

use std::path::Path;

use tollgate::error::Fault;
use tollgate::visible::plain;

use super::task::unrendered;
use super::text::{Viewpoint, shown};
use crate::error::NoPerson;
use crate::trust::{Configured, FolderContent, OutsideFolder};

pub(crate) const TRUST_QUESTION: &str = "trust exactly this? type `yes` to trust it:";

pub(crate) const NOT_TRUSTED: &str = "the answer was not `yes`, so nothing new is trusted";

/// Why nobody can agree here.
pub(crate) fn nobody_trusts(why: &NoPerson) -> String {
    match why {
        NoPerson::Agent(agent) => format!("`{}` is an agent, and only people trust commands", plain(agent)),
        NoPerson::InRun => "only people trust commands, and this is a command of `tollgate run`".into(),
        NoPerson::NoTerminal => {
            "only people trust commands, and no person can read and type here: standard input or standard error is not \
             a terminal"
                .into()
        }
    }
}

pub(crate) fn trust_refused(message: &str) -> String {
    format!("refused: {}\nhint: a person can run `tollgate trust` in their own terminal", plain(message))
}

/// What the user is asked to agree to.
pub(crate) fn to_trust(
    view: &Viewpoint,
    root: &Path,
    configured: &Configured,
    stranger: Option<u32>,
) -> String {
    let mut words = format!("the workspace `{}`", shown(view, root));
    if let Some(owner) = stranger {
        words += &format!("\nits state in `.tollgate` belongs to another user, with the id {owner}");
    }
    words += &format!("\nits configuration `{}`:\n\n", shown(view, &configured.path));
    words += &unrendered(&configured.bytes);
    words += "\n--- end of the configuration";
    for (extension, command) in &configured.commands {
        words += &format!("\ncommand for `*.{}`: {}", plain(extension), quoted(command));
    }
    let notify = &configured.notify;
    if !notify.command.is_empty() {
        words += &format!("\ncommand for notices: {}", quoted(&notify.command));
    }
    if let Some(webhook) = &notify.webhook {
        words += &format!("\naddress for notices: {}", plain(webhook));
    }
    if configured.commands.is_empty() && !notify.is_set() {
        words += "\nit has no commands";
    }
    if let Some(engine) = &configured.engine {
        words += &format!(
            "\naddress for tasks: `{}`, which gets your credentials: `TOLLGATE_STORE_PASSWORD`, the password file of PostgreSQL, \
             the certificate that the address names",
            plain(engine)
        );
    }
    for OutsideFolder { holds, path } in &configured.outside {
        words += &format!("\nfolder outside the workspace for {}: `{}`", held(*holds), shown(view, path));
    }
    words
}

pub(crate) fn held(holds: FolderContent) -> &'static str {
    match holds {
        FolderContent::Vault => "tasks",
        FolderContent::Logs => "the logs of agents",
    }
}

/// The logs are not where the configuration says.
pub(crate) fn untrusted_log(folder: &Path) -> String {
    format!(
        "note: the logs of agents are in your own state folder, and not in `{}`, which is outside the workspace: you have not \
         trusted it\nhint: read the configuration, then run `tollgate trust`",
        plain(&folder.to_string_lossy())
    )
}

fn quoted(command: &[String]) -> String {
    command.iter().map(|word| format!("`{}`", plain(word))).collect::<Vec<_>>().join(" ")
}

pub(crate) fn trusted(view: &Viewpoint, root: &Path) -> String {
    format!("trusted the configuration of `{}` as it is now", shown(view, root))
}

pub(crate) fn forgotten(view: &Viewpoint, root: &Path, was_trusted: bool) -> String {
    let root = shown(view, root);
    if was_trusted { format!("`{root}` is no longer trusted") } else { format!("`{root}` was not trusted") }
}

/// State above the current folder that was ignored.
pub(crate) fn ignored_state(root: &Path, owner: u32) -> String {
    format!(
        "note: ignored the workspace `{}`: its `.tollgate` belongs to another user, with the id {owner}\n\
         hint: if you trust that user, run `tollgate trust -C {}`",
        plain(&root.to_string_lossy()),
        super::text::quoted(root)
    )
}

/// The fault of a login of which only one half is set.
pub(crate) fn half_a_login(set: &str, missing: &str) -> String {
    format!("`{set}` is set and `{missing}` is not: set both, or none of them")
}

/// The fault of a workspace whose state belongs to somebody else.
pub(crate) fn foreign_state(root: &Path, owner: u32) -> Fault {
    let root = plain(&root.to_string_lossy());
    Fault::invalid_with_hint(
        format!("`{root}/.tollgate` belongs to another user, with the id {owner}"),
        "if you trust that user, run `tollgate trust` in your own terminal",
    )
}

/// For the agent: a formatter that was not run.
pub(crate) fn hook_untrusted() -> &'static str {
    "\nThe formatter for this file in `.tollgate/config.toml` was not run, because no person has trusted it: a person can \
     read the file and run `tollgate trust`."
}

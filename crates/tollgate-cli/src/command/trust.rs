//! `tollgate trust`: the user agrees to the commands in this workspace's configuration, and to an owner of its state.

use clap::Args;
use serde_json::json;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::person::Person;
use crate::trust::Configured;
use crate::words;

/// Trust the commands, addresses and folders in this workspace's configuration
///
/// `.tollgate/config.toml` may come from somebody else, with a clone or a pull. tollgate runs its formatters and its notify
/// command, and sends notices to its webhook, only after you have agreed to exactly this file: if it changes, you are asked
/// again. Your passwords and keys go only to an engine whose address you have agreed to, and a vault or a folder for logs outside
/// the workspace is used only if you have agreed to that folder. What is in your own configuration,
/// `~/.config/tollgate/config.toml`, needs no agreement. If the state belongs to another user, tollgate ignores it until you
/// have agreed to that, too.
///
/// Shows the configuration and asks, so it needs a terminal. Agents cannot run it.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate trust\n  tollgate trust --remove")]
pub(crate) struct TrustArgs {
    /// Withdraw your agreement
    #[arg(long)]
    remove: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &TrustArgs) -> Result<Answer, CliError> {
    let (root, store) = (invocation.own_root()?, invocation.trust());
    let person = match Person::here(invocation) {
        Ok(person) => person,
        Err(why) => return Ok(refused(why.word(), &words::nobody_trusts(&why))),
    };
    let configured = Configured::read(&root)?;
    let json = |trusted: bool| {
        json!({
            "workspace": root.to_string_lossy(),
            "config": configured.path.to_string_lossy(),
            "sha256": configured.digest(),
            "trusted": trusted,
            "commands": configured.commands,
            "engine": configured.engine,
            "folders": configured.outside.iter().map(|folder| folder.path.to_string_lossy()).collect::<Vec<_>>(),
        })
    };
    if args.remove {
        let words = words::forgotten(&invocation.viewpoint(), &root, store.forget(&root)?);
        return Ok(Answer::Done(Reply::new(words, json(false))));
    }
    let text = words::to_trust(&invocation.viewpoint(), &root, &configured, store.stranger(&root));
    if !person.agrees(&text, words::TRUST_QUESTION)? {
        return Ok(refused("not_confirmed", words::NOT_TRUSTED));
    }
    store.agree(&root, &configured)?;
    let words = words::trusted(&invocation.viewpoint(), &root);
    Ok(Answer::Done(Reply::new(words, json(true))))
}

fn refused(reason: &str, message: &str) -> Answer {
    Answer::NotValid(Reply::noted(
        words::trust_refused(message),
        json!({"trusted": false, "refused": true, "reason": reason, "message": message}),
    ))
}

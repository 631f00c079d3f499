//! `tollgate token`: the tokens with which agents and monitoring programs visit `tollgate serve`.

use clap::{Args, Subcommand};
use serde_json::json;
use tollgate::error::{Fault, MissingKind};
use tollgate::name::Agent;
use tollgate_server::tokens::{Token, TokenFile, TokenScope};

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Add, list and remove the tokens of agents and monitoring programs
///
/// With a token, a program uses `tollgate serve`. Each agent gets its own token, for this workspace. The token's name is the
/// agent's name, and the agent cannot choose another. An agent's token opens `/mcp` only: no agent can see the dashboard or
/// decide about a task. tollgate shows a token once and keeps only its hash, in your own state folder. A running server knows
/// at once which tokens were added and removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate token add blue
  tollgate token list
  tollgate token remove blue")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token for an agent or a monitoring program, and print it; it is not shown again
    #[command(after_help = "Example\n  tollgate token add blue\n  tollgate token add prometheus --monitor")]
    Add {
        /// Name of the agent or the monitoring program
        name: Agent,
        /// The token opens `/health` and `/metrics` instead; needed only if the server listens beyond loopback
        #[arg(long)]
        monitor: bool,
    },
    /// List all tokens of this workspace, without their secrets
    #[command(after_help = "Example\n  tollgate token list --json")]
    List,
    /// Remove a token; a running server no longer accepts it
    #[command(after_help = "Example\n  tollgate token remove blue")]
    Remove {
        /// Name of the agent or the monitoring program
        name: Agent,
    },
}

pub(crate) fn run(invocation: &Invocation, args: &TokenArgs) -> Result<Answer, CliError> {
    if invocation.inside_an_agent().is_some() {
        return Err(CliError::usage(
            "agents may not manage tokens",
            "ask a person to run this command outside the agent",
        ));
    }
    let file = invocation.token_file(&invocation.root()?.0)?.ok_or_else(|| {
        CliError::usage(
            "there is no folder for tokens, because neither `HOME` nor `XDG_STATE_HOME` is set",
            "set `HOME` to your home folder",
        )
    })?;
    let said = match &args.command {
        TokenCommand::Add { name, monitor } => {
            let opens = if *monitor { TokenScope::Figures } else { TokenScope::Mcp };
            add(invocation, &file, name, opens)?
        }
        TokenCommand::List => {
            let tokens = file.list()?;
            let row = |token: &Token| json!({"name": token.name, "opens": token.opens, "added": token.added});
            Reply::new(words::tokens(&tokens), tokens.iter().map(row).collect())
        }
        TokenCommand::Remove { name } => {
            if !file.remove(name)? {
                return Err(Fault::missing(MissingKind::Token, format!("the token of `{name}`")).into());
            }
            Reply::new(words::token_removed(name), json!({"name": name, "removed": true}))
        }
    };
    Ok(Answer::Done(said))
}

fn add(
    invocation: &Invocation,
    file: &TokenFile,
    name: &Agent,
    opens: TokenScope,
) -> Result<Reply, CliError> {
    let Some(secret) = file.add(name, opens, invocation.now())? else {
        return Err(CliError::usage(
            format!("there already is a token for `{name}`, and its secret cannot be shown again"),
            format!("run `tollgate token remove {name}` first, or choose another name"),
        ));
    };
    Ok(Reply {
        // Alone on stdout, so that `$(tollgate token add blue)` is the token.
        words: secret.reveal().to_owned(),
        notes: words::token_added(name, opens),
        json: json!({"name": name, "opens": opens, "token": secret.reveal()}),
    })
}

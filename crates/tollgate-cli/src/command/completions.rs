//! `tollgate completions`: a script for a shell's completion.

use clap::Args;
use clap_complete::Shell;
use serde_json::json;

use crate::answer::{Answer, Said};
use crate::error::CliError;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh  > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// The completions of this command line.
pub(crate) fn run(args: &CompletionsArgs, mut command_line: clap::Command) -> Result<Answer, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line, "tollgate", &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    let json = json!({"shell": args.shell.to_string(), "script": script});
    Ok(Answer::Done(Said { words: script, json, ..Said::default() }))
}

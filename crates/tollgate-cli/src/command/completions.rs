//! `tollgate completions`: what a shell needs to complete our words.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::answer::{Answer, Said, Stop};
use crate::arguments::Arguments;
use crate::door::Door;

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh  > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct Wish {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(_: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let mut script = Vec::new();
    clap_complete::generate(wish.shell, &mut Arguments::command(), "tollgate", &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    let json = json!({"shell": wish.shell.to_string(), "script": script});
    Ok(Answer::Done(Said { words: script, json, ..Said::default() }))
}

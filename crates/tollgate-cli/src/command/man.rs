//! `tollgate man`: one man page for each command.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate::error::Fault;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::words;

/// Write man pages into a folder, one for each command
///
/// The folder is created if it does not exist.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate man ~/.local/share/man/man1
  man tollgate-task-claim")]
pub(crate) struct ManArgs {
    /// The folder
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs, command_line: clap::Command) -> Result<Answer, CliError> {
    let folder = &args.folder;
    let fault = |source| Fault::Io { doing: "write man pages to", path: folder.clone(), source };
    fs::create_dir_all(folder).map_err(fault)?;
    clap_mangen::generate_to(command_line, folder).map_err(fault)?;
    let ours = |name: &str| name.starts_with("tollgate") && name.ends_with(".1");
    let names = fs::read_dir(folder).map_err(fault)?.flatten().map(|entry| entry.file_name());
    let pages = names.filter(|name| name.to_str().is_some_and(ours)).count();
    let json = json!({"folder": folder.to_string_lossy(), "pages": pages});
    Ok(Answer::Done(Reply::new(words::man_pages(folder, pages), json)))
}

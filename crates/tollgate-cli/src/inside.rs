//! `tollgate` inside a run: which calls work in the view of the run, and which the process in front of the run carries out.
//!
//! A command in a run cannot change tollgate's state or the tasks. So `tollgate` there passes its call through the door of the
//! run, and the front starts a [carrier](crate::carrier) for it, outside.

use std::env;
use std::ffi::OsString;
use std::io;
use std::iter;
use std::process::ExitCode;

use clap::Parser;
use tollgate_run::door::{self, CarriedCall};

use crate::carrier::PASSED;
use crate::command::{Arguments, Command as Called, RunAccess};
use crate::error::CliError;
use crate::invocation::Invocation;

/// What becomes of a call.
pub(crate) enum Passage {
    /// This process carries it out.
    Here,
    /// Another process has carried it out.
    Carried(ExitCode),
}

/// Passes a call through the door, if it is made in a run and cannot work there.
pub(crate) fn pass(invocation: &Invocation, command: &Called) -> Result<Passage, CliError> {
    if let Some(own) = invocation.carried_for()?
        && let Some(given) = invocation.named_agent().filter(|given| **given != own)
    {
        return Err(CliError::usage(
            format!("this command runs for `{own}`, and would act under the name `{given}`"),
            format!("run it with `--agent {own}`"),
        ));
    }
    if invocation.surroundings().run.is_none() {
        return Ok(Passage::Here);
    }
    match command.in_run() {
        RunAccess::Here | RunAccess::OnView => Ok(Passage::Here),
        RunAccess::Never => Err(CliError::usage(
            "this command does not work inside `tollgate run`",
            "run it outside, or ask a person to run it in their own terminal",
        )),
        RunAccess::Carried => match carry(invocation) {
            Ok(code) => Ok(Passage::Carried(code.into())),
            // The filter lets tollgate change its state.
            Err(_) if tollgate_run::is_without_door() => Ok(Passage::Here),
            Err(error) => Err(CliError::usage(
                format!(
                    "the process in front of this run, which alone can change tasks and state, cannot be reached: {error}"
                ),
                "call `tollgate` before the command ends, from a process that may open sockets; otherwise run it outside of \
                 `tollgate run`",
            )),
        },
    }
}

/// Whether the front carries out a call with these arguments. `main` recognises some calls before clap does; clap knows none of them.
pub(crate) fn is_carried(arguments: &[OsString]) -> bool {
    let words = iter::once(OsString::new()).chain(arguments.iter().cloned());
    Arguments::try_parse_from(words).is_ok_and(|call| call.command.in_run() == RunAccess::Carried)
}

fn carry(invocation: &Invocation) -> io::Result<u8> {
    let folder = invocation.surroundings().run_folder.clone().ok_or(io::ErrorKind::NotFound)?;
    let variable = |name: &&str| Some((OsString::from(*name), env::var_os(name)?));
    let call = CarriedCall {
        folder: env::current_dir()?,
        variables: PASSED.iter().filter_map(variable).collect(),
        arguments: env::args_os().skip(1).collect(),
    };
    door::call(&folder, &call)
}

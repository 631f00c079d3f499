//! The command `tollgate`: parse, run one command, print its answer.
//!
//! Imports go one way: `command/` -> `invocation` -> `words/` -> `answer`, `error`, `report/`. Only `surroundings` reads the
//! environment.
//!
//! Two calls do not go through clap. A hook runs before and after every tool of an agent, and building the whole command
//! line would double its time. `launch` is for `tollgate work` alone, so no help, completion or typo hint mentions it.

mod agent_log;
mod answer;
mod carrier;
mod command;
mod error;
mod global_args;
mod hook;
mod host;
mod inside;
mod invocation;
mod ledger_watch;
mod output;
mod pager;
mod paint;
mod person;
mod prefixed;
mod progress;
mod replace;
mod report;
mod root;
mod run_turn;
mod session_turns;
mod surroundings;
mod tasks;
mod trust;
mod turn_place;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use answer::Form;
use command::{Arguments, completions, hook as hook_command, launch, warden};
use inside::Passage;
use invocation::Invocation;
use surroundings::Surroundings;

fn main() -> ExitCode {
    if let Some(host) = hook_command::called_plainly(std::env::args_os()) {
        return hook_command::run_at_once(host);
    }
    if let Some(launch) = launch::called(std::env::args_os()) {
        return launch.run();
    }
    if warden::is_called(std::env::args_os()) {
        return warden::run();
    }
    if carrier::is_carrier(std::env::args_os()) {
        return carrier::become_called(inside::is_carried);
    }
    completions::answer_a_shell(Arguments::command);
    let Arguments { global, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::print_parse_error(error, &Arguments::command(), std::env::args_os()),
    };
    let invocation = Invocation::new(Surroundings::look(), global);
    let answer = match inside::pass(&invocation, &command) {
        Ok(Passage::Carried(code)) => return code,
        Ok(Passage::Here) => command.run(&invocation),
        Err(error) => Err(error),
    };
    if let Some(root) = invocation.created() {
        output::tell(&words::created_state(root));
    }
    if invocation.form() == Form::Words {
        invocation
            .ignored()
            .iter()
            .for_each(|(root, owner)| output::tell(&words::ignored_state(root, *owner)));
    }
    let code = output::print(&invocation.viewpoint(), invocation.form(), &answer);
    if invocation.form() == Form::Words {
        output::tell(&invocation.notes());
    }
    code
}

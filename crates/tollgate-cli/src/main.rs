//! The command `tollgate`: parse, do one thing, say what came of it.
//!
//! Data goes one way: arguments and surroundings -> door -> one command -> answer -> print. Every sentence that a
//! person reads is worded in [`words`], every variable of the environment is read in [`surroundings`].

mod agent_log;
mod answer;
mod arguments;
mod base64;
mod command;
mod door;
mod hook;
mod host;
mod surroundings;
mod tasks;
mod terminal;
mod words;

use std::process::ExitCode;

use clap::Parser;

use answer::{Answer, Stop};
use arguments::{Arguments, Command};
use command::{
    apply, completions, create, delete, doctor, edit, hook as hook_command, init, ledger, mcp, move_file,
    read, recovery, serve, sync, task, turn, work, write,
};
use door::Door;
use surroundings::Surroundings;

fn main() -> ExitCode {
    // Called before and after every tool of an agent: to build the whole command line would cost as much as the hook.
    if let Some(host) = hook_command::called_plainly(std::env::args_os()) {
        return hook_command::run_at_once(host);
    }
    let Arguments { everywhere, command } = Arguments::parse();
    let door = Door::new(Surroundings::look(), everywhere);
    let answer = run(&door, command);
    answer::print(&door, &answer)
}

fn run(door: &Door, command: Command) -> Result<Answer, Stop> {
    match command {
        Command::Init(wish) => init::run(door, &wish),
        Command::Turn(wish) => turn::run(door, &wish),
        Command::Read(wish) => read::run(door, &wish),
        Command::Write(wish) => write::run(door, &wish),
        Command::Edit(wish) => edit::run(door, wish),
        Command::Create(wish) => create::run(door, &wish),
        Command::Delete(wish) => delete::run(door, &wish),
        Command::Move(wish) => move_file::run(door, &wish),
        Command::Apply(wish) => apply::run(door, &wish),
        Command::Task(wish) => task::run(door, &wish),
        Command::Work(wish) => work::run(door, &wish),
        Command::Sync(wish) => sync::run(door, &wish),
        Command::Launch(wish) => work::launch(&wish),
        Command::Mcp(wish) => mcp::run(door, &wish),
        Command::Serve(wish) => serve::run(door, &wish),
        Command::Recovery(wish) => recovery::run(door, &wish),
        Command::Ledger(wish) => ledger::run(door, &wish),
        Command::Hook(wish) => hook_command::run(door, &wish),
        Command::Doctor(wish) => doctor::run(door, &wish),
        Command::Completions(wish) => completions::run(door, &wish),
    }
}

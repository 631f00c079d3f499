//! `tollgate-stress`: agents, outsiders, kills and faults against each other, and a verdict.
//!
//! The campaign goes in rounds. Each round has new folders, so that disk and memory stay small however long it lasts. All
//! participants are processes of their own and write down what they did. At the end of a round the records are compared with the
//! files and with the ledger, by `tollgate ledger audit`. Naive protocols run beside as controls: if they lose nothing, the
//! campaign was too gentle to prove much.
//!
//! Exit status: 0 if all promises were kept, 1 if one was broken, 2 if the campaign could not run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports to people")]

mod arena;
mod chance;
mod control;
mod engine;
mod open_files;
mod participant;
mod report;
mod round;
mod tally;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use tollgate::error::Result;

use arena::Arena;
use engine::Engines;
use report::Report;

#[derive(Parser)]
#[command(about = "Stress tollgate with agents, outsiders, kills and faults; exit 1 if a promise is broken")]
struct Cli {
    /// How long the campaign lasts
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of all random choices. The order of processes is up to the kernel
    #[arg(long)]
    seed: Option<u64>,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
    /// Where the tasks are
    #[arg(long, value_delimiter = ',', default_value = "folder,git,etcd,postgres")]
    stores: Vec<StoreKind>,
    /// A folder on the file system to test [default: the system's folder for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Add a participant that breaks the rules, to see that the campaign notices it
    #[arg(long)]
    rogue: Option<Rogue>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreKind {
    Folder,
    Git,
    Etcd,
    Postgres,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rogue {
    /// Overwrites guarded files by check and rename, and says that tollgate did it
    Files,
    /// Works on tasks that others have claimed
    Tasks,
}

/// What a process of the campaign does.
#[derive(Subcommand)]
#[command(hide = true)]
enum Role {
    /// Reads and writes files
    Agent(participant::AgentArgs),
    /// Claims, works, releases
    Worker(worker::WorkerArgs),
    /// A naive protocol
    Control(control::ControlArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.role {
        Some(Role::Agent(agent)) => agent.run().map(|()| ExitCode::SUCCESS),
        Some(Role::Worker(worker)) => worker.run().map(|()| ExitCode::SUCCESS),
        Some(Role::Control(control)) => control.run().map(|()| ExitCode::SUCCESS),
        None => campaign(&cli),
    };
    done.unwrap_or_else(|fault| {
        eprintln!("error: {fault}");
        ExitCode::from(2)
    })
}

/// The longest round. A shorter one spends its time on starting processes, a longer one fills the disk.
const ROUND: Duration = Duration::from_secs(15);

fn campaign(cli: &Cli) -> Result<ExitCode> {
    let seed = cli.seed.unwrap_or_else(chance::seed);
    let began = Instant::now();
    let whole = Duration::from_secs(cli.seconds.max(1));
    let engines = Engines::start(&cli.stores);
    let mut report = Report::new(seed, &engines);
    let progress = report::Progress::new(cli.json);
    let mut number = 0;
    while let Some(left) = whole.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        // The last round is not much shorter than the others.
        let length = if left < ROUND * 3 / 2 { left } else { ROUND };
        let round = Arena::new(cli.dir.as_deref(), seed.wrapping_add(number), number, cli.rogue)?;
        round::run(&round, length, &engines, &mut report, &|| progress.show(began.elapsed(), whole))?;
        number += 1;
        report.rounds = number;
    }
    drop(progress);
    report.seconds = began.elapsed().as_secs();
    if cli.json {
        println!("{}", report.json());
    } else {
        println!("{}", report.table());
    }
    Ok(ExitCode::from(u8::from(!report.is_kept())))
}

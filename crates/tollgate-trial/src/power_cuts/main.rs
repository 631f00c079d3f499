//! `power-cuts`: cuts the power of real file systems while tollgate works, and checks what is left.
//!
//! A disk in memory records every write and every flush that the kernel's file system asks for. From the record, the campaign
//! makes what a disk can contain after a power cut at any moment, mounts that, and runs tollgate on it. Controls must lose
//! data: tollgate without flushes, and a disk that forgets flushes.
//!
//! Exit status: 0 if nothing was lost and every control lost something, 1 otherwise, 2 if no power could be cut.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports to people")]

#[path = "../stress/chance.rs"]
mod chance;
mod fuse;
mod lane;
mod machine;
mod mcp_client;
mod recorded_disk;
mod report;
mod story;

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Parser;
use rustix::process::geteuid;

use chance::Chance;
use machine::{FileSystem, Machine, Result, at};
use report::{Control, Report, Row};
use story::Story;

#[derive(Parser)]
#[command(about = "Cut the power of real file systems while tollgate works; exit 1 if something was lost")]
struct Cli {
    /// How many images to check, on all file systems together
    #[arg(long, default_value_t = 60)]
    images: usize,
    /// The seed of all random choices. What the kernel writes when is not repeated
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, value_delimiter = ',', default_value = "ext4,xfs,btrfs")]
    file_systems: Vec<FileSystem>,
    /// How many images of each control to check
    #[arg(long, default_value_t = 10)]
    controls: usize,
    /// How many images to make of one record
    #[arg(long, default_value_t = 10)]
    cuts: usize,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
    /// Save images after which something is wrong to this folder
    #[arg(long)]
    keep: Option<PathBuf>,
    /// The folder of the campaign, in a mount namespace of its own
    #[arg(long, hide = true)]
    inside: Option<PathBuf>,
}

/// Whether the process that waits for the campaign is gone.
static IS_OVER: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.inside {
        Some(folder) => campaign(&cli, folder),
        None => go_inside(),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("error: {problem}");
        ExitCode::from(2)
    })
}

/// Runs this program again where its mounts are its own, and removes what it leaves.
///
/// Only this process may be killed, for instance by the interrupt key. The other one unmounts its disk before it ends: the
/// kernel would wait forever for a disk that its own process serves.
fn go_inside() -> Result<ExitCode> {
    let folder = std::env::temp_dir().join(format!("tollgate-power-cuts-{}", std::process::id()));
    fs::create_dir(&folder).map_err(at(&folder))?;
    let this = std::env::current_exe().map_err(at(Path::new("power-cuts")))?;
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private", "--"]).arg(this).args(std::env::args_os().skip(1));
    again.arg("--inside").arg(&folder).stdin(Stdio::piped()).process_group(0);
    let mut inside = again.spawn().map_err(at(Path::new("unshare")))?;
    // The end of this stream tells it that this process is gone.
    let _stream = inside.stdin.take();
    let ended = inside.wait();
    let _ = fs::remove_dir_all(&folder);
    let ended = ended.map_err(at(Path::new("unshare")))?;
    Ok(ExitCode::from(u8::try_from(ended.code().unwrap_or(2)).unwrap_or(2)))
}

/// Why this machine cannot run the campaign at all.
fn missing() -> Option<String> {
    if !geteuid().is_root() {
        return Some("power cuts on real file systems need root, to mount them".to_owned());
    }
    ["/dev/fuse", "/dev/loop-control"]
        .into_iter()
        .find(|device| fs::OpenOptions::new().read(true).write(true).open(device).is_err())
        .map(|device| format!("power cuts on real file systems need `{device}`"))
}

fn campaign(cli: &Cli, folder: &Path) -> Result<ExitCode> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        IS_OVER.store(true, Ordering::Relaxed);
    });
    let began = Instant::now();
    let mut report = Report { seed: cli.seed.unwrap_or_else(chance::seed), ..Report::default() };
    let (there, missing) = match missing() {
        Some(why) => (Vec::new(), vec![why]),
        None => {
            let (there, others): (Vec<_>, Vec<_>) =
                cli.file_systems.iter().copied().partition(|it: &FileSystem| it.missing().is_none());
            (there, others.into_iter().filter_map(FileSystem::missing).collect())
        }
    };
    report.skipped = missing;
    for (number, kind) in there.iter().enumerate() {
        // The first ones get one more, if the number cannot be divided.
        let images = cli.images / there.len() + usize::from(number < cli.images % there.len());
        let (machine, formatted) = Machine::new(&folder.join(kind.name()), *kind)?;
        for control in [Control::None, Control::Fast, Control::Forgetful] {
            let images = if control == Control::None { images } else { cli.controls };
            if images > 0 {
                let row = row(cli, &machine, &formatted, report.seed, control, images)?;
                report.rows.push(row);
            }
        }
    }
    report.seconds = began.elapsed().as_secs();
    println!("{}", if cli.json { report.json().to_string() } else { report.table() });
    Ok(ExitCode::from(report.status()))
}

/// All images of one file system under one condition.
fn row(
    cli: &Cli,
    machine: &Machine,
    formatted: &recorded_disk::Blocks,
    seed: u64,
    control: Control,
    images: usize,
) -> Result<Row> {
    let mut row = Row::new(machine.kind.name(), control);
    let mut story_seed = seed;
    while row.images < images {
        let story = Story::record(machine, formatted, story_seed, control)?;
        let mut chance = Chance::new(story_seed, "cuts");
        for _ in 0..cli.cuts.min(images - row.images) {
            if IS_OVER.load(Ordering::Relaxed) {
                return Err("the campaign was stopped".to_owned());
            }
            let mut found = Row::new(machine.kind.name(), control);
            let cut = story.choose(machine, &mut chance);
            let blocks = story.cut(machine, &cut, &mut chance, &mut found)?;
            if let (true, Control::None, Some(keep)) = (found.is_bad(), control, &cli.keep) {
                let path = keep.join(format!("{}-{story_seed}-{}.image", machine.kind.name(), row.images));
                blocks.save(&path, machine.kind.size()).map_err(at(&path))?;
            }
            if let (false, Control::None) = (cli.json, control) {
                found.problems.iter().for_each(|problem| eprintln!("{problem}"));
            }
            row.take(found);
        }
        story_seed = story_seed.wrapping_add(1);
        if !cli.json {
            eprintln!("{}", row.progress(images));
        }
    }
    Ok(row)
}

//! Observing: the command runs as if tollgate were not there. What it has overwritten is reported afterwards, as far as it
//! can be known. Nothing is refused, and nothing is restored.
//!
//! The files are compared before and after. Who changed a file in between is known only if it was a guarded agent. Of the
//! other changes, those to files that the command line mentions count as the command's own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::level::{LEVEL_VARIABLE, RunLevel};
use crate::outcome::{AfterRun, RunEnd, RunNote, RunOutcome, WrittenFile};
use crate::request::RunRequest;
#[cfg(target_os = "linux")]
use crate::supervisor::Supervisor;
#[cfg(target_os = "linux")]
use crate::sys;
use tollgate_base::error::{At, Result};
use tollgate_guard::gate::Gate;
use tollgate_guard::supervised::{MadeChange, SupervisedProgram};
use tollgate_guard::turn::FileState;
use tollgate_guard::workspace::STATE_FOLDER;

/// A larger file is compared by its metadata only: hashing it would keep the command waiting.
const LARGEST_HASHED: u64 = 16 << 20;

/// A file before the command.
struct Indexed {
    /// Its inode, size and times.
    stamp: [i128; 4],
    /// `Unreadable` if it is too large to be hashed.
    state: FileState,
}

pub(crate) fn run(gate: &Gate, request: &RunRequest<'_>) -> Result<RunOutcome> {
    let root = gate.workspace().path();
    let pass: Vec<PathBuf> = request.pass.iter().map(|folder| root.join(folder)).collect();
    let program = SupervisedProgram::new(gate, request.turn, RunLevel::Observe.word());
    let start = program.last_line()?;
    let before = index(&program, root, &pass, None)?;
    let end = match execute(request)? {
        Ok(end) => end,
        Err(error) => return Ok(RunOutcome::not_started(RunLevel::Observe, &request.command[0], &error)),
    };
    let after = index(&program, root, &pass, Some(&before))?;
    let others: BTreeMap<PathBuf, FileState> = program.written_by_others(start)?.into_iter().collect();
    let (mut notes, mut changes) = (vec![RunNote::OnlyObserved], Vec::new());
    let paths: Vec<&PathBuf> =
        before.keys().chain(after.keys().filter(|path| !before.contains_key(*path))).collect();
    for path in paths {
        let state = |found: &BTreeMap<PathBuf, Indexed>| {
            found.get(path).map_or(FileState::Absent, |found| found.state)
        };
        let stamp = |found: &BTreeMap<PathBuf, Indexed>| found.get(path).map(|found| found.stamp);
        let (was, now) = (state(&before), state(&after));
        if stamp(&before) == stamp(&after) || was == now && was != FileState::Unreadable {
            continue;
        }
        let file = program.file(path)?;
        let written = others.get(path).copied();
        let known = program.known(&file)?;
        // A guarded agent changed the file while the command ran, or the agent had not seen the file as it was.
        let lost = match (written, known) {
            (Some(written), _) if written != now => Some((was, written)),
            (None, Some(known)) if known != was && was != FileState::Unreadable => Some((known, was)),
            _ => None,
        };
        if let Some((expected, actual)) = lost {
            program.observed(&file, expected, actual)?;
            notes.push(RunNote::Overwritten(path.strip_prefix(root).unwrap_or(path).to_owned()));
        }
        if written != Some(now) && is_mentioned(request, path) {
            changes.push(MadeChange { path: file, before: written.unwrap_or(was), after: now });
        }
    }
    program.record_changes(&changes)?;
    let relative = |made: &MadeChange| WrittenFile {
        path: made.path.as_path().strip_prefix(root).unwrap_or(made.path.as_path()).to_owned(),
        before: made.before.digest(),
        after: made.after.digest(),
        link: false,
    };
    let writes = changes.iter().map(relative).collect();
    Ok(RunOutcome {
        level: RunLevel::Observe,
        end,
        refused: None,
        reads: Vec::new(),
        writes,
        notes,
        after: AfterRun::nothing(),
    })
}

/// All files of the workspace. A file that is as it was before is not hashed again.
fn index(
    program: &SupervisedProgram<'_>,
    root: &Path,
    pass: &[PathBuf],
    before: Option<&BTreeMap<PathBuf, Indexed>>,
) -> Result<BTreeMap<PathBuf, Indexed>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        // A folder may be deleted at any time.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(io::Result::ok) {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(data) = entry.metadata() else { continue };
            if name == ".git" || name == STATE_FOLDER || pass.contains(&path) {
                continue;
            }
            if data.is_dir() {
                folders.push(path);
            } else if data.is_file() {
                let times =
                    [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()].map(i128::from);
                let stamp = [
                    i128::from(data.ino()),
                    i128::from(data.len()),
                    times[0] * 1_000_000_000 + times[1],
                    times[2] * 1_000_000_000 + times[3],
                ];
                let same = before.and_then(|before| before.get(&path)).filter(|before| before.stamp == stamp);
                let state = match same {
                    Some(same) => same.state,
                    None if data.len() > LARGEST_HASHED => FileState::Unreadable,
                    None => program.look(&program.file(&path)?, false)?.state,
                };
                found.insert(path, Indexed { stamp, state });
            }
        }
    }
    Ok(found)
}

/// Whether the command line mentions a file, in whatever language.
fn is_mentioned(request: &RunRequest<'_>, path: &Path) -> bool {
    let name = path.file_name().map_or(&[][..], OsStr::as_bytes);
    let mut words = request.command.iter().map(|word| word.as_bytes());
    !name.is_empty() && words.any(|word| word.windows(name.len()).any(|part| part == name))
}

/// Runs the command to its end.
fn execute(request: &RunRequest<'_>) -> Result<std::result::Result<RunEnd, io::Error>> {
    let (program, arguments) = request.program();
    let mut command = Command::new(program);
    command.args(arguments).env(LEVEL_VARIABLE, RunLevel::Observe.word());
    prepare(&mut command, request);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    #[cfg(target_os = "linux")]
    if let Some(supervisor) = request.supervisor {
        supervisor.started(child.id(), None);
    }
    let status = child.wait().at("wait for", "the command")?;
    Ok(Ok(match (status.code(), status.signal()) {
        (Some(code), _) => RunEnd::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => RunEnd::Killed(signal.unwrap_or(0)),
    }))
}

/// The command runs in its folder, and blocks the signals that this process blocked when it started.
#[cfg(target_os = "linux")]
fn prepare(command: &mut Command, request: &RunRequest<'_>) {
    let (mask, folder) = (request.supervisor.map(Supervisor::mask), request.folder.clone());
    sys::before_exec(command, move || {
        rustix::process::chdir(&folder)?;
        mask.as_ref().map_or(Ok(()), |mask| mask.set().map(drop))
    });
}

/// Elsewhere there is one process, which runs in the folder already.
#[cfg(not(target_os = "linux"))]
fn prepare(_command: &mut Command, _request: &RunRequest<'_>) {}

//! The state of a workspace: its file system, interrupted writes, the ledger, recovery, reservations, turns.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tollgate::commit::Guarantee;
use tollgate::error::{At, Fault};
use tollgate::ledger::LineDefect;
use tollgate::recovery::RecoveryKind;
use tollgate::vault::checkup::Finding;
use tollgate::workspace::{STATE_FOLDER, STATE_VERSION, Workspace};
use tollgate_guard::doctor::{Leftovers, leftovers};
use tollgate_guard::probe::{Reach, probe};

use crate::invocation::Invocation;
use crate::words::{self, Viewpoint, count, counted, quoted, shown, size};

/// What the file system can do, tried with files next to those that are written.
pub(super) fn file_system(root: &Path, state: &Path) -> Result<Finding, Fault> {
    let stage = state.join("stage");
    let found = probe(if stage.is_dir() { &stage } else { root })?;
    let can = |what: &str, can: bool| format!("{what} {}", if can { "yes" } else { "no" });
    let abilities = [
        can("lease", found.lease),
        can("exchange", found.exchange),
        can("no-replace", found.no_replace),
        can("links", found.links),
    ]
    .join(", ");
    let name = found.name.unwrap_or("unknown type");
    let level = match found.guarantee() {
        Guarantee::Full => "full protection: saves by other programs are never overwritten",
        weaker => words::guarantee(weaker).unwrap_or_default(),
    };
    let words = format!("{name} ({abilities}), {level}");
    Ok(match (found.guarantee(), found.reach) {
        (_, Reach::Network) => {
            Finding::warning(format!("{words}; writes on other machines are not detected"))
                .fix("run all agents of this workspace on one machine, or keep it on a local disk")
        }
        (Guarantee::Full, _) => Finding::ok(words),
        _ => {
            Finding::warning(words).fix("for full protection keep the workspace on ext4, xfs, btrfs or tmpfs")
        }
    })
}

/// If the state and the workspace are on different file systems.
pub(super) fn other_file_system(root: &Path, state: &Path) -> Option<Finding> {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let differs = device(&state.join("stage")).is_some_and(|stage| Some(stage) != device(root));
    differs.then(|| {
        Finding::warning(
            "`.tollgate` is on another file system than the workspace, so late writes by other programs are not detected",
        )
        .fix("keep `.tollgate` on the file system of the workspace")
    })
}

pub(super) fn privacy(invocation: &Invocation, state: &Path) -> Result<Finding, Fault> {
    let found = fs::symlink_metadata(state).at("look at", state)?;
    let (uid, mode) = (invocation.surroundings().uid, found.mode() & 0o777);
    // Root may open everything. Users share a workspace through a group that may write to it.
    let ours = found.uid() == uid || uid == 0 || mode & 0o020 != 0;
    if !ours {
        let what = "`.tollgate` belongs to another user, so you may lack permissions for parts of it";
        let fix =
            "share it through a group that may write to the workspace, or give it to the workspace's owner";
        return Ok(Finding::warning(what).fix(fix));
    }
    if mode & 0o007 == 0 {
        return Ok(Finding::ok(format!("private (mode {mode:o})")));
    }
    Ok(Finding::warning(format!(
        "other users can open `.tollgate` (mode {mode:o}), which contains names and earlier contents of your files"
    ))
    .fix(format!("make it private: `chmod o-rwx {}`", quoted(state))))
}

/// Interrupted writes before and after the state was opened. Opening recovers them.
pub(super) fn left(view: &Viewpoint, before: &Leftovers, after: &Leftovers) -> Finding {
    let was = before.journals.len() + before.unfinished;
    let is = after.journals.len() + after.unfinished;
    let mut words = match (was, is) {
        (0, 0) => "no interrupted writes".to_owned(),
        (was, 0) => format!("recovered {}", count(was, "interrupted write")),
        (_, is) => format!("{} in progress", count(is, "change")),
    };
    if after.staged > 0 {
        words += &format!("; {} awaiting the late-write check", count(after.staged, "replaced file"));
    }
    let Some(first) = after.unknown.first() else { return Finding::ok(words) };
    let files = count(after.unknown.len(), "file");
    Finding::warning(format!("{words}; {files} in `.tollgate/stage` not created by tollgate"))
        .fix(format!("move it elsewhere, because tollgate never touches it: `{}`", shown(view, first)))
}

pub(super) fn ledger(invocation: &Invocation, root: &Path) -> Result<Finding, Fault> {
    let verdict = invocation.ledger()?.verify()?;
    let head_file = invocation.ledger_head(root)?;
    if let Some(problem) = &verdict.problem {
        let (what, hint) = words::ledger_fault(&invocation.viewpoint(), problem, head_file.as_deref());
        // The next append repairs a torn line.
        let of = if problem.wrong == LineDefect::Torn { Finding::warning } else { Finding::problem };
        return Ok(of(what).fix(hint));
    }
    let lines = count(usize::try_from(verdict.lines).unwrap_or(usize::MAX), "line");
    Ok(match head_file {
        Some(_) => Finding::ok(format!("{lines}, valid")),
        None => Finding::warning(format!(
            "{lines}, valid; a truncated end cannot be detected, because you have no folder for state"
        ))
        .fix("set `HOME` or `XDG_STATE_HOME`"),
    })
}

pub(super) fn recovery(workspace: &Workspace) -> Result<Finding, Fault> {
    let kept = workspace.recovery()?;
    let entries = counted(kept.len(), "entry", "entries");
    let bytes = size(workspace.history_size()?);
    let used = format!("{entries}, {bytes} of {}", size(workspace.settings().history.max_size.0));
    Ok(match kept.iter().filter(|kept| kept.kind == RecoveryKind::Late).count() {
        0 => Finding::ok(used),
        late => Finding::warning(format!("{used}; {} by other programs", count(late, "late write")))
            .fix("list them with `tollgate recovery list` and restore what you need"),
    })
}

pub(super) fn reservations(invocation: &Invocation, workspace: &Workspace) -> Result<Finding, Fault> {
    let reserved = leftovers(&workspace.state_path())?.reservations;
    let limit = workspace.settings().guard.reservation.0;
    let is_void = |since: jiff::Timestamp| invocation.now().duration_since(since).unsigned_abs() > limit;
    let void = reserved.iter().filter(|reserved| is_void(reserved.since)).count();
    Ok(Finding::ok(match (reserved.len() - void, void) {
        (0, 0) => "none".into(),
        (live, 0) => format!("{live} active"),
        (live, void) => format!(
            "{live} active, {void} expired (they block nobody; the next write of their file removes them)"
        ),
    }))
}

pub(super) fn turns(invocation: &Invocation) -> Result<Finding, Fault> {
    let mut running = 0;
    for turns in invocation.existing_turns()? {
        running += turns.list()?.len();
    }
    Ok(Finding::ok(format!("{running} running")))
}

/// How to fix a fault. Unlike other hints, it never says to run the doctor.
pub(super) fn fix(fault: &Fault) -> String {
    let (Fault::Damaged { path, .. } | Fault::Io { path, .. }) = fault else { return words::hint(fault) };
    let file = quoted(path);
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let move_away = format!("mv {file} {}", quoted(Path::new(&aside)));
    let within = |folder: &str| path.parent().is_some_and(|parent| parent.ends_with(folder));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match fault {
        Fault::Damaged { .. } if within("journal") => format!(
            "move it away: `{move_away}`; tollgate then checks each file of that change on its own and keeps all \
             saved bytes"
        ),
        Fault::Damaged { .. } if name == "version" => {
            format!("if only this file is wrong, write it again: `echo {STATE_VERSION} > {file}`")
        }
        Fault::Damaged { .. } if name.starts_with("ledger") => format!(
            "set the ledger aside and start a new one: `{}`; then run `tollgate ledger verify`, which says how to \
             accept that",
            words::start_new_ledger(path)
        ),
        // The file is not damaged: other users can write to its folder, and could use it against the owner.
        Fault::Damaged { .. } if path.is_dir() => {
            format!("if the folder is yours, make it private: `chmod 700 {file}`; otherwise delete it")
        }
        Fault::Damaged { .. } => format!("move it away: `{move_away}`"),
        Fault::Io { source, .. } if source.kind() == io::ErrorKind::NotFound && within(STATE_FOLDER) => {
            let version = quoted(&path.with_file_name("version"));
            format!(
                "part of the state is missing: run `rm {version}`; the next guarded write restores the rest"
            )
        }
        fault => words::hint(fault),
    }
}

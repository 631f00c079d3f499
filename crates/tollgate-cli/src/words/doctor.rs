//! Words for the doctor: what each fact means, and how to mend what is wrong.

use std::path::Path;

use tollgate::commit::Guarantee;
use tollgate::doctor::Leftovers;
use tollgate::error::Fault;
use tollgate::ledger::Verdict;
use tollgate::probe::{FileSystem, Reach};
use tollgate::settings::{Durability, Mode, Settings, Unread};
use tollgate::workspace::{STATE_FOLDER, STATE_VERSION};

use super::{
    begin_anew, count, counted, fault_words, guarantee, hint, plain, problem, quoted, shown, size,
    vault_words,
};
use crate::command::doctor::{Checked, Fact, Level};
use crate::door::{Door, FoundBy};
use crate::hook::checkup::{Checkup, Hooks};
use crate::host::Trust;

/// Everything, one finding after the other, and the sum of it.
pub(crate) fn diagnosis(checked: &[Checked]) -> String {
    let mut words = String::new();
    for found in checked {
        let level = match found.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        words += &format!("{level:<8} {:<12} {}\n", found.check, found.message.replace('\n', "\n  "));
        if let Some(mend) = &found.mend {
            words += &format!("  hint: {mend}\n");
        }
    }
    let number = |level| checked.iter().filter(|found| found.level == level).count();
    words
        + &match (number(Level::Problem), number(Level::Warning)) {
            (0, 0) => "all is well".to_owned(),
            (0, warnings) => format!("all is well, with {}", count(warnings, "warning")),
            (problems, _) => format!("{} to mend", count(problems, "problem")),
        }
}

fn host_words(door: &Door, checkup: &Checkup) -> (String, Option<String>) {
    let Checkup { host, installed, hooks } = checkup;
    let program = if *installed { "" } else { ", though the program is not in the path" };
    let set_up = format!("`tollgate init --host {host}`");
    match hooks {
        Hooks::None => {
            (format!("`{host}` is used here, without hooks{program}"), Some(format!("{set_up} sets them up")))
        }
        Hooks::Outdated => (
            format!("`{host}` has hooks of another version of tollgate{program}"),
            Some(format!("{set_up} renews them")),
        ),
        Hooks::InPlace { wrong: Some(wrong), .. } => (
            format!("`{host}` has hooks that do not answer as they should: {}", plain(wrong)),
            Some(format!(
                "see that `tollgate` is in the path of `{host}`, and is this version; {set_up} renews the hooks"
            )),
        ),
        Hooks::InPlace { trust, called, .. } => {
            let called = match called.and_then(|time| jiff::Timestamp::try_from(time).ok()) {
                Some(time) => format!("called {}", super::ago(door.now(), time)),
                None => "not called yet".into(),
            };
            let (state, mend) = match trust {
                Trust::NotNeeded => ("answer as they should".to_owned(), None),
                Trust::Given => ("are trusted, answer as they should".to_owned(), None),
                Trust::Missing(how) => {
                    ("answer as they should, but are not trusted yet".to_owned(), Some((*how).to_owned()))
                }
                Trust::SwitchedOff(by) => (
                    format!("answer as they should, but are switched off by {}", plain(by)),
                    Some("switch them on".into()),
                ),
            };
            (format!("`{host}` has hooks, which {state}; {called}{program}"), mend)
        }
    }
}

/// What was found, and how to mend it.
pub(crate) fn finding(door: &Door, fact: &Fact) -> (String, Option<String>) {
    match fact {
        Fact::Workspace { root, found_by } => {
            let why = match found_by {
                FoundBy::Name => "as named",
                FoundBy::State => "it has `.tollgate`",
                FoundBy::Git => "the git root",
                FoundBy::Here => "the current folder",
            };
            (format!("`{}`, {why}", plain(&root.to_string_lossy())), None)
        }
        Fact::Settings { settings, written } => settings_words(settings, *written),
        Fact::FileSystem(found) => file_system_words(found),
        Fact::OtherFileSystem => (
            "`.tollgate` is on another file system than the workspace, so writes that come late are not found"
                .into(),
            Some("keep `.tollgate` on the file system of the workspace".into()),
        ),
        Fact::NoState => ("nothing was guarded here yet".into(), None),
        Fact::State { version } => (format!("format {version}, can be opened"), None),
        Fact::Privacy { mode, ours: true, .. } if mode & 0o007 == 0 => {
            (format!("closed to strangers (mode {mode:o})"), None)
        }
        Fact::Privacy { state, mode, ours: true } => (
            format!("`.tollgate` is open to strangers (mode {mode:o}); it holds names and old bytes of your files"),
            Some(format!("close it: `chmod o-rwx {}`", quoted(state))),
        ),
        Fact::Privacy { ours: false, .. } => (
            "`.tollgate` belongs to another user, so some of it may be closed to you".into(),
            Some("share it by a group that may write the workspace, or give it to the workspace's owner".into()),
        ),
        Fact::Leftovers { before, after } => leftover_words(door, before, after),
        Fact::Ledger { verdict, head_file } => ledger_words(door, verdict, head_file.as_deref()),
        Fact::Recovery { entries, bytes, late, room } => {
            let used = format!("{}, {} of {}", counted(*entries, "entry", "entries"), size(*bytes), size(*room));
            match late {
                0 => (used, None),
                late => (
                    format!("{used}; {} by other programs came too late to reach the file", count(*late, "write")),
                    Some("see them with `tollgate recovery list` and restore what is needed".into()),
                ),
            }
        }
        Fact::Reservations { live, void } => (
            match (live, void) {
                (0, 0) => "none".into(),
                (live, 0) => format!("{live} live"),
                (live, void) => {
                    format!("{live} live, {void} void: those block nobody and go when their file is written next")
                }
            },
            None,
        ),
        Fact::Turns { running } => (format!("{running} running"), None),
        Fact::Vault { .. } => vault_words(door, fact),
        Fact::Git { .. } => super::git_words(door, fact),
        Fact::Host(checkup) => host_words(door, checkup),
        Fact::Broken { fault, .. } => (fault_words(door, fault), Some(mend(fault))),
    }
}

fn settings_words(settings: &Settings, written: bool) -> (String, Option<String>) {
    let guard = &settings.guard;
    let mode = match guard.mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    };
    let unread = match guard.unread {
        Unread::Allow => "allow",
        Unread::Known => "known",
        Unread::Refuse => "refuse",
    };
    let durability = match guard.durability {
        Durability::Durable => "durable",
        Durability::Fast => "fast",
    };
    let from =
        if written { "`.tollgate/config.toml`" } else { "defaults, there is no `.tollgate/config.toml`" };
    let words = format!("mode {mode}, unread {unread}, durability {durability} ({from})");
    match guard.mode {
        Mode::Enforce => (words, None),
        Mode::Observe => (
            format!("{words}; nothing is refused, stale writes only go to the ledger"),
            Some("set `mode = \"enforce\"` to refuse them".into()),
        ),
        Mode::Off => (
            format!("{words}; nothing is compared, updates can be lost"),
            Some("set `mode = \"enforce\"`".into()),
        ),
    }
}

fn file_system_words(found: &FileSystem) -> (String, Option<String>) {
    let can = |what: &str, can: bool| format!("{what} {}", if can { "yes" } else { "no" });
    let abilities = [
        can("lease", found.lease),
        can("exchange", found.exchange),
        can("no-replace", found.no_replace),
        can("links", found.links),
    ]
    .join(", ");
    let name = found.name.unwrap_or("unknown kind");
    let level = match found.guarantee() {
        Guarantee::Full => "full protection: no save of another program is lost",
        weaker => guarantee(weaker).unwrap_or_default(),
    };
    let words = format!("{name} ({abilities}), {level}");
    match (found.guarantee(), found.reach) {
        (_, Reach::Network) => (
            format!("{words}; writers on other machines are not seen"),
            Some("let all agents of this workspace run on one machine, or keep it on a local disk".into()),
        ),
        (Guarantee::Full, _) => (words, None),
        _ => (words, Some("for the full protection keep the workspace on ext4, xfs, btrfs or tmpfs".into())),
    }
}

fn leftover_words(door: &Door, before: &Leftovers, after: &Leftovers) -> (String, Option<String>) {
    let was = before.journals.len() + before.unfinished;
    let is = after.journals.len() + after.unfinished;
    let mut words = match (was, is) {
        (0, 0) => "nothing left half done".to_owned(),
        (was, 0) => format!("healed {} that a crash had left half done", count(was, "change")),
        (_, is) => format!("{} in progress", count(is, "change")),
    };
    if after.staged > 0 {
        let waiting = counted(after.staged, "replaced file waits", "replaced files wait");
        words += &format!("; {waiting} for the second look");
    }
    match after.unknown.first() {
        None => (words, None),
        Some(first) => (
            format!("{words}; {} in the stage not made by tollgate", count(after.unknown.len(), "file")),
            Some(format!("move it away, it is never touched: `{}`", shown(door, first))),
        ),
    }
}

fn ledger_words(door: &Door, verdict: &Verdict, head_file: Option<&Path>) -> (String, Option<String>) {
    if let Some(found) = &verdict.problem {
        let (fact, hint) = problem(door, found, head_file);
        return (fact, Some(hint));
    }
    let lines = count(usize::try_from(verdict.lines).unwrap_or(usize::MAX), "line");
    match head_file {
        Some(_) => (format!("{lines}, valid"), None),
        None => (
            format!(
                "{lines}, valid; lines cut off at the end cannot be noticed, because you have no folder for state"
            ),
            Some("set `HOME` or `XDG_STATE_HOME`".into()),
        ),
    }
}

/// Unlike [`hint`], this one may not send to the doctor.
fn mend(fault: &Fault) -> String {
    let (Fault::Damaged { path, .. } | Fault::Io { path, .. }) = fault else { return hint(fault) };
    let file = quoted(path);
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let move_away = format!("mv {file} {}", quoted(Path::new(&aside)));
    let within = |folder: &str| path.parent().is_some_and(|parent| parent.ends_with(folder));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match fault {
        Fault::Damaged { .. } if within("journal") => format!(
            "move it away: `{move_away}`; each file of that change is then judged alone, and nothing that was saved is \
             dropped"
        ),
        Fault::Damaged { .. } if name == "version" => {
            format!("if only this file is wrong, write it anew: `echo {STATE_VERSION} > {file}`")
        }
        Fault::Damaged { .. } if name.starts_with("ledger") => format!(
            "keep the ledger aside and begin anew: `{}`; then `tollgate ledger verify` says how to accept that",
            begin_anew(path)
        ),
        // Not a file that is wrong, but a folder that others could use against its owner.
        Fault::Damaged { .. } if path.is_dir() => {
            format!("if it is yours, close it to all others: `chmod 700 {file}`; else remove it")
        }
        Fault::Damaged { .. } => format!("move it away: `{move_away}`"),
        Fault::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound && within(STATE_FOLDER) => {
            let version = quoted(&path.with_file_name("version"));
            format!(
                "part of the state is gone: `rm {version}`, and the next guarded write makes what is missing"
            )
        }
        fault => hint(fault),
    }
}

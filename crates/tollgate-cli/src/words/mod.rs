//! Words for people, who are often models: every sentence that the command prints is here.
//!
//! Lowercase, no final period, things in backticks; the fact first, then what to do, on a line of its own. Whatever comes
//! from outside (names, ledger lines, bytes of files) goes through [`plain`] on its way to a terminal.

mod doctor;
mod git;
mod hook;
mod ledger;
mod serve;
mod task;
mod work;

pub(crate) use doctor::{diagnosis, finding};
pub(crate) use git::*;
pub(crate) use hook::{
    bad_payload, has_hooks, has_server, hook_failed, hook_fault, hook_lost, hook_refused, hook_too_slow,
    hooked, no_such_host, registered,
};
pub(crate) use ledger::{begin_anew, damaged_lines, ledger_line, problem, verdict};
pub(crate) use serve::*;
pub(crate) use task::*;
pub(crate) use work::*;

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use tollgate::commit::{Applied, Guarantee};
use tollgate::digest::NotADigest;
use tollgate::error::Fault;
use tollgate::guard::Refused;
use tollgate::name::{Agent, TurnId};
use tollgate::path::FilePath;
use tollgate::recovery::{Kept, Kind};
use tollgate::refusal::{Reason, Refusal, Stale};
use tollgate::shared_turn::{Leaves, SharedTurn};
use tollgate::turn::{Extent, FileState, Sighting, Sightings};

use crate::answer::Stop;
use crate::command::{Deed, init};
use crate::door::{Door, FoundBy};
use crate::terminal::plain;

/// A path as the user would type it: relative to where they are, if it is below.
fn shown(door: &Door, path: &Path) -> String {
    let base = door.base().ok().and_then(|base| base.canonicalize().ok());
    let below = base.as_deref().and_then(|base| path.strip_prefix(base).ok());
    let path = match below {
        Some(below) if !below.as_os_str().is_empty() => below,
        _ => path,
    };
    short(&plain(&path.to_string_lossy()))
}

/// A path for a shell, whatever folder it is in.
fn quoted(path: &Path) -> String {
    format!("'{}'", plain(&path.to_string_lossy()).replace('\'', "'\\''"))
}

/// The two ends of a text that nobody would read to its end.
fn short(text: &str) -> String {
    const END: usize = 100;
    let count = text.chars().count();
    if count <= 3 * END {
        return text.to_owned();
    }
    let first: String = text.chars().take(END).collect();
    let last: String = text.chars().skip(count - END).collect();
    format!("{first}...{last}")
}

fn hash_or_none(state: FileState) -> String {
    match state {
        FileState::Present(digest) => digest.short(),
        FileState::Absent => "no file".into(),
        FileState::Unreadable => "unreadable".into(),
    }
}

fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// `1 file`, `2 files`.
fn count(number: usize, thing: &str) -> String {
    counted(number, thing, &format!("{thing}s"))
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A moment, to the second: more is for programs.
fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

// Refusals

pub(crate) fn refused(door: &Door, refused: &Refused) -> String {
    let all: Vec<String> = refused.refusals().iter().map(|refusal| refusal_words(door, refusal)).collect();
    all.join("\n")
}

fn refusal_words(door: &Door, refusal: &Refusal) -> String {
    let path = shown(door, refusal.path.as_path());
    let (fact, hint) = match &refusal.reason {
        Reason::Stale(stale) => return stale_words(door, &path, stale),
        Reason::Busy { holder: Some(holder) } => (
            format!("`{path}` is busy: `{holder}` is about to write it"),
            format!("wait a moment, read `{path}` again, then retry"),
        ),
        Reason::Busy { holder: None } => (
            format!("`{path}` is busy: another process has it open for writing"),
            "retry in a moment; a file that is always open, such as a log, cannot be replaced: append to it"
                .into(),
        ),
        Reason::Unread { .. } => (
            format!("`{path}` was not read in this turn"),
            format!("read `{path}` with the same `--turn`, then write on the basis of what you find"),
        ),
        Reason::Unreadable => (
            format!("`{path}` could not be read, so what it holds is not known"),
            format!("read `{path}` with success, then write"),
        ),
        Reason::Outside => (
            format!("`{path}` is outside the workspace"),
            "choose a path inside the workspace, or name the right workspace with `-C DIR`; a symbolic link \
             that leads out does not count as inside"
                .into(),
        ),
        Reason::Protected => (
            format!("`{path}` is protected"),
            "choose another path, or ask a person to make the change".into(),
        ),
        Reason::NotAFile => (
            format!("`{path}` is not a regular file"),
            "choose the path of a file, not of a folder or a device".into(),
        ),
        Reason::HardLinked => (
            format!("`{path}` has several names (hard links), and replacing it would part them"),
            "ask a person: they can break the link, or set `hard_links = \"detach\"` in \
             `.tollgate/config.toml`"
                .into(),
        ),
        Reason::ReadOnly => (
            format!("`{path}` is read-only"),
            "ask a person: they can change its permissions, or set `read_only = \"replace\"` in \
             `.tollgate/config.toml`"
                .into(),
        ),
        Reason::TextNotFound { found: 0, text } => (
            format!("the old text is not in `{path}`\n  looked for  {}", plain(text)),
            format!("read `{path}` again and copy the old text exactly, with its white space"),
        ),
        Reason::TextNotFound { found, text } => (
            format!("the old text is in `{path}` {found} times\n  looked for  {}", plain(text)),
            "give more of the lines around it, so that it is unique, or replace all with `--all`".into(),
        ),
        // A later library may know reasons that are not worded here yet: its report has a sentence for each.
        _ => {
            let report = refusal.report();
            (format!("`{path}`: {}", plain(&report.message)), plain(&report.recovery_hint))
        }
    };
    format!("refused: {fact}\nhint: {hint}")
}

fn stale_words(door: &Door, path: &str, stale: &Stale) -> String {
    let mut words = format!("refused: `{path}` is stale\n");
    let known = if stale.expected == FileState::Absent { "expected" } else { "you read" };
    words += &format!("  {known:<10}  {}\n", hash_or_none(stale.expected));
    words += &format!("  on disk     {}", hash_or_none(stale.actual));
    if let Some(by) = &stale.changed_by {
        words += &format!(", written by `{}` {}", by.agent, ago(door.now(), by.time));
    }
    words.push('\n');
    if let Some(diff) = &stale.diff {
        for line in diff.lines() {
            words += format!("    {}", plain(line)).trim_end();
            words.push('\n');
        }
    }
    words
        + &match (stale.expected, stale.actual) {
            (FileState::Absent, _) => {
                format!("hint: read `{path}`, then change what you find or choose another path")
            }
            (_, FileState::Absent) => {
                format!("hint: read `{path}` again; if it is gone on purpose, leave it, else write it anew")
            }
            _ => format!("hint: read `{path}` again, redo your change on what you find, then write"),
        }
}

// Faults and wrong calls

pub(crate) fn stop(door: &Door, stop: &Stop) -> String {
    match stop {
        Stop::Usage { message, hint } => format!("error: {}\nhint: {}", plain(message), plain(hint)),
        Stop::Fault(fault) => {
            format!("error: {}\nhint: {}", fault_words(door, fault), plain(&hint(fault)))
        }
        Stop::Mute(error) => format!(
            "error: standard output takes nothing: {}\nhint: give it a place with room; what was done is done, `tollgate \
             ledger tail` shows it",
            plain(&error.to_string())
        ),
        Stop::Hangup => String::new(),
    }
}

fn fault_words(door: &Door, fault: &Fault) -> String {
    match fault {
        Fault::Io { doing, path, source } => {
            format!("cannot {doing} `{}`: {}", shown(door, path), plain(&source.to_string()))
        }
        // The parser points at the place in several lines.
        Fault::Config { path, what } => {
            let lines =
                what.trim_end().lines().map(|line| format!("  {}", plain(line)).trim_end().to_owned());
            format!("`{}` cannot be used\n{}", shown(door, path), lines.collect::<Vec<_>>().join("\n"))
        }
        Fault::Damaged { path, what } => format!("`{}` is damaged: {}", shown(door, path), plain(what)),
        Fault::Missing { what } => match what.strip_prefix('`').and_then(|what| what.strip_suffix('`')) {
            Some(path) => format!("`{}` does not exist", shown(door, Path::new(path))),
            None => short(&plain(&fault.to_string())),
        },
        fault => short(&plain(&fault.to_string())),
    }
}

/// What to do about a fault. There always is something.
pub(crate) fn hint(fault: &Fault) -> String {
    let hint = match fault {
        Fault::Missing { what } if what.starts_with("the turn ") => {
            "it has ended, was forgotten, or belongs to another workspace; `tollgate turn list` shows those that \
             run here, `tollgate turn begin` starts one"
        }
        Fault::Missing { what } if what.starts_with("the recovery ") => {
            "`tollgate recovery list` shows what is kept"
        }
        Fault::Missing { what } if what.starts_with("the task ") => "`tollgate task list` shows all tasks",
        Fault::Missing { what } if what.starts_with("the vault ") => {
            "`tollgate init --vault` makes one; `[vault] dir` in `.tollgate/config.toml` says where it is"
        }
        Fault::Missing { what } if what == "the current folder" => {
            "go to a folder that exists, or name the workspace with `-C DIR`"
        }
        Fault::Missing { .. } => "check the path; `tollgate create` makes a new file",
        Fault::Io { doing: "open the workspace", .. } => "check the folder that is named with `-C`",
        Fault::Io { doing: "listen on", source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            "another program listens there, perhaps another `tollgate serve`; `--listen 127.0.0.1:0` takes any free port"
        }
        Fault::Io { doing: "listen on", .. } => {
            "`--listen` takes an address of this machine and a port above 1023, as in `127.0.0.1:7311`"
        }
        Fault::Invalid { .. } => "see `--help` of the command for how to call it",
        Fault::Io { source, .. } if source.kind() == io::ErrorKind::InvalidFilename => {
            "choose a shorter path: a name has at most 255 bytes, a path at most 4095"
        }
        fault => fault.hint().unwrap_or("try again; if it stays, `tollgate doctor` looks for the reason"),
    };
    hint.into()
}

pub(crate) fn no_turn() -> Stop {
    Stop::usage(
        "no turn is named",
        "begin one with `tollgate turn begin`, then give `--turn ID` or set `TOLLGATE_TURN`",
    )
}

pub(crate) fn turn_of_another(turn: &SharedTurn, agent: &Agent) -> Stop {
    let (id, owner) = (turn.id(), turn.agent());
    Stop::usage(
        format!("the turn `{id}` belongs to `{owner}`, not to `{agent}`"),
        format!("leave `--agent` out, or begin a turn with `tollgate turn begin --agent {agent}`"),
    )
}

pub(crate) fn bad_variable(name: &str, fault: &Fault) -> Stop {
    Stop::usage(
        format!("`{name}` cannot be used: {fault}"),
        format!("set `{name}` to a valid name, or unset it"),
    )
}

pub(crate) fn bad_expectation(error: &NotADigest) -> String {
    format!("{error}; or write `absent` if there must be no file")
}

pub(crate) fn bad_line_number(text: &str) -> String {
    format!("`{}` is no line number; lines count from 1, as in `10:20`, `10:` or `:20`", plain(text))
}

pub(crate) fn lines_backwards(from: usize, to: usize) -> String {
    format!("line {to} comes before line {from}; write the smaller number first")
}

pub(crate) fn unpaired_edits(old: usize, new: usize) -> Stop {
    Stop::usage(
        format!("there are {} and {}", count(old, "old text"), count(new, "new text")),
        "give one `--new` for each `--old`, in the same order; `--new ''` takes text away",
    )
}

pub(crate) fn bad_changes(error: &serde_json::Error) -> Stop {
    Stop::usage(
        format!("standard input is no list of changes: {error}"),
        "give a JSON list such as `[{\"path\":\"a.md\",\"content\":\"new\"}]`; see `tollgate apply --help`",
    )
}

pub(crate) fn not_one_action(index: usize, actions: usize) -> Stop {
    Stop::usage(
        match actions {
            0 => format!("change {} of the list does not say what to do", index + 1),
            _ => format!("change {} of the list says {actions} things to do", index + 1),
        },
        "give exactly one of `content`, `content_base64`, `edits`, `delete` and `move_to`",
    )
}

pub(crate) fn not_base64(index: usize) -> Stop {
    Stop::usage(
        format!("`content_base64` of change {} of the list is not base64", index + 1),
        "use the usual alphabet with padding and no line breaks, or give text as `content`",
    )
}

/// Said at once, because what comes next waits for the user.
pub(crate) fn tell_that_stdin_is_read() {
    let _ = writeln!(io::stderr(), "reading from the terminal; end with ctrl-d");
}

// Changes that were made

pub(crate) fn applied(door: &Door, deed: Deed, applied: &[Applied]) -> String {
    applied.iter().map(|applied| applied_words(door, deed, applied)).collect::<Vec<_>>().join("\n")
}

fn applied_words(door: &Door, deed: Deed, applied: &Applied) -> String {
    let did = match deed {
        Deed::Write => "wrote",
        Deed::Edit => "edited",
        Deed::Restore => "restored",
    };
    let path = shown(door, applied.path.as_path());
    let (before, after) = (hash_or_none(applied.before), hash_or_none(applied.after));
    match (&applied.moved_to, applied.before, applied.after) {
        (Some(to), ..) => format!("moved `{path}` to `{}`, {after}", shown(door, to.as_path())),
        (None, _, FileState::Absent) => {
            format!(
                "deleted `{path}`, it was {before}\nhint: `tollgate recovery restore {}` brings it back",
                applied.id
            )
        }
        (None, FileState::Absent, _) if deed == Deed::Restore => format!("restored `{path}`, {after}"),
        (None, FileState::Absent, _) => format!("created `{path}`, {after}"),
        (None, ..) if applied.before == applied.after => {
            format!("{did} `{path}`, {after}: the same bytes as before")
        }
        (None, ..) => format!("{did} `{path}`, {before} -> {after}"),
    }
}

/// A word for each file that could not be protected as well as usual.
pub(crate) fn weaker_guarantees(door: &Door, applied: &[Applied]) -> String {
    let note = |applied: &Applied| {
        let meaning = guarantee(applied.guarantee)?;
        Some(format!("note: `{}` was less protected: {meaning}", shown(door, applied.path.as_path())))
    };
    applied.iter().filter_map(note).collect::<Vec<_>>().join("\n")
}

/// What a weaker guarantee means; nothing, if it is the full one.
fn guarantee(guarantee: Guarantee) -> Option<&'static str> {
    match guarantee {
        Guarantee::Full => None,
        Guarantee::NoQuiet => Some(
            "the kernel gives no lease here, so a save in place that falls into a write is found and kept a moment \
             later, not before",
        ),
        Guarantee::NoSecondLook => {
            Some("it lies on another file system than `.tollgate`, so a save that comes late is not found")
        }
        Guarantee::NoExchange => Some(
            "the file system cannot exchange two names, so a save that falls between check and rename is lost",
        ),
    }
}

// Turns

pub(crate) fn turn_ended(id: &TurnId, files: usize, leaves: Leaves) -> String {
    let stays = match leaves {
        Leaves::Known if files > 0 => ", remembered for later turns",
        Leaves::Known | Leaves::Nothing => "",
    };
    format!("ended `{id}`: {} known{stays}", count(files, "file"))
}

pub(crate) fn turn_shown(door: &Door, turn: &SharedTurn, files: &[(FilePath, Sighting)]) -> String {
    let started = ago(door.now(), turn.started());
    let mut words = format!(
        "turn `{}` of `{}`, begun {started}: {}",
        turn.id(),
        turn.agent(),
        count(files.len(), "file")
    );
    for (path, sighting) in files {
        let (first, last) = (sighting.initial(), sighting.baseline(Extent::Whole));
        let (path, first) = (shown(door, path.as_path()), hash_or_none(first));
        words += &format!("\n  {first:<10}  {:<10}  {path}", hash_or_none(last));
    }
    words
}

pub(crate) fn turns(door: &Door, turns: &[(SharedTurn, usize)]) -> String {
    if turns.is_empty() {
        return "no turn is running here\nhint: `tollgate turn begin` starts one".into();
    }
    let line = |(turn, files): &(SharedTurn, usize)| {
        let started = ago(door.now(), turn.started());
        format!("{}  {}  begun {started}, {} known", turn.id(), turn.agent(), count(*files, "file"))
    };
    turns.iter().map(line).collect::<Vec<_>>().join("\n")
}

// Recovery

pub(crate) fn kept(door: &Door, kept: &[Kept]) -> String {
    if kept.is_empty() {
        return "nothing is kept".into();
    }
    let line = |kept: &Kept| {
        let why = match kept.kind {
            Kind::Replaced => "replaced by",
            Kind::Late => "came later than a write of",
            Kind::TakenBack => "taken back from",
        };
        let (id, time, size) = (&kept.id, moment(kept.time), size(kept.size));
        let path = shown(door, kept.path.as_path());
        format!("{id}  {time}  {size:>9}  {path}  {why} `{}`", kept.replaced_by)
    };
    kept.iter().map(line).collect::<Vec<_>>().join("\n")
}

// Init

pub(crate) fn init(root: &Path, found_by: FoundBy, done: init::Done, git: bool, state: bool) -> String {
    let why = match found_by {
        FoundBy::Name => "as named",
        FoundBy::State => "it has `.tollgate`",
        FoundBy::Git => "the git root",
        FoundBy::Here => "the current folder",
    };
    let root = short(&plain(&root.to_string_lossy()));
    let mut words = format!("workspace `{root}`, {why}\n");
    words += match done {
        init::Done::Written => "wrote `.tollgate/config.toml`",
        init::Done::Kept => "found `.tollgate/config.toml`, left as it is",
        init::Done::Changed => "found `.tollgate/config.toml`, the vault is named in it now",
        init::Done::Removed => "removed `.tollgate/config.toml`",
        init::Done::KeptAsChanged => {
            "left `.tollgate/config.toml`, because it is not as init wrote it\nhint: remove it yourself if you do not \
             need it"
        }
        init::Done::NothingToRemove => "found no `.tollgate/config.toml`, so there is nothing to remove",
    };
    match done {
        init::Done::Written | init::Done::Kept | init::Done::Changed => {
            if git {
                words += "\nfound git: the configuration may be committed, the state beside it is ignored";
            }
            if state {
                words += "\nfound state of earlier guarded writes";
            }
            words += "\nnext: `tollgate doctor` tells how well this file system protects";
            words += "\nnext: `tollgate turn begin` starts a turn for `read` and `write`";
        }
        init::Done::Removed | init::Done::KeptAsChanged | init::Done::NothingToRemove if state => {
            words += "\nleft the state (ledger, recovery) in `.tollgate`";
            words += "\nhint: delete that folder if you need neither, while no agent works here";
        }
        _ => {}
    }
    words
}

//! The format of the vault's private state, and bringing an older one up to date.
//!
//! Format 1 kept logs that were overwritten in place: each line began with 8 digits of a checksum, a zero byte ended the
//! log, and older bytes could follow it. Locks were bytes of the file `stripes`, and each agent had counters in
//! `figures/`. Format 2 has plain JSON lines, locks the logs themselves, and counts in the ledger. What the old counters
//! say beyond the ledger is carried over once, in `carried.json`.
//!
//! Invariants: a newer format is refused, not misread. A migration holds all locks of the old format, so no older process
//! is in the middle of a step; it may die at any point and be run again, because it writes the new logs beside the old
//! ones and the number in `format` changes last.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::log::stripe_of;
use crate::event::Journal;
use crate::figures::Tally;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::{names_in, replace_file};
use tollgate_base::lock::{self, Lock, Pauses};
use tollgate_base::name::Agent;
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::sys;
use tollgate_base::task::TaskName;

/// The format of everything in `<vault>/.tollgate/vault/`.
const FORMAT: u32 = 2;

/// The longest wait for the steps of an older version to end.
const WAIT: Duration = Duration::from_secs(10);

/// How many locks the old format had.
const OLD_LOCKS: u64 = 256;

/// Length of the checksum and the space before each line of the old format.
const OLD_PREFIX: usize = 9;

/// The size of one part of an agent's old counters. Each process that counted at the same time had a part of its own.
const OLD_PART: usize = 512;

/// The figures that no journal has.
const CARRIED: &str = "carried.json";

#[derive(Serialize, Deserialize)]
struct Carried {
    /// The journal to which the differences belong.
    journal: String,
    /// Differences to what it says: claims, lost races, failed claims.
    agents: BTreeMap<Agent, [i64; 3]>,
}

/// Brings the state to this format, whatever it is now.
pub(super) fn to_this_format(private: &Path, journal: &dyn Journal) -> Result<()> {
    let path = private.join("format");
    if format(&path)? == Some(FORMAT) {
        return Ok(());
    }
    let lock_path = private.join("migrating");
    let Some(_alone) = Lock::acquire(&lock_path, WAIT)? else {
        return Err(Fault::Locked { path: lock_path, waited_s: WAIT.as_secs() });
    };
    match format(&path)? {
        Some(FORMAT) => return Ok(()),
        Some(_) => from_format_1(private, journal)?,
        None if private.join(".gitignore").exists() => {}
        None => replace_file(&private.join(".gitignore"), b"*\n", Durability::Durable)?,
    }
    // Last, because it says that everything else is done.
    replace_file(&path, format!("{FORMAT}\n").as_bytes(), Durability::Durable)?;
    for old in ["log", "figures"] {
        let _ = private::remove_tree(&private.join(old));
    }
    Ok(())
}

/// The number of the format, if there is one; a newer one is refused.
fn format(path: &Path) -> Result<Option<u32>> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    match str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok()) {
        Some(found) if found > FORMAT => {
            Err(Fault::NewerFormat { path: path.to_owned(), found, known: FORMAT })
        }
        Some(found) => Ok(Some(found)),
        None => Err(Fault::damaged(path, "it should contain the number of the format")),
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match private::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes.at("read", path).map(Some),
    }
}

fn from_format_1(private: &Path, journal: &dyn Journal) -> Result<()> {
    let stripes = private.join("stripes");
    let locks = lock::open(&stripes)?;
    let mut pauses = Pauses::lasting(WAIT);
    for at in 0..OLD_LOCKS {
        while !sys::try_lock_byte(&locks, at).at("lock", &stripes)? {
            if !pauses.pause() {
                return Err(Fault::Locked { path: stripes, waited_s: WAIT.as_secs() });
            }
        }
    }
    let old_logs = private.join("log");
    let mut new: BTreeMap<u8, String> = BTreeMap::new();
    let is_log = |name: &&OsString| name.to_str().is_some_and(|name| u8::from_str_radix(name, 16).is_ok());
    for path in names_in(&old_logs)?.iter().filter(is_log).map(|name| old_logs.join(name)) {
        for (task, line) in lines(&private::read(&path).at("read", &path)?, &path)? {
            *new.entry(stripe_of(&task)).or_default() += &format!("{line}\n");
        }
    }
    // Nobody uses the new folder before the number in `format` has changed.
    let logs = private.join("logs");
    private::remove_tree(&logs).at("delete", &logs)?;
    private::create_folder(&logs, 0o777).at("make the folder", &logs)?;
    for (stripe, lines) in new {
        replace_file(&logs.join(format!("{stripe:02x}")), lines.as_bytes(), Durability::Durable)?;
    }
    let owed = private.join("owed");
    for path in names_in(&owed)?.iter().map(|name| owed.join(name)) {
        let bytes = private::read(&path).at("read", &path)?;
        // A file that cannot be read is left for a person to look at.
        let Ok(mut plan) = serde_json::from_slice::<Value>(&bytes) else { continue };
        to_current_form(&mut plan);
        replace_file(&path, plan.to_string().as_bytes(), Durability::Durable)?;
    }
    carry_figures(private, journal)?;
    // A process of the older version that is still running finds its locks gone and says so.
    private::remove_file(&stripes).at("delete", &stripes)
}

/// The lines of an old log that count, as values: records, and the plan of an interrupted step. Each with its task.
fn lines(bytes: &[u8], path: &Path) -> Result<Vec<(TaskName, Value)>> {
    let name = |value: &Value| -> Result<TaskName> {
        let name = value.as_str().and_then(|name| name.parse().ok());
        name.ok_or_else(|| Fault::damaged(path, "a line names no task"))
    };
    let (mut notes, mut pending) = (BTreeMap::new(), None::<Value>);
    let live = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    for line in live.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let json = line.get(OLD_PREFIX..).unwrap_or_default();
        // A line that a power cut damaged, and what is behind it, did not count.
        let Ok(mut line) = serde_json::from_slice::<Value>(json) else { break };
        if line == "Undone" {
            pending = None;
        } else if let Some(plan) = line.get_mut("Plan") {
            to_current_form(plan);
            pending = Some(line);
        } else if let Some(landed) = line.get("Done") {
            if let Some(plan) = pending.take() {
                let step = &plan["Plan"]["step"];
                notes.remove(&name(&step["task"])?);
                if !step["note"].is_null() {
                    notes.insert(name(landed)?, json!({"step": step["id"], "note": step["note"]}));
                }
            }
        } else if let Some(noted) = line.get_mut("Noted") {
            notes.insert(name(&noted[0])?, noted[1].take());
        }
    }
    let noted = |(task, noted)| (TaskName::clone(&task), json!({"Noted": [task, noted]}));
    let mut lines: Vec<_> = notes.into_iter().map(noted).collect();
    if let Some(plan) = pending {
        lines.push((name(&plan["Plan"]["step"]["task"])?, plan));
    }
    Ok(lines)
}

/// Brings the step of a plan of the old format to the form of today; one that has it already stays as it is. The events had
/// their time in nanoseconds and their type as `kind`. A person's edit was only the end of the text, which the rest of the
/// plan knows as well.
pub(crate) fn to_current_form(plan: &mut Value) {
    let Some(step) = plan.get_mut("step") else { return };
    if let Some(edit) = step.get_mut("edit").filter(|edit| edit.get("Amend").is_some()) {
        *edit = "Keep".into();
    }
    let events = step.get_mut("events").and_then(Value::as_array_mut);
    for event in events.into_iter().flatten().filter_map(Value::as_object_mut) {
        let Some(kind) = event.remove("kind") else { continue };
        let nanos = event.get("time").and_then(Value::as_i64).unwrap_or(0);
        let time = Timestamp::from_nanosecond(nanos.into()).unwrap_or_default();
        event.insert("time".into(), time.to_string().into());
        event.insert("action_type".into(), kind);
        event.insert("turn".into(), Value::Null);
    }
}

/// Writes down what the old counters say beyond the journal, so that both together are what was counted.
fn carry_figures(private: &Path, journal: &dyn Journal) -> Result<()> {
    let folder = private.join("figures");
    if !folder.exists() {
        return Ok(());
    }
    let mut agents: BTreeMap<Agent, [i64; 3]> = BTreeMap::new();
    for name in names_in(&folder)? {
        let Some(agent) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let path = folder.join(name);
        let sums = agents.entry(agent).or_default();
        for part in private::read(&path).at("read", &path)?.chunks(OLD_PART) {
            for (sum, number) in sums.iter_mut().zip(part.chunks_exact(8)) {
                *sum += number.try_into().map_or(0, i64::from_le_bytes);
            }
        }
    }
    for (agent, tally) in journal.tallies()? {
        let sums = agents.entry(agent).or_default();
        for (sum, told) in sums.iter_mut().zip([tally.claims, tally.lost, tally.failed]) {
            *sum -= i64::try_from(told).unwrap_or(i64::MAX);
        }
    }
    agents.retain(|_, differences| *differences != [0; 3]);
    let carried = json!(Carried { journal: journal.id().to_owned(), agents });
    replace_file(&private.join(CARRIED), carried.to_string().as_bytes(), Durability::Durable)
}

/// Adds what was carried over to the figures of the journal.
pub(super) fn add_carried(private: &Path, journal: &str, tallies: &mut BTreeMap<Agent, Tally>) -> Result<()> {
    let path = private.join(CARRIED);
    let Some(bytes) = read(&path)? else { return Ok(()) };
    let carried: Carried = serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(&path, error))?;
    for (agent, [claims, lost, failed]) in carried.agents.into_iter().filter(|_| carried.journal == journal) {
        let tally = tallies.entry(agent).or_default();
        tally.claims = tally.claims.saturating_add_signed(claims);
        tally.lost = tally.lost.saturating_add_signed(lost);
        tally.failed = tally.failed.saturating_add_signed(failed);
    }
    Ok(())
}

//! The format of the vault's private state, and bringing an older one up to date.
//!
//! Format 1 kept logs that were overwritten in place: each line began with 8 digits of a checksum, a zero byte ended the
//! log, and older bytes could follow it. Locks were bytes of the file `stripes`, and each agent had counters in
//! `figures/`. Format 2 has plain JSON lines, locks the logs themselves, and counts in the ledger.
//!
//! Invariants: a newer format is refused, not misread. A migration holds all locks of the old format, so no older process
//! is in the middle of a step; it may die at any point and be run again, because it writes the new logs beside the old
//! ones and the number in `format` changes last.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::carried;
use super::disk::names_in;
use super::log::stripe_of;
use crate::event::Journal;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::replace_file;
use tollgate_base::lock::{self, Lock, Pauses};
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

/// Brings the state to this format, whatever it is now.
pub(super) fn to_this_format(private: &Path, journal: &dyn Journal) -> Result<()> {
    let path = private.join("format");
    match format(&path)? {
        Some(FORMAT) => return Ok(()),
        Some(newer) if newer > FORMAT => {
            return Err(Fault::NewerFormat { path, found: newer, known: FORMAT });
        }
        _ => {}
    }
    let lock_path = private.join("migrating");
    let Some(_alone) = Lock::acquire(&lock_path, WAIT)? else {
        return Err(Fault::Locked { path: lock_path, waited_s: WAIT.as_secs() });
    };
    match format(&path)? {
        Some(FORMAT) => return Ok(()),
        Some(_) => from_format_1(private, journal)?,
        None => {
            let ignore = private.join(".gitignore");
            if !ignore.exists() {
                replace_file(&ignore, b"*\n", Durability::Durable)?;
            }
        }
    }
    // Last, because it says that everything else is done.
    replace_file(&path, format!("{FORMAT}\n").as_bytes(), Durability::Durable)?;
    for old in ["log", "figures"] {
        let _ = fs::remove_dir_all(private.join(old));
    }
    Ok(())
}

fn format(path: &Path) -> Result<Option<u32>> {
    match fs::read_to_string(path) {
        Ok(text) => match text.trim().parse() {
            Ok(found) => Ok(Some(found)),
            Err(_) => Err(Fault::damaged(path, "it should contain the number of the format")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("read", path),
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
    let logs = private.join("log");
    let mut new: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for entry in fs::read_dir(&logs).at("read", &logs)? {
        let path = entry.at("read", &logs)?.path();
        let bytes = fs::read(&path).at("read", &path)?;
        for (task, line) in lines(&bytes, &path)? {
            let log = new.entry(stripe_of(&task)).or_default();
            serde_json::to_writer(&mut *log, &line).map_err(|error| Fault::invalid(error.to_string()))?;
            log.push(b'\n');
        }
    }
    // Nobody uses the new folder before the number in `format` has changed.
    let logs = private.join("logs");
    fs::remove_dir_all(&logs).at("delete", &logs)?;
    fs::create_dir(&logs).at("make the folder", &logs)?;
    for (stripe, bytes) in new {
        replace_file(&logs.join(format!("{stripe:02x}")), &bytes, Durability::Durable)?;
    }
    let owed = private.join("owed");
    for name in names_in(&owed)? {
        let path = owed.join(name);
        let bytes = fs::read(&path).at("read", &path)?;
        // A file that cannot be read is left for a person to look at.
        let Ok(mut plan) = serde_json::from_slice::<Value>(&bytes) else { continue };
        to_current_form(&mut plan);
        replace_file(&path, plan.to_string().as_bytes(), Durability::Durable)?;
    }
    if let Some((name, bytes)) = carried::of_format_1(private, journal)? {
        replace_file(&private.join(name), &bytes, Durability::Durable)?;
    }
    // A process of the older version that is still running finds its locks gone and says so.
    fs::remove_file(&stripes).at("delete", &stripes)
}

/// The lines of an old log that count, as values: records, and the plan of an interrupted step. Each with its task.
fn lines(bytes: &[u8], path: &Path) -> Result<Vec<(TaskName, Value)>> {
    let damaged = |what: &str| Fault::damaged(path, what);
    let name = |value: &Value| -> Result<TaskName> {
        value.as_str().and_then(|name| name.parse().ok()).ok_or_else(|| damaged("a line names no task"))
    };
    let (mut notes, mut pending) = (BTreeMap::new(), None::<Value>);
    let live = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    for line in live.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let Some(json) = line.get(OLD_PREFIX..) else { break };
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
                    let noted = serde_json::json!({"step": step["id"], "note": step["note"]});
                    notes.insert(name(landed)?, noted);
                }
            }
        } else if let Some(Value::Array(noted)) = line.get_mut("Noted") {
            let (task, noted) = (name(&noted[0])?, noted[1].take());
            notes.insert(task, noted);
        }
    }
    let noted = |(task, noted): (TaskName, Value)| {
        let line = serde_json::json!({"Noted": [&task, noted]});
        (task, line)
    };
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
    let Some(Value::Array(events)) = step.get_mut("events") else { return };
    for event in events.iter_mut().filter(|event| event.get("kind").is_some()) {
        let nanos = event["time"].as_i64().unwrap_or(0);
        event["time"] = Timestamp::from_nanosecond(nanos.into()).unwrap_or_default().to_string().into();
        event["action_type"] = event["kind"].take();
        event["turn"] = Value::Null;
        if let Value::Object(event) = event {
            event.remove("kind");
        }
    }
}

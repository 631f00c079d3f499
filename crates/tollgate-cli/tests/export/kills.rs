//! Real processes, killed during an export: before every call that changes a file, and at random.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tollgate::event::{Event, TurnMark};
use tollgate::ledger::{Entry, Ledger};
use tollgate::settings::Durability;
use tollgate_testing::strace;

use crate::chance::Dice;
use crate::endpoint::{Endpoint, Reply};
use crate::lines::{is_complete, world_with};
use crate::world::{World, until};

/// All calls that can change a file, and those that can create one.
const CALLS: &str =
    "openat,openat2,write,pwrite64,rename,renameat,renameat2,ftruncate,mkdir,mkdirat,fsync,fdatasync";

/// More than one page.
const LINES: u64 = 700;

fn trace(world: &World, kill: &[String], log: &Path) {
    let export = [env!("CARGO_BIN_EXE_tollgate"), "export", "--to", "ndjson", "--out", "out"];
    let _ = world.program("strace", strace::arguments(CALLS, log, kill, export)).ends();
}

#[test]
fn killed_before_every_call_that_changes_a_file_the_next_export_completes_the_file() {
    let recorded = world_with(LINES, 300);
    let log = recorded.tmp().join("strace");
    trace(&recorded, &[], &log);
    assert_eq!(is_complete(&fs::read_to_string(recorded.path("out")).unwrap(), LINES), 700);
    let calls = strace::calls(&fs::read_to_string(&log).unwrap());
    let calls: Vec<_> = calls.into_iter().filter(strace::Call::changes).collect();
    assert!(calls.len() > 10, "{calls:?}");
    let mut repeated = 0;
    for call in calls {
        let world = world_with(LINES, 300);
        let log = world.tmp().join("strace");
        trace(&world, &[call.inject("signal=KILL")], &log);
        assert!(fs::read_to_string(&log).unwrap().contains("killed by SIGKILL"), "{call:?}");
        world.run("export --to ndjson --out out").is(0);
        let count = is_complete(&fs::read_to_string(world.path("out")).unwrap(), LINES);
        repeated += usize::from(count > 700);
    }
    assert!(repeated > 0, "a kill after the lines and before the place repeats lines");
}

#[test]
fn a_line_that_a_dead_process_began_is_not_left_in_the_file() {
    let world = world_with(10, 100);
    world.run("export --to ndjson --out out").is(0);
    let whole = fs::read_to_string(world.path("out")).unwrap();
    // As if it had died in the middle of its last line, before it saved the place.
    let saved = fs::read_dir(world.path(".tollgate/exports")).unwrap();
    let saved =
        saved.map(|entry| entry.unwrap().path()).find(|path| path.extension().unwrap() == "json").unwrap();
    let mut place: Value = serde_json::from_slice(&fs::read(&saved).unwrap()).unwrap();
    place["place"] = "".into();
    fs::write(&saved, place.to_string()).unwrap();
    fs::write(world.path("out"), &whole[..whole.len() - 40]).unwrap();
    world.run("export --to ndjson --out out").is(0);
    assert_eq!(is_complete(&fs::read_to_string(world.path("out")).unwrap(), 10), 19);
}

#[test]
fn an_export_that_is_killed_at_random_while_agents_write_loses_nothing() {
    let world = World::new();
    let state = world.path(".tollgate");
    fs::create_dir(state.join("locks")).unwrap();
    // So small that the ledger goes on in a new file every few hundred lines.
    let ledger = Ledger::new(&state, &state.join("locks/ledger"), 50_000, None);
    let length = || fs::metadata(world.path("out")).map_or(0, |found| found.len());
    let (mut dice, mut lines, mut written, mut kills) = (Dice::new(), 0, 0, 0);
    for _ in 0..20 {
        let mut process = world.tollgate(["export", "--to", "ndjson", "--out", "out", "--follow"]).starts();
        let more = 50 + dice.roll(600) as u64;
        for burst in 0..more.div_ceil(25) {
            let entry = |n| {
                let agent = Some(["blue", "red"][usize::from(n % 2 == 0)].parse().unwrap());
                let event = Event::TurnStarted(TurnMark {});
                Entry { time: jiff::Timestamp::now(), agent, turn: None, event }
            };
            let entries: Vec<_> = (burst * 25..more.min(burst * 25 + 25)).map(entry).collect();
            ledger.append(&entries, Durability::Fast).unwrap();
        }
        lines += more;
        written += more * 300;
        // At some moment between the first new line and the last, or after it.
        let target = length() + dice.roll(usize::try_from(written).unwrap() / 10) as u64;
        let whole = || {
            let text = fs::read_to_string(world.path("out")).unwrap_or_default();
            text.contains(&format!("\"seq\":{lines},"))
        };
        until("some lines", || (length() > target || whole()).then_some(()));
        process.signal(Signal::KILL);
        kills += usize::from(process.ends().code().is_none());
    }
    assert_eq!(kills, 20);
    world.run("export --to ndjson --out out").is(0);
    is_complete(&fs::read_to_string(world.path("out")).unwrap(), lines);
    assert!(fs::read_dir(&state).unwrap().count() > 8, "the ledger went on in new files");
}

/// Exports with an endpoint that kills the exporting process in the middle of requests, until one export is complete.
fn exported_with_kills(format: &str, lines: u64) -> (Endpoint, usize) {
    let world = world_with(lines, 1000);
    let victim = Arc::new(Mutex::new(None::<Pid>));
    let (aim, mut dice, mut is_lost) = (Arc::clone(&victim), Dice::new(), false);
    let endpoint = Endpoint::start(move |_| {
        let mut victim = aim.lock().unwrap();
        match *victim {
            Some(id) if dice.roll(5) == 0 => {
                kill_process(id, Signal::KILL).unwrap();
                *victim = None;
                // In turn before the request is taken, and after it.
                is_lost = !is_lost;
                if is_lost { Reply::HangUp } else { Reply::Take }
            }
            _ => Reply::Take,
        }
    });
    let mut kills = 0;
    loop {
        // Locked, so that no request is answered before the endpoint knows its victim.
        let mut aim = victim.lock().unwrap();
        let words = ["export", "--to", format, "--endpoint", &endpoint.url];
        let mut process = world.tollgate(words).starts();
        *aim = Some(Pid::from_child(&process.0));
        drop(aim);
        let ended = until("the end of an export", || {
            // Not while the endpoint aims: a process that was reaped must not be killed.
            let mut aim = victim.lock().unwrap();
            process.ended().inspect(|_| *aim = None)
        });
        if ended.success() {
            return (endpoint, kills);
        }
        assert_eq!(ended.code(), None);
        kills += 1;
        assert!(kills < 200);
    }
}

#[test]
fn killed_in_the_middle_of_requests_every_cloudevent_arrives_in_order_with_one_id() {
    let (endpoint, kills) = exported_with_kills("cloudevents", 9000);
    assert!(kills > 1, "{kills}");
    let (mut last, mut seen) = (0, BTreeMap::new());
    for event in endpoint.taken().iter().flat_map(|arrived| arrived.json().as_array().unwrap().clone()) {
        let seq = event["data"]["seq"].as_u64().unwrap();
        assert!(seq <= last + 1, "{seq} comes after {last}");
        last = last.max(seq);
        let first = seen.entry(event["id"].as_str().unwrap().to_owned()).or_insert_with(|| event.clone());
        assert_eq!(*first, event);
    }
    assert_eq!((last, seen.len()), (9000, 9000));
}

#[test]
fn killed_in_the_middle_of_requests_logs_spans_and_sums_are_complete() {
    let (endpoint, kills) = exported_with_kills("otlp", 2200);
    assert!(kills > 1, "{kills}");
    let (mut last, mut logs, mut spans, mut sums) = (0, BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for arrived in endpoint.taken() {
        let json = arrived.json();
        let of = |pointer| json.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        for log in of("/resourceLogs/0/scopeLogs/0/logRecords") {
            let attribute = |key: &str| {
                let attributes = log["attributes"].as_array().unwrap().iter();
                attributes.clone().find(|one| one["key"] == key).unwrap()["value"].clone()
            };
            let seq: u64 = attribute("tollgate.seq")["intValue"].as_str().unwrap().parse().unwrap();
            assert!(seq <= last + 1, "{seq} comes after {last}");
            last = last.max(seq);
            let id = attribute("log.record.uid")["stringValue"].as_str().unwrap().to_owned();
            assert_eq!(*logs.entry(id).or_insert_with(|| log.clone()), log);
        }
        for span in of("/resourceSpans/0/scopeSpans/0/spans") {
            let id = span["spanId"].as_str().unwrap().to_owned();
            assert_eq!(*spans.entry(id).or_insert_with(|| span.clone()), span);
        }
        for point in of("/resourceMetrics/0/scopeMetrics/0/metrics/0/sum/dataPoints") {
            let count: u64 = point["asInt"].as_str().unwrap().parse().unwrap();
            // The receiver keeps the last value of each series.
            sums.insert(point["attributes"].to_string(), count);
        }
    }
    assert_eq!((last, logs.len(), spans.len()), (2200, 2200, 550));
    assert_eq!(sums.values().sum::<u64>(), 2200);
}

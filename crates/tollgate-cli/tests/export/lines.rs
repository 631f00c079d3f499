//! Ledgers of any length, made quickly, and what must be true of an export of one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tollgate::digest::Digest;

use crate::world::World;

/// A workspace with a ledger of this number of lines, with that number in each file.
pub(crate) fn world_with(lines: u64, per_file: u64) -> World {
    let world = World::new();
    write_ledger(&world.path(".tollgate"), lines, per_file);
    world
}

/// Writes a ledger: turns of four lines, of three agents.
pub(crate) fn write_ledger(state: &Path, lines: u64, per_file: u64) {
    let hash = format!("sha256:{}", Digest::of(b"x"));
    let mut prev = Digest::from_bytes([0; 32]);
    let (mut text, mut first) = (String::new(), 1);
    for seq in 1..=lines {
        let (turn, agent) = ((seq - 1) / 4, ["blue", "red", "green"][(seq % 3) as usize]);
        let event = match seq % 4 {
            1 => r#""action_type":"TURN_STARTED","payload":{},"result":{"status":"OK"}"#.to_owned(),
            0 => r#""action_type":"TURN_ENDED","payload":{},"result":{"status":"OK"}"#.to_owned(),
            2 => format!(
                r#""action_type":"MUTATION_CONFLICT","payload":{{"tool_name":"write_file","target_file":"src/{turn}.rs","baseline_hash":"{hash}","current_hash":null}},"result":{{"status":"DENIED","error_type":"STALE_FILE"}}"#
            ),
            _ => format!(
                r#""action_type":"MUTATION","payload":{{"id":"{seq}","tool_name":"write_file","target_file":"src/{turn}.rs","hash_before":null,"hash_after":"{hash}"}},"result":{{"status":"APPLIED"}}"#
            ),
        };
        let start = text.len();
        write!(
            text,
            r#"{{"seq":{seq},"prev":"{prev}","time":"2026-11-16T12:{:02}:{:02}.{:06}Z","agent":"{agent}","turn":"t-{turn:016x}",{event}}}"#,
            seq / 60_000_000 % 60,
            seq / 1_000_000 % 60,
            seq % 1_000_000,
        )
        .unwrap();
        prev = Digest::of(&text.as_bytes()[start..]);
        text.push('\n');
        if seq == lines {
            fs::write(state.join("ledger.jsonl"), &text).unwrap();
        } else if seq % per_file == 0 {
            fs::write(state.join(format!("ledger-{first}.jsonl")), &text).unwrap();
            (text, first) = (String::new(), seq + 1);
        }
    }
}

/// Every line of an export is whole, none is missing, they are in order, and each has the id of its text. Some may be
/// repeated. Returns their number, with repeats.
#[track_caller]
pub(crate) fn is_complete(exported: &str, lines: u64) -> usize {
    assert!(exported.is_empty() || exported.ends_with('\n'), "the last line is whole");
    let mut last = 0;
    for line in exported.lines() {
        let (id, rest) = line.strip_prefix(r#"{"id":""#).and_then(|line| line.split_once(r#"","#)).unwrap();
        assert_eq!(id, Digest::of(format!("{{{rest}").as_bytes()).to_string(), "{line}");
        let value: Value = serde_json::from_str(line).unwrap();
        let seq = value["seq"].as_u64().unwrap();
        assert!(seq <= last + 1, "line {seq} comes after {last}");
        last = last.max(seq);
    }
    assert_eq!(last, lines);
    exported.lines().count()
}

//! Agent Trace records: which agent wrote which lines. See <https://agent-trace.dev>. Pure but for [`FileTexts`].
//!
//! The ledger has hashes and no texts, so the lines of a change are known only while both texts of the file can still be had:
//! on disk, or in recovery. Otherwise the record names the file without lines, and says so.

use serde_json::{Value, json};
use similar::{DiffTag, TextDiff};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, FileChanged, Mutation, MutationStatus};

use crate::encoder::{Encoded, ExportFormat};
use crate::file_texts::FileTexts;
use crate::ndjson::NDJSON;
use crate::origin::ExportOrigin;
use crate::record::ExportRecord;
use crate::shipment::BodyForm;

/// Which agent wrote which lines.
pub(crate) static FORMAT: ExportFormat = ExportFormat {
    name: "agent-trace",
    about: "Agent Trace records: which agent wrote which lines",
    reads_texts: true,
    encode: |encoder, records, _| {
        let item = |record: &ExportRecord| trace_record(record, &encoder.origin, &*encoder.texts);
        Encoded::one_by_one(records, (NDJSON, BodyForm::Lines), item)
    },
};

/// The version of the specification, in the form that its JSON Schema asks for.
const VERSION: &str = "0.1";

/// The record of a guarded change. `None` for other events, and for moves, which write no lines.
fn trace_record(
    record: &ExportRecord,
    origin: &ExportOrigin,
    texts: &dyn FileTexts,
) -> Result<Option<String>> {
    let Event::Mutation(Mutation::File(change), MutationStatus::Applied) = &record.event else {
        return Ok(None);
    };
    if change.moved_to.is_some() || change.hash_before == change.hash_after {
        return Ok(None);
    }
    let ranges = ranges(change, texts);
    // Programs give their agents names. An agent with the user's name may be a program without a name, or the user.
    let agent = record.agent.as_ref().map_or("", |agent| agent.as_str());
    let contributor = if agent.is_empty() || agent == origin.user { "unknown" } else { "ai" };
    let path = match origin.folder.as_str() {
        "" => change.target_file.clone(),
        folder => format!("{folder}/{}", change.target_file),
    };
    let trace = json!({
        "version": VERSION,
        "id": uuid(record.id),
        "timestamp": record.time,
        "tool": { "name": "tollgate", "version": origin.version },
        "files": [{
            "path": path,
            "conversations": [{
                "contributor": { "type": contributor },
                "ranges": ranges.as_deref().unwrap_or_default(),
            }],
        }],
        "metadata": { "tollgate": {
            "ledger": origin.uri,
            "seq": record.seq,
            "agent": record.agent,
            "turn": record.turn,
            "tool_name": change.tool_name,
            "change_id": change.id,
            "hash_before": change.hash_before,
            "hash_after": change.hash_after,
            "lines": if ranges.is_some() { "known" } else { "unknown" },
        } },
    });
    Ok(Some(trace.to_string()))
}

/// The lines of the new text that are not in the old one. `None` if the texts cannot be had.
fn ranges(change: &FileChanged, texts: &dyn FileTexts) -> Option<Vec<Value>> {
    let text = |hash: Option<Digest>| match hash {
        Some(hash) => texts.text(&change.target_file, hash),
        None => Some(Vec::new()),
    };
    let (before, after) = (text(change.hash_before)?, text(change.hash_after)?);
    let diff = TextDiff::from_lines(before.as_slice(), after.as_slice());
    let written = diff.ops().iter().filter(|op| matches!(op.tag(), DiffTag::Insert | DiffTag::Replace));
    let range = |op: &similar::DiffOp| {
        let lines = op.new_range();
        let written: Vec<u8> =
            lines.clone().filter_map(|line| diff.new_slice(line)).flatten().copied().collect();
        json!({
            "start_line": lines.start + 1,
            "end_line": lines.end,
            "content_hash": format!("sha256:{}", Digest::of(&written)),
        })
    };
    Some(written.map(range).collect())
}

/// A UUID of version 8, which leaves its bits to us, from the first bytes of an id.
fn uuid(id: Digest) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&id.as_bytes()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

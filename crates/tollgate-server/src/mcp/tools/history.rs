//! Tools that say who did what to a file.

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::error::Fault;
use tollgate::history::blame::{BlamedLine, Writer, blame as blamed};
use tollgate::history::content::Contents;
use tollgate::history::ledger_name;
use tollgate::history::listing::{PastChanges, Selection};
use tollgate::history::turn::ReadsOfTurns;

use super::call::{ToolCall, done};
use super::schema::{Input, Output, Shape};
use super::tool::{Hints, Tool};
use crate::mcp::answer::ToolAnswer;

/// The most changes in one answer.
const MOST_CHANGES: usize = 100;

/// The number of changes if the call does not say it.
const CHANGES: usize = 10;

/// The number of reads in an answer: more than a model looks at. The rest are counted.
const READS: usize = 200;

/// The bytes of diffs in one answer. Longer ones are left out.
const DIFFS: usize = 64 << 10;

const CHANGES_OUTPUT: Output = Output(|| list("changes"), Some(Shape::refusal));
const LINES_OUTPUT: Output = Output(|| list("lines"), Some(Shape::refusal));

fn list(name: &str) -> Shape {
    Shape::all(json!({name: {"type": "array", "items": {"type": "object"}}}))
}

pub(super) static FILE_HISTORY: Tool = Tool {
    name: "file_history",
    title: "File History",
    description: "Who changed a file, newest first, also under its earlier names: for each change its `seq`, `time`, \
        `agent`, `turn`, `task` and `via` (the tool), the lines `added` and `removed`, and the `diff` of this file. The diff \
        is null if its bytes are no longer kept, and in long answers. What programs without tollgate saved has no entry. \
        Use it to find out why a file is not as you expected, before you change it back.",
    hints: Hints::Reads,
    input: Input(history_properties, &["path"]),
    output: CHANGES_OUTPUT,
    run: history,
};

pub(super) static BLAME: Tool = Tool {
    name: "blame",
    title: "Blame",
    description: "Who wrote the lines of a file: ranges of lines (`from`, `to`) with the `agent`, its change (`seq`, for \
        file_history) and the `time`. `by` is `agent`, `somebody_else` (a person, or a program without tollgate), `commit` \
        (older, from git, with `author`), `before` or `not_kept`. With `why`, also what the agent had read before it wrote \
        them (`reads`), or why that is not known (`reads_unknown`). It does not count as a read of the file.",
    hints: Hints::Reads,
    input: Input(blame_properties, &["path"]),
    output: LINES_OUTPUT,
    run: blame,
};

fn history_properties() -> Value {
    json!({
        "path": {"type": "string"},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_CHANGES,
            "default": CHANGES,
            "description": "The number of changes",
        },
    })
}

fn blame_properties() -> Value {
    json!({
        "path": {"type": "string"},
        "line": {"type": "integer", "minimum": 1, "description": "Only this line"},
        "why": {"type": "boolean", "default": false, "description": "Also what the agents had read"},
    })
}

#[derive(Deserialize)]
struct HistoryArguments {
    path: String,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct BlameArguments {
    path: String,
    #[serde(default)]
    line: Option<usize>,
    #[serde(default)]
    why: bool,
}

fn history(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: HistoryArguments = call.arguments(value)?;
    let workspace = call.gate.workspace();
    let name = ledger_name(workspace, &done(workspace.inside(call.path(&given.path)?))?);
    let most = Some(given.limit.unwrap_or(CHANGES).clamp(1, MOST_CHANGES));
    let listed =
        PastChanges::list(workspace, &Selection { file: Some(&name), most, ..Selection::default() })?;
    let contents = listed.contents(workspace);
    let mut room = DIFFS;
    let mut changes: Vec<Value> = Vec::new();
    for change in &listed.changes {
        let diff = change.diff(&contents)?.filter(|diff| diff.len() <= room);
        room -= diff.as_ref().map_or(0, String::len);
        let mut json = change.json();
        json["diff"] = diff.into();
        changes.push(json);
    }
    Ok(ToolAnswer::value(json!({"changes": changes})))
}

fn blame(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: BlameArguments = call.arguments(value)?;
    let workspace = call.gate.workspace();
    let path = done(workspace.inside(call.path(&given.path)?))?;
    let name = ledger_name(workspace, &path);
    let cannot = |why: &str, hint: &str| {
        ToolAnswer::failure(format!("`{}` cannot be blamed: {why}\nhint: {hint}", given.path))
    };
    let Some(found) = Contents::of(workspace).text_on_disk(&name)? else {
        return Err(cannot("it is not a file", "call file_history to see what happened to it"));
    };
    let Some(bytes) = found.bytes.filter(|bytes| str::from_utf8(bytes).is_ok()) else {
        return Err(cannot(
            "it is larger than 256 KiB, or not text",
            "call file_history to see who changed it",
        ));
    };
    let lines = blamed(workspace, &name, path.as_path(), &bytes)?;
    let mut reads = given.why.then(|| ReadsOfTurns::new(workspace, &|_| None));
    let ranges = match given.line {
        None => ranges(&lines, reads.as_mut())?,
        Some(line) => match line.checked_sub(1).and_then(|index| lines.get(index)) {
            Some(only) => ranges(std::slice::from_ref(only), reads.as_mut())?,
            None => {
                return Err(cannot(
                    &format!("it has no line {line}"),
                    "give a line from 1 to the last one, or none",
                ));
            }
        },
    };
    Ok(ToolAnswer::value(json!({"lines": ranges})))
}

/// Lines that follow each other and have one writer.
fn ranges(lines: &[BlamedLine], mut reads: Option<&mut ReadsOfTurns<'_>>) -> Result<Vec<Value>, Fault> {
    let same =
        |one: &BlamedLine, other: &BlamedLine| one.writer == other.writer && one.commit == other.commit;
    let mut room = READS;
    lines
        .chunk_by(same)
        .map(|lines| {
            let mut json = json!({"from": lines[0].number, "to": lines[lines.len() - 1].number});
            if let (Value::Object(json), Value::Object(who)) = (&mut json, lines[0].json()) {
                json.extend(who);
            }
            if let (Some(reads), Writer::Step(step)) = (&mut reads, &lines[0].writer) {
                reads.of([(step.turn.as_ref(), Some(step.time))])?.put(&mut json, &mut room);
            }
            Ok(json)
        })
        .collect()
}

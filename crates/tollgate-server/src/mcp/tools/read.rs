//! Tools that read files. The turn remembers the hash of what was read.

use std::io::{self, Write};
use std::path::Path;

use base64::Engine;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::error::Fault;
use tollgate::gate::Read;
use tollgate::guard::Outcome;
use tollgate::part::Part;

use super::call::{ToolCall, done};
use super::schema::{Input, Output, PathArguments, Shape, path_only};
use super::tool::{Hints, Tool};
use crate::mcp::answer::{Item, LARGEST, ToolAnswer};
use crate::mcp::turns::RunningTurn;

/// The most bytes of files in one answer. Each byte is at least one byte of JSON, twice, so more would not fit.
const MOST: usize = LARGEST / 2;

/// The most files in one call: more than a model names. A file that cannot be read takes a line of the answer, too.
const MOST_FILES: usize = 10_000;

pub(super) static READ_FILE: Tool = Tool {
    name: "read_file",
    title: "Read File (Deprecated)",
    description: "Read a file as text. Deprecated: use read_text_file, which does the same.",
    hints: Hints::Reads,
    input: Input(text_properties, &["path"]),
    output: Output::TEXT,
    run: text,
};

pub(super) static READ_TEXT_FILE: Tool = Tool {
    name: "read_text_file",
    title: "Read Text File",
    description: "Read a file as text, whatever its extension: all of it, the first N lines (`head`) or the \
        last N lines (`tail`). Read a file before you change it: a later write is refused with STALE_FILE if somebody \
        else has changed the file since, and then you must read it again. Only inside the allowed directories.",
    hints: Hints::Reads,
    input: Input(text_properties, &["path"]),
    output: Output::TEXT,
    run: text,
};

fn text_properties() -> Value {
    json!({
        "path": {"type": "string"},
        "tail": {"type": "number", "description": "Read only the last N lines"},
        "head": {"type": "number", "description": "Read only the first N lines"},
    })
}

#[derive(Deserialize)]
struct TextArguments {
    path: String,
    tail: Option<f64>,
    head: Option<f64>,
}

fn text(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: TextArguments = call.arguments(value)?;
    let part = match (lines("head", given.head)?, lines("tail", given.tail)?) {
        (None, None) => Part::Whole,
        (Some(head), None) => Part::Head(head),
        (None, Some(tail)) => Part::Tail(tail),
        (Some(_), Some(_)) => return Err(ToolAnswer::failure("`head` and `tail` cannot be given together")),
    };
    let read = read(call, &*call.turn()?, &call.readable(&given.path)?, part)?;
    let (mut text, lossy) = decode(read.bytes);
    if matches!(part, Part::Head(_)) && text.ends_with('\n') {
        // The lines without the final line end.
        text.pop();
    }
    let answer = ToolAnswer::text(text).with_sha256(Some(read.sha256));
    Ok(if lossy { answer.with_meta("lossy", json!(true)) } else { answer })
}

/// The number of lines. Zero means no limit, as in the reference server.
fn lines(name: &str, given: Option<f64>) -> Result<Option<usize>, ToolAnswer> {
    match given {
        None => Ok(None),
        Some(count) if count >= 0.0 && count.fract() == 0.0 => {
            // The cast saturates, and no file has that many lines.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
            let count = count as usize;
            Ok((count > 0).then_some(count))
        }
        Some(count) => {
            Err(ToolAnswer::failure(format!("`{name}` must be a whole number of lines, not {count}")))
        }
    }
}

/// Reads for the turn. A refusal becomes the answer.
fn read(call: &ToolCall<'_>, running: &RunningTurn, path: &Path, part: Part) -> Result<Read, ToolAnswer> {
    done(Ok(try_read(call, running, path, part)?))
}

fn try_read(
    call: &ToolCall<'_>,
    running: &RunningTurn,
    path: &Path,
    part: Part,
) -> Result<Outcome<Read>, ToolAnswer> {
    let _lane = running.reading(&call.canonical(path)?);
    let mut bytes = AnswerBuffer(Vec::new());
    let outcome = call.gate.read_to(running.turn(), path, part, &mut bytes);
    let too_large = |what: &str, hint: &str| {
        let path = path.display();
        Err(ToolAnswer::failure(format!("{what} `{path}` are too large for one answer\nhint: {hint}")))
    };
    match outcome {
        Err(Fault::Io { source, .. }) if source.kind() == io::ErrorKind::FileTooLarge => match part {
            Part::Tail(_) => {
                too_large("the last lines of", "ask for fewer lines: they may have 16 MiB together")
            }
            Part::Head(_) | Part::Lines { .. } => too_large("these lines of", "ask for fewer lines"),
            Part::Whole => too_large(
                &format!("more than {} MiB of", MOST >> 20),
                "read a part of it with `head` or `tail`",
            ),
        },
        outcome => {
            let outcome = outcome?;
            if let Outcome::Done(read) = &outcome {
                call.shows(read.path.as_path())?;
            }
            Ok(outcome.map(|read| Read { bytes: bytes.0, ..read }))
        }
    }
}

/// A buffer that fails when it holds more than fits into an answer.
struct AnswerBuffer(Vec<u8>);

impl Write for AnswerBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MOST - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() >= room {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text, and whether it is lossy: bytes that are not UTF-8 become U+FFFD.
fn decode(bytes: Vec<u8>) -> (String, bool) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    }
}

/// Images, audio, bytes.
const MEDIA: Output = Output(|| Shape::all(media_properties()), Some(Shape::refusal));

fn media_properties() -> Value {
    json!({"content": {"type": "array", "items": {"anyOf": [
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["image", "audio"]},
                "data": {"type": "string"},
                "mimeType": {"type": "string"},
            },
            "required": ["type", "data", "mimeType"],
            "additionalProperties": false,
        },
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "const": "resource"},
                "resource": {
                    "type": "object",
                    "properties": {
                        "uri": {"type": "string"},
                        "mimeType": {"type": "string"},
                        "blob": {"type": "string"},
                    },
                    "required": ["uri", "blob"],
                    "additionalProperties": false,
                },
            },
            "required": ["type", "resource"],
            "additionalProperties": false,
        },
    ]}}})
}

pub(super) static READ_MEDIA_FILE: Tool = Tool {
    name: "read_media_file",
    title: "Read Media File",
    description: "Read a file as base64 with its MIME type. Images and audio are returned as such, any other \
        file as an embedded resource. Only inside the allowed directories.",
    hints: Hints::Reads,
    input: Input(path_only, &["path"]),
    output: MEDIA,
    run: media,
};

fn media(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: PathArguments = call.arguments(value)?;
    let read = read(call, &*call.turn()?, &call.readable(&given.path)?, Part::Whole)?;
    let data = base64::engine::general_purpose::STANDARD.encode(&read.bytes);
    let mime_type = mime_type(read.path.as_path());
    let (item, shown) = match mime_type.split_once('/') {
        Some(("image", _)) => {
            let shown = json!({"type": "image", "data": data, "mimeType": mime_type});
            (Item::Image { data, mime_type }, shown)
        }
        Some(("audio", _)) => {
            let shown = json!({"type": "audio", "data": data, "mimeType": mime_type});
            (Item::Audio { data, mime_type }, shown)
        }
        _ => {
            let uri = file_uri(read.path.as_path());
            let resource = json!({"uri": uri, "mimeType": mime_type, "blob": data});
            (Item::Blob { data, mime_type, uri }, json!({"type": "resource", "resource": resource}))
        }
    };
    Ok(ToolAnswer::shown(vec![item], json!({"content": [shown]})).with_sha256(Some(read.sha256)))
}

fn mime_type(path: &Path) -> &'static str {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "bmp" => "image/bmp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "ogg" => "audio/ogg",
        "flac" => "audio/flac",
        _ => "application/octet-stream",
    }
}

fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'"' | b'#' | b'<' | b'>' | b'?' | b'`' | b'{' | b'}' | b'%' | b'\\' | b'^' => {
                uri.push_str(&format!("%{byte:02X}"));
            }
            byte if byte.is_ascii_graphic() => uri.push(char::from(byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

pub(super) static READ_MULTIPLE_FILES: Tool = Tool {
    name: "read_multiple_files",
    title: "Read Multiple Files",
    description: "Read several files as text in one call. Each is returned with its path. A file that cannot \
        be read does not stop the others. Only inside the allowed directories.",
    hints: Hints::Reads,
    input: Input(several_properties, &["paths"]),
    output: Output::TEXT,
    run: several,
};

fn several_properties() -> Value {
    json!({"paths": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": "The files to read",
    }})
}

#[derive(Deserialize)]
struct ReadSeveralArguments {
    paths: Vec<String>,
}

fn several(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: ReadSeveralArguments = call.arguments(value)?;
    if given.paths.is_empty() {
        return Err(ToolAnswer::failure("invalid arguments for `read_multiple_files`: `paths` is empty"));
    }
    call.few("paths", given.paths.len(), MOST_FILES)?;
    let running = call.turn()?;
    let mut hashes = Map::new();
    let mut shown = Vec::with_capacity(given.paths.len());
    let mut size = 0;
    for name in &given.paths {
        let answer =
            call.readable(name).and_then(|path| match try_read(call, &running, &path, Part::Whole)? {
                Outcome::Done(read) => Ok(read),
                // A report is JSON for one file. Among other files its message is enough.
                Outcome::Refused(refused) => {
                    Err(ToolAnswer::failure(&*refused.refusals()[0].report().message))
                }
            });
        match answer {
            Ok(read) => {
                size += read.bytes.len();
                if size > MOST {
                    return Err(ToolAnswer::failure(format!(
                        "these files are larger than {} MiB together, too large for one answer\nhint: read fewer files in one call",
                        MOST >> 20
                    )));
                }
                hashes.insert(name.clone(), json!(read.sha256));
                shown.push(format!("{name}:\n{}\n", decode(read.bytes).0));
            }
            Err(answer) => {
                hashes.insert(name.clone(), Value::Null);
                let text = match answer.content.into_iter().next() {
                    Some(Item::Text(text)) => text,
                    _ => String::new(),
                };
                shown.push(format!("{name}: Error - {text}"));
            }
        }
    }
    Ok(ToolAnswer::text(shown.join("\n---\n")).with_meta("sha256", Value::Object(hashes)))
}

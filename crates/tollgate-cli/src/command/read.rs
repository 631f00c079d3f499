//! `tollgate read`: prints a file and records its hash in the turn.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate::guard::Outcome;
use tollgate::part::Part;
use tollgate::visible::plain;

use super::bytes::put_content;
use crate::answer::{Answer, Form, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Print a file, and record its hash in the turn
///
/// Prints exactly the bytes of the file. Large files are streamed. With --json it prints {"file_path","sha256","content"}; the
/// hash is that of the whole file, even with --lines. If the bytes are not UTF-8, "content" is null and they are in
/// "content_base64". Bytes of file names that are not UTF-8 are shown as U+FFFD.
///
/// If another program is writing the file, the command waits for a moment. A read of a missing file also counts as a read: the
/// turn may then create the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate read src/a.rs
  tollgate read src/a.rs --lines 10:20
  tollgate read src/a.rs --json | jq -r .sha256")]
pub(crate) struct ReadArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// Only these lines, counted from 1, both ends included: `10:20`, `10:`, `:20` or `10`
    #[arg(long, value_name = "A:B", value_parser = lines)]
    lines: Option<Part>,
}

fn lines(text: &str) -> Result<Part, String> {
    let number = |text: &str| match text.parse::<usize>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(words::bad_line_number(text)),
    };
    let (from, to) = match text.split_once(':') {
        None => (number(text)?, Some(number(text)?)),
        Some((from, to)) => (
            if from.is_empty() { 1 } else { number(from)? },
            if to.is_empty() { None } else { Some(number(to)?) },
        ),
    };
    match to {
        Some(to) if to < from => Err(words::lines_backwards(from, to)),
        _ => Ok(Part::Lines { from, to }),
    }
}

/// The largest file that is printed as JSON.
const LARGEST: u64 = 256 << 20;

pub(crate) fn run(invocation: &Invocation, args: &ReadArgs) -> Result<Answer, CliError> {
    let path = invocation.path(&args.path)?;
    let gate = invocation.gate()?;
    let turn = invocation.turn(&gate)?;
    let part = args.lines.unwrap_or_default();
    match invocation.form() {
        Form::Words => {
            let mut stdout = BufWriter::new(io::stdout().lock());
            match gate.read_to(turn.as_ref(), path, part, &mut stdout)? {
                Outcome::Done(_) => {
                    stdout.flush()?;
                    Ok(Answer::Streamed)
                }
                Outcome::Refused(refused) => Ok(Answer::ReadRefused(refused)),
            }
        }
        // JSON is built in memory.
        Form::Json if part == Part::Whole && fs::metadata(&path).is_ok_and(|file| file.len() > LARGEST) => {
            Err(CliError::usage(
                format!(
                    "`{}` has more than 256 MiB, too much for one JSON document",
                    plain(&path.to_string_lossy())
                ),
                "read a part with `--lines`, or without `--json`",
            ))
        }
        Form::Json => match gate.read(turn.as_ref(), path, part)? {
            Outcome::Done(read) => {
                let mut json = json!({"file_path": read.path.to_string(), "sha256": read.sha256});
                put_content(&mut json, read.bytes);
                Ok(Answer::Done(Reply { json, ..Reply::default() }))
            }
            Outcome::Refused(refused) => Ok(Answer::ReadRefused(refused)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_several_spellings() {
        for (text, from, to) in
            [("2:3", 2, Some(3)), ("2:", 2, None), (":3", 1, Some(3)), (":", 1, None), ("7", 7, Some(7))]
        {
            assert_eq!(lines(text).unwrap(), Part::Lines { from, to }, "{text}");
        }
        for bad in ["", "0", "0:2", "3:2", "-1", "a:b", "1:2:3", "99999999999999999999"] {
            assert!(lines(bad).is_err(), "{bad}");
        }
    }
}

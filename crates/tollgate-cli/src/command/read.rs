//! `tollgate read`: the bytes of a file, and the turn remembers what was seen.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate::guard::Outcome;
use tollgate::part::Part;

use crate::answer::{Answer, Form, Said, Stop};
use crate::door::Door;
use crate::{command, words};

/// Print a file, and let the turn remember what was seen
///
/// Prints exactly the bytes of the file. Large files are streamed. With --json it prints
/// {"file_path","sha256","content"}: the hash is that of the whole file, also if only some lines were asked for. Bytes that
/// are not UTF-8 have `"content":null` and are in `"content_base64"`. In file names, what is not UTF-8 is
/// shown as U+FFFD.
///
/// A file that is being written is waited for, at most a moment. To have looked for a file that is not there counts as
/// knowing that: the turn may then create it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate read src/a.rs
  tollgate read src/a.rs --lines 10:20
  tollgate read src/a.rs --json | jq -r .sha256")]
pub(crate) struct Wish {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// Only these lines, both included, from 1: `10:20`, `10:` to the end, `:20` from the start, `10`
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

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let path = door.path(&wish.path)?;
    let gate = door.gate()?;
    let turn = door.turn()?;
    let part = wish.lines.unwrap_or_default();
    match door.form() {
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
        Form::Json => match gate.read(turn.as_ref(), path, part)? {
            Outcome::Done(read) => {
                let mut json = json!({"file_path": read.path.to_string(), "sha256": read.sha256});
                command::put_content(&mut json, read.bytes);
                Ok(Answer::Done(Said { json, ..Said::default() }))
            }
            Outcome::Refused(refused) => Ok(Answer::ReadRefused(refused)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_several_ways() {
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

//! A small agent loop: read, think, write; on STALE_FILE read again and retry.
//!
//! Two agents add lines to one file, and somebody at an editor, who knows nothing of tollgate, does too. At the end every
//! line of everybody is there. Run it with `cargo run --release -p tollgate --example agent_loop`.
#![allow(clippy::print_stdout, reason = "an example that tells what happens")]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::thread;

use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::part::Part;
use tollgate::refusal::Resolution;
use tollgate::workspace::{Options, Workspace};

/// Lines that each of the three adds.
const LINES: usize = 20;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let folder = tempfile::tempdir()?;
    let notes = folder.path().join("notes.md");
    fs::write(&notes, "# Notes\n")?;
    let (blue, red) = thread::scope(|scope| {
        let blue = scope.spawn(|| agent(folder.path(), "blue"));
        let red = scope.spawn(|| agent(folder.path(), "red"));
        let editor = scope.spawn(|| person_at_an_editor(&notes));
        let joined = |handle: thread::ScopedJoinHandle<'_, Fallible<usize>>| match handle.join() {
            Ok(answer) => answer,
            Err(_) => Err("an agent panicked".into()),
        };
        let answers = (joined(blue), joined(red));
        joined(editor).map(|_| answers)
    })?;
    let (blue, red) = (blue?, red?);
    let lines = fs::read_to_string(&notes)?.lines().count();
    println!("blue was refused {blue} times, red {red} times; each time it read again and redid its change");
    println!("{lines} lines in the file, {} were written", 1 + 3 * LINES);
    assert_eq!(lines, 1 + 3 * LINES, "an update was lost");
    Ok(())
}

/// Adds its lines, one at a time, and says how often it was refused.
fn agent(folder: &Path, name: &str) -> Fallible<usize> {
    let gate = Gate::new(Workspace::open(folder, Options::default())?);
    let mut refusals = 0;
    for number in 1..=LINES {
        let turn = gate.begin_turn(name.parse()?)?;
        loop {
            let Outcome::Done(read) = gate.read(&turn, "notes.md", Part::Whole)? else {
                return Err("a file of the workspace can be read".into());
            };
            let text = think(&String::from_utf8(read.bytes)?, name, number);
            match gate.write(&turn, "notes.md", text, Expected::Baseline)? {
                Outcome::Done(_) => break,
                Outcome::Refused(refused) => match refused.payload().resolution {
                    // Round again: the loop begins with a read.
                    Resolution::ReReadRequired | Resolution::RetryLater => refusals += 1,
                    other => return Err(format!("{other:?}: {:?}", refused.reports()).into()),
                },
            }
        }
        gate.end_turn(turn)?;
    }
    Ok(refusals)
}

/// Where a real agent would ask its model.
fn think(notes: &str, name: &str, number: usize) -> String {
    format!("{notes}- {name} {number}\n")
}

fn person_at_an_editor(notes: &Path) -> Fallible<usize> {
    for number in 1..=LINES {
        let mut file = fs::File::options().append(true).open(notes)?;
        writeln!(file, "- a person {number}")?;
    }
    Ok(0)
}

//! One side of a comparison with the packages: for each line on stdin, one guarded write of 4 KiB, and its time in
//! nanoseconds on stdout. `scripts/bench-packages` runs it.
#![allow(clippy::print_stdout, reason = "the answer")]

use std::io::{self, BufRead, Write};
use std::time::Instant;

use tollgate::{Expected, Gate, Options, Workspace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder")?;
    let gate = Gate::new(Workspace::open(folder, Options::default())?);
    let turn = gate.begin_turn("rust".parse()?)?;
    for (number, line) in io::stdin().lock().lines().enumerate() {
        line?;
        let bytes = format!("{number:4096}").into_bytes();
        let start = Instant::now();
        gate.write(&turn, "rust", bytes, Expected::Baseline)?.into_result()?;
        println!("{}", start.elapsed().as_nanos());
        io::stdout().flush()?;
    }
    Ok(())
}

//! Runs a program with input and a time limit.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The first pause between two looks whether a program has ended, and the longest. A program that has closed its output usually ends
/// at once; each pause is twice as long as the one before.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// How a program ended.
#[derive(Debug)]
pub struct ProgramEnd {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it printed, if its standard output is a pipe.
    pub output: Vec<u8>,
}

/// Runs a program with this input. `None` if it took too long, or a process that it started kept its output open for that long:
/// then it was killed.
pub fn run_with_input(
    command: &mut Command,
    input: &[u8],
    patience: Duration,
) -> io::Result<Option<ProgramEnd>> {
    let deadline = Instant::now() + patience;
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let ended = exchange(&mut child, input, deadline);
    if !matches!(ended, Ok(Some(_))) {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// The threads end with the pipes, so nobody waits for them: a process that was left behind may keep a pipe open for long.
fn exchange(child: &mut Child, input: &[u8], deadline: Instant) -> io::Result<Option<ProgramEnd>> {
    let left = || deadline.saturating_duration_since(Instant::now());
    if let Some(mut stdin) = child.stdin.take().filter(|_| !input.is_empty()) {
        let input = input.to_vec();
        // A program may end without reading its input.
        thread::Builder::new().spawn(move || stdin.write_all(&input))?;
    }
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        let (read, all) = mpsc::channel();
        thread::Builder::new().spawn(move || {
            let mut bytes = Vec::new();
            let _ = read.send(stdout.read_to_end(&mut bytes).map(|_| bytes));
        })?;
        match all.recv_timeout(left()) {
            Ok(bytes) => output = bytes?,
            Err(_) => return Ok(None),
        }
    }
    let [mut pause, longest] = PAUSES;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(ProgramEnd { status, output })),
            None if left().is_zero() => return Ok(None),
            None => thread::sleep(pause),
        }
        pause = longest.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, input: &[u8], patience: Duration) -> Option<ProgramEnd> {
        let mut command = Command::new("sh");
        run_with_input(command.args(["-c", script]).stdout(Stdio::piped()), input, patience).unwrap()
    }

    #[test]
    fn input_and_output_may_be_longer_than_a_pipe_holds() {
        let long = vec![b'x'; 1 << 20];
        let ended = run("cat; exit 3", &long, Duration::from_secs(60)).unwrap();
        assert_eq!((ended.status.code(), ended.output == long), (Some(3), true));
        let ended = run("echo ignored", &long, Duration::from_secs(60)).unwrap();
        assert_eq!((ended.status.code(), ended.output.as_slice()), (Some(0), &b"ignored\n"[..]));
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed_even_if_it_does_not_read() {
        let began = Instant::now();
        for script in ["exec sleep 1000", "sleep 1000 & exit", "exec >&-; exec sleep 1000"] {
            assert!(run(script, &vec![b'x'; 1 << 20], Duration::from_millis(300)).is_none(), "{script}");
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        let missing = run_with_input(&mut Command::new("/no/such/program"), b"", Duration::from_secs(1));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

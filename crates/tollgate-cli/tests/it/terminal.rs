//! A terminal: a command asks a question, and a person types the answer.

use std::fs;
use std::io::Read;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::world::{PATIENCE, Run};

/// What the person does.
struct Typing<'a> {
    /// Typed before the command starts.
    early: &'a str,
    /// Typed after the question: a whole line with "type `yes`".
    answer: &'a str,
    /// Happens between the question and the answer.
    in_between: Box<dyn FnOnce() + 'a>,
    /// Stdout is a pipe, as in `tollgate ... --json | jq`.
    piped: bool,
    /// The width of the terminal; 0 if it has none.
    columns: u16,
}

impl Run<'_> {
    /// Runs the command on a terminal, where a person types this line when a question is asked.
    #[track_caller]
    pub(crate) fn typed(self, answer: &str) -> Typed {
        self.on_a_terminal(Typing {
            early: "",
            answer,
            in_between: Box::new(|| {}),
            piped: false,
            columns: 0,
        })
    }

    /// The same, with stdout as a pipe.
    #[track_caller]
    pub(crate) fn typed_with_stdout(self, answer: &str) -> Typed {
        self.on_a_terminal(Typing { early: "", answer, in_between: Box::new(|| {}), piped: true, columns: 0 })
    }

    /// The same; something happens while the person thinks.
    #[track_caller]
    pub(crate) fn typed_after(self, answer: &str, in_between: impl FnOnce()) -> Typed {
        self.on_a_terminal(Typing {
            early: "",
            answer,
            in_between: Box::new(in_between),
            piped: false,
            columns: 0,
        })
    }

    /// The same; a line was typed before the command started.
    #[track_caller]
    pub(crate) fn typed_too_early(self, early: &str, answer: &str) -> Typed {
        self.on_a_terminal(Typing { early, answer, in_between: Box::new(|| {}), piped: false, columns: 0 })
    }

    /// Runs the command on a terminal of this width, where nobody types.
    #[track_caller]
    pub(crate) fn on_columns(self, columns: u16) -> Typed {
        self.on_a_terminal(Typing {
            early: "",
            answer: "",
            in_between: Box::new(|| {}),
            piped: false,
            columns,
        })
    }

    #[track_caller]
    fn on_a_terminal(mut self, typing: Typing<'_>) -> Typed {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&control).unwrap();
        unlockpt(&control).unwrap();
        let size = Winsize { ws_row: 24, ws_col: typing.columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&control, size).unwrap();
        let name = ptsname(&control, Vec::new()).unwrap().into_string().unwrap();
        let terminal = || fs::File::options().read(true).write(true).open(&name).unwrap();
        let stdout = if typing.piped { Stdio::piped() } else { terminal().into() };
        self.command.stdin(terminal()).stdout(stdout).stderr(terminal());
        let write = |text: &str| {
            rustix::io::write(&control, text.as_bytes()).unwrap();
        };
        if !typing.early.is_empty() {
            write(&format!("{}\n", typing.early));
        }
        let mut child = self.command.spawn().unwrap();
        // Otherwise this process keeps the terminal open, and reading from it never ends.
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let id = Pid::from_child(&child);
        let (send, ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            if ended.recv_timeout(PATIENCE).is_err_and(|why| why == mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(id, Signal::KILL);
            }
        });
        let mut waiting = Some(typing.in_between);
        let mut shown = Vec::new();
        let mut chunk = [0; 4096];
        // The terminal reports an error when the last process has closed it.
        while let Ok(count @ 1..) = rustix::io::read(&control, &mut chunk) {
            shown.extend_from_slice(&chunk[..count]);
            // The whole line: otherwise the terminal shows the answer in the middle of it.
            let text = String::from_utf8_lossy(&shown);
            let asked = text.split_once("type `yes`").is_some_and(|(_, rest)| rest.contains('\n'));
            if let Some(in_between) = waiting.take_if(|_| asked) {
                in_between();
                write(&format!("{}\n", typing.answer));
            }
        }
        let mut stdout = String::new();
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_string(&mut stdout).unwrap();
        }
        let status = child.wait().unwrap();
        drop(send);
        let shown = String::from_utf8_lossy(&shown).replace("\r\n", "\n");
        assert!(!shown.contains("panicked"), "{shown}");
        Typed { status, shown, stdout }
    }
}

/// What a command showed on a terminal, and what it wrote to its stdout if that was a pipe.
pub(crate) struct Typed {
    status: ExitStatus,
    pub(crate) shown: String,
    pub(crate) stdout: String,
}

impl Typed {
    /// Fails unless the exit code is this.
    #[track_caller]
    pub(crate) fn is(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}{}", self.shown, self.stdout);
        self
    }

    /// The exit code, unless a signal ended the command.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The one JSON document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.shown, self.stdout))
    }
}

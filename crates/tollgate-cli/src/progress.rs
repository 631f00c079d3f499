//! Progress of work that takes longer than a second: one line on stderr, if that is a terminal, which is gone at the end.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// After this time, people want to know that something happens.
const SOON: Duration = Duration::from_secs(1);

/// Shows what is being done, until it is dropped.
pub(crate) struct Progress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Work has begun. Shows this text on stderr, if it is a terminal and the work takes longer than a second.
    pub(crate) fn of(what: &'static str) -> Self {
        match io::stderr().is_terminal() {
            true => Self::on(io::stderr(), what, SOON),
            false => Self { end: None, thread: None },
        }
    }

    fn on(mut terminal: impl Write + Send + 'static, what: &'static str, after: Duration) -> Self {
        let (end, ended) = mpsc::channel();
        let began = Instant::now();
        let show = move || {
            let (mut wait, mut shown) = (after, false);
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(wait) {
                // Back to the start of the line, and clear it.
                let _ = write!(terminal, "\r\x1b[K{what}: {} s", began.elapsed().as_secs());
                let _ = terminal.flush();
                (wait, shown) = (SOON, true);
            }
            if shown {
                let _ = write!(terminal, "\r\x1b[K");
                let _ = terminal.flush();
            }
        };
        // Without a thread, nothing is shown, and the work goes on.
        Self { end: Some(end), thread: thread::Builder::new().spawn(show).ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        // The line must be gone before the answer is printed.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Terminal(Arc<Mutex<Vec<u8>>>);

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Terminal {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn long_work_is_shown_and_its_line_is_cleared() {
        let terminal = Terminal::default();
        let progress = Progress::on(terminal.clone(), "verifying the ledger", Duration::ZERO);
        while !terminal.text().contains("verifying the ledger: 0 s") {
            thread::yield_now();
        }
        drop(progress);
        assert!(terminal.text().ends_with("\r\x1b[K"), "{:?}", terminal.text());
    }

    #[test]
    fn short_work_is_not_shown() {
        let terminal = Terminal::default();
        drop(Progress::on(terminal.clone(), "verifying the ledger", Duration::from_secs(3600)));
        assert_eq!(terminal.text(), "");
    }
}

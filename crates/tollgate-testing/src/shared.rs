//! One server for all tests of a process that run at the same time. It ends with the last of them, so none is left behind.

use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

pub(crate) struct Shared<T>(Mutex<Weak<T>>);

impl<T: Send + Sync + 'static> Shared<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The server that runs, or else one that starts now.
    pub(crate) fn get(&self, start: fn() -> T) -> Arc<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runs) = known.upgrade() {
            return runs;
        }
        let (tell, told) = mpsc::channel();
        // The kernel ends a server with the thread that started it. This thread lasts as long as the server, unlike the test.
        thread::spawn(move || {
            let started = Arc::new(start());
            let used = Arc::downgrade(&started);
            tell.send(started).unwrap();
            while used.strong_count() > 0 {
                thread::sleep(Duration::from_millis(50));
            }
        });
        let started = told.recv().expect("it starts");
        *known = Arc::downgrade(&started);
        started
    }
}

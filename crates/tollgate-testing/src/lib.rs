//! For tests only: real etcd nodes and PostgreSQL servers, programs under `strace`, and waiting for something.
//!
//! Knows nothing of tollgate, so the tests of every crate can use it, also those inside of a crate.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

pub mod etcd;
pub mod mounted;
pub mod postgres;
mod shared;
pub mod strace;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until this is true. Fails if it does not become so.
#[track_caller]
pub fn until_true(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// Waits until something happens. Fails if it does not.
#[track_caller]
pub fn until<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(Instant::now() < patience, "timeout while waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A port at which nobody listens. The kernel gives higher ones to outgoing connections, so no connection takes it before its
/// server does.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() * 100 % 20_000).unwrap();
    let port = || 10_000 + (first + NEXT.fetch_add(1, Ordering::SeqCst) % 20_000) % 20_000;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(port).take(20_000).find(is_free).expect("a free port")
}

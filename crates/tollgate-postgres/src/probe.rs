//! Whether the database answers, for those who cannot wait: `/health` asks every few seconds.
//!
//! Invariant: an answer takes at most [`WAIT`], whatever the database does. At most one thread asks at a time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::link::Failure;
use crate::pool::{AnswerTime, DbLinks};

/// Much longer than a healthy database needs.
const WAIT: Duration = Duration::from_secs(1);

/// Asks the database whether it is there.
#[derive(Default)]
pub(crate) struct Probe(Arc<(Mutex<ProbeState>, Condvar)>);

#[derive(Default)]
struct ProbeState {
    /// Since when a thread waits for the answer.
    since: Option<Instant>,
    /// What the last answer was, if it was a fault.
    fault: Option<String>,
}

impl Probe {
    /// What keeps the database from being used.
    pub(crate) fn problems(&self, links: &Arc<DbLinks>) -> Vec<String> {
        let (probed, answered) = &*self.0;
        let mut state = probed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match state.since {
            Some(since) => since,
            None => {
                let (links, shared) = (Arc::clone(links), Arc::clone(&self.0));
                let ask = move || {
                    let answer = links.call("select 1", &[], AnswerTime::Short).map_err(Failure::fault);
                    let fault = answer.err().map(|fault| fault.to_string());
                    *shared.0.lock().unwrap_or_else(PoisonError::into_inner) =
                        ProbeState { since: None, fault };
                    shared.1.notify_all();
                };
                if let Err(error) = thread::Builder::new().name("tollgate-probe".to_owned()).spawn(ask) {
                    return vec![format!("no thread to ask the database can be started: {error}")];
                }
                *state.since.insert(Instant::now())
            }
        };
        let left = WAIT.saturating_sub(since.elapsed());
        let waited = answered.wait_timeout_while(state, left, |state| state.since == Some(since));
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && state.since == Some(since) {
            return vec![format!("`{}` has not answered for {} s", links.options, since.elapsed().as_secs())];
        }
        state.fault.clone().into_iter().collect()
    }
}

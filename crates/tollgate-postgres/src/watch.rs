//! Wake-ups: a thread with a connection of its own that listens for notifications.
//!
//! Invariant: after every new connection the caller hears that anything may have changed, because notifications are lost
//! while nobody listens.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_postgres::Notification;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::{State, TaskName};
use tollgate_vault::store::{Hint, Noticed, Wake};

use crate::link::Listen;
use crate::pool::DbLinks;

/// How often the listener makes sure that the server is there: a broken network is silent.
const PULSE: Duration = Duration::from_secs(15);

/// The pause before the listener connects again.
const RECONNECT: Duration = Duration::from_millis(500);

/// Listens until it is dropped.
pub(crate) struct Listener {
    _stop: Sender<()>,
}

impl Listener {
    pub(crate) fn start(links: Arc<DbLinks>, states: Vec<State>, wake: Wake) -> Result<Self> {
        let (stop, stopped) = channel(());
        let listen = move || run(&links, &states, &wake, stopped);
        let started = thread::Builder::new().name("tollgate-listen".to_owned()).spawn(listen);
        started.map_err(|error| Fault::invalid(format!("no thread for wake-ups can be started: {error}")))?;
        Ok(Self { _stop: stop })
    }
}

/// Until the listener is dropped, or for this long.
async fn pause(stopped: &mut Receiver<()>, time: Duration) -> bool {
    // The sender sends nothing; it is only dropped.
    timeout(time, stopped.changed()).await.is_ok()
}

fn run(links: &DbLinks, states: &[State], wake: &Wake, mut stopped: Receiver<()>) {
    let channel = format!("listen tollgate_{}", links.options.schema);
    while stopped.has_changed().is_ok() {
        let hand_on = || -> Option<Listen> {
            let (states, wake) = (states.to_vec(), Arc::clone(wake));
            Some(Box::new(move |heard: &Notification| {
                if let Some(hint) = hint(heard.payload(), &states) {
                    wake(hint);
                }
            }))
        };
        if let Ok(link) = links.connect(hand_on)
            && link.execute(&channel).is_ok()
        {
            wake(Hint::Everything);
            while !link.is_closed() {
                let mut is_over = false;
                link.listen(async { is_over = pause(&mut stopped, PULSE).await });
                if is_over {
                    return;
                }
                if link.execute("select 1").is_err() {
                    break;
                }
            }
        }
        // Nothing is connected, so nothing can wake this thread.
        let end = std::time::Instant::now() + RECONNECT;
        while stopped.has_changed().is_ok() && std::time::Instant::now() < end {
            thread::sleep(RECONNECT / 10);
        }
    }
}

/// What a notification says: `STATE/NAME` of a task that is there now, and `-STATE/NAME` of one that a step has taken from there.
fn hint(payload: &str, states: &[State]) -> Option<Hint> {
    // A worker looks at what has come. If it looked at what has gone, each claim would cost a look of every worker.
    let (payload, noticed) = match payload.strip_prefix('-') {
        Some(left) => (left, Noticed::Touched),
        None => (payload, Noticed::MovedIn),
    };
    let (state, name) = payload.split_once('/')?;
    let state: State = state.parse().ok()?;
    match TaskName::of_file(name) {
        _ if !states.contains(&state) => None,
        // Rows are written as a whole, so the task is complete.
        Ok(name) => Some(Hint::Task(name, state, noticed)),
        Err(_) => Some(Hint::State(state)),
    }
}

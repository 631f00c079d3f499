//! Wake-ups: a thread with a connection of its own that listens for notifications.
//!
//! Invariant: after every new connection the caller hears that anything may have changed, because notifications are lost
//! while nobody listens. A process can also die after the commit of its step and before its notification. So the listener also
//! compares the numbers of steps every few seconds, and if there were new ones, the caller hears the same.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_postgres::Notification;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::{State, TaskName};
use tollgate_vault::store::{Hint, NoticedChange, Wake};

use crate::link::{DbLink, Failure, Listen};
use crate::pool::DbLinks;

/// How often the listener makes sure that the server is there: a broken network is silent.
const PULSE: Duration = Duration::from_secs(15);

/// The pause before the listener connects again.
const RECONNECT: Duration = Duration::from_millis(500);

/// The last number that a ledger line has got, and the last that a new task has got. Every step writes a line; a heartbeat writes
/// none.
const STEP_NUMBERS: &str =
    "select l.last_value, l.is_called, t.last_value, t.is_called from lines l, tasks_id_seq t";

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

/// Waits for this long, or until the listener is dropped: whether it was.
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
                heard.payload().lines().filter_map(|told| hint(told, &states)).for_each(|hint| wake(hint));
            }))
        };
        let end = Instant::now() + links.options.patience;
        if let Ok(mut link) = links.connect(hand_on, end)
            && link.execute(&channel, end).is_ok()
            && let Ok(mut known) = step_numbers(&mut link, links)
        {
            wake(Hint::Everything);
            while !link.is_closed() {
                let mut is_over = false;
                link.listen(async { is_over = pause(&mut stopped, PULSE).await });
                if is_over {
                    return;
                }
                match step_numbers(&mut link, links) {
                    Err(_) => break,
                    Ok(now) if now == known => {}
                    Ok(now) => {
                        known = now;
                        wake(Hint::Everything);
                    }
                }
            }
        }
        // Nothing is connected, so nothing can wake this thread.
        let end = Instant::now() + RECONNECT;
        while stopped.has_changed().is_ok() && Instant::now() < end {
            thread::sleep(RECONNECT / 10);
        }
    }
}

/// The answer to [`STEP_NUMBERS`]: if it differs from an earlier one, steps were taken or tasks were added in the meantime. `None`:
/// this user may not read it.
type StepNumbers = Option<(i64, bool, i64, bool)>;

fn step_numbers(link: &mut DbLink, links: &DbLinks) -> Result<StepNumbers, Failure> {
    match link.query(STEP_NUMBERS, &[], Instant::now() + links.options.patience) {
        Ok(rows) => Ok(rows.first().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))),
        // This user may not look at sequences. Then notifications alone must do.
        Err(Failure::Refused(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What a line of a notification says. `STATE/NAME`: this task is in this state now. `-STATE/NAME`: a step has moved this task out of this
/// state.
fn hint(told: &str, states: &[State]) -> Option<Hint> {
    // A worker looks at what has come. If it looked at what has gone, each claim would cost a look of every worker.
    let (told, noticed) = match told.strip_prefix('-') {
        Some(left) => (left, NoticedChange::Touched),
        None => (told, NoticedChange::MovedIn),
    };
    let (state, name) = told.split_once('/')?;
    let state: State = state.parse().ok()?;
    match TaskName::of_file(name) {
        _ if !states.contains(&state) => None,
        // Rows are written as a whole, so the task is complete.
        Ok(name) => Some(Hint::Task(name, state, noticed)),
        Err(_) => Some(Hint::State(state)),
    }
}

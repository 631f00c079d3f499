//! Keeps the view up to date: one look at everything, then a watch from there on.
//!
//! A watch that ends is made again from the last revision that the view has, so nothing is missed. If the engine has
//! forgotten that revision (it was compacted), or too much has happened since, everything is looked at again. The thread ends when
//! the store is dropped. Every process that lives for a while has it, so it also sees to it that old lines of the ledger are
//! removed.

use std::io::{BufRead, Read};
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_base::error::{At, Fault, Result};
use tollgate_vault::State;
use tollgate_vault::store::{Hint, TaskSummary};

use crate::client::{MAX_ANSWER, WATCH};
use crate::message::{Range, StreamMessage, WatchAnswer};
use crate::shared_store::SharedStore;
use crate::tasks_of_name::CachedTask;
use crate::view::View;

/// The longest line of a watch. etcd tells up to 1000 revisions in one line to a process that is behind; pages are shorter.
const MAX_LINE: u64 = if cfg!(test) { 8 << 20 } else { MAX_ANSWER };

/// The pauses between tries to watch, the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Everything as it is now.
pub(crate) fn load(shared: &SharedStore) -> Result<View> {
    let mut view: Option<View> = None;
    for prefix in [shared.layout.open_tasks(), shared.layout.owners()] {
        let revision = view.as_ref().map_or(0, |view| view.revision);
        shared.each_page(Range { revision, ..Range::all(&prefix) }, |answer, next| {
            let view = view.get_or_insert_with(|| View::new(answer.header.revision));
            // All pages show the same moment.
            next.revision = view.revision;
            // Nobody is told what has been there before.
            answer.kvs.iter().for_each(|kv| view.put(&shared.layout, kv, &mut Vec::new()));
            Ok(())
        })?;
    }
    view.ok_or_else(|| Fault::invalid("the engine answered nothing"))
}

/// Final tasks, which are not in the view.
pub(crate) fn scan_final(shared: &SharedStore, state: State) -> Result<Vec<TaskSummary>> {
    let mut tasks = Vec::new();
    shared.each_page(Range::all(&shared.layout.final_tasks()), |answer, _| {
        let found = answer.kvs.iter().filter_map(|kv| CachedTask::new(&shared.layout, kv, usize::MAX));
        tasks.extend(found.filter(|task| task.slot.state() == state).map(|task| task.summary()));
        Ok(())
    })?;
    Ok(tasks)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).at("start the thread", name)
}

/// Starts the thread that feeds the view of this store.
pub(crate) fn start(shared: &Arc<SharedStore>) -> Result<()> {
    let shared = Arc::downgrade(shared);
    spawn("tollgate-feed", move || feed(&shared))
}

/// Looks again and again until the engine can be reached, for a watch that begins in an outage. The look that succeeds starts the
/// thread that feeds the view. Everybody who watches is told then, because nobody knows what happened in the meantime.
pub(crate) fn begin_later(
    shared: &Arc<SharedStore>,
    watch: u64,
    look: impl Fn(Arc<SharedStore>) -> Result<()> + Send + 'static,
) -> Result<()> {
    let shared = Arc::downgrade(shared);
    spawn("tollgate-begin", move || {
        let is_wanted = |shared: &Arc<SharedStore>| {
            shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&watch)
        };
        let mut pause = PAUSES.0;
        while let Some(shared) = shared.upgrade().filter(is_wanted) {
            if look(Arc::clone(&shared)).is_ok() {
                return shared.wake(&[Hint::Everything]);
            }
            drop(shared);
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    })
}

fn feed(store: &Weak<SharedStore>) {
    let mut pause = PAUSES.0;
    while let Some(shared) = store.upgrade() {
        shared.trim_when_due();
        let from = shared.with_view(|view| view.revision).unwrap_or(0) + 1;
        let node = shared.client.current();
        let watch = shared.client.watch(node, &shared.layout.tasks(), from);
        drop(shared);
        let ended = match watch {
            Ok(lines) => follow(store, lines),
            Err(_) => WatchEnd::Failed,
        };
        let Some(shared) = store.upgrade() else { return };
        match ended {
            WatchEnd::OfItself => pause = PAUSES.0,
            WatchEnd::Behind => match load(&shared) {
                Ok(view) => shared.replace_view(view),
                Err(_) => thread::sleep(pause),
            },
            WatchEnd::Failed => {
                shared.client.skip(node);
                drop(shared);
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// How a watch ended.
enum WatchEnd {
    /// It was time to make it again.
    OfItself,
    /// The engine has forgotten the revision that it should have begun with, or tells more at once than is read.
    Behind,
    /// The node said so, or is gone.
    Failed,
}

fn follow(store: &Weak<SharedStore>, mut lines: impl BufRead) -> WatchEnd {
    let began = Instant::now();
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return WatchEnd::Failed,
            Ok(read) if read as u64 == MAX_LINE => return WatchEnd::Behind,
            Ok(_) => {}
            // The limit of a watch looks like an error.
            Err(_) if began.elapsed() >= WATCH * 9 / 10 => return WatchEnd::OfItself,
            Err(_) => return WatchEnd::Failed,
        }
        let Some(shared) = store.upgrade() else { return WatchEnd::OfItself };
        let Ok(StreamMessage { result: answer }) =
            serde_json::from_slice::<StreamMessage<WatchAnswer>>(&line)
        else {
            return WatchEnd::Failed;
        };
        match (answer.canceled, answer.compact_revision) {
            (_, 1..) => return WatchEnd::Behind,
            (true, _) => return WatchEnd::Failed,
            (false, _) => {}
        }
        let mut hints = Vec::new();
        shared.with_view(|view| {
            view.heard = Instant::now();
            for event in &answer.events {
                let kv = &event.kv;
                match event.kind.as_str() {
                    "DELETE" => view.delete(&shared.layout, &kv.key, kv.mod_revision, &mut hints),
                    _ => view.put(&shared.layout, kv, &mut hints),
                }
                view.is_complete_to(kv.mod_revision);
            }
        });
        shared.wake(&hints);
    }
}

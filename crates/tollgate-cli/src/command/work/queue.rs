//! What can be claimed now, and waiting for more.
//!
//! The folders are watched by the kernel's events, so a new task is claimed within milliseconds. An event is only a hint:
//! whether a task can be claimed is judged on what is there. Every interval all folders are looked at anew, for file
//! systems that tell nothing and for events that got lost; then, and when a lock of a claim was let go, the tasks of owners
//! who are gone are taken back.

use std::collections::{BTreeSet, HashSet};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tollgate::error::Result;
use tollgate::vault::retry::{may_pass, patiently};
use tollgate::vault::state::State;
use tollgate::vault::{Asked, Claimed, Claiming, Line, Next, TaskName};

use crate::answer::Form;
use crate::door::Door;
use crate::tasks::Tasks;
use crate::words;

/// Owners who are gone are looked for at most so often, however many locks are let go: each look reads a folder.
const RECLAIM_PAUSE: Duration = Duration::from_millis(100);

/// What the worker gets.
pub(super) enum Taken {
    /// This one.
    Task(Box<Claimed>),
    /// The work is over; why, in a sentence.
    NoMore(String),
}

/// What can be claimed, shared by the threads of one worker and the watcher.
pub(super) struct Queue<'a> {
    door: &'a Door,
    tasks: &'a Tasks,
    asked: Asked,
    once: bool,
    interval: Duration,
    news: News,
    waiting: Mutex<Waiting>,
}

/// What happened since somebody looked. The watcher's thread only writes here and never waits for a look.
#[derive(Clone, Default)]
struct News(std::sync::Arc<(Mutex<Heard>, Condvar)>);

#[derive(Default)]
struct Heard {
    /// Tasks that were moved in: complete.
    moved_in: BTreeSet<TaskName>,
    /// Tasks that were written in place: complete when they have settled.
    written: BTreeSet<TaskName>,
    /// Something else may have changed: look at everything.
    look: bool,
    /// Something was done that others may wait for.
    done: bool,
    /// The lock of a claim was let go.
    let_go: bool,
    /// No more tasks are wanted.
    closed: bool,
    /// How many errands are under way.
    busy: usize,
}

struct Waiting {
    line: Line,
    /// Tasks that were seen to be moved in. They are in the line too; this is for those that are too young for it.
    fresh: Line,
    looked: Option<Instant>,
    reclaimed: Option<Instant>,
    /// A lock was let go, so an owner may be gone.
    let_go: bool,
    /// When young tasks are complete.
    ripe: Option<Instant>,
    /// What has been told about files that cannot be claimed.
    told: HashSet<String>,
}

impl<'a> Queue<'a> {
    pub(super) fn new(
        door: &'a Door,
        tasks: &'a Tasks,
        asked: Asked,
        once: bool,
        interval: Duration,
    ) -> Self {
        let waiting = Waiting {
            line: Line::default(),
            fresh: Line::default(),
            looked: None,
            reclaimed: None,
            let_go: false,
            ripe: None,
            told: HashSet::new(),
        };
        Self { door, tasks, asked, once, interval, news: News::default(), waiting: Mutex::new(waiting) }
    }

    /// Listens to the kernel until it is dropped. Where that cannot be had, the interval must do.
    pub(super) fn watch(&self) -> Option<RecommendedWatcher> {
        let news = self.news.clone();
        let folder = |state: State| self.tasks.folder.join(state.as_str());
        let folders = Folders {
            incoming: [folder(State::NeedsAction), folder(State::Approved)],
            done: folder(State::Done),
            held: self.tasks.held.clone(),
        };
        let watched: Vec<PathBuf> =
            folders.incoming.iter().chain([&folders.done, &folders.held]).cloned().collect();
        let start = || {
            let mut watcher = notify::recommended_watcher(move |event| news.hear(&folders, event))?;
            for folder in &watched {
                watcher.watch(folder, RecursiveMode::NonRecursive)?;
            }
            Ok::<_, notify::Error>(watcher)
        };
        match start() {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                self.tell(&words::not_watching(&error.to_string(), self.interval));
                None
            }
        }
    }

    /// No more tasks.
    pub(super) fn close(&self) {
        self.news.change(|heard| heard.closed = true);
    }

    /// An errand is over, and the task is done, or it may be claimed again.
    pub(super) fn finished(&self, task_is_back: bool) {
        self.news.change(|heard| {
            heard.busy -= 1;
            heard.done = true;
            heard.look |= task_is_back;
        });
    }

    /// The next task, as soon as there is one.
    pub(super) fn take(&self) -> Result<Taken> {
        loop {
            if self.news.lock().closed {
                return Ok(Taken::NoMore(words::asked_to_stop()));
            }
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            match self.try_take(&mut waiting) {
                Ok(Some(claimed)) => {
                    self.news.lock().busy += 1;
                    return Ok(Taken::Task(claimed));
                }
                Ok(None) => {}
                Err(fault) if self.once => return Err(fault),
                // The vault's folder is away, the disk is full: others may mend it, so it is tried again.
                Err(fault) => self.tell_once(&mut waiting, &words::work_fault(self.door, &fault)),
            }
            let look_at = waiting.looked.map_or_else(Instant::now, |looked| looked + self.interval);
            let reclaim_at = waiting.reclaimed.filter(|_| waiting.let_go).map(|last| last + RECLAIM_PAUSE);
            let until = [waiting.ripe, reclaim_at].into_iter().flatten().fold(look_at, Instant::min);
            let worth_waiting = waiting.ripe.is_some();
            let sentence = words::nothing_to_claim(&waiting.line);
            drop(waiting);
            let heard = self.news.lock();
            if self.once && !worth_waiting && heard.busy == 0 && !heard.anything() {
                return Ok(Taken::NoMore(sentence));
            }
            self.news.wait(heard, until.saturating_duration_since(Instant::now()));
        }
    }

    fn try_take(&self, waiting: &mut Waiting) -> Result<Option<Box<Claimed>>> {
        let mut heard = self.news.lock();
        let (moved_in, written) = (take(&mut heard.moved_in), take(&mut heard.written));
        let (look, done, let_go) = (take(&mut heard.look), take(&mut heard.done), take(&mut heard.let_go));
        drop(heard);
        let vault = &self.tasks.vault;
        let due = |since: Option<Instant>, pause| since.is_none_or(|since| since.elapsed() >= pause);
        let ripe = waiting.ripe.is_some_and(|ripe| ripe <= Instant::now());
        let unblocked = done && waiting.line.blocked > 0;
        if look || ripe || unblocked || due(waiting.looked, self.interval) {
            if due(waiting.looked, self.interval) {
                // Also if the remote does not answer: then claims say so, and this is asked again after the interval.
                waiting.looked = Some(Instant::now());
                self.round(waiting)?;
            }
            if due(waiting.reclaimed, self.interval) {
                self.reclaim(waiting);
            }
            waiting.looked = Some(Instant::now());
            waiting.line = patiently(|| vault.line(&self.asked, self.door.now()), &sleep)?;
        }
        let certain = Asked { renamed_in: true, ..self.asked.clone() };
        for task in &moved_in {
            vault.arrived(&mut waiting.fresh, task, &certain, self.door.now())?;
        }
        for task in moved_in.iter().chain(&written) {
            vault.arrived(&mut waiting.line, task, &self.asked, self.door.now())?;
        }
        let next = vault.next(&mut waiting.line, &self.asked, self.door.now())?;
        if let Some(claimed) = self.sort_out(waiting, next) {
            return Ok(Some(claimed));
        }
        let next = vault.next(&mut waiting.fresh, &certain, self.door.now())?;
        if let Next::Claimed(claimed) = next {
            return Ok(Some(claimed));
        }
        // Whoever only drains has looked for them at the start.
        waiting.let_go |= let_go && !self.once;
        if waiting.let_go && due(waiting.reclaimed, RECLAIM_PAUSE) && self.reclaim(waiting) {
            self.news.lock().look = true;
        }
        Ok(None)
    }

    /// What the line gave, and what it had to pass over.
    fn sort_out(&self, waiting: &mut Waiting, next: Next) -> Option<Box<Claimed>> {
        let claimed = match next {
            Next::Claimed(claimed) => return Some(claimed),
            Next::Nothing(wait) => {
                // A little later than the moment itself: clocks of files are coarse.
                waiting.ripe = wait.map(|wait| Instant::now() + wait + Duration::from_millis(10));
                None
            }
        };
        for unfit in take(&mut waiting.line.unfit) {
            self.tell_once(waiting, &words::unfit(&[unfit]));
        }
        for (task, fault) in take(&mut waiting.line.faults) {
            let again = || self.tasks.vault.claim(&task, &self.asked, self.door.now());
            let fault = match may_pass(&fault).then(|| patiently(again, &sleep)) {
                Some(Ok(Claiming::Claimed(claimed))) => return Some(claimed),
                Some(Ok(Claiming::Not(_))) => continue,
                Some(Err(fault)) => fault,
                None => fault,
            };
            self.tell_once(waiting, &words::passed(self.door, &[(task, fault)]));
        }
        claimed
    }

    /// One round with the remote, where there is one.
    fn round(&self, waiting: &mut Waiting) -> Result<()> {
        for path in self.tasks.sync()?.map(|round| round.aside).unwrap_or_default() {
            self.tell_once(waiting, &words::put_aside(self.door, &[path]));
        }
        Ok(())
    }

    /// Takes back what owners who are gone have left. Whether there was anything.
    fn reclaim(&self, waiting: &mut Waiting) -> bool {
        waiting.reclaimed = Some(Instant::now());
        waiting.let_go = false;
        match self.tasks.vault.reclaim(self.door.now()) {
            Ok((reclaimed, passed)) => {
                for one in &reclaimed {
                    self.tell(&words::reclaimed(std::slice::from_ref(one), false));
                }
                for one in passed {
                    self.tell_once(waiting, &words::passed(self.door, &[one]));
                }
                !reclaimed.is_empty()
            }
            Err(fault) => {
                self.tell_once(waiting, &words::work_fault(self.door, &fault));
                false
            }
        }
    }

    fn tell_once(&self, waiting: &mut Waiting, text: &str) {
        // Enough for every file that a person would mend by hand.
        if waiting.told.len() < 10_000 && waiting.told.insert(text.to_owned()) {
            self.tell(text);
        }
    }

    /// To the log, and to whoever looks.
    fn tell(&self, text: &str) {
        self.tasks.logs.line(&self.asked.agent, self.door.now(), text);
        if self.door.form() == Form::Words {
            words::tell(text);
        }
    }
}

/// What is watched.
struct Folders {
    incoming: [PathBuf; 2],
    done: PathBuf,
    held: PathBuf,
}

impl Heard {
    /// Something to look at.
    fn anything(&self) -> bool {
        self.look || self.done || self.let_go || !self.moved_in.is_empty() || !self.written.is_empty()
    }
}

impl News {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    /// Until something is heard, or for so long.
    fn wait(&self, heard: MutexGuard<'_, Heard>, patience: Duration) {
        let nothing = |heard: &mut Heard| !heard.anything() && !heard.closed;
        let _ = self.0.1.wait_timeout_while(heard, patience, nothing);
    }

    fn hear(&self, folders: &Folders, event: notify::Result<notify::Event>) {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Some were lost.
            _ => return self.change(|heard| heard.look = true),
        };
        let moved_in = matches!(event.kind, EventKind::Modify(ModifyKind::Name(RenameMode::To)));
        let closed = matches!(event.kind, EventKind::Access(AccessKind::Close(AccessMode::Write)));
        if !moved_in && !closed {
            return;
        }
        for path in &event.paths {
            let within = |folder: &Path| path.parent() == Some(folder);
            if *path == folders.held {
                self.change(|heard| heard.let_go = true);
            } else if within(&folders.done) {
                self.change(|heard| heard.done = true);
            } else if folders.incoming.iter().any(|folder| within(folder))
                && let Some(task) = path.file_name().and_then(|name| name.to_str())
                && let Ok(task) = TaskName::of_file(task)
            {
                self.change(|heard| {
                    if moved_in {
                        heard.moved_in.insert(task)
                    } else {
                        heard.written.insert(task)
                    };
                });
            }
        }
    }
}

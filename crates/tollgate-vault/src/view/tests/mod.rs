//! Death of the maintainer before every act on a file and around every step of the store, for everything that a person or an
//! agent can do: the next maintainer goes on, nothing is lost, nothing is there twice.

mod power_cut;
mod scenes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use self::scenes::{Scene, bring, finish, scenes, task};
use super::{FolderView, Notice, ViewNews, ViewOptions};
use crate::event::MemoryJournal;
use crate::folder::disk::Disk;
use crate::folder::tests::{Died, Fate, Fates};
use crate::folder::{FolderOptions, FolderStore};
use crate::forward_store;
use crate::rules::Terms;
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome};
use crate::store::{Hint, Store};
use crate::vault::Vault;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::lock::Pauses;
use tollgate_base::name::StepId;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// A store that outlives the maintainer, and before and after whose steps the maintainer may die.
struct Remote {
    store: FolderStore,
    fates: Mutex<Option<Fates>>,
    /// Every text that the store has ever had.
    texts: Mutex<BTreeSet<Vec<u8>>>,
}

impl Remote {
    fn point(&self, act: &'static str) {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if fates.is_some_and(|fates| fates(act) != Fate::Go) {
            resume_unwind(Box::new(Died));
        }
    }

    fn remember(&self) {
        for state in State::ALL {
            for listed in self.store.scan(state, NOW).unwrap().tasks {
                let task = self.store.get(&listed.name, Some(state), NOW).unwrap().unwrap();
                let text = self.store.read(&task, u64::MAX).unwrap().unwrap();
                self.texts.lock().unwrap_or_else(PoisonError::into_inner).insert(text);
            }
        }
    }
}

impl Store for Remote {
    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.point("before a step");
        let outcome = self.store.apply(step);
        self.remember();
        self.point("after a step");
        outcome
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.point("before a new task");
        let outcome = self.store.add(id, task, text, now);
        self.remember();
        self.point("after a new task");
        outcome
    }

    forward_store!(store: scan, get, read, record, events);
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A machine with a view of a store.
struct Machine {
    remote: Arc<Remote>,
    vault: Vault,
    folder: tempfile::TempDir,
    told: Arc<Mutex<Vec<Notice>>>,
    _elsewhere: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let elsewhere = tempfile::tempdir().unwrap();
        let options = FolderOptions {
            durability: Durability::Fast,
            settle: Duration::ZERO,
            journal: Arc::new(MemoryJournal::default()),
            quiet: None,
        };
        let store = FolderStore::open(elsewhere.path(), options).unwrap();
        let remote = Arc::new(Remote { store, fates: Mutex::default(), texts: Mutex::default() });
        let terms = Terms { approve_by_move: true, ..Terms::default() };
        let vault = Vault::new(Arc::clone(&remote) as _, terms);
        let folder = tempfile::tempdir().unwrap();
        Self { remote, vault, folder, told: Arc::default(), _elsewhere: elsewhere }
    }

    fn open(&self, fates: Option<&Fates>) -> FolderView {
        self.open_on(&Disk { fates: fates.cloned(), ..Disk::new(Durability::Fast) })
    }

    fn options(&self, durability: Durability) -> ViewOptions {
        let told = Arc::clone(&self.told);
        ViewOptions {
            folder: self.folder.path().to_owned(),
            settle: Duration::ZERO,
            durability,
            now: Timestamp::now,
            tell: Arc::new(move |notice| {
                told.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
            }),
        }
    }

    fn open_on(&self, disk: &Disk) -> FolderView {
        let options = self.options(disk.durability);
        let mut pauses = Pauses::lasting(Duration::from_secs(30));
        loop {
            match FolderView::open_on(self.vault.clone(), disk.clone(), options.clone()).unwrap() {
                Some(view) => return view,
                // A process that another test is just starting has inherited the lock for a moment.
                None => assert!(pauses.pause(), "somebody has the lock"),
            }
        }
    }

    /// Works until nothing is left to do.
    fn follow(view: &mut FolderView) {
        while view.work().unwrap().is_some() {
            std::thread::yield_now();
        }
    }

    fn maintain(&self, fates: Option<&Fates>) {
        let mut view = self.open(fates);
        Self::follow(&mut view);
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// What the folders show.
    fn shown(&self) -> BTreeMap<String, Vec<u8>> {
        files_below(self.folder.path())
    }

    /// What the store has.
    fn stored(&self) -> BTreeMap<String, Vec<u8>> {
        files_below(self._elsewhere.path())
    }

    fn kept(&self) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(self.at(".tollgate/view/aside")).unwrap();
        entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
    }
}

/// All tasks in the folders of a vault.
fn files_below(vault: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for state in State::ALL {
        let mut folders = vec![vault.join(state.as_str())];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else {
                    let name = entry.strip_prefix(vault).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, fs::read(entry).unwrap());
                }
            }
        }
    }
    found
}

impl Scene {
    /// Everything has happened that a person and others do; the maintainer has not noticed it yet.
    fn set(&self) -> Machine {
        let machine = Machine::new();
        bring(&machine.vault, self.state);
        machine.maintain(None);
        assert_eq!(machine.shown(), machine.stored(), "{}: shown at the beginning", self.name);
        (self.person)(&machine);
        (self.elsewhere)(&machine.vault);
        machine.remote.remember();
        machine
    }
}

/// Plays a scene. The maintainer dies at the Nth act, if there is one.
fn play(scene: &Scene, dies_at: usize, half: bool) -> (Machine, bool) {
    let machine = scene.set();
    let before = machine.stored();
    let acts = AtomicUsize::new(0);
    let fates: Fates = Arc::new(move |_| match acts.fetch_add(1, Ordering::Relaxed) {
        act if act == dies_at && half => Fate::DieHalf,
        act if act == dies_at => Fate::Die,
        _ => Fate::Go,
    });
    let died = maintain_until(scene, &machine, &fates);
    if QUIET.contains(&scene.name) {
        machine.maintain(None);
        assert_eq!(
            machine.stored(),
            before,
            "{}, killed at act {dies_at}: nobody changed it here",
            scene.name
        );
    }
    (machine, died)
}

/// Scenes in which no person does anything.
const QUIET: [&str; 3] = ["nothing", "a claim", "a change elsewhere"];

/// Whether the maintainer died.
fn maintain_until(scene: &Scene, machine: &Machine, fates: &Fates) -> bool {
    *machine.remote.fates.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(fates));
    let lived = catch_unwind(AssertUnwindSafe(|| machine.maintain(Some(fates))));
    *machine.remote.fates.lock().unwrap_or_else(PoisonError::into_inner) = None;
    lived.is_err_and(|why| {
        assert!(why.is::<Died>(), "{}: a panic", scene.name);
        true
    })
}

fn check(scene: &Scene, machine: &Machine, at: usize) {
    let told = format!("{}, killed at act {at}", scene.name);
    assert_eq!(machine.shown(), machine.stored(), "{told}: the folders show what the store has");
    assert_eq!(machine.stored().len(), scene.tasks, "{told}: {:?}", machine.stored().keys());
    let texts = machine.remote.texts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for text in scene.texts {
        let is_kept = machine.kept().iter().any(|kept| kept == text);
        assert!(is_kept || texts.contains(*text), "{told}: the person's text is lost");
    }
    let stage = machine.at(".tollgate/view/stage");
    assert_eq!(fs::read_dir(stage).unwrap().count(), 0, "{told}: nothing is left behind");
}

#[test]
fn killed_before_every_act_the_next_maintainer_loses_nothing() {
    let mut acts = 0;
    for scene in scenes() {
        for at in 0.. {
            let (machine, died) = play(&scene, at, false);
            machine.maintain(None);
            check(&scene, &machine, at);
            if !died {
                break;
            }
            acts += 1;
        }
    }
    assert!(acts > 150, "{acts} deaths");
}

#[test]
fn killed_in_the_middle_of_every_write_the_next_maintainer_loses_nothing() {
    let mut deaths = 0;
    for scene in
        scenes().into_iter().filter(|scene| ["a new file", "two edits", "a claim"].contains(&scene.name))
    {
        // More acts than any of them has. Only a write can be cut in half.
        for at in 0..20 {
            let (machine, died) = play(&scene, at, true);
            machine.maintain(None);
            check(&scene, &machine, at);
            deaths += usize::from(died);
        }
    }
    assert!(deaths > 10, "{deaths} deaths");
}

#[test]
fn a_new_file_whose_maintainer_died_is_one_task_even_if_it_was_done_in_between() {
    let scene = scenes().into_iter().find(|scene| scene.name == "a new file").unwrap();
    for at in 0.. {
        let (machine, died) = play(&scene, at, false);
        if machine.stored().contains_key("Needs_Action/new.md") {
            finish(&machine.vault, &task("new"));
        }
        machine.maintain(None);
        check(&scene, &machine, at);
        assert!(machine.kept().is_empty(), "killed at act {at}: nothing is taken for a second task");
        if !died {
            return;
        }
    }
}

/// A person saves the task at this moment, wherever its file is.
fn save(folder: &Path) {
    let shown = files_below(folder);
    let path = shown.keys().find(|path| path.ends_with("/x.md"));
    let path = folder.join(path.map_or("Needs_Action/x.md", String::as_str));
    // As editors do: a new file takes the place of the old one.
    let temporary = folder.join("saved");
    fs::write(&temporary, SAVED).unwrap();
    fs::rename(temporary, path).unwrap();
}

const SAVED: &[u8] = b"saved at the worst moment\n";

#[test]
fn a_save_at_any_moment_is_not_lost_even_if_the_maintainer_dies_later() {
    let mut saves = 0;
    for scene in scenes()
        .into_iter()
        .filter(|scene| ["a claim", "a change elsewhere", "an edit"].contains(&scene.name))
    {
        for saved_at in 0.. {
            let mut is_an_act = false;
            // The first time it does not die.
            for dies_at in [usize::MAX].into_iter().chain(saved_at..) {
                let machine = scene.set();
                let (acts, folder) = (AtomicUsize::new(0), machine.folder.path().to_owned());
                // Of this run alone: another process may hold a file open for a moment, which changes the number of acts.
                let was_saved = Arc::new(AtomicBool::new(false));
                let saves_now = Arc::clone(&was_saved);
                let fates: Fates = Arc::new(move |_| {
                    let act = acts.fetch_add(1, Ordering::Relaxed);
                    if act == saved_at {
                        save(&folder);
                        saves_now.store(true, Ordering::Relaxed);
                    }
                    if act == dies_at { Fate::Die } else { Fate::Go }
                });
                let died = maintain_until(&scene, &machine, &fates);
                machine.maintain(None);
                let texts = machine.remote.texts.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let told = format!("{}, saved at act {saved_at}, killed at act {dies_at}", scene.name);
                let is_kept = machine.kept().iter().any(|kept| kept == SAVED);
                let was_saved = was_saved.load(Ordering::Relaxed);
                assert!(!was_saved || is_kept || texts.contains(SAVED), "{told}: the save is lost");
                assert_eq!(machine.shown(), machine.stored(), "{told}");
                saves += usize::from(was_saved);
                is_an_act |= was_saved;
                if !died && dies_at != usize::MAX {
                    break;
                }
            }
            if !is_an_act {
                break;
            }
        }
    }
    assert!(saves > 100, "{saves} saves");
}

/// The view looks at one folder after the other. A file that is moved between two looks seems to be at both places, or at none.
#[test]
fn a_file_that_is_moved_while_the_view_looks_at_the_folders_was_moved() {
    for round in 0..200 {
        let machine = Machine::new();
        bring(&machine.vault, State::PendingApproval);
        let mut view = machine.open(None);
        Machine::follow(&mut view);
        let [from, to] = ["Pending_Approval/x.md", "Approved/x.md"].map(|path| machine.at(path));
        std::thread::scope(|scope| {
            let person = scope.spawn(move || {
                // At another moment of the look in each round.
                (0..round).for_each(|_| drop(fs::metadata(&from)));
                fs::rename(from, to).unwrap();
            });
            let mut is_moved = false;
            while !is_moved {
                is_moved = person.is_finished();
                view.hear(ViewNews::Folder(Hint::Everything));
                Machine::follow(&mut view);
            }
        });
        assert!(machine.stored().contains_key("Approved/x.md"), "{round}: {:?}", machine.told.lock());
        assert_eq!(machine.shown(), machine.stored(), "{round}");
    }
}

#[test]
fn notes_and_staged_files_that_no_view_made_change_nothing() {
    let machine = Machine::new();
    drop(machine.open(None));
    let (stage, letter) = (machine.at(".tollgate/view/stage"), machine.folder.path().join("letter.txt"));
    fs::write(&letter, "dear").unwrap();
    fs::write(stage.join("letter.txt"), "dear").unwrap();
    fs::write(stage.join("0123456789abcdef"), "left").unwrap();
    drop(machine.open(None));
    let left: Vec<_> = fs::read_dir(&stage).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["letter.txt"], "only a name that a view makes is deleted");

    let begun = serde_json::json!({"begun": {
        "task": "a.md",
        "slot": Slot::NEEDS_ACTION,
        "was": null,
        "new": Digest::of(b"dear"),
        "stage": "../../../letter.txt",
    }});
    let notes = machine.at(".tollgate/view/notes");
    fs::write(&notes, [fs::read_to_string(&notes).unwrap(), format!("{begun}\n")].concat()).unwrap();
    let opened = FolderView::open(machine.vault.clone(), machine.options(Durability::Fast));
    assert_eq!(opened.err().map(|fault| fault.code()), Some("STATE_DAMAGED"));
    assert_eq!(fs::read(&letter).unwrap(), b"dear");
}

//! Steps whose answer was lost: the remote took the push and disappeared, or our own disk failed after the push. The same
//! step gets the same answer, and an error means that nothing was changed.

use super::fate::hook;
use super::*;
use crate::rules;
use crate::{Mode, StepId};

/// Makes the remote disappear as soon as it has taken a push, before it answers. The answer is where it went.
pub(super) fn goes_away_after_a_push(world: &World) -> PathBuf {
    let away = world.remote().with_extension("away");
    let text = format!(
        "[ \"$1\" = committed ] || exit 0\nrm -f \"$0\"\nmv {} {}\nkill -9 $PPID",
        world.remote().display(),
        away.display()
    );
    hook(world, "reference-transaction", &text);
    away
}

fn claim_step(machine: &Machine, task: &str) -> Step {
    let task = machine.store.get(&name(task), None, now()).unwrap().unwrap();
    let id = ClaimId::new().unwrap();
    let terms = Terms { lease: Duration::from_secs(600), retry: Vec::new(), ..Terms::default() };
    rules::claim(&task, id, &"blue".parse().unwrap(), Mode::Execute, None, &terms, now()).unwrap().0
}

fn release_step(machine: &Machine, task: &str) -> Step {
    let step = claim_step(machine, task);
    assert!(matches!(machine.store.apply(&step).unwrap(), StepOutcome::Done(_)));
    let task = machine.store.get(&name(task), None, now()).unwrap().unwrap();
    rules::release(&task, task.record.claim.as_ref().unwrap(), &Release::success(), &Terms::default(), now())
        .unwrap()
}

/// A claim, and a release to a final state, after which the remote has no card.
const STEPS: [fn(&Machine, &str) -> Step; 2] = [claim_step, release_step];

pub(super) fn told(machine: &Machine, step: &StepId) -> usize {
    machine.journal.all().iter().filter(|entry| entry.event.keys().step == Some(step.as_str())).count()
}

#[test]
fn a_new_task_whose_answer_was_lost_is_added_once() {
    let world = World::new();
    let (machine, other) = (world.machine("a"), world.machine("b"));
    machine.add("first", "text\n");
    let (id, task) = (StepId::new().unwrap(), name("x"));
    let away = goes_away_after_a_push(&world);
    for _ in 0..2 {
        let outcome = machine.store.add(&id, &task, b"text\n", now()).unwrap();
        assert!(matches!(outcome, StepOutcome::Unknown(Fault::Unreachable { .. })), "{outcome:?}");
    }
    fs::rename(away, world.remote()).unwrap();
    // Another machine claims it before the first one asks again.
    other.sync();
    other.claim("x", "red");
    let outcome = machine.store.add(&id, &task, b"text\n", now()).unwrap();
    assert!(matches!(outcome, StepOutcome::Done(_)), "{outcome:?}");
    assert_eq!(world.on_branch(), ["In_Progress/red/x.md", "Needs_Action/first.md"], "it was added once");
}

#[test]
fn a_step_gets_its_answer_when_the_remote_is_back() {
    for step in STEPS {
        for settled_by_another_process in [false, true] {
            let world = World::new();
            let machine = world.machine("a");
            machine.add("x", "text\n");
            let step = step(&machine, "x");
            let away = goes_away_after_a_push(&world);
            for _ in 0..2 {
                let outcome = machine.store.apply(&step).unwrap();
                assert!(matches!(outcome, StepOutcome::Unknown(Fault::Unreachable { .. })), "{outcome:?}");
            }
            assert_eq!(told(&machine, &step.id), 0);
            fs::rename(away, world.remote()).unwrap();
            if settled_by_another_process {
                let journal = Arc::clone(&machine.journal);
                let other = Machine::open(machine.path.clone(), |options| options.folder.journal = journal);
                assert_eq!(other.settle(), 1);
            }
            let StepOutcome::Done(landed) = machine.store.apply(&step).unwrap() else {
                panic!("the remote took it")
            };
            assert_eq!((&landed.task, &landed.slot), (&step.task, &step.to));
            let StepOutcome::Done(again) = machine.store.apply(&step).unwrap() else {
                panic!("the same answer")
            };
            assert_eq!(again, landed);
            assert_eq!(told(&machine, &step.id), 1, "one effect, one event");
            assert_eq!(world.on_branch(), [format!("{}/x.md", step.to)]);
        }
    }
}

#[test]
fn the_verbs_survive_a_lost_answer_and_the_task_is_done_once() {
    let world = World::new();
    let machine = world.machine("a");
    machine.add("x", "text\n");
    let away = goes_away_after_a_push(&world);
    let lost = machine.vault.claim(&name("x"), &request("blue"), now()).unwrap_err();
    assert_eq!(lost.code(), "REMOTE_UNREACHABLE");
    fs::rename(away, world.remote()).unwrap();
    // The claim is settled now. Its owner was told of a fault and is gone, so it is reclaimed at once.
    machine.reclaim("x");
    let claimed = machine.claim("x", "red");
    assert_eq!(machine.release(&claimed), State::Done);
    assert_eq!(machine.kinds(), ["CLAIM_FAILED", "CLAIM", "RECLAIM", "CLAIM", "RELEASE"]);
}

/// The disk fails at the Nth act, for every N. An error means that the remote has nothing; otherwise the fate is unknown.
/// In both cases the same step is taken when the disk works again.
#[test]
fn the_disk_fails_at_every_act_around_a_push() {
    const NO_SPACE: i32 = 28;
    for step in STEPS {
        let world = World::new();
        let machine = world.machine("a");
        let tip = || git(&world.remote(), &["rev-parse", "main"]);
        let (mut errors, mut unknown) = (0, 0);
        for act in 0.. {
            let task = format!("t{act}");
            machine.add(&task, "text\n");
            let step = step(&machine, &task);
            let before = tip();
            let mut failing = machine.store.clone();
            let acts = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&acts);
            failing.tree.folder.set_fates(Arc::new(move |_| match count.fetch_add(1, Ordering::SeqCst) {
                number if number == act => Fate::Fail(NO_SPACE),
                _ => Fate::Go,
            }));
            match failing.apply(&step) {
                Err(_) => {
                    assert_eq!(tip(), before, "act {act}: an error means that nothing was changed");
                    errors += 1;
                }
                Ok(StepOutcome::Unknown(_)) => unknown += 1,
                Ok(StepOutcome::Done(_)) => {}
                Ok(other) => panic!("act {act}: {other:?}"),
            }
            let StepOutcome::Done(landed) = machine.store.apply(&step).unwrap() else {
                panic!("act {act}: nobody else wants it")
            };
            assert_eq!(landed.slot, step.to, "act {act}");
            assert_eq!(told(&machine, &step.id), 1, "act {act}: one effect, one event");
            assert_eq!(machine.slot(&task), Some(step.to.clone()), "act {act}");
            machine.settle();
            assert_eq!(told(&machine, &step.id), 1, "act {act}: also after it was settled");
            assert!(!machine.store.pending_path().exists() && machine.kept_aside().is_empty(), "act {act}");
            if acts.load(Ordering::SeqCst) <= act {
                break;
            }
        }
        assert!(errors >= 1 && unknown >= 3, "before the push: {errors}, after it: {unknown}");
    }
}

/// A process died between its look and the tree.
#[test]
fn a_look_that_was_interrupted_is_completed_by_the_next_conversation() {
    let world = World::new();
    let (machine, other) = (world.machine("a"), world.machine("b"));
    machine.sync();
    other.add("x", "text\n");
    machine.store.glance(&machine.store.converse().unwrap()).unwrap();
    assert_eq!(machine.slot("x"), None);
    machine.add("y", "text\n");
    assert_eq!(machine.slot("x"), Some(Slot::NEEDS_ACTION));
}

#[test]
fn temporary_files_that_crashes_left_are_deleted_after_a_while() {
    let world = World::new();
    let machine = world.machine("a");
    let folders = [machine.store.private.clone(), machine.store.private.join("repository")];
    for folder in &folders {
        fs::write(folder.join("tmp-1"), "x").unwrap();
    }
    for (later, is_kept) in [(0, true), (7200, false)] {
        machine.store.sweep(now() + Duration::from_secs(later)).unwrap();
        for folder in &folders {
            assert_eq!(folder.join("tmp-1").exists(), is_kept);
        }
    }
    assert!(folders[1].join("config").exists());
}

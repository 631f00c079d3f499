//! What every store must do, as tests that any store can be put through. They end with a race.
//!
//! ```
//! # use std::sync::Arc;
//! use tollgate::vault::{MemoryStore, conformance};
//! conformance::run(&|| conformance::Bench::memory(&Arc::new(MemoryStore::new())));
//! ```
//!
//! A check panics with what it expected. Each gets a fresh store.

mod approval;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use super::claim::{ClaimId, Mode};
use super::event::{Event, Kind};
use super::memory::MemoryStore;
use super::roles::{Role, Roles};
use super::rules::{self, Asking, Release};
use super::state::{Slot, State};
use super::store::{Outcome, Store};
use super::{Asked, Claimed, Claiming, Next, Owned, Reason, TaskName, Terms, Vault, Wish, claim::Tenure};
use crate::name::Agent;

/// Moves a task, or changes its bytes, as a person would who knows nothing of tollgate: task, from, to, new bytes.
type Meddle = Box<dyn Fn(&TaskName, &Slot, &Slot, Option<&[u8]>)>;

/// A fresh store, with what the checks must be able to do behind its back.
pub struct Bench {
    /// The store.
    pub store: Arc<dyn Store>,
    /// All events that were written down.
    pub events: Box<dyn Fn() -> Vec<Event>>,
    /// Ends everything that holds this claim, at once.
    pub kill: Box<dyn Fn(Claimed)>,
    /// Does what a person does.
    pub meddle: Meddle,
    /// How many tasks the race at the end is for.
    pub race: usize,
}

/// Enough for a store in which a step takes no time.
pub const RACE: usize = 200;

impl Bench {
    /// For the store in memory.
    pub fn memory(store: &Arc<MemoryStore>) -> Self {
        let (events, kill, meddle) = (Arc::clone(store), Arc::clone(store), Arc::clone(store));
        Self {
            store: Arc::clone(store) as Arc<dyn Store>,
            events: Box::new(move || events.events()),
            kill: Box::new(move |claimed| kill.kill(&claimed.claim.id)),
            meddle: Box::new(move |task, from, to, bytes| meddle.meddle(task, from, to, bytes)),
            race: RACE,
        }
    }
}

/// All checks.
pub fn run(fresh: &dyn Fn() -> Bench) {
    let checks: [fn(&World); 13] = [
        a_task_is_added_once,
        a_task_goes_through_its_life,
        a_stale_step_does_nothing,
        a_dead_owner_is_replaced_and_fenced_off,
        a_lease_lasts_as_long_as_it_is_renewed,
        failed_work_is_tried_again_and_then_rejected,
        nothing_is_overwritten,
        approval::an_approval_is_for_these_bytes_and_once,
        approval::an_edit_is_approved_with_the_rest,
        approval::a_hand_move_is_understood,
        approval::a_sensitive_execution_is_not_repeated,
        order_and_dependencies,
        claimants_race_for_tasks,
    ];
    for check in checks {
        check(&World::new(fresh()));
    }
}

struct World {
    bench: Bench,
    vault: Vault,
}

/// Long after whatever wrote the files, so that everything has settled.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(10_000_000_000 + second).expect("a valid time")
}

const LEASE: i64 = 600;

fn name(text: &str) -> TaskName {
    text.parse().expect("a valid name")
}

fn agent(text: &str) -> Agent {
    text.parse().expect("a valid name")
}

fn asked(who: &str, wish: Wish) -> Asked {
    Asked { agent: agent(who), wish, renamed_in: false }
}

fn mine(who: &str) -> Slot {
    Slot::InProgress(agent(who))
}

impl World {
    fn new(bench: Bench) -> Self {
        let role = |allowed: &[&str], sensitive: &[&str]| Role {
            role: None,
            allowed: allowed.iter().map(|action| (*action).to_owned()).collect(),
            sensitive: sensitive.iter().map(|action| (*action).to_owned()).collect(),
        };
        let roles = [("cloud", role(&["triage"], &["pay"])), ("local", role(&["triage", "pay"], &[]))];
        let terms = Terms {
            roles: Roles(roles.into_iter().map(|(name, role)| (agent(name), role)).collect()),
            lease: Duration::from_secs(LEASE.unsigned_abs()),
            max_attempts: 3,
        };
        let vault = Vault::new(Arc::clone(&bench.store), terms);
        Self { bench, vault }
    }

    fn add(&self, task: &str, text: &str) -> TaskName {
        self.vault.add(&name(task), text.as_bytes()).expect("added").task
    }

    fn claim(&self, task: &TaskName, who: &str, wish: Wish, now: i64) -> Claimed {
        match self.vault.claim(task, &asked(who, wish), at(now)).expect("no fault") {
            Claiming::Claimed(claimed) => *claimed,
            Claiming::Not(not) => panic!("`{who}` should have got `{task}`: {not:?}"),
        }
    }

    fn refused(&self, task: &TaskName, who: &str, now: i64) -> Reason {
        match self.vault.claim(task, &asked(who, Wish::Leased), at(now)).expect("no fault") {
            Claiming::Claimed(_) => panic!("`{who}` should not have got `{task}`"),
            Claiming::Not(not) => not.reason,
        }
    }

    fn release(&self, claimed: &Claimed, how: &Release, now: i64) -> State {
        match self.vault.release(&claimed.task, &claimed.claim.id, how, at(now)).expect("no fault") {
            Owned::Yes(landed) => landed.slot.state(),
            Owned::No(why) => panic!("`{}` should have been released: {why}", claimed.task),
        }
    }

    fn slot(&self, task: &TaskName) -> Option<Slot> {
        self.bench.store.get(task, None, at(0)).expect("no fault").map(|stored| stored.placed.slot)
    }

    fn text(&self, task: &TaskName) -> String {
        let stored = self.vault.get(task, at(0)).expect("it exists");
        String::from_utf8(self.vault.read(&stored, u64::MAX).expect("readable")).expect("text")
    }

    fn kinds(&self, task: &TaskName) -> Vec<Kind> {
        let about = |event: &Event| event.payload.task == *task;
        (self.bench.events)().iter().filter(|event| about(event)).map(|event| event.kind).collect()
    }

    fn fenced_off(&self, old: &Claimed, now: i64) {
        let (task, id) = (&old.task, &old.claim.id);
        assert!(!self.vault.verify(task, id, at(now)).expect("no fault"), "an old claim is not valid");
        let no = |answer: bool| assert!(answer, "an old claim can do nothing");
        no(matches!(self.vault.renew(task, id, at(now)).expect("no fault"), Owned::No(_)));
        no(matches!(self.vault.progress(task, id, "x", at(now)).expect("no fault"), Owned::No(_)));
        no(matches!(
            self.vault.release(task, id, &Release::success(), at(now)).expect("no fault"),
            Owned::No(_)
        ));
        no(matches!(self.vault.give_back(task, id, "x", at(now)).expect("no fault"), Owned::No(_)));
    }
}

fn a_task_is_added_once(world: &World) {
    let task = world.add("x", "first");
    assert!(world.vault.add(&task, b"second").is_err(), "the name is taken");
    assert_eq!(world.text(&task), "first");
    assert!(world.vault.add(&name("empty"), b"").is_err());
    assert_eq!(world.slot(&name("nowhere")), None);
}

fn a_task_goes_through_its_life(world: &World) {
    let task = world.add("x", "# Do it");
    let claimed = world.claim(&task, "blue", Wish::Leased, 1);
    assert_eq!(world.slot(&task), Some(mine("blue")));
    assert!(world.text(&task).starts_with("# Do it\n<!-- tollgate c-"), "{}", world.text(&task));
    assert!(world.text(&task).contains("**Status**: processing"));
    assert!(world.vault.verify(&task, &claimed.claim.id, at(2)).expect("no fault"));
    assert_eq!(world.refused(&task, "blue", 2), Reason::Lost, "also not for an agent of the same name");
    let noted = world.vault.progress(&task, &claimed.claim.id, "half way", at(3)).expect("no fault");
    assert_eq!(noted, Owned::Yes(()));
    assert_eq!(world.release(&claimed, &Release::success(), 11), State::Done);
    let text = world.text(&task);
    assert!(text.starts_with("# Do it\n<!-- tollgate c-") && text.contains("half way\n"), "{text}");
    assert!(text.contains("**Status**: Done\n") && text.contains("**Duration**: 10\n"), "{text}");
    assert!(text.ends_with("**Result**: success\n**Next State**: Done\n"), "{text}");
    world.fenced_off(&claimed, 12);
    assert_eq!(world.kinds(&task), [Kind::Claim, Kind::Release], "each once, in order");
    assert_eq!(world.refused(&task, "blue", 13), Reason::NotEligible);
    let (all, each) = world.vault.figures().expect("no fault");
    assert_eq!((all.total_claims, all.active_claims, each.len()), (1, 0, 1));
}

fn a_stale_step_does_nothing(world: &World) {
    let task = world.add("x", "text");
    let stored = world.vault.get(&task, at(0)).expect("it exists");
    let step = |who: &str| {
        let tenure = Tenure::Leased(at(LEASE));
        let id = ClaimId::new().expect("random");
        let (agent, mode) = (agent(who), Mode::Execute);
        let asking = Asking { id, agent, tenure, lock: None, mode, sensitive: false };
        rules::claim(&stored, asking, at(1)).expect("a step")
    };
    let (first, second) = (step("blue"), step("red"));
    let apply = |step| world.bench.store.apply(step).expect("no fault");
    assert!(matches!(apply(&first), Outcome::Done(_)));
    let text = world.text(&task);
    assert!(matches!(apply(&second), Outcome::Conflict), "the other was quicker");
    assert!(matches!(apply(&first), Outcome::Conflict), "the same step once more");
    assert_eq!(world.text(&task), text);
    assert_eq!(world.kinds(&task), [Kind::Claim], "one effect, one line");
    assert_eq!(world.slot(&task), Some(mine("blue")));
}

fn a_dead_owner_is_replaced_and_fenced_off(world: &World) {
    let task = world.add("x", "text");
    let first = world.claim(&task, "blue", Wish::Held, 1);
    let reclaim = |now: i64| world.vault.reclaim(at(now)).expect("no fault").0;
    assert_eq!(reclaim(1_000_000), [], "however long it takes, a live owner is not robbed");
    let (old_id, old_epoch) = (first.claim.id.clone(), first.claim.epoch);
    (world.bench.kill)(first);
    let taken = world.vault.reclaimable(at(2)).expect("no fault");
    assert_eq!((taken.len(), taken[0].to), (1, State::NeedsAction));
    assert_eq!(reclaim(2), taken, "at once");
    assert_eq!(reclaim(2), [], "and once");
    let second = world.claim(&task, "blue", Wish::Held, 3);
    assert!(second.claim.epoch > old_epoch, "the fencing number grows");
    let zombie = Claimed { hold: None, task: task.clone(), path: None, claim: second.claim.clone() };
    let zombie = Claimed { claim: super::claim::Claim { id: old_id, ..zombie.claim }, ..zombie };
    world.fenced_off(&zombie, 4);
    assert_eq!(world.release(&second, &Release::success(), 5), State::Done);
    assert_eq!(world.kinds(&task), [Kind::Claim, Kind::Reclaim, Kind::Claim, Kind::Release]);
    assert_eq!(world.text(&task).matches("## Completion").count(), 2, "each attempt has its end");
}

fn a_lease_lasts_as_long_as_it_is_renewed(world: &World) {
    let task = world.add("x", "text");
    let claimed = world.claim(&task, "blue", Wish::Leased, 0);
    let id = claimed.claim.id.clone();
    let reclaim = |now: i64| world.vault.reclaim(at(now)).expect("no fault").0.len();
    assert_eq!(reclaim(LEASE), 0);
    let Owned::Yes(renewed) = world.vault.renew(&task, &id, at(LEASE - 1)).expect("no fault") else {
        panic!("the owner can renew")
    };
    assert_eq!(renewed.tenure, Tenure::Leased(at(2 * LEASE - 1)));
    assert_eq!(reclaim(2 * LEASE - 2), 0);
    assert!(world.vault.verify(&task, &id, at(2 * LEASE - 2)).expect("no fault"), "which extends it too");
    assert_eq!(reclaim(3 * LEASE - 3), 0);
    world.vault.progress(&task, &id, "x", at(3 * LEASE - 3)).expect("no fault");
    assert_eq!(reclaim(4 * LEASE - 4), 0);
    // Somebody sees that it has lapsed; before they take it, the owner is heard of again.
    let stored = world.vault.get(&task, at(5 * LEASE)).expect("it exists");
    let late = rules::reclaim(&stored, 3, at(5 * LEASE)).expect("a step");
    world.vault.renew(&task, &id, at(4 * LEASE)).expect("no fault");
    let outcome = world.bench.store.apply(&late).expect("no fault");
    assert!(matches!(outcome, Outcome::Conflict), "a renewed claim is not taken: {outcome:?}");
    assert_eq!(reclaim(5 * LEASE + 1), 1, "nothing was heard of it");
    world.fenced_off(&claimed, 5 * LEASE);
    let late = world.claim(&task, "blue", Wish::Leased, 0);
    assert_eq!(
        world.release(&late, &Release::success(), 2 * LEASE),
        State::Done,
        "late, but nobody else took it"
    );
    assert!(world.kinds(&task).contains(&Kind::Renew));
}

fn failed_work_is_tried_again_and_then_rejected(world: &World) {
    let task = world.add("x", "text");
    let first = world.claim(&task, "blue", Wish::Leased, 1);
    let done = Release { to: Some(State::Done), ..Release::failure("no") };
    assert!(world.vault.release(&task, &first.claim.id, &done, at(1)).is_err(), "failed work is never done");
    assert_eq!(world.release(&first, &Release::failure("exit status 1"), 2), State::NeedsAction);
    let given = world.claim(&task, "blue", Wish::Leased, 3);
    let back = world.vault.give_back(&task, &given.claim.id, "stopped", at(4)).expect("no fault");
    assert!(matches!(back, Owned::Yes(landed) if landed.slot == Slot::NEEDS_ACTION));
    let second = world.claim(&task, "red", Wish::Leased, 5);
    assert_eq!(
        world.release(&second, &Release::failure("exit status 1"), 6),
        State::NeedsAction,
        "two attempts"
    );
    let third = world.claim(&task, "blue", Wish::Leased, 7);
    assert_eq!(world.release(&third, &Release::failure("exit status 2"), 8), State::Rejected);
    assert!(world.text(&task).contains("gave up after 3 attempts: exit status 2"), "{}", world.text(&task));
}

fn nothing_is_overwritten(world: &World) {
    let task = world.add("x", "old");
    let old = world.claim(&task, "blue", Wish::Leased, 1);
    world.release(&old, &Release::success(), 2);
    let before = world.text(&task);
    world.add("x", "new");
    let new = world.claim(&task, "blue", Wish::Leased, 3);
    let done = world.vault.release(&task, &new.claim.id, &Release::success(), at(4)).expect("no fault");
    let Owned::Yes(landed) = done else { panic!("a release never fails on a name") };
    assert_eq!(landed.task, task.beside(new.claim.id.as_str()), "and the answer says the new one");
    assert_eq!(world.text(&task), before);
    assert!(world.text(&landed.task).starts_with("new"));
    // Two of one name at the same time: the second waits until the first is through.
    let first = world.claim(&world.add("y", "first"), "blue", Wish::Leased, 5);
    let second = world.add("y", "second");
    let stored = world.bench.store.get(&second, Some(State::NeedsAction), at(6)).expect("no fault");
    assert_eq!(stored.and_then(|stored| stored.twin), Some(mine("blue")));
    let (next, line) = world.vault.claim_next(&asked("red", Wish::Leased), at(6)).expect("no fault");
    assert!(matches!(next, Next::Nothing(None)) && line.blocked == 1);
    world.release(&first, &Release::success(), 7);
    world.claim(&second, "red", Wish::Leased, 8);
}

fn order_and_dependencies(world: &World) {
    world.add("low", "---\npriority: low\n---\n");
    world.add("due", "---\npriority: high\ndue: 2030-01-01\n---\n");
    world.add("high", "**Priority**: high\n");
    world.add("late", "---\npriority: urgent\nafter: low\n---\n");
    world.add("never", "---\npriority: urgent\nafter: [nowhere]\n---\n");
    world.add("self", "---\nafter: self\n---\n");
    world.add("broken", "---\naction: pay\n");
    world.add("foreign", "---\naction: other\n---\n");
    let who = asked("cloud", Wish::Leased);
    let mut order = Vec::new();
    loop {
        let (next, line) = world.vault.claim_next(&who, at(1)).expect("no fault");
        let Next::Claimed(claimed) = next else {
            assert_eq!((line.blocked, line.foreign, line.unfit.len()), (2, 1, 1), "{line:?}");
            break;
        };
        order.push(claimed.task.stem().to_owned());
        world.release(&claimed, &Release::success(), 2);
    }
    assert_eq!(order, ["due", "high", "low", "late"]);
    for (task, reason, word) in [
        ("never", Reason::Blocked, "does not exist"),
        ("self", Reason::Blocked, "itself"),
        ("broken", Reason::Incomplete, "closing"),
        ("foreign", Reason::NotEligible, "`other`"),
        ("low", Reason::NotEligible, "`Done`"),
    ] {
        let why = world.vault.why(&name(task), &agent("cloud"), at(3)).expect("no fault");
        let not = why.expect_err("it cannot be claimed");
        assert!(not.reason == reason && not.sentence.contains(word), "{not:?}");
    }
}

/// Eight claimants, many tasks: each task is worked once, by one, and the figures agree.
fn claimants_race_for_tasks(world: &World) {
    const CLAIMANTS: usize = 8;
    let tasks = world.bench.race;
    let worked: BTreeMap<String, AtomicUsize> =
        (0..tasks).map(|n| (format!("t{n}"), AtomicUsize::new(0))).collect();
    for task in worked.keys() {
        world.add(task, "text");
    }
    let vault = &world.vault;
    std::thread::scope(|scope| {
        for n in 0..CLAIMANTS {
            let worked = &worked;
            scope.spawn(move || {
                // Half of them have the same name.
                let who = asked(if n % 2 == 0 { "blue" } else { "red" }, [Wish::Held, Wish::Leased][n / 4]);
                loop {
                    let mut line = vault.line(&who, at(1)).expect("no fault");
                    if line.is_empty() {
                        return;
                    }
                    while let Next::Claimed(claimed) = vault.next(&mut line, &who, at(1)).expect("no fault") {
                        worked[claimed.task.stem()].fetch_add(1, Ordering::SeqCst);
                        assert!(vault.verify(&claimed.task, &claimed.claim.id, at(1)).expect("no fault"));
                        let done =
                            vault.release(&claimed.task, &claimed.claim.id, &Release::success(), at(1));
                        assert!(matches!(done.expect("no fault"), Owned::Yes(_)));
                    }
                    assert!(line.faults.is_empty(), "{:?}", line.faults);
                }
            });
        }
    });
    for (task, times) in &worked {
        assert_eq!(times.load(Ordering::SeqCst), 1, "{task}");
        assert_eq!(world.slot(&name(task)), Some(Slot::Free(State::Done)), "{task}");
    }
    let events = (world.bench.events)();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((count(Kind::Claim), count(Kind::Release)), (tasks, tasks));
    let (all, _) = vault.figures().expect("no fault");
    assert_eq!((all.total_claims, all.active_claims), (tasks as u64, 0));
    assert_eq!(all.claim_conflicts_avoided, count(Kind::ClaimLost) as u64);
}

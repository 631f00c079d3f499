//! Tasks of the same name: several may be there, but never two in the same slot.

use std::sync::{Arc, Barrier};

use jiff::Timestamp;
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_testing::etcd::Cluster;
use tollgate_vault::state::Slot;
use tollgate_vault::step::TextEdit;
use tollgate_vault::{
    ClaimKind, ClaimRequest, Claimed, Release, State, Step, StepOutcome, Store, Task, Terms, Vault,
};

use super::opened;
use crate::store::EtcdStore;

fn add(store: &EtcdStore, name: &TaskName) -> StepOutcome {
    store.add(&StepId::new().unwrap(), name, b"text", Timestamp::now()).unwrap()
}

fn vault(store: &Arc<EtcdStore>) -> Vault {
    Vault::new(Arc::clone(store) as Arc<dyn Store>, Terms::default())
}

fn claim(store: &Arc<EtcdStore>, name: &TaskName, agent: &str) -> Claimed {
    let request = ClaimRequest { agent: agent.parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    vault(store).claim(name, &request, Timestamp::now()).unwrap().unwrap()
}

/// The slots of all tasks that are not final, with their names, in order.
fn everywhere(url: &str) -> Vec<(String, String)> {
    let store = opened(url, "reader");
    let open = State::ALL.into_iter().filter(|state| !state.is_final());
    let tasks = open.flat_map(|state| store.scan(state, Timestamp::now()).unwrap().tasks);
    tasks.map(|task| (task.slot.to_string(), task.name.to_string())).collect()
}

#[test]
fn a_name_is_free_when_its_task_has_gone_on() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let store = opened(&url, "one");
    let name: TaskName = "x".parse().unwrap();
    assert!(matches!(add(&store, &name), StepOutcome::Done(_)));
    assert!(matches!(add(&store, &name), StepOutcome::Conflict), "it waits there");
    assert_eq!(claim(&store, &name, "blue").task, name);
    assert!(
        matches!(add(&store, &name), StepOutcome::Done(_)),
        "it is in progress, and does not wait any more"
    );
    assert!(matches!(add(&store, &name), StepOutcome::Conflict), "the new one waits");
    assert_eq!(everywhere(&url).len(), 2);
}

/// A step that brings a task elsewhere as it is.
fn moves(task: &Task, to: &Slot) -> Step {
    Step {
        id: StepId::new().unwrap(),
        at: Timestamp::now(),
        verb: None,
        task: task.name.clone(),
        from: task.slot.clone(),
        version: task.version.clone(),
        check: None,
        to: to.clone(),
        edit: TextEdit::Keep,
        record: Some(task.record.clone()),
        records_digest: false,
        fallback_suffix: "2".to_owned(),
        events: Vec::new(),
    }
}

#[test]
fn two_tasks_of_a_name_that_go_to_the_same_slot_get_different_names() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let (one, other) = (opened(&url, "one"), opened(&url, "other"));
    let name: TaskName = "x".parse().unwrap();
    let get = |state| one.get(&name, Some(state), Timestamp::now()).unwrap().unwrap();
    add(&one, &name);
    assert!(matches!(
        one.apply(&moves(&get(State::NeedsAction), &Slot::APPROVED)).unwrap(),
        StepOutcome::Done(_)
    ));
    add(&one, &name);
    // Both are judged before one of them moves.
    let steps = [State::Approved, State::NeedsAction].map(|state| moves(&get(state), &Slot::PENDING));
    let landed: Vec<_> =
        [&one, &other].into_iter().zip(&steps).map(|(store, step)| store.apply(step).unwrap()).collect();
    assert!(matches!(&landed[0], StepOutcome::Done(landed) if landed.task == name), "{landed:?}");
    assert!(matches!(&landed[1], StepOutcome::Done(landed) if landed.task != name), "{landed:?}");
    let tasks = everywhere(&url);
    assert!(tasks.len() == 2 && tasks.iter().all(|(slot, _)| slot == "Pending_Approval"), "{tasks:?}");
    // The same steps again: their answers were lost.
    for (step, before) in steps.iter().zip(&landed) {
        let again = other.apply(step).unwrap();
        assert!(
            matches!((&again, before), (StepOutcome::Done(again), StepOutcome::Done(before)) if again.task == before.task)
        );
    }
    assert_eq!(everywhere(&url), tasks);
}

#[test]
fn of_two_tasks_of_a_name_that_go_to_the_same_slot_at_the_same_time_one_gets_another_name() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let stores = [opened(&url, "one"), opened(&url, "other")];
    let mut steps = [Vec::new(), Vec::new()];
    for n in 0..30 {
        let name: TaskName = format!("x{n}").parse().unwrap();
        let get = |state| stores[0].get(&name, Some(state), Timestamp::now()).unwrap().unwrap();
        add(&stores[0], &name);
        stores[0].apply(&moves(&get(State::NeedsAction), &Slot::APPROVED)).unwrap();
        add(&stores[0], &name);
        for (steps, state) in steps.iter_mut().zip([State::Approved, State::NeedsAction]) {
            steps.push(moves(&get(state), &Slot::PENDING));
        }
    }
    let together = &Barrier::new(2);
    std::thread::scope(|scope| {
        for (store, steps) in stores.iter().zip(&steps) {
            scope.spawn(move || {
                for step in steps {
                    together.wait();
                    assert!(matches!(store.apply(step).unwrap(), StepOutcome::Done(_)));
                }
            });
        }
    });
    let mut tasks = everywhere(&url);
    tasks.sort();
    tasks.dedup();
    assert_eq!(tasks.len(), 60);
}

#[test]
fn two_tasks_of_a_name_are_done_one_after_the_other() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let store = opened(&url, "one");
    let name: TaskName = "x".parse().unwrap();
    for _ in 0..2 {
        add(&store, &name);
        let claimed = claim(&store, &name, "blue");
        let now = Timestamp::now();
        vault(&store).release(&name, &claimed.claim.id, &Release::success(), now).unwrap().unwrap();
    }
    let done = store.scan(State::Done, Timestamp::now()).unwrap().tasks;
    assert!(done.len() == 2 && done[0].name != done[1].name, "{done:?}");
    assert!(done.iter().all(|task| task.slot == Slot::Free(State::Done)));
}

//! What the engine does to a store: it forgets the past, a node hangs, a version loses data.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_testing::etcd::{Cluster, post};
use tollgate_testing::{free_port, until_true};
use tollgate_vault::event::{Entry, EventPage, Journal};
use tollgate_vault::step::TextEdit;
use tollgate_vault::store::Hint;
use tollgate_vault::{ClaimKind, ClaimRequest, Release, State, Step, StepOutcome, Store, Terms, Vault};

use super::trim::{all, work};
use super::{fake_node, open, opened, options};
use crate::client::WATCH;
use crate::store::{EtcdOptions, EtcdStore};
use crate::view::View;

fn add(store: &impl Store, name: &str) -> StepOutcome {
    let name: TaskName = name.parse().unwrap();
    store.add(&StepId::new().unwrap(), &name, b"text", Timestamp::now()).unwrap()
}

fn waiting(store: &impl Store) -> usize {
    store.scan(State::NeedsAction, Timestamp::now()).unwrap().tasks.len()
}

#[test]
fn another_machine_hears_of_every_task() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let (one, other) = (opened(&url, "one"), opened(&url, "other"));
    let (tell, told) = std::sync::mpsc::channel();
    let wake = move |hint: Hint| tell.send(hint).unwrap();
    let watch = other.watch(&[State::NeedsAction], Arc::new(wake)).unwrap().expect("it can tell");
    for n in 0..20 {
        add(&*one, &format!("t{n}"));
        let hint = told.recv_timeout(Duration::from_secs(30)).unwrap();
        let expected: TaskName = format!("t{n}").parse().unwrap();
        assert!(matches!(&hint, Hint::Task(name, State::NeedsAction, _) if *name == expected), "{hint:?}");
    }
    assert_eq!(waiting(&*other), 20);
    drop(watch);
    add(&*one, "after");
    until_true("the view to hear of it", || waiting(&*other) == 21);
    assert!(told.try_recv().is_err(), "a watch that was dropped tells nothing");
}

#[test]
fn a_watch_that_begins_in_an_outage_tells_of_its_end_and_of_every_task_after_it() {
    let mut cluster = Cluster::of(1);
    let url = cluster.url();
    cluster.kill(0);
    let store = opened(&url, "one");
    let (tell, told) = std::sync::mpsc::channel();
    let wake = move |hint: Hint| tell.send(hint).unwrap();
    let watch = store.watch(&[State::NeedsAction], Arc::new(wake)).unwrap().expect("it can tell");
    cluster.restart(0);
    // Nobody looks in the meantime.
    assert_eq!(told.recv_timeout(Duration::from_secs(60)).unwrap(), Hint::Everything);
    add(&*opened(&url, "other"), "x");
    let hint = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(hint, Hint::Task(_, State::NeedsAction, _)), "{hint:?}");
    drop(watch);
    assert!(store.shared.wakes.lock().unwrap().is_empty());
}

#[test]
fn a_watch_on_an_etcd_that_loses_data_is_refused_and_forgotten() {
    let store = opened(&format!("etcd://127.0.0.1:{}/x", node_of_version("3.5.2")), "one");
    let refused = store.watch(&[State::NeedsAction], Arc::new(|_| ()));
    assert!(refused.is_err_and(|fault| fault.to_string().contains("3.5.2")));
    assert!(store.shared.wakes.lock().unwrap().is_empty());
}

#[test]
fn a_step_that_was_taken_is_recognised_by_a_process_whose_view_is_behind() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let (one, other) = (opened(&url, "one"), opened(&url, "one"));
    let vault = |store: &Arc<EtcdStore>| Vault::new(Arc::clone(store) as Arc<dyn Store>, Terms::default());
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    for n in 0..10 {
        let name: TaskName = format!("t{n}").parse().unwrap();
        add(&*one, name.stem());
        let claimed = vault(&one).claim(&name, &request, Timestamp::now()).unwrap().unwrap();
        let task = one.get(&name, Some(State::InProgress), Timestamp::now()).unwrap().unwrap();
        let step = Step {
            id: StepId::new().unwrap(),
            at: Timestamp::now(),
            verb: None,
            task: name.clone(),
            from: task.slot.clone(),
            version: task.version.clone(),
            check: None,
            to: task.slot.clone(),
            edit: TextEdit::Progress(claimed.claim.id.clone(), "half\n".to_owned()),
            record: Some(task.record.clone()),
            records_digest: false,
            fallback_suffix: "x".to_owned(),
            events: Vec::new(),
        };
        let before =
            one.shared.client.range(&crate::message::Range::all(&one.shared.layout.open_tasks())).unwrap();
        assert!(matches!(one.apply(&step).unwrap(), StepOutcome::Done(_)));
        // The other process has the task as it was, and takes the same step: the answer of the first was lost.
        let mut view = View::new(before.header.revision);
        before.kvs.iter().for_each(|kv| view.put(&other.shared.layout, kv, &mut Vec::new()));
        other.shared.replace_view(view);
        let again = other.apply(&step).unwrap();
        assert!(matches!(&again, StepOutcome::Done(landed) if landed.task == name), "{again:?}");
        let text =
            one.read(&one.get(&name, None, Timestamp::now()).unwrap().unwrap(), u64::MAX).unwrap().unwrap();
        assert_eq!(String::from_utf8(text).unwrap().matches("half").count(), 1, "one effect");
    }
}

#[test]
fn a_view_whose_revision_was_compacted_is_made_again() {
    let cluster = Cluster::of(1);
    let url = cluster.url();
    let store = opened(&url, "one");
    add(&*store, "old");
    assert_eq!(waiting(&*store), 1);
    let revision = store.shared.with_view(|view| view.revision).unwrap();
    // As if this process had been cut off since the beginning, and the engine had forgotten what it missed.
    let compacted = cluster.ports().iter().find_map(|port| {
        post(*port, "/v3/kv/compaction", &json!({ "revision": revision.to_string(), "physical": true }))
    });
    assert!(compacted.is_some());
    store.shared.replace_view(View::new(1));
    assert_eq!(waiting(&*store), 0, "the view is empty now");
    until_true("the view to be made again", || waiting(&*store) == 1);
}

#[test]
fn a_watch_that_tells_too_much_at_once_is_not_read_and_everything_is_looked_at_again() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let port = fake_node::start(move |path, _| {
        let answer = match path {
            "/version" => json!({ "etcdserver": "3.5.30" }).to_string(),
            "/v3/watch" => "x".repeat(9 << 20),
            _ => json!({ "header": { "revision": "7" }, "succeeded": true }).to_string(),
        };
        counted.fetch_add(usize::from(path == "/v3/kv/range"), Ordering::Relaxed);
        Some((200, answer))
    });
    let store = opened(&format!("etcd://127.0.0.1:{port}/x"), "one");
    assert_eq!(waiting(&*store), 0);
    let first = 2;
    until_true("another look", || looks.load(Ordering::Relaxed) > first);
}

/// A journal that cannot be written while it is full.
#[derive(Default)]
struct FullJournal(AtomicBool);

impl Journal for FullJournal {
    fn id(&self) -> &str {
        "full"
    }

    fn append(&self, _events: &[Entry]) -> Result<()> {
        let is_full = self.0.load(Ordering::Relaxed);
        if is_full { Err(Fault::invalid("the disk is full")) } else { Ok(()) }
    }

    fn has(&self, _step: &StepId, _since: Timestamp) -> Result<bool> {
        Ok(false)
    }

    fn events(&self, after: &str, _limit: usize) -> Result<EventPage> {
        Ok((Vec::new(), after.to_owned()))
    }
}

#[test]
fn a_copy_of_events_that_fails_undoes_nothing_and_is_a_problem_until_the_next_one() {
    let cluster = Cluster::shared();
    let journal = Arc::new(FullJournal(AtomicBool::new(true)));
    let copied = Some(Arc::clone(&journal) as Arc<dyn Journal>);
    let options = options(&cluster.url(), "one", Duration::from_secs(600));
    let store = Arc::new(EtcdStore::open(EtcdOptions { journal: copied, ..options }).unwrap());
    work(&store, 0..1);
    assert!(store.problems()[0].contains("the disk is full"), "{:?}", store.problems());
    journal.0.store(false, Ordering::Relaxed);
    work(&store, 1..2);
    assert_eq!(store.problems(), [""; 0]);
    assert_eq!(all(&store).len(), 4, "the engine has all events");
}

#[test]
fn a_node_that_hangs_or_is_dead_costs_a_moment() {
    let mut cluster = Cluster::start();
    let url = cluster.url();
    let store = opened(&url, "one");
    add(&*store, "before");
    // Each node in turn: one of them is the leader, and one is the node that this store talks to.
    for (fault, node) in ["hangs", "dies"].into_iter().flat_map(|fault| (0..3).map(move |node| (fault, node)))
    {
        match fault {
            "hangs" => cluster.pause(node),
            _ => cluster.kill(node),
        }
        let began = Instant::now();
        let id = StepId::new().unwrap();
        let name: TaskName = format!("{fault}-{node}").parse().unwrap();
        let mut outcome;
        // If the answer was lost, the same step is taken again, as the vault does.
        while {
            outcome = store.add(&id, &name, b"text", Timestamp::now());
            !matches!(outcome, Ok(StepOutcome::Done(_)))
        } {
            assert!(began.elapsed() < Duration::from_secs(20), "{fault} {node}: {outcome:?}");
        }
        match fault {
            "hangs" => cluster.resume(node),
            _ => cluster.restart(node),
        }
        cluster.wait_until_ready();
    }
    assert_eq!(waiting(&*opened(&url, "two")), 7, "each was added, once");
}

#[test]
fn a_watch_leaves_a_dead_node_even_if_nothing_is_asked() {
    let cluster = Cluster::shared();
    let (dead, alive) = (free_port(), cluster.ports()[0]);
    let url = cluster.url_of(&format!("127.0.0.1:{dead},127.0.0.1:{alive}"));
    let store = opened(&url, "one");
    assert_eq!(waiting(&*store), 0);
    let client = &store.shared.client;
    assert_eq!(client.current(), 1, "it talks to the node that is alive");
    client.skip(1);
    // By then, the watch that is there now has ended.
    let ended = Instant::now() + WATCH;
    until_true("another watch", || store.shared.with_view(|view| view.heard > ended).unwrap());
}

#[test]
fn a_call_that_reaches_nobody_ends_by_its_deadline_and_says_so() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = options(&format!("etcd://127.0.0.1:{port}/x"), "one", Duration::from_secs(60));
    let store = EtcdStore::open(EtcdOptions { deadline: Duration::from_secs(2), ..options }).unwrap();
    let began = Instant::now();
    let fault = store.scan(State::NeedsAction, Timestamp::now()).unwrap_err();
    assert_eq!(fault.code(), "REMOTE_UNREACHABLE", "{fault}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// A node that only says which version it has.
fn node_of_version(version: &'static str) -> u16 {
    fake_node::start(move |_, _| Some((200, json!({ "etcdserver": version }).to_string())))
}

#[test]
fn an_etcd_that_loses_data_is_refused() {
    for version in ["3.5.0", "3.5.2", "3.5.5", "3.3.10"] {
        let port = node_of_version(version);
        let store = open(&format!("etcd://127.0.0.1:{port}/x"), "one", Duration::from_secs(60));
        let fault = store.scan(State::NeedsAction, Timestamp::now()).unwrap_err().to_string();
        assert!(fault.contains(version), "{fault}");
    }
}

#[test]
fn an_etcd_that_loses_data_without_other_members_is_refused_if_it_has_none() {
    for (version, members, is_refused) in
        [("3.4.20", 1, true), ("3.4.20", 3, false), ("3.4.21", 1, false), ("3.5.6", 1, false)]
    {
        let answer = json!({ "etcdserver": version, "members": vec![json!({}); members] }).to_string();
        let port = fake_node::start(move |_, _| Some((200, answer.clone())));
        let store = open(&format!("etcd://127.0.0.1:{port}/x"), "one", Duration::from_secs(60));
        let asked = store.shared.client.range(&crate::message::Range::all("x"));
        let why = asked.map_err(|error| error.fault("x").to_string()).err().unwrap_or_default();
        assert_eq!(why.contains("the only member"), is_refused, "{version} {members}: {why}");
        assert_eq!(why.is_empty(), !is_refused, "{version} {members}: {why}");
        let found = format!("{:?}", store.checkup().unwrap_or_default());
        assert_eq!(found.contains("the only member"), is_refused, "{version} {members}: {found}");
    }
}

#[test]
fn a_text_that_is_too_long_for_the_engine_is_refused_before_it_is_sent() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    let name: TaskName = "x".parse().unwrap();
    let largest = vec![b'x'; 1 << 20];
    let too_long = [&largest[..], b"x"].concat();
    let add = |text: &[u8]| store.add(&StepId::new().unwrap(), &name, text, Timestamp::now());
    assert!(add(&too_long).unwrap_err().to_string().contains("at most"), "one byte too many");
    assert!(matches!(add(&largest).unwrap(), StepOutcome::Done(_)), "the engine takes the largest");
}

#[test]
fn the_largest_task_is_claimed_released_reclaimed_and_rejected() {
    let cluster = Cluster::shared();
    let terms = Terms { lease: Duration::from_secs(2), retry: Vec::new(), ..Terms::default() };
    let vault = Vault::new(Arc::new(open(&cluster.url(), "one", terms.lease)), terms);
    let now = Timestamp::now;
    let claim = |name: &str| {
        let (name, agent): (TaskName, _) = (name.parse().unwrap(), "blue".parse().unwrap());
        vault.add(&name, &vec![b'x'; 1 << 20], now()).unwrap();
        let request = ClaimRequest { agent, kind: ClaimKind::Leased, renamed_in: false };
        let id = vault.claim(&name, &request, now()).unwrap().unwrap().claim.id;
        (name, id)
    };
    let (done, id) = claim("done");
    let fault = vault.progress(&done, &id, "half", now()).unwrap_err().to_string();
    assert!(fault.contains("at most 1048576 bytes"), "{fault}");
    vault.release(&done, &id, &Release::success(), now()).unwrap().unwrap();
    let text = vault.store().read(&vault.get(&done, now()).unwrap(), u64::MAX).unwrap().unwrap();
    vault.add(&"copied".parse().unwrap(), &text, now()).expect("as `vault copy` adds it");
    claim("abandoned");
    until_true("its owner to be gone", || !vault.reclaim(now()).unwrap().0.is_empty());
    let (returned, id) = claim("returned");
    vault.release(&returned, &id, &Release::give_back("later"), now()).unwrap().unwrap();
    vault.reject(&returned, "ada", "too long", now()).unwrap().unwrap();
    vault.retry(&returned, "ada", None, now()).unwrap().unwrap();
}

#[test]
fn every_request_has_an_object_as_its_body() {
    // The gateway of etcd 3.6 refuses `null`.
    let (tell, told) = std::sync::mpsc::channel();
    let port = fake_node::start(move |path, body| {
        tell.send((path.to_owned(), body.to_owned())).unwrap();
        Some((200, json!({ "etcdserver": "3.6.0", "members": [{}] }).to_string()))
    });
    let store = open(&format!("etcd://127.0.0.1:{port}/x"), "one", Duration::from_secs(60));
    let _ = store.checkup();
    let (paths, bodies): (Vec<_>, Vec<_>) = told.try_iter().filter(|(path, _)| path != "/version").unzip();
    assert!(paths.contains(&"/v3/cluster/member/list".to_owned()), "{paths:?}");
    for (path, body) in paths.iter().zip(&bodies) {
        assert!(body.starts_with('{'), "{path}: {body}");
    }
}

#[test]
fn a_view_that_is_made_again_after_an_outage_wakes_those_who_watch() {
    let cluster = Cluster::shared();
    let store = opened(&cluster.url(), "one");
    let (tell, told) = std::sync::mpsc::channel();
    let wake = move |hint: Hint| tell.send(hint).unwrap();
    let _watch = store.watch(&[State::NeedsAction], Arc::new(wake)).unwrap().expect("it can tell");
    let age = |view: &mut View| view.heard = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    // The thread that feeds the view may hear something at any moment, which makes the view young again.
    until_true("the view to be made again", || {
        store.shared.with_view(age);
        waiting(&*store);
        told.try_iter().any(|hint| hint == Hint::Everything)
    });
}

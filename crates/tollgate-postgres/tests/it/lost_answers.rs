//! Connections that are cut before or after a statement reached the server: one effect, one ledger line.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::error::{Fault, Result};
use tollgate_base::lock::Pauses;
use tollgate_postgres::{PostgresOptions, PostgresStore};
use tollgate_testing::postgres::{Server, is_installed, sabotage};
use tollgate_vault::event::{Entry, EventPage, Journal};
use tollgate_vault::step::TextEdit;
use tollgate_vault::{
    ClaimKind, ClaimRequest, Denial, Release, State, Step, StepId, StepOutcome, Store, Terms, Vault,
};

use crate::proxy::{self, Fate, Order};
use crate::stores::Stores;

fn options(port: u16, schema: &str) -> PostgresOptions {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}&sslmode=disable");
    PostgresOptions::parse(&url).unwrap()
}

fn vault(options: PostgresOptions) -> Vault {
    Vault::new(Arc::new(PostgresStore::open(options).unwrap()), Terms::default())
}

fn request(agent: &str) -> ClaimRequest {
    ClaimRequest { agent: agent.parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false }
}

/// One life of a task. The connection is cut at the statement with the bytes that each verb sends.
fn life(vault: &Vault, order: &Order, fate: Option<fn(Vec<u8>) -> Fate>) -> (Vec<String>, Vec<usize>) {
    let arm = |bytes: &str| {
        assert_eq!(*order.lock().unwrap(), None, "the connection was cut");
        *order.lock().unwrap() = fate.map(|fate| fate(bytes.as_bytes().to_vec()));
    };
    let (task, now) = ("x".parse().unwrap(), Timestamp::now());
    arm("what to do");
    vault.add(&task, b"what to do\n", now).unwrap();
    arm("\"CLAIM\"");
    let claim = vault.claim(&task, &request("blue"), now).unwrap().unwrap().claim.id;
    arm("\"CLAIM_LOST\"");
    assert_eq!(
        vault.claim(&task, &request("red"), now).unwrap().unwrap_err(),
        Denial::Owned(task.clone(), "blue".parse().unwrap())
    );
    arm("\"RENEW\"");
    vault.renew(&task, &claim, now).unwrap().unwrap();
    arm("half of it");
    vault.progress(&task, &claim, "half of it", now).unwrap().unwrap();
    arm("\"RELEASE\"");
    vault.release(&task, &claim, &Release::success(), now).unwrap().unwrap();
    arm("nothing");
    *order.lock().unwrap() = None;
    let (_, text) = vault.get_with_text(&task, u64::MAX, now).unwrap();
    let text = String::from_utf8(text).unwrap();
    let shape = ["half of it", "<!-- tollgate", "\n"].map(|part| text.matches(part).count());
    let events = vault.store().events("", 100).unwrap().0;
    (events.iter().map(|entry| entry.event.action_type().to_owned()).collect(), shape.to_vec())
}

#[test]
fn a_connection_that_is_cut_in_the_middle_of_a_step_has_one_effect_and_one_line() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let (port, order) = proxy::start(server.folder());
    let whole = life(&vault(options(port, "whole")), &order, None);
    assert_eq!(whole.0, ["CLAIM", "CLAIM_LOST", "RENEW", "RELEASE"]);
    assert_eq!(life(&vault(options(port, "before")), &order, Some(Fate::CutBefore)), whole);
    assert_eq!(life(&vault(options(port, "after")), &order, Some(Fate::CutAfter)), whole);
}

#[test]
fn without_the_ids_of_steps_a_claim_whose_answer_was_lost_is_lost() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let (port, order) = proxy::start(server.folder());
    let vault = vault(options(port, "forgetful"));
    let (task, now) = ("x".parse().unwrap(), Timestamp::now());
    vault.add(&task, b"text", now).unwrap();
    sabotage(&server, "forgetful", "take_step", "taken = step_id || t.taken[:7]", "taken = t.taken");
    *order.lock().unwrap() = Some(Fate::CutAfter(b"\"CLAIM\"".to_vec()));
    let denied = vault.claim(&task, &request("blue"), now).unwrap().unwrap_err();
    assert_eq!(denied, Denial::RaceLost(task), "against itself");
}

#[test]
fn a_lease_whose_answer_was_lost_counts_from_the_first_attempt() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let vault = vault(server.options("twice"));
    let (store, now) = (vault.store(), Timestamp::now());
    // The store remembers a short text, and looks for a long one at each attempt.
    for (name, length) in [("short", 10), ("long", 300 << 10)] {
        let name = name.parse().unwrap();
        vault.add(&name, &vec![b'x'; length], now).unwrap();
        let request = ClaimRequest { kind: ClaimKind::Held, ..request("blue") };
        let claimed = vault.claim(&name, &request, now).unwrap().unwrap();
        let claim = &claimed.claim.id;
        let claimed_at = store.proven_at(claim).unwrap();
        while millis_since_boot() <= claimed_at {}
        let task = store.get(&name, Some(State::InProgress), now).unwrap().unwrap();
        let step = Step {
            id: StepId::new().unwrap(),
            at: now,
            verb: None,
            task: name,
            from: task.slot.clone(),
            version: task.version,
            check: None,
            to: task.slot,
            edit: TextEdit::Progress(claim.clone(), "half of it\n".to_owned()),
            record: Some(task.record),
            records_digest: false,
            fallback_suffix: "x".to_owned(),
            events: Vec::new(),
        };
        let attempts = [(); 3].map(|()| {
            assert!(matches!(store.apply(&step).unwrap(), StepOutcome::Done(_)));
            store.proven_at(claim).unwrap()
        });
        assert!(attempts[0] > claimed_at, "a step gives the claim a new lease");
        assert_eq!(attempts, [attempts[0]; 3], "the same step gives it once");
    }
}

#[test]
fn a_call_to_a_server_that_says_nothing_ends_in_time() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let (port, order) = proxy::start(server.folder());
    let options = PostgresOptions {
        connect: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        patience: Duration::from_secs(1),
        ..options(port, "silent")
    };
    let vault = vault(options);
    let (task, now) = ("x".parse().unwrap(), Timestamp::now());
    vault.add(&task, b"text", now).unwrap();
    *order.lock().unwrap() = Some(Fate::Silence);
    let asked = Instant::now();
    let fault = vault.store().get(&task, None, now).unwrap_err();
    assert!(matches!(fault, Fault::Unreachable { .. }), "{fault}");
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert!(vault.add(&"y".parse().unwrap(), b"text", now).is_err(), "nothing is announced");
    *order.lock().unwrap() = None;
    assert_eq!(vault.get(&task, now).unwrap().name, task, "it connects again");
}

#[test]
fn silent_hosts_take_no_more_than_the_time_of_a_call_and_leave_some_for_the_next_host() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    server.store("last").events("", 1).expect("the schema is there");
    // The kernel accepts connections for it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("127.0.0.1:{}", silent.local_addr().unwrap().port());
    let (port, _order) = proxy::start(server.folder());
    let store = |hosts: &[&str]| {
        let url = format!("postgres://postgres@{}/postgres?schema=last&sslmode=disable", hosts.join(","));
        let limit = Duration::from_secs(6);
        let options =
            PostgresOptions { connect: limit, patience: limit, ..PostgresOptions::parse(&url).unwrap() };
        PostgresStore::open(options).unwrap()
    };
    let asked = Instant::now();
    assert!(matches!(store(&[&*silent; 8]).events("", 1), Err(Fault::Unreachable { .. })));
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    store(&[&silent, &format!("127.0.0.1:{port}")]).events("", 1).expect("the second host answers");
}

#[test]
fn whether_the_server_answers_is_said_at_once_even_if_it_does_not() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let (port, order) = proxy::start(server.folder());
    let patience = Duration::from_secs(30);
    let options =
        PostgresOptions { connect: patience, answer: patience, patience, ..options(port, "health") };
    let store = PostgresStore::open(options).unwrap();
    store.events("", 1).unwrap();
    assert_eq!(store.problems(), [""; 0]);
    *order.lock().unwrap() = Some(Fate::Silence);
    let asked = Instant::now();
    for _ in 0..3 {
        let problems = store.problems();
        assert!(problems.iter().any(|problem| problem.contains("has not answered")), "{problems:?}");
    }
    assert!(asked.elapsed() < patience / 3, "{:?}", asked.elapsed());
    *order.lock().unwrap() = None;
}

/// A journal that cannot be written while it is broken.
struct BrokenJournal(AtomicBool);

impl Journal for BrokenJournal {
    fn id(&self) -> &str {
        "broken"
    }

    fn append(&self, _events: &[Entry]) -> Result<()> {
        let is_broken = self.0.load(Ordering::Relaxed);
        if is_broken { Err(Fault::invalid("the disk is full")) } else { Ok(()) }
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
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let journal = Arc::new(BrokenJournal(AtomicBool::new(true)));
    let copied = Some(Arc::clone(&journal) as Arc<dyn Journal>);
    let vault = vault(PostgresOptions { journal: copied, ..server.options("copy") });
    let (task, now) = ("x".parse().unwrap(), Timestamp::now());
    vault.add(&task, b"text", now).unwrap();
    let claimed = vault.claim(&task, &request("blue"), now).unwrap().unwrap();
    let problems = vault.store().problems();
    assert!(problems.iter().any(|problem| problem.contains("the disk is full")), "{problems:?}");
    journal.0.store(false, Ordering::Relaxed);
    vault.release(&task, &claimed.claim.id, &Release::success(), now).unwrap().unwrap();
    assert_eq!(vault.store().problems(), [""; 0]);
    assert_eq!(vault.store().events("", 10).unwrap().0.len(), 2, "the database has all events");
}

/// From now on, a commit waits for standbys of these names.
fn waits_for_standbys(server: &Server, names: &str) {
    let mut sql = server.sql();
    sql.batch_execute(&format!("alter system set synchronous_standby_names = '{names}'")).unwrap();
    sql.batch_execute("select pg_reload_conf()").unwrap();
    server.waits_until(&format!("select current_setting('synchronous_standby_names') = '{names}'"));
}

#[test]
fn a_step_that_is_sent_again_is_acknowledged_only_when_the_standbys_have_it() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let limit = Duration::from_secs(2);
    let store = || {
        let options = PostgresOptions { answer: limit, patience: limit, ..server.options("again") };
        PostgresStore::open(options).unwrap()
    };
    let (now, name) = (Timestamp::now(), "x".parse().unwrap());
    let added = StepId::new().unwrap();
    let add = || store().add(&added, &name, b"what to do", now);
    assert!(matches!(add().unwrap(), StepOutcome::Done(_)));
    let task = store().get(&name, None, now).unwrap().unwrap();
    let step = Step {
        id: StepId::new().unwrap(),
        at: now,
        verb: None,
        task: name.clone(),
        from: task.slot.clone(),
        version: task.version,
        check: None,
        to: task.slot,
        edit: TextEdit::Replace("something else".to_owned()),
        record: Some(task.record),
        records_digest: false,
        fallback_suffix: "x".to_owned(),
        events: Vec::new(),
    };
    let apply = || store().apply(&step);
    assert!(matches!(apply().unwrap(), StepOutcome::Done(_)));
    // The standby is away, and may not have these steps.
    waits_for_standbys(&server, "*");
    for again in [add(), apply()] {
        assert!(!matches!(again, Ok(StepOutcome::Done(_))), "{again:?}");
    }
    waits_for_standbys(&server, "");
    for again in [add(), apply()] {
        assert!(matches!(again.unwrap(), StepOutcome::Done(_)));
    }
}

#[test]
fn a_call_that_finds_its_effect_there_is_acknowledged_only_when_the_standbys_have_it() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    server.store("again").events("", 1).expect("the schema is there");
    for call in ["record_events('s-1', '{}')", "add_task('s-2', 'x.md', 'text', '')"] {
        let call = format!("select again.{call}");
        // The first one has begun, and its connection is broken. It will be committed only here.
        let mut broken = server.sql();
        broken.batch_execute(&format!("begin; set local synchronous_commit = local; {call}")).unwrap();
        thread::scope(|scope| {
            let again = scope.spawn(|| server.sql().batch_execute(&call));
            server.waits_until("select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock'");
            waits_for_standbys(&server, "*");
            // Commits wait as soon as one does.
            let other = scope
                .spawn(|| server.sql().batch_execute("drop table if exists other; create table other ()"));
            let waiting = "select count(*) > 0 from pg_stat_activity where wait_event = 'SyncRep'";
            server.waits_until(waiting);
            broken.batch_execute("commit").unwrap();
            let mut pauses = Pauses::lasting(Duration::from_secs(30));
            let both_wait = || {
                let query = waiting.replace("> 0", "> 1");
                server.sql().query_one(&query, &[]).unwrap().get::<_, bool>(0)
            };
            while !again.is_finished() && !both_wait() && pauses.pause() {}
            let waited = both_wait() && !again.is_finished();
            // Before anything fails here, or these threads would wait for ever.
            waits_for_standbys(&server, "");
            other.join().unwrap().unwrap();
            again.join().unwrap().unwrap();
            assert!(waited, "{call} did not wait");
        });
    }
}

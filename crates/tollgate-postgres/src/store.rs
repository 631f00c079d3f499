//! The store: the trait [`Store`], over the functions of the schema.
//!
//! Invariant: each method is one call of the database, and may be repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::Row;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::{State, TaskName, Tenure};
use tollgate_vault::brief::{HEAD, urgency_of};
use tollgate_vault::checkup::Finding;
use tollgate_vault::claim_lock::Liveness;
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::figures::Tally;
use tollgate_vault::journal_copy::JournalCopy;
use tollgate_vault::state::Slot;
use tollgate_vault::step::TextEdit;
use tollgate_vault::store::{QueuePage, Scan, Wake, Watch};
use tollgate_vault::{
    Agent, Claim, ClaimId, ClaimLock, Step, StepId, StepOutcome, Store, Task, TaskAfterStep, TaskSummary,
};

use crate::checkup;
use crate::fields::{self, FoundTask, TASKS_OF_NAME, columns, micros, number, wrong};
use crate::held::HeldClaims;
use crate::link::{Failure, Params};
use crate::listing::{StateListing, summary};
use crate::options::PostgresOptions;
use crate::pool::{AnswerTime, DbLinks};
use crate::probe::Probe;
use crate::queue;
use crate::texts::Texts;
use crate::watch::Listener;

/// How many events are read at once to add them up.
const PAGE: usize = 10_000;

/// The owners of these held claims are alive.
const HEARTBEAT: &str = "update tasks set lease_until = lease_clock() + $2::bigint * interval '1 microsecond'
    where claim = any($1) and state = 'In_Progress' returning claim";

const TAKE: &str = "select take_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";

/// Tells the listeners of the step that this connection has just taken. It reads no table: then this transaction might have to
/// wait for the disk.
const TELL: &str = "select pg_notify($2, $3) where current_setting('tollgate.step', true) = $1";

/// A line that is missing for longer than this is waited for. Commits take less, so writers rarely have to wait with us.
const GAP: Duration = Duration::from_millis(500);

/// Tasks in progress without a claim, with an expired lease, or with a held claim of this process whose lock is gone. `$2` has
/// the claims whose locks live.
const SUSPECTS: &str = "select 0::bigint, 0::bigint, id, name, state, agent, version, substring(text for $3),
        modified_at
    from tasks where state = 'In_Progress' and (claim is null or claim <> all ($2)
        and (lease_until < lease_clock() or record -> 'claim' ->> 'lock' = $1))";

/// How often this process forgets the ids of steps that are older than a day. A lost answer is asked for again within
/// seconds.
const FORGETS_EVERY: Duration = Duration::from_secs(3600);

/// How many ids are forgotten at once. There is no index of their times, and the server must answer within seconds, also after
/// nobody has swept for a month.
const FORGOTTEN: i64 = 10_000;

const FORGET: &str = "with forgotten as (
        delete from steps where id = any (array(
            select id from steps where taken_at < clock_timestamp() - interval '1 day' limit $1)) returning 1
    ) select count(*) from forgotten";

/// Tasks in PostgreSQL.
pub struct PostgresStore {
    links: Arc<DbLinks>,
    journal: JournalCopy,
    texts: Texts,
    held: HeldClaims,
    /// Each has a lock of its own, which is held while the database is asked: a slow look at one state, such as `Done`, keeps
    /// nobody from looking at the others.
    listings: [Mutex<StateListing>; State::ALL.len()],
    sums: Mutex<(String, BTreeMap<Agent, Tally>)>,
    forgot: Mutex<Option<Instant>>,
    /// The number before the last line that was missing, and since when.
    gap: Mutex<Option<(i64, Instant)>>,
    probe: Probe,
}

impl PostgresStore {
    /// Opens the vault. Connects only when it is first used; then the schema is created if it is missing.
    pub fn open(options: PostgresOptions) -> Result<Self> {
        Ok(Self {
            journal: JournalCopy::to(options.journal.clone()),
            links: Arc::new(DbLinks::new(options)?),
            texts: Texts::default(),
            held: HeldClaims::new()?,
            listings: Default::default(),
            sums: Mutex::default(),
            forgot: Mutex::default(),
            gap: Mutex::default(),
            probe: Probe::default(),
        })
    }

    fn call(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>> {
        self.links.call(sql, params, AnswerTime::Short).map_err(Failure::fault)
    }

    /// The text of this version; `None` if the task does not have it any more.
    fn text(&self, task: &TaskName, version: i64) -> Result<Option<Arc<[u8]>>> {
        if let Some(text) = self.texts.get(version) {
            return Ok(Some(text));
        }
        let sql = "select text from tasks where name = $1 and version = $2";
        let rows = self.call(sql, &[&task.as_str(), &version])?;
        Ok(rows.first().map(|row| row.get::<_, Vec<u8>>(0).into()))
    }

    /// Changes a task, and tells the listeners if it was changed.
    fn change(
        &self,
        id: &StepId,
        change: (&'static str, Params<'_>),
        told: &str,
    ) -> Result<Vec<Row>, Failure> {
        let channel = format!("tollgate_{}", self.links.options.schema);
        self.links.call_and(change, (TELL, &[&id.as_str(), &channel, &told]))
    }

    /// Whether lines that are missing after this number will never come.
    fn is_settled(&self, before: i64) -> Result<bool> {
        let is_old = {
            let mut gap = lock(&self.gap);
            let since =
                gap.filter(|(known, _)| *known == before).map_or_else(Instant::now, |(_, since)| since);
            *gap = Some((before, since));
            since.elapsed() > GAP
        };
        let rows = self.call("select settle($1)", &[&is_old])?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    fn lease_micros(&self) -> i64 {
        i64::try_from(self.links.options.lease.as_micros()).unwrap_or(i64::MAX)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lines(events: &[Entry]) -> Result<Vec<String>> {
    events.iter().map(|event| serde_json::to_string(event).map_err(wrong)).collect()
}

impl Store for PostgresStore {
    fn scan(&self, state: State, _now: Timestamp) -> Result<Scan> {
        lock(&self.listings[state as usize]).refresh(&self.links, state)
    }

    fn queue_page(&self, after: &str, limit: usize, _now: Timestamp) -> Result<Option<QueuePage>> {
        queue::page(&self.links, after, limit).map(Some)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        let rows = self.call(TASKS_OF_NAME, &[&task.as_str()])?;
        let mut found = rows.iter().map(|row| fields::task(row, now)).collect::<Result<Vec<_>>>()?;
        found.sort_by_key(|found| {
            (!found.is_known, found.task.slot.state().is_final(), found.task.slot.clone())
        });
        let known: Vec<Slot> =
            found.iter().filter(|found| found.is_known).map(|found| found.task.slot.clone()).collect();
        let wanted = |found: &FoundTask| state.is_none_or(|state| found.task.slot.state() == state);
        Ok(found.into_iter().find(wanted).map(|FoundTask { task, text, .. }| {
            if let Some(version) = number(&task.version) {
                self.texts.keep(version, text);
            }
            Task { twin: known.into_iter().find(|slot| *slot != task.slot), ..task }
        }))
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let sql = "select substring(text for $3) from tasks where name = $1 and version = $2";
        let rows = self.call(sql, &[&task.name.as_str(), &number(&task.version), &limit])?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        let Some(version) = number(&step.version) else { return Ok(StepOutcome::Conflict) };
        let text = self.text(&step.task, version)?;
        if let (Some(check), Some(text)) = (step.check, &text)
            && check != Digest::of(text)
        {
            let sql = "select 1 from tasks where name = $1 and version = $2";
            let is_there = !self.call(sql, &[&step.task.as_str(), &version])?.is_empty();
            return Ok(if is_there { StepOutcome::Changed } else { StepOutcome::Conflict });
        }
        // If no task has this version any more, the database only looks whether this step was taken before.
        let edited = text.map(|text| step.edited(&text));
        let record = edited.as_ref().and_then(|text| step.record_after(text));
        let claim = record.as_ref().and_then(|record| record.claim.as_ref());
        let lease = claim.map(|claim| match claim.tenure {
            Tenure::Leased(until) => micros(until.duration_since(step.at)),
            Tenure::Held => self.lease_micros(),
        });
        let claim = claim.map(|claim| claim.id.as_str());
        let new_text = edited.as_ref().filter(|_| step.edit != TextEdit::Keep);
        let new_record = record.as_ref().map(serde_json::to_string).transpose().map_err(wrong)?;
        let ((in_state, in_agent), (to_state, to_agent)) = (columns(&step.from), columns(&step.to));
        let (fallback, entries) = (step.fallback_name(), lines(&step.events)?);
        let urgency = edited.as_ref().filter(|_| queue::waits(&step.to)).map(|text| urgency_of(text));
        let owner = step.record.as_ref().and_then(|record| record.claim.as_ref());
        if let Some(owner) = owner {
            self.held.sent(&owner.id, &step.id);
        }
        let take = |name: &TaskName| {
            let params: Params<'_> = &[
                &step.id.as_str(),
                &step.task.as_str(),
                &in_state,
                &in_agent,
                &version,
                &name.as_str(),
                &to_state,
                &to_agent,
                &fallback.as_str(),
                &new_text,
                &new_record,
                &claim,
                &lease,
                &entries,
                &urgency,
            ];
            let told = format!("{to_state}/{name}\n-{in_state}/{}", step.task);
            self.change(&step.id, (TAKE, params), &told)
        };
        let taken = match take(&step.task) {
            // There is a task of this name where it goes.
            Err(Failure::Taken(_)) => take(&fallback),
            taken => taken,
        };
        let rows = match taken {
            Ok(rows) => rows,
            Err(Failure::Lost(fault)) => return Ok(StepOutcome::Unknown(fault)),
            Err(failure) => return Err(failure.fault()),
        };
        match rows.first().and_then(|row| row.get::<_, Option<&str>>(0)) {
            Some(name) => {
                self.journal.append(&step.events);
                if let Some(owner) = owner {
                    self.held.taken(&owner.id, &step.id);
                }
                let task = TaskName::of_file(name)?;
                Ok(StepOutcome::Done(TaskAfterStep { task, slot: step.to.clone(), path: None }))
            }
            None => Ok(StepOutcome::Conflict),
        }
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], _now: Timestamp) -> Result<StepOutcome> {
        let sql = "select add_task($1, $2, $3, $4)";
        let params: Params<'_> = &[&id.as_str(), &task.as_str(), &text, &urgency_of(text)];
        let rows = match self.change(id, (sql, params), &format!("{}/{task}", State::NeedsAction)) {
            Ok(rows) => rows,
            Err(Failure::Lost(fault)) => return Ok(StepOutcome::Unknown(fault)),
            Err(failure) => return Err(failure.fault()),
        };
        let is_added = rows.first().is_some_and(|row| row.get(0));
        let landed = || TaskAfterStep { task: task.clone(), slot: Slot::NEEDS_ACTION, path: None };
        Ok(if is_added { StepOutcome::Done(landed()) } else { StepOutcome::Conflict })
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        // The call is repeated if its answer is lost, so it has an id, too.
        let id = StepId::new()?;
        self.call("select record_events($1, $2)", &[&id.as_str(), &lines(events)?])?;
        self.journal.append(events);
        Ok(())
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        let foreign = || Fault::invalid(format!("`{}` is not a cursor of this vault", after.escape_debug()));
        let position: i64 = if after.is_empty() { 0 } else { after.parse().map_err(|_| foreign())? };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = "select pos, entry::text from ledger where pos > $1 and pos <= $2 order by pos limit $3";
        let read = |upto: i64| {
            self.links.call(sql, &[&position, &upto, &limit], AnswerTime::Whole).map_err(Failure::fault)
        };
        let mut rows = read(i64::MAX)?;
        let whole =
            (position + 1..).zip(&rows).take_while(|(next, row)| row.get::<_, i64>(0) == *next).count();
        if let Some(last) = rows.get(whole..).and_then(<[Row]>::last).map(|row| row.get(0)) {
            // A line is missing. Somebody is writing it at this moment, or it will never come.
            if self.is_settled(position + i64::try_from(whole).unwrap_or(0))? {
                rows = read(last)?;
            } else {
                rows.truncate(whole);
            }
        }
        let next = rows.last().map_or(position, |row| row.get(0));
        let entry = |row: &Row| serde_json::from_str(row.get(1)).map_err(wrong);
        Ok((rows.iter().map(entry).collect::<Result<_>>()?, next.to_string()))
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        let mut sums = lock(&self.sums);
        loop {
            let (events, next) = self.events(&sums.0, PAGE)?;
            for entry in &events {
                Tally::add_to(&mut sums.1, entry.agent.as_ref(), &entry.event);
            }
            sums.0 = next;
            if events.len() < PAGE {
                return Ok(sums.1.clone());
            }
        }
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        let watch: Watch = Box::new(Listener::start(Arc::clone(&self.links), states.to_vec(), wake)?);
        Ok(Some(watch))
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        Ok(Some(self.held.hold(claim)))
    }

    fn suspects(&self, _now: Timestamp) -> Result<Vec<TaskSummary>> {
        let head = i32::try_from(HEAD).unwrap_or(i32::MAX);
        let rows = self.call(SUSPECTS, &[&self.held.token().to_string(), &self.held.all(), &head])?;
        Ok(rows.iter().filter_map(|row| summary(row, State::InProgress).ok()).collect())
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        let lives = match self.held.lives(&claim.id, claim.hold) {
            Some(lives) => Some(lives),
            None => {
                let sql = "select lease_until >= lease_clock() from tasks where claim = $1 and state = 'In_Progress'";
                self.call(sql, &[&claim.id.as_str()])?.first().and_then(|row| row.get(0))
            }
        };
        Ok(match lives {
            Some(true) => Liveness::Alive,
            // A late heartbeat would change the version, and the step of the agent that takes the task over would be refused.
            Some(false) => Liveness::Gone(ClaimLock::nothing()),
            None => Liveness::Unknown,
        })
    }

    /// A third of the lease: an owner that was not heard three times in a row is gone.
    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(self.links.options.lease / 3)
    }

    fn heartbeat(&self, _task: &TaskName, claim: &ClaimId) -> Result<bool> {
        let rows = self.call(HEARTBEAT, &[&vec![claim.as_str()], &self.lease_micros()])?;
        Ok(!rows.is_empty())
    }

    fn heartbeat_all(&self) -> Result<Vec<ClaimId>> {
        let held = self.held.all();
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let alive = self.call(HEARTBEAT, &[&held, &self.lease_micros()])?;
        alive.iter().map(|row| row.get::<_, &str>(0).parse()).collect()
    }

    fn proven_at(&self, claim: &ClaimId) -> Option<u64> {
        self.held.proven_at(claim)
    }

    fn checkup(&self) -> Result<Vec<Finding>> {
        checkup::findings(&self.links)
    }

    fn problems(&self) -> Vec<String> {
        self.probe.problems(&self.links).into_iter().chain(self.journal.problem()).collect()
    }

    fn sweep(&self, _now: Timestamp) -> Result<()> {
        let mut forgot = lock(&self.forgot);
        if forgot.is_none_or(|last| last.elapsed() > FORGETS_EVERY) {
            let rows = self.call(FORGET, &[&FORGOTTEN])?;
            // If there may be more of them, the next sweep goes on.
            if rows.first().is_none_or(|row| row.get::<_, i64>(0) < FORGOTTEN) {
                *forgot = Some(Instant::now());
            }
        }
        Ok(())
    }
}

//! The connections of a store, and calls that survive the loss of one.
//!
//! Invariant: every statement of this crate may be sent twice. So a call whose connection breaks is repeated on another
//! one, and on another server if need be, until its time is over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tollgate_base::error::{Fault, Result};

use crate::link::{DbLink, Failure, Listen, Params, unreachable};
use crate::options::PostgresOptions;
use crate::schema;
use crate::tls::TlsClient;

/// The first pause before a call is repeated. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// More idle connections than this are closed: as many threads rarely need the store at the same time.
const MOST_IDLE: usize = 8;

/// How long a call waits for an answer before it is repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnswerTime {
    /// Not long: for small statements.
    Short,
    /// As long as the whole call: for statements that return a lot.
    Whole,
}

/// The connections of a store.
pub(crate) struct DbLinks {
    pub(crate) options: PostgresOptions,
    tls: TlsClient,
    idle: Mutex<Vec<DbLink>>,
    /// The host that accepted writes last.
    preferred: AtomicUsize,
}

impl DbLinks {
    pub(crate) fn new(options: PostgresOptions) -> Result<Self> {
        let tls = TlsClient::new(&options.tls)?;
        Ok(Self { options, tls, idle: Mutex::default(), preferred: AtomicUsize::new(0) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<DbLink>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection to the first host that accepts writes, starting with the last one that did. It is there by `end`.
    pub(crate) fn connect(
        &self,
        mut listen: impl FnMut() -> Option<Listen>,
        end: Instant,
    ) -> Result<DbLink, Failure> {
        let hosts = &self.options.hosts;
        let first = self.preferred.load(Ordering::Relaxed);
        let (mut refused, mut failed) = (None, None);
        for (number, left) in (0..hosts.len()).map(|n| ((first + n) % hosts.len(), hosts.len() - n)) {
            // Silent hosts must leave some time for the others.
            let share =
                end.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(u32::MAX);
            let limit = share.min(self.options.connect);
            let connected = DbLink::connect(&self.options, &hosts[number], &self.tls, listen(), limit);
            let connected = connected.and_then(|mut link| {
                schema::prepare(&mut link, &self.options, end)?;
                Ok(link)
            });
            match connected {
                Ok(link) => {
                    self.preferred.store(number, Ordering::Relaxed);
                    return Ok(link);
                }
                Err(Failure::Refused(fault)) => refused = refused.or(Some(fault)),
                // Creating the schema may be repeated.
                Err(failure) => failed = Some(failure.fault()),
            }
        }
        Err(match (refused, failed) {
            (Some(refused), None) => Failure::Refused(refused),
            // The others may soon accept writes. If they do not, what one of them has refused is the reason.
            (Some(refused), Some(_)) => Failure::NotSent(refused),
            (None, failed) => {
                Failure::NotSent(failed.unwrap_or_else(|| unreachable(&self.options, "it has no host")))
            }
        })
    }

    /// Runs a statement.
    pub(crate) fn call(
        &self,
        sql: &'static str,
        params: Params<'_>,
        time: AnswerTime,
    ) -> Result<Vec<Row>, Failure> {
        self.repeat(time, |link, until| link.query(sql, params, until))
    }

    /// Runs a statement, and one that follows at once: see [`DbLink::query_and`].
    pub(crate) fn call_and(
        &self,
        first: (&'static str, Params<'_>),
        then: (&'static str, Params<'_>),
    ) -> Result<Vec<Row>, Failure> {
        self.repeat(AnswerTime::Short, |link, until| link.query_and(first, then, until))
    }

    fn repeat(
        &self,
        time: AnswerTime,
        ask: impl Fn(&mut DbLink, Instant) -> Result<Vec<Row>, Failure>,
    ) -> Result<Vec<Row>, Failure> {
        let end = Instant::now() + self.options.patience;
        let (mut pause, mut lost) = (FIRST_PAUSE, false);
        loop {
            let idle = self.idle().pop();
            let was_idle = idle.is_some();
            let link = idle.map_or_else(|| self.connect(|| None, end), Ok);
            let failure = match link.and_then(|link| self.attempt(link, &ask, end, time)) {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            lost |= matches!(failure, Failure::Lost(_));
            // What an earlier attempt did is not known, whatever came of this one.
            let given_up =
                |fault, how: fn(Fault) -> Failure| Err(if lost { Failure::Lost(fault) } else { how(fault) });
            match failure {
                Failure::Refused(fault) => return given_up(fault, Failure::Refused),
                Failure::Taken(fault) => return given_up(fault, Failure::Taken),
                failure if Instant::now() + pause >= end => {
                    return given_up(failure.fault(), Failure::NotSent);
                }
                _ => {}
            }
            // If one connection broke, so did those that are as old.
            self.idle().clear();
            if !was_idle {
                thread::sleep(pause);
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }

    fn attempt(
        &self,
        mut link: DbLink,
        ask: impl Fn(&mut DbLink, Instant) -> Result<Vec<Row>, Failure>,
        end: Instant,
        time: AnswerTime,
    ) -> Result<Vec<Row>, Failure> {
        let until = match time {
            AnswerTime::Short => end.min(Instant::now() + self.options.answer),
            AnswerTime::Whole => end,
        };
        let answer = ask(&mut link, until);
        if matches!(answer, Ok(_) | Err(Failure::Refused(_) | Failure::Taken(_))) {
            let mut idle = self.idle();
            if idle.len() < MOST_IDLE {
                idle.push(link);
            }
        }
        answer
    }
}

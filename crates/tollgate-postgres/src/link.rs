//! One connection to the database: connecting, statements with deadlines, and what a failed statement means.
//!
//! The runtime of the client runs only while a call waits for its answer. A connection that has failed is never used again.

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, FutureExt, poll_fn, ready, select};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Notification, Row, Socket, Statement};
use tollgate_base::error::Fault;

use crate::options::{PostgresHost, PostgresOptions, PostgresTls};
use crate::tls::{EncryptedStream, TlsClient};

/// How long a connection may be silent before the kernel asks whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The classes of errors that are about the values of a statement, which would be refused again: data exceptions, violated
/// constraints and views, limits of the server, and what a trigger raises.
const INPUT: [&str; 5] = ["22", "23", "44", "54", "P0"];

/// The parameters of a statement.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server said no. Nothing was changed, and repeating the statement would not help.
    Refused(Fault),
    /// The server said no, because there is such a row already. Nothing was changed.
    Taken(Fault),
    /// The statement was not sent.
    NotSent(Fault),
    /// The statement was sent and may have had its effect.
    Lost(Fault),
}

impl Failure {
    pub(crate) fn fault(self) -> Fault {
        let (Self::Refused(fault) | Self::Taken(fault) | Self::NotSent(fault) | Self::Lost(fault)) = self;
        fault
    }

    /// What an error means that came from the server or the connection.
    fn of(error: &tokio_postgres::Error, options: &PostgresOptions, sent: bool) -> Self {
        let unreachable = || unreachable(options, &explained(error));
        let Some(answer) = error.as_db_error() else {
            // A certificate that is not accepted now is not accepted later.
            let inner = error.source().and_then(|inner| inner.downcast_ref::<io::Error>());
            return match inner {
                _ if sent => Self::Lost(unreachable()),
                Some(inner) if inner.kind() == io::ErrorKind::InvalidData => Self::Refused(unreachable()),
                _ => Self::NotSent(unreachable()),
            };
        };
        match answer.code() {
            // The transaction was rolled back, so it can simply be repeated.
            &(SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::QUERY_CANCELED) => Self::NotSent(unreachable()),
            // The server is starting, stopping or full. If it stops during a commit, the commit may have happened.
            code if ["57", "53", "08", "58", "XX", "25"].contains(&&code.code()[..2]) => {
                if sent {
                    Self::Lost(unreachable())
                } else {
                    Self::NotSent(unreachable())
                }
            }
            code if INPUT.contains(&&code.code()[..2]) => {
                let fault = Fault::invalid(format!("`{options}` refuses: {}", answer.message()));
                if *code == SqlState::UNIQUE_VIOLATION { Self::Taken(fault) } else { Self::Refused(fault) }
            }
            // The input did not cause a missing right or a wrong password: a person can give the right back.
            _ => Self::Refused(Fault::RemoteRefused {
                remote: options.to_string(),
                what: answer.message().to_owned(),
            }),
        }
    }
}

pub(crate) fn unreachable(options: &PostgresOptions, what: &str) -> Fault {
    Fault::Unreachable { remote: options.to_string(), what: what.to_owned() }
}

/// The error and its causes, as one line.
fn explained(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Called for each notification, on the thread that waits for it.
pub(crate) type Listen = Box<dyn Fn(&Notification) + Send>;

/// The runtime of one connection. It waits for nothing when it is dropped: resolving the name of a host cannot be stopped, and
/// takes as long as the resolver likes.
struct LinkRuntime {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl LinkRuntime {
    fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// `None` if it takes too long.
    fn wait<T>(&self, limit: Duration, answer: impl Future<Output = T>) -> Option<T> {
        self.runtime.as_ref()?.block_on(async { timeout(limit, answer).await.ok() })
    }
}

impl Drop for LinkRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One connection.
pub(crate) struct DbLink {
    runtime: LinkRuntime,
    client: Client,
    statements: HashMap<&'static str, Statement>,
    options: PostgresOptions,
}

impl DbLink {
    /// Connects to this host within this time, if it accepts writes.
    pub(crate) fn connect(
        options: &PostgresOptions,
        host: &PostgresHost,
        tls: &TlsClient,
        listen: Option<Listen>,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let mut config = Config::new();
        config
            .host(&host.name)
            .port(host.port)
            .dbname(&options.database)
            .user(&options.user)
            .application_name("tollgate")
            .connect_timeout(limit)
            .tcp_user_timeout(options.patience)
            .keepalives_idle(KEEPALIVE)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            // The server gives up a statement that its client has given up.
            .options(format!(
                "-c search_path=\"{}\" -c tollgate.tells=on -c default_transaction_isolation=read\\ committed -c statement_timeout={}",
                options.schema,
                options.patience.as_millis()
            ))
            .ssl_mode(if options.tls == PostgresTls::Off { SslMode::Disable } else { SslMode::Require });
        if let Some(password) = host.password.as_ref().or(options.password.as_ref()) {
            config.password(password);
        }
        let runtime = LinkRuntime::new()
            .map_err(|error| Failure::Refused(unreachable(options, &format!("no runtime: {error}"))))?;
        let silent = || Failure::NotSent(unreachable(options, &format!("`{}` does not answer", host.name)));
        let connected = runtime.wait(limit, config.connect(tls.clone())).ok_or_else(silent)?;
        let (client, connection) = connected.map_err(|error| Failure::of(&error, options, false))?;
        if let Some(runtime) = &runtime.runtime {
            runtime.spawn(drive(connection, listen));
        }
        Ok(Self { runtime, client, statements: HashMap::new(), options: options.clone() })
    }

    /// Waits for an answer, but not for ever.
    fn wait<T>(
        &self,
        until: Instant,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let silent = || Failure::Lost(unreachable(&self.options, "it does not answer"));
        let limit = until.saturating_duration_since(Instant::now());
        let answered = self.runtime.wait(limit, answer).ok_or_else(silent)?;
        answered.map_err(|error| Failure::of(&error, &self.options, true))
    }

    /// The rows that a statement returns. It is parsed by the server once.
    pub(crate) fn query(
        &mut self,
        sql: &'static str,
        params: Params<'_>,
        until: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let statement = self.prepared(sql, until)?;
        self.wait(until, self.client.query(&statement, params))
    }

    /// Sends a query, and a second statement that follows at once. That one is a transaction of its own, and nobody waits for its answer:
    /// both are sent together, so the server carries it out even if this process ends.
    pub(crate) fn query_and(
        &mut self,
        (sql, params): (&'static str, Params<'_>),
        (then, then_params): (&'static str, Params<'_>),
        until: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let (statement, then) = (self.prepared(sql, until)?, self.prepared(then, until)?);
        let answer = pin!(self.client.query(&statement, params));
        let then = pin!(self.client.query(&then, then_params));
        let first = select(answer, then).then(|first| match first {
            Either::Left((answer, _)) => Either::Left(ready(answer)),
            // It could not be sent.
            Either::Right((_, answer)) => Either::Right(answer),
        });
        self.wait(until, first)
    }

    fn prepared(&mut self, sql: &'static str, until: Instant) -> Result<Statement, Failure> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.wait(until, self.client.prepare(sql));
        // Nothing was executed yet.
        let statement = prepared.map_err(|failure| match failure {
            Failure::Lost(fault) => Failure::NotSent(fault),
            other => other,
        })?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Executes a script.
    pub(crate) fn execute(&self, script: &str, until: Instant) -> Result<(), Failure> {
        self.wait(until, self.client.batch_execute(script))
    }

    /// Hands notifications on for this long.
    pub(crate) fn listen(&self, until: impl Future<Output = ()>) {
        if let Some(runtime) = &self.runtime.runtime {
            runtime.block_on(until);
        }
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

/// Moves bytes and hands notifications on, until the connection ends.
async fn drive(mut connection: Connection<Socket, EncryptedStream>, listen: Option<Listen>) {
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let (AsyncMessage::Notification(heard), Some(listen)) = (message, &listen) {
            listen(&heard);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn giving_up_a_connection_does_not_wait_for_the_name_of_its_host() {
        let runtime = LinkRuntime::new().unwrap();
        // As a resolver that does not answer.
        let (answer, resolver) = channel::<()>();
        runtime.runtime.as_ref().unwrap().spawn_blocking(move || resolver.recv());
        let (given_up, seen) = channel();
        thread::spawn(move || {
            drop(runtime);
            given_up.send(()).unwrap();
        });
        let seen = seen.recv_timeout(Duration::from_secs(20));
        drop(answer);
        seen.unwrap();
    }
}

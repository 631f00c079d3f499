//! Creating the schema of a vault, migrating one of an earlier tollgate, and refusing one of a later.
//!
//! Invariant: the schema is created or migrated in one transaction, under a lock, so two processes that do it at the same
//! time do it once. An earlier tollgate that is still connected finds its tables and functions unchanged in name.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tollgate_base::digest::Digest;
use tollgate_base::error::Fault;

use crate::link::{DbLink, Failure};
use crate::options::PostgresOptions;

/// The format that this version reads and writes. Since 2, adding a task again by the same step adds nothing, wherever the
/// task has gone. Since 3, the queue has an index. Since 4, a task remembers its last steps. Since 5, the answer to a step that is
/// sent again waits for the standbys, too. Since 6, so does every answer to a call that is sent again.
const FORMAT: i32 = 6;

const TABLES: &str = include_str!("tables.sql");
const QUEUE: &str = include_str!("queue.sql");
const FUNCTIONS: &str = include_str!("functions.sql");

/// The oldest server that has everything the schema needs.
const OLDEST_SERVER: i32 = 140_000;

/// One lock for all schemas of a database that are being created.
const CREATING: i64 = 1_953_459_303;

/// The longest time for a migration, which may build an index of all tasks: some seconds for each million. If it is not
/// enough, the server still completes the migration.
const MIGRATING: Duration = Duration::from_secs(10 * 60);

/// Checks a new connection, creates the schema if it is missing, and makes commits durable. After a migration the caller has
/// all its time again.
pub(crate) fn prepare(
    link: &mut DbLink,
    options: &PostgresOptions,
    end: &mut Instant,
) -> Result<(), Failure> {
    let until = *end;
    let rows = link.query(
        "select current_setting('server_version_num')::int, to_regclass('tollgate') is not null,
            case when current_setting('synchronous_commit') in ('off', 'local')
                then set_config('synchronous_commit', 'on', false) end",
        &[],
        until,
    )?;
    let Some(found) = rows.first() else { return Ok(()) };
    let (server, exists): (i32, bool) = (found.get(0), found.get(1));
    if server < OLDEST_SERVER {
        let told = format!("`{options}` is PostgreSQL {}: tollgate needs 14 or later", server / 10_000);
        return Err(Failure::Refused(Fault::invalid(told)));
    }
    if !exists {
        create(link, options, until)?;
    }
    match format(link, until)? {
        Some(FORMAT) => Ok(()),
        Some(older) if older < FORMAT => {
            migrate(link, options)?;
            *end = Instant::now() + options.patience;
            Ok(())
        }
        Some(newer) => Err(Failure::Refused(Fault::NewerFormat {
            path: PathBuf::from(options.to_string()),
            found: newer.unsigned_abs(),
            known: FORMAT.unsigned_abs(),
        })),
        None => Err(Failure::Refused(Fault::invalid(format!("`{options}` is not a vault of tollgate")))),
    }
}

fn format(link: &mut DbLink, until: Instant) -> Result<Option<i32>, Failure> {
    let found = link.query("select format from tollgate", &[], until)?;
    Ok(found.first().map(|row| row.get(0)))
}

/// A script for this schema.
fn script(text: &str, options: &PostgresOptions) -> String {
    // Advisory locks belong to the database, so each schema has a number of its own.
    let hash = Digest::of(options.schema.as_bytes()).to_string();
    let lock = i64::from_str_radix(&hash[..15], 16).unwrap_or(CREATING + 1);
    // In quotes: the name may be a word of SQL.
    text.replace("@@", &format!("\"{}\"", options.schema)).replace("@lock@", &lock.to_string())
}

/// Runs this block alone. All of it is one message, so the lock is released even if this process dies. The server limits how
/// long the block waits for others, but not how long it works.
fn alone(link: &DbLink, options: &PostgresOptions, block: &str, until: Instant) -> Result<(), Failure> {
    let patience = options.patience.as_millis();
    link.execute(
        &format!(
            "begin; set local statement_timeout = 0; set local lock_timeout = {patience};
            select pg_advisory_xact_lock({CREATING}); do $alone$ begin {block} end $alone$; commit"
        ),
        until,
    )
}

fn create(link: &DbLink, options: &PostgresOptions, until: Instant) -> Result<(), Failure> {
    let schema = &options.schema;
    let script = |text| script(text, options);
    let (tables, queue, functions) = (script(TABLES), script(QUEUE), script(FUNCTIONS));
    alone(
        link,
        options,
        &format!(
            r#"if to_regnamespace('"{schema}"') is null then
                create schema "{schema}";
            end if;
            if to_regclass('"{schema}".tollgate') is null then
                execute $tables$ {tables} {queue} {functions} $tables$;
            end if;"#
        ),
        until,
    )
}

fn migrate(link: &DbLink, options: &PostgresOptions) -> Result<(), Failure> {
    let (queue, functions) = (script(QUEUE, options), script(FUNCTIONS, options));
    alone(
        link,
        options,
        &format!(
            "if (select format from tollgate) < {FORMAT} then
                execute $functions$ {queue} {functions} $functions$;
                update tollgate set format = {FORMAT};
            end if;"
        ),
        Instant::now() + MIGRATING,
    )
}

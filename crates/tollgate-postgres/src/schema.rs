//! Creating the schema of a vault, and refusing one of another format.
//!
//! Invariant: the schema is created in one transaction, under a lock, so two processes that do it at the same time do it once.

use std::time::Instant;

use tollgate_base::digest::Digest;
use tollgate_base::error::Fault;

use crate::link::{DbLink, Failure};
use crate::options::PostgresOptions;

/// The format that this version reads and writes. `tables.sql` states it.
const FORMAT: i32 = 6;

const TABLES: &str = include_str!("tables.sql");
const FUNCTIONS: &str = include_str!("functions.sql");

/// The oldest server that has everything the schema needs.
const OLDEST_SERVER: i32 = 140_000;

/// One lock for all schemas of a database that are being created.
const CREATING: i64 = 1_953_459_303;

/// Checks a new connection, creates the schema if it is missing, and makes commits durable.
pub(crate) fn prepare(link: &mut DbLink, options: &PostgresOptions, until: Instant) -> Result<(), Failure> {
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
        Some(found) => {
            let (found, known) = (found.unsigned_abs(), FORMAT.unsigned_abs());
            Err(Failure::Refused(Fault::other_format(options.to_string(), found, known)))
        }
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

/// Creates the schema, alone. All of it is one message, so the lock is released even if this process dies. The server limits how
/// long it waits for others, but not how long it works.
fn create(link: &DbLink, options: &PostgresOptions, until: Instant) -> Result<(), Failure> {
    let (schema, patience) = (&options.schema, options.patience.as_millis());
    let (tables, functions) = (script(TABLES, options), script(FUNCTIONS, options));
    link.execute(
        &format!(
            r#"begin; set local statement_timeout = 0; set local lock_timeout = {patience};
            select pg_advisory_xact_lock({CREATING});
            do $alone$ begin
                if to_regnamespace('"{schema}"') is null then
                    create schema "{schema}";
                end if;
                if to_regclass('"{schema}".tollgate') is null then
                    execute $tables$ {tables} {functions} $tables$;
                end if;
            end $alone$; commit"#
        ),
        until,
    )
}

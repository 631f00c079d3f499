//! Creating the schema of a vault, and refusing one that a later tollgate has made.
//!
//! Invariant: the schema is created in one transaction, under a lock, so two processes that create it at the same time
//! create it once.

use std::path::PathBuf;
use std::time::Instant;

use tollgate_base::digest::Digest;
use tollgate_base::error::Fault;

use crate::link::{DbLink, Failure};
use crate::options::PostgresOptions;

/// The format that this version reads and writes.
const FORMAT: i32 = 1;

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
        create(link, options)?;
    }
    let found = link.query("select format from tollgate", &[], until)?;
    match found.first().map(|row| row.get::<_, i32>(0)) {
        Some(FORMAT) => Ok(()),
        Some(found) => Err(Failure::Refused(Fault::NewerFormat {
            path: PathBuf::from(options.to_string()),
            found: u32::try_from(found).unwrap_or(0),
            known: FORMAT.unsigned_abs(),
        })),
        None => Err(Failure::Refused(Fault::invalid(format!("`{options}` is not a vault of tollgate")))),
    }
}

fn create(link: &DbLink, options: &PostgresOptions) -> Result<(), Failure> {
    // In quotes: the name may be a word of SQL.
    let schema = &options.schema;
    // Advisory locks belong to the database, so each schema has a number of its own.
    let hash = Digest::of(schema.as_bytes()).to_string();
    let lock = i64::from_str_radix(&hash[..15], 16).unwrap_or(CREATING + 1);
    let tables = include_str!("schema.sql")
        .replace("@@", &format!("\"{schema}\""))
        .replace("@lock@", &lock.to_string());
    // The whole script is one message, so the lock is released even if this process dies.
    link.execute(&format!(
        r#"begin;
        select pg_advisory_xact_lock({CREATING});
        do $create$
        begin
            if to_regnamespace('"{schema}"') is null then
                create schema "{schema}";
            end if;
            if to_regclass('"{schema}".tollgate') is null then
                execute $tables$ {tables} $tables$;
            end if;
        end $create$;
        commit"#
    ))
}

//! What `tollgate doctor` reports about the database.

use jiff::{SignedDuration, Timestamp};
use tollgate_base::error::Result;
use tollgate_vault::checkup::Finding;

use crate::fields::time;
use crate::link::Failure;
use crate::options::PostgresOptions;
use crate::pool::{AnswerTime, DbLinks};

/// Leases do not depend on the clocks of machines, but times in the ledger and pauses do.
const SKEW: SignedDuration = SignedDuration::from_secs(10);

/// More rows than this are not counted: it takes seconds for each ten million, and the answer must come within those of a call.
const COUNTED: i64 = 100_000;

const LOOK: &str = "select current_setting('server_version'),
    clock_timestamp(),
    (select reset_val in ('off', 'local') from pg_settings where name = 'synchronous_commit'),
    (select count(*) from pg_stat_replication),
    (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')),
    (select count(*) from pg_stat_replication where sync_state is null),
    (select bool_and(has_table_privilege(name, need)) from unnest(array['tasks', 'ledger', 'steps']) name,
            unnest(array['select', 'insert', 'update', 'delete']) need)
        and has_table_privilege('tollgate', 'select') and has_table_privilege('tollgate', 'update')
        and has_sequence_privilege('versions', 'usage') and has_sequence_privilege('lines', 'usage')
        and has_sequence_privilege('lines', 'select') and has_sequence_privilege('tasks_id_seq', 'select'),
    (select count(*) from (select from tasks limit $1::bigint + 1) counted),
    (select count(*) from (select from ledger limit $1::bigint + 1) counted),
    pg_size_pretty(pg_total_relation_size('tasks') + pg_total_relation_size('ledger')
        + pg_total_relation_size('steps')),
    current_setting('fsync') = 'off' or current_setting('full_page_writes') = 'off',
    (select reltuples::bigint from pg_class where oid = 'tasks'::regclass),
    (select reltuples::bigint from pg_class where oid = 'ledger'::regclass),
    (select count(*) from pg_stat_replication where sync_state = 'potential')";

/// The findings, the most basic first.
pub(crate) fn findings(links: &DbLinks) -> Result<Vec<Finding>> {
    let asked = (links.options.clock)();
    let rows = match links.call(LOOK, &[&COUNTED], AnswerTime::Whole) {
        Ok(rows) => rows,
        Err(failure) => {
            let mut fix = "check the URL, the server, its `pg_hba.conf` and the password".to_owned();
            if matches!(failure, Failure::Refused(_)) {
                fix = format!("{fix}, and the rights of the user: {}", grants(&links.options));
            }
            let found = Finding::problem(failure.fault().to_string()).fix(fix);
            return Ok([found].into_iter().chain(told_password(&links.options)).collect());
        }
    };
    let answered = (links.options.clock)();
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let version: &str = row.get(0);
    let mut findings = vec![Finding::ok(format!("`{}` answers: PostgreSQL {version}", links.options))];
    let (tasks, lines) = (amount(row.get(7), row.get(11)), amount(row.get(8), row.get(12)));
    let size: &str = row.get(9);
    findings.push(Finding::ok(format!("the vault has {tasks} tasks and {lines} ledger lines, in {size}")));
    if !row.get::<_, bool>(6) {
        let user = &links.options.user;
        let what = format!("the user `{user}` may not use all tables and sequences of the vault");
        findings.push(Finding::problem(what).fix(grants(&links.options)));
    }
    findings.extend(told_password(&links.options));
    if row.get(2) {
        let what = "`synchronous_commit` is off: tollgate turns it on for its own connections";
        findings.push(
            Finding::warning(what).fix("set `synchronous_commit = on` in the configuration of the server"),
        );
    }
    if row.get(10) {
        let what = "`fsync` or `full_page_writes` is off: a power failure can damage the vault";
        findings.push(Finding::warning(what).fix("turn both on in the configuration of the server"));
    }
    findings.extend(standbys(row.get(3), row.get(4), row.get(5), row.get(13)));
    findings.extend(skew(asked, time(row, 1), answered));
    Ok(findings)
}

/// What gives the user all rights that tollgate needs in a schema that exists.
fn grants(options: &PostgresOptions) -> String {
    let (schema, user) = (format!("\"{}\"", options.schema), options.user.replace('"', "\"\""));
    format!(
        "as the owner of the schema, run `grant usage on schema {schema} to \"{user}\"; grant select, insert, update, delete \
         on all tables in schema {schema} to \"{user}\"; grant usage, select on all sequences in schema {schema} to \
         \"{user}\"`"
    )
}

/// A server without encryption chooses how the password is proven, and so does everybody who answers in its place.
fn told_password(options: &PostgresOptions) -> Option<Finding> {
    options.may_tell_password().then(|| {
        let what = "your password may cross the network unencrypted, if a server asks for it in clear text";
        Finding::warning(what).fix("let the servers use TLS, and remove `sslmode=disable` from the store")
    })
}

/// A number of rows: counted, or as the server estimates it.
fn amount(counted: i64, estimated: i64) -> String {
    if counted <= COUNTED {
        counted.to_string()
    } else if estimated > COUNTED {
        format!("about {estimated}")
    } else {
        // It has not looked at the table yet.
        format!("more than {COUNTED}")
    }
}

/// What the standbys mean for steps that were acknowledged. A potential one becomes synchronous when another one fails, and is
/// asynchronous until then.
fn standbys(all: i64, synchronous: i64, hidden: i64, potential: i64) -> Option<Finding> {
    match all - synchronous - hidden {
        0 if hidden > 0 => {
            let what = format!("{hidden} standbys replicate the vault, but this user may not see how");
            Some(Finding::warning(what).fix("grant the role `pg_monitor` to the user, then run this again"))
        }
        0 => None,
        behind => {
            let since = if behind == potential { " at the moment" } else { "" };
            let what = format!(
                "{behind} of {all} standbys replicate asynchronously{since}: if one of them is promoted, steps that were \
                 acknowledged can be lost, and a task can be done twice"
            );
            Some(Finding::warning(what).fix(
                "set `synchronous_standby_names`, and promote only standbys whose `sync_state` in `pg_stat_replication` is \
                 `sync` or `quorum`",
            ))
        }
    }
}

/// Whether the clocks differ by more than the time that the answer took.
fn skew(asked: Timestamp, server: Timestamp, answered: Timestamp) -> Option<Finding> {
    let off = if server < asked { asked.duration_since(server) } else { server.duration_since(answered) };
    (off > SKEW).then(|| {
        let what =
            format!("the clock of this machine and that of the database differ by {} s", off.as_secs());
        Finding::warning(what)
            .fix("synchronise both clocks; leases are safe, but times in the ledger are wrong")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_is_really_off_is_reported() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(skew(at(100), at(101), at(102)), None);
        assert_eq!(skew(at(100), at(130), at(121)), None, "within the time of the answer and the tolerance");
        assert!(skew(at(100), at(80), at(100)).unwrap().what.contains("20 s"));
        assert!(skew(at(100), at(160), at(100)).unwrap().what.contains("60 s"));
    }

    #[test]
    fn every_standby_that_can_lose_steps_is_reported() {
        assert_eq!(standbys(0, 0, 0, 0), None);
        assert_eq!(standbys(2, 2, 0, 0), None);
        assert!(standbys(2, 1, 0, 0).unwrap().what.contains("1 of 2 standbys replicate asynchronously:"));
        assert!(standbys(2, 1, 0, 1).unwrap().what.contains("asynchronously at the moment:"));
        assert!(standbys(1, 0, 1, 0).unwrap().what.contains("may not see"));
    }
}

//! What must hold while machines are killed and servers break, each with a control that fails.

use std::time::Duration;

use tollgate_base::lock::Pauses;
use tollgate_testing::postgres::{PORT, Server, compare_no_versions, is_installed, sabotage, signal};
use tollgate_vault::Store;
use tollgate_vault::checkup::Level;

use crate::campaign::{Crew, size};
use crate::stores::Stores;

const LEASE: Duration = Duration::from_secs(3);

/// Numbers that look random and are the same in every run.
fn shuffled(seed: u64) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(seed), |x| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)))
        .map(|x| usize::try_from(x >> 33).unwrap())
}

#[test]
fn eight_machines_with_wrong_clocks_do_every_task_once_while_they_are_killed() {
    if !is_installed() {
        return;
    }
    let server = Server::start("");
    let mut crew = Crew::start(&server.url("crew"), size(300), LEASE);
    let follower = crew.follower();
    let kills = 20;
    for (number, random) in shuffled(17).take(kills).enumerate() {
        crew.wait_for(crew.tasks * number / kills);
        crew.replace(random % 8);
    }
    let followed = follower.join().unwrap();
    assert_eq!(crew.judge(&followed), [""; 0]);
}

#[test]
fn without_the_comparison_of_versions_a_task_has_two_live_owners() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    server.store("crew").events("", 1).expect("the schema is there");
    compare_no_versions(&server, "crew");
    let crew = Crew::start(&server.url("crew"), 100, LEASE);
    crew.wait_for_all();
    let wrong = crew.judge(&[]);
    assert!(wrong.iter().any(|line| line.starts_with("two live owners")), "{wrong:?}");
}

#[test]
fn a_killed_postgresql_loses_no_acknowledged_step() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start("");
    let mut crew = Crew::start(&server.url("crew"), size(300), LEASE);
    let follower = crew.follower();
    for (number, random) in shuffled(3).take(3).enumerate() {
        crew.wait_for(crew.tasks * (number + 1) / 5);
        server.kill();
        crew.replace(random % 8);
        server.restart();
    }
    let followed = follower.join().unwrap();
    assert_eq!(crew.judge(&followed), [""; 0]);
}

/// Stops the process that writes now and then what no commit has waited for, at a moment at which it has no lock.
fn stop_the_writer(server: &Server) {
    let query = "select pid::text, wait_event = 'WalWriterMain' from pg_stat_activity where backend_type = 'walwriter'";
    let mut sql = server.sql();
    let mut look = || {
        let row = sql.query_one(query, &[]).unwrap();
        (row.get::<_, String>(0), row.get::<_, Option<bool>>(1) == Some(true))
    };
    let (writer, _) = look();
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    loop {
        signal(&writer, "STOP");
        if look().1 {
            break;
        }
        signal(&writer, "CONT");
        assert!(pauses.pause(), "it is always busy");
    }
}

#[test]
fn a_killed_postgresql_whose_commits_do_not_wait_for_the_disk_loses_acknowledged_steps() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start("");
    server.store("crew").events("", 1).expect("the schema is there");
    // The store turns this on when it connects. Each step turns it off again, for the rest of the connection.
    let off = "begin\n    perform set_config('synchronous_commit', 'off', false);\n";
    sabotage(&server, "crew", "take_step", "begin\n", off);
    // No heartbeat comes in between: its commit would take those before it to the disk.
    let mut crew = Crew::start(&server.url("crew"), 200, 1000 * LEASE);
    stop_the_writer(&server);
    crew.wait_for(crew.released() + 20);
    server.kill();
    // They would do again what was lost.
    crew.kill();
    server.restart();
    let wrong = crew.judge(&[]);
    assert!(wrong.iter().any(|line| line.starts_with("acknowledged and lost")), "{wrong:?}");
}

/// What a checkup warns of.
fn warnings(server: &Server) -> Vec<String> {
    let findings = server.store("crew").checkup().unwrap().into_iter();
    findings.filter(|finding| finding.level != Level::Ok).map(|finding| finding.what).collect()
}

/// The URL of a vault on the first of two servers that accepts writes.
fn both(primary: &Server, standby: &Server) -> String {
    let folder = |server: &Server| server.folder().display().to_string().replace('/', "%2F");
    format!("postgres://postgres@{},{}/postgres?schema=crew", folder(primary), folder(standby))
}

#[test]
fn a_promoted_synchronous_standby_has_every_acknowledged_step() {
    if !is_installed() {
        return;
    }
    let mut primary = Server::start("");
    let standby = primary.standby(PORT, "");
    primary.waits_for_its_standby();
    assert_eq!(warnings(&primary), [""; 0]);
    let crew = Crew::start(&both(&primary, &standby), size(300), LEASE);
    let follower = crew.follower();
    crew.wait_for(crew.tasks / 3);
    primary.kill();
    standby.sql().batch_execute("select pg_promote()").unwrap();
    let followed = follower.join().unwrap();
    assert_eq!(crew.judge(&followed), [""; 0]);
}

#[test]
fn a_standby_that_is_synchronous_only_when_another_fails_is_reported() {
    if !is_installed() {
        return;
    }
    let primary = Server::start("");
    let (_one, _other) = (primary.standby(PORT, ""), primary.standby(PORT, ""));
    primary.sql().batch_execute("alter system set synchronous_standby_names = 'FIRST 1 (*)'").unwrap();
    primary.sql().batch_execute("select pg_reload_conf()").unwrap();
    let states =
        "select array_agg(sync_state order by sync_state) = '{potential,sync}' from pg_stat_replication";
    primary.waits_until(states);
    let found = warnings(&primary).join("\n");
    assert!(found.contains("1 of 2 standbys replicate asynchronously at the moment"), "{found}");
}

#[test]
fn a_promoted_asynchronous_standby_loses_acknowledged_steps() {
    if !is_installed() {
        return;
    }
    let mut primary = Server::start("");
    let standby = primary.standby(PORT, "");
    assert!(warnings(&primary)[0].contains("1 of 1 standbys replicate asynchronously"));
    let crew = Crew::start(&both(&primary, &standby), 200, LEASE);
    crew.wait_for(5);
    // The standby falls behind, as one on a slow network does. A receiver that is only stopped would
    // still find in its socket what the primary has sent.
    standby.sql().batch_execute("alter system set primary_conninfo = ''").unwrap();
    standby.sql().batch_execute("select pg_reload_conf()").unwrap();
    standby.waits_until("select count(*) = 0 from pg_stat_wal_receiver");
    crew.wait_for(crew.released() + 20);
    primary.kill();
    standby.sql().batch_execute("select pg_promote()").unwrap();
    crew.wait_for_all();
    let wrong = crew.judge(&[]);
    assert!(wrong.iter().any(|line| line.starts_with("acknowledged and lost")), "{wrong:?}");
}

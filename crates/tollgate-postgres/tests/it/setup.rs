//! Creating the schema, refusing what does not fit, encryption, and what a checkup reports.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tollgate_base::error::Fault;
use tollgate_postgres::{PostgresOptions, PostgresStore, PostgresTls};
use tollgate_testing::postgres::{Server, hand_over, is_installed, run};
use tollgate_vault::checkup::{Finding, Level};
use tollgate_vault::{StepId, Store};

use crate::stores::Stores;

#[test]
fn processes_that_create_the_schema_at_the_same_time_create_it_once() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    thread::scope(|scope| {
        for number in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let (store, task) = (server.store("new"), format!("t{number}").parse().unwrap());
                store.add(&StepId::new().unwrap(), &task, b"text", Timestamp::now()).unwrap();
            });
        }
    });
    let tasks: i64 = server.sql().query_one("select count(*) from new.tasks", &[]).unwrap().get(0);
    assert_eq!(tasks, 8);
}

#[test]
fn a_vault_of_another_format_is_refused() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    server.store("other").events("", 1).expect("the schema is there");
    let refused = |format: u32| {
        server.sql().batch_execute(&format!("update other.tollgate set format = {format}")).unwrap();
        server.store("other").events("", 1).unwrap_err()
    };
    let fault = refused(7);
    assert!(matches!(fault, Fault::NewerFormat { found: 7, known: 6, .. }), "{fault}");
    let fault = refused(5).to_string();
    assert!(fault.contains("has format 5, from before the first release"), "{fault}");
}

/// The URL of a vault on the first of two servers that accepts writes.
fn both(first: &Server, second: &Server) -> String {
    let folder = |server: &Server| server.folder().display().to_string().replace('/', "%2F");
    format!("postgres://postgres@{},{}/postgres?schema=vault", folder(first), folder(second))
}

#[test]
fn what_one_server_refuses_is_said_even_if_the_next_one_is_a_standby() {
    if !is_installed() {
        return;
    }
    let (first, second) =
        (Server::start("fsync = off"), Server::start("fsync = off\ndefault_transaction_read_only = on"));
    first.store("vault").events("", 1).expect("the schema is there");
    first.sql().batch_execute("update vault.tollgate set format = 99").unwrap();
    let options = PostgresOptions::parse(&both(&first, &second)).unwrap();
    let fault = PostgresStore::open(options).unwrap().events("", 1).unwrap_err();
    assert!(matches!(fault, Fault::NewerFormat { found: 99, .. }), "{fault}");
}

fn at(findings: &[Finding], level: Level) -> Vec<&str> {
    findings.iter().filter(|finding| finding.level == level).map(|finding| &*finding.what).collect()
}

#[test]
fn a_checkup_reports_what_is_wrong() {
    if !is_installed() {
        return;
    }
    let server = Server::start("");
    let well = server.store("vault").checkup().unwrap();
    assert_eq!((at(&well, Level::Warning).len(), at(&well, Level::Problem).len()), (0, 0), "{well:?}");
    assert!(well[0].what.contains("PostgreSQL"), "{well:?}");
    let ahead = PostgresOptions {
        clock: || Timestamp::now() + SignedDuration::from_mins(5),
        ..server.options("vault")
    };
    let skewed = PostgresStore::open(ahead).unwrap().checkup().unwrap();
    assert!(at(&skewed, Level::Warning)[0].contains("differ by 29"), "{skewed:?}");

    let mut sql = server.sql();
    sql.batch_execute("alter system set synchronous_commit = off; ").unwrap();
    sql.batch_execute("create role reader login; grant usage on schema vault to reader; grant select on all tables in schema vault to reader").unwrap();
    sql.batch_execute("select pg_reload_conf()").unwrap();
    let off = server.store("vault");
    let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(30));
    while !at(&off.checkup().unwrap(), Level::Warning).iter().any(|what| what.contains("synchronous_commit"))
    {
        assert!(pauses.pause(), "it is reported");
    }
    let reader = PostgresOptions { user: "reader".into(), ..server.options("vault") };
    let reader = PostgresStore::open(reader).unwrap();
    let denied = reader.checkup().unwrap();
    assert!(at(&denied, Level::Problem)[0].contains("may not use all tables"), "{denied:?}");
    let refused = reader.add(&StepId::new().unwrap(), &"x".parse().unwrap(), b"x", Timestamp::now());
    assert!(refused.unwrap_err().to_string().contains("permission denied"));

    let nowhere = PostgresOptions { database: "nowhere".into(), ..server.options("vault") };
    let missing = PostgresStore::open(nowhere).unwrap().checkup().unwrap();
    assert!(at(&missing, Level::Problem)[0].contains("does not exist"), "{missing:?}");
}

#[test]
fn a_missing_right_is_a_refusal_and_a_text_that_is_never_taken_is_not_valid() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let (store, mut sql) = (server.store("vault"), server.sql());
    let code = |store: &PostgresStore| {
        let added = store.add(&StepId::new().unwrap(), &"x".parse().unwrap(), b"text", Timestamp::now());
        added.unwrap_err().code()
    };
    store.events("", 1).expect("the schema is there");
    sql.batch_execute("create role clerk login; grant usage on schema vault to clerk").unwrap();
    let clerk = PostgresOptions { user: "clerk".into(), ..server.options("vault") };
    assert_eq!(code(&PostgresStore::open(clerk).unwrap()), "REMOTE_REFUSED");
    let stranger = PostgresOptions { user: "nobody".into(), ..server.options("vault") };
    assert_eq!(code(&PostgresStore::open(stranger).unwrap()), "REMOTE_REFUSED");
    sql.batch_execute("alter table vault.tasks add check (length(text) > 100)").unwrap();
    assert_eq!(code(&store), "INVALID");
    let raises = "alter table vault.tasks drop constraint tasks_text_check;
        create function vault.no() returns trigger language plpgsql as 'begin raise exception ''no''; end';
        create trigger no before insert on vault.tasks for each row execute function vault.no()";
    sql.batch_execute(raises).unwrap();
    assert_eq!(code(&store), "INVALID");
}

#[test]
fn a_checkup_misses_no_right_and_says_how_to_grant_all_of_them() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    server.store("vault").events("", 1).expect("the schema is there");
    let mut sql = server.sql();
    sql.batch_execute(r#"create role "the ""clerk""" login"#).unwrap();
    let clerk = PostgresOptions { user: "the \"clerk\"".into(), ..server.options("vault") };
    let clerk = PostgresStore::open(clerk).unwrap();
    let problems = || {
        let found = clerk.checkup().unwrap().into_iter();
        found.filter(|finding| finding.level == Level::Problem).collect::<Vec<_>>()
    };
    let fix = problems()[0].fix.clone().expect("it says what to do");
    sql.batch_execute(fix.split('`').rfind(|part| part.contains("grant")).unwrap()).unwrap();
    assert_eq!(problems(), []);
    clerk.add(&StepId::new().unwrap(), &"x".parse().unwrap(), b"text", Timestamp::now()).unwrap();
    for right in [
        "insert on vault.tasks",
        "update on vault.ledger",
        "delete on vault.steps",
        "update on vault.tollgate",
        "usage on sequence vault.versions",
        "usage on sequence vault.lines",
        "select on sequence vault.lines",
        "select on sequence vault.tasks_id_seq",
    ] {
        sql.batch_execute(&format!(r#"revoke {right} from "the ""clerk""""#)).unwrap();
        assert_eq!(problems().len(), 1, "{right}");
        sql.batch_execute(&format!(r#"grant {right} to "the ""clerk""""#)).unwrap();
    }
    assert_eq!(problems(), []);
}

#[test]
fn a_checkup_warns_if_a_server_could_ask_for_the_password_in_clear_text() {
    // Nobody has this address (RFC 5737).
    let url = "postgres://ada@192.0.2.1/work?sslmode=disable";
    let limit = Duration::from_millis(100);
    let options = PostgresOptions { connect: limit, patience: limit, ..PostgresOptions::parse(url).unwrap() };
    let warnings = |options: PostgresOptions| {
        let found = PostgresStore::open(options).unwrap().checkup().unwrap();
        at(&found, Level::Warning).len()
    };
    assert_eq!(warnings(options.clone()), 0);
    assert_eq!(warnings(PostgresOptions { password: Some("secret".into()), ..options }), 1);
}

#[test]
fn a_checkup_estimates_what_would_take_long_to_count() {
    if !is_installed() {
        return;
    }
    let server = Server::start("fsync = off");
    let store = server.store("long");
    let size = || at(&store.checkup().unwrap(), Level::Ok).join("\n");
    assert!(size().contains("the vault has 0 tasks and 0 ledger lines"), "{}", size());
    let fill = "insert into long.ledger select n, '{}' from generate_series(1, 120000) n";
    server.sql().batch_execute(fill).unwrap();
    server.sql().batch_execute("vacuum analyze long.ledger").unwrap();
    assert!(size().contains("the vault has 0 tasks and about 120000 ledger lines"), "{}", size());
    server
        .sql()
        .batch_execute("update pg_class set reltuples = -1 where oid = 'long.ledger'::regclass")
        .unwrap();
    assert!(size().contains("more than 100000 ledger lines"), "{}", size());
}

#[test]
fn tollgate_waits_for_the_disk_even_where_the_server_does_not() {
    if !is_installed() {
        return;
    }
    let server = Server::start("synchronous_commit = off");
    let store = server.store("vault");
    store.events("", 1).expect("the schema is there");
    let mut sql = server.sql();
    // What the connections of the store have is visible in what a function of the schema sees.
    sql.batch_execute(
        "create table vault.seen (setting text);
        create or replace function vault.lease_clock() returns timestamptz language plpgsql as $$ begin
            insert into vault.seen values (current_setting('synchronous_commit'));
            return clock_timestamp();
        end $$",
    )
    .unwrap();
    store.add(&StepId::new().unwrap(), &"x".parse().unwrap(), b"x", Timestamp::now()).unwrap();
    let seen: String = sql.query_one("select distinct setting from vault.seen", &[]).unwrap().get(0);
    assert_eq!(seen, "on");
}

/// A certificate authority, a certificate of a server and one of a client, in this folder.
fn certificates(folder: &Path) {
    let openssl = |arguments: &str| {
        run(Command::new("openssl").args(arguments.split(' ')).current_dir(folder));
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem");
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout other.key -out other.pem");
    for (name, extension) in
        [("localhost", "subjectAltName=DNS:localhost"), ("worker", "extendedKeyUsage=clientAuth")]
    {
        openssl(&format!("req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        fs::write(folder.join("extension"), extension).unwrap();
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extension -out {name}.pem"
        ));
    }
    hand_over(folder);
}

#[test]
fn an_encrypted_connection_verifies_the_server_and_shows_its_own_certificate() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::write(
        path("hba"),
        "local all all trust\nhostssl all worker all cert\nhostssl all clerk all scram-sha-256\n",
    )
    .unwrap();
    hand_over(folder.path());
    let files = [
        ("ssl_cert_file", "localhost.pem"),
        ("ssl_key_file", "localhost.key"),
        ("ssl_ca_file", "ca.pem"),
        ("hba_file", "hba"),
    ];
    let files: Vec<String> =
        files.iter().map(|(name, file)| format!("{name} = '{}'", path(file).display())).collect();
    let settings =
        format!("listen_addresses = 'localhost'\nport = {port}\nssl = on\nfsync = off\n{}", files.join("\n"));
    let server = Server::start_on(port, &settings);
    server
        .sql()
        .batch_execute(
            "create role worker login superuser; create role clerk login superuser password 'secret'",
        )
        .unwrap();
    let url = |host: &str, rest: &str| format!("postgres://{host}:{port}/postgres?{rest}");
    let said = |url: &str, user: &str, password: Option<&str>| {
        let mut options = PostgresOptions::parse(url).unwrap();
        (options.user, options.password) = (user.into(), password.map(str::to_owned));
        options.patience = Duration::from_secs(2);
        let looked = PostgresStore::open(options).unwrap().events("", 1);
        looked.err().map_or_else(String::new, |fault| fault.to_string())
    };
    let (ca, other) = (path("ca.pem"), path("other.pem"));
    let trusting = url("localhost", &format!("ca={}", ca.display()));
    let own =
        format!("{trusting}&cert={}&key={}", path("worker.pem").display(), path("worker.key").display());
    assert_eq!(said(&own, "worker", None), "");
    assert_eq!(said(&trusting, "clerk", Some("secret")), "");
    assert!(said(&trusting, "clerk", Some("wrong")).contains("password authentication failed"));
    assert!(said(&trusting, "worker", None).contains("certificate"), "it shows none");
    let strange = url("localhost", &format!("ca={}", other.display()));
    assert!(said(&strange, "clerk", Some("secret")).contains("certificate"), "another authority");
    let renamed = url("127.0.0.1", &format!("ca={}", ca.display()));
    assert!(said(&renamed, "clerk", Some("secret")).contains("certificate"), "another name");
    let plain = url("localhost", "sslmode=disable");
    assert!(said(&plain, "clerk", Some("secret")).contains("no pg_hba.conf entry"));
    let missing = PostgresTls::VerifyFull { ca: Some(path("nowhere")), own: None };
    let options = PostgresOptions { tls: missing, ..PostgresOptions::parse(&trusting).unwrap() };
    assert!(PostgresStore::open(options).is_err());
}

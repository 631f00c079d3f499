//! Real PostgreSQL servers, each in a folder of its own, reached by a Unix socket.
//!
//! Most tests share a server, and each has a database of its own. A test that does something to its server has one for itself.
//! PostgreSQL does not run as root, so root runs it as the user `postgres`. The kernel kills it when the test ends.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use postgres::{Client, NoTls};
use tempfile::TempDir;

use crate::shared::Shared;
use crate::until;

/// Where the programs of PostgreSQL are; `None` if it is not installed.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    found.sort();
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&in_path));
    found.into_iter().find(|folder| folder.join("initdb").exists())
}

/// Whether the test can run. `scripts/test` installs PostgreSQL and forbids that anything is skipped.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub fn is_installed() -> bool {
    let is_there = programs().is_some();
    let required = std::env::var("TOLLGATE_TEST_POSTGRES").is_ok_and(|value| value == "required");
    assert!(is_there || !required, "PostgreSQL is not installed");
    if !is_there {
        eprintln!("SKIPPED: PostgreSQL is not installed (Debian: apt-get install postgresql)");
    }
    is_there
}

/// A program of PostgreSQL, as a user that is not root, killed with this thread.
pub fn program(name: &str) -> Command {
    let path = programs().expect("installed").join(name);
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg("--").arg(path).env_remove("LC_ALL").env("LANG", "C.UTF-8").stdin(Stdio::null());
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// Runs a program that must succeed.
pub fn run(command: &mut Command) {
    let done = command.output().expect("started");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Gives a folder to the user that runs PostgreSQL.
pub fn hand_over(folder: &Path) {
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(folder));
    }
}

/// A fresh cluster, made once and then copied.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<TempDir> = OnceLock::new();
    let made = TEMPLATE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        hand_over(folder.path());
        run(program("initdb")
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(folder.path().join("data")));
        folder
    });
    made.path()
}

/// The port of servers that are reached by a socket only.
pub const PORT: u16 = 5432;

/// A server, and a database on it.
pub struct Server {
    folder: Arc<TempDir>,
    port: u16,
    database: String,
    process: Option<Child>,
    /// The one that all tests share, if this is a database on it.
    shared: Option<Arc<Server>>,
}

impl Server {
    /// A database for this test, on a server for all tests, which nobody kills.
    pub fn shared() -> Self {
        static SHARED: Shared<Server> = Shared::new();
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let server = SHARED.get(|| Self::start("fsync = off"));
        let database = format!("test_{}", DATABASES.fetch_add(1, Ordering::SeqCst));
        server.sql().batch_execute(&format!("create database {database}")).expect("created");
        let (folder, port) = (Arc::clone(&server.folder), server.port);
        Self { folder, port, database, process: None, shared: Some(server) }
    }

    /// Starts a server with these lines in its configuration.
    pub fn start(settings: &str) -> Self {
        Self::start_on(PORT, settings)
    }

    /// Starts a server on this port, which is also in the name of its socket, with these lines in its configuration.
    pub fn start_on(port: u16, settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        run(Command::new("cp").arg("-a").arg(template().join("data")).arg(folder.path()));
        Self::start_in(folder, port, settings)
    }

    /// Starts a server on a folder that has a cluster in `data`.
    pub fn start_in(folder: TempDir, port: u16, settings: &str) -> Self {
        let config = folder.path().join("data/postgresql.auto.conf");
        let defaults = "listen_addresses = ''\nshared_buffers = '32MB'\nmax_connections = 500\n";
        let before = fs::read_to_string(&config).unwrap_or_default();
        fs::write(&config, format!("{before}{defaults}{settings}\n")).expect("written");
        hand_over(folder.path());
        let mut server = Self {
            folder: Arc::new(folder),
            port,
            database: "postgres".to_owned(),
            process: None,
            shared: None,
        };
        server.restart();
        server
    }

    /// Starts it after it was killed.
    pub fn restart(&mut self) {
        let folder = self.folder.path();
        let log = fs::File::create(folder.join("log")).expect("a log");
        let errors = log.try_clone().expect("a log");
        let process = program("postgres")
            .arg("-D")
            .arg(folder.join("data"))
            .arg("-k")
            .arg(folder)
            .stdout(log)
            .stderr(errors)
            .spawn();
        self.process = Some(process.expect("started"));
        until("the server", || Client::connect(&self.address(), NoTls).ok());
    }

    /// As a power failure does, except that the kernel keeps what was written.
    pub fn kill(&mut self) {
        assert!(self.shared.is_none(), "other tests use it");
        if let Some(mut process) = self.process.take() {
            // `setpriv` has become the server, so this is its process.
            process.kill().expect("killed");
            let status = process.wait().expect("ended");
            assert_eq!(status.signal(), Some(9));
            // Its children would see that it is gone, and could write something before they end.
            until("the end of its children", || {
                let children = children_of(self.folder.path()).join(" ");
                if !children.is_empty() {
                    signal(&children, "KILL");
                }
                children.is_empty().then_some(())
            });
        }
    }

    /// A standby of this server, on this port and with these lines in its configuration.
    pub fn standby(&self, port: u16, settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        hand_over(folder.path());
        let mut backup = program("pg_basebackup");
        backup.args(["--write-recovery-conf", "--checkpoint=fast", "--username=postgres", "--port"]);
        backup.arg(self.port.to_string()).arg("--host").arg(self.folder.path());
        run(backup.arg("--pgdata").arg(folder.path().join("data")));
        // If the server was away, its commits wait for the standby to come back.
        let settings = format!("hot_standby = on\nwal_retrieve_retry_interval = '100ms'\n{settings}");
        let standby = Self::start_in(folder, port, &settings);
        self.waits_until("select count(*) > 0 from pg_stat_replication where state = 'streaming'");
        standby
    }

    /// From now on, a commit is acknowledged when the standby has it.
    pub fn waits_for_its_standby(&self) {
        self.sql().batch_execute("alter system set synchronous_standby_names = '*'").expect("set");
        self.sql().batch_execute("select pg_reload_conf()").expect("read again");
        self.waits_until("select count(*) = 1 from pg_stat_replication where sync_state = 'sync'");
    }

    /// Waits until a query says yes.
    pub fn waits_until(&self, query: &str) {
        let mut sql = self.sql();
        until(query, || sql.query_one(query, &[]).unwrap().get::<_, bool>(0).then_some(()));
    }

    /// The folder with its socket, and with its files in `data`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where clients of PostgreSQL find the database.
    pub fn address(&self) -> String {
        let (folder, port, database) = (self.folder.path().display(), self.port, &self.database);
        format!("host={folder} port={port} user=postgres dbname={database}")
    }

    /// What a person does with `psql`.
    pub fn sql(&self) -> Client {
        Client::connect(&self.address(), NoTls).expect("connected")
    }

    /// The address of tasks in this schema.
    pub fn url(&self, schema: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}/{}?schema={schema}", self.database)
    }
}

/// The processes that work in this cluster.
fn children_of(folder: &Path) -> Vec<String> {
    let data = folder.join("data");
    let in_data = |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data);
    let found = fs::read_dir("/proc").expect("processes").flatten().filter(in_data);
    found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Sends a signal to processes, which may be gone.
pub fn signal(processes: &str, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {processes} 2>&-")]).status();
    sent.expect("a shell");
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
            // One that was stopped would not end by itself.
            let children = children_of(self.folder.path()).join(" ");
            if !children.is_empty() {
                signal(&children, "KILL");
            }
        }
    }
}

/// Changes a function of the schema, so that it lacks what a test is about.
pub fn sabotage(server: &Server, schema: &str, function: &str, part: &str, instead: &str) {
    let mut sql = server.sql();
    let query = "select pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = pronamespace
        where nspname = $1 and proname = $2";
    let definition: String = sql.query_one(query, &[&schema, &function]).unwrap().get(0);
    let changed = definition.replace(part, instead);
    assert_ne!(changed, definition, "{part} is not in {definition}");
    sql.batch_execute(&changed).unwrap();
}

/// From now on, any step finds its task, wherever it is and whatever has happened to it.
pub fn compare_no_versions(server: &Server, schema: &str) {
    let compared =
        "where t.name = task and t.state = in_state and t.agent = in_agent and t.version = at_version";
    sabotage(server, schema, "take_step", compared, "where t.name = task");
}

//! A real PostgreSQL server for one test, in a folder of its own, reached by a Unix socket.
//!
//! PostgreSQL does not run as root, so root runs it as the user `postgres`. The kernel kills it when the test ends.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use postgres::{Client, NoTls};
use tempfile::TempDir;
use tollgate_base::lock::Pauses;
use tollgate_postgres::{PostgresOptions, PostgresStore};

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
pub(crate) fn is_installed() -> bool {
    let is_there = programs().is_some();
    let required = std::env::var("TOLLGATE_TEST_POSTGRES").is_ok_and(|value| value == "required");
    assert!(is_there || !required, "PostgreSQL is not installed");
    if !is_there {
        eprintln!("SKIPPED: PostgreSQL is not installed (Debian: apt-get install postgresql)");
    }
    is_there
}

/// A program of PostgreSQL, as a user that is not root, killed with this thread.
pub(crate) fn program(name: &str) -> Command {
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

pub(crate) fn run(command: &mut Command) {
    let done = command.output().expect("started");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Gives a folder to the user that runs PostgreSQL.
pub(crate) fn hand_over(folder: &Path) {
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
pub(crate) const PORT: u16 = 5432;

/// A server.
pub(crate) struct Server {
    pub(crate) folder: Arc<TempDir>,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Starts a server with these lines in its configuration.
    pub(crate) fn start(settings: &str) -> Self {
        Self::start_on(PORT, settings)
    }

    /// The same, on this port, which is also in the name of its socket.
    pub(crate) fn start_on(port: u16, settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        run(Command::new("cp").arg("-a").arg(template().join("data")).arg(folder.path()));
        Self::start_in(folder, port, settings)
    }

    /// Starts a server on a folder that has a cluster in `data`.
    pub(crate) fn start_in(folder: TempDir, port: u16, settings: &str) -> Self {
        let config = folder.path().join("data/postgresql.auto.conf");
        let defaults = "listen_addresses = ''\nshared_buffers = '32MB'\nmax_connections = 500\n";
        let before = fs::read_to_string(&config).unwrap_or_default();
        fs::write(&config, format!("{before}{defaults}{settings}\n")).expect("written");
        hand_over(folder.path());
        let mut server = Self { folder: Arc::new(folder), port, process: None };
        server.restart();
        server
    }

    pub(crate) fn restart(&mut self) {
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
        let mut pauses = Pauses::lasting(Duration::from_secs(60));
        while let Err(error) = Client::connect(&self.address(), NoTls) {
            assert!(
                pauses.pause(),
                "{error}: {}",
                fs::read_to_string(folder.join("log")).unwrap_or_default()
            );
        }
    }

    /// As a power failure does, except that the kernel keeps what was written.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // `setpriv` has become the server, so this is its process.
            process.kill().expect("killed");
            let status = process.wait().expect("ended");
            assert_eq!(status.signal(), Some(9));
            // Its children would see that it is gone, and could write something before they end.
            let mut pauses = Pauses::lasting(Duration::from_secs(20));
            loop {
                let children = children_of(self.folder.path()).join(" ");
                if children.is_empty() {
                    break;
                }
                signal(&children, "KILL");
                assert!(pauses.pause(), "{children} are still there");
            }
        }
    }

    /// A standby of this server, on this port and with these lines in its configuration.
    pub(crate) fn standby(&self, port: u16, settings: &str) -> Self {
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
    pub(crate) fn waits_for_its_standby(&self) {
        self.sql().batch_execute("alter system set synchronous_standby_names = '*'").expect("set");
        self.sql().batch_execute("select pg_reload_conf()").expect("read again");
        self.waits_until("select count(*) = 1 from pg_stat_replication where sync_state = 'sync'");
    }

    /// Waits until a query says yes.
    pub(crate) fn waits_until(&self, query: &str) {
        let (mut sql, mut pauses) = (self.sql(), Pauses::lasting(Duration::from_secs(30)));
        while !sql.query_one(query, &[]).unwrap().get::<_, bool>(0) {
            assert!(pauses.pause(), "{query}");
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("host={} port={} user=postgres dbname=postgres", self.folder.path().display(), self.port)
    }

    /// What a person does with `psql`.
    pub(crate) fn sql(&self) -> Client {
        Client::connect(&self.address(), NoTls).expect("connected")
    }

    pub(crate) fn url(&self, schema: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}/postgres?schema={schema}")
    }

    pub(crate) fn options(&self, schema: &str) -> PostgresOptions {
        PostgresOptions::parse(&self.url(schema)).expect("a URL")
    }

    pub(crate) fn store(&self, schema: &str) -> PostgresStore {
        PostgresStore::open(self.options(schema)).expect("a store")
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
pub(crate) fn signal(processes: &str, name: &str) {
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
pub(crate) fn sabotage(server: &Server, schema: &str, function: &str, part: &str, instead: &str) {
    let mut sql = server.sql();
    let query = "select pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = pronamespace
        where nspname = $1 and proname = $2";
    let definition: String = sql.query_one(query, &[&schema, &function]).unwrap().get(0);
    let changed = definition.replace(part, instead);
    assert_ne!(changed, definition, "{part} is not in {definition}");
    sql.batch_execute(&changed).unwrap();
}

/// From now on, any step finds its task, wherever it is and whatever has happened to it.
pub(crate) fn compare_no_versions(server: &Server, schema: &str) {
    let compared =
        "where t.name = task and t.state = in_state and t.agent = in_agent and t.version = at_version";
    sabotage(server, schema, "take_step", compared, "where t.name = task");
}

//! A machine of a crew: works off the tasks of a vault until there is a file `stop`. The tests start several and kill them.
//!
//! It leaves evidence outside the database: while it works on a task it has a lock on a file of the task's name, and it
//! writes down every answer that it got. If the lock is taken, another live process works on the same task.
//!
//! Arguments: URL, agent, seconds by which its clock is ahead, lease in milliseconds, folder for the evidence.
#![allow(clippy::unwrap_used, reason = "a program for tests, which stops at the first surprise")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tollgate_postgres::{PostgresOptions, PostgresStore};
use tollgate_vault::{ClaimKind, ClaimRequest, Claimed, Release, Terms, Vault};

struct Machine {
    vault: Vault,
    request: ClaimRequest,
    ahead: SignedDuration,
    lease: Duration,
    evidence: PathBuf,
}

impl Machine {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.ahead
    }

    /// Adds a line to a file, in one write.
    fn note(&self, file: &str, line: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.evidence.join(file)).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Works on a task, unless its lease may be over. Whether the work is done.
    fn work(&self, claimed: &Claimed, since: Instant) -> bool {
        let path = self.evidence.join(format!("{}.owner", claimed.task));
        let lock = File::create(path).unwrap();
        if since.elapsed() > self.lease / 2 {
            return false;
        }
        if lock.try_lock().is_err() {
            self.note("two_owners", &format!("{} {}", claimed.task, claimed.claim.id));
        }
        thread::sleep(Duration::from_millis(2));
        self.note("worked", &format!("{} {}", claimed.task, claimed.claim.id));
        true
    }

    fn shift(&self) -> tollgate_base::error::Result<bool> {
        self.vault.reclaim(self.now())?;
        let mut queue = self.vault.queue(&self.request, self.now())?;
        let mut has_worked = false;
        let mut since = Instant::now();
        while let Some(claimed) = self.vault.next(&mut queue, &self.request, self.now()) {
            has_worked = true;
            let (task, id) = (&claimed.task, &claimed.claim.id);
            self.note("acknowledged", &format!("CLAIM {task} {id}"));
            if self.work(&claimed, since)
                && self.vault.release(task, id, &Release::success(), self.now())?.is_ok()
            {
                self.note("acknowledged", &format!("RELEASE {task} {id}"));
            }
            since = Instant::now();
        }
        Ok(has_worked)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, agent, ahead, lease, evidence] = arguments.as_slice() else { return };
    let lease = Duration::from_millis(lease.parse().unwrap());
    let mut options = PostgresOptions::parse(url).unwrap();
    options.lease = lease;
    let store = Arc::new(PostgresStore::open(options).unwrap());
    let terms = Terms { lease, max_attempts: 1000, retry: Vec::new(), ..Terms::default() };
    // Half of the machines hold their claims, half have leases.
    let kind = if agent.len() % 2 == 0 { ClaimKind::Held } else { ClaimKind::Leased };
    let machine = Machine {
        vault: Vault::new(store, terms),
        request: ClaimRequest { agent: agent.parse().unwrap(), kind, renamed_in: false },
        ahead: SignedDuration::from_secs(ahead.parse().unwrap()),
        lease,
        evidence: Path::new(evidence).to_owned(),
    };
    while !machine.evidence.join("stop").exists() {
        match machine.shift() {
            Ok(true) => {}
            Ok(false) => thread::sleep(Duration::from_millis(20)),
            Err(fault) => machine.note("faults", &fault.to_string()),
        }
    }
}

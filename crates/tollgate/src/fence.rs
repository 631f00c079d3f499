//! The fence between the two promises: an agent that works on a task writes files only while its claim is its own.
//!
//! The guard asks before every change and the vault knows the answer; here the two meet. The answer comes from files of this
//! machine, without the network and without opening the vault: from the claim records of a vault in folders, and from the
//! deadlines of the claims on a store that other machines share. On an engine, a person may end a claim from another machine
//! before its deadline, so the engine itself is asked from time to time, at most every 30 seconds.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate_base::error::Result;
use tollgate_base::name::ClaimId;
use tollgate_base::task::TaskName;
pub use tollgate_guard::fence::{LostClaim, WriteFence};
use tollgate_guard::workspace::Workspace;
use tollgate_vault::{ClaimDeadlines, FolderStore, Vault};

use crate::tasks::{TaskOptions, open_at};
use crate::vault_home::{VaultHome, deadlines_in};

/// How long a write waits for the engine, with its files locked. If the engine does not answer, the deadline decides.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens the vault of the claims.
type OpenVault = Arc<dyn Fn() -> Result<Vault> + Send + Sync>;

/// Knows which claims of a vault still own their tasks.
#[derive(Clone)]
pub struct ClaimFence {
    /// The vault whose folders have the claim records, unless an engine has them.
    records: Option<PathBuf>,
    /// The deadlines, if other machines share the store.
    deadlines: Option<ClaimDeadlines>,
    /// How to ask the engine, if the vault is in one.
    engine: Option<OpenVault>,
}

impl ClaimFence {
    /// The fence of an open vault.
    pub fn of(home: &VaultHome, vault: &Vault) -> Self {
        let vault = vault.clone();
        let open: OpenVault = Arc::new(move || Ok(vault.clone()));
        Self::new(home, home.is_in_engine().then_some(open))
    }

    fn new(home: &VaultHome, engine: Option<OpenVault>) -> Self {
        let is_shared = home.settings.vault.is_shared();
        Self {
            records: (!home.is_in_engine()).then(|| home.tasks_folder()),
            deadlines: is_shared.then(|| deadlines_in(&home.folder())),
            engine,
        }
    }

    /// The fence of the vault under whose claim a process was started: that of this workspace, if it is known, else that of the
    /// workspace in which the process works. If there is no vault, the claim owns nothing. The options are asked for if the vault
    /// is in an engine; if there are none, the engine cannot be asked, and the deadline decides.
    pub fn given(
        workspace: &Workspace,
        home: Option<&Path>,
        options: impl FnOnce(&VaultHome) -> Result<TaskOptions>,
    ) -> Result<Self> {
        let home = match home {
            Some(root) => VaultHome::at(root.to_owned())?,
            None => VaultHome::of(workspace.path(), workspace.settings())?,
        };
        let engine = if home.is_in_engine() { options(&home).ok() } else { None }.map(|options| {
            let (workspace, home) = (workspace.clone(), home.clone());
            let open: OpenVault = Arc::new(move || Ok(open_at(&workspace, &home, options.clone())?.vault));
            open
        });
        Ok(Self::new(&home, engine))
    }

    /// Whether a claim still owns its task, as far as this machine knows. Waits for the engine at most until `until`.
    fn is_owned(&self, task: &TaskName, claim: &ClaimId, until: Instant) -> Result<bool> {
        if let Some(deadlines) = &self.deadlines {
            if let Some(open) = &self.engine
                && deadlines.is_due(claim)?
            {
                ask(Arc::clone(open), task.clone(), claim.clone(), until);
            }
            if !deadlines.is_before(claim)? {
                return Ok(false);
            }
        }
        self.records.as_deref().map_or(Ok(true), |vault| FolderStore::is_owned(vault, task, claim))
    }

    /// The fence for an agent that works under one claim.
    pub fn around(self, task: TaskName, claim: ClaimId) -> WriteFence {
        Arc::new(move || first_lost([(&self, &task, &claim)]))
    }
}

/// The first of these claims that does not own its task any more. All of them together wait for the engine as long as one.
pub fn first_lost<'a>(
    claims: impl IntoIterator<Item = (&'a ClaimFence, &'a TaskName, &'a ClaimId)>,
) -> Result<Option<LostClaim>> {
    let until = Instant::now() + PATIENCE;
    for (fence, task, claim) in claims {
        if !fence.is_owned(task, claim, until)? {
            return Ok(Some(LostClaim { task: task.clone(), claim: claim.clone() }));
        }
    }
    Ok(None)
}

/// Asks the engine whether a claim still owns its task. If not, its deadline is over. If the answer takes too long, another write
/// asks again after some seconds.
fn ask(open: OpenVault, task: TaskName, claim: ClaimId, until: Instant) {
    let (answer, answered) = mpsc::channel();
    let ask = move || {
        let confirmed = open().and_then(|vault| vault.confirm(&task, &claim, Timestamp::now()));
        let _ = answer.send(confirmed.is_ok());
    };
    // If no thread can be started, the deadline decides, as if the engine were silent: the sender is gone, so nobody waits.
    let _ = thread::Builder::new().spawn(ask);
    let _ = answered.recv_timeout(until.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Mutex;

    use serde_json::json;
    use tollgate_base::boot_clock::{boot_id, millis_since_boot};
    use tollgate_base::error::Fault;

    use super::*;

    #[test]
    fn a_write_under_many_claims_waits_for_a_silent_engine_as_long_as_under_one() {
        let folder = tempfile::tempdir().unwrap();
        let now = millis_since_boot();
        let claims: Vec<(TaskName, ClaimId)> =
            (0..6).map(|n| (format!("t{n}").parse().unwrap(), ClaimId::new().unwrap())).collect();
        for (_, claim) in &claims {
            let old = json!({
                "format": 1, "boot": boot_id(), "heard_ms": now.saturating_sub(31_000), "until_ms": now + 600_000,
            });
            fs::write(folder.path().join(claim.as_str()), old.to_string()).unwrap();
        }
        let (silence, engine) = mpsc::channel::<()>();
        let (asked, engine) = (Arc::new(Mutex::new(0)), Mutex::new(engine));
        let counted = Arc::clone(&asked);
        let open: OpenVault = Arc::new(move || {
            *counted.lock().unwrap() += 1;
            let _ = engine.lock().unwrap().recv();
            Err(Fault::invalid("it has not answered"))
        });
        let deadlines = Some(ClaimDeadlines::new(folder.path().to_owned()));
        let fence = ClaimFence { records: None, deadlines, engine: Some(open) };
        let began = Instant::now();
        let lost = first_lost(claims.iter().map(|(task, claim)| (&fence, task, claim)));
        assert_eq!(lost.unwrap(), None, "their deadlines decide");
        assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
        drop(silence);
        let end = Instant::now() + Duration::from_secs(20);
        while *asked.lock().unwrap() < claims.len() {
            assert!(Instant::now() < end, "each claim is asked for");
            thread::yield_now();
        }
    }
}

//! A worker: claims a task, works on it, releases it, until it is stopped or killed.
//!
//! It records its work under the claim twice: when it begins, so that a kill does not hide it, and when it has ended.

use std::path::PathBuf;

use serde_json::json;
use tollgate::error::{Fault, Result};
use tollgate::tasks;
use tollgate::vault::{ClaimKind, ClaimRequest, Release, Vault};
use tollgate::workspace::{Options, Workspace};

use crate::chance::Chance;
use crate::tally::{Count, Notes};

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    name: String,
    #[arg(long)]
    root: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    life: u64,
    /// How many tasks may wait. The worker adds tasks when there are none
    #[arg(long)]
    adds: u64,
    /// Work on tasks that others have claimed
    #[arg(long)]
    rogue: bool,
}

fn nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl WorkerArgs {
    pub(crate) fn run(self) -> Result<()> {
        let beside = self.root.parent().unwrap_or(&self.root).to_owned();
        let stop = beside.join("stop");
        let mut chance = Chance::new(self.seed.wrapping_add(self.life), &self.name);
        let mut notes = Notes::open(&beside, &self.name)?;
        let workspace = Workspace::open(&self.root, Options::default())?;
        let vault = tasks::create(&workspace, tasks::TaskOptions::default())?.vault;
        let mut added = 0;
        while !stop.exists() {
            match self.work(&workspace, &vault, &mut chance, &mut notes) {
                Ok(true) => {}
                Ok(false) if added < self.adds => {
                    added += 1;
                    let task = format!("{}-{}-{added}", self.name, self.life).parse()?;
                    match vault.add(&task, b"# A task\n", workspace.now()) {
                        Ok(_) => notes.count(Count::Operations),
                        Err(_) => notes.count(Count::Faults),
                    }
                }
                Ok(false) => {}
                Err(_) => notes.count(Count::Faults),
            }
        }
        Ok(())
    }

    /// Whether there was something to do.
    fn work(
        &self,
        workspace: &Workspace,
        vault: &Vault,
        chance: &mut Chance,
        notes: &mut Notes,
    ) -> Result<bool> {
        let record = |task: &str, claim: &str, began: u64, ended: u64| json!({"by": self.name, "task": task, "claim_id": claim, "began": began, "ended": ended});
        notes.count(Count::Operations);
        if self.rogue {
            let found = vault.store().scan(tollgate::State::InProgress, workspace.now())?;
            for task in found.tasks {
                if let Some(claim) = vault.get(&task.name, workspace.now())?.record.claim {
                    // It "works" for as long as the owner did since the last look.
                    let now = nanoseconds();
                    notes.record(&record(task.name.as_str(), claim.id.as_str(), now - 10_000_000, now));
                    notes.count(Count::Done);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            return Ok(true);
        }
        let request = ClaimRequest {
            agent: self.name.parse()?,
            kind: ClaimKind::Held,
            renamed_in: chance.below(2) == 0,
        };
        let (claimed, _) = vault.claim_next(&request, workspace.now())?;
        let Some(claimed) = claimed else {
            notes.count(Count::Refused);
            vault.reclaim(workspace.now())?;
            return Ok(false);
        };
        let (task, claim) = (claimed.task.as_str(), claimed.claim.id.as_str());
        let began = nanoseconds();
        notes.record(&record(task, claim, began, began));
        if chance.below(4) == 0 {
            vault
                .progress(&claimed.task, &claimed.claim.id, "half of it is done", workspace.now())?
                .map_err(lost)?;
            notes.count(Count::Operations);
        }
        notes.record(&record(task, claim, began, nanoseconds()));
        notes.count(Count::Operations);
        let how = if chance.below(8) == 0 { Release::failure("again") } else { Release::success() };
        vault.release(&claimed.task, &claimed.claim.id, &how, workspace.now())?.map_err(lost)?;
        notes.count(Count::Done);
        Ok(true)
    }
}

fn lost(why: impl std::fmt::Debug) -> Fault {
    Fault::invalid(format!("{why:?}"))
}

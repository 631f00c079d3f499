//! The accounts: the ledger is followed in the background, line by line, once.
//!
//! While the server runs, each line costs one look, however often the figures are asked for. After a start everything is
//! read once, behind the requests, which also tells whether the chain of hashes is whole; a million lines take some
//! seconds. Until then there are no sums, rather than wrong ones.
//!
//! Limit: a line that was edited in place, in the same instant as another was added, is found at the next start or by
//! `tollgate ledger verify`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use tollgate::error::Result;
use tollgate::ledger::{Followed, Follower, Ledger, Problem};

use crate::feed::Happened;
use crate::site::Site;
use crate::sums::Sums;

/// So many lines at a time: often enough to stop in time, rarely enough to cost nothing.
const BATCH: usize = 20_000;

/// Between two looks at all lines, if something keeps being doubtful.
const BETWEEN_CHECKS: Duration = Duration::from_secs(5);

/// How the ledger is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Condition {
    /// Its lines are being read for the first time since the start, or once more because something was odd.
    #[default]
    Checking,
    /// Every line fits to the one before.
    Whole,
    /// It is not as it was written.
    Broken {
        /// What is wrong.
        problem: String,
    },
}

/// What is known of the ledger.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// How it is.
    pub condition: Condition,
    /// The number of the last line that was read.
    pub lines: u64,
    /// What the lines add up to, once all were read.
    pub(crate) sums: Option<Arc<Sums>>,
}

/// What is known, and the way to say that there may be more to know.
#[derive(Default)]
pub(crate) struct Accounts {
    known: Mutex<Account>,
    wake: Notify,
}

impl Accounts {
    pub(crate) fn known(&self) -> Account {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether that is news to those who look at the ledger's condition.
    fn tell(&self, account: Account) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = known.condition != account.condition;
        *known = account;
        is_news
    }

    fn doubt(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).condition = Condition::Checking;
    }
}

/// Follows the ledger for as long as it is polled.
pub(crate) async fn keep(site: Site) {
    loop {
        let Ok(Some(open)) = site.open() else {
            site.accounts.wake.notified().await;
            continue;
        };
        let ledger = open.gate.workspace().ledger().clone();
        drop(open);
        follow(&site, ledger).await;
        // It has to be read anew. Not in a tight loop, if something changes it all the time.
        tokio::time::sleep(BETWEEN_CHECKS).await;
    }
}

/// Until it has to be read from its beginning.
async fn follow(site: &Site, ledger: Ledger) {
    let mut reading = (ledger.follow(), Sums::default());
    loop {
        let going = tokio::task::spawn_blocking(move || advance(reading)).await;
        // A panic in there: begin anew.
        let Ok((read, followed)) = going else { return };
        reading = read;
        let told = |condition| Account {
            condition,
            lines: reading.0.head().seq,
            sums: Some(Arc::new(reading.1.clone())),
        };
        let tell = |condition| {
            if site.accounts.tell(told(condition)) {
                site.feed.tell(Happened::Lines(Arc::new([])));
            }
        };
        match followed {
            Ok(Followed::Further) => continue,
            Ok(Followed::ToTheEnd) => tell(Condition::Whole),
            Ok(Followed::Doubtful) => {
                site.accounts.doubt();
                let all = ledger.clone();
                let verdict = tokio::task::spawn_blocking(move || all.verify()).await;
                let problem = match verdict {
                    Ok(Ok(verdict)) => match verdict.problem {
                        Some(problem) => words(&problem),
                        None => return,
                    },
                    Ok(Err(fault)) => fault.to_string(),
                    Err(_) => return,
                };
                tell(Condition::Broken { problem });
                reading.0.trust();
                tokio::time::sleep(BETWEEN_CHECKS).await;
            }
            Err(fault) => tell(Condition::Broken { problem: fault.to_string() }),
        }
        site.accounts.wake.notified().await;
    }
}

type Reading = (Follower, Sums);

fn advance((mut follower, mut sums): Reading) -> (Reading, Result<Followed>) {
    let followed = follower.advance(BATCH, |line| sums.add(&line));
    ((follower, sums), followed)
}

/// In one sentence.
fn words(problem: &Problem) -> String {
    let Problem { file, line, seq, missing, wrong } = problem;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let wrong = serde_json::to_value(wrong).ok();
    let wrong = wrong.as_ref().and_then(|wrong| wrong.as_str()).unwrap_or("wrong").replace('_', " ");
    let gone = if *missing > 0 { format!(", {missing} lines are gone") } else { String::new() };
    format!("`{name}` line {line} (seq {seq}): {wrong}{gone}; `tollgate ledger verify` tells more")
}

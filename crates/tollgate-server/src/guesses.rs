//! Slows down the guessing of secrets.
//!
//! A wrong secret occupies one of a few slots for a moment, even if its sender does not wait for the answer. A secret that
//! was right before needs no slot, so that a guesser does not keep known visitors out.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate::digest::Digest;

/// With the next constant: at most 16 guesses a second, however many connections a guesser has.
const SLOTS: usize = 8;

/// How long a wrong guess occupies its slot.
const DELAY: Duration = Duration::from_millis(500);

/// The number of secrets that are remembered as right. Forgetting one only means that it needs a slot again.
const REMEMBERED: usize = 1000;

pub(crate) struct Guesses {
    slots: Arc<Semaphore>,
    right: Mutex<HashSet<Digest>>,
}

impl Guesses {
    pub(crate) fn new() -> Self {
        Self { slots: Arc::new(Semaphore::new(SLOTS)), right: Mutex::default() }
    }

    /// What `check` finds for this secret. If it finds nothing, the answer comes late.
    pub(crate) async fn judge<T, E>(
        &self,
        given: Digest,
        check: impl Future<Output = Result<Option<T>, E>>,
    ) -> Result<Option<T>, E> {
        if self.right().contains(&given) {
            return check.await;
        }
        let slot = self.slots.clone().acquire_owned().await;
        let found = check.await?;
        if found.is_some() {
            let mut right = self.right();
            if right.len() >= REMEMBERED {
                right.clear();
            }
            right.insert(given);
        } else {
            // In a task of its own: a sender that hangs up must not free the slot.
            let delay = tokio::spawn(async move {
                tokio::time::sleep(DELAY).await;
                drop(slot);
            });
            let _ = delay.await;
        }
        Ok(found)
    }

    fn right(&self) -> std::sync::MutexGuard<'_, HashSet<Digest>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;
    use std::time::Instant;

    use super::*;

    async fn guess(guesses: &Guesses, text: &str) -> Option<()> {
        let found = ready(Ok::<_, Infallible>((text == "right").then_some(())));
        guesses.judge(Digest::of(text.as_bytes()), found).await.unwrap()
    }

    #[test]
    fn wrong_guesses_take_turns_and_known_secrets_do_not_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let guesses = Arc::new(Guesses::new());
            assert!(guess(&guesses, "right").await.is_some());
            let began = Instant::now();
            let wrong: Vec<_> = (0..17)
                .map(|number| {
                    let guesses = guesses.clone();
                    tokio::spawn(async move { guess(&guesses, &number.to_string()).await })
                })
                .collect();
            // A guesser that hangs up still occupies its slot.
            tokio::time::sleep(Duration::from_millis(1)).await;
            wrong[0].abort();
            assert!(guess(&guesses, "right").await.is_some());
            assert!(!wrong.iter().all(tokio::task::JoinHandle::is_finished), "a known secret does not wait");
            for guess in wrong.into_iter().skip(1) {
                assert!(guess.await.unwrap().is_none());
            }
            // Eight at a time, for half a second.
            assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
        });
    }
}

//! Room: how much of a client's requests and answers is in memory at once. A client that sends faster than it is answered,
//! or does not take its answers, waits; the server's memory does not grow.
//!
//! A request takes room when it arrives, and gives it back when its answer is sent and no thread works on it any more. At
//! most [`CALLS`] calls of a client run at once, and a large answer counts as a running call until it is sent.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest request: many times the size of a large source file. Without a limit, a client that never ends its request
/// would use up all memory.
pub(crate) const LONGEST: usize = 64 << 20;

/// The most values in one request: a thousand changes of several files with forty edits each. A value of two bytes, such as
/// `1,`, takes a hundred in memory.
pub(crate) const MOST_VALUES: usize = 1 << 17;

/// What a value takes in memory, roughly.
const VALUE: usize = 128;

/// The room of all requests of a client, in units. One request of the longest size takes all of it.
const UNITS: u32 = 1024;

/// One unit, in bytes. The smallest request takes one, so there are at most [`UNITS`] requests.
const UNIT: usize = LONGEST / UNITS as usize;

/// The calls of one client that run at once. A call may have a file of 16 MiB in memory several times: what was read, the
/// text for the model, the text for programs.
pub(crate) const CALLS: usize = 8;

/// An answer up to this size, in bytes, does not count after it was made.
const SMALL: usize = UNIT;

/// The room of one client.
#[derive(Clone)]
pub(crate) struct Space(Arc<Semaphore>);

/// The room of one request. Clones are the same room.
#[derive(Clone)]
pub(crate) struct Room(Arc<TakenRoom>);

struct TakenRoom {
    _request: OwnedSemaphorePermit,
    /// Of a large answer.
    answer: OnceLock<OwnedSemaphorePermit>,
}

impl Space {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(UNITS as usize)))
    }

    /// Waits until there is room for a request of this size. `None` never happens: nobody closes the semaphore.
    pub(crate) async fn enter(&self, size: usize) -> Option<Room> {
        let units = u32::try_from(size / UNIT).unwrap_or(UNITS).saturating_add(1).min(UNITS);
        let request = self.0.clone().acquire_many_owned(units).await.ok()?;
        Some(Room(Arc::new(TakenRoom { _request: request, answer: OnceLock::new() })))
    }
}

impl Room {
    /// The answer has this size. A large one counts as a running call until the room is given back.
    pub(crate) fn keep(&self, call: OwnedSemaphorePermit, size: usize) {
        if size > SMALL {
            let _ = self.0.answer.set(call);
        }
    }
}

/// The size of a request in memory. `None` if it has more than [`MOST_VALUES`] values.
pub(crate) fn size(request: &[u8]) -> Option<usize> {
    let values = values(request);
    (values <= MOST_VALUES).then_some(request.len() + values * VALUE)
}

/// The number of values in a JSON text: at least one after each bracket, brace and comma outside strings.
fn values(json: &[u8]) -> usize {
    let (mut count, mut rest) = (1, json.iter());
    while let Some(byte) = rest.next() {
        match byte {
            b'[' | b'{' | b',' => count += 1,
            b'"' => {
                while rest.by_ref().find(|byte| matches!(byte, b'"' | b'\\')) == Some(&b'\\') {
                    // The escaped character is not the end.
                    rest.next();
                }
            }
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings() {
        for (json, count) in [
            ("1", 1),
            ("[1,2]", 3),
            (r#"{"a,[{":"b\",[","c":[]}"#, 4),
            (r#"["\\",1]"#, 3),
            (r#""never closed,[\"#, 1),
            ("", 1),
        ] {
            assert_eq!(values(json.as_bytes()), count, "{json}");
        }
        let most = format!("[{}1]", "1,".repeat(MOST_VALUES - 2));
        assert_eq!(size(most.as_bytes()), Some(most.len() + MOST_VALUES * VALUE));
        assert_eq!(size(format!("[{}1]", "1,".repeat(MOST_VALUES - 1)).as_bytes()), None);
    }

    #[test]
    fn requests_wait_for_room_in_bytes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let space = Space::new();
            let half = space.enter(LONGEST / 2).await;
            let free = |space: &Space| space.0.available_permits();
            assert_eq!(free(&space), UNITS as usize / 2 - 1);
            let other = half.clone();
            drop(half);
            assert_eq!(free(&space), UNITS as usize / 2 - 1, "a clone is the same room");
            drop(other);
            let all = space.enter(LONGEST * 2).await;
            assert_eq!(free(&space), 0, "a request of any size gets in alone");
            drop(all);
            assert_eq!(free(&space), UNITS as usize);
            let mut small = Vec::new();
            for _ in 0..1024 {
                small.push(space.enter(1).await);
            }
            assert!(space.0.clone().try_acquire_owned().is_err(), "another request waits");
            small.pop();
            assert!(space.0.clone().try_acquire_owned().is_ok());
        });
    }

    #[test]
    fn a_large_answer_that_is_not_sent_counts_as_one_of_eight_running_calls() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (space, calls) = (Space::new(), Arc::new(Semaphore::new(CALLS)));
            let answered = async |size: usize| {
                let room = space.enter(1).await.unwrap();
                room.keep(calls.clone().try_acquire_owned().expect("a call may run"), size);
                room
            };
            // As many small answers as there are: a call is over when its answer is made.
            let small = answered(SMALL).await;
            assert_eq!(calls.available_permits(), 8);
            let mut unsent = Vec::new();
            for _ in 0..8 {
                unsent.push(answered(SMALL + 1).await);
            }
            assert!(calls.clone().try_acquire_owned().is_err(), "another call waits");
            unsent.pop();
            assert_eq!(calls.available_permits(), 1, "one answer was sent");
            drop((small, unsent));
            assert_eq!(calls.available_permits(), 8);
        });
    }
}

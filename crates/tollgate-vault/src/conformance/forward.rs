//! For stores that wrap another one, in tests: the methods that the other one answers.

/// Methods of a [`Store`](crate::Store) that the store in a field answers. The macro stands in the `impl` of the store that
/// wraps it, beside the methods that the wrapper answers itself.
///
/// A method that is in neither of the two has the default of the trait, and then the wrapped store is never asked for it. So
/// a wrapper that goes through the conformance suite names all of them.
///
/// ```
/// # use tollgate_vault::{Step, StepOutcome, Store, forward_store};
/// struct Lazy<S>(S);
///
/// impl<S: Store> Store for Lazy<S> {
///     fn apply(&self, _step: &Step) -> tollgate_base::error::Result<StepOutcome> {
///         Ok(StepOutcome::Conflict)
///     }
///
///     forward_store!(0: scan, get, read, add, record, events);
/// }
/// ```
#[macro_export]
macro_rules! forward_store {
    ($to:tt: $($method:ident),+ $(,)?) => { $($crate::forward_store! { @ $method $to })+ };
    ($to:tt . $method:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $method(&self, $($argument: $type),*) -> $answer {
            self.$to.$method($($argument),*)
        }
    };
    (fallible $to:tt . $method:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        $crate::forward_store! { $to.$method($($argument: $type),*) -> $crate::conformance::Result<$answer> }
    };
    (@ scan $to:tt) => {
        $crate::forward_store! {
            fallible $to.scan(state: $crate::State, now: $crate::conformance::Timestamp) -> $crate::store::Scan
        }
    };
    (@ queue_page $to:tt) => {
        $crate::forward_store! {
            fallible $to.queue_page(after: &str, limit: usize, now: $crate::conformance::Timestamp)
                -> Option<$crate::store::QueuePage>
        }
    };
    (@ get $to:tt) => {
        $crate::forward_store! {
            fallible $to.get(task: &$crate::TaskName, state: Option<$crate::State>, now: $crate::conformance::Timestamp)
                -> Option<$crate::Task>
        }
    };
    (@ read $to:tt) => {
        $crate::forward_store! { fallible $to.read(task: &$crate::Task, limit: u64) -> Option<Vec<u8>> }
    };
    (@ claim_of $to:tt) => {
        $crate::forward_store! {
            fallible $to.claim_of(task: &$crate::TaskName, now: $crate::conformance::Timestamp) -> Option<$crate::Claim>
        }
    };
    (@ apply $to:tt) => {
        $crate::forward_store! { fallible $to.apply(step: &$crate::Step) -> $crate::StepOutcome }
    };
    (@ add $to:tt) => {
        $crate::forward_store! {
            fallible $to.add(id: &$crate::StepId, task: &$crate::TaskName, text: &[u8], now: $crate::conformance::Timestamp)
                -> $crate::StepOutcome
        }
    };
    (@ record $to:tt) => {
        $crate::forward_store! { fallible $to.record(events: &[$crate::event::Entry]) -> () }
    };
    (@ events $to:tt) => {
        $crate::forward_store! { fallible $to.events(after: &str, limit: usize) -> $crate::event::EventPage }
    };
    (@ oldest_cursor $to:tt) => {
        $crate::forward_store! { fallible $to.oldest_cursor() -> String }
    };
    (@ cursor_before $to:tt) => {
        $crate::forward_store! { fallible $to.cursor_before(time: $crate::conformance::Timestamp) -> String }
    };
    (@ keep_after $to:tt) => {
        $crate::forward_store! { fallible $to.keep_after(reader: &str, cursor: &str) -> () }
    };
    (@ tallies $to:tt) => {
        $crate::forward_store! {
            fallible $to.tallies() -> std::collections::BTreeMap<$crate::Agent, $crate::figures::Tally>
        }
    };
    (@ watch $to:tt) => {
        $crate::forward_store! {
            fallible $to.watch(states: &[$crate::State], wake: $crate::store::Wake) -> Option<$crate::store::Watch>
        }
    };
    (@ hold $to:tt) => {
        $crate::forward_store! { fallible $to.hold(claim: &$crate::ClaimId) -> Option<$crate::ClaimLock> }
    };
    (@ suspects $to:tt) => {
        $crate::forward_store! {
            fallible $to.suspects(now: $crate::conformance::Timestamp) -> Vec<$crate::TaskSummary>
        }
    };
    (@ liveness $to:tt) => {
        $crate::forward_store! { fallible $to.liveness(claim: &$crate::Claim) -> $crate::claim_lock::Liveness }
    };
    (@ heartbeat_interval $to:tt) => {
        $crate::forward_store! { $to.heartbeat_interval() -> Option<std::time::Duration> }
    };
    (@ heartbeat $to:tt) => {
        $crate::forward_store! { fallible $to.heartbeat(task: &$crate::TaskName, claim: &$crate::ClaimId) -> bool }
    };
    (@ heartbeat_all $to:tt) => {
        $crate::forward_store! { fallible $to.heartbeat_all() -> Vec<$crate::ClaimId> }
    };
    (@ proven_at $to:tt) => {
        $crate::forward_store! { $to.proven_at(claim: &$crate::ClaimId) -> Option<u64> }
    };
    (@ heal $to:tt) => {
        $crate::forward_store! { fallible $to.heal() -> usize }
    };
    (@ sync $to:tt) => {
        $crate::forward_store! { fallible $to.sync() -> Option<$crate::checkup::SyncRound> }
    };
    (@ checkup $to:tt) => {
        $crate::forward_store! { fallible $to.checkup() -> Vec<$crate::checkup::Finding> }
    };
    (@ problems $to:tt) => {
        $crate::forward_store! { $to.problems() -> Vec<String> }
    };
    (@ sweep $to:tt) => {
        $crate::forward_store! { fallible $to.sweep(now: $crate::conformance::Timestamp) -> () }
    };
}

//! What the ledger records: one variant of [`Event`] for each `action_type`, with a typed payload and a typed result.
//!
//! The list in `kind.rs` is the only definition; what people read of an event is the one `match` in `described.rs`. The audit and
//! the server's figures match without a wildcard, so that a new event does not compile until they have an answer for it.
//!
//! Invariants:
//! - the order of a payload's fields is the order of its keys in the file, and neither ever changes;
//! - reading never fails because of a word, a payload or a result that this version does not know: such a line is
//!   [`Event::Other`], which is written back as it was read.

mod described;
mod kind;
mod payload;

pub use described::{Described, Fragment, Tone};
pub use kind::{Event, Keys};
pub use payload::*;

#[cfg(test)]
mod tests;

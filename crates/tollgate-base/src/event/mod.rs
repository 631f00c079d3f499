//! What the ledger records: one variant of [`Event`] for each `action_type`, with a typed payload and a typed result.
//!
//! The list in `list.rs` is the only definition, and has the sentence that people read of each event. The audit and the server's
//! figures look at the events that concern them.
//!
//! Invariants:
//! - the order of a payload's fields is the order of its keys in the file, and neither ever changes;
//! - reading never fails because of a word, a payload or a result that this version does not know: such a line is
//!   [`Event::Other`], which is written back as it was read.

mod described;
mod keys;
mod kind;
mod list;
mod payload;

pub use described::{Described, Fragment, Tone};
pub use keys::Keys;
pub use list::Event;
pub use payload::*;

#[cfg(test)]
mod tests;

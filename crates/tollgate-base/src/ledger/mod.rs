//! The ledger: what happened in a workspace, one JSON object per line, never changed afterwards.
//!
//! Invariants:
//! - lines are only added at the end, under one lock, all lines of one call or none;
//! - `seq` starts at 1 and goes up by one; `prev` is the SHA-256 of the line before, without its newline, and the chain
//!   goes on from file to file;
//! - `ledger.jsonl` is the file that grows; when it is long, it is flushed, renamed to `ledger-<first seq>.jsonl`, and
//!   never written again;
//! - no byte is lost: a tail that a power cut damaged is moved to `ledger.torn-<seq>`, and a line records that.
//!
//! `files` lists the files; `append` writes; `read` reads forwards and backwards; `follow` reads what was added after a
//! cursor; `verify` reads everything; `head` remembers the end elsewhere; `tally` adds the lines up.
//!
//! Readers take no lock, so that a viewer never delays an agent. They may meet a write that is not finished: bytes after
//! the last newline. Those are not a line yet.
//!
//! Limit: the chain reveals a changed line unless all lines after it were recomputed too. A recomputed chain, or an end
//! that was cut off, is revealed only by the remembered head, which a process of the same user can change as well.

mod append;
mod files;
mod follow;
mod head;
mod line;
mod read;
mod tally;
mod verify;

#[cfg(test)]
mod tests;

pub use files::Ledger;
pub use follow::{Followed, Follower, Lost};
pub use line::{Cursor, Entry, Line};
pub use read::{LedgerPage, NewestFirst};
pub use tally::Tally;
pub use verify::{LineDefect, Problem, Verification};

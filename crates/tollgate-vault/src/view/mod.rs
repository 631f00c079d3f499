//! The folder view: the folders of a machine, kept in step with a store that is elsewhere.
//!
//! The store, an engine, is the source of truth. The folders `Needs_Action/`, `In_Progress/<agent>/` and so on show what it
//! has, and people still move, edit and add files in them. Each such change becomes a step that is compared with what the
//! person saw: the text that the view last wrote there. If the store has another text by now, the person's file is set aside
//! and they are told. What an editor shows is not known: who saves over a text that the view has only just written gets a copy
//! of that text.
//!
//! One process for each machine maintains the view, under a kernel lock; one thread of it does both directions, so the two
//! never cross. Everything here works over [`crate::store::Store`] alone.
//!
//! Invariants: the view never deletes bytes that are not in the store: what a person wrote is in the store or set aside, also
//! if the process dies anywhere. One change costs the same however many tasks there are: only a hint that says "everything"
//! makes it look at everything.
//!
//! What each file does, callers first: `maintain` (the thread, the mark of an outage), `round` (what is to be done next),
//! `people` (what a person did with a file), `showing` (what the store has goes to the disk), `folder_view` (opening, and
//! finishing what a dead process began), `notes` (what was written where), `view_files` (the files), `notice` (what people are
//! told).

mod folder_view;
mod maintain;
mod notes;
mod notice;
mod people;
mod round;
mod showing;
#[cfg(test)]
mod tests;
mod view_files;

pub use self::folder_view::{FolderView, ViewOptions};
pub use self::maintain::Maintainer;
pub use self::notice::{Notice, findings};
pub use self::round::ViewNews;

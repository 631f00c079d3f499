//! The disk: every system call that reads or changes a guarded file is made here.
//!
//! A [`Folder`] is open, so that no other process can replace it between two steps. A [`Spot`] is a name in such a folder.
//! A [`Target`] is the file found at a spot: it pins the inode, computes its hash, and can be held quiet. This code makes
//! no decisions.

mod folder;
mod spelling;
mod spot;
mod target;

pub(crate) use folder::{Folder, changed_at, gone_is_none, modified, no_folder_is_none, stamp_at};
pub(crate) use spelling::listed_name;
pub(crate) use spot::{Found, Linked, Spot, Swap};
pub(crate) use target::{Model, Ownership, Quiet, Target};

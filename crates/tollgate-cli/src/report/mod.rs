//! What commands found and did, as data: the commands fill these types, and `words` turns them into sentences.

pub(crate) mod change;
pub(crate) mod history;
pub(crate) mod setup;
pub(crate) mod status;
pub(crate) mod work;

//! Texts of files, for formats that say which lines were written.

use tollgate_base::digest::Digest;

/// Texts of files, found by their hashes.
pub trait FileTexts {
    /// The bytes that a file had, if they can still be had.
    fn text(&self, path: &str, hash: Digest) -> Option<Vec<u8>>;
}

/// No texts at all, for formats that need none.
#[derive(Debug, Clone, Copy)]
pub struct NoTexts;

impl FileTexts for NoTexts {
    fn text(&self, _path: &str, _hash: Digest) -> Option<Vec<u8>> {
        None
    }
}

//! The hash of a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tollgate_base::digest::{Digest, Hasher};
use tollgate_base::error::{At, Result};

/// The hash of a file.
pub(super) fn hash(path: &Path) -> Result<Digest> {
    File::open(path).and_then(|file| hash_up_to(&file, u64::MAX)).at("read", path)
}

/// The hash of the first bytes of an open file.
pub(super) fn hash_up_to(file: &File, length: u64) -> io::Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buffer = [0; 16 * 1024];
    let mut file = file.take(length);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

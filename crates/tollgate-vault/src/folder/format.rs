//! The format of the vault's private state: a new vault states it, and any other one is refused, not misread.

use std::io;
use std::path::Path;

use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::replace_file;
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// The format of everything in `<vault>/.tollgate/vault/`.
const FORMAT: u32 = 2;

/// States the format in a new vault, and checks that of an existing one.
pub(super) fn state_or_check(private: &Path) -> Result<()> {
    let path = private.join("format");
    let bytes = match private::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let ignored = private.join(".gitignore");
            if !ignored.exists() {
                replace_file(&ignored, b"*\n", Durability::Durable)?;
            }
            return replace_file(&path, format!("{FORMAT}\n").as_bytes(), Durability::Durable);
        }
        bytes => bytes.at("read", &path)?,
    };
    match str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok()) {
        Some(FORMAT) => Ok(()),
        Some(found) => Err(Fault::other_format(path, found, FORMAT)),
        None => Err(Fault::damaged(&path, "it should contain the number of the format")),
    }
}

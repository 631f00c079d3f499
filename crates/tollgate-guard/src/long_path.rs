//! Paths that are too long for a file name: a staged file's name has the hash instead, and `.tollgate/paths/` has the path.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::root::Root;
use crate::stage::{StageName, TargetName};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::replace_file;

/// The file name of a staged file.
pub(crate) fn stage_file_name(root: &Root, stage: &StageName) -> Result<OsString> {
    if let Some(name) = stage.file_name() {
        return Ok(name);
    }
    let too_long = || Fault::invalid("the name of a staged file is too long");
    let TargetName::Path(path) = &stage.target else { return Err(too_long()) };
    let hash = remember(root, path)?;
    let stage = StageName { target: TargetName::Hashed(hash), ..stage.clone() };
    stage.file_name().ok_or_else(too_long)
}

/// The path of a staged file's target.
pub(crate) fn target_path(root: &Root, target: &TargetName) -> Result<PathBuf> {
    match target {
        TargetName::Path(path) => Ok(path.clone()),
        TargetName::Hashed(hash) => {
            let file = file_of(root, *hash);
            Ok(OsString::from_vec(fs::read(&file).at("read", &file)?).into())
        }
    }
}

/// Writes the path down, once and for good. The same path always has the same hash.
fn remember(root: &Root, path: &Path) -> Result<Digest> {
    let bytes = path.as_os_str().as_bytes();
    let hash = Digest::of(bytes);
    let file = file_of(root, hash);
    if !file.exists() {
        replace_file(&file, bytes, root.durability())?;
    }
    Ok(hash)
}

fn file_of(root: &Root, hash: Digest) -> PathBuf {
    root.state_path().join("paths").join(hash.to_string())
}

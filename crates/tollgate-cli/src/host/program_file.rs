//! The files in which agent programs keep their configuration: read, written whole, and removed.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};
use tollgate::error::Fault;

use super::jsonc;
use crate::replace::{FileAccess, replace_file};

/// A configuration as the text of a file.
pub(super) fn pretty(config: &Value) -> String {
    serde_json::to_string_pretty(config).unwrap_or_default() + "\n"
}

/// The JSON in a file; `None` if the file is missing or empty.
pub(super) fn read_json(path: &Path) -> Result<Option<Value>, Fault> {
    read(path)?.map(|text| parse(path, &text)).transpose()
}

/// The text of a file; `None` if the file is missing or empty.
pub(super) fn read(path: &Path) -> Result<Option<String>, Fault> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Fault::Io { doing: "read", path: path.to_owned(), source }),
    }
}

/// The JSON in a text, which may be empty and may have comments.
pub(super) fn parse(path: &Path, text: &str) -> Result<Value, Fault> {
    match text {
        "" => Ok(Value::Null),
        text => jsonc::parse(text).map_err(|what| damaged(path, &what)),
    }
}

/// Writes the text without our entries, or removes the file if nothing else was in it.
pub(super) fn restore(root: &Path, path: &Path, text: &str, base: &Value) -> Result<(), Fault> {
    if text.is_empty() || text == pretty(base) && *base != json!({}) {
        remove(root, path)
    } else {
        write(path, text, FileAccess::Normal)
    }
}

/// Writes a file whole, because the program that reads it may be running. Follows a symbolic link.
pub(super) fn write(path: &Path, text: &str, access: FileAccess) -> Result<(), Fault> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    replace_file(&path, text.as_bytes(), access)
}

/// Removes a file, and the folders above it that are then empty, up to the workspace.
pub(super) fn remove(root: &Path, path: &Path) -> Result<(), Fault> {
    fs::remove_file(path).map_err(|source| Fault::Io { doing: "remove", path: path.to_owned(), source })?;
    for folder in path.ancestors().skip(1).take_while(|folder| *folder != root) {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}

/// The fault of a file that cannot take our entries.
pub(super) fn damaged(path: &Path, what: &str) -> Fault {
    Fault::Config { path: path.to_owned(), what: what.to_owned() }
}

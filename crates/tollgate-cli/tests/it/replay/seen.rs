//! What the test itself has seen of a workspace: each file after each act, and all bytes that there ever were.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::world::hash;

/// A file or a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OneFile {
    pub(super) hash: String,
    pub(super) is_link: bool,
    pub(super) may_execute: bool,
}

/// All files at one moment, by their paths.
pub(super) type Files = BTreeMap<String, OneFile>;

#[derive(Default)]
pub(super) struct Seen {
    bytes: HashMap<String, Vec<u8>>,
    /// The hashes of symbolic links.
    pub(super) links: HashSet<String>,
}

impl Seen {
    /// Looks at all files.
    pub(super) fn look(&mut self, root: &Path) -> Files {
        let mut files = Files::new();
        self.walk(root, "", &mut files);
        files
    }

    fn walk(&mut self, folder: &Path, below: &str, files: &mut Files) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), format!("{below}{}", entry.file_name().to_str().unwrap()));
            let found = entry.metadata().unwrap();
            if name == ".tollgate" {
                continue;
            }
            if found.is_dir() {
                self.walk(&path, &format!("{name}/"), files);
                continue;
            }
            let is_link = found.is_symlink();
            let bytes = match is_link {
                true => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                false => fs::read(&path).unwrap(),
            };
            let hash = self.knows(bytes);
            if is_link {
                self.links.insert(hash.clone());
            }
            let may_execute = !is_link && found.permissions().mode() & 0o100 != 0;
            files.insert(name, OneFile { hash, is_link, may_execute });
        }
    }

    /// Remembers bytes that somebody writes.
    pub(super) fn knows(&mut self, bytes: Vec<u8>) -> String {
        let hash = hash(&bytes);
        self.bytes.insert(hash.clone(), bytes);
        hash
    }

    pub(super) fn text(&self, hash: &str) -> String {
        let bytes = self.bytes.get(hash).unwrap_or_else(|| panic!("nobody ever wrote {hash}"));
        String::from_utf8(bytes.clone()).unwrap()
    }
}

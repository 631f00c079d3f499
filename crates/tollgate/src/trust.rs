//! What the user has agreed to, as far as opening a workspace depends on it: state of another user, engines that may get a
//! credential, and folders outside a workspace that it may use.
//!
//! The agreements are in the user's own state folder, one file per workspace, engine and folder, named after the hash of its
//! path or address. The command `tollgate trust` writes them; this file only reads them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use tollgate_base::digest::Digest;
use tollgate_base::private;
use tollgate_guard::workspace::STATE_FOLDER;

/// The user's agreements.
#[derive(Debug, Clone)]
pub struct Agreements {
    /// The folder with the agreements. `None` if the user has no folder for state: then nothing is trusted.
    pub folder: Option<PathBuf>,
    /// The user.
    pub uid: u32,
    /// The user who became root, by `SUDO_UID`.
    pub sudo: Option<u32>,
}

impl Agreements {
    /// The agreements in the user's folder for state.
    pub fn new(state: Option<&Path>, uid: u32, sudo: Option<u32>) -> Self {
        Self { folder: state.map(|state| state.join("tollgate").join("trusted")), uid, sudo }
    }

    /// The file with the agreement about a workspace.
    pub fn record(&self, root: &Path) -> Option<PathBuf> {
        let name = Digest::of(root.as_os_str().as_bytes()).to_string();
        self.folder.as_ref().map(|folder| folder.join(&name[..32]))
    }

    /// The lines of the record: the hash of the configuration, and the owner of the state.
    pub fn agreed(&self, root: &Path) -> Option<(String, String)> {
        let text = private::read_to_string(&self.record(root)?).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        Some((lines.next()?, lines.next()?))
    }

    /// The file with the agreement about an engine.
    pub fn engine_record(&self, url: &str) -> Option<PathBuf> {
        let name = Digest::of(url.as_bytes()).to_string();
        self.folder.as_ref().map(|folder| folder.join(format!("engine-{}", &name[..32])))
    }

    /// The file with the agreement that a workspace may use this folder outside of it.
    pub fn folder_record(&self, root: &Path, folder: &Path) -> Option<PathBuf> {
        let named = [root.as_os_str().as_bytes(), &[0], folder.as_os_str().as_bytes()].concat();
        let name = Digest::of(&named).to_string();
        self.folder.as_ref().map(|agreed| agreed.join(format!("folder-{}", &name[..32])))
    }

    /// Whether the user has agreed that a workspace uses this folder outside of it.
    pub fn trusts_folder(&self, root: &Path, folder: &Path) -> bool {
        self.folder_record(root, folder).is_some_and(|record| record.exists())
    }

    /// Whether the user has chosen this engine, or has agreed to it, so that it may get a credential.
    pub fn trusts_engine(&self, url: &str) -> bool {
        self.engine_record(url).is_some_and(|record| record.exists())
    }

    /// The user that owns the state of this workspace, if it is somebody else and this user has not agreed to that.
    pub fn stranger(&self, root: &Path) -> Option<u32> {
        let owner = self.foreign_owner(root)?;
        let agreed = self.agreed(root).is_some_and(|(_, agreed)| agreed == owner.to_string());
        (!agreed).then_some(owner)
    }

    /// The user that owns the state or the configuration of this workspace, if it is neither this user nor root.
    pub fn foreign_owner(&self, root: &Path) -> Option<u32> {
        let state = root.join(STATE_FOLDER);
        let owners = [state.clone(), state.join("config.toml")].map(|path| {
            // A link belongs to the user who made it, whatever it leads to.
            fs::symlink_metadata(path).ok().map(|found| found.uid())
        });
        let is_ours =
            |owner: &u32| *owner == self.uid || *owner == 0 || self.uid == 0 && self.sudo == Some(*owner);
        owners.into_iter().flatten().find(|owner| !is_ours(owner))
    }
}

/// The number of links that the kernel follows.
const LINKS: u32 = 40;

/// Where a path leads through all links. What does not exist is where it would be made.
pub fn resolved(path: &Path) -> PathBuf {
    resolved_through(path, LINKS)
}

fn resolved_through(path: &Path, links: u32) -> PathBuf {
    let mut rest = Vec::new();
    for above in path.ancestors() {
        let real = fs::canonicalize(above).ok().or_else(|| {
            // A link to what does not exist: a folder that is made there would be at its end.
            let target = fs::read_link(above).ok().filter(|_| links > 0)?;
            Some(resolved_through(&above.parent()?.join(target), links - 1))
        });
        if let Some(mut real) = real {
            for part in rest.into_iter().rev() {
                match part {
                    Component::ParentDir => _ = real.pop(),
                    Component::CurDir => {}
                    part => real.push(part),
                }
            }
            return real;
        }
        rest.extend(above.components().next_back());
    }
    path.to_owned()
}

/// Where a path of a configuration leads, if that is outside the workspace.
pub fn outside(root: &Path, path: &Path) -> Option<PathBuf> {
    let folder = resolved(&root.join(path));
    (!folder.starts_with(resolved(root))).then_some(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_outside_if_it_leads_there() {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        let root = top.join("w");
        fs::create_dir_all(root.join("in/side")).unwrap();
        fs::create_dir(top.join("w2")).unwrap();
        symlink("in", root.join("inner")).unwrap();
        symlink("../w2", root.join("link")).unwrap();
        symlink("../nowhere", root.join("dangling")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        for (path, leads) in [
            ("in", None),
            (".", None),
            ("new/er", None),
            ("inner/side", None),
            ("new/../in", None),
            ("circle", None),
            ("../w/in", None),
            ("link", Some("w2")),
            ("link/new", Some("w2/new")),
            ("../w2", Some("w2")),
            ("..", Some("")),
            ("new/../../x", Some("x")),
        ] {
            let expected = leads.map(|leads| if leads.is_empty() { top.clone() } else { top.join(leads) });
            assert_eq!(outside(&root, Path::new(path)), expected, "{path}");
        }
        assert_eq!(outside(&root, Path::new("/")), Some("/".into()));
        // Nothing is at its end yet, but what is made there would be outside.
        assert_eq!(outside(&root, Path::new("dangling")), Some(top.join("nowhere")));
    }
}

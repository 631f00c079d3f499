//! Whether a repository brings state: what git tracks is not state.
//!
//! A clone, a pull or a push can bring any file below `.tollgate/`: a ledger, a journal, a claim record that nobody here wrote. git
//! even replaces ignored files without asking. So a process that opens a workspace or a vault checks first that git tracks nothing there
//! but the configuration. Most calls only compare the stamp of git's index with that of the index that was checked last.
//!
//! Limits: an index of another name (`GIT_INDEX_FILE`) is not looked at, nor are repositories around the nearest one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bstr::ByteSlice;

use crate::error::{At, Fault, Result};
use crate::private;
use crate::working_tree::WorkingTree;

/// The folder of the state.
const STATE: &str = ".tollgate";

/// What people may commit.
const OF_PEOPLE: [&[u8]; 2] = [b"/config.toml", b"/.gitignore"];

/// The file in the state with the stamp of the index that was checked.
const CHECKED: &str = "checked-index";

/// An index that changed this recently may change again within the same tick of the clock that dates files.
const TICK: Duration = Duration::from_millis(100);

/// A fault if git tracks state of this folder, which is canonical.
pub fn refuse_tracked(folder: &Path) -> Result<()> {
    let state = folder.join(STATE);
    let own = state.join(".git");
    if own.symlink_metadata().is_ok() {
        // The whole state is a submodule, or another checkout.
        return Err(Fault::Tracked { path: own });
    }
    let Some(tree) = WorkingTree::around(folder) else { return Ok(()) };
    let index = tree.git_dir.join("index");
    let found = match fs::metadata(&index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.at("look at", &index)?,
    };
    let (checked, stamp) = (state.join(CHECKED), stamp(&index, &found));
    if private::read(&checked).is_ok_and(|known| known == stamp) {
        return Ok(());
    }
    let below = state.strip_prefix(&tree.top).unwrap_or(&state).as_os_str();
    if may_track(&tree, below.as_bytes())?
        && let Some(path) = tracked(&tree, below)?
    {
        return Err(Fault::Tracked { path: tree.top.join(path) });
    }
    let age = SystemTime::now().duration_since(changed(&found)).unwrap_or_default();
    if age > TICK && state.symlink_metadata().is_ok() {
        // In place: half a stamp is that of no index, and a process that dies here leaves no other file. If it cannot be written, the
        // next call checks again.
        let _ = private::write(&checked, &stamp);
    }
    Ok(())
}

/// Whether git may track anything below this path that is not a person's. A yes may be wrong: another folder may have a path that
/// ends in the same way.
fn may_track(tree: &WorkingTree, below: &[u8]) -> Result<bool> {
    let names = names_of_git(&tree.git_dir)?;
    let is_part = |name: &&OsString| name.as_bytes().starts_with(b"sharedindex.");
    for name in names.iter().filter(is_part).map(OsString::as_os_str).chain([OsStr::new("index")]) {
        let path = tree.git_dir.join(name);
        let bytes = fs::read(&path).at("read", &path)?;
        if is_compressed(&bytes) || names_state(&bytes, below) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first path that git tracks there and that is not a person's, as git says.
fn tracked(tree: &WorkingTree, below: &OsStr) -> Result<Option<OsString>> {
    let output = tree.answer(tree.git().args(["ls-files", "-z", "--"]).arg(below), b"")?;
    let is_state = |path: &&[u8]| {
        let rest = path.strip_prefix(below.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/") && !OF_PEOPLE.contains(&rest))
    };
    let found = output.split(|byte| *byte == 0).find(is_state);
    Ok(found.map(|path| OsString::from_vec(path.to_vec())))
}

/// The names in a folder of git, which may be behind a link.
fn names_of_git(folder: &Path) -> Result<Vec<OsString>> {
    let entries = fs::read_dir(folder).at("list the folder", folder)?;
    entries.map(|entry| Ok(entry.at("list the folder", folder)?.file_name())).collect()
}

/// Whether paths in this index cannot be found by a search, because each has only what differs from the one before.
fn is_compressed(index: &[u8]) -> bool {
    !matches!(index.get(..8), Some(b"DIRC\0\0\0\x02" | b"DIRC\0\0\0\x03"))
}

/// Whether a path of this index, each of which ends with a NUL, is below this one and is not a person's.
fn names_state(index: &[u8], below: &[u8]) -> bool {
    index.find_iter(below).any(|at| {
        let rest = &index[at + below.len()..];
        let rest = &rest[..rest.find_byte(0).unwrap_or(rest.len())];
        rest.starts_with(b"/") && !OF_PEOPLE.contains(&rest)
    })
}

/// Changes with every write of the index: git replaces the file, and nobody can set its ctime.
fn stamp(index: &Path, found: &Metadata) -> Vec<u8> {
    let numbers = [
        i128::from(found.dev()),
        i128::from(found.ino()),
        i128::from(found.len()),
        nanos(found.mtime(), found.mtime_nsec()),
        nanos(found.ctime(), found.ctime_nsec()),
    ];
    let mut stamp = numbers.map(|number| number.to_string()).join(" ").into_bytes();
    stamp.push(b' ');
    stamp.extend_from_slice(index.as_os_str().as_bytes());
    stamp
}

fn nanos(seconds: i64, nanos: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

fn changed(found: &Metadata) -> SystemTime {
    let since = u64::try_from(nanos(found.ctime(), found.ctime_nsec())).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_nanos(since)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::working_tree::OUTER_GIT;

    fn git(folder: &Path, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.arg("-C").arg(folder).args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "protocol.file.allow=always",
        ]);
        for name in OUTER_GIT {
            command.env_remove(name);
        }
        let ended = command.args(arguments).output().unwrap();
        assert!(ended.status.success(), "{arguments:?}: {}", ended.stderr.to_str_lossy());
    }

    fn write(path: PathBuf) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    /// A repository with these files in its index.
    fn repository(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap().join("r");
        fs::create_dir(&top).unwrap();
        git(&top, &["init", "-q"]);
        for file in files {
            write(top.join(file));
        }
        git(&top, &["add", "-Af"]);
        (keep, top)
    }

    fn refused(folder: &Path) -> Option<PathBuf> {
        match refuse_tracked(folder) {
            Ok(()) => None,
            Err(Fault::Tracked { path }) => Some(path),
            Err(fault) => panic!("{fault}"),
        }
    }

    #[test]
    fn what_git_tracks_below_the_state_is_refused() {
        for (files, folder, expected) in [
            (vec!["a", "b/c"], "", None),
            (vec![".tollgate/config.toml", ".tollgate/.gitignore", "a"], "", None),
            (vec![".tollgate/config.toml", ".tollgate/version"], "", Some(".tollgate/version")),
            (vec![".tollgate/runs/x"], "", Some(".tollgate/runs/x")),
            (vec![".tollgate/config.toml.old"], "", Some(".tollgate/config.toml.old")),
            (vec![".tollgate/sub/config.toml"], "", Some(".tollgate/sub/config.toml")),
            (vec!["vault/.tollgate/vault/held"], "vault", Some("vault/.tollgate/vault/held")),
            // State of other folders, such as an example in a repository of tollgate.
            (vec!["vault/.tollgate/vault/held"], "", None),
            (vec!["other/vault/.tollgate/vault/held", "vault/a"], "vault", None),
            (vec![".tollgate2/x", "x.tollgate/y"], "", None),
            (vec![".tollgate/a b/\u{fc}\n"], "", Some(".tollgate/a b/\u{fc}\n")),
        ] {
            for version in ["2", "4"] {
                let (_keep, top) = repository(&files);
                git(&top, &["update-index", "--index-version", version]);
                assert_eq!(
                    refused(&top.join(folder)),
                    expected.map(|path| top.join(path)),
                    "{files:?} {version}"
                );
            }
        }
    }

    #[test]
    fn every_kind_of_working_tree_is_looked_at() {
        let (keep, top) = repository(&["a", ".tollgate/x", "sub/b"]);
        git(&top, &["commit", "-qm", "one"]);
        // A linked worktree has an index of its own.
        git(&top, &["worktree", "add", "-q", "../linked"]);
        let linked = top.with_file_name("linked");
        assert_eq!(refused(&linked), Some(linked.join(".tollgate/x")));
        git(&linked, &["rm", "-rq", "--cached", ".tollgate"]);
        assert_eq!(refused(&linked), None);
        assert_eq!(refused(&top), Some(top.join(".tollgate/x")), "it has another index");
        // A submodule, and a state folder that is one.
        for at in ["module", ".tollgate"] {
            let outer = keep.path().join(format!("outer-{at}"));
            fs::create_dir(&outer).unwrap();
            let outer = outer.canonicalize().unwrap();
            git(&outer, &["init", "-q"]);
            git(&outer, &["submodule", "--quiet", "add", "-f", top.to_str().unwrap(), at]);
            let (folder, path) = match at {
                "module" => (outer.join(at), outer.join("module/.tollgate/x")),
                _ => (outer.clone(), outer.join(".tollgate/.git")),
            };
            assert_eq!(refused(&folder), Some(path));
        }
        // A split index has most paths in another file.
        git(&top, &["update-index", "--split-index"]);
        write(top.join("later"));
        git(&top, &["add", "later"]);
        assert!(!fs::read(top.join(".git/index")).unwrap().contains_str(".tollgate/x"));
        assert_eq!(refused(&top), Some(top.join(".tollgate/x")));
        // An empty `.git` is not a repository, and git looks above it.
        fs::create_dir(top.join("sub/.git")).unwrap();
        write(top.join("sub/.tollgate/y"));
        git(
            &top,
            &[
                "update-index",
                "--add",
                "--cacheinfo",
                "100644,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,sub/.tollgate/y",
            ],
        );
        assert_eq!(refused(&top.join("sub")), Some(top.join("sub/.tollgate/y")));
        assert_eq!(refused(keep.path()), None, "no repository");
    }

    #[test]
    fn no_command_of_the_repository_is_run() {
        let (_keep, top) = repository(&["a"]);
        git(&top, &["update-index", "--index-version", "4"]);
        let (hooks, ran) = (top.join("hooks"), top.join("ran"));
        fs::create_dir(&hooks).unwrap();
        let script = hooks.join("post-index-change");
        fs::write(&script, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        git(&top, &["config", "core.hooksPath", hooks.to_str().unwrap()]);
        git(&top, &["config", "core.fsmonitor", script.to_str().unwrap()]);
        git(&top, &["ls-files"]);
        assert!(ran.exists(), "git itself runs it");
        fs::remove_file(&ran).unwrap();
        assert_eq!(refused(&top), None);
        assert!(!ran.exists());
    }

    #[test]
    fn an_index_is_searched_once_and_again_when_it_has_changed() {
        let (_keep, top) = repository(&["a"]);
        let index = top.join(".git/index");
        fs::create_dir(top.join(".tollgate")).unwrap();
        // Wait until the index is old enough to be remembered.
        let deadline = SystemTime::now() + Duration::from_secs(30);
        while !top.join(".tollgate").join(CHECKED).exists() {
            assert_eq!(refused(&top), None);
            assert!(SystemTime::now() < deadline, "it is never remembered");
        }
        write(top.join(".tollgate/runs"));
        git(&top, &["add", "-Af"]);
        assert_eq!(refused(&top), Some(top.join(".tollgate/checked-index")));
        git(&top, &["rm", "-rfq", "--cached", ".tollgate"]);
        assert_eq!(refused(&top), None);
        // Other bytes with the same inode, size and mtime have another ctime.
        let (kept, bytes) = (fs::metadata(&index).unwrap(), fs::read(&index).unwrap());
        let changed = loop {
            fs::write(&index, &bytes).unwrap();
            let file = fs::File::options().append(true).open(&index).unwrap();
            file.set_modified(kept.modified().unwrap()).unwrap();
            let found = file.metadata().unwrap();
            // The clock of files goes on in ticks.
            if (found.ctime(), found.ctime_nsec()) != (kept.ctime(), kept.ctime_nsec()) {
                break found;
            }
        };
        let others = |found: &Metadata| (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
        assert_eq!(others(&changed), others(&kept));
        assert_ne!(stamp(&index, &changed), stamp(&index, &kept));
    }
}

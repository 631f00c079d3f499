//! A place: where a path leads after all symbolic links are resolved.
//!
//! tollgate resolves a path twice: first by following links, to learn the canonical path and whether it is in the
//! workspace; then by opening the folder along that path with links forbidden. If another process replaces a folder with
//! a link in between, the second step fails. It never leads elsewhere.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::path::FilePath;
use tollgate_base::error::{At, Result};

/// The kernel's limit.
const MAX_LINKS: usize = 40;

/// The kernel's limit, including the final zero.
const PATH_MAX: usize = 4096;

/// A path inside the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The canonical, absolute path.
    pub(crate) path: FilePath,
    /// The path relative to the workspace, which is the same in every container that mounts the workspace.
    pub(crate) relative: PathBuf,
    /// The parent folders that do not exist yet, outermost first, relative to the workspace.
    pub(crate) missing: Vec<PathBuf>,
}

/// Where a path leads.
#[derive(Debug)]
pub(crate) enum Located {
    Inside(Place),
    Outside(FilePath),
    /// The root of the workspace itself, or of the file system.
    Root(FilePath),
}

/// Resolves `path`, which may be relative to `root`. The file and its parent folders need not exist.
pub(crate) fn locate(root: &Path, path: &Path) -> Result<Located> {
    let canonical = FilePath::trusted(canonical(&root.join(path))?);
    let Ok(relative) = canonical.as_path().strip_prefix(root) else { return Ok(Located::Outside(canonical)) };
    let relative = relative.to_owned();
    if relative.file_name().is_none() {
        return Ok(Located::Root(canonical));
    }
    let mut missing: Vec<PathBuf> = relative
        .ancestors()
        .skip(1)
        .take_while(|folder| !folder.as_os_str().is_empty() && !root.join(folder).is_dir())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    Ok(Located::Inside(Place { path: canonical, relative, missing }))
}

/// Like `realpath`, but the part of the path that does not exist is kept as written.
pub fn canonical(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().len() >= PATH_MAX {
        // The kernel would not check this: it never sees the part after the first missing folder.
        return Err(rustix::io::Errno::NAMETOOLONG).at("find", path);
    }
    resolve(path, MAX_LINKS).at("find", path)
}

fn resolve(path: &Path, links: usize) -> io::Result<PathBuf> {
    let (parent, last) = match (fs::canonicalize(path), path.parent(), path.components().next_back()) {
        (Err(error), Some(parent), Some(last)) if error.kind() == io::ErrorKind::NotFound => (parent, last),
        (answer, ..) => return answer,
    };
    let mut resolved = resolve(parent, links)?;
    let Component::Normal(name) = last else {
        resolved.pop();
        return Ok(resolved);
    };
    match fs::read_link(resolved.join(name)) {
        Ok(_) if links == 0 => Err(rustix::io::Errno::LOOP.into()),
        // A link that leads to something missing.
        Ok(target) => resolve(&resolved.join(target), links - 1),
        Err(_) => Ok(resolved.join(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("w");
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("src/a"), "").unwrap();
        (folder, root)
    }

    fn inside(root: &Path, path: &str) -> PathBuf {
        match locate(root, Path::new(path)).unwrap() {
            Located::Inside(place) => {
                assert_eq!(place.path.as_path(), root.join(&place.relative));
                place.relative
            }
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn every_spelling_of_a_path_gives_the_same_place() {
        let (_keep, root) = tree();
        symlink("src", root.join("link")).unwrap();
        symlink("src/a", root.join("to_a")).unwrap();
        symlink(root.join("src/gone"), root.join("dangling")).unwrap();
        for spelling in ["src/a", "./src/../src/a", "link/a", "to_a", "src//a"] {
            assert_eq!(inside(&root, spelling), Path::new("src/a"), "{spelling}");
        }
        assert_eq!(inside(&root, root.join("link/a").to_str().unwrap()), Path::new("src/a"));
        for spelling in ["src/gone", "link/gone", "dangling", "new/../src/gone"] {
            assert_eq!(inside(&root, spelling), Path::new("src/gone"), "{spelling}");
        }
    }

    #[test]
    fn paths_that_lead_out_of_the_workspace_are_outside() {
        let (keep, root) = tree();
        fs::create_dir(keep.path().join("w2")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        symlink("../secret", root.join("secret")).unwrap();
        for path in ["..", "../w2/x", "/etc/passwd", "etc/passwd", "secret", "src/../../x", "etc/new/file"] {
            assert!(matches!(locate(&root, Path::new(path)).unwrap(), Located::Outside(_)), "{path}");
        }
        assert!(matches!(locate(&root, Path::new("src/..")).unwrap(), Located::Root(_)));
    }

    #[test]
    fn missing_folders_are_listed() {
        let (_keep, root) = tree();
        let Located::Inside(place) = locate(&root, Path::new("src/x/y/z")).unwrap() else { panic!() };
        assert_eq!(place.missing, [PathBuf::from("src/x"), PathBuf::from("src/x/y")]);
    }

    #[test]
    fn invalid_paths_are_faults() {
        let (_keep, root) = tree();
        symlink("loop", root.join("loop")).unwrap();
        for path in ["loop", "loop/x", "src/a/below_a_file", "nul\0", &"x".repeat(300), &"x/".repeat(4096)] {
            assert!(locate(&root, Path::new(path)).is_err(), "{:?}", &path[..path.len().min(40)]);
        }
    }
}

//! A place: where a path leads after all symbolic links are resolved.
//!
//! tollgate resolves a path twice: first by following links, to learn the canonical path and whether it is in the
//! workspace; then by opening the folder along that path with links forbidden. If another process replaces a folder with
//! a link in between, the second step fails. It never leads elsewhere.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Folder, Spot};
use crate::path::{FilePath, normalise};
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
    /// The last part of the path.
    pub(crate) name: OsString,
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
    let Some(name) = relative.file_name().map(OsString::from) else { return Ok(Located::Root(canonical)) };
    let mut missing: Vec<PathBuf> = relative
        .ancestors()
        .skip(1)
        .take_while(|folder| !folder.as_os_str().is_empty() && !root.join(folder).is_dir())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    Ok(Located::Inside(Place { path: canonical, relative, name, missing }))
}

/// Like `realpath`, but the part of the path that does not exist is kept as written.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().len() >= PATH_MAX {
        // The kernel would not check this: it never sees the part after the first missing folder.
        return Err(rustix::io::Errno::NAMETOOLONG).at("find", path);
    }
    match fs::canonicalize(path) {
        Ok(canonical) => return Ok(canonical),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).at("find", path),
    }
    let mut way = path.to_owned();
    // Each round resolves the first link that leads to something missing.
    for _ in 0..MAX_LINKS {
        let mut resolved = PathBuf::from("/");
        let mut parts = way.iter();
        let mut next = None;
        while let Some(part) = parts.next() {
            if part == "/" || part == "." {
                continue;
            }
            if part == ".." {
                resolved.pop();
                continue;
            }
            let here = resolved.join(part);
            match fs::symlink_metadata(&here) {
                Ok(metadata) if metadata.is_symlink() => {
                    let target = fs::read_link(&here).at("follow", &here)?;
                    next = Some(resolved.join(target).join(parts.as_path()));
                    break;
                }
                Ok(_) => resolved = here,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(normalise(&here.join(parts.as_path())));
                }
                Err(error) => return Err(error).at("find", path),
            }
        }
        match next {
            Some(target) => way = target,
            // The file was created while this function ran.
            None => return Ok(resolved),
        }
    }
    Err(rustix::io::Errno::LOOP).at("find", path)
}

impl Place {
    /// Opens the folder, which must exist.
    pub(crate) fn spot(&self, root: &Folder) -> Result<Spot> {
        let folder = self.relative.parent().unwrap_or(Path::new(""));
        Ok(Spot::new(&root.open_below(folder)?, self.name.clone()))
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

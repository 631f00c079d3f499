//! A place: where a path leads after all symbolic links are resolved.
//!
//! tollgate resolves a path twice: first by following links, to learn the canonical path and whether it is in the
//! workspace; then by opening the folder along that path with links forbidden. If another process replaces a folder with
//! a link in between, the second step fails. It never leads elsewhere.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::disk::listed_name;
use crate::path::FilePath;
use tollgate_base::error::{At, Result};

/// The kernel's limit.
const MAX_LINKS: usize = 40;

/// The kernel's limit, including the final zero.
const PATH_MAX: usize = 4096;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    /// The path means the link itself: for deleting and moving.
    Keep,
}

/// Where a path leads.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    /// The canonical, absolute path.
    pub(crate) path: FilePath,
    /// The names under which the path led through symbolic links, outermost first: for each link, the canonical folder of
    /// the link, the link and the rest of the path. All spellings of a path have the same names.
    pub(crate) names: Vec<PathBuf>,
    /// The path is that of a symbolic link, which was not followed.
    pub(crate) is_link: bool,
}

/// A path inside the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) way: Way,
    /// The path relative to the workspace, which is the same in every container that mounts the workspace.
    pub(crate) relative: PathBuf,
    /// The parent folders that do not exist yet, outermost first, relative to the workspace.
    pub(crate) missing: Vec<PathBuf>,
}

impl Place {
    /// The canonical, absolute path.
    pub(crate) fn path(&self) -> &FilePath {
        &self.way.path
    }
}

/// Where a path leads, seen from the workspace.
#[derive(Debug)]
pub(crate) enum Located {
    Inside(Place),
    Outside(FilePath),
    /// The root of the workspace itself, or of the file system.
    Root(FilePath),
}

/// Resolves `path`, which may be relative to `root`. The file and its parent folders need not exist.
pub(crate) fn locate(root: &Path, path: &Path, last: LastLink) -> Result<Located> {
    let way = follow(&root.join(path), last)?;
    let Ok(relative) = way.path.as_path().strip_prefix(root) else { return Ok(Located::Outside(way.path)) };
    let relative = relative.to_owned();
    if relative.file_name().is_none() {
        return Ok(Located::Root(way.path));
    }
    let mut missing: Vec<PathBuf> = relative
        .ancestors()
        .skip(1)
        .take_while(|folder| !folder.as_os_str().is_empty() && !root.join(folder).is_dir())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    Ok(Located::Inside(Place { way, relative, missing }))
}

/// Like `realpath`, but the part of the path that does not exist is kept as written.
pub fn canonical(path: &Path) -> Result<PathBuf> {
    Ok(follow(path, LastLink::Follow)?.path.as_path().to_owned())
}

/// Resolves an absolute path.
pub(crate) fn follow(path: &Path, last: LastLink) -> Result<Way> {
    if path.as_os_str().len() >= PATH_MAX {
        // The kernel would not check this: it never sees the part after the first missing folder.
        return Err(rustix::io::Errno::NAMETOOLONG).at("find", path);
    }
    walk(path, last).at("find", path)
}

fn walk(path: &Path, last: LastLink) -> io::Result<Way> {
    let mut end = PathBuf::from("/");
    let mut names = Vec::new();
    let mut is_link = false;
    // The parts that are still to be followed, the next one at the end.
    let mut rest: Vec<OsString> = Vec::new();
    push_parts(&mut rest, path);
    while let Some(part) = rest.pop() {
        if part == ".." {
            end.pop();
            continue;
        }
        end.push(&part);
        spell_as_listed(&mut end);
        match fs::read_link(&end) {
            Ok(_) if last == LastLink::Keep && rest.is_empty() => is_link = true,
            Ok(_) if names.len() == MAX_LINKS => return Err(rustix::io::Errno::LOOP.into()),
            Ok(target) => {
                names.push(end.iter().chain(rest.iter().rev().map(OsString::as_os_str)).collect());
                end.pop();
                if target.is_absolute() {
                    end = PathBuf::from("/");
                }
                push_parts(&mut rest, &target);
            }
            Err(error) if is_no_link(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Way { path: FilePath::trusted(end), names, is_link })
}

/// The path below `root` with each name as its folder lists it. Links are not followed.
pub(crate) fn as_listed(root: &Path, below: &Path) -> PathBuf {
    let mut path = root.to_owned();
    for part in below {
        path.push(part);
        spell_as_listed(&mut path);
    }
    path
}

/// Gives the last name of a path the spelling in its folder. A folder that may not be listed keeps the given one.
fn spell_as_listed(path: &mut PathBuf) {
    if let Ok(Some(listed)) = listed_name(path) {
        path.set_file_name(listed);
    }
}

fn push_parts(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let first = rest.len();
    rest.extend(parts);
    rest[first..].reverse();
}

/// Whether a path that could not be read as a link is something else, or missing.
fn is_no_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.raw_os_error().is_some_and(|code| {
        [Errno::INVAL, Errno::NOENT, Errno::NOTDIR].contains(&Errno::from_raw_os_error(code))
    })
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
        match locate(root, Path::new(path), LastLink::Follow).unwrap() {
            Located::Inside(place) => {
                assert_eq!(place.path().as_path(), root.join(&place.relative));
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
            assert!(
                matches!(locate(&root, Path::new(path), LastLink::Follow).unwrap(), Located::Outside(_)),
                "{path}"
            );
        }
        assert!(matches!(locate(&root, Path::new("src/.."), LastLink::Follow).unwrap(), Located::Root(_)));
    }

    #[test]
    fn every_spelling_of_a_path_through_links_has_the_same_names() {
        let (keep, root) = tree();
        symlink("src", root.join("link")).unwrap();
        symlink("link", root.join("twice")).unwrap();
        symlink(&root, keep.path().join("root")).unwrap();
        let names = |path: &Path| follow(path, LastLink::Follow).unwrap().names;
        let expected = [root.join("twice/a"), root.join("link/a")];
        assert_eq!(names(&root.join("twice/a")), expected);
        assert_eq!(names(&root.join("src/.././twice//a")), expected);
        assert_eq!(names(&keep.path().canonicalize().unwrap().join("root/twice/a"))[1..], expected);
        assert!(names(&root.join("src/a")).is_empty());
        let kept = follow(&root.join("src/../twice"), LastLink::Keep).unwrap();
        assert_eq!((kept.path.as_path(), kept.is_link), (root.join("twice").as_path(), true));
    }

    #[test]
    fn missing_folders_are_listed() {
        let (_keep, root) = tree();
        let Located::Inside(place) = locate(&root, Path::new("src/x/y/z"), LastLink::Follow).unwrap() else {
            panic!()
        };
        assert_eq!(place.missing, [PathBuf::from("src/x"), PathBuf::from("src/x/y")]);
    }

    #[test]
    fn invalid_paths_are_faults() {
        let (_keep, root) = tree();
        symlink("loop", root.join("loop")).unwrap();
        for path in ["loop", "loop/x", "nul\0", &"x".repeat(300), &"x/".repeat(4096)] {
            assert!(
                locate(&root, Path::new(path), LastLink::Follow).is_err(),
                "{:?}",
                &path[..path.len().min(40)]
            );
        }
    }
}

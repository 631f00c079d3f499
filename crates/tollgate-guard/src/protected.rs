//! What agents must not change: one list, in one place.
//!
//! A change of such a path could run commands (the hooks and the configuration of git), disable the guard (its state, the
//! configuration of agent programs), or decide for a person (the folders of the vault). Paths are compared as they are given
//! and as they are after all links are resolved. Where a protected name in the root is a link, what it leads to is protected.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::place::{LastLink, as_listed, follow};
use crate::state_folder::STATE_FOLDER;

/// The name of a git directory, or of the file that names one.
const GIT: &str = ".git";

/// Whether a path leads into a git directory, or to the file that names one.
pub(crate) fn is_of_git(path: &Path) -> bool {
    path.iter().any(|part| part == GIT)
}

/// Every name, as the last part of an entry of [`Protected::anywhere`].
const ANY: &str = "*";

/// What agents must not change. Every path with a part `.git` or `.tollgate`, and every git directory, belongs to it.
#[derive(Debug, Clone, Default)]
pub struct Protected {
    /// These paths and everything below them. Relative to the workspace, or absolute.
    pub paths: Vec<PathBuf>,
    /// Paths below protected ones whose content agents may change. The nearest path in the two lists decides.
    pub open: Vec<PathBuf>,
    /// Ends of paths, in every folder. The last part may be `*`.
    pub anywhere: Vec<PathBuf>,
    /// Folders that must stay where they are. What is in them may change.
    pub fixed: Vec<PathBuf>,
    /// Folders in which agents may create files, but not change those that are there.
    pub only_new: Vec<PathBuf>,
}

/// What a command may do with files of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfGit {
    /// Everything but change hooks, and files that name a git directory.
    HooksClosed,
    /// Everything: their checkout is gone, too.
    Open,
}

impl Protected {
    /// These paths, as absolute ones, and with what protected names in the root lead to.
    pub(crate) fn below(mut self, root: &Path) -> Self {
        for list in [&mut self.paths, &mut self.open, &mut self.fixed, &mut self.only_new] {
            list.iter_mut().for_each(|path| *path = as_listed(root, path));
        }
        self.add_linked(root);
        self
    }

    /// Adds the links by which protected names in the root lead elsewhere, and what is there or could be there. Agents may
    /// change what else is behind these links.
    fn add_linked(&mut self, root: &Path) {
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        // Most of these names are in no workspace, and one look for each group is enough.
        let groups = self.anywhere.chunk_by(|one, other| one.iter().next() == other.iter().next());
        let groups =
            groups.filter(|group| group[0].iter().next().is_some_and(|first| is_there(&root.join(first))));
        for name in groups.flatten().map(|end| without_star(end)) {
            if !name.ancestors().any(|part| root.join(part).is_symlink()) {
                continue;
            }
            // Links in a circle lead nowhere.
            let Ok(way) = follow(&root.join(name), LastLink::Follow) else { continue };
            for name in &way.names {
                let upper = name.ancestors().filter(|part| part.is_symlink()).last();
                self.fixed.extend(upper.map(Path::to_owned));
            }
            self.paths.push(way.path.as_path().to_owned());
        }
    }

    /// Whether agents must not change this absolute path.
    pub(crate) fn covers(&self, root: &Path, path: &Path) -> bool {
        self.covers_besides_git(root, path, &[GIT, STATE_FOLDER]) || is_in_git_directory(root, path)
    }

    /// Whether a command must not change this absolute path. Unlike a file tool, a command may be git itself, so only the
    /// hooks of an existing repository are closed, and the file that names its git directory.
    pub(crate) fn covers_for_commands(&self, root: &Path, path: &Path, of_git: OfGit) -> bool {
        self.covers_besides_git(root, path, &[STATE_FOLDER])
            || of_git == OfGit::HooksClosed && is_hook_of_git(root, path)
    }

    fn covers_besides_git(&self, root: &Path, path: &Path, ours: &[&str]) -> bool {
        let length = |path: &Path| path.components().count();
        let listed = self.paths.iter().filter(|folder| path.starts_with(folder)).map(|folder| length(folder));
        let open = self.open.iter().filter(|folder| path.starts_with(folder) && path != *folder);
        // The folders above the workspace are not the agent's business, whatever their names are.
        let (above, parts) = match path.strip_prefix(root) {
            Ok(below) => (length(root), below),
            Err(_) => (0, path),
        };
        let parts: Vec<&OsStr> = parts.iter().collect();
        let is_ours = |part: &&OsStr| ours.iter().any(|name| part.eq_ignore_ascii_case(name));
        let named = parts.iter().rposition(is_ours).map(|at| above + at + 1);
        let ends = self.anywhere.iter().filter_map(|end| found(&parts, end)).map(|at| above + at);
        let fixed = self.fixed.iter().any(|folder| path == folder).then_some(usize::MAX);
        let protected = listed.chain(named).chain(ends).chain(fixed).max();
        let open = open.map(|folder| length(folder)).max();
        let is_in = |folder: &PathBuf| path != folder && path.starts_with(folder);
        protected.is_some_and(|protected| Some(protected) >= open)
            || self.only_new.iter().any(is_in) && path.symlink_metadata().is_ok()
    }

    /// The names below this path that are protected, whether or not they exist. A folder or a link that comes to this path
    /// could bring them.
    pub(crate) fn names_below(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        let below = |end: &PathBuf| {
            let mut starts = end.ancestors().skip(1).filter(|start| !start.as_os_str().is_empty());
            let start = starts.find(|start| has_end(path, start))?;
            end.strip_prefix(start).ok().map(|rest| path.join(rest))
        };
        let is_below = move |listed: &&PathBuf| *listed != path && listed.starts_with(path);
        self.anywhere.iter().filter_map(below).chain(self.paths.iter().filter(is_below).cloned())
    }

    /// Whether a command may change this folder, which is in the root, without a guard: nothing that agents must not change can be
    /// in it. A name that is protected in every folder counts if the folder is part of it: `.claude`, but not `build`.
    pub(crate) fn may_pass(&self, root: &Path, folder: &Path) -> bool {
        let mut listed = self.fixed.iter().chain(&self.only_new);
        let holds_listed = listed.any(|path| path.starts_with(folder));
        !holds_listed && !self.covers(root, folder) && self.names_below(folder).next().is_none()
    }

    /// The protected paths below this folder that exist: those that do not depend on a name in every folder.
    pub(crate) fn within(&self, root: &Path, folder: &Path) -> Vec<PathBuf> {
        let own = [root.join(GIT), root.join(STATE_FOLDER), folder.join(STATE_FOLDER)];
        let all = self.paths.iter().chain(&self.fixed).cloned();
        let all = all.chain(self.anywhere.iter().map(|end| root.join(without_star(end)))).chain(own);
        all.filter(|path| path.starts_with(folder) && path.symlink_metadata().is_ok()).collect()
    }
}

/// The folder that is meant by an end with a star, or the file that is meant by one without.
fn without_star(end: &Path) -> &Path {
    if end.ends_with(ANY) { end.parent().unwrap_or(end) } else { end }
}

/// Whether a name is this protected one, perhaps in other letters: some disks ignore case, and elsewhere nobody uses such names.
/// A name with a capital letter at its start, such as `Hooks`, is an ordinary one in small letters.
fn is_same(name: &OsStr, protected: &OsStr) -> bool {
    let is_capital = protected.as_encoded_bytes().first().is_some_and(u8::is_ascii_uppercase);
    if is_capital { name == protected } else { name.eq_ignore_ascii_case(protected) }
}

/// Whether a path ends with these protected names.
fn has_end(path: &Path, end: &Path) -> bool {
    let mut names = path.iter().rev();
    end.iter().rev().all(|end| names.next().is_some_and(|name| is_same(name, end)))
}

/// The number of parts up to and including the first place at which these parts contain the given ones.
fn found(parts: &[&OsStr], wanted: &Path) -> Option<usize> {
    let wanted: Vec<&OsStr> = wanted.iter().collect();
    let fits = |(part, wanted): (&&OsStr, &&OsStr)| is_same(part, wanted) || *wanted == ANY;
    let at = parts.windows(wanted.len().max(1)).position(|here| here.iter().zip(&wanted).all(fits))?;
    Some(at + wanted.len())
}

/// Whether a folder on the way to this path is a git directory under another name: a bare repository, the directory of a
/// worktree, or one that a file `.git` names.
fn is_in_git_directory(root: &Path, path: &Path) -> bool {
    // A worktree may be inside the git directory that it belongs to.
    path.ancestors().take_while(|folder| !root.starts_with(folder)).any(|folder| {
        let has = |name: &str| folder.join(name).exists();
        has("HEAD") && (has("commondir") || has("objects") && has("refs"))
    })
}

/// Whether this path is a hook of a git repository that exists, or the file that names its git directory.
fn is_hook_of_git(root: &Path, path: &Path) -> bool {
    let names_git = |path: &Path| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(GIT));
    if names_git(path) {
        return path.symlink_metadata().is_ok_and(|found| !found.is_dir());
    }
    let hooks = path.ancestors().take_while(|folder| !root.starts_with(folder));
    let mut hooks =
        hooks.filter(|folder| folder.file_name().is_some_and(|name| name.eq_ignore_ascii_case("hooks")));
    hooks.any(|hooks| {
        let git = hooks.parent().unwrap_or(hooks);
        git.join("HEAD").exists() && (names_git(git) || is_in_git_directory(root, hooks))
    })
}

/// Removes `.` and `..` from an absolute path without looking at the disk.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path {
        if part == ".." {
            plain.pop();
        } else if part != "." && part != "/" {
            plain.push(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected() -> Protected {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Protected {
            paths: paths(&[
                "locked",
                "vault/Done",
                "vault/In_Progress",
                "vault/In_Progress/blue/sealed",
                "/home/u/.local/state/tollgate",
            ]),
            open: paths(&["vault/In_Progress/blue", "vault/.tollgate/git/tree/In_Progress/blue"]),
            anywhere: paths(&[
                ".claude/settings.json",
                ".opencode/plugin/*",
                "opencode.json",
                "Cline/Hooks/*",
            ]),
            fixed: paths(&["vault/Needs_Action"]),
            only_new: Vec::new(),
        }
        .below(Path::new("/w/.git/root"))
    }

    #[test]
    fn what_is_covered() {
        for (path, covered) in [
            ("a.txt", false),
            (".gitignore", false),
            (".github/x", false),
            (".GIT/config", true),
            (".gitx/config", false),
            (".git", true),
            (".git/hooks/pre-commit", true),
            ("sub/deep/.git/config", true),
            ("sub/.tollgate", true),
            ("sub/.tollgate/config.toml", true),
            ("locked/x", true),
            ("locked2", false),
            (".claude/settings.json", true),
            ("sub/.claude/settings.json", true),
            (".CLAUDE/Settings.json", true),
            ("sub/OpenCode.json", true),
            ("sub/.Tollgate/config.toml", true),
            ("Cline/Hooks/x", true),
            ("cline/hooks/x", false),
            (".claude/settings.json.md", false),
            (".claude/other", false),
            ("settings.json", false),
            (".opencode/plugin", false),
            (".opencode/plugin/x.js", true),
            (".opencode/plugin/x/y.js", true),
            ("packages/a/opencode.json", true),
            ("vault/Needs_Action", true),
            ("vault/Needs_Action/new.md", false),
            ("vault/Done/x.md", true),
            ("vault/In_Progress/red/x.md", true),
            ("vault/In_Progress/blue", true),
            ("vault/In_Progress/blue/x.md", false),
            ("vault/In_Progress/blue/sealed/x.md", true),
            ("vault/In_Progress/blue/.tollgate/x", true),
            ("vault/In_Progress/blue/.git/x", true),
            ("vault/.tollgate/git/tree/In_Progress/blue/x.md", false),
            ("vault/.tollgate/git/tree/In_Progress/red/x.md", true),
            ("/home/u/.local/state/tollgate/trusted/x", true),
            ("/home/u/.claude/settings.json", true),
            ("/elsewhere/.git/config", true),
            ("/elsewhere/x", false),
        ] {
            let root = Path::new("/w/.git/root");
            assert_eq!(protected().covers(root, &root.join(path)), covered, "{path}");
        }
    }

    #[test]
    fn a_folder_may_not_bring_a_protected_name_in_any_letters() {
        let root = Path::new("/w/.git/root");
        for (folder, may_pass) in [(".claude", false), (".CLAUDE", false), (".Git", false), ("build", true)] {
            assert_eq!(protected().may_pass(root, &root.join(folder)), may_pass, "{folder}");
        }
    }

    #[test]
    fn a_git_directory_is_recognised_under_any_name() {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        for name in ["bare/objects", "bare/refs", "bare/worktrees/x", "bare/main", "plain/objects"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
        }
        for name in ["bare/HEAD", "bare/worktrees/x/HEAD", "bare/worktrees/x/commondir", "plain/HEAD"] {
            std::fs::write(top.join(name), "").unwrap();
        }
        let root = top.join("root");
        for (path, inside) in [
            ("bare/config", true),
            ("bare/hooks/new/x", true),
            ("bare/worktrees/x/config.worktree", true),
            ("plain/config", false),
            ("x", false),
        ] {
            assert_eq!(is_in_git_directory(&root, &top.join(path)), inside, "{path}");
        }
        // A worktree inside the git directory.
        assert!(!is_in_git_directory(&top.join("bare/main"), &top.join("bare/main/a.txt")));
    }
}

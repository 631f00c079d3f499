//! Which folders in the root of the workspace git ignores. Commands change them directly: they hold what programs can build
//! again, and a guard for each object file would only cost time.
//!
//! The rules are those of git for names in the root: `.gitignore` there and `.git/info/exclude`. A folder with a tracked file,
//! or with the git directory, does not count as ignored. If in doubt, a folder is guarded.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tollgate_base::glob::NamePattern;

/// The rules for names in the root of a repository.
#[derive(Default)]
pub(crate) struct IgnoreRules {
    /// Each pattern, and whether it takes back an earlier one. The last one that matches decides.
    patterns: Vec<(NamePattern, bool)>,
    /// The index of the repository, which names the tracked files.
    index: Vec<u8>,
    /// The name in the root below which the git directory is.
    git: Option<OsString>,
}

impl IgnoreRules {
    /// The rules of this workspace. None if it is not the root of a repository.
    pub(crate) fn of(root: &Path) -> Self {
        let git = root.join(".git");
        // A linked worktree has its git directory elsewhere.
        let folder = match fs::metadata(&git) {
            Ok(found) if found.is_dir() => git.clone(),
            Ok(_) => match fs::read_to_string(&git).ok().and_then(|text| worktree(root, &text)) {
                Some(folder) => folder,
                None => return Self::default(),
            },
            Err(_) => return Self::default(),
        };
        let index = folder.join("index");
        let folder = folder.canonicalize().unwrap_or(folder);
        let below = folder.strip_prefix(root).ok().and_then(|below| below.iter().next());
        let mut rules = Self { git: below.map(OsStr::to_owned), ..Self::default() };
        for file in [git.join("info/exclude"), root.join(".gitignore")] {
            rules.add(&fs::read(file).unwrap_or_default());
        }
        if !rules.patterns.is_empty() {
            rules.index = fs::read(index).unwrap_or_default();
        }
        rules
    }

    fn add(&mut self, text: &[u8]) {
        for line in text.split(|&byte| byte == b'\n') {
            let line = line.trim_ascii_end();
            let (line, negated) = match line.strip_prefix(b"!") {
                Some(rest) => (rest, true),
                None => (line, false),
            };
            let line = line.strip_suffix(b"/").unwrap_or(line);
            let line = line.strip_prefix(b"/").or_else(|| line.strip_prefix(b"**/")).unwrap_or(line);
            // A pattern with another slash, or a backslash, is not about a plain name in the root.
            if line.is_empty() || line[0] == b'#' || line.iter().any(|byte| b"/\\".contains(byte)) {
                continue;
            }
            let pattern = each_byte(line);
            // For git, a set that is not closed matches nothing.
            if pattern.rfind('[') > pattern.rfind(']') {
                continue;
            }
            self.patterns.push((NamePattern::new(&pattern), negated));
        }
    }

    /// Whether git ignores a folder with this name in the root.
    pub(crate) fn ignore(&self, name: &[u8]) -> bool {
        let text = each_byte(name);
        let last = self.patterns.iter().rev().find(|(pattern, _)| pattern.matches(&text));
        let holds_git = self.git.as_ref().is_some_and(|git| git.as_bytes() == name);
        last.is_some_and(|(_, negated)| !negated) && !holds_git && !self.tracks(name)
    }

    /// Whether a file below this folder may be tracked.
    fn tracks(&self, name: &[u8]) -> bool {
        // From version 4 on, names are compressed.
        let plain = matches!(self.index.get(4..8), Some([0, 0, 0, 2 | 3]));
        let mut wanted = name.to_vec();
        wanted.push(b'/');
        !self.index.is_empty() && (!plain || self.index.windows(wanted.len()).any(|here| here == wanted))
    }
}

/// The git directory that the file `.git` of a linked worktree names.
fn worktree(root: &Path, text: &str) -> Option<std::path::PathBuf> {
    text.trim().strip_prefix("gitdir: ").map(|path| root.join(path))
}

/// One character for each byte: git compares bytes.
fn each_byte(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_decides() {
        let mut rules = IgnoreRules::default();
        rules.add(b"# build\n/target/\nnode_modules\n*.egg-info\n!keep.egg-info\n[Bb]in/\na/b\n**/cache\nopen[\nd?r\n");
        for (name, ignored) in [
            ("target", true),
            ("target2", false),
            ("node_modules", true),
            ("x.egg-info", true),
            ("keep.egg-info", false),
            ("bin", true),
            ("sin", false),
            ("a", false),
            ("b", false),
            ("cache", true),
            ("# build", false),
            ("src", false),
            ("open[", false),
            ("dir", true),
            ("d\u{e9}r", false),
        ] {
            assert_eq!(rules.ignore(name.as_bytes()), ignored, "{name}");
        }
    }

    #[test]
    fn a_pattern_with_many_stars_is_decided_at_once() {
        let mut rules = IgnoreRules::default();
        rules.add(format!("{}b\n", "*a".repeat(40)).as_bytes());
        assert!(!rules.ignore("a".repeat(200).as_bytes()));
    }

    #[test]
    fn a_folder_with_a_tracked_file_is_guarded() {
        let mut rules =
            IgnoreRules { index: b"DIRC\0\0\0\x02...vendor/a.c\0...".to_vec(), ..IgnoreRules::default() };
        rules.add(b"vendor\ntarget\n");
        assert!(!rules.ignore(b"vendor"));
        assert!(rules.ignore(b"target"));
        rules.index[7] = 4;
        assert!(!rules.ignore(b"target"), "the names are compressed, so nobody knows");
    }
}

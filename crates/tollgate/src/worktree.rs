//! Git worktrees: which folder of the repository's main tree a folder of a linked worktree corresponds to.
//!
//! The files of git say so (`.git`, `commondir`, `gitdir`, `config`); git itself is not started. A `.git` file alone proves
//! nothing, because it may come with a downloaded folder: the repository must name the worktree, too.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_guard::workspace::is_checkout;

/// The corresponding folder of the main tree; `None` if the folder is not in a linked worktree. Otherwise, why the main tree
/// is not known.
pub fn in_main_tree(folder: &Path) -> Result<Option<PathBuf>, String> {
    let Some(top) = folder.ancestors().find(|folder| is_checkout(folder)) else { return Ok(None) };
    let link = top.join(".git");
    let Some(git_dir) =
        fs::read_to_string(&link).ok().and_then(|text| path_in(top, text.strip_prefix("gitdir:")?))
    else {
        return Ok(None);
    };
    let missing = |path: &Path| {
        format!("`{}` cannot be read; run `git worktree repair` in the main tree", path.display())
    };
    if !git_dir.is_dir() {
        return Err(missing(&git_dir));
    }
    // A submodule and a separate git directory have no such file.
    let Ok(common) = fs::read_to_string(git_dir.join("commondir")) else { return Ok(None) };
    let common = path_in(&git_dir, &common).and_then(|common| common.canonicalize().ok());
    let common = common.ok_or_else(|| missing(&git_dir.join("commondir")))?;
    let back = fs::read_to_string(git_dir.join("gitdir")).ok().and_then(|text| path_in(&git_dir, &text));
    let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    if !back.is_some_and(|back| same(&back, &link)) {
        return Err("the repository does not know this worktree; run `git worktree repair` here".into());
    }
    let setting = |name: &str| {
        // With `extensions.worktreeConfig`, the second file has the settings of the main tree.
        ["config.worktree", "config"].iter().find_map(|file| {
            let text = fs::read_to_string(common.join(file)).ok()?;
            core_setting(&text, name).map(str::to_owned)
        })
    };
    let is_bare = setting("bare").is_some_and(|bare| !["false", "no", "off", "0"].contains(&bare.as_str()));
    let main = match setting("worktree") {
        Some(tree) => path_in(&common, &tree),
        None if !is_bare && common.ends_with(".git") => common.parent().map(Path::to_owned),
        None => None,
    };
    let Some(main) = main else { return Err(format!("`{}` has no main tree", common.display())) };
    let below = folder.strip_prefix(top).unwrap_or(Path::new(""));
    let main = main.join(below);
    main.canonicalize().map(Some).map_err(|_| format!("`{}` does not exist", main.display()))
}

/// The corresponding folders of the linked worktrees, if the folder is in the main tree.
pub fn in_linked_trees(folder: &Path) -> Vec<PathBuf> {
    let Some(top) = folder.ancestors().find(|folder| is_checkout(folder)) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(top.join(".git/worktrees")) else { return Vec::new() };
    let below = folder.strip_prefix(top).unwrap_or(Path::new(""));
    let tree = |git_dir: PathBuf| {
        let link = path_in(&git_dir, &fs::read_to_string(git_dir.join("gitdir")).ok()?)?;
        link.parent()?.join(below).canonicalize().ok()
    };
    let mut trees: Vec<PathBuf> = entries.flatten().filter_map(|entry| tree(entry.path())).collect();
    trees.sort();
    trees
}

/// The path in a file of git, relative to a folder. `None` if it is empty.
fn path_in(folder: &Path, text: &str) -> Option<PathBuf> {
    let text = text.trim();
    (!text.is_empty()).then(|| folder.join(text))
}

/// The last value of a setting in the section `[core]` of git's configuration. A name alone is true.
fn core_setting<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut section = "";
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.split(']').next().unwrap_or_default().trim();
        } else if section.eq_ignore_ascii_case("core") {
            let (key, value) = line.split_once('=').unwrap_or((line, "true"));
            if key.trim().eq_ignore_ascii_case(name) {
                found = Some(value.trim().trim_matches('"'));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs git without the configuration of the user and of the machine.
    fn git(folder: &Path, words: &[&str]) {
        let ran = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"])
            .args(words)
            .current_dir(folder)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
            .unwrap();
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// A repository with one commit and a linked worktree `tree`.
    fn world() -> (tempfile::TempDir, PathBuf) {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        git(&top, &["init", "-q", "repo"]);
        fs::create_dir(top.join("repo/sub")).unwrap();
        fs::write(top.join("repo/sub/file"), "").unwrap();
        let repo = top.join("repo");
        git(&repo, &["add", "."]);
        git(&repo, &["commit", "-q", "-m", "first"]);
        git(&repo, &["worktree", "add", "-q", "../tree"]);
        (keep, top)
    }

    #[test]
    fn a_linked_worktree_leads_to_the_main_tree() {
        let (_keep, top) = world();
        assert_eq!(in_main_tree(&top.join("repo")), Ok(None));
        assert_eq!(in_main_tree(&top), Ok(None));
        assert_eq!(in_main_tree(&top.join("tree")), Ok(Some(top.join("repo"))));
        assert_eq!(in_main_tree(&top.join("tree/sub")), Ok(Some(top.join("repo/sub"))));
        assert_eq!(in_linked_trees(&top.join("repo")), [top.join("tree")]);
        assert_eq!(in_linked_trees(&top.join("repo/sub")), [top.join("tree/sub")]);
        assert_eq!(in_linked_trees(&top.join("tree")), Vec::<PathBuf>::new());
        fs::create_dir(top.join("tree/new")).unwrap();
        assert!(in_main_tree(&top.join("tree/new")).unwrap_err().contains("does not exist"));
    }

    #[test]
    fn a_moved_main_tree_is_found_after_a_repair_and_a_deleted_one_is_an_error() {
        let (_keep, top) = world();
        fs::rename(top.join("repo"), top.join("moved")).unwrap();
        assert!(in_main_tree(&top.join("tree")).unwrap_err().contains("git worktree repair"));
        git(&top.join("moved"), &["worktree", "repair", "../tree"]);
        assert_eq!(in_main_tree(&top.join("tree")), Ok(Some(top.join("moved"))));
        fs::remove_dir_all(top.join("moved")).unwrap();
        assert!(in_main_tree(&top.join("tree")).is_err());
    }

    #[test]
    fn the_repository_must_know_the_worktree() {
        let (_keep, top) = world();
        fs::create_dir(top.join("stranger")).unwrap();
        fs::copy(top.join("tree/.git"), top.join("stranger/.git")).unwrap();
        assert!(in_main_tree(&top.join("stranger")).unwrap_err().contains("does not know this worktree"));
    }

    #[test]
    fn a_bare_repository_has_no_main_tree() {
        let (_keep, top) = world();
        git(&top, &["clone", "-q", "--bare", "repo", "bare.git"]);
        git(&top.join("bare.git"), &["worktree", "add", "-q", "../one", "main"]);
        assert!(in_main_tree(&top.join("one")).unwrap_err().contains("has no main tree"));
        fs::create_dir(top.join("hidden")).unwrap();
        git(&top, &["clone", "-q", "--bare", "repo", "hidden/.git"]);
        git(&top.join("hidden"), &["worktree", "add", "-q", "../two", "main"]);
        assert!(in_main_tree(&top.join("two")).unwrap_err().contains("has no main tree"));
        // Neither a submodule nor a separate git directory is a linked worktree.
        git(&top, &["init", "-q", "--separate-git-dir", "elsewhere.git", "separate"]);
        assert_eq!(in_main_tree(&top.join("separate")), Ok(None));
    }

    #[test]
    fn settings_of_git_are_read() {
        let text = "[user]\n\tbare = no\n[Core]\n\tBare = false\n\tfilemode\n[core]\n\tworktree = \"../../x\"\n[core \"x\"]\n\tbare = true\n";
        assert_eq!(core_setting(text, "bare"), Some("false"));
        assert_eq!(core_setting(text, "worktree"), Some("../../x"));
        assert_eq!(core_setting(text, "filemode"), Some("true"));
        assert_eq!(core_setting(text, "other"), None);
    }
}

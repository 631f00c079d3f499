//! How the git store is used.
//!
//! Invariant: what comes from the configuration and is passed to git is a plain name; git cannot read it as an option.

use std::path::PathBuf;
use std::time::Duration;

use crate::folder::FolderOptions;
use tollgate_base::error::{Fault, Result};

/// How git is used.
#[derive(Clone)]
pub struct GitOptions {
    /// The program.
    pub program: PathBuf,
    /// The name of the remote.
    pub remote: String,
    /// The branch that the tasks are on.
    pub branch: String,
    /// Where on the remote the cards are: the beginning of the names of their refs.
    pub claim_refs: String,
    /// How long an owner may be silent before another machine may take its task.
    pub lease: Duration,
    /// How long the remote may take for one answer.
    pub patience: Duration,
    /// Whether the person's working tree is brought up to date.
    pub follow: bool,
    /// Whether the environment leaves it to tollgate how ssh is run.
    pub plain_ssh: bool,
    /// How the folders of the tree are used.
    pub folder: FolderOptions,
}

impl GitOptions {
    pub(super) fn check(&self) -> Result<()> {
        for (what, name) in
            [("remote", &self.remote), ("branch", &self.branch), ("claim_refs", &self.claim_refs)]
        {
            if !is_ref_name(name) {
                return Err(Fault::invalid(format!("`[vault] {what}` cannot be `{}`", name.escape_debug())));
            }
        }
        if !self.claim_refs.starts_with("refs/") {
            return Err(Fault::invalid("`[vault] claim_refs` must start with `refs/`"));
        }
        Ok(())
    }
}

/// Whether git reads this as a ref or a remote and as nothing else: not an option, a pattern or a path.
fn is_ref_name(name: &str) -> bool {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || "-_./@".contains(c) || !c.is_ascii() && !c.is_control();
    let is_part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.') && !part.ends_with(".lock")
    };
    name.len() < 200
        && name.chars().all(is_plain)
        && !name.contains("..")
        && !name.contains("@{")
        && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_would_misread_are_refused() {
        for good in ["origin", "main", "feature/x", "refs/tollgate/claims", "zweig-ä"] {
            assert!(is_ref_name(good), "{good}");
        }
        let bad = [
            "", "-d", "--mirror", "a b", "a..b", "a//b", "/a", "a/", ".a", "a/.b", "a.lock", "a\n", "a:b",
            "+a", "*",
        ];
        for bad in bad {
            assert!(!is_ref_name(bad), "{bad}");
        }
    }
}

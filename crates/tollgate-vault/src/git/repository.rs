//! The person's repository without its configuration.
//!
//! Git runs commands that the configuration of a repository names: `remote.*.uploadpack`, `core.sshCommand`,
//! `core.fsmonitor`, filters and many more. Agents may be able to write `.git/config`, so tollgate's git never works with it.
//! It works in a repository folder of tollgate's own. The objects, the refs and their history there are links to the
//! person's. The configuration has copies of the few [`SETTINGS`], none of which git can run.
//!
//! In the person's own repository folder, git only finds the folder and prints settings, which runs nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::run::Git;
use super::tree::read;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::{TEMPORARY, names_in, replace_file};
use tollgate_base::lock::Pauses;
use tollgate_base::name::random_id;
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// The settings that are read: who commits, how ssh is run (from the user's own configuration only), where the remote is,
/// the format of the repository, and how files are checked out.
const SETTINGS: [&str; 6] = [
    r"user\.(name|email)",
    r"core\.sshcommand",
    r"remote\..*\.(url|pushurl|promisor|partialclonefilter)",
    r"http\.(.*\.)?extraheader",
    r"extensions\.(objectformat|refstorage|partialclone)",
    r"core\.(autocrlf|eol|safecrlf|filemode|symlinks|ignorecase|precomposeunicode|sparsecheckout|sparsecheckoutcone|sharedrepository|fsync)",
];

/// Files and folders of a repository that are not settings. `info` has the patterns of a sparse checkout.
const LINKED: [&str; 7] = ["objects", "refs", "packed-refs", "reftable", "logs", "shallow", "info"];

/// The refs that only tollgate's git changes.
const OWN_REFS: &str = "refs/tollgate";

/// The longest time for which git locks one ref: it writes one line and flushes it.
const REF_LOCK: Duration = Duration::from_secs(10);

/// The person's repository, and tollgate's own view of it.
#[derive(Debug, Clone)]
pub(super) struct Repository {
    /// For the person's repository, as it is.
    pub(super) git: Git,
    /// The folder of the working tree.
    pub(super) top: PathBuf,
    /// Where the vault is in it: empty, or ending in a slash.
    pub(super) prefix: String,
    /// The folder of the repository for this working tree, and the one for all its working trees.
    folders: [PathBuf; 2],
    /// tollgate's own folder.
    pub(super) own: PathBuf,
}

/// What the settings say about the user.
pub(super) struct GitSettings {
    /// The author of commits.
    pub(super) author: String,
    /// The user's own configuration says how ssh is run.
    pub(super) has_ssh: bool,
}

impl Repository {
    /// The repository that the vault is in.
    pub(super) fn find(git: Git, vault: &Path, own: PathBuf) -> Result<Self> {
        let wanted =
            ["rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-prefix"];
        let found = git.local(&wanted, &[])?;
        let text = found.text();
        let mut lines = text.lines();
        let (Some(top), Some(folder), Some(common), true) =
            (lines.next().map(PathBuf::from), lines.next(), lines.next(), found.ok)
        else {
            return Err(Fault::invalid(format!(
                "`{}` is not in a git working tree, which `[vault] sync = \"git\"` needs: run `git init` or `git clone`",
                vault.display()
            )));
        };
        let here = fs::canonicalize(vault).at("open the vault", vault)?;
        // The configuration may claim that the working tree is any folder, even the user's home.
        if here.ancestors().find(|folder| folder.join(".git").exists()) != Some(&*top) {
            return Err(Fault::invalid(format!(
                "the repository of `{}` has its working tree elsewhere, which `[vault] sync = \"git\"` does not allow: delete `core.worktree` from its configuration",
                vault.display()
            )));
        }
        let common = fs::canonicalize(vault.join(common)).at("open the repository", Path::new(common))?;
        let prefix = lines.next().unwrap_or_default().to_owned();
        Ok(Self { git, top, prefix, folders: [PathBuf::from(folder), common], own })
    }

    /// The person's index.
    pub(super) fn index(&self) -> PathBuf {
        self.folders[0].join("index")
    }

    /// Brings the links and the configuration up to date: somebody may have set another URL, or copied the folder.
    ///
    /// By itself, git does not flush the objects and refs that it writes. After a power cut a ref could lead to an empty
    /// object, and the whole repository, which is the person's, would be unusable. So git flushes them, unless the person has
    /// decided otherwise.
    pub(super) fn refresh(&self, remote: &str, branch: &str, durability: Durability) -> Result<GitSettings> {
        let wanted = format!("^({})$", SETTINGS.join("|"));
        let listed = self.git.local(&["config", "-z", "--show-scope", "--get-regexp", &wanted], &[])?;
        let listed = String::from_utf8_lossy(&listed.out);
        let mut parts = listed.split('\0');
        let (mut name, mut email, mut has_ssh, mut has_url) = ("", "", false, false);
        let mut flushes = durability == Durability::Durable;
        let mut config = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n".to_owned();
        while let (Some(scope), Some(entry)) = (parts.next(), parts.next()) {
            let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            let is_users = !matches!(scope, "local" | "worktree");
            match (key, key.strip_prefix("remote.").and_then(|key| key.rsplit_once('.'))) {
                ("user.name", _) => name = value,
                ("user.email", _) => email = value,
                ("core.fsync", _) => flushes = false,
                ("core.sshcommand", _) => {
                    has_ssh |= is_users;
                    continue;
                }
                (_, Some((other, _))) if other != remote => continue,
                // git uses this value as an argument.
                ("extensions.partialclone", _) if value != remote => continue,
                (_, Some((_, "url" | "pushurl"))) => {
                    self.check_url(remote, value)?;
                    has_url = true;
                }
                _ => {}
            }
            // git reads the user's own configuration by itself.
            if !is_users {
                config += &line(key, value);
            }
        }
        if !has_url {
            return Err(Fault::invalid(format!(
                "the repository has no remote `{remote}`: run `git remote add {remote} URL`, or set another one in `[vault] remote`"
            )));
        }
        if flushes {
            config += &line("core.fsync", "all");
        }
        for name in LINKED {
            let target = self.folders[usize::from(name != "info")].join(name);
            let link = self.own.join(name);
            if fs::read_link(&link).ok().as_ref() != Some(&target) {
                let stage = self.own.join(format!("{TEMPORARY}{}", random_id()?));
                private::make_symlink(&target, &stage).at("make the link", &stage)?;
                private::rename(&stage, &link).at("rename", &stage)?;
            }
        }
        for (name, text) in [("HEAD", format!("ref: refs/heads/{branch}\n")), ("config", config)] {
            let path = self.own.join(name);
            if read(&path)?.as_deref() != Some(text.as_bytes()) {
                replace_file(&path, text.as_bytes(), Durability::Fast)?;
            }
        }
        Ok(GitSettings { author: author(name, email), has_ssh })
    }

    /// Deletes the locks on tollgate's own refs that a git has left because it was killed, or because the power was cut. Waits
    /// for locks that a git in another working tree of the repository may still need.
    pub(super) fn remove_left_locks(&self) -> Result<()> {
        let mut pauses = Pauses::lasting(REF_LOCK);
        let mut folders = vec![self.folders[1].join(OWN_REFS)];
        while let Some(folder) = folders.pop() {
            for name in names_in(&folder)? {
                let path = folder.join(&name);
                if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "lock") {
                    while is_new(&path) && pauses.pause() {}
                    // git may have deleted it in the meantime.
                    let _ = private::remove_file(&path);
                }
            }
        }
        Ok(())
    }

    /// A push to a repository on this disk runs its hooks, so it must not be one that agents can write to.
    fn check_url(&self, remote: &str, url: &str) -> Result<()> {
        let path = self.top.join(url.strip_prefix("file://").unwrap_or(url));
        // In the path of a URL, git reads `%2e` as a dot.
        if url.starts_with("file://") && url.contains('%')
            || fs::canonicalize(path).is_ok_and(|path| path.starts_with(&self.top))
        {
            return Err(Fault::invalid(format!(
                "the remote `{remote}` must not be inside the working tree, nor a file URL with `%`: move it, and set its URL"
            )));
        }
        Ok(())
    }

    /// The ref that the person has checked out, and the file that shows that they are in the middle of a merge.
    pub(super) fn checked_out(&self) -> Result<(String, Option<&'static str>)> {
        let name = self.git.local(&["symbolic-ref", "--quiet", "HEAD"], &[])?.text();
        let is_there = |file: &&str| self.folders[0].join(file).exists();
        Ok((name, ["MERGE_HEAD", "CHERRY_PICK_HEAD"].into_iter().find(is_there)))
    }
}

/// Whether a lock may still be needed. By a clock that was set back, also an older one.
fn is_new(lock: &Path) -> bool {
    let made = fs::symlink_metadata(lock).and_then(|found| found.modified());
    made.is_ok_and(|made| made.elapsed().unwrap_or_default() < REF_LOCK)
}

/// A setting as git reads it from a file. Nothing in a value can end the line.
fn line(key: &str, value: &str) -> String {
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    let (head, name) = match rest.rsplit_once('.') {
        Some((part, name)) => (format!("[{section} \"{}\"]", escaped(part)), name),
        None => (format!("[{section}]"), rest),
    };
    format!("{head}\n\t{name} = \"{}\"\n", escaped(value))
}

/// The user's name and address, without what would break a commit.
fn author(name: &str, email: &str) -> String {
    let plain = |text: &str, other: &str| {
        let text: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
        Some(text.trim()).filter(|text| !text.is_empty()).unwrap_or(other).to_owned()
    };
    format!("{} <{}>", plain(name, "tollgate"), plain(email, "tollgate@localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_names_of_people_are_quoted() {
        let quoted = "[http \"a.b\"]\n\textraheader = \"\\\"x\\\\\\n[core]\"\n";
        assert_eq!(line("http.a.b.extraheader", "\"x\\\n[core]"), quoted);
        assert_eq!(author("x <y>\nfrom z", " \n"), "x yfrom z <tollgate@localhost>");
    }
}

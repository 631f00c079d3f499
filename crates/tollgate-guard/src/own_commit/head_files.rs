//! What git says about a working tree: the branch, the commit, the files that differ from it, and the bytes that HEAD has.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;

use super::history::Head;
use super::index::{self, entry};
use crate::path::FilePath;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::random_id;
use tollgate_base::working_tree::WorkingTree;

/// A file in HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) mode: String,
    pub(super) id: String,
}

impl Blob {
    pub(super) fn is_link(&self) -> bool {
        self.mode == "120000"
    }
}

/// A file that differs from HEAD, in the index or on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Differing {
    pub(super) head: Option<Blob>,
    /// The mode on disk is another one than HEAD's, and both have the file.
    pub(super) changes_mode: bool,
    /// The name of a folder with a repository of its own, or of a submodule.
    pub(super) is_repository: bool,
}

/// What `git status` says about a working tree, with the index at a path of our own.
#[derive(Debug, Default)]
pub(super) struct TreeStatus {
    /// HEAD's commit; `None` before the first.
    pub(super) head: Option<String>,
    /// The branch; `None` if HEAD names no branch.
    pub(super) branch: Option<String>,
    /// By their names, relative to the top. Names that are not UTF-8 are left out: no ledger line has them.
    pub(super) files: HashMap<String, Differing>,
    /// What somebody has staged: paths, with the mode and the object that HEAD has there.
    pub(super) staged: HashMap<Vec<u8>, String>,
    /// A merge has left a conflict.
    pub(super) is_unmerged: bool,
}

impl TreeStatus {
    pub(super) fn of(tree: &WorkingTree, index: &Path) -> Result<Self> {
        let mut command = tree.git();
        command.env("GIT_INDEX_FILE", index).args([
            "status",
            "--porcelain=v2",
            "--branch",
            "--no-ahead-behind",
            "-z",
        ]);
        // A submodule that somebody has staged counts. What is in it does not.
        command.args(["--untracked-files=all", "--no-renames", "--ignore-submodules=dirty"]);
        Self::parse(&tree.answer(&mut command, b"")?)
            .ok_or_else(|| Fault::invalid(format!("git status in `{}` is not readable", tree.top.display())))
    }

    fn parse(output: &[u8]) -> Option<Self> {
        let mut status = Self::default();
        for record in output.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
            match record {
                [b'#', b' ', rest @ ..] => status.take_header(str::from_utf8(rest).ok()?),
                [b'1', b' ', rest @ ..] => status.take_changed(rest)?,
                [b'u', ..] => status.is_unmerged = true,
                [b'?', b' ', name @ ..] => {
                    let differing =
                        |is_repository| Differing { head: None, changes_mode: false, is_repository };
                    // What somebody has taken out of the index is also in HEAD.
                    if let Ok(name) = str::from_utf8(name) {
                        let is_repository = name.ends_with('/');
                        status.files.entry(name.to_owned()).or_insert_with(|| differing(is_repository));
                    }
                }
                _ => {}
            }
        }
        Some(status)
    }

    /// Whether none of these files is staged, and no folder in the place of one, or a file in the place of its folder.
    pub(super) fn staged_is_apart_from<'n>(&self, names: impl Iterator<Item = &'n str>) -> bool {
        let planned: HashSet<&[u8]> = names.map(str::as_bytes).collect();
        !self.staged.keys().flat_map(|path| with_folders(path)).any(|path| planned.contains(path))
            && !planned.iter().flat_map(|path| with_folders(path)).any(|path| self.staged.contains_key(path))
    }

    /// Makes the staged entries of an index as HEAD has them.
    pub(super) fn unstage(&self, tree: &WorkingTree, index: &Path) -> Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<Vec<u8>> =
            self.staged.iter().map(|(path, in_head)| entry(in_head, path)).collect();
        // What is gone first: a folder may have taken the name of a file.
        lines.sort();
        index::update(tree, index, &lines.concat())
    }

    fn take_header(&mut self, header: &str) {
        match header.split_once(' ') {
            Some(("branch.oid", "(initial)")) => self.head = None,
            Some(("branch.oid", id)) => self.head = Some(id.to_owned()),
            Some(("branch.head", "(detached)")) => self.branch = None,
            Some(("branch.head", name)) => self.branch = Some(name.to_owned()),
            _ => {}
        }
    }

    /// `XY sub mH mI mW hH hI path`
    fn take_changed(&mut self, record: &[u8]) -> Option<()> {
        let mut words = record.splitn(8, |byte| *byte == b' ');
        let mut word = || words.next().and_then(|word| str::from_utf8(word).ok());
        let [states, submodule, in_head, _, on_disk, id, _] =
            [word()?, word()?, word()?, word()?, word()?, word()?, word()?];
        let path = words.next()?;
        if !states.starts_with('.') {
            self.staged.insert(path.to_owned(), format!("{in_head} {id}"));
        }
        let is_there = |mode: &str| mode != "000000";
        let head = is_there(in_head).then(|| Blob { mode: in_head.to_owned(), id: id.to_owned() });
        let changes_mode = head.is_some() && is_there(on_disk) && in_head != on_disk;
        let is_repository = !submodule.starts_with('N') || in_head == "160000";
        if let Ok(name) = str::from_utf8(path) {
            self.files.insert(name.to_owned(), Differing { head, changes_mode, is_repository });
        }
        Some(())
    }
}

/// A path and the folders that it is in.
fn with_folders(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]).chain([path])
}

/// The names of the ledger and of git for the same files: one is relative to the workspace, the other to the working tree.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) workspace: PathBuf,
    pub(super) top: PathBuf,
}

impl Names {
    /// As the ledger writes it.
    pub(super) fn in_ledger(&self, name: &str) -> String {
        let path = self.top.join(name);
        path.strip_prefix(&self.workspace).unwrap_or(&path).display().to_string()
    }

    /// As git writes it; `None` outside of the working tree.
    pub(super) fn in_git(&self, name: &str) -> Option<String> {
        self.workspace.join(name).strip_prefix(&self.top).ok()?.to_str().map(str::to_owned)
    }

    pub(super) fn path(&self, name: &str) -> FilePath {
        FilePath::trusted(self.workspace.join(name))
    }

    /// The working tree, as a ledger line names it.
    pub(super) fn tree(&self) -> String {
        match self.top.strip_prefix(&self.workspace) {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => below.display().to_string(),
            Err(_) => self.top.display().to_string(),
        }
    }
}

/// The files of HEAD, as git would check them out.
pub(super) struct HeadFiles<'t> {
    tree: &'t WorkingTree,
    names: &'t Names,
    status: &'t TreeStatus,
    digests: HashMap<String, Option<Digest>>,
    contains: HashMap<String, bool>,
    reader: Reader,
}

impl<'t> HeadFiles<'t> {
    pub(super) fn new(
        tree: &'t WorkingTree,
        names: &'t Names,
        status: &'t TreeStatus,
        reader: Reader,
    ) -> Self {
        Self { tree, names, status, digests: HashMap::new(), contains: HashMap::new(), reader }
    }

    /// Learns the hashes of HEAD's files of these names in the ledger, as far as they differ: to ask git for one at a time takes longer.
    pub(super) fn learn<'n>(&mut self, names: impl Iterator<Item = &'n String>) -> Result<()> {
        let (mut wanted, mut in_git) = (HashSet::new(), Vec::new());
        for name in names.filter(|name| !self.digests.contains_key(*name)) {
            let Some(theirs) = self.names.in_git(name).filter(|theirs| !theirs.contains('\n')) else {
                continue;
            };
            let blob = self.status.files.get(&theirs).and_then(|differing| differing.head.as_ref());
            if let Some(blob) = blob.filter(|blob| !blob.is_link())
                && wanted.insert(name)
            {
                in_git.push((name, blob.id.as_str(), theirs));
            }
        }
        let asked: Vec<(&str, &str)> = in_git.iter().map(|(_, id, theirs)| (*id, theirs.as_str())).collect();
        let digests = &mut self.digests;
        let mut take = |at: usize, bytes: Vec<u8>| {
            digests.insert(in_git[at].0.clone(), Some(Digest::of(&bytes)));
        };
        self.reader.read_each(&asked, &mut take).at("read from git", &self.tree.top)
    }

    /// HEAD's file of this name in the ledger.
    pub(super) fn blob(&self, name: &str) -> Result<Option<Blob>> {
        let (Some(name), Some(head)) = (self.names.in_git(name), &self.status.head) else { return Ok(None) };
        if let Some(differing) = self.status.files.get(&name) {
            return Ok(differing.head.clone());
        }
        // It is as in HEAD, or ignored, or was moved away.
        let mut command = self.tree.git();
        command.args(["ls-tree", "-z", head, "--"]).arg(&name);
        let listed = self.tree.answer(&mut command, b"")?;
        let listed = String::from_utf8_lossy(&listed);
        let mut words = listed.split(['\t', '\0']).next().unwrap_or_default().split(' ');
        Ok(match (words.next(), words.next(), words.next()) {
            (Some(mode), Some("blob"), Some(id)) => Some(Blob { mode: mode.to_owned(), id: id.to_owned() }),
            _ => None,
        })
    }

    /// The bytes of HEAD's file, as git would check it out.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(blob) = self.blob(name)? else { return Ok(None) };
        if blob.is_link() {
            let mut command = self.tree.git();
            return self.tree.answer(command.args(["cat-file", "blob", &blob.id]), b"").map(Some);
        }
        let in_git = self.names.in_git(name).unwrap_or_default();
        if in_git.contains('\n') {
            let mut command = self.tree.git();
            command.args(["cat-file", "--filters", &format!("--path={in_git}"), &blob.id]);
            return self.tree.answer(&mut command, b"").map(Some);
        }
        self.reader.read(&blob.id, &in_git).at("read from git", &self.tree.top).map(Some)
    }
}

impl Head for HeadFiles<'_> {
    fn digest(&mut self, name: &str) -> Result<Option<Digest>> {
        if let Some(digest) = self.digests.get(name) {
            return Ok(*digest);
        }
        let digest = self.text(name)?.map(|bytes| Digest::of(&bytes));
        self.digests.insert(name.to_owned(), digest);
        Ok(digest)
    }

    fn contains(&mut self, commit: &str) -> Result<bool> {
        let Some(head) = &self.status.head else { return Ok(false) };
        if head == commit {
            return Ok(true);
        }
        if let Some(known) = self.contains.get(commit) {
            return Ok(*known);
        }
        let contains = is_ancestor(self.tree, commit, head);
        self.contains.insert(commit.to_owned(), contains);
        Ok(contains)
    }
}

/// Whether a commit is in the history of another. `false` if git no longer has it.
pub(super) fn is_ancestor(tree: &WorkingTree, commit: &str, of: &str) -> bool {
    let mut command = tree.git();
    command.args(["merge-base", "--is-ancestor", commit, of]);
    tree.answer(&mut command, b"").is_ok()
}

/// A git that reads one object after the other.
pub(super) struct Reader {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// A name that no object has. git need not look for it: names with `?` are not allowed.
    end: String,
}

impl Reader {
    pub(super) fn start(tree: &WorkingTree) -> Result<Self> {
        let mut command = tree.git();
        command.args(["cat-file", "--batch", "--filters"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().at("start git in", &tree.top)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(questions), Some(answers)) => Ok(Self {
                child,
                questions,
                answers: BufReader::new(answers),
                end: format!("?{}", random_id()?),
            }),
            _ => Err(Fault::invalid("git cannot be asked")),
        }
    }

    fn read(&mut self, id: &str, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_each(&[(id, name)], |_, read| bytes = read)?;
        Ok(bytes)
    }

    /// Asks for objects by their ids and names, and takes each answer with its place. git answers while the next questions are asked.
    fn read_each(&mut self, asked: &[(&str, &str)], mut take: impl FnMut(usize, Vec<u8>)) -> io::Result<()> {
        let Self { child, questions, answers, end } = self;
        thread::scope(|scope| {
            let end = &*end;
            let asking = scope.spawn(move || {
                // At once: the pipe has no buffer on this side.
                let question = |(id, name): &(&str, &str)| format!("{id} {name}\n{end}\n");
                asked.iter().try_for_each(|asked| questions.write_all(question(asked).as_bytes()))
            });
            let taken = asked.iter().enumerate().try_for_each(|(at, (id, _))| {
                take(at, answer(answers, id, end)?);
                Ok(())
            });
            if taken.is_err() {
                // So that it no longer waits for questions to be taken.
                child.kill()?;
            }
            let asking = asking.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            taken.and(asking)
        })
    }
}

/// The size that git announces is that from before the filters, so the end is found by a question that has no answer.
fn answer(answers: &mut impl BufRead, id: &str, end: &str) -> io::Result<Vec<u8>> {
    let mut header = String::new();
    answers.read_line(&mut header)?;
    if !header.starts_with(id) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, header.trim_end().to_owned()));
    }
    let mut bytes = Vec::new();
    let end = format!("\n{end} missing\n");
    while !bytes.ends_with(end.as_bytes()) {
        if answers.read_until(b'\n', &mut bytes)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    bytes.truncate(bytes.len() - end.len());
    Ok(bytes)
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It waits for questions, and has nothing to write.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

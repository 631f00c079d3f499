//! A simulated disk: what a program did to it, in order, and what can be left of that after a power cut.
//!
//! Certain is what was flushed. Of the rest, names and bytes get to the disk independently of each other:
//! - Names: everything up to some moment, in order, in all folders. On ext4 and XFS no earlier moment than the last flush of
//!   anything, because all names are in one journal. Elsewhere (btrfs) a flush is only about its own file or folder, and a
//!   moved file can be under both names, if the folder that it came from was not flushed.
//! - Bytes: of each file all of them, none, the first half of each write, or zeros where the file grew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// A file or a folder. It stays the same under all its names.
pub(crate) type Node = usize;

#[derive(Debug, Clone)]
pub(crate) enum Content {
    File(Vec<u8>),
    Folder(BTreeMap<String, Node>),
}

/// A folder, a name in it, and what the name stands for from now on.
pub(crate) type NameChange = (Node, String, Option<Node>);

/// One act of a program.
#[derive(Clone)]
pub(crate) enum Act {
    /// One call that changes names.
    Names(Vec<NameChange>),
    Write {
        file: Node,
        at: usize,
        bytes: Vec<u8>,
    },
    Resize {
        file: Node,
        length: usize,
    },
    Flush(Node),
    /// The program tells its user that the work is done.
    Answer,
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(changes) => write!(f, "names {changes:?}"),
            Self::Write { file, at, bytes } => {
                let start = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
                write!(f, "write {} bytes to {file} at {at}: {start:?}", bytes.len())
            }
            Self::Resize { file, length } => write!(f, "resize {file} to {length}"),
            Self::Flush(node) => write!(f, "flush {node}"),
            Self::Answer => write!(f, "answer"),
        }
    }
}

/// All files and folders of a disk. The first is the root.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Content>,
    modes: Vec<u32>,
    /// The inode numbers that the nodes had when they were read.
    inodes: BTreeMap<Node, u64>,
}

impl Tree {
    pub(crate) fn read(path: &Path) -> Self {
        let mut tree = Self::default();
        tree.add_from(path);
        tree
    }

    fn add_from(&mut self, path: &Path) -> Node {
        let found = fs::symlink_metadata(path).unwrap();
        if let Some((node, _)) = self.inodes.iter().find(|(_, inode)| **inode == found.ino()) {
            return *node;
        }
        let node = self.add(Content::File(Vec::new()), found.mode() & 0o7777);
        self.inodes.insert(node, found.ino());
        self.nodes[node] = if found.is_dir() {
            let mut names = BTreeMap::new();
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                names.insert(entry.file_name().into_string().unwrap(), self.add_from(&entry.path()));
            }
            Content::Folder(names)
        } else {
            Content::File(fs::read(path).unwrap())
        };
        node
    }

    pub(crate) fn add(&mut self, content: Content, mode: u32) -> Node {
        self.nodes.push(content);
        self.modes.push(mode);
        self.nodes.len() - 1
    }

    /// The node at a path relative to the root.
    pub(crate) fn find(&self, path: &Path) -> Option<Node> {
        path.iter().try_fold(0, |node, name| match &self.nodes[node] {
            Content::Folder(names) => names.get(name.to_str()?).copied(),
            Content::File(_) => None,
        })
    }

    /// All paths, with the bytes of files.
    pub(crate) fn shown(&self) -> BTreeMap<String, Option<&[u8]>> {
        fn walk<'t>(tree: &'t Tree, node: Node, path: &str, shown: &mut BTreeMap<String, Option<&'t [u8]>>) {
            match &tree.nodes[node] {
                Content::File(bytes) => drop(shown.insert(path.to_owned(), Some(bytes))),
                Content::Folder(names) => {
                    shown.insert(path.to_owned(), None);
                    names.iter().for_each(|(name, node)| walk(tree, *node, &format!("{path}/{name}"), shown));
                }
            }
        }
        let mut shown = BTreeMap::new();
        walk(self, 0, "", &mut shown);
        shown
    }

    pub(crate) fn length(&self, file: Node) -> usize {
        match &self.nodes[file] {
            Content::File(bytes) => bytes.len(),
            Content::Folder(_) => panic!("a folder has no length"),
        }
    }

    pub(crate) fn make(&mut self, act: &Act) {
        match act {
            Act::Names(changes) => changes.iter().for_each(|change| self.name(change)),
            Act::Write { file, at, bytes } => {
                let Content::File(old) = &mut self.nodes[*file] else { panic!("not a file") };
                old.resize(old.len().max(at + bytes.len()), 0);
                old[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Act::Resize { file, length } => {
                let Content::File(old) = &mut self.nodes[*file] else { panic!("not a file") };
                old.resize(*length, 0);
            }
            Act::Flush(_) | Act::Answer => {}
        }
    }

    fn name(&mut self, (folder, name, to): &NameChange) {
        let Content::Folder(names) = &mut self.nodes[*folder] else { panic!("not a folder") };
        match to {
            Some(node) => names.insert(name.clone(), *node),
            None => names.remove(name),
        };
    }

    /// The folder of each node that has a name.
    fn parents(&self) -> BTreeMap<Node, Node> {
        let folders = self.nodes.iter().enumerate();
        folders
            .filter_map(|(folder, content)| match content {
                Content::Folder(names) => Some(names.values().map(move |node| (*node, folder))),
                Content::File(_) => None,
            })
            .flatten()
            .collect()
    }

    /// Makes the real folder like this tree. What the program wrote down about this boot, and about inodes, is changed
    /// accordingly: the disk was written in an earlier boot, and this copy has other inodes.
    pub(crate) fn write_to(&self, path: &Path) {
        // The folders of the disk itself stay: tollgate knows a workspace by its inode.
        for folder in fs::read_dir(path).unwrap() {
            for entry in fs::read_dir(folder.unwrap().path()).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
        }
        let mut made = BTreeMap::new();
        self.put(0, path, &mut made);
        let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap();
        let boot = boot.trim_ascii();
        let mut numbers: Vec<(Vec<u8>, Vec<u8>)> = vec![(boot.to_vec(), vec![b'0'; boot.len()])];
        for (node, path) in &made {
            if let Some(old) = self.inodes.get(node) {
                let new = fs::symlink_metadata(path).unwrap().ino();
                numbers.push((format!("\"ino\":{old},").into(), format!("\"ino\":{new},").into()));
            }
        }
        for path in made.values().filter(|path| path.is_file()) {
            let old = fs::read(path).unwrap();
            if let Some((from, to)) = numbers.iter().find(|(from, _)| position(&old, from).is_some()) {
                let at = position(&old, from).unwrap();
                let new = [&old[..at], to, &old[at + from.len()..]].concat();
                fs::write(path, new).unwrap();
            }
        }
    }

    fn put(&self, node: Node, path: &Path, made: &mut BTreeMap<Node, std::path::PathBuf>) {
        match &self.nodes[node] {
            Content::File(_) if made.contains_key(&node) => fs::hard_link(&made[&node], path).unwrap(),
            Content::File(bytes) => {
                fs::write(path, bytes).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(self.modes[node])).unwrap();
                made.insert(node, path.to_owned());
            }
            Content::Folder(names) => {
                if !path.exists() {
                    fs::create_dir(path).unwrap();
                    fs::set_permissions(path, fs::Permissions::from_mode(self.modes[node])).unwrap();
                }
                names.iter().for_each(|(name, node)| self.put(*node, &path.join(name), made));
            }
        }
    }
}

/// Where the last of these bytes begin: only the last plan in a log matters.
fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).rposition(|window| window == wanted)
}

/// How a file system gets names to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Journal {
    /// All names are in one journal, in order: ext4, XFS.
    One,
    /// A flush is about its own file or folder: btrfs.
    PerFolder,
}

/// How much of what was not flushed is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Luck {
    Nothing,
    Everything,
    /// All names, and zeros for bytes.
    Zeros,
    /// All names, and the bytes of the file that was written last.
    Last,
    Some,
}

/// What is on the disk if the power is cut after these acts.
pub(crate) fn after_cut(
    before: &Tree,
    acts: &[Act],
    end: &Tree,
    journal: Journal,
    luck: Luck,
    random: &mut Random,
) -> Tree {
    let mut tree = before.clone();
    // Nodes that were added since have no names yet.
    tree.nodes.extend(end.nodes[tree.nodes.len()..].iter().map(|content| match content {
        Content::File(_) => Content::File(Vec::new()),
        Content::Folder(_) => Content::Folder(BTreeMap::new()),
    }));
    tree.modes.clone_from(&end.modes);
    let flushed_at = |node: Node| acts.iter().rposition(|act| matches!(act, Act::Flush(it) if *it == node));
    let first = match journal {
        Journal::One => acts.iter().rposition(|act| matches!(act, Act::Flush(_))).unwrap_or(0),
        Journal::PerFolder => 0,
    };
    let mut names_until = match luck {
        Luck::Nothing => first,
        Luck::Everything | Luck::Zeros | Luck::Last => acts.len(),
        Luck::Some => first + random.below(acts.len() - first + 1),
    };
    let flushes = if journal == Journal::PerFolder { flushes(&tree, acts) } else { Vec::new() };
    let is_covered = |at: usize, (folder, _, to): &NameChange| {
        let later = flushes.iter().filter(|flush| flush.at > at);
        later.into_iter().any(|flush| {
            flush.node == *folder || to.is_some_and(|node| flush.node == node || flush.above.contains(&node))
        })
    };
    for (at, act) in acts.iter().enumerate().skip(names_until) {
        let Act::Names(changes) = act else { continue };
        let covered: Vec<bool> = changes.iter().map(|change| is_covered(at, change)).collect();
        // The file system does not lose a file because the folder that it came from is flushed, nor splits an exchange.
        let loses = changes.iter().zip(&covered).any(|((.., to), covered)| to.is_none() && *covered);
        let is_exchange = changes.len() == 2 && changes.iter().all(|(.., to)| to.is_some());
        if covered.contains(&false) && covered.contains(&true) && (loses || is_exchange) {
            names_until = at + 1;
        }
    }
    let last = acts.iter().rev().find_map(|act| match act {
        Act::Write { file, .. } => Some(*file),
        _ => None,
    });
    let mut fates = BTreeMap::new();
    for (at, act) in acts.iter().enumerate() {
        match act {
            Act::Names(_) if at < names_until => tree.make(act),
            Act::Names(changes) => {
                changes.iter().filter(|change| is_covered(at, change)).for_each(|change| tree.name(change));
            }
            Act::Write { file, .. } | Act::Resize { file, .. } => {
                if flushed_at(*file).is_some_and(|flush| flush > at) {
                    tree.make(act);
                    continue;
                }
                let fate = *fates.entry(*file).or_insert_with(|| match (luck, journal) {
                    (Luck::Nothing, _) => Fate::Nothing,
                    (Luck::Everything, _) => Fate::Everything,
                    (Luck::Zeros, _) => Fate::Zeros,
                    (Luck::Last, _) if last == Some(*file) => Fate::Everything,
                    (Luck::Last, _) => Fate::Nothing,
                    (Luck::Some, Journal::One) => {
                        [Fate::Nothing, Fate::Everything, Fate::Zeros, Fate::Half][random.below(4)]
                    }
                    (Luck::Some, Journal::PerFolder) => {
                        [Fate::Nothing, Fate::Everything, Fate::Half][random.below(3)]
                    }
                });
                fate.make(act, &mut tree);
            }
            Act::Flush(_) | Act::Answer => {}
        }
    }
    tree
}

/// What becomes of the bytes of a file that were not flushed.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Nothing,
    Everything,
    Zeros,
    Half,
}

impl Fate {
    fn make(self, act: &Act, tree: &mut Tree) {
        match (self, act) {
            (Self::Nothing, _) => {}
            (Self::Zeros, Act::Write { file, at, bytes }) => {
                // What was in the file before is still there. Only what is new is zero.
                let length = tree.length(*file).max(at + bytes.len());
                tree.make(&Act::Resize { file: *file, length });
            }
            (Self::Half, Act::Write { file, at, bytes }) => {
                tree.make(&Act::Write { file: *file, at: *at, bytes: bytes[..bytes.len() / 2].to_vec() });
            }
            _ => tree.make(act),
        }
    }
}

/// A flush: what can be found afterwards is the file or folder itself, and the folders that are above it at that moment.
struct Flushed {
    at: usize,
    node: Node,
    above: BTreeSet<Node>,
}

/// `tree` is the disk before the first act.
fn flushes(tree: &Tree, acts: &[Act]) -> Vec<Flushed> {
    let mut tree = tree.clone();
    let mut flushes = Vec::new();
    for (at, act) in acts.iter().enumerate() {
        tree.make(act);
        let Act::Flush(node) = act else { continue };
        let parents = tree.parents();
        let above = std::iter::successors(parents.get(node), |folder| parents.get(folder)).copied().collect();
        flushes.push(Flushed { at, node: *node, above });
    }
    flushes
}

/// Small and reproducible.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % end
    }
}

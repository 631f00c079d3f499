//! What a program does to a folder, recorded by `strace` with all bytes.
//!
//! Every call that could change a file is recorded. One that this file does not understand fails the test if it is about the
//! folder, so that nothing is overlooked. Owners, modes and times are not recorded.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::disk::{Act, Content, Node, Tree};

/// Every call that opens a file, or could change the bytes of a file or the names in a folder.
const CALLS: &str = "open,openat,openat2,creat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,\
    rmdir,mkdir,mkdirat,mknod,mknodat,write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,syncfs,sync,\
    truncate,ftruncate,fallocate,copy_file_range,sendfile,splice,lseek";

/// A folder, and what was done to it.
pub(crate) struct Recording {
    folder: PathBuf,
    pub(crate) before: Tree,
    /// As it is at the end.
    pub(crate) end: Tree,
    pub(crate) acts: Vec<Act>,
    /// The open files of the running command, by process and number.
    open: HashMap<(String, String), Opened>,
}

/// An open file or folder.
#[derive(Clone, Copy)]
struct Opened {
    node: Node,
    /// Where the next write begins, unless it appends.
    at: usize,
    appends: bool,
}

/// An argument of a call, or its answer: the text outside of quotes, and the bytes inside.
#[derive(Debug, Default)]
struct Argument {
    text: String,
    bytes: Option<Vec<u8>>,
}

impl Argument {
    /// The number of a descriptor, without its path.
    fn descriptor(&self) -> String {
        self.text.split('<').next().unwrap().to_owned()
    }

    /// The path of a descriptor, as `strace -y` shows it.
    fn shown(&self) -> PathBuf {
        let path = self.text.split_once('<').and_then(|(_, path)| path.strip_suffix('>'));
        path.unwrap_or_default().into()
    }

    /// A field of a structure: `{flags=O_RDWR|O_CREAT, mode=0660}`.
    fn field(&self, name: &str) -> Option<Self> {
        let (_, value) = self.text.split_once(&format!("{name}="))?;
        let text = value.split([',', '}']).next()?.to_owned();
        Some(Self { text, bytes: None })
    }

    fn number(&self) -> usize {
        self.text.parse().unwrap_or_else(|_| panic!("`{}` is not a number", self.text))
    }

    fn mode(&self) -> u32 {
        u32::from_str_radix(&self.text, 8).unwrap() & !0o022
    }
}

impl Recording {
    pub(crate) fn of(folder: &Path) -> Self {
        let before = Tree::read(folder);
        let end = before.clone();
        Self { folder: folder.to_owned(), before, end, acts: Vec::new(), open: HashMap::new() }
    }

    /// Runs a command and records what it does.
    pub(crate) fn run(&mut self, command: &Command, input: &[u8]) -> Output {
        let log = self.folder.with_extension("strace");
        let mut traced = Command::new("strace");
        traced.args(["-f", "-y", "-s", "10000000", "-e", "signal=none", "-e"]).arg(format!("trace={CALLS}"));
        traced.arg("-o").arg(&log).arg(command.get_program()).args(command.get_args()).env_clear();
        traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        traced.current_dir(command.get_current_dir().unwrap());
        let output = run(traced, input);
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(log).unwrap();
        self.open.clear();
        let mut unfinished: BTreeMap<&str, &str> = BTreeMap::new();
        for line in text.lines() {
            let (process, rest) = line.split_once(' ').unwrap();
            let rest = rest.trim_start();
            if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
                unfinished.insert(process, begun.trim_end());
            } else if let Some((_, end)) =
                rest.strip_prefix("<... ").and_then(|rest| rest.split_once("resumed>"))
            {
                let begun = unfinished.remove(process).unwrap_or_default();
                self.follow(process, &format!("{begun}{end}"));
            } else {
                self.follow(process, rest);
            }
        }
        output
    }

    fn follow(&mut self, process: &str, line: &str) {
        let Some((call, rest)) = line.split_once('(') else { return };
        if !call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return;
        }
        let (arguments, answer) = parse(rest);
        let Some(answer) = answer.trim_start().strip_prefix("= ").filter(|answer| !answer.starts_with('-'))
        else {
            return;
        };
        let answer = Argument { text: answer.to_owned(), bytes: None };
        let a = &arguments;
        match call {
            "open" => self.opens(process, self.path(None, &a[0]), &a[1].text, a.get(2), &answer),
            "openat" => self.opens(process, self.path(Some(&a[0]), &a[1]), &a[2].text, a.get(3), &answer),
            "openat2" => {
                let path = self.path(Some(&a[0]), &a[1]);
                self.opens(process, path, &a[2].text, a[2].field("mode").as_ref(), &answer);
            }
            "mkdir" => self.makes_folder(self.path(None, &a[0]), &a[1]),
            "mkdirat" => self.makes_folder(self.path(Some(&a[0]), &a[1]), &a[2]),
            "unlink" | "rmdir" => self.removes(self.path(None, &a[0])),
            "unlinkat" => self.removes(self.path(Some(&a[0]), &a[1])),
            "rename" => self.renames(self.path(None, &a[0]), self.path(None, &a[1]), ""),
            "renameat" => self.renames(self.path(Some(&a[0]), &a[1]), self.path(Some(&a[2]), &a[3]), ""),
            "renameat2" => {
                self.renames(self.path(Some(&a[0]), &a[1]), self.path(Some(&a[2]), &a[3]), &a[4].text);
            }
            "link" => self.links(self.path(None, &a[0]), self.path(None, &a[1])),
            "linkat" => self.links(self.path(Some(&a[0]), &a[1]), self.path(Some(&a[2]), &a[3])),
            "write" if a[0].descriptor() == "1" => self.acts.push(Act::Answer),
            "write" | "pwrite64" => self.writes(process, a),
            "lseek" => {
                if let Some(opened) = self.open.get_mut(&(process.to_owned(), a[0].descriptor())) {
                    opened.at = answer.number();
                }
            }
            "copy_file_range" => self.copies(process, a, answer.number()),
            "ftruncate" => {
                if let Some(opened) = self.opened(process, &a[0]) {
                    self.act(Act::Resize { file: opened.node, length: a[1].number() });
                }
            }
            "fsync" | "fdatasync" => {
                if let Some(opened) = self.opened(process, &a[0]) {
                    self.act(Act::Flush(opened.node));
                }
            }
            _ => assert!(
                !line.contains(self.folder.to_str().unwrap()),
                "a call that cannot be simulated: {line}"
            ),
        }
    }

    fn act(&mut self, act: Act) {
        self.end.make(&act);
        self.acts.push(act);
    }

    /// A path relative to the folder. `None` if it is elsewhere.
    fn path(&self, folder: Option<&Argument>, name: &Argument) -> Option<PathBuf> {
        let name = std::str::from_utf8(name.bytes.as_deref().expect("a path")).unwrap();
        let path: PathBuf = folder.map(Argument::shown).unwrap_or_default().join(name).components().collect();
        Some(path.strip_prefix(&self.folder).ok()?.to_owned())
    }

    /// The folder of a path, and its name there.
    fn place(&self, path: &Path) -> (Node, String) {
        let folder =
            self.end.find(path.parent().unwrap()).unwrap_or_else(|| panic!("no folder for {path:?}"));
        (folder, path.file_name().unwrap().to_str().unwrap().to_owned())
    }

    fn adds(&mut self, path: &Path, content: Content, mode: u32) -> Node {
        let node = self.end.add(content, mode);
        let (folder, name) = self.place(path);
        self.act(Act::Names(vec![(folder, name, Some(node))]));
        node
    }

    fn opens(
        &mut self,
        process: &str,
        path: Option<PathBuf>,
        flags: &str,
        mode: Option<&Argument>,
        answer: &Argument,
    ) {
        let key = (process.to_owned(), answer.descriptor());
        self.open.remove(&key);
        let Some(path) = path else { return };
        let node = match self.end.find(&path) {
            Some(node) => node,
            None if flags.contains("O_CREAT") => {
                self.adds(&path, Content::File(Vec::new()), mode.unwrap().mode())
            }
            None => panic!("`{}` was made by a call that was not recorded", path.display()),
        };
        if flags.contains("O_TRUNC") {
            self.act(Act::Resize { file: node, length: 0 });
        }
        self.open.insert(key, Opened { node, at: 0, appends: flags.contains("O_APPEND") });
    }

    fn makes_folder(&mut self, path: Option<PathBuf>, mode: &Argument) {
        if let Some(path) = path {
            self.adds(&path, Content::Folder(BTreeMap::new()), mode.mode());
        }
    }

    fn removes(&mut self, path: Option<PathBuf>) {
        let Some(path) = path else { return };
        let (folder, name) = self.place(&path);
        self.act(Act::Names(vec![(folder, name, None)]));
    }

    fn renames(&mut self, from: Option<PathBuf>, to: Option<PathBuf>, flags: &str) {
        let (Some(from), Some(to)) = (from, to) else { return };
        let moved = self.end.find(&from);
        let replaced = if flags.contains("RENAME_EXCHANGE") { self.end.find(&to) } else { None };
        let ((from_folder, from), (to_folder, to)) = (self.place(&from), self.place(&to));
        self.act(Act::Names(vec![(from_folder, from, replaced), (to_folder, to, moved)]));
    }

    fn links(&mut self, from: Option<PathBuf>, to: Option<PathBuf>) {
        let (Some(from), Some(to)) = (from, to) else { return };
        let node = self.end.find(&from);
        let (folder, name) = self.place(&to);
        self.act(Act::Names(vec![(folder, name, node)]));
    }

    fn opened(&self, process: &str, descriptor: &Argument) -> Option<Opened> {
        self.open.get(&(process.to_owned(), descriptor.descriptor())).copied()
    }

    fn writes(&mut self, process: &str, a: &[Argument]) {
        let bytes = a[1].bytes.clone().unwrap();
        match (self.opened(process, &a[0]), a.get(3)) {
            (None, _) => {}
            (Some(opened), Some(at)) => self.act(Act::Write { file: opened.node, at: at.number(), bytes }),
            (Some(_), None) => self.writes_on(process, &a[0], bytes),
        }
    }

    /// Writes where the last write ended.
    fn writes_on(&mut self, process: &str, descriptor: &Argument, bytes: Vec<u8>) {
        let Some(Opened { node, at, appends }) = self.opened(process, descriptor) else { return };
        let at = if appends { self.end.length(node) } else { at };
        let key = (process.to_owned(), descriptor.descriptor());
        self.open.insert(key, Opened { node, at: at + bytes.len(), appends });
        self.act(Act::Write { file: node, at, bytes });
    }

    fn copies(&mut self, process: &str, a: &[Argument], length: usize) {
        let (Some(from), true) = (self.opened(process, &a[0]), length > 0) else { return };
        assert!([&a[1], &a[3]].iter().all(|place| place.text == "NULL"), "a copy from or to a given place");
        let Content::File(bytes) = &self.end.nodes[from.node] else { panic!("a copy of a folder") };
        let bytes = bytes[from.at..from.at + length].to_vec();
        let key = (process.to_owned(), a[0].descriptor());
        self.open.insert(key, Opened { at: from.at + length, ..from });
        self.writes_on(process, &a[2], bytes);
    }
}

/// The arguments of a call, and what follows them.
fn parse(text: &str) -> (Vec<Argument>, &str) {
    let mut arguments = Vec::new();
    let mut argument = Argument::default();
    let (mut in_quotes, mut depth) = (false, 0);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        at += 1;
        if in_quotes {
            let literal = argument.bytes.get_or_insert_default();
            match byte {
                b'"' => {
                    in_quotes = false;
                    assert!(!text[at..].starts_with("..."), "`strace` has cut a text short");
                }
                b'\\' => at += unescape(&bytes[at..], literal),
                byte => literal.push(byte),
            }
            continue;
        }
        match byte {
            b'"' => {
                in_quotes = true;
                argument.bytes = Some(Vec::new());
            }
            b',' if depth == 0 => arguments.push(std::mem::take(&mut argument)),
            b')' if depth == 0 => {
                arguments.push(argument);
                return (arguments, &text[at..]);
            }
            b' ' if argument.text.is_empty() => {}
            byte => {
                depth += i32::from(b"<{[(".contains(&byte)) - i32::from(b">}])".contains(&byte));
                argument.text.push(char::from(byte));
            }
        }
    }
    (arguments, "")
}

/// Adds the byte that an escape sequence stands for. Returns its length without the backslash.
fn unescape(text: &[u8], to: &mut Vec<u8>) -> usize {
    let digits = text.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
    if digits > 0 {
        to.push(text[..digits].iter().fold(0, |value, digit| (value << 3) | (digit - b'0')));
        return digits;
    }
    to.push(match text[0] {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'v' => 11,
        b'f' => 12,
        other => other,
    });
    1
}

pub(crate) fn run(mut command: Command, input: &[u8]) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    // A program that does not read all of it has ended.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

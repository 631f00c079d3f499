//! A workspace before and after a commit, and what must hold no matter what happened in between.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tollgate::content::Content;
use tollgate::digest::Digest;
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::part::Part;
use tollgate::settings::{Durability, Settings};
use tollgate::workspace::{Options, Workspace};

use crate::strace::{End, IN_PROCESS, copy, folder, run, spawn};

/// Paths and texts. Folders end with a slash.
pub(crate) type Files = BTreeMap<String, String>;

pub(crate) struct Scene {
    keep: tempfile::TempDir,
    pub(crate) changes: Vec<&'static str>,
    pub(crate) before: Files,
    pub(crate) after: Files,
    /// A folder that is on a file system of its own.
    mounted: Option<&'static str>,
    /// The ledger lines of changes before, and those of the changes.
    lines: [usize; 2],
    count: std::cell::Cell<usize>,
}

/// The result of the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Before,
    After,
}

fn files(of: &[(&str, &str)]) -> Files {
    let mut files = Files::new();
    for (path, text) in of {
        files.insert((*path).to_owned(), (*text).to_owned());
        for folder in Path::new(path).ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
            files.insert(format!("{}/", folder.display()), String::new());
        }
    }
    files
}

impl Scene {
    pub(crate) fn new(
        before: &[(&str, &str)],
        changes: &[&'static str],
        after: &[(&str, &str)],
        config: &str,
    ) -> Self {
        let scene = Self {
            keep: folder(),
            changes: changes.to_vec(),
            before: files(before),
            after: files(after),
            mounted: None,
            lines: [0, changes.len()],
            count: 0.into(),
        };
        let template = scene.template();
        for (path, text) in before {
            let path = template.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        // The state exists already, as in every workspace that is not new.
        let no_children = IN_PROCESS.read().unwrap_or_else(PoisonError::into_inner);
        drop(open(&template));
        drop(no_children);
        fs::write(template.join(".tollgate/config.toml"), config).unwrap();
        scene
    }

    pub(crate) fn update() -> Self {
        Self::new(&[("a", "one"), ("z", "z")], &["write:a:two"], &[("a", "two"), ("z", "z")], "")
    }

    pub(crate) fn edit() -> Self {
        Self::new(&[("a", "one"), ("z", "z")], &["edit:a:one=two"], &[("a", "two"), ("z", "z")], "")
    }

    /// The first guarded write in a workspace, which creates the state.
    pub(crate) fn first_update() -> Self {
        let scene = Self::update();
        fs::remove_dir_all(scene.template().join(".tollgate")).unwrap();
        scene
    }

    pub(crate) fn create() -> Self {
        Self::new(&[("z", "z")], &["create:a:two"], &[("a", "two"), ("z", "z")], "")
    }

    pub(crate) fn create_in_new_folder() -> Self {
        Self::new(&[("z", "z")], &["create:n/o/a:two"], &[("n/o/a", "two"), ("z", "z")], "")
    }

    /// In a folder whose new files inherit its group.
    pub(crate) fn create_in_marked_folder() -> Self {
        let scene = Self::new(&[("g/z", "z")], &["create:g/a:two"], &[("g/a", "two"), ("g/z", "z")], "");
        fs::set_permissions(scene.template().join("g"), Permissions::from_mode(0o2755)).unwrap();
        scene
    }

    /// Changes in a folder on another file system than the state. `None`, with a message, if none can be mounted.
    pub(crate) fn elsewhere() -> Option<Self> {
        let mut scene = Self::new(
            &[("o/a", "a one"), ("o/d", "d one"), ("z", "z one")],
            &["write:o/a:a two", "create:o/n:n two", "delete:o/d", "write:z:z two"],
            &[("o/a", "a two"), ("o/n", "n two"), ("z", "z two")],
            "",
        );
        let probe = scene.keep.path().join("probe");
        fs::create_dir(&probe).unwrap();
        if !mount(&probe) {
            println!("skipped: another file system needs the right to mount a tmpfs");
            return None;
        }
        assert!(spawn(Command::new("umount").arg(&probe)).wait().unwrap().success());
        scene.mounted = Some("o");
        Some(scene)
    }

    pub(crate) fn delete() -> Self {
        Self::new(&[("a", "one"), ("z", "z")], &["delete:a"], &[("z", "z")], "")
    }

    pub(crate) fn rename() -> Self {
        Self::new(&[("a", "one"), ("z", "z")], &["move:a:b"], &[("b", "one"), ("z", "z")], "")
    }

    /// Into new folders.
    pub(crate) fn rename_folder() -> Self {
        Self::new(
            &[("d/s/a", "one"), ("z", "z")],
            &["folder:d:n/o/e"],
            &[("n/o/e/s/a", "one"), ("z", "z")],
            "",
        )
    }

    /// Three updates, one creation in a new folder, one deletion, one move.
    /// More files than a commit keeps open at the same time.
    pub(crate) fn large() -> Self {
        let text = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let (mut before, mut changes, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..26 {
            let path = text(format!("d{}/{number}", number % 3));
            match number {
                0..3 => {
                    before.push((path, "delete me"));
                    changes.push(text(format!("delete:{path}")));
                }
                3..6 => {
                    let to = text(format!("m/o/{number}"));
                    before.push((path, text(format!("move {number}"))));
                    changes.push(text(format!("move:{path}:{to}")));
                    after.push((to, text(format!("move {number}"))));
                }
                6..12 => {
                    let path = text(format!("n/{number}"));
                    changes.push(text(format!("create:{path}:two")));
                    after.push((path, "two"));
                }
                _ => {
                    before.push((path, "one"));
                    changes.push(text(format!("write:{path}:two {number}")));
                    after.push((path, text(format!("two {number}"))));
                }
            }
        }
        Self::new(&before, &changes, &after, "")
    }

    pub(crate) fn six() -> Self {
        Self::new(
            &[("a", "a one"), ("b", "b one"), ("s/c", "c one"), ("s/d", &long_text()), ("m", "m one")],
            &[
                "write:a:a two",
                "write:b:b two",
                "write:s/c:c two",
                "create:n/e:e two",
                "delete:s/d",
                "move:m:s/m",
            ],
            &[("a", "a two"), ("b", "b two"), ("s/c", "c two"), ("n/e", "e two"), ("s/m", "m one")],
            "",
        )
    }

    /// Takes back what [`Self::six`] does, with bytes from the store of contents.
    pub(crate) fn undo_six() -> Self {
        let mut six = Self::six();
        let template = six.template();
        assert!(matches!(run(&[], &six.commit(&template)), End::Done));
        assert!(matches!(run(&[], &["sweep", "--root", template.to_str().unwrap()]), End::Done));
        let first = mutations(&open(&template))[0]["seq"].as_u64().unwrap();
        let undo: &'static str = Box::leak(format!("undo:{first}").into_boxed_str());
        (six.changes, six.lines[0]) = (vec![undo], six.lines[1]);
        std::mem::swap(&mut six.before, &mut six.after);
        // An undo leaves folders.
        six.after.insert("n/".to_owned(), String::new());
        six
    }

    /// A copy of the workspace before the commit.
    pub(crate) fn fresh(&self) -> PathBuf {
        let root = self.next();
        copy(&self.template(), &root);
        if let Some(folder) = self.mounted {
            let folder = root.join(folder);
            fs::remove_dir_all(&folder).unwrap();
            fs::create_dir(&folder).unwrap();
            assert!(mount(&folder), "the file system was mounted before");
            for entry in fs::read_dir(self.template().join(self.mounted.unwrap())).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
            }
        }
        root
    }

    /// Deletes a workspace.
    pub(crate) fn discard(&self, root: &Path) {
        self.unmount(root);
        fs::remove_dir_all(root).unwrap();
    }

    fn unmount(&self, root: &Path) {
        if let Some(folder) = self.mounted {
            let _ = spawn(Command::new("umount").arg(root.join(folder)).stderr(Stdio::null())).wait();
        }
    }

    pub(crate) fn template(&self) -> PathBuf {
        self.keep.path().join("template")
    }

    /// A new path.
    pub(crate) fn next(&self) -> PathBuf {
        self.count.set(self.count.get() + 1);
        self.keep.path().canonicalize().unwrap().join(format!("w{}", self.count.get()))
    }

    /// The arguments of the trial program that make the changes.
    pub(crate) fn commit<'a>(&'a self, root: &'a Path) -> Vec<&'a str> {
        let mut arguments = vec!["commit", "--root", root.to_str().unwrap()];
        arguments.extend(&self.changes);
        arguments
    }

    /// Checks that all or nothing was changed, and that the workspace is healthy. Returns which.
    #[track_caller]
    pub(crate) fn judge(&self, root: &Path, story: &str) -> Fate {
        let _no_children = IN_PROCESS.read().unwrap_or_else(PoisonError::into_inner);
        let workspace = open(root);
        let found = read(root);
        let fate = match &found {
            found if *found == self.before => Fate::Before,
            found if *found == self.after => Fate::After,
            _ => panic!("{story}: neither before nor after: {found:?}\nstate: {:#?}", state(root)),
        };
        assert_eq!(names(root, "journal"), [""; 0], "{story}: a journal is left");
        let lines = mutations(&workspace);
        let due = self.lines[0] + if fate == Fate::After { self.lines[1] } else { 0 };
        assert_eq!(lines.len(), due, "{story}: {fate:?}, but the ledger says {lines:#?}");
        if fate == Fate::After {
            self.has_kept_what_it_replaced(&workspace, story);
        }
        self.later_writes_work(&workspace, &found, story);
        self.nothing_is_left(root, story);
        if fate == Fate::After {
            self.has_kept_what_it_replaced(&workspace, story);
        }
        let late = lines_of(&workspace, "LATE_EXTERNAL_WRITE");
        assert_eq!(late.len(), 0, "{story}: nobody else has written: {late:#?}");
        let verdict = workspace.ledger().verify().unwrap();
        assert_eq!(verdict.problem, None, "{story}");
        assert_eq!(mutations(&workspace).len(), due + found_files(&found).count(), "{story}");
        fate
    }

    fn has_kept_what_it_replaced(&self, workspace: &Workspace, story: &str) {
        let kept: Vec<_> = workspace.recovery().unwrap().iter().filter_map(|kept| kept.sha256).collect();
        for text in found_files(&self.before).map(|(_, text)| text) {
            let still = self.after.values().any(|after| after == text);
            assert!(
                still || kept.contains(&Digest::of(text.as_bytes())),
                "{story}: `{text}` is not in recovery"
            );
        }
    }

    /// The bytes that the commit has replaced can be had again.
    pub(crate) fn bytes_are_kept(&self, root: &Path, story: &str) {
        let workspace = open(root);
        for (path, text) in
            found_files(&self.before).filter(|(path, _)| self.after.get(*path) != self.before.get(*path))
        {
            let found = workspace.content(Digest::of(text.as_bytes())).unwrap();
            let is_moved = self.after.values().any(|after| after == text);
            assert!(
                is_moved || found == Content::Kept(text.as_bytes().to_vec()),
                "{story}: {path}: {found:?}"
            );
        }
    }

    pub(crate) fn later_writes_work(&self, workspace: &Workspace, found: &Files, story: &str) {
        let gate = Gate::new(workspace.clone());
        let turn = gate.begin_turn("later".parse().unwrap()).unwrap();
        for (path, _) in found_files(found) {
            let Outcome::Done(_) = gate.read(&turn, path, Part::Whole).unwrap() else { panic!("{story}") };
            let outcome = gate.write(&turn, path, format!("later {path}"), Expected::Baseline).unwrap();
            assert!(matches!(outcome, Outcome::Done(_)), "{story}: {outcome:?}");
            assert_eq!(fs::read_to_string(workspace.path().join(path)).unwrap(), format!("later {path}"));
        }
    }

    /// After the grace time and a sweep.
    pub(crate) fn nothing_is_left(&self, root: &Path, story: &str) {
        let later = || Timestamp::now() + SignedDuration::from_hours(1);
        let options = Options { clock: Arc::new(later), settings: Some(fast()), ..Options::default() };
        let workspace = Workspace::open(root, options).unwrap();
        workspace.sweep().unwrap();
        assert_eq!(names(root, "stage"), [""; 0], "{story}: something is left in the stage");
        assert_eq!(names(root, "journal"), [""; 0], "{story}: something is left in the journal");
        let listed = workspace.recovery().unwrap().len();
        let kept: Vec<_> = ["late", "replaced", "taken_back"]
            .iter()
            .flat_map(|kind| names(root, &format!("history/{kind}")))
            .collect();
        assert_eq!(kept.len(), listed, "{story}: recovery holds what it does not list: {kept:#?}");
        let odd: Vec<_> = names(root, "").into_iter().filter(|name| name.starts_with("tmp-")).collect();
        assert_eq!(odd, [""; 0], "{story}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for number in 1..=self.count.get() {
            let root = self.keep.path().join(format!("w{number}"));
            if self.mounted.is_some() && root.exists() {
                self.unmount(&root);
            }
        }
    }
}

/// So long that it is compressed when it is kept.
pub(crate) fn long_text() -> String {
    "d one\n".repeat(1000)
}

fn mount(folder: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder).stderr(Stdio::null());
    spawn(&mut command).wait().is_ok_and(|status| status.success())
}

fn found_files(files: &Files) -> impl Iterator<Item = (&String, &String)> {
    files.iter().filter(|(path, _)| !path.ends_with('/'))
}

fn fast() -> Settings {
    let mut settings = Settings::default();
    settings.guard.durability = Durability::Fast;
    settings
}

/// Opens the workspace in this process, which heals it.
pub(crate) fn open(root: &Path) -> Workspace {
    Workspace::open(root, Options { settings: Some(fast()), ..Options::default() }).unwrap()
}

/// The workspace without its state.
pub(crate) fn read(root: &Path) -> Files {
    fn walk(folder: &Path, below: &str, files: &mut Files) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().to_str().unwrap());
            if name == ".tollgate" {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{name}/"), files);
                files.insert(format!("{name}/"), String::new());
            } else {
                files.insert(name, fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    let mut files = Files::new();
    walk(root, "", &mut files);
    files
}

/// The files of the state, for messages.
pub(crate) fn state(root: &Path) -> Vec<String> {
    ["stage", "journal", "history/late", "history/replaced", "history/taken_back"]
        .iter()
        .flat_map(|folder| names(root, folder).into_iter().map(move |name| format!("{folder}/{name}")))
        .collect()
}

/// The names in a folder of the state.
pub(crate) fn names(root: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(".tollgate").join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

pub(crate) fn lines_of(workspace: &Workspace, action_type: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    workspace.ledger().follow().advance(usize::MAX, |line| lines.push(line.json())).unwrap();
    lines.retain(|line: &Value| line["action_type"] == action_type);
    lines
}

pub(crate) fn mutations(workspace: &Workspace) -> Vec<Value> {
    lines_of(workspace, "MUTATION")
}

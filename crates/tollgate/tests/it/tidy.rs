//! Rules of the house that the compiler does not know.

mod imports;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root().join("crates"), "rs", &mut found);
    files(&root().join("packages"), "rs", &mut found);
    assert!(found.len() > 30);
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(read).collect()
}

/// The sources of the library's crates.
fn library() -> impl Iterator<Item = (String, String)> {
    let crates = [
        "tollgate",
        "tollgate-base",
        "tollgate-guard",
        "tollgate-vault",
        "tollgate-etcd",
        "tollgate-postgres",
        "tollgate-run",
        "tollgate-export",
    ];
    let folders = crates.map(|name| format!("crates/{name}/src/"));
    sources().into_iter().filter(move |(name, _)| folders.iter().any(|folder| name.starts_with(folder)))
}

/// The files of a crate as its code map names them: without the extension, a module that is a folder too.
fn modules(name: &str) -> Vec<String> {
    let folder = root().join("crates").join(name).join("src");
    let mut found = Vec::new();
    files(&folder, "rs", &mut found);
    let path =
        |file: PathBuf| format!("/{}", file.strip_prefix(&folder).unwrap().with_extension("").display());
    let files: Vec<String> = found.into_iter().map(path).collect();
    let folders = files.iter().filter_map(|file| Some(file.rsplit_once('/')?.0.to_owned()));
    folders.chain(files.iter().cloned()).collect()
}

/// In a list of the code map, a line begins with a module, or continues the line before it, far to the right. Further
/// modules of the line are written `;  name: what it is`.
#[test]
fn every_module_of_the_code_map_exists() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (map, _) = text.split_once("\n## Code map\n").unwrap().1.split_once("\n## ").unwrap();
    let mut checked = 0;
    for section in map.split("\n### `").skip(1) {
        let (name, section) = section.split_once('`').unwrap();
        let modules = modules(name);
        for line in section.split("```").skip(1).step_by(2).flat_map(str::lines) {
            let indent = line.len() - line.trim_start().len();
            let first = line.split_whitespace().next().filter(|_| indent <= 12);
            let others = line.split(";  ").skip(1).filter_map(|other| other.split_once(':'));
            let others = others.flat_map(|(names, _)| names.split(", "));
            for module in first.into_iter().chain(others) {
                let end = format!("/{}", module.trim_end_matches('/'));
                assert!(
                    modules.iter().any(|found| found.ends_with(&end)),
                    "ARCHITECTURE.md: `{name}` has no `{module}`"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "{checked}");
}

/// The compiler refuses a circle of crates; this refuses a shortcut between the two promises.
#[test]
fn guard_and_vault_do_not_know_each_other() {
    for (one, other) in [("guard", "vault"), ("vault", "guard"), ("base", "guard"), ("base", "vault")] {
        let manifest = fs::read_to_string(root().join(format!("crates/tollgate-{one}/Cargo.toml"))).unwrap();
        assert!(
            !manifest.contains(&format!("tollgate-{other}")),
            "tollgate-{one} depends on tollgate-{other}"
        );
    }
}

/// The production code of these crates, without its tests.
fn production(crates: &'static [&'static str]) -> impl Iterator<Item = (String, String)> {
    let folders: Vec<String> = crates.iter().map(|name| format!("crates/{name}/src/")).collect();
    let test = |name: &str| name.ends_with("/tests.rs") || name.contains("/tests/");
    sources()
        .into_iter()
        .filter(move |(name, _)| folders.iter().any(|folder| name.starts_with(folder)) && !test(name))
        .map(|(name, text)| (name, text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()))
}

/// A new store changes nothing here.
#[test]
fn the_command_line_and_the_server_do_not_know_which_store_they_use() {
    let mut seen = 0;
    for (name, text) in production(&["tollgate-cli", "tollgate-server"]) {
        for word in [
            "FolderStore",
            "GitStore",
            "EtcdStore",
            "Sync::",
            "vault::folder",
            "vault::git",
            "tollgate_vault",
            "tollgate_etcd",
        ] {
            assert!(!text.contains(word), "{name} has {word}");
        }
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}

/// A method in another file than its type is an import that no `use` shows: the type's own file could call it.
#[test]
fn methods_are_in_the_file_of_their_type() {
    let mut seen = 0;
    for (name, text) in library().filter(|(name, _)| name.starts_with("crates/tollgate-guard/src/")) {
        for line in text.lines().filter(|line| line.starts_with("impl") && !line.contains(" for ")) {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let own =
                |word: &str| ["struct", "enum"].iter().any(|kind| text.contains(&format!("{kind} {word}")));
            assert!(words.filter(|word| word.starts_with(char::is_uppercase)).any(own), "{name}: {line}");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn every_file_opens_by_saying_what_it_is_for() {
    for (name, text) in sources() {
        assert!(text.starts_with("//!"), "{name}");
    }
}

#[test]
fn nothing_is_left_for_later_and_no_test_is_passed_by() {
    for (name, text) in sources().into_iter().filter(|(name, _)| !name.ends_with("tidy.rs")) {
        for word in ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "dbg!(", "#[ignore"] {
            assert!(!text.contains(word), "{name} has {word}");
        }
    }
}

/// The crates that are published, by themselves or in a package.
const PUBLISHED: [&str; 11] = [
    "tollgate-binding",
    "tollgate",
    "tollgate-base",
    "tollgate-guard",
    "tollgate-vault",
    "tollgate-etcd",
    "tollgate-postgres",
    "tollgate-run",
    "tollgate-export",
    "tollgate-server",
    "tollgate-cli",
];

#[test]
fn files_do_not_import_each_other_in_cycles() {
    let crates = PUBLISHED.iter().map(|name| format!("crates/{name}/src"));
    let packages = ["python", "typescript"].map(|name| format!("packages/{name}/src"));
    let cycle = |folder: String| imports::cycle(&root().join(folder));
    let cycles: Vec<String> = crates.chain(packages).filter_map(cycle).collect();
    assert_eq!(cycles, [""; 0]);
}

#[test]
fn unsafe_lines_live_in_one_small_module_of_the_library() {
    for (name, text) in library() {
        let lines = text.lines().filter(|line| line.contains("unsafe {")).count();
        let most = if name.ends_with("/sys.rs") || name.contains("/sys/") { 7 } else { 0 };
        assert!(lines <= most, "{name} has {lines}");
    }
}

#[test]
fn the_library_does_not_print_or_look_around() {
    for (name, text) in library() {
        let code = text.split("#[cfg(test)]").next().unwrap();
        // The client of a database brings its own runtime, which runs only inside a call.
        let runtime = if name.starts_with("crates/tollgate-postgres/") { "tokio::spawn" } else { "tokio" };
        for word in ["println!", "eprintln!", "env::var", "env::args", "current_dir", runtime] {
            assert!(!code.contains(word), "{name} has {word}");
        }
    }
}

#[test]
fn only_the_disk_changes_guarded_files() {
    let allowed = ["/disk/", "/sys.rs"];
    for (name, text) in library() {
        // The probe changes only its own files.
        let mut parts = allowed.iter().chain(&["probe.rs"]);
        if !name.contains("tollgate-guard/") || parts.any(|part| name.contains(part)) {
            continue;
        }
        for word in ["fs::rename", "fs::remove_file", "renameat", "unlinkat", "File::create"] {
            assert!(!text.contains(word), "{name} has {word}: that belongs to disk/");
        }
    }
}

/// What differs between systems is behind the same functions on each of them, in one place. So the rest of the code need not be
/// read for another system, and the suite tests on Linux what others run.
#[test]
fn only_the_layers_ask_for_which_system_they_are_compiled() {
    let layers = [
        ("tollgate-base/src/sys.rs", "chooses the layers of all libraries"),
        ("tollgate-base/src/sys/kernel_linux.rs", "what only the layer without leases asks the kernel"),
        ("tollgate-run/src/lib.rs", "runs on Linux, and what other systems have instead"),
        ("tollgate-run/src/door.rs", "the door of a run on Linux"),
    ];
    let words =
        ["target_os", "target_vendor", "target_family", "cfg(unix", "cfg(windows", "tollgate_no_leases"];
    let packages = sources().into_iter().filter(|(name, _)| name.starts_with("packages/"));
    let mut used = std::collections::BTreeSet::new();
    for (name, text) in production(&PUBLISHED).chain(packages) {
        let Some(word) = words.iter().find(|word| text.contains(*word)) else { continue };
        let known = layers.iter().find(|(file, _)| name.contains(file));
        let (file, _) = known.unwrap_or_else(|| panic!("{name} has {word}: that belongs to the layers"));
        used.insert(*file);
    }
    assert_eq!(used.len(), layers.len(), "a file no longer needs its line: {used:#?}");
}

/// A repository can bring a link in place of any file or folder of the state, and `private` follows none. So the library opens
/// files by their path only where they are none of the state's.
#[test]
fn only_private_opens_state() {
    let others = [
        ("tollgate-run/", "files of the workspace and of processes, and what is in the folder of a run"),
        ("tollgate-guard/src/git_config.rs", "files of git"),
        ("tollgate-guard/src/disk/spelling.rs", "folders of the workspace and above it"),
        ("tollgate-guard/src/probe.rs", "its own files, which it has made by descriptor"),
        ("tollgate-guard/src/state_folder.rs", "the configuration, which may be a link of the user"),
        ("tollgate-guard/src/view.rs", "files of the workspace"),
        ("tollgate-base/src/sys/kernel_linux.rs", "files of the kernel"),
        ("tollgate-base/src/tracked.rs", "the index of git"),
        ("tollgate-base/src/audit/record.rs", "files that the user names"),
        ("tollgate-vault/src/folder/mod.rs", "folders with tasks"),
        ("tollgate-vault/src/folder/scan.rs", "folders with tasks"),
        ("tollgate-vault/src/folder/store.rs", "folders with tasks"),
        ("tollgate-vault/src/git/uncommitted.rs", "a folder with tasks"),
        ("tollgate-etcd/src/tls.rs", "certificates that the user names"),
        ("tollgate-export/src/out_file.rs", "the file that the user exports to"),
        ("tollgate-export/src/receiver.rs", "certificates that the user names"),
        ("tollgate/src/credentials.rs", "the user's password file"),
        ("tollgate/src/tasks.rs", "the vault itself"),
        ("tollgate/src/worktree.rs", "files of git"),
        ("tollgate-base/src/working_tree.rs", "files of git"),
        ("tollgate-guard/src/git_rules.rs", "files of git"),
        ("tollgate-guard/src/repository.rs", "files of git"),
        ("tollgate-guard/src/own_commit/index.rs", "files of git"),
        ("tollgate-guard/src/own_commit/head.rs", "files of git"),
        ("tollgate-guard/src/own_commit/workshop.rs", "files of git"),
    ];
    let words = [
        "fs::create_dir",
        "fs::remove_file",
        "fs::remove_dir(",
        "fs::rename(",
        "fs::write(",
        "fs::read(",
        "fs::read_to_string(",
        "fs::read_dir(",
        "fs::copy(",
        "fs::hard_link(",
        "fs::set_permissions(",
        "fs::symlink(",
        "unix::fs::symlink",
        "File::open(",
        "File::create",
        "File::options(",
        "OpenOptions",
        "DirBuilder",
    ];
    let uses = |text: &str, word: &str| {
        let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.any(|line| line.contains(word))
    };
    let library: Vec<String> = library().map(|(name, _)| name).collect();
    let mut used = std::collections::BTreeSet::new();
    for (name, text) in production(&PUBLISHED) {
        assert!(!uses(&text, "remove_dir_all"), "{name} deletes a tree: that belongs to private.rs");
        let is_library = library.contains(&name);
        let Some(word) = words.iter().find(|word| is_library && uses(&text, word)) else { continue };
        let known = others.iter().find(|(file, _)| name.contains(file));
        let (file, _) = known.unwrap_or_else(|| panic!("{name} has {word}: state belongs to private.rs"));
        used.insert(*file);
    }
    assert_eq!(used.len(), others.len(), "a file no longer needs its line: {used:#?}");
}

/// These pages name a test for every demand and every invariant; each of them must exist.
#[test]
fn every_test_named_in_the_docs_exists() {
    let sources = sources();
    for page in ["docs/internals/specs.md", "docs/internals/invariants.md", "docs/reference/security.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let mut named = 0;
        for word in text.split('`').skip(1).step_by(2) {
            let Some((module, test)) = word.rsplit_once("::").filter(|(file, _)| !file.starts_with("test_"))
            else {
                continue;
            };
            let file = module.trim_end_matches("::tests").rsplit("::").next().unwrap();
            let found = sources.iter().any(|(name, text)| {
                // Tests may be in a file of their own, in the folder of the module.
                let ends = ["/tests.rs", "/tests/mod.rs", "/mod.rs", ".rs"];
                let module = ends.iter().find_map(|end| name.strip_suffix(end));
                let is_here = |module: &str| module.rsplit('/').next() == Some(file);
                (module.is_some_and(is_here) || name.ends_with(&format!("/{file}.rs")))
                    && text.contains(&format!("fn {test}("))
            });
            assert!(found, "{page} names `{word}`, which is not there");
            named += 1;
        }
        assert!(named > 40, "{page}: {named} tests named");
    }
}

#[test]
fn every_setting_is_in_the_docs_with_its_default() {
    let docs = fs::read_to_string(root().join("docs/reference/settings.md")).unwrap();
    let files =
        ["settings.rs", "git_settings.rs", "history_settings.rs", "vault_settings.rs", "notify_settings.rs"];
    let read = |file| fs::read_to_string(root().join("crates/tollgate-base/src").join(file)).unwrap();
    let code = |source: String| source.split("#[cfg(test)]").next().unwrap().to_owned();
    for line in files.map(read).map(code).concat().lines() {
        if let Some(name) = line
            .strip_prefix("    pub ")
            .filter(|line| !line.starts_with("fn ") && !line.starts_with("const "))
            .and_then(|line| line.split_once(':'))
            .map(|(name, _)| name)
        {
            assert!(
                docs.contains(&format!("`{name}`")) || docs.contains(&format!("`[{name}")),
                "{name} is not in docs/reference/settings.md"
            );
        }
    }
}

//! Rules of the house that the compiler does not know.

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
    assert!(found.len() > 30);
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(read).collect()
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

#[test]
fn unsafe_lines_live_in_one_small_module_of_the_library() {
    for (name, text) in sources().into_iter().filter(|(name, _)| name.starts_with("crates/tollgate/src/")) {
        let lines = text.lines().filter(|line| line.contains("unsafe {")).count();
        let most = if name.ends_with("/sys.rs") { 5 } else { 0 };
        assert!(lines <= most, "{name} has {lines}");
    }
}

#[test]
fn the_library_does_not_print_or_look_around() {
    for (name, text) in sources().into_iter().filter(|(name, _)| name.starts_with("crates/tollgate/src/")) {
        let code = text.split("#[cfg(test)]").next().unwrap();
        for word in ["println!", "eprintln!", "env::var", "env::args", "current_dir", "tokio"] {
            assert!(!code.contains(word), "{name} has {word}");
        }
    }
}

#[test]
fn only_the_disk_changes_guarded_files() {
    let allowed = ["disk.rs", "sys.rs"];
    for (name, text) in sources().into_iter().filter(|(name, _)| name.starts_with("crates/tollgate/src/")) {
        let core = ["commit/", "guard.rs", "gate.rs", "heal.rs", "recovery.rs", "reservation.rs"];
        if !core.iter().any(|part| name.contains(part)) || allowed.iter().any(|part| name.ends_with(part)) {
            continue;
        }
        for word in ["fs::rename", "fs::remove_file", "renameat", "unlinkat", "File::create"] {
            assert!(!text.contains(word), "{name} has {word}: that belongs to disk.rs");
        }
    }
}

/// The tables in `docs/specs.md` name a test for every demand; each of them must exist.
#[test]
fn every_test_named_in_the_docs_exists() {
    let text = fs::read_to_string(root().join("docs/specs.md")).unwrap();
    let sources = sources();
    let mut named = 0;
    for word in text.split('`').skip(1).step_by(2) {
        let Some((file, test)) = word.split_once("::") else { continue };
        let found = sources.iter().any(|(name, text)| {
            Path::new(name).file_stem().is_some_and(|stem| stem == file)
                && text.contains(&format!("fn {test}("))
        });
        assert!(found, "docs/specs.md names `{word}`, which is not there");
        named += 1;
    }
    assert!(named > 40, "{named} tests named");
}

#[test]
fn every_setting_is_in_the_docs_with_its_default() {
    let docs = fs::read_to_string(root().join("docs/settings.md")).unwrap();
    let source = fs::read_to_string(root().join("crates/tollgate/src/settings.rs")).unwrap();
    for line in source.split("#[cfg(test)]").next().unwrap().lines() {
        if let Some(name) =
            line.strip_prefix("    pub ").and_then(|line| line.split_once(':')).map(|(name, _)| name)
        {
            assert!(
                docs.contains(&format!("`{name}`")) || docs.contains(&format!("`[{name}")),
                "{name} is not in docs/settings.md"
            );
        }
    }
}

//! A rule of this project: the name of an agent program occurs only under `host/`.

use std::fs;
use std::path::{Path, PathBuf};

use super::HOSTS;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.ends_with("src/host") => {}
            path if path.is_dir() => sources(&path, found),
            path => found.push(path),
        }
    }
}

#[test]
fn programs_are_named_only_under_host() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 20);
    for file in files {
        let text = fs::read_to_string(&file).unwrap().to_lowercase();
        for host in HOSTS.into_iter().filter(|host| !["cursor", "cline"].contains(host)).chain(["claude"]) {
            assert!(!text.contains(host), "{} names {host}", file.display());
        }
    }
}

//! The planted bugs: each patch in `planted/` says which promise it breaks and which test notices it. `scripts/planted` plants
//! them and runs those tests, which takes long. Here it is only checked that the list still fits the code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All tests of a package, as the text of its sources.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_planted_bug_still_applies_and_names_a_test_that_exists() {
    let folder = crates().join("tollgate-trial/planted");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let patch = fs::read_to_string(&path).unwrap();
        let field = |field: &str| patch.lines().find_map(|line| line.strip_prefix(field));
        assert!(field("breaks: ").is_some_and(|promise| !promise.is_empty()), "{name}: which promise?");
        let test: Vec<&str> = field("test: ").expect("a line `test: `").split_whitespace().collect();
        let ["-p", package, .., filter] = test[..] else { panic!("{name}: {test:?}") };
        let mut text = String::new();
        sources(&crates().join(package), &mut text);
        let last = filter.rsplit("::").find(|part| !part.is_empty()).unwrap();
        let exists = text.contains(&format!("fn {last}")) || text.contains(&format!("mod {last}"));
        assert!(exists, "{name}: `{package}` has no test `{filter}`");
        let mut git = Command::new("git");
        git.arg("-C").arg(crates().parent().unwrap()).args(["apply", "--check"]).arg(&path);
        let applied = git.output().unwrap();
        assert!(applied.status.success(), "{name} no longer applies: {applied:?}");
        count += 1;
    }
    assert!(count > 20, "{count} planted bugs");
}

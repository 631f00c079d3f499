//! Commits beside what somebody has staged, and beside conflicts in the index.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::Repository;

#[test]
fn what_somebody_has_staged_stays_staged() {
    let repository = Repository::with(&[("a", "1\n"), ("b", "1\n"), ("c", "1\n")]);
    repository.puts("b", "staged\n");
    repository.git("add b");
    repository.writes("blue", "a", "2\n");
    repository.puts("c", "staged\n");
    repository.git("add c");
    repository.puts("c", "1\n");
    repository.writes("blue", "c", "3\n");
    let (mut paths, _) = repository.commits("blue");
    paths.sort();
    assert_eq!(paths, ["a", "c"]);
    assert_eq!(repository.git("show --format= --name-only HEAD"), "a\nc");
    assert_eq!(repository.git("diff --cached --name-only"), "b\nc");
    assert_eq!(repository.git("show :c"), "staged");
    assert_eq!(repository.status(), "M  b\nMM c");
}

#[test]
fn a_staged_file_in_the_place_of_a_folder_does_not_stop_a_commit() {
    let repository = Repository::with(&[("f/a", "1\n"), ("g", "1\n")]);
    let staged = repository.git("rev-parse HEAD:g");
    repository.git("rm -q -r --cached f g");
    for path in ["f", "g/b"] {
        repository.git(&format!("update-index --add --cacheinfo 100644,{staged},{path}"));
    }
    repository.writes("blue", "f/a", "2\n");
    repository.writes("blue", "g", "2\n");
    let (mut paths, _) = repository.commits("blue");
    paths.sort();
    assert_eq!(paths, ["f/a", "g"]);
    assert_eq!(repository.git("ls-tree -r --name-only HEAD"), "f/a\ng");
    assert_eq!(repository.git("diff --cached --name-status"), "A\tf\nD\tf/a\nD\tg\nA\tg/b");
}

#[test]
fn a_staged_submodule_stays_staged() {
    let repository = Repository::with(&[("a", "1\n")]);
    let commits = |name: &str| {
        repository
            .git(&format!("-C {name} -c user.name=A -c user.email=a@b commit -q --allow-empty -m other"));
    };
    repository.git("init -q -b main other");
    commits("other");
    repository.git("-c protocol.file.allow=always submodule --quiet add ./other sub");
    repository.git("commit -q -m submodule");
    commits("sub");
    repository.git("add sub");
    repository.writes("blue", "a", "2\n");
    assert_eq!(repository.commits("blue").0, ["a"]);
    assert_eq!(repository.git("show --format= --name-only HEAD"), "a");
    assert_eq!(repository.git("diff --cached --name-only"), "sub");
}

#[test]
fn a_conflict_that_somebody_has_left_in_the_index_does_not_stop_a_commit() {
    let repository = Repository::with(&[("a", "1\n"), ("b", "1\n")]);
    repository.puts("b", "stashed\n");
    repository.git("stash -q");
    repository.puts("b", "2\n");
    repository.git("commit -q -a -m second");
    let mut pop = Command::new("git");
    assert!(!pop.arg("-C").arg(&repository.root).args(["stash", "pop"]).output().unwrap().status.success());
    repository.writes("blue", "a", "2\n");
    assert_eq!(repository.commits("blue").0, ["a"]);
    assert_eq!(repository.git("show --format= --name-only HEAD"), "a");
    assert_eq!(repository.status(), "UU b");
}

/// git compares only the second of a file's times. It looks at the bytes of a file that was changed in the second of the index, or later.
#[test]
fn a_file_that_was_changed_in_the_second_of_the_index_still_counts_as_changed() {
    for staged in ["f", "p"] {
        let repository = Repository::with(&[("a", "1\n"), ("f", "1\n"), ("p", "1\n")]);
        // Otherwise git would compare a time that cannot be set.
        repository.git("config core.trustctime false");
        let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let dates = |path: &str| {
            fs::File::options()
                .write(true)
                .open(repository.root.join(path))
                .unwrap()
                .set_modified(second)
                .unwrap();
        };
        if staged == "f" {
            repository.puts("f", "2\n");
        }
        dates("f");
        dates("p");
        repository.git("add f p");
        dates(".git/index");
        repository.puts("p", "3\n");
        dates("p");
        repository.writes("blue", "a", "2\n");
        assert_eq!(repository.commits("blue").0, ["a"]);
        let expected = if staged == "f" { "M  f\n M p" } else { " M p" };
        assert_eq!(repository.status(), expected);
    }
}

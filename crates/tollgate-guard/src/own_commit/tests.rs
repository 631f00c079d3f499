//! Stories in real repositories: who has changed what, and what each commit has.

mod staged;
mod together;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::gate::Gate;
use crate::guard::Expected;
use crate::path::FilePath;
use crate::turn::{Extent, FileState, Turn, TurnState};
use crate::workspace::{Options, Workspace};
use tollgate_base::digest::Digest;
use tollgate_base::name::{Agent, TurnId};

/// A repository that is a workspace.
struct Repository {
    _keep: TempDir,
    gate: Gate,
    root: PathBuf,
}

impl Repository {
    /// With one commit, which has these files.
    fn with(files: &[(&str, &str)]) -> Self {
        let repository = Self::unborn();
        for (path, text) in files {
            repository.puts(path, text);
        }
        repository.git("add -A");
        repository.git("commit -q --allow-empty -m first");
        repository
    }

    fn unborn() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap().join("w");
        fs::create_dir(&root).unwrap();
        let gate = {
            let init = Command::new("git").args(["init", "-q", "-b", "main"]).arg(&root).status().unwrap();
            assert!(init.success());
            Gate::new(Workspace::open(&root, Options::default()).unwrap())
        };
        let repository = Self { _keep: keep, gate, root };
        repository.puts(".git/info/exclude", ".tollgate\n");
        for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.org")] {
            repository.git(&format!("config {key} {value}"));
        }
        repository
    }

    #[track_caller]
    fn git(&self, line: &str) -> String {
        let output = Command::new("git").arg("-C").arg(&self.root).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "git {line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Writes a file without tollgate.
    fn puts(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The turn sees HEAD: its path, and its hash.
    fn shows_head(&self, turn: &Turn) -> (FilePath, Digest) {
        let head = FilePath::trusted(self.root.join(".git/HEAD"));
        let known = Digest::of(&fs::read(&head).unwrap());
        turn.observe(&head, FileState::Present(known), Extent::Whole).unwrap();
        (head, known)
    }

    fn turn(&self, agent: &str) -> Turn {
        Turn::begin(TurnId::new().unwrap(), agent.parse::<Agent>().unwrap())
    }

    #[track_caller]
    fn writes(&self, agent: &str, path: &str, text: &str) {
        let turn = self.turn(agent);
        self.gate.write(&turn, path, text, Expected::Baseline).unwrap().into_result().unwrap();
    }

    #[track_caller]
    fn deletes(&self, agent: &str, path: &str) {
        self.gate.delete(&self.turn(agent), path, Expected::Baseline).unwrap().into_result().unwrap();
    }

    #[track_caller]
    fn moves(&self, agent: &str, from: &str, to: &str) {
        self.gate.move_file(&self.turn(agent), from, to, Expected::Baseline).unwrap().into_result().unwrap();
    }

    /// Commits, while others may do so, too.
    fn tries(&self, agent: &str) -> CommitAnswer {
        let turn = self.turn(agent);
        self.gate.commit_own(&request(self, &turn)).unwrap().into_result().unwrap()
    }

    #[track_caller]
    fn asks(&self, agent: &str, paths: &[&str], dry_run: bool) -> CommitAnswer {
        let turn = self.turn(agent);
        let paths: Vec<PathBuf> = paths.iter().map(|path| self.root.join(path)).collect();
        let request = CommitRequest { paths: &paths, dry_run, ..request(self, &turn) };
        let answer = self.gate.commit_own(&request).unwrap().into_result().unwrap();
        let left =
            crate::disk::gone_is_none(tollgate_base::file::names_in(&self.root.join(".tollgate/commits")));
        assert!(left.unwrap().unwrap_or_default().is_empty(), "the private folder stays");
        assert!(!self.root.join(".git/index.lock").exists());
        answer
    }

    /// Commits, and returns the paths and what was left.
    #[track_caller]
    fn commits(&self, agent: &str) -> (Vec<String>, Vec<Left>) {
        match self.asks(agent, &[], false) {
            CommitAnswer::Commit(commit) => {
                assert_eq!(commit.commit.as_deref(), Some(self.git("rev-parse HEAD").as_str()));
                (commit.paths, commit.left)
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn nothing(&self, agent: &str) -> Vec<Left> {
        let before = self.git("rev-parse HEAD");
        let CommitAnswer::Nothing(left) = self.asks(agent, &[], false) else {
            panic!("something was committed")
        };
        assert_eq!(self.git("rev-parse HEAD"), before);
        left
    }

    /// HEAD's file.
    fn head(&self, path: &str) -> String {
        let shown =
            Command::new("git").arg("-C").arg(&self.root).arg("show").arg(format!("HEAD:{path}")).output();
        String::from_utf8(shown.unwrap().stdout).unwrap()
    }

    fn status(&self) -> String {
        self.git("status --porcelain --untracked-files=all")
    }
}

/// The commit of everything, by the agent of this turn, which also has the texts.
fn request<'a>(repository: &'a Repository, turn: &'a Turn) -> CommitRequest<'a> {
    CommitRequest {
        turn,
        turns: &[],
        folder: &repository.root,
        paths: &[],
        message: Some("changes"),
        dry_run: false,
        output: HookOutput::Answer,
        hooks: RepositoryHooks::Run,
    }
}

fn ten(changes: &[(usize, &str)]) -> String {
    let line = |number: usize| {
        let changed = changes.iter().find(|(at, _)| *at == number);
        changed.map_or_else(|| format!("line {number}\n"), |(_, text)| format!("{text}\n"))
    };
    (1..=10).map(line).collect()
}

#[test]
fn a_commit_has_the_agents_own_files_and_no_others() {
    let repository = Repository::with(&[("a", "1\n"), ("b", "1\n"), ("c", "1\n")]);
    repository.writes("blue", "a", "2\n");
    repository.writes("blue", "new/d", "new\n");
    repository.writes("red", "b", "2\n");
    repository.puts("c", "a person's\n");
    assert_eq!(repository.commits("blue"), (vec!["a".to_owned(), "new/d".to_owned()], vec![]));
    assert_eq!(repository.git("show --format= --name-only HEAD"), "a\nnew/d");
    assert_eq!(repository.status(), " M b\n M c", "nothing is staged, neither forward nor back");
    assert_eq!(repository.git("rev-parse HEAD~1").len(), 40);
    assert_eq!(repository.nothing("blue"), vec![]);
    assert_eq!(repository.commits("red").0, ["b"]);
    assert_eq!(repository.status(), " M c");
    repository.git("fsck --strict");
}

#[test]
fn deletions_moves_modes_and_links_are_changes_too() {
    let repository =
        Repository::with(&[("gone", "1\n"), ("from", "1\n2\n"), ("script", "#!/bin/sh\n"), ("x/y", "y\n")]);
    repository.deletes("blue", "gone");
    repository.moves("blue", "from", "to");
    repository.writes("blue", "to", "1\n2\n3\n");
    repository.writes("blue", "script", "#!/bin/sh\ntrue\n");
    fs::set_permissions(repository.root.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut paths = repository.commits("blue").0;
    paths.sort();
    assert_eq!(paths, ["from", "gone", "script", "to"]);
    assert_eq!(repository.git("ls-tree --name-only -r HEAD"), "script\nto\nx/y");
    assert!(repository.git("ls-tree HEAD script").starts_with("100755"));
    assert_eq!(repository.status(), "");
}

#[test]
fn in_a_file_of_two_agents_each_commits_its_own_lines() {
    let repository = Repository::with(&[("f", &ten(&[]))]);
    repository.writes("blue", "f", &ten(&[(2, "blue")]));
    repository.writes("red", "f", &ten(&[(2, "blue"), (8, "red")]));
    assert_eq!(repository.commits("red"), (vec!["f".to_owned()], vec![]));
    assert_eq!(repository.head("f"), ten(&[(8, "red")]));
    assert_eq!(fs::read_to_string(repository.root.join("f")).unwrap(), ten(&[(2, "blue"), (8, "red")]));
    assert_eq!(repository.status(), " M f");
    assert_eq!(repository.nothing("red"), vec![]);
    assert_eq!(repository.commits("blue").0, ["f"]);
    assert_eq!(repository.head("f"), ten(&[(2, "blue"), (8, "red")]));
    assert_eq!(repository.status(), "");
}

#[test]
fn an_edit_of_a_person_before_or_between_is_not_committed() {
    let repository = Repository::with(&[("f", &ten(&[])), ("g", &ten(&[]))]);
    repository.puts("f", &ten(&[(1, "person")]));
    repository.writes("blue", "f", &ten(&[(1, "person"), (9, "blue")]));
    repository.writes("blue", "g", &ten(&[(9, "blue")]));
    repository.puts("g", &ten(&[(1, "person"), (9, "blue")]));
    repository.writes("blue", "g", &ten(&[(1, "person"), (5, "blue"), (9, "blue")]));
    assert_eq!(repository.commits("blue").0, ["f"]);
    assert_eq!(repository.head("f"), ten(&[(9, "blue")]));
}

#[test]
fn what_cannot_be_told_apart_is_left_with_the_other_author() {
    let repository = Repository::with(&[("f", "1\n"), ("g", "1\n")]);
    repository.writes("red", "f", "red\n");
    repository.writes("blue", "f", "red and blue\n");
    let left = repository.nothing("blue");
    assert_eq!(
        left,
        [Left { path: "f".into(), agent: Some("red".parse().unwrap()), why: WhyLeft::Conflict }]
    );
    repository.writes("blue", "g", "2\n");
    let (paths, left) = repository.commits("blue");
    assert_eq!((paths, left.len()), (vec!["g".to_owned()], 1));
    assert_eq!(repository.head("f"), "1\n");
    // The whole of it was not committed, so an older change is still found.
    repository.git("commit -q -m f -- f");
    assert_eq!(repository.nothing("blue"), vec![]);
}

#[test]
fn a_file_that_two_agents_have_made_is_not_committed_by_the_second() {
    let repository = Repository::with(&[]);
    repository.writes("red", "new", "red\n");
    repository.writes("blue", "new", "red\nblue\n");
    assert_eq!(repository.nothing("blue").len(), 1);
    assert_eq!(repository.commits("red").0, ["new"]);
    assert_eq!(repository.head("new"), "red\n");
    assert_eq!(repository.commits("blue").0, ["new"]);
    assert_eq!(repository.head("new"), "red\nblue\n");
}

#[test]
fn only_the_named_paths_are_committed() {
    let repository = Repository::with(&[]);
    for path in ["a", "d/x", "d/y", "e/z"] {
        repository.writes("blue", path, "1\n");
    }
    let CommitAnswer::Commit(commit) = repository.asks("blue", &["d", "a"], false) else { panic!() };
    assert_eq!(commit.paths, ["a", "d/x", "d/y"]);
    assert_eq!(repository.status(), "?? e/z");
    assert_eq!(repository.commits("blue").0, ["e/z"]);
}

#[test]
fn a_dry_run_changes_nothing() {
    let repository = Repository::with(&[("a", "1\n")]);
    repository.writes("blue", "a", "2\n");
    let index = fs::read(repository.root.join(".git/index")).unwrap();
    let CommitAnswer::Commit(commit) = repository.asks("blue", &[], true) else { panic!() };
    assert_eq!((commit.commit, commit.paths), (None, vec!["a".to_owned()]));
    assert_eq!(fs::read(repository.root.join(".git/index")).unwrap(), index);
    assert_eq!(repository.git("rev-list --count HEAD"), "1");
}

#[test]
fn before_the_first_commit_and_without_a_branch_commits_work() {
    let repository = Repository::unborn();
    repository.writes("blue", "a", "1\n");
    repository.puts("staged", "1\n");
    repository.git("add staged");
    let (paths, _) = repository.commits("blue");
    assert_eq!(paths, ["a"]);
    assert_eq!(repository.status(), "A  staged");
    repository.git("switch -q --detach");
    repository.writes("blue", "a", "2\n");
    let CommitAnswer::Commit(commit) = repository.asks("blue", &[], false) else { panic!() };
    assert_eq!(commit.branch, None);
    assert_eq!(repository.git("rev-list --count HEAD"), "2");
    assert_eq!(repository.git("rev-list --count main"), "1");
}

#[test]
fn in_a_merge_nothing_is_committed() {
    let repository = Repository::with(&[("a", "1\n")]);
    repository.git("switch -q -c other");
    repository.puts("b", "1\n");
    repository.git("add b");
    repository.git("commit -q -m other");
    repository.git("switch -q main");
    repository.git("commit -q --allow-empty -m main");
    repository.git("merge -q --no-commit other");
    repository.writes("blue", "a", "2\n");
    assert_eq!(repository.asks("blue", &[], false), CommitAnswer::Cannot(CannotCommit::InProgress("merge")));
    assert_eq!(repository.git("rev-list --count HEAD"), "2");
}

#[test]
fn a_branch_that_somebody_else_has_switched_gets_no_commit() {
    let repository = Repository::with(&[("a", "1\n")]);
    let turn = repository.turn("blue");
    let (_, known) = repository.shows_head(&turn);
    repository.writes("blue", "a", "2\n");
    repository.git("switch -q -c other");
    let request = request(&repository, &turn);
    let refused = repository.gate.commit_own(&request).unwrap().into_result().unwrap_err();
    let payload = refused.payload();
    assert_eq!(payload.error_type.as_str(), "STALE_FILE");
    assert!(payload.file_path.ends_with("/.git/HEAD"), "{payload:?}");
    assert_eq!(payload.expected_hash, Some(known));
    repository.git("switch -q main");
    assert!(repository.gate.commit_own(&request).unwrap().into_result().is_ok());
}

#[test]
fn a_commit_on_another_branch_is_made_if_the_settings_only_observe() {
    for (mode, observed) in [("observe", 1), ("off", 0)] {
        let mut repository = Repository::with(&[("a", "1\n")]);
        repository.writes("blue", "a", "2\n");
        let turn = repository.turn("blue");
        repository.shows_head(&turn);
        repository.git("switch -q -c other");
        repository.puts(".tollgate/config.toml", &format!("[guard]\nmode = \"{mode}\"\n"));
        repository.gate = Gate::new(Workspace::open(&repository.root, Options::default()).unwrap());
        let answer = repository.gate.commit_own(&request(&repository, &turn)).unwrap().into_result();
        assert!(matches!(answer, Ok(CommitAnswer::Commit(_))), "{mode}: {answer:?}");
        assert_eq!(repository.git("rev-list --count HEAD"), "2", "{mode}");
        let ledger = fs::read_to_string(repository.root.join(".tollgate/ledger.jsonl")).unwrap();
        assert_eq!(ledger.matches("OBSERVED").count(), observed, "{mode}: {ledger}");
    }
}

#[test]
fn line_endings_filters_and_odd_names_are_gits_own() {
    let repository =
        Repository::with(&[(".gitattributes", "*.txt text eol=crlf\n"), ("a.txt", "1\r\n2\r\n")]);
    repository.writes("blue", "a.txt", "1\r\n2\r\n3\r\n");
    repository.writes("blue", "ä b 'c'\n.txt", "1\r\n");
    symlink("a.txt", repository.root.join("link")).unwrap();
    assert_eq!(repository.commits("blue").0.len(), 2);
    assert_eq!(repository.git("cat-file blob HEAD:a.txt"), "1\n2\n3");
    assert_eq!(repository.status(), "?? link");
}

#[test]
fn the_name_of_a_file_is_no_pattern() {
    let repository = Repository::with(&[("*", "1\n"), (":(glob)**", "1\n"), ("a", "1\n")]);
    repository.writes("blue", "*", "2\n");
    repository.writes("blue", ":(glob)**", "2\n");
    repository.writes("green", "a", "2\n");
    assert_eq!(repository.commits("blue").0, ["*", ":(glob)**"]);
    assert_eq!(repository.status(), " M a");
}

#[test]
fn linked_trees_are_trees_of_their_own() {
    let repository = Repository::with(&[("a", "1\n")]);
    repository.git("worktree add -q -b side tree");
    repository.writes("blue", "tree/a", "2\n");
    repository.writes("blue", "a", "3\n");
    let CommitAnswer::Commit(commit) = repository.asks("blue", &["tree"], false) else { panic!() };
    assert_eq!((commit.branch.as_deref(), commit.paths), (Some("side"), vec!["tree/a".to_owned()]));
    assert_eq!(repository.git("-C tree status --porcelain"), "");
    assert_eq!(repository.git("show side:a"), "2");
    assert_eq!(repository.commits("blue").0, ["a"]);
    assert_eq!(repository.git("show main:a"), "3");
}

#[test]
fn in_a_submodule_the_commit_is_the_submodules() {
    let repository = Repository::with(&[("a", "1\n")]);
    repository.git("init -q -b main other");
    repository.git("-C other -c user.name=A -c user.email=a@b commit -q --allow-empty -m other");
    repository.git("-c protocol.file.allow=always submodule --quiet add ./other sub");
    repository.git("-C sub config user.name Ada");
    repository.git("-C sub config user.email ada@example.org");
    repository.git("commit -q -m submodule");
    repository.writes("blue", "sub/x", "1\n");
    assert_eq!(repository.nothing("blue"), vec![]);
    let CommitAnswer::Commit(commit) = repository.asks("blue", &["sub"], false) else { panic!() };
    assert_eq!(commit.paths, ["sub/x"]);
    assert_eq!(repository.git("-C sub status --porcelain"), "");
    assert_eq!(repository.git("-C sub show HEAD:x"), "1");
}

#[test]
fn files_outside_of_a_sparse_checkout_stay_in_the_commit() {
    let repository = Repository::with(&[("in/a", "1\n"), ("out/b", "1\n")]);
    repository.git("sparse-checkout set in");
    repository.writes("blue", "in/a", "2\n");
    assert_eq!(repository.commits("blue").0, ["in/a"]);
    assert_eq!(repository.git("ls-tree -r --name-only HEAD"), "in/a\nout/b");
    assert_eq!(repository.status(), "");
    assert!(!repository.root.join("out").exists());
}

#[test]
fn an_old_change_that_was_committed_with_git_and_reverted_is_not_committed_again() {
    let repository = Repository::with(&[("f", &ten(&[]))]);
    // A turn that still has the texts.
    let turn = repository.turn("blue");
    repository
        .gate
        .write(&turn, "f", ten(&[(2, "blue")]), Expected::Baseline)
        .unwrap()
        .into_result()
        .unwrap();
    repository.git("commit -q -a -m with-git");
    repository.git("revert --no-edit HEAD");
    repository.puts("f", &ten(&[(9, "person")]));
    let commit = || repository.gate.commit_own(&request(&repository, &turn)).unwrap().into_result().unwrap();
    assert_eq!(commit(), CommitAnswer::Nothing(vec![]));
    repository.gate.read(&turn, "f", crate::part::Part::Whole).unwrap().into_result().unwrap();
    let both = ten(&[(5, "blue"), (9, "person")]);
    repository.gate.write(&turn, "f", both, Expected::Baseline).unwrap().into_result().unwrap();
    assert!(matches!(commit(), CommitAnswer::Commit(_)));
    assert_eq!(repository.head("f"), ten(&[(5, "blue")]));
}

#[test]
fn a_commit_that_was_reset_away_can_be_made_again() {
    let repository = Repository::with(&[("a", "1\n")]);
    repository.writes("blue", "a", "2\n");
    repository.commits("blue");
    repository.git("reset -q HEAD~1");
    assert_eq!(repository.commits("blue").0, ["a"]);
    assert_eq!(repository.status(), "");
}

#[test]
fn the_trailer_names_the_agent_if_the_settings_say_so() {
    let repository = Repository::with(&[("a", "1\n")]);
    repository.puts(".tollgate/config.toml", "[git]\ncommit_trailers = true\n");
    let gate = Gate::new(Workspace::open(&repository.root, Options::default()).unwrap());
    let repository = Repository { gate, ..repository };
    repository.writes("blue", "a", "2\n");
    repository.commits("blue");
    assert_eq!(repository.git("log -1 --format=%B"), "changes\n\nTollgate-Agent: blue");
}

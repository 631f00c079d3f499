//! Commits beside the hooks of the repository, and beside the commits of others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::{CannotCommit, CommitAnswer, Extent, FileState, Repository, TurnState, request, ten};

#[test]
fn hooks_run_as_for_git_commit_and_may_refuse_or_add() {
    let repository = Repository::with(&[("a", "1\n"), ("list", "")]);
    let hook = |name: &str, script: &str| {
        let path = repository.root.join(".git/hooks").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    repository.writes("blue", "a", "2\n");
    hook("pre-commit", "echo not today >&2; exit 1");
    let CommitAnswer::Cannot(CannotCommit::Git(said)) = repository.asks("blue", &[], false) else { panic!() };
    assert_eq!(said, "not today");
    assert_eq!(repository.status(), " M a");
    hook("pre-commit", "git diff --cached --name-only >list && git add list");
    hook("commit-msg", "echo checked >>\"$1\"");
    hook("post-commit", "echo \"$0 $(git config core.hooksPath)\" >ran; git branch seen");
    hook("reference-transaction", "cat >/dev/null; echo $1 >>transactions");
    let (mut paths, _) = repository.commits("blue");
    paths.sort();
    assert_eq!(paths, ["a", "list"]);
    assert_eq!(repository.head("list"), "a\n");
    assert_eq!(repository.git("log -1 --format=%B"), "changes\nchecked");
    assert_eq!(fs::read_to_string(repository.root.join("ran")).unwrap(), ".git/hooks/post-commit \n");
    assert!(fs::read_to_string(repository.root.join("transactions")).unwrap().contains("prepared"));
    assert_eq!(repository.git("rev-parse seen"), repository.git("rev-parse HEAD"));
    assert_eq!(repository.status(), "?? ran\n?? transactions");
}

/// A filter of `a` that runs this command once, when the commit is being made.
fn slow_filter(repository: &Repository, command: &str) {
    let filter = repository.root.join(".git/slow");
    let is_now = "[ -e \"${GIT_INDEX_FILE%/*}/note\" ] && [ ! -e .git/saved ]";
    let script = format!("#!/bin/sh\n{is_now} && {command} && >.git/saved\nexec cat\n");
    fs::write(&filter, script).unwrap();
    fs::set_permissions(&filter, fs::Permissions::from_mode(0o755)).unwrap();
    repository.git("config filter.slow.clean .git/slow");
}

#[test]
fn a_file_that_is_saved_while_git_reads_the_files_is_not_committed_unseen() {
    let repository = Repository::with(&[(".gitattributes", "a filter=slow\n"), ("a", "1\n"), ("b", "1\n")]);
    repository.writes("blue", "a", "2\n");
    repository.writes("blue", "b", "2\n");
    slow_filter(&repository, "echo late >b");
    assert_eq!(repository.commits("blue").0, ["a"]);
    assert!(repository.root.join(".git/saved").exists());
    assert_eq!((repository.head("a"), repository.head("b")), ("2\n".to_owned(), "1\n".to_owned()));
    assert_eq!(fs::read_to_string(repository.root.join("b")).unwrap(), "late\n");
    assert_eq!(repository.status(), " M b");
}

#[test]
fn a_deleted_file_that_comes_back_while_git_reads_the_files_is_not_committed() {
    let repository = Repository::with(&[(".gitattributes", "a filter=slow\n"), ("a", "1\n"), ("b", "1\n")]);
    repository.writes("blue", "a", "2\n");
    repository.deletes("blue", "b");
    slow_filter(&repository, "echo theirs >b");
    repository.commits("blue");
    assert_eq!(fs::read_to_string(repository.root.join("b")).unwrap(), "theirs\n");
    assert!(!repository.git("log -p --format=").contains("theirs"));
}

#[test]
fn a_file_that_somebody_has_made_again_is_not_committed_by_the_agent_that_deleted_it() {
    let repository = Repository::with(&[("a", "1\n"), ("b", "1\n")]);
    repository.deletes("blue", "a");
    repository.writes("blue", "b", "2\n");
    repository.puts("a", "theirs\n");
    repository.commits("blue");
    assert_eq!(repository.head("b"), "2\n");
    assert!(!repository.git("log -p --format=").contains("theirs"));
    assert_eq!(fs::read_to_string(repository.root.join("a")).unwrap(), "theirs\n");
}

#[test]
fn a_commit_of_somebody_else_in_between_is_not_undone() {
    let repository = Repository::with(&[("a", "1\n"), ("b", "1\n")]);
    repository.writes("blue", "a", "2\n");
    repository.puts("b", "2\n");
    // The hook of the first try commits, as somebody else could at this moment.
    let hook = repository.root.join(".git/hooks/pre-commit");
    let script = "#!/bin/sh\n[ -e once ] && exit 0\n: >once\nunset GIT_INDEX_FILE\ngit commit -q --no-verify -m foreign -- b\n";
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(repository.commits("blue").0, ["a"]);
    assert_eq!(repository.git("log --format=%s"), "changes\nforeign\nfirst");
    assert_eq!((repository.head("a"), repository.head("b")), ("2\n".into(), "2\n".into()));
    assert_eq!(repository.status(), "?? once");
}

#[test]
fn a_switch_of_the_branch_in_between_gets_no_commit_of_the_other() {
    let repository = Repository::with(&[("a", "1\n")]);
    repository.writes("blue", "a", "2\n");
    let hook = repository.root.join(".git/hooks/pre-commit");
    fs::write(&hook, "#!/bin/sh\nunset GIT_INDEX_FILE\ngit switch -q -c other-$$\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(repository.asks("blue", &[], false), CommitAnswer::Cannot(CannotCommit::Moved));
    assert_eq!(repository.git("rev-list --count --all"), "1");
    assert_eq!(repository.status(), " M a");
}

#[test]
fn a_switch_of_the_branch_in_between_is_refused_to_a_turn_that_knows_the_branch() {
    let repository = Repository::with(&[("a", "1\n")]);
    let turn = repository.turn("blue");
    let (head, known) = repository.shows_head(&turn);
    repository.writes("blue", "a", "2\n");
    let hook = repository.root.join(".git/hooks/pre-commit");
    let script = "#!/bin/sh\n[ -e once ] && exit 0\n: >once\nunset GIT_INDEX_FILE\ngit switch -q -c other\n";
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let answer = repository.gate.commit_own(&request(&repository, &turn)).unwrap();
    let payload = answer.into_result().unwrap_err().payload();
    assert!(payload.file_path.ends_with("/.git/HEAD"), "{payload:?}");
    assert_eq!(repository.git("rev-list --count --all"), "1");
    assert_eq!(turn.get(&head).unwrap().unwrap().baseline(Extent::Whole), FileState::Present(known));
}

#[test]
fn agents_and_a_person_who_commit_at_the_same_time_lose_nothing() {
    const ROUNDS: usize = 8;
    let repository = Repository::with(&[("f", &ten(&[])), ("p", "start\n")]);
    std::thread::scope(|scope| {
        for agent in ["blue", "red"] {
            let repository = &repository;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    repository.writes(agent, &format!("{agent}-{round}"), "1\n");
                    // Others may be faster more often than it tries.
                    while let CommitAnswer::Cannot(why) = repository.tries(agent) {
                        assert!(!matches!(why, CannotCommit::InProgress(_)), "{why:?}");
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0..ROUNDS {
                repository.puts("p", &format!("{round}\n"));
                let commit = || {
                    let mut command = Command::new("git");
                    command.arg("-C").arg(&repository.root).args(["commit", "-q", "-m", "person", "--", "p"]);
                    command.output().unwrap().status.success()
                };
                while !commit() {}
            }
        });
    });
    assert_eq!(repository.git("rev-list --count HEAD"), (3 * ROUNDS + 1).to_string());
    assert_eq!(repository.git("ls-tree -r --name-only HEAD").lines().count(), 2 * ROUNDS + 2);
    for commit in repository.git("log --format=%H --author=Ada --grep=changes").lines() {
        assert_eq!(repository.git(&format!("show --format= --name-only {commit}")).lines().count(), 1);
    }
    assert_eq!(repository.status(), "");
    repository.git("fsck --strict");
}

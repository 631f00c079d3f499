//! Tables of the commands of git and of patches, and of programs whose options look like files.

use std::fs;

use super::Here;

#[test]
fn git_changes_files_by_its_own_patterns_and_leaves_them_alone_in_the_index() {
    let here = Here::new();
    fs::create_dir(here.keep.path().join(".git")).unwrap();
    for command in [
        "git checkout main -- 'a.*'",
        "git checkout main -- :/",
        "cd sub && git restore -s main :/",
        "git rm -qf '*.txt'",
        "git checkout -f main",
        "git reset --hard HEAD~1",
        "cd sub; git checkout main --pathspec-from-file=list",
    ] {
        assert_eq!(here.changes(command), [""], "{command}");
    }
    for command in
        ["git restore --staged a.txt", "git rm --cached a.txt", "git checkout main", "git reset a.txt"]
    {
        assert_eq!(here.changes(command), Vec::<String>::new(), "{command}");
    }
    assert_eq!(here.changes("rm e.txt; git checkout -- e.txt"), ["e.txt"]);
    assert_eq!(here.changes("git restore -SW a.txt"), ["a.txt"]);
    assert_eq!(here.changes("git checkout -- 'sub/*'"), ["sub"]);
    assert_eq!(here.changes("git checkout -f -- a.txt"), ["a.txt"]);
    let staged = "git restore --staged --pathspec-from-file=list";
    assert_eq!(here.changes(staged), Vec::<String>::new());
    assert_eq!(
        here.effects("find .git/hooks -type f -delete").touched,
        [here.keep.path().join(".git/hooks")]
    );
}

#[test]
fn the_files_of_a_diff_are_changed() {
    let here = Here::new();
    let diff =
        "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+y\n--- a/sub/y\t2026-01-01\n+++ b/sub/y\t2026-01-01\n";
    fs::write(here.keep.path().join("fix.patch"), diff).unwrap();
    for command in [
        "patch -p1 < fix.patch",
        "patch -p1 -i fix.patch",
        "git apply fix.patch",
        "git apply --3way fix.patch",
    ] {
        assert_eq!(here.changes(command), ["a.txt~", "sub/y~"], "{command}");
    }
    for command in ["patch -p1", "git apply"] {
        assert_eq!(here.changes(&format!("{command} <<'E'\n{diff}E")), ["a.txt~", "sub/y~"], "{command}");
    }
    for command in ["git apply --check fix.patch", "patch -p1 --dry-run < fix.patch"] {
        assert_eq!(here.changes(command), Vec::<String>::new(), "{command}");
    }
}

#[test]
fn modes_and_outputs_are_told_from_files() {
    let here = Here::new();
    for command in [
        "chmod -x a.txt",
        "chmod -w a.txt",
        "chmod a-x a.txt",
        "chmod -R -rwx a.txt",
        "chmod -R 644 a.txt",
        "chmod -- -x a.txt",
        "chmod --reference=b.txt a.txt",
        "chmod --reference b.txt a.txt",
        "chown --reference=b.txt a.txt",
        "chown --from=u:g v a.txt",
        "chgrp g a.txt",
    ] {
        let touched = here.effects(command).touched;
        assert_eq!(touched.iter().map(|path| here.short(path)).collect::<Vec<_>>(), ["a.txt"], "{command}");
    }
    for command in [
        "git checkout -m a.txt",
        "git checkout -m -- a.txt",
        "git checkout -b new a.txt",
        "git restore -s main a.txt",
        "git rm -f a.txt",
        "sort -o a.txt b.txt",
        "sort -oa.txt b.txt",
        "sort b.txt -uo a.txt > /dev/null",
        "sort --output=a.txt b.txt",
        "sort --output a.txt -k 2 b.txt | cat",
    ] {
        assert_eq!(here.changes(command), ["a.txt"], "{command}");
    }
    assert_eq!(here.reads("sort -k 2 b.txt"), ["b.txt~"]);
    assert!(here.effects("sort -o $X b.txt").vague);
}

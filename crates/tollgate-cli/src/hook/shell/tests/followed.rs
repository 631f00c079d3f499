//! What is followed: folders, functions, variables, and programs that run or name others.

use super::*;

/// Where the folder is not certain, each that it may be counts.
#[test]
fn a_file_is_changed_in_every_folder_that_may_be_the_current_one() {
    let here = Here::new();
    let mut missed = Vec::new();
    for (command, changed) in [
        ("if [ -d sub ]; then cd sub; fi; rm -f *", "sub/y"),
        ("if [ -d sub ]; then cd sub; fi; rm -f *", "a.txt"),
        ("npm ci && cd sub; rm -f *", "sub/y"),
        ("npm ci && cd sub; echo x > y", "sub/y"),
        ("pushd sub; ls; popd; rm -f *.txt", "a.txt"),
        ("for d in sub; do cd $d; done; rm -f y", "sub/y"),
        ("cd nosuch; rm -f a.txt", "a.txt"),
        ("cd nosuch || rm *.txt", "a.txt"),
        ("echo x > \"$(pwd)/a.txt\"", "a.txt"),
        ("ROOT=$(pwd); cd sub; rm $ROOT/a.txt", "a.txt"),
        ("echo x > \"${F:-a.txt}\"", "a.txt"),
        ("OUT=${OUT:-a.txt}; echo x > $OUT", "a.txt"),
        ("F=b.txt; echo x > \"${F:-a.txt}\"", "b.txt"),
        ("F=; echo x > \"${F:-a.txt}\"", "a.txt"),
        ("f() { echo x; } > a.txt; f", "a.txt"),
    ] {
        if !here.changes(command).contains(&changed.into()) {
            missed.push((command, here.changes(command)));
        }
    }
    assert_eq!(missed, Vec::new());
    assert_eq!(here.changes("F=$(cat b.txt); echo x > \"${F:-a.txt}\""), Vec::<String>::new());
    for command in [
        "true && F=b.txt; echo x > \"${F:-a.txt}\"",
        "export F=b.txt; bash -c 'echo x > \"${F:-a.txt}\"'",
        "set -- $(cat b.txt); echo x > \"${1:-a.txt}\"",
        "echo x > ${F:-~/a.txt}",
    ] {
        assert_eq!(here.changes(command), Vec::<String>::new(), "{command}");
        assert!(here.effects(command).gave_up, "{command}");
    }
    for (command, read) in [("cat \"$(pwd)/a.txt\"", "a.txt"), ("cat \"${F:-a.txt}\"", "a.txt")] {
        assert!(here.reads(command).contains(&read.into()), "{command}: {:?}", here.reads(command));
    }
}

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
        "cd $(git rev-parse --show-toplevel) && git reset --hard",
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
fn the_files_that_find_and_xargs_hand_on_are_known() {
    let here = Here::new();
    for (command, changes) in [
        ("find . -name 'a.*' -exec sed -i s/x/y/ {} +", vec!["./a.txt~"]),
        ("find . -type f -name '*.rs' -exec rm {} \\;", vec!["./c.rs", "./d.rs"]),
        ("find sub -type f -delete", vec!["sub/y"]),
        ("find . -name '*.txt' -not -path './sub/*' | xargs rm", vec!["./a.txt", "./b.txt"]),
        ("find . -name '*.rs' -print0 | xargs -0 sed -i s/x/y/", vec!["./c.rs~", "./d.rs~"]),
        ("echo a.txt | xargs rm", vec!["a.txt"]),
        ("printf '%s\\n' a.txt | xargs -I% cp b.txt %", vec!["a.txt"]),
    ] {
        let changed: Vec<String> =
            here.changes(command).iter().map(|path| path.replace("/./", "/")).collect();
        let changes: Vec<String> = changes.iter().map(|path| path.replace("./", "")).collect();
        assert_eq!(changed, changes, "{command}");
        assert!(!here.effects(command).gave_up, "{command}");
    }
    assert_eq!(here.reads("find . -name '*.rs' -exec cat {} +"), ["c.rs", "d.rs"]);
    // These names are not known.
    for command in [
        "find . -newer b.txt -delete",
        "find \"$X\" -name a.txt -delete",
        "find . -name x -o -name a.txt -exec rm {} +",
        "xargs rm < a.txt",
        "grep -rl x . | xargs sed -i s/x/y/",
        "cd $X; find . -name a.txt -delete",
        "find . -maxdepth 1 -name y -delete",
        "N=$(basename ./a.txt); find . -name \"$N\" -exec sed -i s/a/b/ {} +",
        "tar xf up.tgz && find . -name a.txt -exec cp {} sub/ \\;",
        "echo a.txt b.txt | xargs -n1 cp c.rs",
        "find . -exec sed -i s/a/b/ {} + -name '*.md'",
        "cd \"$(dirname other/x)\"; cd sub && echo x > y",
        "cd \"$(dirname sub/y)\" && rm *.txt",
        "curl https://x | git apply",
        "git -C \"$REPO\" reset --hard",
    ] {
        assert!(here.effects(command).gave_up, "{command}");
    }
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

/// A shell stays where it is if `cd` fails.
#[test]
fn after_cd_to_a_folder_that_is_not_there_the_folder_is_not_known() {
    let here = Here::new();
    for command in [
        "cd nosuch || rm a.txt",
        "cd nosuch; rm a.txt",
        "if ! cd nosuch; then rm a.txt; fi",
        "cd nosuch && true || rm a.txt",
    ] {
        assert!(here.effects(command).gave_up, "{command}");
    }
    for command in
        ["mkdir new && cd new && rm y", "mkdir -p new/x; cd new; rm y", "cp -r sub new && cd new && rm y"]
    {
        assert!(here.changes(command).contains(&"new/y".into()), "{command}");
        assert!(!here.effects(command).gave_up, "{command}");
    }
}

/// Empty would be a value, too.
#[test]
fn an_agents_name_that_is_not_known_names_no_file() {
    let here = Here::new();
    for variable in ["OTHER", "TOLLGATE_AGENT"] {
        let command = format!("if true; then {variable}=a; fi; echo x > ${variable}.txt");
        assert!(here.effects(&command).gave_up, "{command}");
    }
}

#[test]
fn options_of_set_are_no_arguments() {
    let here = Here::new();
    for set in
        ["set +e", "set +x -u", "set +o pipefail", "set -euo pipefail", "set +eo pipefail", "set -o errexit"]
    {
        let command = format!("set -- a.txt; {set}; rm $1");
        assert_eq!(here.changes(&command), ["a.txt"], "{command}");
    }
    assert_eq!(here.changes("set +e a.txt; rm $1"), ["a.txt"]);
    assert_eq!(here.changes("set +e -- +a; rm $1"), ["+a"]);
    assert_eq!(here.changes("set a.txt -x +b; rm $3"), ["+b"]);
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
    assert!(here.effects("sort -o $X b.txt").gave_up);
}

#[test]
fn a_script_from_another_command_is_read() {
    let here = Here::new();
    for command in [
        "bash <(echo 'rm a.txt')",
        "sudo bash -x <(echo 'rm $1') a.txt",
        ". <(echo 'rm a.txt')",
        "source <(printf '%s' 'rm a.txt')",
        "source /dev/stdin <<< 'rm a.txt'",
        "echo 'rm a.txt' | . /dev/stdin",
        "bash /dev/stdin <<< 'rm a.txt'",
        "bash /dev/fd/0 a.txt <<'E'\nrm $1\nE",
    ] {
        assert_eq!(here.changes(command), ["a.txt"], "{command}");
    }
    for command in
        ["bash <(echo 'tollgate token add bob')", "source /dev/stdin <<< \"tollgate token add bob\""]
    {
        assert!(here.effects(command).people_only.is_some(), "{command}");
    }
    for command in [
        "bash <(curl x tollgate token add bob)",
        ". <(echo a; x tollgate token add bob)",
        "source <(cat \"$X\" tollgate token add bob)",
    ] {
        let effects = here.effects(command);
        assert!(effects.gave_up && effects.people_only.is_some(), "{command}");
    }
    for command in [". ./a.txt", "source \"$X/activate\"", "bash a.txt", "diff <(sort a.txt) <(sort b.txt)"] {
        assert!(!here.effects(command).gave_up, "{command}");
    }
}
#[test]
fn a_function_that_calls_itself_is_understood() {
    let here = Here::new();
    for command in [
        "walk() { for f in \"$1\"/*; do walk \"$f\"; done; cat a.txt; }; walk sub; cat b.txt",
        "walk() { cat a.txt; walk $1; walk $2; walk; }; walk sub; cat b.txt",
        "a() { cat a.txt; b; }; b() { a; }; b; cat b.txt",
    ] {
        let effects = here.effects(command);
        assert!(!effects.unclear && !effects.gave_up, "{command}");
        assert_eq!(here.reads(command), ["a.txt", "b.txt"], "{command}");
    }
    assert!(here.effects("f() { rm \"$1\"; f a.txt; }; f b.txt").gave_up);
    assert_eq!(here.changes("f() { bash -c 'f() { rm $1; }; f a.txt'; }; f"), ["a.txt"]);
}

/// `<(` is no substitution in double quotes and in the text of a here-document.
#[test]
fn brackets_after_angles_are_text_where_nothing_is_substituted() {
    let here = Here::new();
    for command in [
        "cat a.txt; rg \"Option<(\" sub",
        "cat a.txt; git commit -m \"x =>(y\"",
        "cat a.txt; node -e \"const f = (a) =>({a:1})\"",
        "cat a.txt; echo \"${x:->(}\"",
        "cat a.txt; cat > b.txt <<EOF\nconst f = (a) =>(x\nEOF",
        "cat a.txt; cat <<EOF | wc\na <(b\nEOF",
        "cat a.txt; while read x; do :; done <<EOF\na <(b\nEOF",
        "cat a.txt; echo \"a <(rm c.rs)\"; cat > b.txt <<EOF\n>(rm c.rs)\nEOF",
    ] {
        let effects = here.effects(command);
        assert!(!effects.unclear && !effects.gave_up, "{command}");
        assert_eq!(here.reads(command)[0], "a.txt", "{command}");
        assert!(!here.changes(command).contains(&"c.rs".into()), "{command}");
    }
    for command in ["echo \"$(cat <(rm c.rs))\"", "cat <<E\n$(cat <(rm c.rs))\nE"] {
        assert_eq!(here.changes(command), ["c.rs"], "{command}");
    }
}

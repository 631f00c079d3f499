//! Tables of commands and their effects.

mod bounds;
mod git;

use std::fs;
use std::path::Path;

use tollgate::turn::Extent;
use tollgate_base::glob::NamePattern;

use super::*;
use crate::hook::plan::Text;
use crate::hook::shown::has_word;

struct Here {
    keep: tempfile::TempDir,
}

impl Here {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        for file in ["a.txt", "b.txt", "c.rs", "d.rs", "sub/y", "a b"] {
            fs::create_dir_all(keep.path().join(file).parent().unwrap()).unwrap();
            fs::write(keep.path().join(file), "x").unwrap();
        }
        Self { keep }
    }

    fn effects(&self, command: &str) -> ToolPlan {
        read(command, self.keep.path(), Some(Path::new("/home/u")))
    }

    fn short(&self, path: &Path) -> String {
        path.strip_prefix(self.keep.path()).unwrap_or(path).display().to_string()
    }

    /// `a.txt` for a read of the whole file, `a.txt~` for a part.
    fn reads(&self, command: &str) -> Vec<String> {
        let sign = |extent: Extent| if extent == Extent::Whole { "" } else { "~" };
        self.effects(command).reads.iter().map(|(path, extent)| self.short(path) + sign(*extent)).collect()
    }

    fn changes(&self, command: &str) -> Vec<String> {
        let sign = |extent: Extent| if extent == Extent::Whole { "" } else { "~" };
        self.effects(command)
            .changes
            .iter()
            .map(|change| self.short(&change.path) + sign(change.extent))
            .collect()
    }

    /// Whether a stale file is refused: the command changes it, or changes a file that is not known and names this one.
    fn may_change(&self, command: &str, file: &str) -> bool {
        let plan = self.effects(command);
        let is_listed = plan.changes.iter().any(|change| self.short(&change.path) == file);
        let is_named = || {
            has_word(command, file)
                || plan.patterns.iter().any(|pattern| NamePattern::new(pattern).matches(file))
        };
        is_listed || plan.vague && is_named()
    }
}

#[test]
fn reads() {
    let here = Here::new();
    for (command, reads) in [
        ("cat a.txt", vec!["a.txt"]),
        ("cat a.txt b.txt", vec!["a.txt", "b.txt"]),
        ("cat -n 'a b' \"b.txt\"", vec!["a b", "b.txt"]),
        ("cat a\\ b", vec!["a b"]),
        ("nl -ba a.txt", vec!["a.txt"]),
        ("head -n 5 a.txt", vec!["a.txt~"]),
        ("head -5 a.txt", vec!["a.txt~"]),
        ("tail -c 100 a.txt", vec!["a.txt~"]),
        ("sed -n '1,200p' a.txt", vec!["a.txt~"]),
        ("sed -n -e 1p -e 2p a.txt b.txt", vec!["a.txt~", "b.txt~"]),
        ("rg -n x a.txt", vec!["a.txt~"]),
        ("grep -A 3 x a.txt b.txt", vec!["a.txt~", "b.txt~"]),
        ("grep -l x a.txt", vec![]),
        ("grep -r x sub", vec![]),
        ("awk '{print $1}' a.txt", vec!["a.txt~"]),
        ("jq .x a.txt", vec!["a.txt~"]),
        ("cat a.txt | head -5", vec!["a.txt"]),
        ("cat a.txt | grep x | sort", vec!["a.txt"]),
        ("cat a.txt | wc -l", vec![]),
        ("cat a.txt > b.txt", vec![]),
        ("cat a.txt 2>/dev/null", vec!["a.txt"]),
        ("cat 2>/dev/null a.txt", vec!["a.txt"]),
        ("cat /dev/shm/work/a.txt /dev/stdin", vec!["/dev/shm/work/a.txt"]),
        ("cat a.txt 2>&1 | head", vec!["a.txt"]),
        ("cat < a.txt", vec!["a.txt"]),
        ("cd sub && cat y", vec!["sub/y"]),
        ("cd sub; cat y; cd ..; cat a.txt", vec!["sub/y", "sub/../a.txt"]),
        ("(cd sub && cat y); cat a.txt", vec!["sub/y", "a.txt"]),
        ("cd $X && cat y", vec![]),
        // Another file of the same name may have been shown.
        ("ls && cd sub; cat y", vec![]),
        ("cat $X/a.txt", vec![]),
        // The value of a variable is not known.
        ("f=a.txt; cat \"$f\"", vec![]),
        ("for f in a.txt b.txt; do cat $f; done", vec![]),
        ("{ cat a.txt; } > b.txt; echo x", vec![]),
        ("if cat a.txt; then cat b.txt; fi | wc -l", vec![]),
        ("git commit -m \"$(cat <<'E'\nit's (a\nE\n)\" && cat a.txt", vec!["a.txt"]),
        ("case $x in a) cat a.txt;; *|b) cat b.txt ;; esac", vec!["a.txt", "b.txt"]),
        ("[[ a > b && ( $x =~ ^(c)$ ) ]] && cat a.txt", vec!["a.txt"]),
        ("((x > 3)) && echo $((1 > 2)); cat a.txt # it's", vec!["a.txt"]),
        ("x=(a b); for ((i = 0; i < 3; i++)); do cat a.txt; done", vec!["a.txt"]),
        ("function f { cat a.txt; }; f; g() { cat b.txt; }", vec!["a.txt", "b.txt"]),
        ("cat *.rs", vec!["c.rs", "d.rs"]),
        ("cat '*.rs'", vec!["*.rs"]),
        ("cat ~/x $HOME/y", vec!["/home/u/x", "/home/u/y"]),
        ("bash -lc 'cat a.txt'", vec!["a.txt"]),
        ("sh -c \"cd sub && cat y\"; cat a.txt", vec!["sub/y", "a.txt"]),
        ("eval 'cat a.txt'", vec!["a.txt"]),
        ("time cat a.txt", vec!["a.txt"]),
        ("sudo -u root env A=1 cat a.txt", vec!["a.txt"]),
        ("timeout 5 cat a.txt", vec!["a.txt"]),
        ("ls; cat a.txt\ncat b.txt", vec!["a.txt", "b.txt"]),
        ("echo $(cat a.txt)", vec![]),
        ("git show HEAD:a.txt", vec![]),
        ("ls -la a.txt", vec![]),
        ("if true; then cat a.txt; fi", vec!["a.txt"]),
        ("{ cat a.txt; }", vec!["a.txt"]),
        ("cat <<< 'x'", vec![]),
        ("python3 -c 'print(1)'", vec![]),
    ] {
        assert_eq!(here.reads(command), reads, "{command}");
        assert!(!here.effects(command).vague, "{command}");
    }
}

#[test]
fn changes() {
    let here = Here::new();
    for (command, changes) in [
        ("echo x > a.txt", vec!["a.txt"]),
        ("echo x >> a.txt", vec!["a.txt~"]),
        ("echo x >| a.txt", vec!["a.txt"]),
        ("echo x &> a.txt", vec!["a.txt"]),
        ("echo x >& a.txt", vec!["a.txt"]),
        ("echo x > /dev/null 2>&1", vec![]),
        ("echo x > /dev/shm/work/a.txt", vec!["/dev/shm/work/a.txt"]),
        ("> a.txt", vec!["a.txt"]),
        ("cat b.txt > a.txt", vec!["a.txt"]),
        ("cat > a.txt <<'EOF'\nhello > not.me\nEOF", vec!["a.txt"]),
        ("cat <<EOF > a.txt\nhello\nEOF", vec!["a.txt"]),
        ("cat <<EOF | tee a.txt b.txt\nhello\nEOF", vec!["a.txt", "b.txt"]),
        ("cat <<EOF > a.txt && rm b.txt\nhello\nEOF", vec!["a.txt", "b.txt"]),
        ("cd sub && cat > y <<'EOF'\nx\nEOF", vec!["sub/y"]),
        ("echo x | tee -a a.txt", vec!["a.txt~"]),
        ("sed -i 's/a/b/' a.txt b.txt", vec!["a.txt~", "b.txt~"]),
        ("sed -i.bak -e 's/a/b/' a.txt", vec!["a.txt~"]),
        ("sed -ni p a.txt", vec!["a.txt~"]),
        ("sed --in-place=.bak s/a/b/ a.txt", vec!["a.txt~"]),
        ("perl -pi -e 's/a/b/' a.txt", vec!["a.txt~"]),
        ("mv a.txt b.txt", vec!["b.txt", "a.txt"]),
        ("mv a.txt b.txt sub", vec!["sub/a.txt", "a.txt", "sub/b.txt", "b.txt"]),
        ("cp a.txt b.txt", vec!["b.txt"]),
        ("cp -t sub a.txt", vec!["sub/a.txt"]),
        ("rm -f a.txt *.rs", vec!["a.txt", "c.rs", "d.rs"]),
        ("rm -rf sub", vec!["sub"]),
        ("truncate -s 0 a.txt", vec!["a.txt"]),
        ("dd if=/dev/zero of=a.txt", vec!["a.txt"]),
        ("git checkout -- a.txt", vec!["a.txt"]),
        ("git checkout main", vec![]),
        ("git -C sub restore y", vec!["sub/y"]),
        ("if x; then echo y > a.txt; else rm b.txt; fi", vec!["a.txt", "b.txt"]),
        ("while read l; do echo $l >> a.txt; done < b.txt", vec!["a.txt~"]),
        ("cat a.txt && cat > a.txt <<E\nx\nE", vec!["a.txt"]),
        ("bash <<'EOF'\necho x > a.txt\nEOF", vec!["a.txt"]),
        ("bash -c 'echo x > a.txt'", vec!["a.txt"]),
        ("(echo x; echo y) > a.txt", vec!["a.txt"]),
        ("{ echo x; } > a.txt", vec!["a.txt"]),
        ("echo a > a.txt | cat", vec!["a.txt"]),
        (
            "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.txt\n@@\n-x\n+y\n*** End Patch\nEOF",
            vec!["a.txt~"],
        ),
        ("f() { rm a.txt; }; f", vec!["a.txt"]),
        ("echo x > $UNKNOWN", vec![]),
        ("touch a.txt", vec![]),
        ("[[ a > b.txt ]]; ((a > 1)); echo $((2 > 1)) '>' a.txt", vec![]),
        ("git stash", vec![""]),
        ("git stash push -- a.txt", vec!["a.txt"]),
        ("git stash list; git stash pop", vec![]),
        ("echo $(rm a.txt)", vec!["a.txt"]),
        ("echo \"$(rm a.txt)\"", vec!["a.txt"]),
        ("cargo fmt", vec![]),
    ] {
        assert_eq!(here.changes(command), changes, "{command}");
    }
}

/// A shell runs a substitution wherever it stands.
#[test]
fn every_substitution_is_followed() {
    let here = Here::new();
    let mut missed = Vec::new();
    for text in [
        "x=SUBSTITUTION",
        "x=\"SUBSTITUTION\" y=2",
        "x+=SUBSTITUTION true",
        "export x=SUBSTITUTION",
        "local -r x=SUBSTITUTION",
        "readonly x=\"a SUBSTITUTION\"",
        "x=(SUBSTITUTION b)",
        "x[SUBSTITUTION]=1",
        "[[ -n SUBSTITUTION ]]",
        "[[ a == SUBSTITUTION* ]]",
        "[[ a =~ SUBSTITUTION ]]",
        "[ -z \"SUBSTITUTION\" ]",
        "test SUBSTITUTION = a",
        "for x in SUBSTITUTION; do :; done",
        "for ((i = SUBSTITUTION; i < 1; i++)); do :; done",
        "while [ SUBSTITUTION ]; do :; done",
        "until SUBSTITUTION; do :; done",
        "case SUBSTITUTION in *) ;; esac",
        "case a in SUBSTITUTION) ;; esac",
        "if SUBSTITUTION; then :; fi",
        "(( x = SUBSTITUTION ))",
        "echo $(( 1 + SUBSTITUTION ))",
        "echo ${x:-SUBSTITUTION}",
        "echo \"${x:=a SUBSTITUTION}\"",
        "echo \"${x[SUBSTITUTION]}\"",
        "echo a\"b SUBSTITUTION\"",
        "echo {a,SUBSTITUTION}",
        "SUBSTITUTION",
        "$HOMESUBSTITUTION",
        "cat < SUBSTITUTION",
        "cat 2> SUBSTITUTION",
        "cat <<< SUBSTITUTION",
        "cat <<< \"a SUBSTITUTION\"",
        "cat <<E\nSUBSTITUTION\nE",
        "cat <<-E\n\ta \"SUBSTITUTION\"\n\tE",
        "cat <<E | wc\na ${x:-SUBSTITUTION} b\nE",
        "while read x; do :; done <<E\nSUBSTITUTION\nE",
        "bash -c 'x=SUBSTITUTION'",
        "eval 'x=SUBSTITUTION'",
        "true && ! x=SUBSTITUTION",
        "f() { x=SUBSTITUTION; }",
        "{ x=SUBSTITUTION; } 2>&1",
        "(x=SUBSTITUTION) &",
    ] {
        for substitution in ["$(rm a.txt)", "`rm a.txt`", "\"$(echo $(rm a.txt))\""] {
            if text.contains('"') && substitution.starts_with('"') {
                continue;
            }
            let command = text.replace("SUBSTITUTION", substitution);
            if !here.changes(&command).contains(&"a.txt".into()) {
                missed.push(command);
            }
        }
    }
    assert_eq!(missed, Vec::<String>::new());
    for command in [
        "cat < <(rm a.txt)",
        "diff <(cat b.txt) <(rm a.txt)",
        "echo x | tee >(rm a.txt)",
        "echo x > >(rm a.txt)",
        "while read x; do :; done < <(rm a.txt)",
    ] {
        assert!(here.changes(command).contains(&"a.txt".into()), "{command}");
    }
    // These run nothing.
    for command in [
        "echo '$(rm a.txt)'",
        "echo \\$\\(rm a.txt\\)",
        "echo \"\\$(rm a.txt)\"",
        "cat <<'E'\n$(rm a.txt)\nE",
        "true # $(rm a.txt)",
    ] {
        assert_eq!(here.changes(command), Vec::<String>::new(), "{command}");
    }
}

#[test]
fn options_and_their_values_are_told_from_files() {
    let here = Here::new();
    for (command, changed) in [
        ("perl -0pi -e 's/a/b/' a.txt", "a.txt~"),
        ("perl -0777pi -e 's/a/b/' a.txt", "a.txt~"),
        ("perl -i.bak -pe 's/a/b/' a.txt", "a.txt~"),
        ("perl -lpi -e 's/a/b/' a.txt", "a.txt~"),
        ("sed -bi s/a/b/ a.txt", "a.txt~"),
        ("sed -l 5 -i s/a/b/ a.txt", "a.txt~"),
        ("sed --in-pl s/a/b/ a.txt", "a.txt~"),
        ("gawk -i inplace '{print}' a.txt", "a.txt~"),
        ("cp -r sub/. .", "y"),
        ("cp -t. sub/y", "y"),
        ("cp --target-directory . sub/y", "y"),
        ("cp --target-dir=. sub/y", "y"),
        ("mv -ft. sub/y", "y"),
        ("cp -T b.txt a.txt", "a.txt"),
        ("cp \"$X\" a.txt", "a.txt"),
        ("install -Dm 644 b.txt a.txt", "a.txt"),
        ("git --no-pager checkout -- a.txt", "a.txt"),
        ("git -c a.b=c --git-dir .git checkout a.txt", "a.txt"),
        ("timeout --signal KILL 10 cp b.txt a.txt", "a.txt"),
        ("timeout -k 5 --preserve-status 10 cp b.txt a.txt", "a.txt"),
        ("env --chdir sub cp ../b.txt a.txt", "sub/a.txt"),
        ("env -C sub A=1 cp ../b.txt a.txt", "sub/a.txt"),
        ("env -C sub sh -c 'cp ../b.txt a.txt'", "sub/a.txt"),
        ("env -S 'cp b.txt a.txt'", "a.txt"),
        ("env -S'FOO=1 cp b.txt a.txt'", "a.txt"),
        ("exec -a x cp b.txt a.txt", "a.txt"),
        ("$SUDO cp b.txt a.txt", "a.txt"),
        ("env A=$B cp b.txt a.txt", "a.txt"),
        ("sudo -C 3 cp b.txt a.txt", "a.txt"),
        ("nice --adjustment 5 ionice -c 3 cp b.txt a.txt", "a.txt"),
        ("sudo --user root cp b.txt a.txt", "a.txt"),
        ("coproc cp b.txt a.txt; wait", "a.txt"),
        ("trap 'cp b.txt a.txt' EXIT", "a.txt"),
        ("rm() { :; }; rm a.txt", "a.txt"),
        ("bash -c -e 'cp b.txt a.txt'", "a.txt"),
        ("bash -o pipefail -c 'cp b.txt a.txt'", "a.txt"),
    ] {
        assert!(here.changes(command).contains(&changed.into()), "{command}: {:?}", here.changes(command));
    }
}

/// What is not evaluated: variables, functions, braces, links, the files of `find` and `xargs`, folders that are not certain, and texts
/// for a shell that the command makes.
#[test]
fn a_command_that_changes_a_file_of_an_unknown_name_may_change_every_file_that_it_names() {
    let here = Here::new();
    for (command, file) in [
        ("cd sub; cd -; cp b.txt a.txt", "a.txt"),
        ("cd sub; cd \"$OLDPWD\"; cp b.txt a.txt", "a.txt"),
        ("rm {a,b}.txt", "a.txt"),
        ("rm {{a,c},b}.txt", "c.txt"),
        ("x='b.txt a.txt'; rm $x", "a.txt"),
        ("x=1; read x <<< a.txt; echo > a.txt$x", "a.txt"),
        ("x=b; bash -c 'rm a.txt$x'", "a.txt"),
        ("x=b; x=a.txt bash -c 'rm $x'", "a.txt"),
        ("IFS=,; x=a.txt,b.txt; rm $x", "a.txt"),
        ("f() { cp b.txt \"$1\"; }; f a.txt", "a.txt"),
        ("f() { rm \"$@\"; }; f b.txt a.txt", "a.txt"),
        ("f() { shift; rm $1; }; f b.txt a.txt", "a.txt"),
        ("set -- a.txt; cp b.txt \"$1\"", "a.txt"),
        ("set a.txt; cp b.txt ${1}", "a.txt"),
        ("bash -c 'cp b.txt \"$1\"' _ a.txt", "a.txt"),
        ("bash -s a.txt <<< 'cp b.txt $1'", "a.txt"),
        ("echo 'cp b.txt a.txt' | bash", "a.txt"),
        ("cat <<'E' | sudo sh\ncp b.txt a.txt\nE", "a.txt"),
        ("bash <<E\ncp b.txt a.txt\n$x\nE", "a.txt"),
        ("bash <<E\n: \\$(cp b.txt a.txt)\nE", "a.txt"),
        ("bash <<E\n\\$(cp b.txt a.txt)\nE", "a.txt"),
        ("ln -s a.txt l; cp b.txt l", "a.txt"),
        ("ln a.txt l; echo x > l", "a.txt"),
        ("echo x > \"$(echo a.txt)\"", "a.txt"),
        ("find . -name a.txt -exec rm {} +", "a.txt"),
        ("find . -name a.txt -delete", "a.txt"),
        ("echo a.txt | xargs rm", "a.txt"),
        ("echo a.txt | xargs -I% cp b.txt %", "a.txt"),
        ("echo a.txt | while read f; do rm \"$f\"; done", "a.txt"),
        ("false && cd sub; rm a.txt", "a.txt"),
        ("eval \"rm $X a.txt\"", "a.txt"),
        ("pushd sub; popd; rm a.txt", "a.txt"),
        ("env -S 'cp b.txt' a.txt", "a.txt"),
        ("for f in *.txt; do sed -i s/a/b/ \"$f\"; done", "a.txt"),
        ("sed -i s/a/b/ {a,b}.txt", "a.txt"),
        ("if [ -d sub ]; then cd sub; fi; rm -f *", "a.txt"),
        ("npm ci && cd sub; echo x > a.txt", "a.txt"),
        ("pushd sub; ls; popd; rm -f *.txt", "a.txt"),
        ("cd nosuch; rm -f a.txt", "a.txt"),
        ("cd nosuch || rm *.txt", "a.txt"),
        ("true && cd sub || rm a.txt", "a.txt"),
        ("true || cd sub && rm a.txt", "a.txt"),
        ("true && cd sub || true && rm a.txt", "a.txt"),
        ("true && cd sub && cd ..; rm a.txt", "a.txt"),
        ("echo x > \"$(pwd)/a.txt\"", "a.txt"),
        ("ROOT=$(pwd); cd sub; rm $ROOT/a.txt", "a.txt"),
        ("echo x > \"${F:-a.txt}\"", "a.txt"),
        ("find . -name '*.txt' | xargs sed -i s/x/y/", "a.txt"),
        ("find . -type f -name 'a.*' -exec rm {} \\;", "a.txt"),
        ("bash <(echo 'rm a.txt')", "a.txt"),
        ("source /dev/stdin <<< 'rm a.txt'", "a.txt"),
        ("curl https://x | git apply # a.txt", "a.txt"),
        ("git -C \"$REPO\" reset --hard # a.txt", "a.txt"),
        ("bash <<E\n\\$(echo '{}' >a.txt)\nE", "a.txt"),
    ] {
        assert!(here.may_change(command, file), "{command}");
    }
    // These change nothing that is not known.
    for command in [
        "cp b.txt a.txt",
        "cat $X",
        "echo $X > a.txt",
        "grep -r $X sub",
        "make $X",
        "cd $X && cat y",
        "for f in *.txt; do cat \"$f\" | head -3; done",
        "find . -name '*.txt' -exec grep -n x {} +",
        "ls *.txt | xargs wc -l",
        "cat a.txt | while read f; do echo \"$f\"; done",
        ". ./a.txt",
        "source \"$X/activate\"",
        "bash a.txt",
        "diff <(sort a.txt) <(sort b.txt)",
        "x=a.txt; test -f \"$x\" && wc -l \"$x\" 2>/dev/null",
    ] {
        assert!(!here.effects(command).vague, "{command}");
    }
}

/// `<(` does not start a substitution in double quotes or in the text of a here-document.
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
        assert!(!effects.vague, "{command}");
        assert_eq!(here.reads(command)[0], "a.txt", "{command}");
        assert!(!here.changes(command).contains(&"c.rs".into()), "{command}");
    }
    for command in ["echo \"$(cat <(rm c.rs))\"", "cat <<E\n$(cat <(rm c.rs))\nE"] {
        assert_eq!(here.changes(command), ["c.rs"], "{command}");
    }
}

#[test]
fn the_new_text_of_a_file_is_known_if_the_command_contains_it() {
    let here = Here::new();
    let text = |command: &str| match here.effects(command).changes.remove(0).text {
        Text::Exactly(text) => Some(text),
        _ => None,
    };
    assert_eq!(text("cat > a.txt <<'EOF'\n$x\nEOF").as_deref(), Some("$x\n"));
    assert_eq!(text("cat <<EOF > a.txt\nplain\nEOF").as_deref(), Some("plain\n"));
    assert_eq!(text("cat <<EOF > a.txt\n$x\nEOF"), None);
    assert_eq!(text("cat > a.txt <<-'EOF'\n\tx\n\tEOF").as_deref(), Some("x\n"));
    assert_eq!(text("echo 'a b' c > a.txt").as_deref(), Some("a b c\n"));
    assert_eq!(text("> a.txt").as_deref(), Some(""));
    assert_eq!(text("echo a > a.txt; echo b > a.txt"), None);
    assert_eq!(text("sort b.txt > a.txt"), None);
}

#[test]
fn a_command_that_cannot_be_parsed_may_change_everything_and_reads_nothing() {
    let here = Here::new();
    for command in [
        "if [[ -f x ]]; then cat a.txt",
        "cat a.txt 'b",
        "cat a.txt; (((((",
        "cat a.txt; echo \"$(",
        "cat a.txt; cat <<E\nx",
        "cat a.txt; bash -c '(('",
    ] {
        let plan = here.effects(command);
        assert!(plan.vague && plan.reads.is_empty(), "{command}");
    }
    assert!(here.effects(&"(".repeat(50_000)).vague);
    // Every word of it may name a file that it changes.
    let plan = here.effects("echo '{}' >sub/.mcp.json; rm ~/x; tollgate --json token add bob; ((");
    let touched: Vec<String> = plan.touched.iter().map(|path| here.short(path)).collect();
    assert!(
        touched.contains(&"sub/.mcp.json".into()) && touched.contains(&"/home/u/x".into()),
        "{touched:?}"
    );
    assert_eq!(plan.people_only.as_deref(), Some("tollgate token"));
}

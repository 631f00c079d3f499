//! Tables of commands and their effects.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate::turn::Extent;

use super::state::processor_time;
use super::*;

/// What parsing cost, whatever else runs on the machine.
fn used_since(started: Duration) -> Duration {
    processor_time() - started
}

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

    fn effects(&self, command: &str) -> Effects {
        effects(command, self.keep.path(), Some(Path::new("/home/u")))
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
        ("f=a.txt; cat \"$f\" ${f}", vec!["a.txt"]),
        ("for f in a.txt b.txt; do cat $f; done", vec!["a.txt", "b.txt"]),
        ("for f in *.rs; do echo \"== $f\"; cat \"$f\"; done", vec!["c.rs", "d.rs"]),
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
        assert!(!here.effects(command).unclear, "{command}");
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
    let mut missed = Vec::new();
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
        ("mkdir -p d; echo x > d/a.txt; cp -r d/. .", "a.txt"),
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
        ("env -S 'cp b.txt' a.txt", "a.txt"),
        ("env -S'FOO=1 cp b.txt a.txt'", "a.txt"),
        ("exec -a x cp b.txt a.txt", "a.txt"),
        ("$SUDO cp b.txt a.txt", "a.txt"),
        ("env A=$B cp b.txt a.txt", "a.txt"),
        ("sudo -C 3 cp b.txt a.txt", "a.txt"),
        ("nice --adjustment 5 ionice -c 3 cp b.txt a.txt", "a.txt"),
        ("sudo --user root cp b.txt a.txt", "a.txt"),
        ("flock /tmp/l cp b.txt a.txt", "a.txt"),
        ("flock /tmp/l -c 'cp b.txt a.txt'", "a.txt"),
        ("coproc cp b.txt a.txt; wait", "a.txt"),
        ("trap 'cp b.txt a.txt' EXIT", "a.txt"),
        ("cd sub; cd -; cp b.txt a.txt", "a.txt"),
        ("cd sub; cd \"$OLDPWD\"; cp b.txt a.txt", "a.txt"),
        ("cp b.txt $'a\\x2etxt'", "a.txt"),
        ("cp b.txt $'\\141.t\\u0078t'", "a.txt"),
        ("rm {a,b}.txt", "a.txt"),
        ("rm {{a,c},b}.txt", "c.txt"),
        ("x=a; x+=.txt; rm $x", "a.txt"),
        ("x='b.txt a.txt'; rm $x", "a.txt"),
        ("x='*.txt'; rm $x", "a.txt"),
        ("x=1; read x <<< a.txt; echo > a.txt$x", "a.txt?"),
        ("x=b; bash -c 'rm a.txt$x'", "a.txt?"),
        ("x=b; x=a.txt bash -c 'rm $x'", "a.txt"),
        ("IFS=,; x=a.txt,b.txt; rm $x", "a.txt?"),
        ("f() { cp b.txt \"$1\"; }; f a.txt", "a.txt"),
        ("f() { rm \"$@\"; }; f b.txt a.txt", "a.txt"),
        ("rm() { :; }; rm a.txt", "a.txt"),
        ("f() { shift; rm $1; }; f b.txt a.txt", "a.txt"),
        ("set -- a.txt; cp b.txt \"$1\"", "a.txt"),
        ("set a.txt; cp b.txt ${1}", "a.txt"),
        ("bash -c 'cp b.txt \"$1\"' _ a.txt", "a.txt"),
        ("bash -c -e 'cp b.txt a.txt'", "a.txt"),
        ("bash -o pipefail -c 'cp b.txt a.txt'", "a.txt"),
        ("bash -s a.txt <<< 'cp b.txt $1'", "a.txt"),
        ("echo 'cp b.txt a.txt' | bash", "a.txt"),
        ("cat <<'E' | sudo sh\ncp b.txt a.txt\nE", "a.txt"),
        ("bash <<E\ncp b.txt a.txt\n$x\nE", "a.txt"),
        ("bash <<E\n: \\$(cp b.txt a.txt)\nE", "a.txt"),
        // The grammar does not understand this.
        ("bash <<E\n\\$(cp b.txt a.txt)\nE", "a.txt?"),
        ("ln -s a.txt l; cp b.txt l", "a.txt"),
        ("ln -sfn . dd; cp b.txt dd/a.txt", "a.txt"),
        ("ln a.txt l; echo x > l", "a.txt"),
        ("ln -s sub s; cd s; rm y", "sub/y"),
        ("echo x > \"$(echo a.txt)\"", "a.txt?"),
        ("find . -name a.txt -exec rm {} +", "a.txt"),
        ("find . -name a.txt -delete", "a.txt"),
        ("echo a.txt | xargs rm", "a.txt"),
        ("echo a.txt | xargs -I% cp b.txt %", "a.txt"),
        ("echo a.txt | while read f; do rm \"$f\"; done", "a.txt?"),
        ("false && cd sub; rm a.txt", "a.txt?"),
        ("eval \"rm $X a.txt\"", "a.txt?"),
        ("pushd sub; popd; rm a.txt", "a.txt?"),
    ] {
        match changed.strip_suffix('?') {
            // The file is named, and what the command changes is not known.
            Some(_) if !here.effects(command).gave_up => missed.push((command, Vec::new())),
            None if !here.changes(command).contains(&changed.into()) => {
                missed.push((command, here.changes(command)));
            }
            _ => {}
        }
    }
    assert_eq!(missed, Vec::new());
    for command in
        ["cp b.txt a.txt", "cat $X", "echo $X > a.txt", "grep -r $X sub", "make $X", "cd $X && cat y"]
    {
        assert!(!here.effects(command).gave_up, "{command}");
    }
}

#[test]
fn the_new_text_of_a_file_is_known_if_the_command_contains_it() {
    let here = Here::new();
    let text = |command: &str| here.effects(command).changes[0].text.clone();
    assert_eq!(text("cat > a.txt <<'EOF'\n$x\nEOF").as_deref(), Some("$x\n"));
    assert_eq!(text("cat <<EOF > a.txt\nplain\nEOF").as_deref(), Some("plain\n"));
    assert_eq!(text("cat <<EOF > a.txt\n$x\nEOF"), None);
    assert_eq!(text("cat > a.txt <<-'EOF'\n\tx\n\tEOF").as_deref(), Some("x\n"));
    assert_eq!(text("echo 'a b' c > a.txt").as_deref(), Some("a b c\n"));
    assert_eq!(text("printf '%s' x > a.txt").as_deref(), Some("x"));
    assert_eq!(text("> a.txt").as_deref(), Some(""));
    assert_eq!(text("echo a > a.txt; echo b > a.txt"), None);
    assert_eq!(text("sort b.txt > a.txt"), None);
}

#[test]
fn a_command_that_cannot_be_parsed_is_unclear() {
    let here = Here::new();
    for command in ["if [[ -f x ]]; then cat a.txt", "cat 'a.txt", "((((("] {
        assert!(here.effects(command).unclear, "{command}");
    }
    assert!(here.effects(&"(".repeat(50_000)).unclear);
    // Every word of it may name a file that it changes.
    let effects = here.effects("bash <<E\n\\$(echo '{}' >sub/.mcp.json; rm ~/x)\nE");
    let touched: Vec<String> = effects.touched.iter().map(|path| here.short(path)).collect();
    assert!(
        touched.contains(&"sub/.mcp.json".into()) && touched.contains(&"/home/u/x".into()),
        "{touched:?}"
    );
    assert!(effects.gave_up);
    assert!(here.effects(&"bash -c ".repeat(10)).reads.is_empty());
}

#[test]
fn an_output_shows_a_file_whole_or_in_part() {
    assert_eq!(shown_in("one\ntwo\n", "one\ntwo\n"), Some(Extent::Whole));
    assert_eq!(shown_in("     1\tone\n     2\t\n     3\ttwo\n", "one\n\ntwo\n"), Some(Extent::Whole));
    assert_eq!(shown_in("head\none\ntwo\ntail", "one\ntwo"), Some(Extent::Whole));
    assert_eq!(shown_in("one\n", "one\ntwo\n"), Some(Extent::Part));
    assert_eq!(shown_in("two\none\n", "one\ntwo\n"), Some(Extent::Part));
    assert_eq!(shown_in("", "one\n"), None);
    assert_eq!(shown_in("", ""), Some(Extent::Whole));
}

/// Pieces with a meaning for shells, in any order.
fn pieces() -> impl proptest::strategy::Strategy<Value = String> {
    let pieces = proptest::sample::select(vec![
        "cat ",
        "a.txt ",
        "sed -i ",
        "rm ",
        "mv ",
        "> ",
        ">> ",
        "<<EOF\n",
        "EOF\n",
        "<<-'E' ",
        "\n",
        "| ",
        "&& ",
        "|| ",
        "; ",
        "& ",
        "( ",
        ") ",
        "{ ",
        "} ",
        "$( ",
        "`",
        "'",
        "\"",
        "\\",
        "$",
        "${x}",
        "${x:-",
        "}",
        "if ",
        "then ",
        "fi ",
        "for f in ",
        "do ",
        "done ",
        "case x in ",
        "esac ",
        "[[ ",
        "]] ",
        "bash -c ",
        "eval ",
        "cd ",
        "~ ",
        "*",
        "?",
        "[a-",
        "]",
        "é",
        "\u{0}",
        "x=1 ",
        "2>&1 ",
        "<( ",
        "function f ",
        "git -C ",
        "tee -",
        "dd of=",
        "#",
        "!",
        "((",
        "))",
        "<<< ",
        "apply_patch ",
        "*** Add File: ",
    ]);
    use proptest::strategy::Strategy;
    proptest::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat())
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 400, ..Default::default() })]

    #[test]
    fn any_text_is_read_in_bounded_time(text in "\\PC{0,300}", pieces in pieces()) {
        let here = Path::new("/nowhere");
        for text in [text, pieces] {
            let started = processor_time();
            let effects = effects(&text, here, None);
            proptest::prop_assert!(used_since(started) < Duration::from_secs(5));
            proptest::prop_assert!(effects.changes.len() + effects.reads.len() < 10_000);
        }
    }
}

#[test]
fn parsing_gives_up_on_text_made_to_be_slow() {
    for piece in ["<<E ", "$(", "case x in ", "{ ", "`", "((", "bash -c '", "a|", "for x in a b; do "] {
        let started = processor_time();
        let _ = effects(&piece.repeat(60_000), Path::new("/nowhere"), None);
        assert!(used_since(started) < Duration::from_secs(20), "{piece}: {:?}", used_since(started));
    }
    let nested = "for x in a b c d e f g h; do ".repeat(30) + &"done; ".repeat(30);
    let started = processor_time();
    assert!(effects(&nested, Path::new("/nowhere"), None).unclear);
    assert!(used_since(started) < Duration::from_secs(20));
}

/// Characters above 255 once made the grammar's scanner read out of bounds.
#[test]
fn letters_of_every_script_are_parts_of_words() {
    let far = "\u{1f574}\u{e012b}\u{10380}\u{1ecb2}";
    for text in
        [format!("$ {far} {{{far}%<N/{far}'$"), format!("<<{far}\n{far}"), format!("${far}={far}`{far}`")]
    {
        let _ = effects(&text.repeat(500), Path::new("/nowhere"), None);
    }
    let effects = effects(&format!("cat {far}.txt; echo x > ümläut-{far}"), Path::new("/w"), None);
    assert!(!effects.unclear);
    assert_eq!(effects.reads[0].0, Path::new("/w").join(format!("{far}.txt")));
    assert_eq!(effects.changes[0].path, Path::new("/w").join(format!("ümläut-{far}")));
}

#[test]
fn mutated_commands_are_understood_without_a_panic() {
    let here = Here::new();
    let commands = [
        "cat a.txt | sed -n '1,5p' > b.txt && rm -rf sub/*",
        "cat <<'EOF' > a.txt\ntext $(x)\nEOF\n",
        "for f in *.rs; do sed -i 's/a/b/' \"$f\"; done; cd sub && tee -a y < ../a.txt",
        "bash -c 'eval \"echo x > a.txt\"'; X=a.txt; echo y >> $X; env -i A=b sudo mv a.txt 'a b'",
        "git checkout -- a.txt; apply_patch <<EOF\n*** Begin Patch\n*** Update File: a.txt\n@@\n-x\n+y\n*** End Patch\nEOF",
        "f() { set -- \"$@\" {a,b}$'\\x2e'; cp -t. $1; }; f a.txt | env -S 'rm $1' x=`ls` -C sub; ln -s a l; trap 'rm l' 0",
        "find . -name '*.rs' -exec tollgate task approve {} \\; | xargs -n1 rm; head -n 3 b.txt; perl -pi -e 's/x/y/' {a,b}.txt",
    ];
    tollgate_fuzz::fuzz("shell", &commands, |bytes| {
        let command = String::from_utf8_lossy(bytes);
        here.effects(&command);
    });
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

#[test]
fn many_substitutions_in_a_here_document_are_followed() {
    let here = Here::new();
    let line = "- Use `ls` with `pwd` (see [this](that)), not `echo \"a)\"`.\n";
    let text = line.repeat(100);
    let started = processor_time();
    let effects = here.effects(&format!("cat a.txt; cat > b.txt <<EOF\n{text}`rm c.rs`\nEOF"));
    assert!(!effects.unclear, "{:?}", used_since(started));
    assert_eq!(effects.reads.len(), 1);
    assert!(effects.changes.iter().any(|change| change.path.ends_with("c.rs")));
    // What ends a substitution is not always the next bracket.
    for substitution in [
        "$(echo ')' \")\" \\) ${x:-)}; rm c.rs)",
        "$(echo \"$(echo ')')\" `echo ']'`; rm c.rs)",
        "$( (echo); rm c.rs)",
        "$(: # )\nrm c.rs)",
        "$(case x in x) rm c.rs;; esac)",
        "$(echo $'\\')'; rm c.rs)",
        "$((1 + $(rm c.rs; echo 1)))",
        "`echo ')'; rm c.rs`",
    ] {
        let command = format!("cat a.txt; cat <<E\n( {substitution} ) it's\nE\ncat b.txt");
        assert_eq!(here.changes(&command), ["c.rs"], "{command}");
        assert_eq!(here.reads(&command), ["a.txt", "b.txt"], "{command}");
        assert!(!here.effects(&command).unclear, "{command}");
    }
    assert!(here.effects("cat <<E\n$(rm c.rs\nE").unclear);
    // What is understood of a broken one counts.
    let broken = "cat <<E\n`rm c.rs; for`, `rm d.rs`\nE";
    assert!(here.effects(broken).unclear);
    assert!(here.changes(broken).contains(&"d.rs".into()));
}

#[test]
fn braces_are_expanded_in_bounded_time() {
    let here = Here::new();
    for command in [
        format!("echo {}", "{".repeat(20_000)),
        format!("echo a{}", "{,".repeat(60_000)),
        format!("echo {}", "{a,b}".repeat(20_000)),
        format!("echo {}", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b} ".repeat(20_000)),
        format!("echo {}{}", "{a,".repeat(2_000), "}".repeat(2_000)),
    ] {
        let started = processor_time();
        let _ = here.effects(&command);
        assert!(used_since(started) < Duration::from_secs(2), "{:.20}: {:?}", command, used_since(started));
    }
    // Where it would be too much, the targets are not known.
    let long = format!("rm {{a,{}}}.txt", "b".repeat(5_000));
    assert!(here.effects(&long).gave_up);
    let many = format!("rm {}{{a,b}}.txt", "{x}".repeat(100));
    assert!(here.effects(&many).gave_up);
    for (command, changes) in [
        ("rm a{b,c{d,e}f}g", vec!["abg", "acdfg", "acefg"]),
        ("rm {a{b,c}", vec!["{ab", "{ac"]),
        ("rm {x}{a,b}", vec!["{x}a", "{x}b"]),
        ("rm {a,b}}", vec!["a}", "b}"]),
    ] {
        assert_eq!(here.changes(command), changes, "{command}");
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

#[test]
fn many_commands_in_a_row_are_understood() {
    let here = Here::new();
    for (first, more) in [
        ("cat a.txt", " && true"),
        ("cat a.txt", " || true"),
        ("cat a.txt", " && echo x > c.rs"),
        ("cat a.txt > /dev/stderr && cat a.txt", " && echo x 2>&1"),
        ("cat a.txt", " && ls | wc"),
        ("cat a.txt", "; true"),
        ("cat a.txt", " | cat"),
    ] {
        let command = format!("{first}{}; cat b.txt; rm d.rs", more.repeat(500));
        assert!(!here.effects(&command).unclear, "{first}{more}");
        assert_eq!(here.reads(&command)[0], "a.txt", "{first}{more}");
        assert!(here.changes(&command).contains(&"d.rs".into()), "{first}{more}");
    }
    // The grammar takes this for `a | { b | c && d; }`.
    for command in [
        "cat a.txt | grep x | head && cat b.txt",
        "cat a.txt | grep x | head && cat b.txt 2>/dev/null",
        "cat a.txt | grep x | sort | head && true && cat b.txt",
        "true && cat a.txt | grep x | head || cat b.txt",
    ] {
        assert_eq!(here.reads(command), ["a.txt", "b.txt"], "{command}");
    }
    assert_eq!(here.reads("cat a.txt | grep x | wc && cat b.txt"), ["b.txt"]);
    assert_eq!(here.changes("cat a.txt | sort | tee b.txt && rm c.rs > d.rs"), ["b.txt", "c.rs", "d.rs"]);
    assert_eq!(here.changes("a | b | c && d && e > b.txt && rm c.rs | tee d.rs"), ["b.txt", "c.rs", "d.rs"]);
    assert!(here.effects("true && cd sub || rm a.txt").gave_up);
    assert!(here.effects("true || cd sub && rm a.txt").gave_up);
    assert!(here.effects("true && cd sub || true && rm a.txt").gave_up);
    assert!(here.effects("true && cd sub && cd ..; rm a.txt").gave_up);
    assert_eq!(here.changes("cd sub && true && rm y > z && echo > x"), ["sub/y", "sub/z", "sub/x"]);
    assert_eq!(here.changes("mkdir x && cd sub && rm y && cd .. && rm a.txt"), ["sub/y", "sub/../a.txt"]);
    assert_eq!(here.reads("mkdir x && cd sub && cat y"), ["sub/y"]);
    assert_eq!(here.changes("true && f=a.txt && rm $f"), ["a.txt"]);
}

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

#[test]
fn no_limit_hides_a_file() {
    let here = Here::new();
    let names = |number: usize| (0..number).map(|name| format!("{name} ")).collect::<String>();
    let last = |command: String| {
        let effects = here.effects(&command);
        let changes = effects.changes.iter().map(|change| &change.path);
        changes.chain(&effects.touched).any(|path| path.ends_with("z.txt"))
    };
    for number in [999, 1_100, 12_000] {
        assert!(last(format!("touch {}z.txt", names(number))), "{number}");
        assert!(last(format!("rm {}z.txt", names(number))), "{number}");
    }
    for number in 0..10_100 {
        fs::write(here.keep.path().join(format!("sub/{number}")), "").unwrap();
    }
    assert_eq!(here.changes("rm sub/*"), ["sub"]);
    assert_eq!(here.changes("rm s*/*"), [""], "everything here");
    assert!(here.changes("cp sub/* .").contains(&String::new()), "everything here");
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

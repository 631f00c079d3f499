//! Every text is read in bounded time, and no limit hides a file.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;

/// The time of the processor that this thread has used, whatever else runs on the machine.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn used_since(started: Duration) -> Duration {
    processor_time() - started
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
            let effects = read(&text, here, None);
            proptest::prop_assert!(used_since(started) < Duration::from_secs(5));
            proptest::prop_assert!(effects.changes.len() + effects.reads.len() < 10_000);
        }
    }
}

#[test]
fn parsing_gives_up_on_text_made_to_be_slow() {
    for piece in [
        "<<E ",
        "$(",
        "case x in ",
        "{ ",
        "`",
        "((",
        "bash -c '",
        "a|",
        "for x in a b; do ",
        "env ",
        "$x ",
        "f() ",
        "2>&1 ",
        "{a,b}",
        "${a:-",
        "sh -c \"",
        "x=(",
    ] {
        let started = processor_time();
        let _ = read(&piece.repeat(60_000), Path::new("/nowhere"), None);
        assert!(used_since(started) < Duration::from_secs(20), "{piece}: {:?}", used_since(started));
    }
    let nested = "for x in a b c d e f g h; do ".repeat(30) + &"done; ".repeat(30);
    let started = processor_time();
    let _ = read(&nested, Path::new("/nowhere"), None);
    assert!(used_since(started) < Duration::from_secs(20));
}

#[test]
fn letters_of_every_script_are_parts_of_words() {
    let far = "\u{1f574}\u{e012b}\u{10380}\u{1ecb2}";
    for text in
        [format!("$ {far} {{{far}%<N/{far}'$"), format!("<<{far}\n{far}"), format!("${far}={far}`{far}`")]
    {
        let _ = read(&text.repeat(500), Path::new("/nowhere"), None);
    }
    let effects = read(&format!("cat {far}.txt; echo x > ümläut-{far}"), Path::new("/w"), None);
    assert!(!effects.vague);
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

#[test]
fn many_substitutions_in_a_here_document_are_followed() {
    let here = Here::new();
    let line = "- Use `ls` with `pwd` (see [this](that)), not `echo \"a)\"`.\n";
    let text = line.repeat(100);
    let started = processor_time();
    let effects = here.effects(&format!("cat a.txt; cat > b.txt <<EOF\n{text}`rm c.rs`\nEOF"));
    assert!(!effects.vague, "{:?}", used_since(started));
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
        assert!(!here.effects(&command).vague, "{command}");
    }
    assert!(here.effects("cat <<E\n$(rm c.rs\nE").vague);
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
        assert!(!here.effects(&command).vague, "{first}{more}");
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
    assert_eq!(here.changes("cd sub && true && rm y > z && echo > x"), ["sub/y", "sub/z", "sub/x"]);
    assert_eq!(here.changes("mkdir x && cd sub && rm y && cd .. && rm a.txt"), ["sub/y", "sub/../a.txt"]);
    assert_eq!(here.reads("mkdir x && cd sub && cat y"), ["sub/y"]);
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

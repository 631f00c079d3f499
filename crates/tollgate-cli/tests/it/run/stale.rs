//! Someone else changes a file while a program runs that changes it, too. The program's changes are refused, all of them, and
//! the other change stays. Without the other change, the program does what it does without tollgate.

use std::fs;

use super::{HOLD, has_prettier, refused};
use crate::world::{World, until};

/// A program that changes the file `f`, which holds `one\ntwo\n`.
struct Case {
    name: &'static str,
    /// What is there before, besides `f`.
    before: &'static str,
    script: &'static str,
}

const fn case(name: &'static str, script: &'static str) -> Case {
    Case { name, before: "", script }
}

const CASES: &[Case] = &[
    case("sed -i", "sed -i s/one/1/ f"),
    case("perl -pi", "perl -pi -e s/one/1/ f"),
    case("vim", "vim -es -u NONE -i NONE -c %s/one/1/ -c wq f </dev/null"),
    case("vim by rename", "vim -es -u NONE -i NONE -c 'set backupcopy=no' -c %s/one/1/ -c wq f </dev/null"),
    case("python w", "python3 -c \"s=open('f').read(); open('f','w').write(s.replace('one','1'))\""),
    case("python r+", "python3 -c \"f=open('f','r+'); f.write('ONE')\""),
    case(
        "python mmap",
        "python3 -c \"import mmap; f=open('f','r+b'); m=mmap.mmap(f.fileno(),0); m[0:3]=b'ONE'; m.flush()\"",
    ),
    case("python rename", "python3 -c \"import os; open('t','w').write('1'); os.replace('t','f')\""),
    case("node", "node -e \"const s=require('fs'); s.writeFileSync('f', s.readFileSync('f','utf8')+'x')\""),
    case("node rename", "node -e \"const s=require('fs'); s.writeFileSync('t','1'); s.renameSync('t','f')\""),
    case("awk", "awk '{print $1 1}' f > t; mv t f"),
    case("append", "echo three >> f"),
    case("overwrite", "echo three > f"),
    case("cp", "echo three > t; cp t f"),
    case("mv", "echo three > t; mv t f"),
    case("tee", "echo three | tee f >/dev/null"),
    case("dd", "printf 12 | dd of=f conv=notrunc status=none"),
    case("truncate", "truncate -s 2 f"),
    case("rm", "rm f"),
    case("move away", "mv f g"),
    case("ln -s", "ln -sf other f"),
    case("find -exec", "find . -name f -exec sed -i s/one/1/ {} ';'"),
    case("xargs", "echo f | xargs sed -i s/one/1/"),
    Case { name: "script", before: "printf 'sed -i s/one/1/ f\\n' > s.sh", script: "sh ./s.sh" },
    Case { name: "pipe into sh", before: "", script: "echo 'sed -i s/one/1/ f' | sh" },
    Case {
        name: "make",
        before: "printf 'f: src\\n\\tcp src f\\n' > Makefile; sleep 0.01; echo new > src",
        script: "make -s -B",
    },
    Case {
        name: "patch",
        before: "printf -- '--- f\\n+++ f\\n@@ -1,2 +1,2 @@\\n-one\\n+1\\n two\\n' > p",
        script: "patch -s f p",
    },
    Case {
        name: "tar",
        before: "mkdir x; echo tar > x/f; tar cf t.tar --mtime=@0 -C x f",
        script: "tar xf t.tar",
    },
    Case { name: "git checkout", before: BRANCHES, script: "git checkout -q other" },
    Case { name: "git checkout of a file", before: BRANCHES, script: "git checkout -q other -- f" },
    Case { name: "git reset", before: BRANCHES, script: "git reset -q --hard other" },
    Case { name: "git rebase", before: BRANCHES, script: "git rebase -q other" },
    Case { name: "git merge", before: BRANCHES, script: "git merge -q other" },
    Case { name: "git stash", before: DIRTY, script: "git stash -q" },
    Case { name: "git restore", before: DIRTY, script: "git restore f" },
];

const PRETTIER: Case = case("prettier", "prettier --log-level silent --parser babel --write f");

fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(has_prettier().then_some(&PRETTIER))
}

/// Another branch has another `f`.
const BRANCHES: &str = "git init -q -b main . && git add f && git commit -q -m 1 && git checkout -q -b other \
    && echo other > f && git commit -q -a -m 2 && git checkout -q main";

/// `f` is not what was committed.
const DIRTY: &str = "git init -q -b main . && git add f && git commit -q -m 1 && echo three >> f";

impl Case {
    fn world(&self) -> World {
        let world = World::new();
        world.puts("f", "one\ntwo\n");
        world.native(self.before).ends().is(0);
        world
    }
}

/// How the other one saves.
#[derive(Debug, Clone, Copy)]
enum Save {
    InPlace,
    ByRename,
}

fn save(world: &World, how: Save) {
    match how {
        Save::InPlace => fs::write(world.path("f"), "theirs\n").unwrap(),
        Save::ByRename => {
            fs::write(world.tmp().join("new"), "theirs\n").unwrap();
            fs::rename(world.tmp().join("new"), world.path("f")).unwrap();
        }
    }
}

#[test]
fn a_program_does_what_it_does_without_tollgate() {
    for case in cases() {
        let (native, guarded) = (case.world(), case.world());
        native.native(case.script).ends().is(0);
        let ran = guarded.guarded(case.script).ends().is(0);
        assert!(!ran.stderr().contains("refused"), "{}: {ran}", case.name);
        assert_eq!(guarded.tree(), native.tree(), "{}", case.name);
        guarded.nothing_is_left();
        if guarded.path(".git").exists() {
            let status = |world: &World| {
                world
                    .native("git status --porcelain -- ':!.tollgate'; git log --format=%s%T; git fsck")
                    .ends()
                    .is(0)
                    .stdout()
            };
            assert_eq!(status(&guarded), status(&native), "{}", case.name);
        }
    }
}

#[test]
fn a_change_by_someone_else_is_never_lost() {
    for case in cases() {
        for how in [Save::InPlace, Save::ByRename] {
            let world = case.world();
            let before = world.tree();
            let script = format!("{}; echo more > more; {HOLD}", case.script);
            let ran = world.held(&[], &script, || save(&world, how));
            let story = format!("{}, {how:?}", case.name);
            assert!(refused(ran).contains(&("f".to_owned(), "STALE_FILE".to_owned())), "{story}");
            world.holds("f", "theirs\n");
            let mut after = world.tree();
            after.insert("/f".to_owned(), before["/f"].clone());
            assert_eq!(after, before, "{story}: something else was written");
            world.nothing_is_left();
        }
    }
}

/// The other change comes before the program has looked at the file. Some programs notice it themselves.
#[test]
fn a_change_before_the_program_looks_is_not_lost_either() {
    for case in cases() {
        let world = case.world();
        let script = format!("{HOLD}; {}", case.script);
        let ran = world.held(&[], &script, || save(&world, Save::InPlace));
        assert!(!format!("{ran}").starts_with("exit 0"), "{}: {ran}", case.name);
        world.holds("f", "theirs\n");
    }
}

#[test]
fn a_program_that_keeps_the_file_open_loses_nothing() {
    for script in [
        "python3 -c \"import subprocess; f=open('f','r+'); f.read(); subprocess.run(['sh','-c','HOLD']); f.write('mine')\"",
        "python3 -c \"import subprocess; f=open('f','a'); subprocess.run(['sh','-c','HOLD']); f.write('mine')\"",
        "python3 -c \"import mmap,subprocess; f=open('f','r+b'); m=mmap.mmap(f.fileno(),0); \
         subprocess.run(['sh','-c','HOLD']); m[0:3]=b'ONE'\"",
        "(HOLD; echo mine) > f",
        "(HOLD; echo mine) >> f",
    ] {
        let world = World::new();
        world.puts("f", "one\ntwo\n");
        let ran = world.held(&[], &script.replace("HOLD", HOLD), || save(&world, Save::InPlace));
        assert_eq!(refused(ran), [("f".to_owned(), "STALE_FILE".to_owned())], "{script}");
        world.holds("f", "theirs\n");
    }
}

/// What a file held at the start is known once tollgate has hashed it, a moment after the command has read it.
#[test]
fn a_file_that_was_saved_again_with_the_same_bytes_is_not_stale() {
    for script in ["cat f; HOLD; sed -i s/one/1/ f", "cat f; HOLD; echo three > f", "cat f; HOLD; rm f"] {
        let script = script.replace("HOLD", HOLD);
        until("a run that is not refused", || {
            let world = World::new();
            world.puts("f", "one\ntwo\n");
            let ran = world.held(&[], &script, || {
                fs::write(world.tmp().join("new"), "one\ntwo\n").unwrap();
                fs::rename(world.tmp().join("new"), world.path("f")).unwrap();
            });
            format!("{ran}").starts_with("exit 0").then_some(())
        });
    }
}

/// Two agents that count on the same number must not both succeed.
#[test]
fn the_same_result_by_someone_else_is_a_change() {
    let world = World::new();
    world.puts("n", "1");
    let script = format!("x=$(cat n); {HOLD}; echo $((x + 1)) > n");
    let ran = world.held(&[], &script, || fs::write(world.path("n"), "2\n").unwrap());
    assert_eq!(refused(ran), [("n".to_owned(), "STALE_FILE".to_owned())]);
}

#[test]
fn of_three_files_none_is_written_if_the_third_is_stale() {
    let world = World::new();
    for name in ["a", "b", "f"] {
        world.puts(name, "one\n");
    }
    let script = format!("sed -i s/one/1/ a b f; {HOLD}");
    let ran = world.held(&[], &script, || save(&world, Save::ByRename));
    assert_eq!(refused(ran), [("f".to_owned(), "STALE_FILE".to_owned())]);
    world.holds("a", "one\n");
    world.holds("b", "one\n");
}

#[test]
fn a_file_that_only_the_command_read_is_a_note_and_with_serial_a_refusal() {
    let world = World::new();
    world.puts("f", "one\n");
    let script = format!("cat f; echo x > g; {HOLD}");
    let ran = world.held(&[], &script, || save(&world, Save::InPlace)).is(0);
    assert!(ran.stderr().contains("`f` was read by the command and changed"), "{ran}");
    world.holds("g", "x\n");
    world.puts("f", "one\n");
    let script = format!("cat f; echo y > g; {HOLD}");
    let ran = world.held(&["--serial"], &script, || save(&world, Save::InPlace));
    assert_eq!(refused(ran), [("f".to_owned(), "STALE_FILE".to_owned())]);
    world.holds("g", "x\n");
    // Without a change, both are content.
    let ran = world.guarded_with(&["--serial"], "cat f; echo z > g").ends().is(0);
    assert_eq!(ran.stderr(), "");
}

/// A search reads many files. Nothing depends on what it found, unless it wrote something.
#[test]
fn a_search_gets_a_note_about_changed_files_only_if_it_wrote_something() {
    let world = World::new();
    for number in 0..20 {
        world.puts(format!("d/{number}"), "text\n");
    }
    for (write, notes) in [("", 0), ("echo x > g;", 1)] {
        world.puts("f", "one\n");
        let script = format!("cat f d/*; {write} {HOLD}");
        let ran = world.held(&[], &script, || save(&world, Save::InPlace)).is(0);
        assert_eq!(ran.stderr().matches("was read by the command and changed").count(), notes, "{ran}");
    }
}

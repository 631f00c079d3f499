//! Which level a run reaches, and what it says if it cannot reach one.

use serde_json::Value;

use super::{LANDLOCK, SAVES, ledger, run, world};
use crate::world::{Ran, World, until};

fn levels(answer: &Value) -> Vec<(String, String)> {
    let findings = answer["findings"].as_array().unwrap().iter().filter(|found| found["check"] == "run");
    let text = |found: &Value, key: &str| found[key].as_str().unwrap().to_owned();
    findings.map(|found| (text(found, "level"), text(found, "message"))).collect()
}

/// A filter for system calls that forbids one of them, in front of a command.
fn without_call(world: &World, call: i64, words: &[&str]) -> Ran {
    // Perl has no way to install a filter but the system call itself: load the number, compare, answer EPERM or allow.
    let script = r#"
        my $call = shift @ARGV;
        my $op = sub { pack("SCCL", @_) };
        my $code = $op->(0x20, 0, 0, 0) . $op->(0x15, 0, 1, $call) . $op->(0x06, 0, 0, 0x00050001) . $op->(0x06, 0, 0, 0x7fff0000);
        my $program = pack("Sx6P", 4, $code);
        my $prctl = `uname -m` =~ /x86_64/ ? 157 : 167;
        syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "$!";
        syscall($prctl, 22, 2, $program) == 0 or die "$!";
        exec @ARGV or die "$!";
    "#;
    let number = call.to_string();
    let all = ["-e", script, &number].iter().chain(words).copied().collect::<Vec<_>>();
    world.program("perl", all).ends()
}

/// In front of a command that may not make namespaces.
const NO_NAMESPACES: &[&str] = &[
    "unshare",
    "-Ur",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all -- \"$@\"",
    "sh",
];

#[test]
fn observing_prevents_nothing_and_says_so() {
    let world = world();
    let turn = world.turn("blue");
    world.run(&format!("read f --turn {turn}")).is(0);
    SAVES[0](&world, "foreign\n");
    let words = ["run", "--mode", "observe", "--turn", &turn, "--", "sh", "-c", "echo two > f; exit 3"];
    let ran = world.tollgate(words).ends().is(3);
    let not_guarded =
        "note: tollgate did not guard this command: it could overwrite changes that you have not seen\n";
    assert!(ran.stderr().starts_with(not_guarded), "{ran}");
    assert!(ran.stderr().contains("note: `f`, which you read"), "what it has read was changed: {ran}");
    world.holds("f", "two\n");
    assert_eq!(ledger(&world, "MUTATION").len() + ledger(&world, "MUTATION_CONFLICT").len(), 0);
    // The agent must look at what the command has left.
    let words = ["write", "f", "--turn", &turn];
    assert!(world.tollgate(words).stdin("three\n").ends().is(1).to_string().contains("STALE_FILE"));
}

#[test]
fn the_exit_code_is_that_of_an_observed_command() {
    let world = world();
    run(&world, "observe", &["sh", "-c", "exit 7"]).is(7);
    let ran = run(&world, "observe", &["sh", "-c", "kill -9 $$"]);
    assert!(ran.to_string().starts_with("signal: 9"), "{ran}");
    run(&world, "observe", &["./f"]).is(126);
    run(&world, "observe", &["no-such-program"]).is(127);
}

#[test]
fn a_level_that_is_asked_for_and_not_possible_is_an_error_with_a_reason() {
    let world = world();
    let tollgate = env!("CARGO_BIN_EXE_tollgate");
    let ran = without_call(&world, libc::SYS_seccomp, &[tollgate, "run", "--mode", "gate", "--", "tee", "f"])
        .is(125);
    assert!(ran.stderr().contains("it cannot be guarded here; gate: a sandbox forbids"), "{ran}");
    world.holds("f", "one\n");
}

#[test]
fn auto_takes_the_strongest_level_that_is_possible_and_says_which() {
    let world = world();
    let tollgate = env!("CARGO_BIN_EXE_tollgate");
    // Neither namespaces nor filters.
    let both = |words: &[&str]| without_call(&world, libc::SYS_seccomp, &[NO_NAMESPACES, words].concat());
    let ran = both(&[tollgate, "run", "--", "sh", "-c", "echo two > f"]);
    assert!(ran.stderr().contains("tollgate did not guard this command"), "{ran}");
    assert!(ran.stderr().contains("gate: a sandbox forbids"), "{ran}");
    world.holds("f", "two\n");
    let found = levels(&both(&[tollgate, "doctor", "--json"]).is(0).json());
    let words: Vec<&str> = found.iter().map(|(_, message)| message.as_str()).collect();
    assert!(words[0].starts_with("level `transaction` is not possible here: "), "{words:?}");
    assert!(words[1].starts_with("level `gate` is not possible here: "), "{words:?}");
    assert!(words[2].starts_with("`tollgate run` reaches the level `observe`"), "{words:?}");
    assert_eq!(
        found.iter().map(|(level, _)| level.as_str()).collect::<Vec<_>>(),
        ["warning", "warning", "ok"]
    );
}

#[test]
fn without_namespaces_auto_takes_the_gate() {
    let tollgate = env!("CARGO_BIN_EXE_tollgate");
    let limit = |world: &World, words: &[&str]| {
        world.program("unshare", [&NO_NAMESPACES[1..], words].concat()).ends()
    };
    let sandbox = |world: &World, words: &[&str]| without_call(world, libc::SYS_unshare, words);
    type Sandbox<'a> = (&'a dyn Fn(&World, &[&str]) -> Ran, &'a str);
    let sandboxes: [Sandbox<'_>; 2] =
        [(&limit, "`user.max_user_namespaces`"), (&sandbox, "a sandbox forbids")];
    for (run, reason) in sandboxes {
        let world = world();
        run(&world, &[tollgate, "run", "--", "sh", "-c", "echo two > f"]).is(0);
        assert_eq!(ledger(&world, "MUTATION")[0]["payload"]["level"], "gate");
        let found = levels(&run(&world, &[tollgate, "doctor", "--json"]).is(0).json());
        assert!(found[0].1.starts_with("level `transaction` is not possible here: "), "{found:?}");
        assert!(found[0].1.contains(reason), "{found:?}");
        assert!(found[1].1.starts_with("`tollgate run` reaches the level `gate`"), "{found:?}");
        let ran = run(&world, &[tollgate, "run", "--mode", "transaction", "--", "tee", "f"]).is(125);
        assert!(ran.stderr().contains(reason), "{ran}");
        world.holds("f", "two\n");
    }
}

#[test]
fn in_a_landlock_domain_auto_takes_the_gate() {
    let world = world();
    let tollgate = env!("CARGO_BIN_EXE_tollgate");
    let words = ["-e", LANDLOCK, tollgate, "run", "--", "sh", "-c", "cat f > t; echo two >> t; mv t f"];
    world.program("perl", words).ends().is(0);
    world.holds("f", "one\ntwo\n");
    let lines = ledger(&world, "MUTATION");
    assert_eq!(lines[0]["payload"]["level"], "gate", "{lines:?}");
}

#[test]
fn a_command_that_keeps_running_is_guarded_by_the_gate() {
    for words in [
        &["--", "sh", "-c", "echo two > f &"][..],
        &["--", "bash", "-lc", "echo two > f & "],
        &["--keep-running", "--", "sh", "-c", "echo two > f"],
    ] {
        let world = world();
        world.tollgate(["run"].iter().chain(words)).ends().is(0);
        let line = until("its ledger line", || ledger(&world, "MUTATION").pop());
        assert_eq!(line["payload"]["level"], "gate", "{words:?}");
    }
}

//! Bad input for tasks: a clear message, nothing changes, and the worker continues with the other tasks.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::world::{Ran, World};

fn world(more: &str) -> World {
    let world = World::with(&format!("[vault]\nsettle = \"50ms\"\n{more}"));
    world.run("init --vault").is(0);
    world
}

/// Works through all claimable tasks.
fn drain(world: &World) -> Ran {
    world.run("work --agent blue --once -- true").is(0)
}

fn done(world: &World) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(world.path("vault/Done"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn names_of_tasks_and_agents() {
    let world = world("");
    let long = "x".repeat(256);
    let bad_tasks: [&[u8]; 8] =
        [b"a/b", b"../x", b"..", b".hidden", b"a\nb", b"a\x1b[31m", b"\xff\xfe", long.as_bytes()];
    for name in bad_tasks {
        let name = OsStr::from_bytes(name);
        for verb in ["show", "why", "claim", "verify", "release", "approve"] {
            let ran = world.tollgate([OsStr::new("task"), OsStr::new(verb), name]).ends().is(2);
            assert!(!ran.stderr().contains('\x1b') && ran.stderr().contains("error: "), "{ran}");
        }
        let add = world.tollgate([OsStr::new("task"), "add".as_ref(), "T".as_ref(), "--name".as_ref(), name]);
        add.ends().is(2);
    }
    for agent in ["", ".", "..", "a/b", "a b", "a\nb", "-x", &"x".repeat(65)] {
        for words in [["task", "claim", "--next"], ["task", "why", "x"], ["work", "--once", "--interval=1"]] {
            let agent = format!("--agent={agent}");
            world.tollgate(words.into_iter().chain([agent.as_str()])).ends().is(2);
        }
    }
    world.tollgate(["task", "claim", "--next"]).env("TOLLGATE_AGENT", "../x").ends().is(2);
    // The longest valid name, also if it is taken in the target folder.
    let name = format!("{}.md", "ö".repeat(126));
    world.puts(format!("vault/Done/{name}"), "old\n");
    world.puts(format!("vault/Needs_Action/{name}"), "new\n");
    drain(&world);
    world.holds(format!("vault/Done/{name}"), "old\n");
    assert_eq!(done(&world).len(), 2);
    assert!(!world.tmp().join("x").exists() && !world.path("vault/x").exists());
    for (words, code) in [
        ("task claim", 2),
        ("task claim x --next", 2),
        ("task verify x", 2),
        ("task verify x --claim-id nonsense", 2),
        ("task verify x --claim-id c-0123456789abcdef", 1),
        ("task release x --claim-id c-0123456789abcdef --to Nowhere", 2),
        ("task release x --claim-id c-0123456789abcdef --result perhaps", 2),
        ("task reject x", 2),
        ("task approve x", 1),
        ("task list --state Nowhere", 2),
        ("task show x", 3),
        ("task add T --priority soon", 2),
        ("task add T --due soon", 2),
        ("work --agent a --jobs 0 -- true", 2),
        ("work --agent a --interval 0 -- true", 2),
    ] {
        world.run(words).is(code);
    }
    world.tollgate(["task", "reject", "x", "--reason", " "]).typed("yes").is(3);
    world.puts("vault/Needs_Action/x.md", "x\n");
    world.tollgate(["task", "reject", "x", "--reason", " "]).typed("yes").is(2);
    world.tollgate(["task", "approve", "x", "--by", " "]).typed("yes").is(2);
}

#[test]
fn files_that_are_not_tasks_are_skipped() {
    let world = world("");
    let folder = world.path("vault/Needs_Action");
    fs::create_dir(folder.join("folder.md")).unwrap();
    fs::write(world.tmp().join("secret"), "secret\n").unwrap();
    std::os::unix::fs::symlink(world.tmp().join("secret"), folder.join("link.md")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("dangling.md")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("pipe.md"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    fs::write(folder.join(OsStr::from_bytes(b"\xff.md")), "x\n").unwrap();
    fs::write(folder.join("control\x1b[31m.md"), "x\n").unwrap();
    for (name, text) in [
        (".hidden.md", "x\n"),
        ("notes.txt", "x\n"),
        ("empty.md", ""),
        ("unclosed.md", "---\naction: pay\n"),
        ("twice.md", "---\naction: a\naction: b\n---\n"),
        ("list.md", "---\naction: [a, b]\n---\n"),
        ("after.md", "---\nafter: ../x\n---\n"),
        ("good.md", "no newline at the end"),
        ("binary.md", "\0\u{1}\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    let ran = drain(&world);
    assert_eq!(done(&world), ["good.md"]);
    let told = ran.stderr();
    for name in [
        "folder.md",
        "link.md",
        "dangling.md",
        "pipe.md",
        "\u{fffd}.md",
        "empty.md",
        "unclosed.md",
        "twice.md",
        "list.md",
        "after.md",
        "binary.md",
    ] {
        assert_eq!(told.matches(&format!("note: skipped `{name}` in ")).count(), 1, "{name}: {told}");
    }
    assert!(!told.contains('\x1b') && !told.contains("notes.txt") && !told.contains(".hidden"), "{told}");
    let text = fs::read_to_string(world.path("vault/Done/good.md")).unwrap();
    assert!(text.starts_with("no newline at the end\n<!-- tollgate c-"), "{text}");
    assert_eq!(fs::read_to_string(world.tmp().join("secret")).unwrap(), "secret\n");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 14, "all other files are where they were");
    for name in ["folder", "link", "pipe"] {
        let ran = world.run(&format!("task claim {name} --agent blue --json"));
        assert!(!ran.stdout().contains("\"claimed\":true"), "{ran}");
    }
}

#[test]
fn a_task_of_a_hundred_mebibytes_is_incomplete() {
    let world = world("durability = \"fast\"\n");
    let text = vec![b'x'; 100 << 20];
    world.puts("vault/Needs_Action/big.md", &text);
    world.puts("vault/Needs_Action/small.md", "small\n");
    let ran = drain(&world);
    assert!(ran.stderr().contains("`big.md`") && ran.stderr().contains("1 MiB"), "{ran}");
    assert_eq!(done(&world), ["small.md"]);
    assert!(world.run("task show big").is(0).stdout().len() < 2 << 20);
}

#[test]
fn a_fault_of_one_task_does_not_stop_the_others() {
    let world = world("durability = \"fast\"\n");
    for task in ["a", "b", "c"] {
        world.run(&format!("task add {task}")).is(0);
    }
    let nobody =
        |path: &str, mode| fs::set_permissions(world.path(path), fs::Permissions::from_mode(mode)).unwrap();
    nobody("vault/Needs_Action/b.md", 0o000);
    // Not as root, who may do everything.
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let all = ["-R", "65534:65534", world.tmp().to_str().unwrap()];
        assert!(std::process::Command::new("chown").args(all).status().unwrap().success());
    }
    let run = |line: &str| {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_tollgate")];
        match is_root {
            true => world.program("setpriv", nobody.into_iter().chain(line.split(' '))).ends(),
            false => world.run(line),
        }
    };
    let ran = run("work --agent blue --once -- true");
    assert_eq!(done(&world), ["a.md", "c.md"], "{ran}");
    assert!(ran.stderr().contains("`b.md`") && ran.stderr().contains("ermission denied"), "{ran}");
    // A read-only task stays unchanged.
    nobody("vault/Needs_Action/b.md", 0o444);
    let before = fs::read(world.path("vault/Needs_Action/b.md")).unwrap();
    run("task claim b --agent blue --json").is(3).fault("NO_PERMISSION");
    let ran = run("work --agent blue --once -- true").is(1);
    assert!(ran.stdout().contains("0 tasks done, 1 could not be claimed"), "{ran}");
    assert_eq!(fs::read(world.path("vault/Needs_Action/b.md")).unwrap(), before);
    // A read-only folder is a fault, not a lost race.
    nobody("vault/Needs_Action/b.md", 0o644);
    nobody("vault/Needs_Action", 0o555);
    run("task claim b --agent blue --json").is(3).fault("NO_PERMISSION");
    let figures = run("task figures --json").is(0).json();
    assert_eq!(figures["coordination"]["claim_conflicts_avoided"], 0);
    assert!(figures["coordination"]["claim_success_rate"].as_f64().unwrap() < 1.0, "{figures}");
    nobody("vault/Needs_Action", 0o755);
}

#[test]
fn a_full_disk() {
    let world = World::new();
    // A small file system that is soon full.
    let mount = world.tmp().join("small");
    fs::create_dir(&mount).unwrap();
    let script = format!(
        "set -e\n\
         mount -t tmpfs -o size=2m tollgate {0}\n\
         cd {0}\n\
         tollgate init --vault >/dev/null\n\
         tollgate task add First >/dev/null\n\
         tollgate task add Second >/dev/null\n\
         dd if=/dev/zero of=fill bs=4k 2>/dev/null || true\n\
         set +e\n\
         tollgate task claim first --agent blue --json; echo code $?\n\
         ls vault/Needs_Action\n\
         tollgate work --agent blue --once -- true >/dev/null 2>$TMP/told; echo code $?\n\
         rm fill\n\
         tollgate work --agent blue --once -- true 2>/dev/null\n\
         ls vault/Done; tollgate ledger verify",
        mount.display()
    );
    // Users other than root need a user namespace for mounting.
    let alone = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let ran = world.program("unshare", [alone, "bash", "-c", &script]).env("TMP", world.tmp()).ends();
    let said = ran.stdout();
    assert!(said.starts_with("{\"error\":\"DISK_FULL\""), "{ran}");
    let rest = "code 3\nfirst.md\nsecond.md\n";
    assert!(said.contains(rest), "{ran}");
    assert!(said.contains("2 tasks done\nfirst.md\nsecond.md\nvalid: "), "{ran}");
    let told = fs::read_to_string(world.tmp().join("told")).unwrap();
    assert!(told.contains("No space left on device"), "{told}");
}

#[test]
fn a_text_may_begin_with_a_hyphen() {
    let world = world("[agent.cloud]\nsensitive = [\"payment\"]\n");
    let ok = |words: &[&str]| world.tollgate(words).ends().is(0);
    ok(&["task", "add", "Rent", "--action", "payment", "--body", "- first item\n- second item"]);
    let id = world.json("task claim rent --agent cloud")["claim_id"].as_str().unwrap().to_owned();
    ok(&["task", "progress", "rent", "- did it", "--claim-id", &id]);
    ok(&["task", "progress", "--claim-id", &id, "rent", "-5 degrees"]);
    ok(&["task", "draft", "rent", "--claim-id", &id, "- pay 900"]);
    ok(&["task", "release", "rent", "--note", "-- later", "--claim-id", &id]);
    let reject = ["task", "reject", "rent", "--reason", "- paid already"];
    world.tollgate(reject).typed("yes").is(0);
    let text = fs::read_to_string(world.path("vault/Rejected/rent.md")).unwrap();
    for line in ["- first item", " - did it", " -5 degrees", "- pay 900", "-- later", "- paid already"] {
        assert!(text.lines().any(|found| found.ends_with(line)), "`{line}` is not in\n{text}");
    }
}

#[test]
fn an_option_is_not_taken_for_a_text() {
    let world = world("");
    world.run("task add X").is(0);
    let id = world.json("task claim x --agent blue")["claim_id"].as_str().unwrap().to_owned();
    for words in [
        "add Y --body --json",
        "release x --note --result --claim-id ID",
        "progress x --claim-id ID --jsn",
        "progress x --claim-id ID",
        "progress --jsn x note --claim-id ID",
        "draft x --claim-id ID --dry-run",
    ] {
        let line = format!("task {words}").replace("ID", &id);
        world.run(&line).is(2);
    }
    for verb in ["progress", "draft"] {
        let ran = world.tollgate(["task", verb, "x", " ", "--claim-id", &id]).ends().is(2);
        assert!(ran.stderr().contains(" is empty\nhint: give the text"), "{ran}");
    }
    assert_eq!(world.json(&format!("task progress x note --claim-id {id}"))["noted"], true);
    assert!(!world.path("vault/Needs_Action/y.md").exists());
}

#[test]
fn a_refusal_has_the_same_hint_in_json() {
    let world = world("");
    world.run("task add X").is(0);
    world.run("task claim x --agent blue").is(0);
    world.puts("a.md", "a\n");
    for line in [
        "task claim x --agent red",
        "task claim --next --agent red",
        "task approve x",
        "task edit x",
        "task progress x note --claim-id c-0123456789abcdef",
        "task verify x --claim-id c-0123456789abcdef",
        "task add X --name x",
        "task add A --name a --after a",
        "merge a.md",
        "trust",
    ] {
        let ran = world.run(line).is(1);
        let text = format!("{}{}", ran.stdout(), ran.stderr());
        let hint = text.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap();
        assert_eq!(world.run(&format!("{line} --json")).is(1).json()["hint"], hint, "{line}");
    }
}

#[test]
fn a_bad_claim_in_the_environment_is_named() {
    let world = world("");
    for line in ["task verify x", "write a.md"] {
        let run = world.tollgate(line.split(' ')).env("TOLLGATE_TASK_ID", "x");
        let ran = run.env("TOLLGATE_CLAIM_ID", "nonsense").ends().is(2);
        assert!(ran.stderr().starts_with("error: invalid `TOLLGATE_CLAIM_ID`: "), "{ran}");
        assert!(ran.stderr().ends_with("hint: set the variable to a valid value, or unset it\n"), "{ran}");
    }
}

#[test]
fn a_release_without_a_draft_says_so() {
    let world = world("[agent.cloud]\nsensitive = [\"payment\"]\n");
    let note = "`rent.md` has no `## Draft` section, so a person has nothing to approve";
    for (draft, more) in [(None, ""), (None, "--json"), (Some("pay"), ""), (Some("pay"), "--json")] {
        world.run("task add Rent --action payment").is(0);
        let id = world.json("task claim rent --agent cloud")["claim_id"].as_str().unwrap().to_owned();
        if let Some(draft) = draft {
            world.run(&format!("task draft rent {draft} --claim-id {id}")).is(0);
        }
        let ran = world.run(&format!("task release rent --claim-id {id} {more}")).is(0);
        let said = format!("{}{}", ran.stdout(), ran.stderr());
        assert_eq!(said.contains(note), draft.is_none(), "{ran}");
        fs::remove_file(world.path("vault/Pending_Approval/rent.md")).unwrap();
    }
}

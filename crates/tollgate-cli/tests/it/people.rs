//! What only people decide: a terminal, the whole text, and a typed answer.

use std::fs;

use crate::hook::{HOSTS, Program};
use crate::world::World;

const ROLES: &str = "[vault]\nsettle = \"0ms\"\ndurability = \"fast\"\n\
                     [agent.cloud]\nsensitive = [\"payment\"]\n[agent.local]\nallowed = [\"payment\"]\n";

/// A workspace in which `rent` waits for a person.
fn pending(draft: &str) -> World {
    let world = World::with(ROLES);
    world.run("init --vault").is(0);
    world.run("task add Rent --action payment").is(0);
    let id = world.json("task claim rent --agent cloud")["claim_id"].as_str().unwrap().to_owned();
    world.tollgate(["task", "draft", "rent", "--claim-id", &id, draft]).ends().is(0);
    world.run(&format!("task release rent --claim-id {id}")).is(0);
    assert!(is_in(&world, "Pending_Approval"));
    world
}

fn is_in(world: &World, state: &str) -> bool {
    world.path(format!("vault/{state}/rent.md")).exists()
}

#[test]
fn without_a_terminal_nobody_decides() {
    let world = pending("pay 900");
    let decisions = [
        vec!["task", "approve", "rent"],
        vec!["task", "reject", "rent", "--reason", "no"],
        vec!["task", "retry", "rent"],
        vec!["task", "return", "rent"],
        vec!["task", "edit", "rent"],
    ];
    for words in &decisions {
        // A pipe, a name, and both.
        for more in [vec![], vec!["--by", "ada"], vec!["--by", "cloud"]] {
            let run = || world.tollgate(words.iter().chain(&more)).stdin("yes\n");
            let ran = run().ends().is(1);
            assert!(
                ran.stderr().contains("only people approve, reject, retry, return and edit tasks"),
                "{ran}"
            );
            assert!(ran.stderr().contains("hint: ask a person to decide: on the dashboard"), "{ran}");
            let json =
                world.tollgate(words.iter().chain(&more).chain(&["--json"])).stdin("yes\n").ends().is(1);
            assert_eq!(json.json()["reason"], "no_terminal");
        }
    }
    assert!(is_in(&world, "Pending_Approval"));
    assert_eq!(world.json("ledger tail --type APPROVAL").as_array().unwrap().len(), 0);
}

#[test]
fn an_agent_cannot_decide_even_on_a_terminal() {
    let world = pending("pay 900");
    let decisions = [
        vec!["task", "approve", "rent"],
        vec!["task", "reject", "rent", "--reason", "no"],
        vec!["task", "retry", "rent"],
        vec!["task", "return", "rent"],
        vec!["task", "edit", "rent"],
    ];
    for words in &decisions {
        for more in [["--agent", "cloud"], ["--agent", "ada"], ["--by", "cloud"]] {
            let said = world.tollgate(words.iter().chain(&more)).typed("yes").is(1);
            assert!(said.shown.contains("is an agent, and only people approve, reject"), "{}", said.shown);
        }
        for (name, value) in [
            ("TOLLGATE_AGENT", "cloud"),
            ("CLAUDECODE", "1"),
            ("CODEX_THREAD_ID", "x"),
            ("GEMINI_CLI", "1"),
            ("OPENCODE", "1"),
            ("KILO", "1"),
            ("CURSOR_AGENT", "1"),
            ("COPILOT_CLI", "1"),
            ("CLINE_ACTIVE", "true"),
        ] {
            let said = world.tollgate(words).env(name, value).typed("yes").is(1);
            assert!(said.shown.contains("is an agent"), "{name}: {}", said.shown);
        }
    }
    assert!(is_in(&world, "Pending_Approval"));
}

#[test]
fn a_person_sees_the_whole_text_and_types_the_answer() {
    let world = pending("pay 900 to\u{202e}eda\u{200b}");
    let file = world.path("vault/Pending_Approval/rent.md");
    let text = [fs::read(&file).unwrap(), b"see \x1b[8mhidden\xff\n".to_vec()].concat();
    fs::write(&file, &text).unwrap();
    let approve = || world.tollgate(["task", "approve", "rent"]);
    for answer in ["", "y", "no", "yes please", "YES", "ja"] {
        let said = approve().typed(answer).is(1);
        assert!(said.shown.contains("the answer was not `yes`"), "{answer}: {}", said.shown);
    }
    let json = world.tollgate(["task", "approve", "rent", "--json"]).typed_with_stdout("no").is(1);
    assert_eq!(json.json()["reason"], "not_confirmed");
    assert!(is_in(&world, "Pending_Approval"));
    let said = approve().typed("yes").is(0);
    let readable = String::from_utf8_lossy(&text);
    for line in readable.lines().filter(|line| !line.contains(['\u{202e}', '\u{1b}'])) {
        assert!(said.shown.contains(line), "`{line}` is not in\n{}", said.shown);
    }
    let shown = said.shown;
    assert!(shown.contains("pay 900 to\\u{202e}eda\\u{200b}\n"), "{shown}");
    assert!(shown.contains("see \\u{1b}[8mhidden\\xff\n"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{shown:?}");
    assert!(shown.contains("3 invisible characters are marked"), "{shown}");
    assert!(shown.find("pay 900") < shown.find("type `yes` to approve it:"), "{shown}");
    let line = &world.json("ledger tail --type APPROVAL")[0];
    assert_eq!((&line["payload"]["by"], &line["result"]["status"]), (&"ada".into(), &"APPROVED".into()));
    assert_eq!(line["payload"]["sha256"], crate::world::hash(&text));
}

#[test]
fn a_text_that_changed_after_it_was_shown_is_not_approved() {
    let world = pending("pay 900");
    let file = world.path("vault/Pending_Approval/rent.md");
    let said = world.tollgate(["task", "approve", "rent"]).typed_after("yes", || {
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("900", "9000")).unwrap();
    });
    assert!(said.is(1).shown.contains("refused: "));
    assert!(is_in(&world, "Pending_Approval"));
}

#[test]
fn what_was_typed_before_the_text_was_shown_is_not_an_answer() {
    let world = pending("pay 900");
    let said = world.tollgate(["task", "approve", "rent"]).typed_too_early("yes", "no");
    assert!(said.is(1).shown.contains("the answer was not `yes`"));
    assert!(is_in(&world, "Pending_Approval"));
}

#[test]
fn a_text_that_is_too_long_to_be_shown_is_not_decided() {
    let world = pending("pay 900");
    let file = world.path("vault/Pending_Approval/rent.md");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + &"x".repeat(1 << 20)).unwrap();
    let said = world.tollgate(["task", "approve", "rent"]).typed("yes").is(1);
    assert!(said.shown.contains("too much to show it whole"), "{}", said.shown);
    assert!(is_in(&world, "Pending_Approval"));
}

/// Where commands do not run as transactions: by the words of the command. In a run, tollgate itself refuses:
/// `reach::nobody_decides_in_a_run_whatever_the_text_of_the_command_is`.
#[test]
fn a_hooked_shell_cannot_run_what_only_people_run() {
    let world = pending("pay 900");
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        for command in [
            "tollgate task approve rent",
            "tollgate task approve rent --by ada",
            "tollgate task reject rent --reason no",
            "tollgate task return rent",
            "tollgate task edit rent",
            "tollgate serve --listen 127.0.0.1:0 &",
            "tollgate token add blue",
            "tollgate trust",
            "tollgate vault copy --from etcd://a:2379/x",
            "env TOLLGATE_AGENT= tollgate -C . vault copy --to folder",
            "tollgate vault copy --to git; ((",
            "tollgate init --host codex --remove",
            "tollgate --json -C . task --agent x approve rent",
            "/usr/local/bin/tollgate task approve rent",
            "env -u TOLLGATE_AGENT TOLLGATE_AGENT= tollgate task approve rent",
            "TOLLGATE_AGENT= tollgate trust",
            "bash -c 'cd . && tollgate task approve rent'",
            "sh -c \"bash -c 'tollgate task approve rent'\"",
            "bash <<< 'tollgate task approve rent'",
            "bash <<E\ntollgate task approve rent\nE",
            "eval tollgate task approve rent",
            "sudo -u ada timeout 5 nohup tollgate task approve rent",
            "script -qec 'tollgate task approve rent' /dev/null <<< yes",
            "echo rent | xargs -n1 tollgate task approve",
            "find . -name x -exec tollgate task approve rent \\;",
            "echo $(tollgate task approve rent)",
            "x=task; y=approve; tollgate $x $y rent",
            "tollgate task $SOMETHING rent",
            "if true; then (tollgate task approve rent); fi | cat",
            "tollgate task approve rent; ((",
            "tollgate init --store etcd://127.0.0.1:1/x",
            "tollgate init --vault other",
            "tollgate init --vault=other",
            "x=--remove; tollgate init $x",
            "tollgate init $SOMETHING",
            "script -q --command 'tollgate task approve rent' /dev/null",
            "script -qe -c'tollgate task approve rent' /dev/null",
            "script -qec \"env -S 'tollgate task approve rent'\" /dev/null",
            "script -qec 'exec -a t tollgate task approve rent' /dev/null",
            "script -qec 'timeout --signal KILL 9 tollgate task approve rent' /dev/null",
            "(echo yes; sleep 1) | exec -a x env -u CLAUDECODE script -qec 'tollgate task approve rent' /dev/null",
            "cat <<E\n$(tollgate task approve rent)\nE",
            "cat <<E\n`tollgate task approve rent`\nE",
            "x=$(env -u CLAUDECODE tollgate token add foo); echo $x",
            "[[ -n $(tollgate task approve rent) ]]",
            "for x in $(tollgate task approve rent); do :; done",
            "f() { tollgate \"$@\"; }; f task approve rent",
            "trap 'tollgate task approve rent' EXIT",
        ] {
            let reason = agent.runs(command).blocked();
            let first: serde_json::Value = serde_json::from_str(reason.lines().next().unwrap()).unwrap();
            assert_eq!(first["error"], "PEOPLE_ONLY", "{host}: {command}: {reason}");
        }
        for command in [
            "tollgate task list",
            "tollgate edit a.txt --old one --new two",
            "tollgate task show rent",
            "tollgate task why rent --agent cloud",
            "tollgate task approve --help",
            "tollgate help serve",
            "tollgate doctor",
            "grep -r 'tollgate task approve' vault",
            "echo tollgate task approve",
            "git commit -m 'tollgate task approve'",
            "ls trust serve token",
            "ls vault && tollgate task list",
            "tollgate init",
            "tollgate run -- cat a.txt",
            "tollgate task add 'tollgate task approve: docs'",
            "gh pr create --title 'tollgate vault: copy'",
            "cat <<'E'\n$(tollgate task approve rent)\nE",
            "cd tollgate && mkdocs serve",
            "cargo test -p tollgate vault",
            "python -m mypy src/tollgate/token.py",
            "kubectl logs tollgate vault",
            "python3 -c 'print(\"the tollgate\")'",
        ] {
            assert_eq!(agent.asks(&agent.before(&crate::hook::Tool::Shell(command), "c")), None, "{command}");
        }
    }
    assert!(is_in(&world, "Pending_Approval"));
}

/// Another name may have other rights.
#[test]
fn a_hooked_shell_acts_under_its_own_name() {
    let world = pending("pay 900");
    for host in HOSTS {
        let agent = Program::new(&world, host, "s");
        let own = format!("{host}-1");
        for command in [
            "tollgate task claim rent --agent boss",
            "tollgate --agent=boss task claim rent",
            "tollgate task claim rent",
            "tollgate task claim --next",
            "TOLLGATE_AGENT=boss tollgate task claim rent",
            "export TOLLGATE_AGENT=boss; tollgate task claim rent",
            "TOLLGATE_AGENT=$(cat name) tollgate task release rent --claim-id x",
            "env TOLLGATE_AGENT=boss tollgate task claim rent",
            "bash -c 'tollgate task claim rent --agent boss'",
            "TOLLGATE_AGENT=boss bash -c 'tollgate task claim rent'",
            "echo x | tollgate write a.txt --agent boss",
            "tollgate mcp --agent boss",
            "x=$(tollgate turn begin --agent boss)",
            "tollgate task claim rent --agent \"$SOMETHING\"",
            "tollgate write a.txt --agent=$SOMETHING",
            "tollgate write a.txt --agent=\"$(echo boss)\"",
            "true && export TOLLGATE_AGENT=boss; tollgate write a.txt",
            "if true; then export TOLLGATE_AGENT=boss; fi; tollgate write a.txt",
            "printf -v TOLLGATE_AGENT boss; export TOLLGATE_AGENT; tollgate task claim rent",
            "export TOLLGATE_AGENT=boss; true; bash -c 'tollgate write a.txt'",
            "tollgate turn begin --agent boss",
            "tollgate recovery restore x --agent boss",
            "env -u NODE_ENV -u TOLLGATE_AGENT tollgate write a.txt",
            "env --unset=TOLLGATE_AGENT tollgate write a.txt",
            "env -u $SOMETHING tollgate write a.txt",
            "env -i tollgate write a.txt",
            "env - tollgate write a.txt",
            "tollgate task claim rent --agent \"$TOLLGATE_AGENT\"",
            "tollgate undo --yes",
            "tollgate undo a.txt --yes",
            "tollgate undo --agent boss --since 1h --yes",
            "tollgate restore a.txt --at yesterday --yes",
            "bash -c 'tollgate -C . undo 3 --yes'",
        ] {
            let reason = agent.runs(command).blocked();
            let first: serde_json::Value = serde_json::from_str(reason.lines().next().unwrap()).unwrap();
            assert_eq!(first["error"], "OTHER_NAME", "{host}: {command}: {reason}");
            assert!(reason.contains(&format!("`--agent {own}`")), "{reason}");
        }
        for command in [
            format!("tollgate task claim rent --agent {own}"),
            format!("TOLLGATE_AGENT={own} tollgate task claim rent"),
            "tollgate task why rent --agent boss".into(),
            "tollgate ledger tail --agent boss".into(),
            "tollgate task claim --help".into(),
            "tollgate task release rent --claim-id x".into(),
            "grep -- '--agent boss' tollgate".into(),
            "tollgate recovery list --agent boss".into(),
            "tollgate recovery show x --agent boss".into(),
            "tollgate turn show --agent boss".into(),
            format!("tollgate undo 3 --yes --agent {own}"),
            format!("tollgate restore a.txt --agent {own} --at 3 --yes"),
            "tollgate undo --help".into(),
            "tollgate completions bash --agent boss".into(),
            "tollgate man --agent boss".into(),
            "env -u NODE_ENV tollgate read a.txt".into(),
            "env -uNODE_ENV --unset=X --unset Y tollgate read a.txt".into(),
        ] {
            assert_eq!(
                agent.asks(&agent.before(&crate::hook::Tool::Shell(&command), "c")),
                None,
                "{command}"
            );
        }
        // The shell inherits this name.
        let named = Program::new(&world, host, "t").started_with(vec![("TOLLGATE_AGENT", "blue".into())]);
        let asks = |command: &str| named.asks(&named.before(&crate::hook::Tool::Shell(command), "c"));
        for command in [
            "tollgate task claim rent",
            "tollgate task claim rent --agent \"$TOLLGATE_AGENT\"",
            "tollgate task claim rent --agent ${TOLLGATE_AGENT}",
            "timeout 9 tollgate --agent=\"${TOLLGATE_AGENT}\" task claim rent",
            "tollgate undo 3 --yes",
            "tollgate task claim rent --agent=$TOLLGATE_AGENT",
            "env -u NODE_ENV tollgate task claim rent",
            "if true; then TOLLGATE_AGENT=blue tollgate task list; fi; tollgate task claim rent",
        ] {
            assert_eq!(asks(command), None, "{command}");
        }
        for command in [
            "TOLLGATE_AGENT=boss; tollgate task claim rent --agent \"$TOLLGATE_AGENT\"",
            "true && TOLLGATE_AGENT=boss; tollgate task claim rent --agent \"$TOLLGATE_AGENT\"",
            "tollgate task claim rent --agent \"${TOLLGATE_AGENT}2\"",
            "tollgate task claim rent --agent \"${TOLLGATE_AGENT:-boss}\"",
            "true && export TOLLGATE_AGENT=boss; tollgate write a.txt",
            "if true; then export TOLLGATE_AGENT=boss; fi; tollgate write a.txt",
            "printf -v TOLLGATE_AGENT boss; export TOLLGATE_AGENT; tollgate task claim rent",
            "env -u TOLLGATE_AGENT tollgate task claim rent",
            "unset TOLLGATE_AGENT; tollgate task claim rent",
            "export TOLLGATE_AGENT; for TOLLGATE_AGENT in boss; do :; done; tollgate task claim rent",
        ] {
            assert!(asks(command).is_some_and(|reason| reason.contains("OTHER_NAME")), "{command}");
        }
    }
}

#[test]
fn a_person_returns_the_claim_of_an_agent() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add Weeds").is(0);
    let id = world.json("task claim weeds --agent blue")["claim_id"].as_str().unwrap().to_owned();
    let said = world.tollgate(["task", "return", "weeds"]).typed("no").is(1);
    assert!(said.shown.contains("the answer was not `yes`"), "{}", said.shown);
    assert!(world.path("vault/In_Progress/blue/weeds.md").exists());
    let said = world.tollgate(["task", "return", "weeds"]).typed("yes").is(0);
    assert!(said.shown.contains("`weeds.md` returned by `ada`, now in `Needs_Action`"), "{}", said.shown);
    assert_eq!(world.run(&format!("task verify weeds --claim-id {id} --json")).is(1).json()["valid"], false);
    assert_eq!(world.json("task claim weeds --agent red")["claimed"], true);
}

#[test]
fn a_decision_about_a_task_that_does_not_exist_says_so() {
    let world = World::new();
    world.run("init --vault").is(0);
    for verb in ["approve x", "reject x --reason no", "retry x", "return x", "edit x"] {
        let words: Vec<&str> = ["task"].into_iter().chain(verb.split(' ')).collect();
        let said = world.tollgate(&words).typed("yes").is(3);
        let expected =
            "error: the task `x.md` does not exist\nhint: run `tollgate task list` to see all tasks\n";
        assert_eq!(said.shown, expected, "{verb}");
    }
}

#[test]
fn a_person_edits_a_task_in_their_editor() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add Weeds --priority low").is(0);
    let file = world.path("vault/Needs_Action/weeds.md");
    let run = || world.tollgate(["task", "edit", "weeds"]).env("TMPDIR", world.tmp());
    let edit = |editor: &str| run().env("EDITOR", editor);
    let said = edit("sed -i s/low/high/").typed("").is(0);
    assert!(said.shown.contains("`weeds.md` edited by `ada`"), "{}", said.shown);
    assert!(fs::read_to_string(&file).unwrap().contains("priority: high\n"));
    let line = &world.json("ledger tail --type APPROVAL")[0]["payload"];
    assert_eq!((&line["decision"], &line["by"]), (&"edit".into(), &"ada".into()));
    let before = fs::read(&file).unwrap();
    let said = edit("true").typed("").is(0);
    assert!(said.shown.contains("you changed nothing"), "{}", said.shown);
    let said = edit("false").typed("").is(2);
    assert!(said.shown.contains("the editor `false` failed"), "{}", said.shown);
    let said = edit("sed -i s/high/banana/").typed("").is(2);
    assert!(said.shown.contains("an agent could not read this task"), "{}", said.shown);
    assert_eq!(fs::read(&file).unwrap(), before);
    // Somebody else changes it while the editor is open.
    let said = edit(&format!("echo more >> {}; sed -i s/high/low/", file.display())).typed("").is(1);
    assert!(said.shown.contains("refused: "), "{}", said.shown);
    assert!(fs::read_to_string(&file).unwrap().ends_with("more\n"));
    world.run("task claim weeds --agent blue").is(0);
    let said = edit("sed -i s/high/low/").typed("").is(1);
    assert!(said.shown.contains("In_Progress/blue"), "{}", said.shown);
}

#[test]
fn what_a_person_typed_is_kept_if_it_cannot_be_stored() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add Weeds --priority low").is(0);
    let file = world.path("vault/Needs_Action/weeds.md");
    let copies = world.tmp().join("copies");
    fs::create_dir(&copies).unwrap();
    let edit = |script: &str| {
        let editor = format!("edit() {{ {script}; }}; edit");
        world.tollgate(["task", "edit", "weeds"]).env("EDITOR", editor).env("TMPDIR", &copies)
    };
    let kept = || fs::read_dir(&copies).unwrap().map(|copy| copy.unwrap().path()).collect::<Vec<_>>();
    for nothing_is_typed in ["true", "false", "> \"$1\"", "rm \"$1\""] {
        edit(nothing_is_typed).typed("");
        assert_eq!(kept(), Vec::<std::path::PathBuf>::new(), "{nothing_is_typed}");
    }
    let mine = "echo mine >> \"$1\"";
    for (then, code) in [
        ("false".to_owned(), 2),
        ("sed -i s/low/zz/ \"$1\"".to_owned(), 2),
        (format!("echo more >> {}", file.display()), 1),
        ("mv vault away".to_owned(), 3),
        ("mv away vault; tollgate task claim weeds --agent blue > claim".to_owned(), 1),
    ] {
        if then.starts_with("mv away") {
            fs::rename(world.path("away"), world.path("vault")).unwrap();
        }
        let then = then.trim_start_matches("mv away vault; ");
        let said = edit(&format!("{mine}; {then}")).typed("").is(code);
        let copy = kept().pop().unwrap();
        let hint = format!(
            "; your text is kept in `{}`: to use it, run `tollgate task edit weeds` again and copy it from there\n",
            copy.display()
        );
        assert!(said.shown.contains("\nhint: ") && said.shown.ends_with(&hint), "{then}: {}", said.shown);
        assert!(!said.shown.contains("options"), "{}", said.shown);
        assert!(fs::read_to_string(&copy).unwrap().contains("mine\n"), "{then}");
        fs::remove_file(copy).unwrap();
    }
    world.tollgate(["task", "return", "weeds"]).typed("yes").is(0);
    let words = ["task", "edit", "weeds", "--json"];
    let editor = "sed -i s/low/zz/";
    let said = world.tollgate(words).env("EDITOR", editor).env("TMPDIR", &copies).typed_with_stdout("").is(2);
    let copy = kept().pop().unwrap();
    assert!(said.json()["hint"].as_str().unwrap().contains(copy.to_str().unwrap()), "{}", said.stdout);
    let said = edit("> \"$1\"").typed("").is(2);
    assert!(
        said.shown.contains("to drop the task, run `tollgate task reject weeds --reason "),
        "{}",
        said.shown
    );
}

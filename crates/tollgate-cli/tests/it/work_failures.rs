//! `tollgate work` with commands that fail: pauses, the breaker, the time limit, the output that is kept, and `task retry`.

use std::fs;

use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::{Value, json};

use crate::serve::Served;
use crate::world::{Run, World, until};

fn world(more: &str) -> World {
    let world = World::with(&format!("[vault]\ndurability = \"fast\"\nsettle = \"0ms\"\n{more}"));
    world.run("init --vault").is(0);
    world
}

fn work<'w>(world: &'w World, options: &str, script: &str) -> Run<'w> {
    let words = ["work"].into_iter().chain(options.split_whitespace()).chain(["--", "sh", "-c", script]);
    world.tollgate(words).env("TMP", world.tmp())
}

fn count(world: &World, state: &str) -> usize {
    fs::read_dir(world.path("vault").join(state)).unwrap().count()
}

/// The lines of this type, oldest first.
fn lines(world: &World, kind: &str) -> Vec<Value> {
    let lines = world.json(&format!("ledger tail -n 1000 --type {kind}"));
    lines.as_array().unwrap().clone()
}

fn statuses(world: &World) -> Vec<Value> {
    lines(world, "BREAKER").into_iter().map(|line| line["result"]["status"].clone()).collect()
}

#[test]
fn a_command_that_always_fails_does_not_empty_the_backlog() {
    let world = world("");
    for number in 0..110 {
        world.puts(format!("vault/Needs_Action/t{number}.md"), "do it\n");
    }
    for run in 1..=3 {
        let said = work(&world, "--agent blue --once --json", "exit 1").ends().is(1).json();
        let expected = json!({"done": 0, "failed": 5, "breaker": "open"});
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(said[key], *value, "{said}");
        }
        assert_eq!((lines(&world, "CLAIM").len(), statuses(&world).len()), (5 * run, run));
    }
    assert_eq!((count(&world, "Needs_Action"), count(&world, "Rejected")), (110, 0));
    let opened = &lines(&world, "BREAKER")[0];
    assert_eq!((&opened["agent"], &opened["result"]["status"]), (&json!("blue"), &json!("OPEN")));
    assert_eq!(
        (&opened["payload"]["failures"], &opened["payload"]["reason"]),
        (&json!(5), &json!("exit status 1"))
    );

    let ran = work(&world, "--agent blue --once", "exit 1").ends().is(1);
    assert_eq!(ran.stdout(), "0 tasks done, 5 attempts failed\n");
    let told = "`blue` stops claiming tasks: its command failed 5 times in a row (exit status 1)\n\
         hint: look at the output above, then fix the command, then start `tollgate work` again\n";
    assert!(ran.stderr().contains(told), "{ran}");

    let stopped =
        "`blue` has stopped claiming tasks, because its command failed 5 times in a row (exit status 1)";
    let ran = world.run("doctor");
    assert!(ran.stdout().contains(&format!("warning  breaker      {stopped}")), "{ran}");
    let served = Served::new(&world, &[]);
    let health = served.until_health("the breaker", |health| health["status"] == "degraded");
    assert!(health["problems"][0].as_str().unwrap().starts_with(stopped), "{health}");
    assert_eq!(health["agents"][0]["breaker"]["failures"], 5, "{health}");
    for page in ["/", "/agents"] {
        let page = served.gets(page).body;
        assert!(page.contains("has stopped claiming tasks, because its command failed 5 times"), "{page}");
    }
}

#[test]
fn a_stopped_worker_tries_one_task_and_goes_on_when_it_works() {
    let world = world("retry = [\"50ms\"]\nmax_attempts = 1000\n[work]\nbreaker = 2\n");
    for number in 0..10 {
        world.puts(format!("vault/Needs_Action/t{number}.md"), "do it\n");
    }
    let worker = work(&world, "--agent blue", "test -e $TMP/fixed").starts();
    // It opens after two failures, and again after each try.
    until("three tries", || (statuses(&world).len() >= 4).then_some(()));
    assert!(lines(&world, "CLAIM").len() <= 2 + statuses(&world).len(), "one task for each try");
    let served = Served::new(&world, &[]);
    served.until_health("the breaker", |health| health["status"] == "degraded");
    fs::write(world.tmp().join("fixed"), "").unwrap();
    until("all tasks", || (count(&world, "Done") == 10).then_some(()));
    until("the breaker to close", || (statuses(&world).last() == Some(&json!("CLOSED"))).then_some(()));
    served.until_health("no breaker", |health| health["status"] == "ok");
    assert_eq!(count(&world, "Rejected"), 0);
    worker.signal(Signal::TERM);
}

/// A worker whose command ends its first attempt in this way makes the second one after the pause.
fn second_attempt_pauses(script: &str) {
    let world = world("retry = [\"300ms\"]\n");
    world.run("task add X").is(0);
    let worker = work(&world, "--agent blue --interval 86400", script).starts();
    until("the second attempt", || world.path("vault/Done/x.md").exists().then_some(()));
    let claims: Vec<jiff::Timestamp> =
        lines(&world, "CLAIM").iter().map(|line| line["time"].as_str().unwrap().parse().unwrap()).collect();
    assert!(claims[1].duration_since(claims[0]).as_millis() >= 300, "{claims:?}");
    worker.signal(Signal::TERM);
}

#[test]
fn a_worker_wakes_up_when_a_pause_is_over() {
    second_attempt_pauses("test -e $TMP/tried || { touch $TMP/tried; exit 1; }");
}

#[test]
fn a_pausing_task_says_until_when_and_a_person_ends_the_pause() {
    let world = world("retry = [\"1h\"]\n");
    world.run("task add X").is(0);
    work(&world, "--agent blue --once", "exit 1").ends().is(1);
    let why = world.tollgate("task why x --agent red --json".split(' ')).ends().is(1).json();
    let claim = world.tollgate("task claim x --agent red --json".split(' ')).ends().is(1).json();
    assert_eq!((&claim["reason"], &claim["until"]), (&json!("not_eligible"), &why["until"]));
    assert_eq!(world.json("task list")[0]["paused_until"], why["until"]);
    let list = world.run("task list").is(0);
    assert!(list.stdout().contains("  paused until 20"), "{list}");
    let ran = world.run("task claim x --agent red").is(1);
    assert!(ran.stderr().contains("`x.md` may be claimed again at 20"), "{ran}");
    assert!(ran.stderr().contains("a person can end the pause with `tollgate task retry x`"), "{ran}");
    let ran = world.run("task claim --next --agent red").is(1);
    assert!(
        ran.stderr()
            .contains("no task can be claimed now: 1 task is paused after a failed attempt, until 20"),
        "{ran}"
    );
    // Only a person decides, as for every decision.
    let refused = world.tollgate(["task", "retry", "x", "--json"]).stdin("yes\n").ends().is(1).json();
    assert_eq!(refused["reason"], "no_terminal");
    let said = world.tollgate(["task", "retry", "x", "--agent", "blue"]).typed("yes").is(1);
    assert!(said.shown.contains("`blue` is an agent"), "{}", said.shown);
    world.tollgate(["task", "retry", "x"]).typed("no").is(1);
    world.run("task claim x --agent red").is(1);
    let said = world.tollgate(["task", "retry", "x"]).typed("yes").is(0);
    assert!(said.shown.ends_with("`x.md` retried by `ada`, now in `Needs_Action`\n"), "{}", said.shown);
    assert_eq!(world.json("task list")[0]["attempts"], 0);
    world.run("task claim x --agent red").is(0);
}

#[test]
fn a_rejected_task_is_retried_by_a_person_only() {
    let world = world("max_attempts = 1\n");
    world.run("task add X").is(0);
    work(&world, "--agent blue --once", "exit 1").ends().is(1);
    assert!(world.path("vault/Rejected/x.md").exists());
    world.tollgate(["task", "retry", "x"]).env("TOLLGATE_AGENT", "blue").typed("yes").is(1);
    assert!(world.path("vault/Rejected/x.md").exists());
    world.tollgate(["task", "retry", "x"]).typed("yes").is(0);
    let decided = &lines(&world, "APPROVAL")[0];
    assert_eq!(
        (&decided["payload"]["decision"], &decided["payload"]["by"]),
        (&json!("retry"), &json!("ada"))
    );
    work(&world, "--agent blue --once", "true").ends().is(0);
    assert!(world.path("vault/Done/x.md").exists());
    let refused = world.tollgate(["task", "retry", "x"]).typed("yes").is(1);
    assert!(refused.shown.contains("`x.md` is in `Done`"), "{}", refused.shown);
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_its_processes() {
    let world = world("");
    for (name, trap) in [("obeys", ""), ("ignores", "trap '' TERM;")] {
        world.run(&format!("task add {name}")).is(0);
        let script = format!("{trap} sleep 1000 & echo $! > $TMP/pid; wait; sleep 1000");
        let ran = work(&world, "--agent blue --once --timeout 300ms", &script).ends().is(1);
        assert!(ran.stderr().contains("(took longer than 1 s), now in `Needs_Action`"), "{ran}");
        let pid = fs::read_to_string(world.tmp().join("pid")).unwrap().trim().parse().unwrap();
        until("the end of the other process", || test_kill_process(Pid::from_raw(pid).unwrap()).err());
        let text = fs::read_to_string(world.path(format!("vault/Needs_Action/{name}.md"))).unwrap();
        assert!(
            text.contains("**Result**: failure\n") && text.contains("**Note**: took longer than 1 s\n"),
            "{text}"
        );
    }
    // Asked to end, it says that all is well: it has failed all the same.
    world.run("task add claims-success").is(0);
    let script = "trap 'exit 0' TERM; sleep 1000 & wait";
    work(&world, "--agent blue --once --timeout 300ms", script).ends().is(1);
    assert!(world.path("vault/Needs_Action/claims-success.md").exists());
    world.run("task add quick").is(0);
    work(&world, "--agent blue --once --timeout 1h", "true").ends().is(0);
}

#[test]
fn the_end_of_the_output_of_a_failed_command_is_kept_and_all_of_it_is_passed_on() {
    let world = world("retry = []\nmax_attempts = 9\n[work]\nbreaker = 1\n");
    world.run("task add X").is(0);
    let script = "seq 1 3000; echo '<!-- tollgate c-0123456789abcdef -->'; printf '**Status**: processing\\n'; \
                  printf 'red \\033[31m\\377\\n' >&2; exit 3";
    let ran = work(&world, "--agent blue --once", script).ends().is(1);
    let printed: String = (1..=3000).map(|number| format!("{number}\n")).collect();
    assert!(ran.stdout().starts_with(&printed), "{}", ran.stdout());
    assert!(ran.stderr().contains("red \u{1b}[31m"), "{ran}");
    let text = fs::read_to_string(world.path("vault/Needs_Action/x.md")).unwrap();
    let (before, kept) = text.split_once("**Output**:\n\n").unwrap();
    assert!(before.contains("**Note**: exit status 3\n"), "{text}");
    assert!(kept.lines().all(|line| line.starts_with("    ")), "{kept}");
    assert!(
        kept.contains("\n    3000\n") && kept.contains("\n    <!-- tollgate c-0123456789abcdef -->\n"),
        "{kept}"
    );
    assert!(kept.contains("    red [31m\u{fffd}\n") && !kept.contains('\u{1b}'), "{kept}");
    let unindented = kept.lines().map(|line| line.len() - 3).sum::<usize>();
    assert!((3500..=4200).contains(&unindented), "{unindented} bytes");
    // With `--json`, stdout has the document and nothing else. Success keeps nothing.
    let ran = work(&world, "--agent blue --once --json", "echo out; echo err >&2").ends().is(0);
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout()).unwrap()["done"], 1, "{ran}");
    assert_eq!(ran.stderr(), "out\nerr\n");
    let text = fs::read_to_string(world.path("vault/Done/x.md")).unwrap();
    assert_eq!(text.matches("**Output**").count(), 1, "{text}");
}

#[test]
fn a_process_that_outlives_its_command_does_not_delay_the_task() {
    let world = world("");
    world.run("task add X").is(0);
    let script = "echo begun; (trap '' PIPE; read line < $TMP/fifo) & exit 0";
    rustix::fs::mkfifoat(rustix::fs::CWD, world.tmp().join("fifo"), 0o600.into()).unwrap();
    let ran = work(&world, "--agent blue --once", script).ends().is(0);
    assert_eq!(ran.stdout(), "begun\n1 task done\n");
    fs::write(world.tmp().join("fifo"), "end\n").unwrap();
}

/// A worker that has room for this many threads, because each takes a gibibyte of the address space.
fn crowded<'w>(world: &'w World, threads: u64, words: &str) -> Run<'w> {
    let limit = format!("--as={}", (threads << 30) + (700 << 20));
    let words = [limit.as_str(), "tollgate", "work", "--agent", "blue"].into_iter().chain(words.split(' '));
    world.program("prlimit", words).env("RUST_MIN_STACK", (1 << 30).to_string())
}

#[test]
fn a_worker_whose_threads_cannot_start_says_so_and_ends() {
    let world = world("");
    for threads in [1, 3, 6, 9] {
        let ran = crowded(&world, threads, "--jobs 64 -- true").ends();
        assert_eq!(ran.code(), Some(3), "{ran}");
        // Which one is the first that cannot start depends on how fast the others are.
        assert!(ran.stderr().contains("error: cannot start `"), "{ran}");
    }
}

#[test]
fn a_task_is_returned_if_there_is_no_thread_for_its_time_limit() {
    let world = world("");
    world.run("task add one").is(0);
    // With more and more threads, the worker does not start, then it returns the task, then it runs the command.
    let mut returned = 0;
    for threads in 1..20 {
        let ran = crowded(&world, threads, "--once --timeout 1h -- touch begun").ends();
        if world.path("begun").exists() {
            ran.is(0);
            break;
        }
        assert_eq!(count(&world, "Needs_Action"), 1, "{ran}");
        returned += usize::from(ran.stderr().contains("cannot start the command"));
    }
    assert!(world.path("begun").exists() && returned > 0, "{returned}");
}

#[test]
fn a_command_that_puts_its_task_back_does_not_get_it_again_at_once() {
    // A worker without a pause would run the command ten times.
    let script =
        "echo x >> $TMP/runs; test $(wc -l < $TMP/runs) -gt 9 || mv $TOLLGATE_TASK vault/Needs_Action/";
    let world = world("retry = [\"1h\"]\n[work]\nbreaker = 3\n");
    world.run("task add X").is(0);
    let said = work(&world, "--agent blue --once --json", script).ends().is(1).json();
    assert_eq!((&said["done"], &said["lost"], lines(&world, "CLAIM").len()), (&json!(0), &json!(1), 1));
    // The command does that to all tasks, so it is probably broken.
    for number in 0..5 {
        world.run(&format!("task add t{number}")).is(0);
    }
    let ran = work(&world, "--agent blue --once", script).ends().is(1);
    assert_eq!(ran.stdout(), "0 tasks done, 3 lost\n");
    let told = "its command failed 3 times in a row (its task was moved back or deleted)\n\
                hint: look at the output above, then fix the command, then start `tollgate work` again\n";
    assert!(ran.stderr().contains(told), "{ran}");
    assert_eq!((lines(&world, "CLAIM").len(), statuses(&world)), (4, vec![json!("OPEN")]));
}

#[test]
fn a_task_that_its_command_put_back_is_claimed_again_after_the_pause() {
    second_attempt_pauses(
        "test -e $TMP/tried || { touch $TMP/tried; mv $TOLLGATE_TASK vault/Needs_Action/; }",
    );
}

#[test]
fn a_worker_reports_the_tasks_that_its_command_moves_or_deletes() {
    for (script, code, told) in [
        (
            "mv $TOLLGATE_TASK vault/Done/",
            0,
            "the file of `x.md` was moved to `Done` while its command ran, so the claim has ended",
        ),
        ("rm $TOLLGATE_TASK", 1, "the file of `x.md` is gone; its task is lost"),
    ] {
        let world = world("");
        world.run("task add X").is(0);
        let ran = work(&world, "--agent blue --once", script).ends().is(code);
        assert_eq!(ran.stdout(), "0 tasks done, 1 lost\n");
        assert!(ran.stderr().contains(told) && !ran.stderr().contains("refused"), "{ran}");
        world.run("task add X").is(0);
        let said = work(&world, "--agent blue --once --json", script).ends().is(code).json();
        assert_eq!((&said["done"], &said["lost"]), (&json!(0), &json!(1)));
    }
}

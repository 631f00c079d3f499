//! `tollgate work`: the command's environment, the meaning of its exit code, watching, stopping.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode};
use rustix::process::Signal;
use serde_json::json;

use crate::world::{Process, World, until};

const SETTINGS: &str = "[vault]\ndurability = \"fast\"\nsettle = \"50ms\"\n";

fn world(more: &str) -> World {
    let world = World::with(&format!("{SETTINGS}{more}"));
    world.run("init --vault").is(0);
    world
}

fn work<'w>(world: &'w World, options: &str, script: &str) -> crate::world::Run<'w> {
    let words = ["work"].into_iter().chain(options.split_whitespace()).chain(["--", "sh", "-c", script]);
    world.tollgate(words).env("TMP", world.tmp())
}

fn in_done(world: &World, task: &str) -> bool {
    world.path(format!("vault/Done/{task}.md")).exists()
}

#[test]
fn the_command_gets_its_task_in_its_environment() {
    let world = world("");
    world.run("task add Knows --action read").is(0);
    let script = "env | grep ^TOLLGATE_ | sort > $TMP/env; echo note >> $TOLLGATE_TASK; \
                  tollgate task progress knows half >> $TMP/said; tollgate task verify knows --json >> $TMP/said";
    let said = work(&world, "--agent blue --once --json", script).ends().is(0).json();
    assert_eq!(
        said,
        json!({"agent": "blue", "done": 1, "drafted": 0, "failed": 0, "given_back": 0, "lost": 0, "faulted": 0})
    );
    let env = fs::read_to_string(world.tmp().join("env")).unwrap();
    let id = env.lines().find_map(|line| line.strip_prefix("TOLLGATE_CLAIM_ID=")).unwrap();
    let path = world.path("vault/In_Progress/blue/knows.md");
    assert_eq!(
        env,
        format!(
            "TOLLGATE_ACTION=read\nTOLLGATE_AGENT=blue\nTOLLGATE_CLAIM_ID={id}\nTOLLGATE_MODE=execute\n\
             TOLLGATE_TASK={}\nTOLLGATE_TASK_ID=knows.md\nTOLLGATE_VAULT={}\n",
            path.display(),
            world.root().display()
        )
    );
    let said = fs::read_to_string(world.tmp().join("said")).unwrap();
    assert_eq!(said, "added the note to `knows.md`\n{\"valid\":true}\n");
    let text = fs::read_to_string(world.path("vault/Done/knows.md")).unwrap();
    let (_, block) = text.split_once(&format!("<!-- tollgate {id} -->\n# Claimed Task: knows\n")).unwrap();
    assert!(
        block.contains("**Status**: Done\n") && block.contains("\nnote\n- 20") && block.contains(" half\n"),
        "{text}"
    );
    assert!(block.contains("**Result**: success\n**Next State**: Done\n"), "{text}");
}

#[test]
fn a_failed_task_is_tried_again_and_finally_rejected() {
    let world = world("max_attempts = 2\nretry = []\n");
    world.run("task add Fails").is(0);
    world.run("task add Works").is(0);
    let script = "test $TOLLGATE_TASK_ID = works.md || exit 7";
    insta::assert_snapshot!(work(&world, "--agent blue --once", script).ends().filtered.replace("0.1 s", "0.0 s"), @r"
    exit 1
    --- stdout
    1 task done, 2 attempts failed
    --- stderr
    `blue` is working on the tasks in `vault`
    claimed `fails.md`
    failed `fails.md` after 0.0 s (exit status 7), now in `Needs_Action`
    claimed `works.md`
    finished `works.md` in 0.0 s, now in `Done`
    claimed `fails.md`
    failed `fails.md` after 0.0 s (exit status 7), now in `Rejected`
    ");
    let text = fs::read_to_string(world.path("vault/Rejected/fails.md")).unwrap();
    assert!(text.contains("**Note**: exit status 7\n"), "{text}");
    assert!(text.contains("**Note**: gave up after 2 attempts: exit status 7\n"), "{text}");
    let killed = "kill -9 $$";
    world.run("task add Killed").is(0);
    work(&world, "--agent blue --once", killed).ends().is(1);
    let text = fs::read_to_string(world.path("vault/Rejected/killed.md")).unwrap();
    assert!(text.contains("killed by signal 9"), "{text}");
}

#[test]
fn a_missing_command_uses_up_no_attempt() {
    let world = world("");
    world.run("task add X").is(0);
    insta::assert_snapshot!(world.run("work --agent blue --once -- no-such-thing").filtered, @r"
    exit 2
    --- stderr
    error: command not found: `no-such-thing`
    hint: check the name and `PATH`; for shell built-ins use `sh -c '...'`
    ");
    world.run("work --agent blue --once -- ./no-such-thing").is(2);
    assert_eq!(world.json("task list")[0]["attempts"], 0);
    // The file exists but cannot be run: a failed attempt, with the reason.
    let odd = world.path("odd");
    fs::write(&odd, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = world.run("work --agent blue --once -- ./odd").is(1);
    assert!(ran.stderr().contains("cannot run `./odd`") && ran.stderr().contains("exit status 127"), "{ran}");
}

#[test]
fn a_draft_that_was_not_written_is_noticed() {
    let world = world("[agent.cloud]\nsensitive = [\"payment\"]\n");
    world.run("task add Rent --action payment").is(0);
    let said = work(&world, "--agent cloud --once", "true").ends().is(0).stderr();
    assert!(
        said.contains("note: `rent.md` has no `## Draft` section, so a person has nothing to approve"),
        "{said}"
    );
}

#[test]
fn a_sensitive_action_is_drafted_approved_and_executed_once() {
    let roles = "[agent.cloud]\nallowed = [\"triage\"]\nsensitive = [\"payment\"]\n\
                 [agent.local]\nallowed = [\"payment\"]\n";
    let world = world(roles);
    world.run("task add Rent --action payment").is(0);
    let why = |agent: &str| world.tollgate(["task", "why", "rent", "--agent", agent]).ends().stdout();
    assert_eq!(
        why("cloud"),
        "`cloud` may claim `rent.md` to draft it; a person must approve it before it is executed\n"
    );
    let draft = "test $TOLLGATE_MODE = draft && printf '## Draft\\n\\npay 100\\n' >> $TOLLGATE_TASK";
    let said = work(&world, "--agent cloud --once --json", draft).ends().is(0).json();
    assert_eq!(said["drafted"], 1);
    assert!(world.path("vault/Pending_Approval/rent.md").exists());
    let execute = "test $TOLLGATE_MODE = execute && echo paid >> $TMP/paid";
    assert_eq!(work(&world, "--agent local --once --json", execute).ends().is(0).json()["done"], 0);
    // Only people decide.
    let refused = world.tollgate(["task", "approve", "rent"]).env("TOLLGATE_AGENT", "cloud").ends();
    insta::assert_snapshot!(refused.filtered, @r"
    exit 1
    --- stderr
    refused: `cloud` is an agent, and only people approve, reject, retry, return and edit tasks
    hint: ask a person to decide: on the dashboard (`tollgate serve`), or with `tollgate task approve`, `reject`, `retry`, `return` or `edit` in their own terminal
    ");
    let refused =
        world.tollgate(["task", "reject", "rent", "--reason", "x", "--json"]).env("TOLLGATE_AGENT", "local");
    assert_eq!(refused.ends().is(1).json()["reason"], "agent");
    assert!(world.path("vault/Pending_Approval/rent.md").exists());
    // The approval holds only for the bytes that the person saw.
    let seen = world.json("task show rent")["sha256"].as_str().unwrap().to_owned();
    let other = "0".repeat(64);
    world.tollgate(["task", "approve", "rent", "--expect", &other]).typed("yes").is(1);
    let said = world.tollgate(["task", "approve", "rent", "--expect", &seen]).typed("yes").is(0);
    assert!(said.shown.ends_with("`rent.md` approved by `ada`, now in `Approved`\n"), "{}", said.shown);
    assert_eq!(
        why("cloud"),
        "`payment` is approved, but `cloud` is not allowed to execute it; `local` may\n"
    );
    // A change after the approval makes it void.
    let path = world.path("vault/Approved/rent.md");
    let approved = fs::read(&path).unwrap();
    fs::write(&path, [&approved[..], b"and 900 to me\n"].concat()).unwrap();
    assert_eq!(work(&world, "--agent local --once --json", execute).ends().is(0).json()["done"], 0);
    assert!(!world.tmp().join("paid").exists());
    let row = &world.json("task list")[0];
    assert_eq!(
        (&row["state"], &row["reason"]),
        (&json!("Pending_Approval"), &json!("changed after it was approved"))
    );
    fs::write(world.path("vault/Pending_Approval/rent.md"), approved).unwrap();
    world.tollgate(["task", "approve", "rent", "--by", "boss"]).typed("yes").is(0);
    assert_eq!(work(&world, "--agent local --once --json", execute).ends().is(0).json()["done"], 1);
    assert_eq!(fs::read_to_string(world.tmp().join("paid")).unwrap(), "paid\n");
    let decisions: Vec<String> = world
        .json("ledger tail --type APPROVAL")
        .as_array()
        .unwrap()
        .iter()
        .map(|line| format!("{} {}", line["payload"]["decision"].as_str().unwrap(), line["payload"]["by"]))
        .collect();
    assert_eq!(decisions, ["approve \"ada\"", "void null", "approve \"boss\""]);
    // A failed execution may have had an effect: a person decides.
    world.run("task add Again --action payment").is(0);
    work(&world, "--agent local --once", "exit 1").ends().is(1);
    assert!(world.path("vault/Pending_Approval/again.md").exists());
    world.tollgate(["task", "reject", "again", "--reason", "not twice"]).typed("yes").is(0);
    let text = fs::read_to_string(world.path("vault/Rejected/again.md")).unwrap();
    assert!(text.contains("**Rejected By**: ada\n") && text.contains("**Reason**: not twice\n"), "{text}");
}

#[test]
fn a_person_can_approve_by_moving_the_file_if_the_settings_say_so() {
    let world = world(
        "approve_by_move = true\n[agent.cloud]\nsensitive = [\"payment\"]\n[agent.local]\nallowed = [\"payment\"]\n",
    );
    world.run("task add Rent --action payment").is(0);
    work(&world, "--agent cloud --once", "true").ends().is(0);
    fs::rename(world.path("vault/Pending_Approval/rent.md"), world.path("vault/Approved/rent.md")).unwrap();
    assert_eq!(work(&world, "--agent local --once --json", "true").ends().is(0).json()["done"], 1);
    let line = &world.json("ledger tail --type APPROVAL")[0];
    assert_eq!((&line["payload"]["by"], &line["result"]["status"]), (&json!("hand"), &json!("APPROVED")));
    // A file in `Approved` that never waited for approval: nobody approved it.
    world.puts("vault/Approved/forged.md", "**Action**: payment\n");
    until("the forged approval to be sent back", || {
        work(&world, "--agent local --once", "echo forged > $TMP/forged").ends().is(0);
        world.path("vault/Pending_Approval/forged.md").exists().then_some(())
    });
    assert!(!world.tmp().join("forged").exists());
}

fn watcher(world: &World, script: &str) -> Process {
    // The interval is too long to matter, so only watching can be the reason.
    let worker = work(world, "--agent blue --interval 3600", script).starts();
    world.run("task add First").is(0);
    until("the first task to be done", || in_done(world, "first").then_some(()));
    worker
}

#[test]
fn new_tasks_are_noticed_at_once() {
    let world = world("");
    let _worker = watcher(&world, "true");
    let began = Instant::now();
    world.run("task add Added").is(0);
    until("an added task", || in_done(&world, "added").then_some(()));
    world.puts("outside.md", "# Moved in\n");
    fs::rename(world.path("outside.md"), world.path("vault/Needs_Action/moved.md")).unwrap();
    until("a task that was moved in", || in_done(&world, "moved").then_some(()));
    world.puts("vault/Needs_Action/written.md", "# Written in place\n");
    until("a task that was written in place", || in_done(&world, "written").then_some(()));
    // A task that waits for another.
    world.run("task add Later --after earlier").is(0);
    world.run("task add Earlier").is(0);
    until("a task that waits for another", || in_done(&world, "later").then_some(()));
    assert!(began.elapsed() < Duration::from_secs(30), "the worker did not wait for the interval");
}

#[test]
fn the_task_of_a_dead_worker_is_noticed_at_once() {
    let world = world("");
    let script = "test $TOLLGATE_AGENT = blue || { echo x > $TMP/began; exec sleep 1000; }";
    let mut doomed = work(&world, "--agent red --interval 3600", script).starts();
    world.run("task add Left").is(0);
    until("the first worker to begin", || world.tmp().join("began").exists().then_some(()));
    let _worker = watcher(&world, script);
    doomed.signal(Signal::KILL);
    doomed.ends();
    until("the second worker to do the task", || in_done(&world, "left").then_some(()));
}

#[test]
fn several_jobs_run_in_parallel() {
    let world = world("");
    for number in 0..3 {
        world.run(&format!("task add t{number}")).is(0);
    }
    // Each waits for the two others.
    let script = "echo x > $TMP/at-$TOLLGATE_TASK_ID; \
                  while [ $(ls $TMP | grep -c at-) -lt 3 ]; do sleep 0.01; done";
    let said = work(&world, "--agent blue --once --jobs 3 --json", script).ends().is(0).json();
    assert_eq!(said["done"], 3);
}

#[test]
fn after_a_signal_it_finishes_running_tasks_in_time_and_returns_the_rest() {
    let world = world("");
    world.run("task add Quick").is(0);
    let script = "echo x > $TMP/began; while [ ! -e $TMP/go ]; do sleep 0.01; done";
    let mut worker = work(&world, "--agent blue --grace 60", script).starts();
    until("it to begin", || world.tmp().join("began").exists().then_some(()));
    worker.signal(Signal::TERM);
    world.run("task add Not-any-more").is(0);
    assert!(worker.ended().is_none());
    fs::write(world.tmp().join("go"), "").unwrap();
    assert!(worker.ends().success());
    assert!(in_done(&world, "quick") && world.path("vault/Needs_Action/not-any-more.md").exists());

    // After the grace period the command is killed, even if it ignores SIGTERM, with all processes that it started.
    fs::remove_file(world.tmp().join("began")).unwrap();
    let script = "trap '' TERM; echo x > $TMP/began; while :; do sleep 0.05; done";
    let mut worker = work(&world, "--agent blue --grace 0", script).starts();
    until("it to begin", || world.tmp().join("began").exists().then_some(()));
    let asked = Instant::now();
    worker.signal(Signal::INT);
    assert!(worker.ends().success());
    assert!(asked.elapsed() < Duration::from_secs(5), "a short grace period is followed by a short wait");
    let row = &world.json("task list")[0];
    let expected = (&json!("Needs_Action"), &json!(0), &json!("stopped"));
    assert_eq!((&row["state"], &row["attempts"], &row["reason"]), expected, "no attempt was used up");
    assert_eq!(world.json("task reclaim"), json!([]));

    // A second signal stops it at once.
    fs::remove_file(world.tmp().join("began")).unwrap();
    let mut worker = work(&world, "--agent blue --grace 3600", "echo x > $TMP/began; sleep 1000").starts();
    until("it to begin", || world.tmp().join("began").exists().then_some(()));
    worker.signal(Signal::TERM);
    // Two signals in quick succession may be delivered as one.
    until("it to end", || {
        worker.signal(Signal::TERM);
        worker.ended()
    });
    assert_eq!(world.json("task list")[0]["state"], "Needs_Action");
}

#[test]
fn each_agent_has_a_log() {
    let world = world("[log]\ndir = \"logs\"\n");
    world.run("task add X").is(0);
    work(&world, "--agent blue --once", "true").ends().is(0);
    let log = fs::read_to_string(world.path("logs/agent-blue.log")).unwrap();
    let lines: Vec<&str> = log.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert_eq!(lines[0], "`blue` is working on the tasks in `vault`");
    assert!(
        lines[1].starts_with("Claimed: x.md (c-") && lines[1].ends_with(", attempt 1, mode execute)"),
        "{log}"
    );
    assert!(
        lines[2].starts_with("released x.md to Done (c-") && lines[2].contains(", success after "),
        "{log}"
    );
    // A log that cannot be written does not stop the work.
    let world = self::world("[log]\ndir = \"/proc/no-such-folder\"\n");
    world.tollgate(["trust"]).typed("yes").is(0);
    world.run("task add X").is(0);
    work(&world, "--agent blue --once", "true").ends().is(0);
    assert!(in_done(&world, "x"));
}

/// The worker stands still when it says in its log that it has claimed the task: nobody reads the pipe. A person takes the task away then.
#[test]
fn a_task_that_was_taken_away_after_the_claim_is_not_worked_on() {
    let world = world("[log]\ndir = \"logs\"\n");
    let _worker =
        work(&world, "--agent blue --interval 3600", "echo $TOLLGATE_TASK_ID >> $TMP/began").starts();
    let log = world.path("logs/agent-blue.log");
    until("the worker to wait for tasks", || log.exists().then_some(()));
    fs::remove_file(&log).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &log, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    world.run("task add X").is(0);
    until("the claim", || world.json("ledger tail --type CLAIM").as_array().unwrap().first().cloned());
    fs::rename(world.path("vault/In_Progress/blue/x.md"), world.path("away.md")).unwrap();
    // Opened in this way, the pipe never ends.
    let mut lines = BufReader::new(fs::File::options().read(true).write(true).open(&log).unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains(" Claimed: x.md "));
    let told = next();
    assert!(
        told.ends_with("Claim verification failed: x.md: the claim was lost before the work began"),
        "{told}"
    );
    world.run("task add Next").is(0);
    until("the next task", || in_done(&world, "next").then_some(()));
    assert_eq!(fs::read_to_string(world.tmp().join("began")).unwrap(), "next.md\n");
}

#[test]
fn a_worker_does_not_get_the_persons_secret() {
    let world = World::with("[vault]\nsettle = \"0s\"\n");
    world.run("init --vault").is(0);
    world.run("task add one").is(0);
    let words = ["work", "--agent", "blue", "--once", "--", "sh", "-c", "env > seen"];
    world.tollgate(words).env("TOLLGATE_TOKEN", "a-secret-that-a-person-has-chosen").ends().is(0);
    let seen = fs::read_to_string(world.path("seen")).unwrap();
    assert!(seen.contains("TOLLGATE_AGENT=blue") && !seen.contains("a-secret"), "{seen}");
}

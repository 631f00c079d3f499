//! What people and workers see of a vault with a remote.

use std::fs;
use std::time::Duration;

use super::{Remote, git, tollgate};
use crate::world::until;

#[test]
fn a_task_goes_from_clone_to_clone() {
    let remote = Remote::with_tasks(0);
    let [here, there] = [remote.clone(""), remote.clone("")];
    let said = tollgate(&here, "sync").ends().is(0);
    assert!(said.stdout().starts_with("the remote is at "), "{said}");
    let mut add = tollgate(&here, "task add --json");
    add.command.arg("Water the plants");
    let added = add.ends().is(0).json();
    assert_eq!(added["task"], "water-the-plants.md");
    assert_eq!(remote.on_branch(), ["Needs_Action/water-the-plants.md"]);
    let claimed = tollgate(&there, "task claim --next --agent blue --json").ends().is(0).json();
    assert_eq!(claimed["task"], "water-the-plants.md");
    let lost = tollgate(&here, "task claim water-the-plants --agent red --json").ends().is(1).json();
    assert_eq!(lost["reason"], "lost");
    let board = tollgate(&here, "task list --json").ends().is(0).json();
    assert_eq!((board[0]["state"].as_str(), board[0]["agent"].as_str()), (Some("In_Progress"), Some("blue")));
    assert_eq!(board[0]["claim_id"], claimed["claim_id"]);
    let id = claimed["claim_id"].as_str().unwrap();
    tollgate(&there, &format!("task verify water-the-plants --claim-id {id}")).ends().is(0);
    let stolen =
        tollgate(&here, &format!("task release water-the-plants --claim-id {id} --json")).ends().is(0).json();
    assert_eq!(
        stolen["state"], "Done",
        "every process with the claim ID is the owner, also in another clone"
    );
    let valid =
        tollgate(&there, &format!("task verify water-the-plants --claim-id {id} --json")).ends().is(1).json();
    assert_eq!(valid["valid"], false);
    // The working trees show it too.
    tollgate(&here, "sync").ends().is(0);
    assert!(here.path("vault/Done/water-the-plants.md").exists());
    let subjects = git(&remote.path, &["log", "--format=%s", "-3", "main"]);
    assert_eq!(
        subjects,
        "tollgate: blue releases water-the-plants to Done\ntollgate: blue claims water-the-plants\ntollgate: new task water-the-plants"
    );
}

#[test]
fn an_unreachable_remote_is_reported_and_the_last_known_state_is_shown() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone("");
    tollgate(&world, "sync").ends().is(0);
    git(&world.root(), &["remote", "set-url", "origin", "file:///nowhere/at/all.git"]);
    let fault =
        tollgate(&world, "task claim t0 --agent blue --json").ends().is(3).fault("REMOTE_UNREACHABLE");
    assert!(fault["message"].as_str().unwrap().contains("cannot be reached"), "{fault}");
    let board = tollgate(&world, "task list").ends().is(0);
    assert!(board.stdout().contains("t0.md") && board.stderr().contains("last known state"), "{board}");
    tollgate(&world, "work --once --agent blue -- true").ends().is(3);
    git(&world.root(), &["remote", "set-url", "origin", &remote.url()]);
    tollgate(&world, "work --once --agent blue -- true").ends().is(0);
    assert_eq!(remote.on_branch(), ["Done/t0.md"]);
}

#[test]
fn every_command_that_shows_tasks_names_one_that_is_not_committed() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone("");
    tollgate(&world, "sync").ends().is(0);
    world.puts("vault/Needs_Action/mine.md", "# Mine\n");
    for line in ["status", "doctor", "task list", "work --once --agent blue -- true"] {
        let said = tollgate(&world, line).ends().to_string();
        assert!(
            said.contains("`mine.md` in `Needs_Action`: no agent can claim it before it is committed"),
            "{said}"
        );
    }
    assert_eq!(remote.on_branch(), ["Done/t0.md"], "the other task is done");
}

#[test]
fn the_doctor_reports_what_the_remote_refuses_and_fixes_a_bad_merge() {
    let remote = Remote::with_tasks(2);
    let world = remote.clone("");
    git(&remote.path, &["config", "receive.hideRefs", "refs/tollgate"]);
    tollgate(&world, "task list").ends().is(0);
    let said = tollgate(&world, "doctor").ends().is(1).stdout();
    assert!(
        said.contains("problem  git") && said.contains("hidden ref") && said.contains("claim_refs"),
        "{said}"
    );
    let fault = tollgate(&world, "sync --json").ends().is(3).fault("REMOTE_REFUSED");
    assert!(fault["message"].as_str().unwrap().contains("claim_refs"), "{fault}");
    git(&remote.path, &["config", "--unset", "receive.hideRefs"]);
    let said = tollgate(&world, "doctor").ends().is(0).stdout();
    assert!(said.contains("ok       git"), "{said}");
    tollgate(&world, "task claim t0 --agent blue").ends().is(0);
    let person = remote.clone("");
    fs::create_dir_all(person.path("vault/Needs_Action")).unwrap();
    fs::copy(person.path("vault/In_Progress/blue/t0.md"), person.path("vault/Needs_Action/t0.md")).unwrap();
    git(&person.root(), &["add", "-A"]);
    git(&person.root(), &["commit", "--quiet", "-m", "merged by hand"]);
    git(&person.root(), &["push", "--quiet", "origin", "main"]);
    let said = tollgate(&world, "doctor").ends().is(0).stdout();
    assert!(said.contains("`t0.md` was also in `Needs_Action`; kept it in `In_Progress/blue`"), "{said}");
    assert_eq!(remote.on_branch(), ["In_Progress/blue/t0.md", "Needs_Action/t1.md"]);
}

#[test]
fn a_worker_without_a_connection_stops_its_command_before_another_starts() {
    let remote = Remote::with_tasks(1);
    let settings = "lease = \"8s\"\nremote_timeout = \"2s\"\n";
    let [cut_off, other] = [remote.clone(settings), remote.clone(settings)];
    let witness = cut_off.tmp().join("witness");
    let mut run = tollgate(&cut_off, "work --agent blue --interval 1 --");
    run.command.args(["sh", "-c", r#"echo $$ > "$WITNESS"; exec sleep 1000"#]);
    let _worker = run.env("WITNESS", &witness).starts();
    let pid = until("the command", || {
        fs::read_to_string(&witness)
            .ok()
            .filter(|text| text.ends_with('\n'))
            .map(|text| text.trim().to_owned())
    });
    let lives = || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    assert!(lives());
    // Heartbeats keep the claim, however long the work takes.
    tollgate(&other, "sync").ends().is(0);
    let claims = |world| tollgate(world, "task claim t0 --agent red --json").ends();
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        assert!(
            tollgate(&other, "sync --json").ends().is(0).json()["reclaimed"].as_array().unwrap().is_empty()
        );
    }
    assert!(lives());
    git(&cut_off.root(), &["remote", "set-url", "origin", "file:///nowhere/at/all.git"]);
    until("the takeover", || {
        let round = tollgate(&other, "sync --json").ends().is(0).json();
        (!round["reclaimed"].as_array().unwrap().is_empty()).then_some(())
    });
    assert!(!lives(), "two at one task");
    claims(&other).is(0);
    assert_eq!(remote.on_branch(), ["In_Progress/red/t0.md"]);
}

#[test]
fn a_hanging_push_of_a_dead_process_is_ended_by_the_next_command() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone("remote_timeout = \"2000ms\"\n");
    tollgate(&world, "sync").ends().is(0);
    let hook = remote.path.join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    crate::chance::executable(&hook, "#!/bin/sh\ntouch hangs\nexec sleep 1000\n");
    let mut claim = tollgate(&world, "task claim t0 --agent blue").starts();
    until("the push", || remote.path.join("hangs").exists().then_some(()));
    claim.signal(rustix::process::Signal::KILL);
    claim.ends();
    fs::remove_file(&hook).unwrap();
    tollgate(&world, "task claim t0 --agent red").ends().is(0);
    assert_eq!(remote.on_branch(), ["In_Progress/red/t0.md"]);
}

/// A program in the place of ssh runs the server's command here. How ssh is run belongs into the user's own configuration.
#[test]
fn the_users_own_ssh_is_used_and_the_repositorys_is_not() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone("");
    let [ssh, evil, witness, home] = ["ssh", "evil", "witness", "home"].map(|name| world.tmp().join(name));
    crate::chance::executable(&ssh, "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n");
    let text = format!("#!/bin/sh\ntouch {}\nexec {} \"$@\"\n", witness.display(), ssh.display());
    crate::chance::executable(&evil, &text);
    let url = format!("ssh://127.0.0.1:1{}", remote.path.display());
    git(&world.root(), &["remote", "set-url", "origin", &url]);
    git(&world.root(), &["config", "core.sshCommand", evil.to_str().unwrap()]);
    tollgate(&world, "sync --json").ends().is(3).fault("REMOTE_UNREACHABLE");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join(".gitconfig"), format!("[core]\n\tsshCommand = {}\n", ssh.display())).unwrap();
    tollgate(&world, "task claim t0 --agent blue").ends().is(0);
    assert_eq!(remote.on_branch(), ["In_Progress/blue/t0.md"]);
    assert!(!witness.exists(), "the repository's ssh was run");
}

#[test]
fn an_agent_may_write_to_its_own_task() {
    let remote = Remote::with_tasks(2);
    let world = remote.clone("");
    let claimed = tollgate(&world, "task claim t0 --agent blue --json").ends().is(0).json();
    let path = claimed["path"].as_str().unwrap();
    let text = fs::read_to_string(path).unwrap() + "\n## Draft\n";
    tollgate(&world, &format!("write {path} --agent blue")).stdin(&text).ends().is(0);
    tollgate(&world, &format!("write {path} --agent red")).stdin(&text).ends().is(1);
    let other = path.replace("In_Progress/blue/t0.md", "Needs_Action/t1.md");
    tollgate(&world, &format!("write {other} --agent blue")).stdin("mine").ends().is(1);
    let id = claimed["claim_id"].as_str().unwrap();
    tollgate(&world, &format!("task release t0 --claim-id {id}")).ends().is(0);
    assert!(git(&remote.path, &["show", "main:vault/Done/t0.md"]).contains("## Draft"));
}

#[test]
fn a_remote_without_the_branch_is_explained() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone("branch = \"other\"\n");
    let ran = tollgate(&world, "task claim --next --agent blue").ends().is(3);
    assert_eq!(
        ran.stderr(),
        "error: the branch `other` of the remote `origin` does not exist\n\
         hint: push the branch once, as in `git push -u origin main`, or set `branch` under `[vault]` in `.tollgate/config.toml`\n"
    );
}

#[test]
fn an_edit_that_the_remote_does_not_get_is_kept() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone("");
    let editor = "edit() { echo mine >> \"$1\"; mv \"$REMOTE\" \"$REMOTE.gone\"; }; edit";
    let run = tollgate(&world, "task edit t0").env("EDITOR", editor).env("REMOTE", &remote.path);
    let said = run.env("TMPDIR", world.tmp()).typed("").is(3);
    let (_, hint) = said.shown.split_once("\nhint: nothing was changed; check the connection").unwrap();
    let (_, copy) = hint.split_once("; your text is kept in `").unwrap();
    let text = fs::read_to_string(copy.split_once('`').unwrap().0).unwrap();
    assert!(text.ends_with("mine\n"), "{text}");
}

//! What the command says, and where it works.

use crate::repository;

/// `blue` and `red` have both changed `f`, each its own lines; a person has staged `p`.
fn shared() -> crate::world::World {
    let world = repository("seq 10 >f; echo 1 >p");
    world.shell("sed s/^2$/two/ f | tollgate write f --agent blue; sed s/^9$/nine/ f | tollgate write f --agent red").is(0);
    world.shell("echo 2 >p; git add p").is(0);
    world
}

#[test]
fn the_answer_has_the_commit_and_what_was_left() {
    let world = shared();
    world
        .shell(
            "sed s/^nine$/NINE/ f | tollgate write f --agent blue; echo new | tollgate create n --agent blue",
        )
        .is(0);
    let json = world.commit(&["-m", "mine", "--agent", "blue", "--json"]).ends().is(0).json();
    assert_eq!(json["commit"], world.git("rev-parse HEAD"));
    assert_eq!((&json["branch"], &json["paths"]), (&"main".into(), &serde_json::json!(["n"])));
    let left = json["left"].as_array().unwrap();
    assert_eq!((&left[0]["path"], &left[0]["agent"]), (&"f".into(), &"red".into()));
    assert_eq!(json.as_object().unwrap().len(), 4, "{json}");
    let again = world.commit(&["-m", "mine", "--agent", "blue", "--json"]).ends().is(1).json();
    assert_eq!((&again["refused"], &again["reason"]), (&true.into(), &"nothing_to_commit".into()));
    assert_eq!(again["left"].as_array().unwrap().len(), 1);
    let line = &world.json("ledger tail --type COMMIT")[0];
    assert_eq!((&line["agent"], &line["payload"]["commit"]), (&"blue".into(), &json["commit"]));
    let shown = world.run("ledger tail --type COMMIT").is(0).stdout();
    assert!(shown.contains("blue  COMMIT  n  COMMITTED"), "{shown}");
}

#[test]
fn each_agent_commits_its_own_lines_and_the_staged_file_stays_staged() {
    let world = shared();
    world.commit(&["-m", "red", "--agent", "red"]).ends().is(0);
    assert_eq!(world.git("show --format= --unified=0 HEAD | grep '^[+-][^+-]'"), "-9\n+nine");
    world.commit(&["-m", "blue", "--agent", "blue"]).ends().is(0);
    assert_eq!(world.git("show --format= --unified=0 HEAD | grep '^[+-][^+-]'"), "-2\n+two");
    assert_eq!(world.git("status --porcelain"), "M  p");
    world.git("fsck --strict");
    world.run("ledger audit").is(0);
}

/// The programs that a commit starts, beside tollgate itself.
fn programs(world: &crate::world::World) -> usize {
    let log = world.tmp().join("log");
    let mut command = vec!["-f", "-e", "trace=execve", "-e", "signal=none", "-o", log.to_str().unwrap()];
    command.extend([env!("CARGO_BIN_EXE_tollgate"), "commit", "-m", "mine", "--agent", "blue"]);
    world.program("strace", command).anywhere().ends().is(0);
    let log = std::fs::read_to_string(log).unwrap();
    // A search through `PATH` fails until it finds the program.
    log.lines().filter(|line| line.contains("execve") && line.ends_with("= 0")).count() - 1
}

#[test]
fn a_commit_starts_few_programs() {
    let world = repository("echo 1 >a; echo 1 >b; echo 1 >p");
    world.shell("echo 2 | tollgate write a --agent blue").is(0);
    // `git status`, `cat-file`, `rev-parse`, `commit`, and one shell for the hook.
    assert_eq!(programs(&world), 5);
    world.shell("echo 2 >p; git add p; echo 2 | tollgate write b --agent blue").is(0);
    assert_eq!(programs(&world), 5, "what is staged costs nothing");
    world.shell("echo 1 | tollgate create new --agent blue").is(0);
    assert_eq!(programs(&world), 7, "a new file is put into the index first, and what is staged taken out");
    assert_eq!(world.git("status --porcelain"), "M  p");
}

#[test]
fn without_a_message_only_a_person_gets_an_editor() {
    let world = shared();
    let refused = world.commit(&["--agent", "blue"]).ends().is(2);
    assert!(refused.stderr().contains("-m MESSAGE"), "{refused}");
    world.shell("sed s/^5$/five/ f | tollgate write f").is(0);
    let editor = "sh -c 'echo from the editor >\"$1\"' -";
    world.commit(&[]).env("GIT_EDITOR", editor).typed("").is(0);
    assert_eq!(world.git("log -1 --format=%s"), "from the editor");
    world.shell("sed s/^6$/six/ f | tollgate write f").is(0);
    world.commit(&[]).env("GIT_EDITOR", "false").typed("").is(1);
    assert_eq!(world.git("rev-list --count HEAD"), "2");
    assert_eq!(world.git("status --porcelain"), " M f\nM  p");
}

#[test]
fn inside_a_run_the_process_in_front_makes_the_commit() {
    let world = shared();
    for mode in ["transaction", "gate"] {
        let inside = format!("tollgate run --mode {mode} --agent blue -- tollgate commit -m {mode}");
        let ran = world.shell(&inside).is(0);
        assert_eq!(world.git("log -1 --format=%s"), mode, "{ran}");
        assert_eq!(world.git("status --porcelain"), " M f\nM  p");
        world.shell("sed s/^4$/four/ f | tollgate write f --agent blue").is(0);
        let refused = world.shell(&format!(
            "tollgate run --mode {mode} --agent blue -- tollgate commit -m theirs --agent red"
        ));
        assert!(refused.stderr().contains("would act under the name"), "{refused}");
    }
    let script = "tollgate run --mode transaction --agent green -- sh -c 'echo 1 >g; tollgate commit -m g'";
    let ran = world.shell(script).is(1);
    assert!(ran.stderr().contains("as a command of its own"), "{ran}");
    world.shell("tollgate run --mode transaction --agent green -- tollgate commit -m g").is(0);
    assert_eq!(world.git("show --format= --name-only HEAD"), "g");
}

#[test]
fn what_commands_in_a_run_have_changed_is_the_agents_own() {
    let world = repository("seq 10 >f; mkdir d; echo 1 >d/x; echo 1 >gone; echo x >s");
    let script = "sed -i s/^3$/three/ f; git mv d/x d/y 2>/dev/null || mv d/x d/y; rm gone; chmod +x s";
    world.shell(&format!("tollgate run --mode transaction --agent blue -- sh -c '{script}'")).is(0);
    world.commit(&["-m", "run", "--agent", "blue"]).ends().is(0);
    assert_eq!(world.git("status --porcelain"), "");
    assert_eq!(world.git("ls-files"), "d/y\nf\ns");
    assert!(world.git("ls-tree HEAD s").starts_with("100755"));
}

#[test]
fn a_refused_switch_is_a_stale_head() {
    let world = repository("echo 1 >f");
    let turn = world.turn("blue");
    world.run(&format!("read .git/HEAD --turn {turn}")).is(0);
    world.tollgate(["write", "f", "--turn", &turn]).stdin("2\n").ends().is(0);
    world.git("switch -q -c other");
    let refused = world.commit(&["-m", "x", "--turn", &turn, "--json"]).ends().is(1).json();
    assert_eq!(refused["error_type"], "STALE_FILE");
    assert!(refused["file_path"].as_str().unwrap().ends_with("/.git/HEAD"));
    assert_eq!(world.json("ledger tail --type MUTATION_CONFLICT")[0]["payload"]["target_file"], ".git/HEAD");
    world.git("switch -q main");
    world.commit(&["-m", "x", "--turn", &turn]).ends().is(0);
}

#[test]
fn a_folder_without_git_and_an_empty_message_are_errors_of_the_caller() {
    let world = crate::world::World::new();
    world.tollgate(["write", "f", "--agent", "blue"]).stdin("1\n").ends().is(0);
    let ran = world.commit(&["-m", "x", "--agent", "blue"]).ends().is(2);
    assert!(ran.stderr().contains("not in a working tree of git"), "{ran}");
    world.shell("git init -q; git config user.name A; git config user.email a@b").is(0);
    let ran = world.commit(&["-m", "", "--agent", "blue"]).ends().is(1);
    assert!(ran.stderr().contains("empty commit message"), "{ran}");
}

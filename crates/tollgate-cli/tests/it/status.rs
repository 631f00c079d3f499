//! `tollgate status`: what is guarded here, and what waits for a person.

use std::fs;
use std::io::Write;

use crate::hook::Program;
use crate::serve::Served;
use crate::world::World;

#[test]
fn an_empty_workspace_needs_nobody() {
    let world = World::bare();
    insta::assert_snapshot!(world.run("status").filtered, @r#"
    exit 0
    --- stdout
    workspace    `[W]`, not set up
    programs     no agent program found
    agents       none running
    claims       none
    approvals    none pending
    refusals     0 today
    unfinished   no files
    hint: run `tollgate init` to set up this folder
    nothing needs a person
    "#);
    assert!(!world.path(".tollgate").exists(), "status creates nothing");
    world.run("init").is(0);
    assert_eq!(world.run("status --json").is(0).json()["needs_person"], false);
}

#[test]
fn programs_agents_claims_approvals_and_refusals_are_listed() {
    let world =
        World::with("[agent.cloud]\nrole = \"cloud\"\nallowed = [\"*\"]\nsensitive = [\"payment\"]\n");
    world.run("init --vault --host claude-code").is(0);
    let agent = Program::new(&world, "claude-code", "session");
    world.puts("a.txt", "one\n");
    agent.reads("a.txt");
    world.puts("a.txt", "two\n");
    agent.writes("a.txt", "mine\n").refused("STALE_FILE");
    world.run("task add Rent --action payment").is(0);
    world.run("task add Weeds").is(0);
    let id = world.json("task claim rent --agent cloud")["claim_id"].as_str().unwrap().to_owned();
    assert_eq!(world.run("status --json").is(0).json()["claims"][0]["task"], "rent.md");
    world.tollgate(["task", "draft", "rent", "--claim-id", &id, "pay"]).ends().is(0);
    world.run(&format!("task release rent --claim-id {id}")).is(0);
    world.run("task claim weeds --agent blue").is(0);
    let json = world.run("status --json").is(1).json();
    let host = &json["hosts"][0];
    assert_eq!(
        (&host["host"], &host["hooks"], &host["guarded"]),
        (&"claude-code".into(), &"installed".into(), &true.into())
    );
    assert!(host["last_seen"].is_string(), "{json}");
    assert_eq!(json["agents"][0]["turns"], 1);
    assert_eq!(
        (&json["claims"][0]["task"], &json["claims"][0]["agent"]),
        (&"weeds.md".into(), &"blue".into())
    );
    assert_eq!(json["pending_approvals"][0]["task"], "rent.md");
    assert_eq!(json["refusals_today"]["count"], 1);
    assert_eq!(json["needs_person"], true);
    let words = world.run("status").is(1).filtered;
    let name = json["agents"][0]["agent"].as_str().unwrap();
    insta::assert_snapshot!(words.replace(name, "[AGENT]"), @r"
    exit 1
    --- stdout
    workspace    `[W]`, guarded
    claude-code  hooks installed, scripts in its shell not guarded, last seen [N] s ago
    agents       1: `[AGENT]`, started [N] s ago
    claims       1: `weeds.md` by `blue`
    approvals    1: `rent.md`
    refusals     1 today
    unfinished   no files
    1 task awaits a person's decision
      hint: run `tollgate task show TASK`, then `tollgate task approve TASK`
    a person is needed
    ");
}

#[test]
fn a_program_of_this_project_without_hooks_is_a_problem() {
    let world = World::new();
    fs::create_dir(world.path(".claude")).unwrap();
    insta::assert_snapshot!(world.run("status").filtered, @r"
    exit 1
    --- stdout
    workspace    `[W]`, nothing was written here through tollgate yet
    claude-code  not guarded
    agents       none running
    claims       none
    approvals    none pending
    refusals     0 today
    unfinished   no files
    problem: `claude-code` is not guarded
      hint: run `tollgate init --host claude-code` to install its hooks
    a person is needed: 1 problem
    ");
    world.run("init --host claude-code").is(0);
    let json = world.run("status --json").is(0).json();
    assert_eq!((&json["hosts"][0]["guarded"], &json["problems"]), (&true.into(), &serde_json::json!([])));
    world.puts(".tollgate/config.toml", "[guard]\nmode = \"observe\"\n");
    let json = world.run("status --json").is(1).json();
    assert!(json["problems"][0]["problem"].as_str().unwrap().contains("only observes"), "{json}");
}

/// Of 6,000 refusals of today, `status` counts those that it reads.
#[test]
fn status_reads_the_end_of_the_ledger_only() {
    let world = World::new();
    world.puts("a", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.puts("a", "two\n");
    world.tollgate(["write", "a", "--turn", &turn]).stdin("three\n").ends().is(1);
    let path = world.path(".tollgate/ledger.jsonl");
    let lines = fs::read_to_string(&path).unwrap();
    let last = lines.lines().next_back().unwrap();
    let mut ledger = fs::File::create(&path).unwrap();
    for _ in 0..6_000 {
        writeln!(ledger, "{last}").unwrap();
    }
    let few = world.run("status --json").is(0).json();
    assert_eq!(
        (&few["refusals_today"]["count"], &few["refusals_today"]["at_least"]),
        (&5_000.into(), &true.into())
    );
}

/// Only the last known line is compared, so this costs the same for a long ledger.
#[test]
fn a_ledger_without_its_last_known_line_is_a_problem() {
    let problems = |world: &World| {
        let json = world.run("status --json").is(1).json();
        assert_eq!(
            (json["problems"].as_array().unwrap().len(), &json["needs_person"]),
            (1, &true.into()),
            "{json}"
        );
        json["problems"][0]["problem"].as_str().unwrap().to_owned()
    };
    let ledger = |world: &World| world.path(".tollgate/ledger.jsonl");
    let changed = |damage: &dyn Fn(&World), word: &str| {
        let world = World::new();
        for file in ["a", "b"] {
            world.tollgate(["create", file]).stdin("x").ends().is(0);
        }
        world.run("status").is(0);
        damage(&world);
        let problem = problems(&world);
        assert!(problem.contains(word), "{word}: {problem}");
    };
    changed(&|world| fs::remove_file(ledger(world)).unwrap(), "cut off");
    changed(&|world| fs::remove_dir_all(world.path(".tollgate")).unwrap(), "cut off");
    changed(
        &|world| {
            let text = fs::read_to_string(ledger(world)).unwrap();
            fs::write(ledger(world), text.split_inclusive('\n').next().unwrap()).unwrap();
        },
        "cut off",
    );
    changed(
        &|world| {
            let text = fs::read_to_string(ledger(world)).unwrap().replace("\"b\"", "\"z\"");
            fs::write(ledger(world), text).unwrap();
        },
        "edited",
    );
}

#[test]
fn an_engine_that_does_not_answer_is_one_problem_beside_everything_else() {
    let world = World::with("[vault]\nstore = \"etcd://127.0.0.1:1/x\"\nremote_timeout = \"500ms\"\n");
    let turn = world.turn("blue");
    world.puts("a", "one\n");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.puts("a", "two\n");
    world.tollgate(["write", "a", "--turn", &turn]).stdin("three\n").ends().is(1);
    let json = world.run("status --json").is(1).json();
    assert_eq!((&json["agents"][0]["agent"], &json["refusals_today"]["count"]), (&"blue".into(), &1.into()));
    let problems = json["problems"].as_array().unwrap();
    assert!(problems[0]["problem"].as_str().unwrap().contains("cannot be reached"), "{json}");
    assert_eq!(problems.len(), 1);
}

#[test]
fn a_git_remote_that_cannot_be_reached_is_a_problem() {
    let world = World::with("[vault]\nstore = \"git\"\n");
    world.program("git", ["init", "-q"]).ends().is(0);
    world.program("git", ["remote", "add", "origin", "file:///nowhere/at/all"]).ends().is(0);
    world.turn("blue");
    let json = world.run("status --json").is(1).json();
    let problem = json["problems"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("`origin` cannot be reached") && problem.contains("last known"), "{json}");
}

#[test]
fn tasks_of_a_vault_are_shown_before_the_first_write_here() {
    let world = World::with("[agent.cloud]\nsensitive = [\"payment\"]\n");
    world.run("init --vault").is(0);
    world.run("task add Rent --action payment").is(0);
    let id = world.json("task claim rent --agent cloud")["claim_id"].as_str().unwrap().to_owned();
    world.run(&format!("task release rent --claim-id {id}")).is(0);
    let other = world.tmp().join("other");
    fs::create_dir(&other).unwrap();
    let vault = world.path("vault");
    world.tollgate(["init", "--vault", vault.to_str().unwrap()]).folder(&other).ends().is(0);
    let json = world.tollgate(["status", "--json"]).folder(&other).ends().is(1).json();
    assert_eq!(json["set_up"], true);
    assert_eq!(json["pending_approvals"][0]["task"], "rent.md", "{json}");
}

#[test]
fn a_vault_that_is_missing_is_a_problem_everywhere() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add Rent").is(0);
    fs::rename(world.path("vault"), world.path("away")).unwrap();
    let problem = "the configuration names `vault`, which is not a vault";
    let json = world.run("status --json").is(1).json();
    assert_eq!(json["problems"][0]["problem"], problem);
    let said = world.run("doctor").is(1).stdout();
    assert!(said.contains(problem), "{said}");
    let served = Served::new(&world, &[]);
    served.until_health("the missing vault", |health| health["status"] == "broken");
}

#[test]
fn a_task_that_no_agent_may_do_is_a_problem() {
    let world = World::with("[vault]\nagents = \"listed\"\n[agent.blue]\nallowed = [\"read\"]\n");
    world.run("init --vault").is(0);
    world.run("task add Read --action read").is(0);
    assert_eq!(world.run("status --json").is(0).json()["problems"], serde_json::json!([]));
    world.run("task add Pay --action payment").is(0);
    world.run("task add Send --action send").is(0);
    let problems = &world.run("status --json").is(1).json()["problems"];
    let said = problems[0]["problem"].as_str().unwrap();
    assert!(
        said.contains("no `[agent.NAME]` has the action")
            && said.ends_with("1 more task that no agent can claim"),
        "{said}"
    );
    assert!(problems.as_array().unwrap().len() == 1, "{problems}");
}

#[test]
fn writes_that_were_only_observed_do_not_count_as_refused() {
    let world = World::with("[guard]\nmode = \"observe\"\n");
    let turn = world.turn("blue");
    world.puts("a", "one\n");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.puts("a", "two\n");
    world.tollgate(["write", "a", "--turn", &turn]).stdin("mine\n").ends().is(0);
    assert_eq!(world.json("ledger tail --type MUTATION_CONFLICT")[0]["result"]["status"], "OBSERVED");
    assert_eq!(world.run("status --json").is(1).json()["refusals_today"]["count"], 0);
}

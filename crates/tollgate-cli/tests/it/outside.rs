//! What a configuration names outside its workspace: another project's tasks, a folder for logs, an engine. The user must have
//! agreed to it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::Value;

use crate::world::{Ran, World};

/// A project with a task that only `cloud` may draft, and a clone beside it whose configuration says that everybody may execute
/// it.
struct Projects {
    world: World,
}

const OTHER: &str = "[vault]\nsettle = \"0ms\"\ndurability = \"fast\"\nagents = \"listed\"\n\
                     [agent.cloud]\nsensitive = [\"pay\"]\n";

impl Projects {
    /// The clone names its vault like this.
    fn new(clone: &str) -> Self {
        let world =
            World::with(&format!("[vault]\nsettle = \"0ms\"\n{clone}\n[agent.eve]\nallowed = [\"pay\"]\n"));
        let other = world.tmp().join("other");
        fs::create_dir_all(other.join(".tollgate")).unwrap();
        fs::write(other.join(".tollgate/config.toml"), OTHER).unwrap();
        let projects = Self { world };
        projects.in_other(&["init", "--vault"]).is(0);
        projects.in_other(&["task", "add", "rent", "--action", "pay", "--agent", "ada"]).is(0);
        projects
    }

    fn other(&self) -> PathBuf {
        self.world.tmp().join("other")
    }

    fn in_other(&self, words: &[&str]) -> Ran {
        self.world.tollgate(words).folder(self.other()).ends()
    }

    fn finding(&self, check: &str) -> Value {
        finding(&self.world, check)
    }

    fn is_unclaimed(&self) -> bool {
        self.other().join("vault/Needs_Action/rent.md").exists()
    }
}

fn finding(world: &World, check: &str) -> Value {
    let report: Value = serde_json::from_str(&world.run("doctor --json").stdout()).unwrap();
    let found = report["findings"].as_array().unwrap().iter().find(|found| found["check"] == check);
    found.cloned().unwrap_or(Value::Null)
}

#[test]
fn a_vault_outside_the_workspace_needs_the_users_agreement_and_has_its_own_roles() {
    for spelling in ["relative", "absolute", "link", "linked-folder", "tree"] {
        let projects = Projects::new(match spelling {
            "relative" => "dir = \"../other/vault\"",
            "absolute" => "dir = \"OTHER/vault\"",
            "linked-folder" => "dir = \"sub/vault\"",
            "tree" => "tree = \"../other\"",
            _ => "",
        });
        let world = &projects.world;
        let config = fs::read_to_string(world.path(".tollgate/config.toml")).unwrap();
        world.puts(".tollgate/config.toml", config.replace("OTHER", projects.other().to_str().unwrap()));
        match spelling {
            "link" => symlink("../other/vault", world.path("vault")).unwrap(),
            "linked-folder" => symlink("../other", world.path("sub")).unwrap(),
            _ => {}
        }
        let words = [
            "task list",
            "task claim rent --agent eve",
            "task claim --next --agent eve",
            "task add x",
            "task reclaim",
            "init --vault",
        ];
        for line in words.into_iter().filter(|line| spelling != "tree" || *line != "init --vault") {
            let ran = world.run(line).is(2);
            assert!(ran.stderr().contains("`tollgate trust`"), "{spelling}: {ran}");
        }
        world.tollgate(["work", "--agent", "eve", "--once", "--", "true"]).ends().is(2);
        assert!(projects.is_unclaimed(), "{spelling}");
        let found = projects.finding("folder");
        assert_eq!(found["level"], "warning", "{spelling}: {found}");
        assert!(found["hint"].as_str().unwrap().contains("tollgate trust"), "{found}");

        let said = world.tollgate(["trust"]).typed("yes").is(0);
        let listed =
            format!("folder outside the workspace for tasks: `{}`", projects.other().join("vault").display());
        assert!(said.shown.contains(&listed), "{spelling}: {}", said.shown);
        assert_eq!(projects.finding("folder")["level"], "ok", "{spelling}");
        // The roles of the clone do not hold there.
        world.run("task claim rent --agent eve").is(1);
        assert!(projects.is_unclaimed(), "{spelling}");
        assert_eq!(world.json("task claim rent --agent cloud")["mode"], "draft", "{spelling}");

        world.tollgate(["trust", "--remove"]).typed("").is(0);
        world.run("task list").is(2);
    }
}

#[test]
fn an_agreement_holds_for_one_folder_and_one_workspace() {
    let projects = Projects::new("");
    let world = &projects.world;
    fs::create_dir_all(world.tmp().join("third/Needs_Action")).unwrap();
    symlink("../third", world.path("vault")).unwrap();
    world.tollgate(["trust"]).typed("yes").is(0);
    world.run("task list").is(0);
    // As after a pull: the configuration is the same, and the link leads elsewhere.
    fs::remove_file(world.path("vault")).unwrap();
    symlink("../other/vault", world.path("vault")).unwrap();
    assert!(world.run("task claim rent --agent eve").is(2).stderr().contains("tollgate trust"));
    assert!(projects.is_unclaimed());
    // Another clone.
    let clone = world.tmp().join("clone");
    fs::create_dir_all(clone.join(".tollgate")).unwrap();
    fs::copy(world.path(".tollgate/config.toml"), clone.join(".tollgate/config.toml")).unwrap();
    symlink("../third", clone.join("vault")).unwrap();
    world.tollgate(["task", "list"]).folder(&clone).ends().is(2);
}

#[test]
fn a_folder_that_the_user_gives_to_init_is_agreed_to() {
    let world = World::new();
    world.run("init --vault ../tasks").is(0);
    world.run("task add x").is(0);
    assert!(world.tmp().join("tasks/Needs_Action/x.md").exists());
}

#[test]
fn the_logs_of_a_configuration_stay_in_the_workspace() {
    let log = |world: &World| world.tmp().join("away/agent-blue.log");
    for spelling in ["dir = \"../away\"", "dir = \"AWAY\"", "dir = \"logs\"", "dir = \"new/../../away\""] {
        let world = World::with("");
        let spelling = spelling.replace("AWAY", world.tmp().join("away").to_str().unwrap());
        world.puts(
            ".tollgate/config.toml",
            format!("[vault]\nsettle = \"0ms\"\n[log]\n{spelling}\nkeep = 0\nmax_size = \"1\"\n"),
        );
        fs::create_dir(world.tmp().join("away")).unwrap();
        symlink("../away", world.path("logs")).unwrap();
        fs::write(log(&world), "mine\n").unwrap();
        world.run("init --vault").is(0);
        world.run("task add x --agent ada").is(0);
        let ran = world.run("task claim x --agent blue").is(0);
        assert!(ran.stderr().contains("tollgate trust"), "{ran}");
        // Neither written to nor rotated away.
        assert_eq!(fs::read_to_string(log(&world)).unwrap(), "mine\n", "{spelling}");
        assert_eq!(finding(&world, "folder")["level"], "warning");
        let said = world.tollgate(["trust"]).typed("yes").is(0);
        let listed = format!("the logs of agents: `{}`", world.tmp().join("away").display());
        assert!(said.shown.contains(&listed), "{}", said.shown);
        world.run("task add y --agent ada").is(0);
        world.run("task claim y --agent blue").is(0);
        assert_ne!(fs::read_to_string(log(&world)).unwrap_or_default(), "mine\n", "{spelling}");
    }
    // What is in the user's own configuration needs no agreement.
    let world = World::with("[vault]\nsettle = \"0ms\"\n");
    let own = world.tmp().join("home/.config/tollgate");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("config.toml"), format!("[log]\ndir = \"{}\"\n", world.tmp().join("away").display()))
        .unwrap();
    world.run("init --vault").is(0);
    world.run("task add x --agent ada").is(0);
    let ran = world.run("task claim x --agent blue").is(0);
    assert!(!ran.stderr().contains("tollgate trust"), "{ran}");
    assert!(log(&world).exists());
}

#[test]
fn a_password_file_is_read_only_for_an_engine_that_the_user_has_chosen() {
    let world = World::new();
    let engine = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    engine.set_nonblocking(true).unwrap();
    let url = format!("postgres://ada@{}/x?sslmode=disable", engine.local_addr().unwrap());
    world.puts(".tollgate/config.toml", format!("[vault]\nstore = \"{url}\"\nremote_timeout = \"500ms\"\n"));
    fs::write(world.tmp().join("home/.pgpass"), "*:*:*:*:hunter2\n").unwrap();
    for passfile in [None, Some(world.tmp().join("home/.pgpass"))] {
        let list = |words: &[&str]| {
            let run = world.tollgate(words);
            match &passfile {
                Some(passfile) => run.env("PGPASSFILE", passfile).ends(),
                None => run.ends(),
            }
        };
        let ran = list(&["task", "list"]).is(2);
        assert!(ran.stderr().contains("tollgate trust") && !ran.stderr().contains("hunter2"), "{ran}");
        let report = list(&["doctor"]);
        assert!(report.stdout().contains("tollgate trust"), "{report}");
        assert!(engine.accept().is_err(), "nothing was sent");
    }
    let said = world.tollgate(["trust"]).typed("yes").is(0);
    assert!(said.shown.contains(&format!("address for tasks: `{url}`")), "{}", said.shown);
    let ran = world.run("task list");
    assert!(!ran.stderr().contains("tollgate trust"), "{ran}");
    let (mut stream, _) = engine.accept().unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert!(!heard.is_empty(), "the engine that the user has agreed to is asked");
}

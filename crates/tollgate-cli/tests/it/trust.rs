//! Trust: commands in a configuration, and state that another user owns. Needs root, for a real second user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use serde_json::{Value, json};

use crate::hook::{Program, Tool};
use crate::world::{Ran, Run, World};

/// A user other than the one who runs the tests.
const MALLORY: u32 = 65_534;

/// A configuration with a formatter that leaves a trace.
fn formatter(world: &World) -> String {
    let trace = world.tmp().join("trace");
    format!(
        "[guard]\ndurability = \"fast\"\n[hooks.formatters]\ntxt = [\"sh\", \"-c\", \"echo ran >> {}; tr a-z A-Z\"]\n",
        trace.display()
    )
}

fn has_run(world: &World) -> bool {
    world.tmp().join("trace").exists()
}

/// An agent writes a file, a formatter changes it, and the agent writes again.
fn writes_after_the_formatter(world: &World, session: &str) -> Option<String> {
    let agent = Program::new(world, "codex", session);
    let name = format!("{session}.txt");
    world.puts(&name, "one\n");
    agent.reads(&name).writes(&name, "mine\n").ran();
    world.puts(&name, "MINE\n");
    let answer = agent.asks(&agent.before(&Tool::Write(&name, "more\n"), "last"));
    agent.stops();
    answer
}

#[test]
fn commands_of_a_workspace_run_only_after_the_user_agreed_to_exactly_these_bytes() {
    let world = World::new();
    let config = formatter(&world);
    world.puts(".tollgate/config.toml", &config);
    let finding = |world: &World| {
        let found = world.run("doctor --json").json();
        let found =
            found["findings"].as_array().unwrap().iter().find(|found| found["check"] == "commands").cloned();
        found.unwrap_or(Value::Null)
    };
    let reason = writes_after_the_formatter(&world, "untrusted").expect("refused");
    assert!(reason.contains("STALE_FILE") && reason.contains("no person has trusted it"), "{reason}");
    assert!(!has_run(&world));
    assert_eq!(finding(&world)["level"], "warning");
    assert!(finding(&world)["hint"].as_str().unwrap().contains("tollgate trust"));
    // Neither a pipe nor an agent nor a no.
    world.tollgate(["trust"]).stdin("yes\n").ends().is(1);
    assert_eq!(
        world.tollgate(["trust", "--json"]).stdin("yes\n").ends().is(1).json()["reason"],
        "no_terminal"
    );
    world.tollgate(["trust"]).env("TOLLGATE_AGENT", "blue").typed("yes").is(1);
    world.tollgate(["trust", "--agent", "blue"]).typed("yes").is(1);
    world.tollgate(["trust"]).typed("no").is(1);
    assert!(writes_after_the_formatter(&world, "still").is_some());
    assert!(!has_run(&world));
    // The person sees the whole file, then agrees.
    let said = world.tollgate(["trust"]).typed("yes").is(0);
    for line in config.lines() {
        assert!(said.shown.contains(line), "{line}: {}", said.shown);
    }
    assert!(said.shown.contains("command for `*.txt`: `sh` `-c` `echo ran"), "{}", said.shown);
    assert_eq!(writes_after_the_formatter(&world, "trusted"), None);
    assert!(has_run(&world));
    assert_eq!(finding(&world)["level"], "ok");
    // One byte more, as after a pull.
    fs::remove_file(world.tmp().join("trace")).unwrap();
    world.puts(".tollgate/config.toml", format!("{config} "));
    assert!(writes_after_the_formatter(&world, "changed").is_some());
    assert!(!has_run(&world));
    world.puts(".tollgate/config.toml", &config);
    assert_eq!(writes_after_the_formatter(&world, "again"), None);
    // Withdrawn.
    let json = world.tollgate(["trust", "--remove", "--json"]).typed_with_stdout("").is(0).json();
    assert_eq!((&json["trusted"], &json["commands"]["txt"][0]), (&json!(false), &json!("sh")));
    fs::remove_file(world.tmp().join("trace")).unwrap();
    assert!(writes_after_the_formatter(&world, "removed").is_some());
    assert!(!has_run(&world));
}

#[test]
fn a_copy_of_a_trusted_workspace_is_not_trusted() {
    let world = World::new();
    world.puts(".tollgate/config.toml", formatter(&world));
    world.tollgate(["trust"]).typed("yes").is(0);
    let copy = world.tmp().join("copy");
    fs::create_dir_all(copy.join(".tollgate")).unwrap();
    fs::copy(world.path(".tollgate/config.toml"), copy.join(".tollgate/config.toml")).unwrap();
    let found = world.tollgate(["doctor", "--json"]).folder(&copy).ends().json();
    assert!(found.to_string().contains("you have not trusted them"), "{found}");
}

#[test]
fn commands_in_the_users_own_configuration_need_no_agreement() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    let own = world.tmp().join("home/.config/tollgate");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("config.toml"), formatter(&world)).unwrap();
    assert_eq!(writes_after_the_formatter(&world, "own"), None);
    assert!(has_run(&world));
}

/// The command as another user, with a home of their own.
fn as_mallory<'w>(world: &'w World, words: &[&str], folder: &Path) -> Run<'w> {
    let user = [format!("--reuid={MALLORY}"), format!("--regid={MALLORY}"), "--clear-groups".into()];
    let all = user.into_iter().chain([env!("CARGO_BIN_EXE_tollgate").to_owned()]);
    let run = world.program("setpriv", all.chain(words.iter().map(|word| (*word).to_owned())));
    let home = world.tmp().join("mallory");
    run.folder(folder)
        .env("HOME", &home)
        .env("XDG_STATE_HOME", home.join("state"))
        .env("XDG_RUNTIME_DIR", home.join("run"))
        .env("USER", "mallory")
}

/// A folder that everybody may enter, with a home for the other user.
fn shared() -> (World, std::path::PathBuf) {
    let world = World::new();
    for folder in ["", "mallory", "mallory/state", "mallory/run", "shared", "shared/project"] {
        let folder = world.tmp().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for folder in ["mallory", "mallory/state", "mallory/run"] {
        chown(world.tmp().join(folder), Some(MALLORY), Some(MALLORY)).unwrap();
    }
    let top = world.tmp().join("shared");
    // As in `/tmp`: everybody may create files here.
    fs::set_permissions(&top, fs::Permissions::from_mode(0o1777)).unwrap();
    (world, top)
}

fn root_of(ran: &Ran) -> Value {
    ran.json()["workspace"].clone()
}

#[test]
fn state_above_that_another_user_owns_is_ignored_with_a_message() {
    let (world, top) = shared();
    let project = top.join("project");
    as_mallory(&world, &["init"], &top).ends().is(0);
    let config = top.join(".tollgate/config.toml");
    fs::write(&config, formatter(&world)).unwrap();
    chown(&config, Some(MALLORY), Some(MALLORY)).unwrap();
    // The other user's own commands find it.
    assert_eq!(root_of(&as_mallory(&world, &["doctor", "--json"], &project).ends()), json!(top));
    let ran = world.tollgate(["doctor", "--json"]).folder(&project).ends();
    assert_eq!(root_of(&ran), json!(project));
    assert!(ran.stdout().contains("belongs to another user"), "{ran}");
    let ran = world.tollgate(["write", "a.txt"]).folder(&project).stdin("x").ends().is(0);
    assert!(ran.stderr().contains("note: ignored the workspace") && ran.stderr().contains("65534"), "{ran}");
    assert!(project.join(".tollgate/version").exists());
    // Given by name, it is refused.
    let named =
        world.tollgate(["write", "b.txt", "--json", "-C", top.to_str().unwrap()]).stdin("x").ends().is(2);
    assert!(named.json()["message"].as_str().unwrap().contains("belongs to another user"), "{named}");
    // A hook in the project is not judged by it, and runs no command of it.
    let agent = Program::new(&world, "codex", "s");
    let file = project.join("b.txt");
    fs::write(&file, "one\n").unwrap();
    let name = file.to_str().unwrap();
    agent.reads(name).writes(name, "mine\n").ran();
    fs::write(&file, "MINE\n").unwrap();
    agent.writes(name, "more\n").refused("STALE_FILE");
    assert!(!has_run(&world));
    // After an agreement it is used.
    world.tollgate(["trust", "-C", top.to_str().unwrap()]).typed("yes").is(0);
    world.tollgate(["write", "b.txt", "-C", top.to_str().unwrap()]).stdin("x").ends().is(0);
    world.tollgate(["trust", "--remove", "-C", top.to_str().unwrap()]).typed("").is(0);
    world.tollgate(["write", "b.txt", "-C", top.to_str().unwrap()]).stdin("x").ends().is(2);
}

#[test]
fn a_configuration_that_another_user_owns_is_ignored_too() {
    let (world, top) = shared();
    let project = top.join("project");
    world.tollgate(["init"]).folder(&top).ends().is(0);
    assert_eq!(root_of(&world.tollgate(["doctor", "--json"]).folder(&project).ends()), json!(top));
    chown(top.join(".tollgate/config.toml"), Some(MALLORY), Some(MALLORY)).unwrap();
    assert_eq!(root_of(&world.tollgate(["doctor", "--json"]).folder(&project).ends()), json!(project));
}

#[test]
fn state_of_root_is_everybodys() {
    let (world, top) = shared();
    world.tollgate(["init"]).folder(&top).ends().is(0);
    fs::set_permissions(top.join(".tollgate"), fs::Permissions::from_mode(0o755)).unwrap();
    let ran = as_mallory(&world, &["doctor", "--json"], &top.join("project")).ends();
    assert_eq!(root_of(&ran), json!(top));
}

//! `[notify]`: a running server tells a command, if the user agrees to it.

use std::fs;

use serde_json::Value;

use super::Served;
use crate::world::{World, until};

/// A vault, and a command that writes down what it is told.
fn world() -> World {
    let world = World::new();
    world.run("init --vault").is(0);
    let told = world.tmp().join("told");
    let notify =
        format!("\n[notify]\ncommand = [\"sh\", \"-c\", \"cat >> {0}; echo >> {0}\"]\n", told.display());
    let config = fs::read_to_string(world.path(".tollgate/config.toml")).unwrap();
    world.puts(".tollgate/config.toml", config + &notify);
    world
}

fn told(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.tmp().join("told")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn a_command_is_told_only_after_the_user_agreed_to_it() {
    let world = world();
    let served = Served::new(&world, &[]);
    world.puts("vault/Pending_Approval/x.md", "# Pay the rent\n");
    let health = served.until_health("the task", |health| health["tasks"]["pending_approvals"] == 1);
    assert_eq!(health["notify"], Value::Null, "nobody has agreed");
    drop(served);
    assert!(told(&world).is_empty());
    let said = world.tollgate(["trust"]).typed("yes").is(0);
    assert!(said.shown.contains("command for notices: `sh` `-c`"), "{}", said.shown);
    let served = Served::new(&world, &[]);
    served.until_health("the figures", |health| health["notify"]["sent"] == 0);
    world.puts("vault/Pending_Approval/y.md", "# Pay the cook\n");
    let notices = until("a notice", || Some(told(&world)).filter(|told| !told.is_empty()));
    assert_eq!(notices.len(), 1, "a task that waited before is not told: {notices:?}");
    assert_eq!(
        (&notices[0]["event"], &notices[0]["title"]),
        (&"approval.pending".into(), &"Pay the cook".into())
    );
    served.until_health("the delivery", |health| health["notify"]["sent"] == 1);
}

#[test]
fn the_users_own_configuration_needs_no_agreement() {
    let world = World::new();
    world.run("init --vault").is(0);
    let own = world.tmp().join("config");
    fs::create_dir_all(own.join("tollgate")).unwrap();
    let config = "[notify]\nwebhook = \"http://127.0.0.1:9/\"\n";
    fs::write(own.join("tollgate/config.toml"), config).unwrap();
    let serve =
        || world.tollgate(["serve", "--listen", "127.0.0.1:0", "--json"]).env("XDG_CONFIG_HOME", &own);
    let said = serve().ends().is(2).json();
    assert!(said["message"].as_str().unwrap().contains("TOLLGATE_NOTIFY_SECRET"), "{said}");
    let served = Served::of(serve().env("TOLLGATE_NOTIFY_SECRET", "a shared secret"));
    served.until_health("the figures", |health| health["notify"]["sent"] == 0);
}

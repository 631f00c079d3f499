//! A vault on its way through every kind of store: folders, etcd, git, PostgreSQL, and folders again.

use serde_json::json;
use tollgate_testing::etcd::Cluster;
use tollgate_testing::postgres::{Server, is_installed};

use crate::git::Remote;
use crate::world::World;

#[test]
fn a_vault_goes_through_every_store_and_comes_back_as_it_was() {
    if !is_installed() {
        return;
    }
    let (cluster, server, remote) = (Cluster::shared(), Server::shared(), Remote::with_tasks(0));
    let (etcd, postgres) = (cluster.url(), server.url("copied"));
    let first = World::new();
    first.run("init --vault").is(0);
    first.puts("vault/Needs_Action/sub task.md", "---\npriority: high\n---\nwater the plants \u{2713}\n");
    first.puts("vault/Pending_Approval/pay.md", "---\naction: pay\n---\nten coins");
    first.run("task add done --agent ada").is(0);
    first.run("task add failed --agent ada").is(0);
    for (task, how) in [("done", ""), ("failed", " --result failure --note no")] {
        let claimed = first.json(&format!("task claim {task} --agent blue"));
        let id = claimed["claim_id"].as_str().unwrap();
        first.run(&format!("task release {task} --claim-id {id} --agent blue{how}")).is(0);
    }
    let figures = first.json("task figures");
    let in_git = remote.clone("");
    let last = World::new();
    last.run("init --vault").is(0);
    let copies = [
        first.json(&format!("vault copy --to {etcd}")),
        in_git.json(&format!("vault copy --from {etcd}")),
        in_git.json(&format!("vault copy --to {postgres}")),
        last.json(&format!("vault copy --from {postgres}")),
    ];
    for copied in &copies {
        assert_eq!(copied["copied"], true, "{copied:#}");
        assert_eq!(copied["sha256"], copies[0]["sha256"], "{copies:#?}");
        assert_eq!(copied["tasks"], json!({"Needs_Action": 2, "Pending_Approval": 1, "Done": 1}));
    }
    assert_eq!(last.json("task figures"), figures, "the history came along");
    let back = first.json(&format!("vault copy --from {postgres}"));
    assert_eq!(back["sha256"], copies[0]["sha256"], "nothing is left to copy: {back:#}");
    // The digest notices a difference: an author changes one byte on the way.
    last.puts("vault/Needs_Action/sub task.md", "---\npriority: high\n---\nwater the plants \u{2717}\n");
    let denied = last.run(&format!("vault copy --to {postgres}")).is(1);
    assert!(denied.stderr().contains("the target has another task"), "{denied}");
}

#[test]
fn a_password_in_the_address_is_refused_with_the_variables_of_a_copy() {
    let world = World::new();
    world.run("init --vault").is(0);
    insta::assert_snapshot!(world.run("vault copy --to postgres://u:hunter2@127.0.0.1:1/x").filtered, @r#"
    exit 2
    --- stderr
    error: the address of the store has a password, which others could read
    hint: delete the password from the address, and set `TOLLGATE_COPY_USER` and `TOLLGATE_COPY_PASSWORD` in your environment
    "#);
    let ran = world.run("init --store postgres://u:hunter2@127.0.0.1:1/x").is(2);
    assert!(ran.stderr().contains("`TOLLGATE_STORE_PASSWORD`") && !ran.stderr().contains("hunter2"), "{ran}");
}

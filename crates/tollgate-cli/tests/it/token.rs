//! `tollgate token`: adding, listing and removing tokens.

use serde_json::json;

use crate::world::World;

#[test]
fn a_token_is_shown_once_and_then_only_listed() {
    let world = World::bare();
    assert_eq!(world.json("token list"), json!([]));
    let added = world.run("token add blue").is(0);
    let secret = added.stdout().trim().to_owned();
    assert!(secret.len() >= 32 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{secret}");
    assert!(added.stderr().contains("shown only now"), "{added}");
    let monitor = world.json("token add prometheus --monitor");
    assert_eq!((&monitor["name"], &monitor["opens"]), (&json!("prometheus"), &json!("figures")));
    assert_ne!(monitor["token"], json!(secret));
    let listed = world.json("token list");
    assert_eq!((&listed[0]["name"], &listed[0]["opens"]), (&json!("blue"), &json!("mcp")));
    let stored = world
        .script("cat ../state/tollgate/tokens/*.json; stat -c %a ../state/tollgate/tokens/*.json")
        .ends();
    let text = format!("{listed}{}", stored.is(0).stdout());
    assert!(!text.contains(&secret) && text.ends_with("600\n"), "{text}");
    assert!(!world.path(".tollgate").exists(), "nothing is stored in the workspace");
    insta::assert_snapshot!(world.run("token add blue").filtered, @r"
    exit 2
    --- stderr
    error: there already is a token for `blue`, and its secret cannot be shown again
    hint: run `tollgate token remove blue` first, or choose another name
    ");
    insta::assert_snapshot!(world.run("token remove blue").filtered, @r"
    exit 0
    --- stdout
    removed the token of `blue`; a running server no longer accepts it
    ");
    insta::assert_snapshot!(world.run("token remove blue").filtered, @r"
    exit 3
    --- stderr
    error: the token of `blue` does not exist
    hint: run `tollgate token list` to see all tokens of this workspace
    ");
    assert_eq!(world.json("token list").as_array().unwrap().len(), 1);
}

#[test]
fn tokens_belong_to_one_workspace() {
    let (world, other) = (World::new(), World::new());
    world.run("token add blue").is(0);
    let elsewhere = world.tollgate(["token", "list", "--json", "-C", other.root().to_str().unwrap()]).ends();
    assert_eq!(elsewhere.is(0).json(), json!([]));
}

#[test]
fn agents_may_not_manage_tokens() {
    let world = World::new();
    for line in ["add green", "list", "remove green"] {
        let words = format!("token {line} --json");
        let run = world.tollgate(words.split(' ')).env("TOLLGATE_AGENT", "blue");
        run.ends().is(2).fault("USAGE");
    }
    assert!(!world.tmp().join("state/tollgate/tokens").exists());
    world.run("token add --json a/b").is(2);
    let homeless = world.tollgate(["token", "list", "--json"]).without("HOME").without("XDG_STATE_HOME");
    homeless.ends().is(2).fault("USAGE");
}

#[test]
fn tokens_added_at_the_same_time_are_all_kept() {
    let world = World::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let world = &world;
            scope.spawn(move || world.run(&format!("token add agent-{number}")).is(0));
        }
    });
    assert_eq!(world.json("token list").as_array().unwrap().len(), 8);
}

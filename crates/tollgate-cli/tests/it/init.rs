//! `init` and `init --remove`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::world::World;

#[test]
fn init_writes_the_configuration_once_and_nothing_else() {
    let world = World::new();
    fs::create_dir(world.path(".git")).unwrap();
    insta::assert_snapshot!(world.run("init").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (git root)
    wrote `.tollgate/config.toml`
    git repository: you can commit `config.toml`; the rest of `.tollgate/` is ignored
    next: run `tollgate doctor` to check protection on this file system
    next: run `tollgate turn begin` to start a turn for `read` and `write`
    "#);
    let files: Vec<_> =
        fs::read_dir(world.path(".tollgate")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["config.toml"]);
    assert_eq!(fs::metadata(world.path(".tollgate")).unwrap().permissions().mode() & 0o777, 0o700);
    world.tollgate(["create", "a"]).stdin("").ends().is(0);
    let mine = "version = 1 # mine\n";
    world.puts(".tollgate/config.toml", mine);
    insta::assert_snapshot!(world.run("init").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    found `.tollgate/config.toml`, not changed
    git repository: you can commit `config.toml`; the rest of `.tollgate/` is ignored
    found state from earlier guarded writes
    next: run `tollgate doctor` to check protection on this file system
    next: run `tollgate turn begin` to start a turn for `read` and `write`
    "#);
    world.holds(".tollgate/config.toml", mine);
    let sub = world.path("sub");
    fs::create_dir(&sub).unwrap();
    let answer = world.tollgate(["init", "--json"]).folder(&sub).ends().is(0).json();
    assert_eq!(answer["done"], "kept");
    assert_eq!(answer["workspace"], world.root().to_str().unwrap());
    assert_eq!(answer["found"], json!({"git": true, "state": true}));
}

#[test]
fn remove_removes_what_init_added() {
    let world = World::new();
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (current folder)
    no `.tollgate/config.toml` found, nothing to remove
    "#);
    world.run("init").is(0);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    removed `.tollgate/config.toml`
    "#);
    assert!(!world.path(".tollgate").exists());
    world.run("init").is(0);
    world.tollgate(["create", "a"]).stdin("").ends().is(0);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    removed `.tollgate/config.toml`
    kept the state (ledger, recovery) in `.tollgate`
    hint: if you need neither, delete that folder while no agent works here
    "#);
    assert!(world.path(".tollgate/ledger.jsonl").exists());
    world.puts(".tollgate/config.toml", "# mine");
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]` (found `.tollgate`)
    kept `.tollgate/config.toml`, because it was edited
    hint: delete it yourself if you do not need it
    kept the state (ledger, recovery) in `.tollgate`
    hint: if you need neither, delete that folder while no agent works here
    "#);
    world.holds(".tollgate/config.toml", "# mine");
}

#[test]
fn an_invalid_configuration_is_reported_with_the_place_of_the_error() {
    let world = World::with("[guard]\nmodus = \"\x1b[31menforce\"\n");
    insta::assert_snapshot!(world.run("read a").filtered, @r#"
    exit 3
    --- stderr
    error: `.tollgate/config.toml` is not valid
      TOML parse error at line 2, column 10
        |
      2 | modus = "\u{1b}[31menforce"
        |          ^
      invalid basic string, expected non-double-quote visible characters, `\`
    hint: fix the file, then try again
    "#);
    world.run("read a --json").is(3).fault("CONFIG_INVALID");
    world.run("init").is(3);
    let world = World::with("version = 99\n");
    insta::assert_snapshot!(world.run("turn begin").filtered, @r#"
    exit 3
    --- stderr
    error: `.tollgate/config.toml` has version 99, this tollgate knows 1
    hint: install a newer tollgate
    "#);
}

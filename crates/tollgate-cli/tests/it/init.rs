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
    workspace `[W]`, the git root
    wrote `.tollgate/config.toml`
    found git: the configuration may be committed, the state beside it is ignored
    next: `tollgate doctor` tells how well this file system protects
    next: `tollgate turn begin` starts a turn for `read` and `write`
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
    workspace `[W]`, it has `.tollgate`
    found `.tollgate/config.toml`, left as it is
    found git: the configuration may be committed, the state beside it is ignored
    found state of earlier guarded writes
    next: `tollgate doctor` tells how well this file system protects
    next: `tollgate turn begin` starts a turn for `read` and `write`
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
fn remove_takes_out_what_init_put_in() {
    let world = World::new();
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]`, the current folder
    found no `.tollgate/config.toml`, so there is nothing to remove
    "#);
    world.run("init").is(0);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]`, it has `.tollgate`
    removed `.tollgate/config.toml`
    "#);
    assert!(!world.path(".tollgate").exists());
    world.run("init").is(0);
    world.tollgate(["create", "a"]).stdin("").ends().is(0);
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]`, it has `.tollgate`
    removed `.tollgate/config.toml`
    left the state (ledger, recovery) in `.tollgate`
    hint: delete that folder if you need neither, while no agent works here
    "#);
    assert!(world.path(".tollgate/ledger.jsonl").exists());
    world.puts(".tollgate/config.toml", "# mine");
    insta::assert_snapshot!(world.run("init --remove").filtered, @r#"
    exit 0
    --- stdout
    workspace `[W]`, it has `.tollgate`
    left `.tollgate/config.toml`, because it is not as init wrote it
    hint: remove it yourself if you do not need it
    left the state (ledger, recovery) in `.tollgate`
    hint: delete that folder if you need neither, while no agent works here
    "#);
    world.holds(".tollgate/config.toml", "# mine");
}

#[test]
fn a_configuration_that_cannot_be_used_is_told_with_its_place() {
    let world = World::with("[guard]\nmodus = \"\x1b[31menforce\"\n");
    insta::assert_snapshot!(world.run("read a").filtered, @r#"
    exit 3
    --- stderr
    error: `.tollgate/config.toml` cannot be used
      TOML parse error at line 2, column 10
        |
      2 | modus = "\u{1b}[31menforce"
        |          ^
      invalid basic string, expected non-double-quote visible characters, `\`
    hint: mend the file; the settings are listed in docs/settings.md
    "#);
    world.run("read a --json").is(3).fault("CONFIG_INVALID");
    world.run("init").is(3);
    let world = World::with("version = 99\n");
    insta::assert_snapshot!(world.run("turn begin").filtered, @r#"
    exit 3
    --- stderr
    error: `.tollgate/config.toml` cannot be used
      it has version 99, this tollgate knows 1; install a newer tollgate
    hint: mend the file; the settings are listed in docs/settings.md
    "#);
}

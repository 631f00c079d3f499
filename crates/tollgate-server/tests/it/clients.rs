//! The official clients, the inspector and the conformance suite, against this server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::install::{Peers, peers};
use crate::world::{TOOLS, example};

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/peers").join(name)
}

/// A server over HTTP. It ends with the test.
struct Site {
    child: Child,
    url: String,
}

impl Site {
    fn serving(root: &Path) -> Self {
        let mut child = Command::new(example("mcp_http")).arg(root).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out.into_owned()
}

/// Runs a story over stdio and over HTTP, each in its own folder.
fn runs(peers: &Peers, story: impl Fn() -> Command) {
    for door in ["stdio", "http"] {
        let folder = tempfile::tempdir().unwrap();
        let tasks = folder.path().join("vault/Needs_Action");
        std::fs::create_dir_all(&tasks).unwrap();
        std::fs::write(tasks.join("water.md"), "# Water the plants\n").unwrap();
        let mut command = story();
        command.arg(door).env("WORKSPACE", folder.path()).env("PEERS", &peers.folder);
        let mut _site = None;
        if door == "stdio" {
            command.arg(example("mcp_stdio")).arg(folder.path());
        } else {
            let site = _site.insert(Site::serving(folder.path()));
            command.arg(&site.url);
        }
        assert_eq!(succeeds(&mut command).trim(), "the story is complete");
    }
}

#[test]
fn the_official_typescript_clients_recover() {
    let Some(peers) = peers() else { return };
    for generation in ["v1", "v2"] {
        runs(peers, || {
            let mut command = Command::new("node");
            command.arg(here("story.mjs")).arg(generation);
            command
        });
    }
}

#[test]
fn the_official_python_client_recovers() {
    let Some(peers) = peers() else { return };
    runs(peers, || {
        let mut command = Command::new(peers.python());
        command.arg(here("story.py"));
        command
    });
}

#[test]
fn the_inspector_calls_tools() {
    let Some(peers) = peers() else { return };
    let Some(node) = peers.new_node() else {
        eprintln!("SKIPPED the inspector: it needs Node 22.19, which is not packed for this machine");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "hello").unwrap();
    let ask = |more: &[&str]| -> Value {
        let script = peers.folder.join("node_modules/.bin/mcp-inspector");
        let mut command = Command::new(&node);
        command.arg(script).arg("--cli").arg(example("mcp_stdio")).arg(folder.path()).args(more);
        serde_json::from_str(&succeeds(&mut command)).unwrap()
    };
    assert!(ask(&["--method", "tools/list"])["tools"].as_array().unwrap().len() == TOOLS.len());
    let read = ask(&["--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=a.txt"]);
    assert_eq!(read["structuredContent"], json!({"content": "hello"}));
}

#[test]
fn the_conformance_suite_finds_only_expected_failures() {
    let Some(peers) = peers() else { return };
    let Some(node) = peers.new_node() else {
        eprintln!("SKIPPED the conformance suite: it needs Node 22, which is not packed for this machine");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let site = Site::serving(folder.path());
    let words = succeeds(
        Command::new(node)
            .arg(peers.script("@modelcontextprotocol/conformance/dist/index.js"))
            .args(["server", "--url", &site.url, "--expected-failures"])
            .arg(here("conformance.yml"))
            .current_dir(folder.path()),
    );
    for scenario in
        ["server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"]
    {
        assert!(words.contains(&format!("✓ {scenario}")), "{words}");
    }
}

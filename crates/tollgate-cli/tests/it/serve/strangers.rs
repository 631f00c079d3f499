//! Other users of the machine, and agents that want to be somebody else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::Served;
use crate::world::{Ran, World};

/// Runs a shell script as another user of this machine. The tests run as root, which may do that.
#[track_caller]
fn as_nobody(world: &World, script: &str) -> Ran {
    assert!(rustix::process::geteuid().is_root(), "this test needs root, to become another user");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", script];
    world.program("setpriv", nobody).folder("/").ends()
}

/// A script that sends a request and prints the response.
fn sends(served: &Served, request: &str) -> String {
    let request = request.replace("HERE", &served.address).replace("\r\n", "\\r\\n");
    let port = served.address.rsplit(':').next().unwrap();
    format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '%b' '{request}' >&3; cat <&3")
}

#[test]
fn another_user_of_the_machine_gets_nothing() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.puts("private.txt", "only for me");
    fs::set_permissions(world.path("private.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    // So that only the mode of the file protects it.
    fs::set_permissions(world.tmp(), fs::Permissions::from_mode(0o755)).unwrap();
    let served = Served::new(&world, &["--agent", "blue"]);
    let file = world.path("private.txt");
    let read = as_nobody(&world, &format!("cat {}", file.display())).is(1);
    assert!(read.stderr().contains("Permission denied"), "{read}");

    let call = |tool: &str, arguments: Value| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": meta}})
        .to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: {tool}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        as_nobody(&world, &sends(&served, &request)).is(0).stdout()
    };
    let read = call("read_text_file", json!({"path": "private.txt"}));
    assert!(read.starts_with("HTTP/1.1 401") && !read.contains("only for me"), "{read}");
    let write = call("write_file", json!({"path": "planted.txt", "content": "x"}));
    assert!(write.starts_with("HTTP/1.1 401"), "{write}");
    assert!(!world.path("planted.txt").exists());
    for page in ["/", "/approvals", "/ledger", "/events?page=/"] {
        let request = format!("GET {page} HTTP/1.1\r\nHost: HERE\r\nConnection: close\r\n\r\n");
        let reply = as_nobody(&world, &sends(&served, &request)).is(0).stdout();
        assert!(reply.starts_with("HTTP/1.1 401"), "{page}: {reply}");
    }
    // What the server's user wrote down about tokens is closed to others, too.
    world.run("token add green").is(0);
    let tokens = world.tmp().join("state/tollgate/tokens");
    let look = as_nobody(&world, &format!("cat {}/*.json", tokens.display()));
    assert!(look.stdout().is_empty() && look.stderr().contains("denied"), "{look}");
}

#[test]
fn tokens_of_another_user_are_not_accepted() {
    let world = World::new();
    world.run("init").is(0);
    let token = world.json("token add green")["token"].as_str().unwrap().to_owned();
    let folder = world.tmp().join("state/tollgate/tokens");
    let json = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "json");
    let file = fs::read_dir(&folder).unwrap().map(Result::unwrap).find(json).unwrap().path();
    let served = Served::new(&world, &[]);
    assert_eq!(served.client(&token).calls("list_allowed_directories", &json!({}))["isError"], Value::Null);
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    let reply = served.gets_as(&token, "/mcp");
    assert_eq!(reply.status, 500, "{reply:?}");
    assert!(reply.body.contains("belongs to another user"), "{reply:?}");
    assert_eq!(served.gets("/").status, 200, "the person is not affected");
    world.run("token list --json").is(3);
}

#[test]
fn a_token_decides_which_agent_writes_and_when_that_ends() {
    let world = World::new();
    world.run("init --vault").is(0);
    world.run("task add one").is(0);
    let served = Served::new(&world, &[]);
    let token = |name: &str| world.json(&format!("token add {name}"))["token"].as_str().unwrap().to_owned();
    // Added while the server runs.
    let (blue, green) = (token("blue"), token("green"));
    let (as_blue, as_green) = (served.client(&blue), served.client(&green));
    served.until_health("the task", |health| health["tasks"]["waiting"] == 1);
    let claimed = as_blue.calls("claim_task", &json!({"agent": "green"}));
    assert_eq!(claimed["structuredContent"]["agent"], "blue", "{claimed}");
    let claim = &claimed["structuredContent"]["claim_id"];
    // Another agent owns neither the claim nor its file.
    let other =
        as_green.calls("release_task", &json!({"task": "one", "claim_id": claim, "result": "success"}));
    assert_eq!(other["structuredContent"]["reason"], "not_owner", "{other}");
    let note = |file: &str| json!({"path": file, "content": "x"});
    let wrote = as_green.calls("write_file", &note("vault/In_Progress/blue/note.txt"));
    assert_eq!(wrote["structuredContent"]["error_type"], "PROTECTED_PATH", "{wrote}");
    let wrote = as_blue.calls("write_file", &note("vault/In_Progress/blue/note.txt"));
    assert_eq!(wrote["isError"], Value::Null, "{wrote}");
    as_green.calls("write_file", &note("a.txt"));
    let lines = world.json("ledger tail --type MUTATION");
    let agents: Vec<&Value> = lines.as_array().unwrap().iter().map(|line| &line["agent"]).collect();
    assert_eq!(agents, [&json!("blue"), &json!("green")]);
    // The session of one agent is unknown to another.
    let stolen = super::Client { served: &served, token: &green, session: as_blue.session.clone() };
    let list = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {}});
    assert_eq!(stolen.posts(&list).status, 404);
    assert_eq!(as_blue.posts(&list).status, 200);
    world.run("token remove blue").is(0);
    assert_eq!(as_blue.posts(&list).status, 401, "a removed token is refused at once");
    assert_eq!(as_green.posts(&list).status, 200);
}

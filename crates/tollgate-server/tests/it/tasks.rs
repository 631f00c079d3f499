//! Tasks over MCP: who owns a claim, how long it lasts, and what an agent gets as an answer.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http::{Site, text};
use crate::world::{Client, TOOLS, World};

const ROLES: &str =
    "[agent.blue]\nallowed = [\"triage\"]\nsensitive = [\"pay\"]\n[agent.green]\nallowed = [\"pay\"]\n";

/// Claims a task and returns the claim id.
#[track_caller]
fn claims(client: &mut Client, task: &str) -> String {
    let claimed = client.value("claim_task", json!({"task": task}));
    assert_eq!((&claimed["claimed"], &claimed["task"]), (&json!(true), &json!(format!("{task}.md"))));
    claimed["claim_id"].as_str().unwrap().to_owned()
}

/// The payload of a refusal. Checks that the model gets the same with a hint.
#[track_caller]
fn refusal(result: &Value) -> Value {
    assert_eq!(result["isError"], true, "{result}");
    let payload = result["structuredContent"].clone();
    let mut shown: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(shown["recovery_hint"].as_str().unwrap().contains("claim_task") || payload["reason"] != "lost");
    shown.as_object_mut().unwrap().shift_remove("recovery_hint");
    assert_eq!(shown, payload, "the model sees what the program sees");
    payload
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_task_is_listed_claimed_worked_on_and_released() {
    let world = World::with_vault("");
    world.adds("water", "# Water the plants\n");
    world.adds("pay", "---\naction: pay\npriority: high\n---\n# Pay\n");
    let mut client = world.client();

    let list = client.value("list_tasks", json!({}));
    let names: Vec<&Value> = list["tasks"].as_array().unwrap().iter().map(|row| &row["task"]).collect();
    assert_eq!((names, &list["total"]), (vec![&json!("pay.md"), &json!("water.md")], &json!(2)));
    assert_eq!(keys(&list["tasks"][0]), ["task", "state", "action", "priority", "attempts", "age_s"]);

    let claimed = client.value("claim_task", json!({"task": "water"}));
    assert_eq!(keys(&claimed), ["claimed", "task", "agent", "claim_id", "path", "mode", "epoch"]);
    assert_eq!((&claimed["agent"], &claimed["mode"]), (&json!("blue"), &json!("execute")));
    assert_eq!(claimed["path"], world.path("vault/In_Progress/blue/water.md"));
    let id = claimed["claim_id"].as_str().unwrap();

    let renewed = client.value("renew_task", json!({"task": "water.md", "claim_id": id}));
    assert_eq!(renewed, json!({"task": "water.md", "claim_id": id, "lease_until": null}), "it is held");
    let noted = json!({"task": "water", "claim_id": id, "text": "filled the can"});
    assert_eq!(
        client.value("report_progress", noted),
        json!({"task": "water.md", "claim_id": id, "noted": true})
    );
    let task = client.value("get_task", json!({"task": "water"}));
    assert!(task["content"].as_str().unwrap().contains("filled the can"), "{task}");
    assert_eq!(
        (&task["state"], &task["agent"], &task["claim_id"]),
        (&json!("In_Progress"), &json!("blue"), &json!(id))
    );

    let how = json!({"task": "water", "claim_id": id, "result": "success", "note": "all of them"});
    let released = client.value("release_task", how.clone());
    let path = world.path("vault/Done/water.md");
    assert_eq!(released, json!({"task": "water.md", "state": "Done", "path": path}));
    let payload = refusal(&client.call("release_task", how));
    assert_eq!(keys(&payload), ["task", "refused", "reason", "message"]);
    assert_eq!(payload["reason"], "not_owner");

    assert_eq!(client.value("list_tasks", json!({}))["total"], 1, "what is finished is not in the way");
    assert_eq!(client.value("list_tasks", json!({"state": "Done"}))["tasks"][0]["task"], "water.md");
    assert_eq!(client.value("claim_task", json!({}))["task"], "pay.md", "the next one");
    let payload = refusal(&client.call("claim_task", json!({})));
    assert_eq!(payload["reason"], "none");
    assert_eq!(keys(&payload), ["claimed", "task", "agent", "reason", "message"]);
    for kind in ["CLAIM", "RELEASE"] {
        assert_eq!(world.ledger(kind)[0]["agent"], "blue", "{kind}");
    }
}

#[test]
fn the_list_of_tasks_is_limited() {
    let world = World::with_vault("");
    for number in 0..103 {
        world.adds(&format!("t{number}"), "x");
    }
    let mut client = world.client();
    for (arguments, shown) in [(json!({}), 100), (json!({"limit": 2}), 2), (json!({"limit": 500}), 103)] {
        let list = client.value("list_tasks", arguments);
        assert_eq!((list["tasks"].as_array().unwrap().len(), &list["total"]), (shown, &json!(103)));
    }
}

#[test]
fn a_held_claim_belongs_to_one_connection() {
    let world = World::with_vault("");
    world.adds("x", "text");
    let mut owner = world.client();
    let id = claims(&mut owner, "x");
    // Connections of the same agent and of another. Both have read the claim id in the file.
    for mut other in [world.client(), Client::of(world.serving_as("green"))] {
        assert_eq!(refusal(&other.call("claim_task", json!({"task": "x"})))["reason"], "lost");
        assert_eq!(refusal(&other.call("claim_task", json!({})))["reason"], "none");
        for (tool, arguments) in [
            ("renew_task", json!({"task": "x", "claim_id": id})),
            ("report_progress", json!({"task": "x", "claim_id": id, "text": "mine"})),
            ("release_task", json!({"task": "x", "claim_id": id, "result": "success"})),
        ] {
            assert_eq!(refusal(&other.call(tool, arguments))["reason"], "not_owner", "{tool}");
        }
        assert!(other.value("list_tasks", json!({}))["tasks"][0].get("claim_id").is_none());
        assert!(other.value("get_task", json!({"task": "x"})).get("claim_id").is_none());
    }
    assert_eq!(owner.value("list_tasks", json!({}))["tasks"][0]["claim_id"], id.as_str());
    let made_up = json!({"task": "x", "claim_id": "c-0000000000000000"});
    assert_eq!(refusal(&owner.call("renew_task", made_up))["reason"], "not_owner");
    owner.value("release_task", json!({"task": "x", "claim_id": id, "result": "success"}));
}

#[test]
fn a_held_task_is_free_when_its_connection_closes() {
    let world = World::with_vault("[vault]\nretry = []\n");
    world.adds("x", "text");
    let mut first = world.client();
    let id = claims(&mut first, "x");
    first.closes();
    assert_eq!(world.slot("x"), "Needs_Action", "without another call");
    let mut second = world.client();
    assert_eq!(second.value("get_task", json!({"task": "x"}))["reason"], "interrupted");
    let again = claims(&mut second, "x");
    for stale in ["renew_task", "report_progress", "release_task"] {
        let arguments = json!({"task": "x", "claim_id": id, "text": "late", "result": "success"});
        assert_eq!(refusal(&second.call(stale, arguments))["reason"], "not_owner", "{stale}");
    }
    second.value("renew_task", json!({"task": "x", "claim_id": again}));
}

#[test]
fn over_http_a_claim_is_a_lease_that_outlives_its_session() {
    let world = World::with_vault("[vault]\nlease = \"1h\"\n");
    world.adds("x", "text");
    let site = Site::new(world.server.clone());
    let session = site.session();
    let claimed = session.call("claim_task", json!({"task": "x"}))["structuredContent"].clone();
    let until: Timestamp = claimed["lease_until"].as_str().unwrap().parse().unwrap();
    assert!(until > Timestamp::now());
    session.ends();
    let other = site.session();
    assert_eq!(refusal(&other.call("claim_task", json!({"task": "x"})))["reason"], "lost");
    // The same agent may use it in another session and in a call without a session.
    let own = json!({"task": "x", "claim_id": claimed["claim_id"]});
    let renewed: Value = serde_json::from_str(&text(&other.call("renew_task", own.clone()))).unwrap();
    assert!(renewed["lease_until"].as_str().unwrap().parse::<Timestamp>().unwrap() >= until);
    text(&site.alone("renew_task", own.clone()));
    // Another agent may not.
    let stranger = Site::new(world.serving_as("green"));
    assert_eq!(refusal(&stranger.session().call("renew_task", own.clone()))["reason"], "not_owner");
    let mut how = own;
    how["result"] = json!("success");
    text(&site.alone("release_task", how));
    assert_eq!(world.slot("x"), "Done");
}

#[test]
fn after_a_failed_attempt_the_task_pauses() {
    let world = World::with_vault("");
    world.adds("x", "text");
    let mut client = world.client();
    let id = claims(&mut client, "x");
    client.value("release_task", json!({"task": "x", "claim_id": id, "result": "failure"}));
    let denied = refusal(&client.call("claim_task", json!({"task": "x"})));
    assert_eq!(denied["reason"], "not_eligible");
    assert_eq!(client.value("get_task", json!({"task": "x"}))["paused_until"], denied["until"]);
    let none = refusal(&client.call("claim_task", json!({})));
    assert_eq!((&none["reason"], &none["until"]), (&json!("none"), &denied["until"]));
}

/// Claims a task as soon as its lease has expired. Returns the claim id.
fn when_free(claim: impl Fn() -> Value) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let result = claim();
        if result.get("isError").is_none() {
            return result["structuredContent"]["claim_id"].clone();
        }
        assert_eq!(refusal(&result)["reason"], "lost");
        assert!(Instant::now() < until, "the lease never expired");
    }
}

#[test]
fn a_session_that_lost_its_claim_writes_nothing_until_its_agent_has_heard_of_it() {
    let world = World::with_vault("[vault]\nlease = \"100ms\"\nretry = []\n");
    world.adds("x", "text");
    let site = Site::new(world.server.clone());
    let (first, second) = (site.session(), site.session());
    let old = first.call("claim_task", json!({"task": "x"}))["structuredContent"]["claim_id"].clone();
    let write = |name: &str| json!({"path": name, "content": "mine"});
    text(&first.call("write_file", write("a")));
    when_free(|| second.call("claim_task", json!({"task": "x"})));
    let refused = first.call("write_file", write("b"));
    assert_eq!(refused["structuredContent"]["error_type"], "FENCED", "{refused}");
    assert!(!std::path::Path::new(&world.path("b")).exists());
    text(&second.call("write_file", write("c")));
    text(&site.alone("write_file", write("d")));
    let release = json!({"task": "x", "claim_id": old, "result": "success"});
    assert_eq!(refusal(&first.call("release_task", release))["reason"], "not_owner");
    text(&first.call("write_file", write("b")));
}

#[test]
fn after_an_expired_lease_the_task_can_be_claimed_and_the_old_id_is_refused() {
    let world = World::with_vault("[vault]\nlease = \"100ms\"\nretry = []\n");
    world.adds("x", "text");
    let site = Site::new(world.server.clone());
    let (first, second) = (site.session(), site.session());
    let old = first.call("claim_task", json!({"task": "x"}))["structuredContent"]["claim_id"].clone();
    let new = when_free(|| second.call("claim_task", json!({"task": "x"})));
    assert_ne!(old, new);
    for tool in ["renew_task", "report_progress", "release_task"] {
        let arguments = json!({"task": "x", "claim_id": old, "text": "late", "result": "success"});
        assert_eq!(refusal(&first.call(tool, arguments))["reason"], "not_owner", "{tool}");
    }
}

#[test]
fn roles_are_checked_before_a_claim_and_people_decide_before_the_action() {
    let world = World::with_vault(ROLES);
    world.adds("rent", "---\naction: pay\n---\n");
    world.adds("later", "---\nafter: rent\n---\n");
    let (mut blue, mut green) = (world.client(), Client::of(world.serving_as("green")));
    assert_eq!(refusal(&blue.call("claim_task", json!({"task": "later"})))["reason"], "blocked");
    assert_eq!(refusal(&blue.call("claim_task", json!({"task": "nobody"})))["reason"], "none");
    let claimed = blue.value("claim_task", json!({"task": "rent"}));
    assert_eq!(claimed["mode"], "draft", "sensitive for blue");
    let own = json!({"task": "rent", "claim_id": claimed["claim_id"], "to": "Done", "result": "success"});
    assert!(blue.fails("release_task", own.clone()).contains("Pending_Approval"), "a draft is not done");
    let mut how = own;
    how.as_object_mut().unwrap().shift_remove("to");
    assert_eq!(blue.value("release_task", how)["state"], "Pending_Approval");
    for client in [&mut blue, &mut green] {
        let payload = refusal(&client.call("claim_task", json!({"task": "rent"})));
        assert_eq!(payload["reason"], "not_eligible", "a person decides");
    }
    let rent = "rent".parse().unwrap();
    assert!(world.vault().approve(&rent, "ada", None, Timestamp::now()).unwrap().is_ok());
    assert_eq!(refusal(&blue.call("claim_task", json!({"task": "rent"})))["reason"], "not_eligible");
    assert_eq!(green.value("claim_task", json!({}))["mode"], "execute");
    // The payment may have been made, so the task is not retried.
    green.closes();
    let task = blue.value("get_task", json!({"task": "rent"}));
    assert_eq!((&task["state"], &task["reason"]), (&json!("Pending_Approval"), &json!("interrupted")));
}

#[test]
fn an_agent_cannot_turn_a_sensitive_task_into_a_harmless_one() {
    let world = World::with_vault(ROLES);
    let mut blue = world.client();
    let path = |state: &str, task: &str| world.path(&format!("vault/{state}/{task}.md"));
    let edits = json!([{"oldText": "action: pay\n", "newText": ""}]);
    for task in ["strips", "moves", "renames"] {
        world.adds(task, "---\naction: pay\n---\n# Pay\n");
        let id = claims(&mut blue, task);
        let edit = json!({"path": path("In_Progress/blue", task), "edits": edits.clone()});
        assert_ne!(blue.call("edit_file", edit)["isError"], true);
        if task == "strips" {
            let failed = json!({"task": task, "claim_id": id, "result": "failure"});
            assert_eq!(blue.value("release_task", failed)["state"], "Pending_Approval");
            continue;
        }
        let to = if task == "moves" { "moves" } else { "renamed" };
        let moved =
            json!({"source": path("In_Progress/blue", task), "destination": path("Needs_Action", to)});
        assert_ne!(blue.call("move_file", moved)["isError"], true);
        assert_eq!(refusal(&blue.call("claim_task", json!({"task": to})))["reason"], "not_eligible");
        // Its claim went with the file. It writes nothing more until it has heard of that.
        let release = json!({"task": task, "claim_id": id, "result": "failure"});
        assert_eq!(refusal(&blue.call("release_task", release))["reason"], "not_owner");
    }
    for (task, why) in [("strips", "from `pay` to none"), ("moves", "by hand"), ("renamed", "open block")] {
        let found = blue.value("get_task", json!({"task": task}));
        assert_eq!(found["state"], "Pending_Approval", "{task}");
        assert!(found["reason"].as_str().unwrap().contains(why), "{found}");
    }
    assert_eq!(refusal(&blue.call("claim_task", json!({})))["reason"], "none");
}

#[test]
fn no_tool_lets_an_agent_decide() {
    let world = World::with_vault("");
    let mut client = world.client();
    let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("approve") || name.contains("reject")), "{names:?}");
    for tool in ["approve_task", "reject_task"] {
        let answer = client.request("tools/call", json!({"name": tool, "arguments": {"task": "x"}}));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[test]
fn without_a_vault_every_tool_says_what_to_do() {
    let world = World::new();
    let mut client = world.client();
    for tool in TOOLS.into_iter().filter(|tool| tool.contains("task") || *tool == "report_progress") {
        let arguments =
            json!({"task": "x", "claim_id": "c-0000000000000000", "text": "", "result": "success"});
        let words = client.fails(tool, arguments);
        assert!(words.contains("no vault") && words.contains("tollgate init --vault"), "{tool}: {words}");
    }
}

#[test]
fn wrong_arguments_are_reported_and_change_nothing() {
    let world = World::with_vault("");
    world.adds("x", "text");
    let mut client = world.client();
    let id = claims(&mut client, "x");
    for (tool, arguments) in [
        ("list_tasks", json!({"state": "Nowhere"})),
        ("list_tasks", json!({"limit": -1})),
        ("get_task", json!({})),
        ("get_task", json!({"task": "missing"})),
        ("get_task", json!({"task": "../../etc/passwd"})),
        ("claim_task", json!({"task": 7})),
        ("claim_task", json!({"task": ".hidden"})),
        ("renew_task", json!({"task": "x"})),
        ("renew_task", json!({"task": "x", "claim_id": "../x"})),
        ("report_progress", json!({"task": "x", "claim_id": id})),
        ("release_task", json!({"task": "x", "claim_id": id})),
        ("release_task", json!({"task": "x", "claim_id": id, "result": "maybe"})),
        ("release_task", json!({"task": "x", "claim_id": id, "result": "failure", "to": "Done"})),
        ("release_task", json!({"task": "x", "claim_id": id, "result": "success", "to": "Approved"})),
    ] {
        client.fails(tool, arguments);
    }
    assert_eq!(world.slot("x"), "In_Progress/blue");
    client.value("renew_task", json!({"task": "x", "claim_id": id}));
}

#[test]
fn clients_that_race_for_tasks_get_each_task_once() {
    const TASKS: usize = 12;
    let world = World::with_vault("");
    for number in 0..TASKS {
        world.adds(&format!("t{number}"), "x");
    }
    let mut taken = Vec::new();
    std::thread::scope(|scope| {
        let run = |mut client: Client| {
            move || {
                let mut mine = Vec::new();
                loop {
                    let result = client.call("claim_task", json!({}));
                    if result["isError"] == true {
                        assert_eq!(refusal(&result)["reason"], "none");
                        return (mine, client);
                    }
                    mine.push(result["structuredContent"]["task"].as_str().unwrap().to_owned());
                }
            }
        };
        let agents = [world.client(), world.client(), Client::of(world.serving_as("green"))];
        let running: Vec<_> = agents.map(|client| scope.spawn(run(client))).into();
        for run in running {
            taken.push(run.join().unwrap());
        }
    });
    let names: Vec<&String> = taken.iter().flat_map(|(mine, _)| mine).collect();
    assert_eq!(names.len(), TASKS, "{names:?}");
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), TASKS, "{names:?}");
}

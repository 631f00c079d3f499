//! Who may see and decide what: the person with the secret, and nobody with an agent's token.

use tollgate::vault::state::State;

use crate::world::{AGENT_TOKEN, World, form};

/// Every page, and the requests that decide.
const PAGES: [&str; 10] = [
    "/",
    "/tasks?state=Needs_Action",
    "/tasks/x.md",
    "/approvals?task=x.md",
    "/agents",
    "/conflicts",
    "/board",
    "/changes/1/undo",
    "/ledger",
    "/events?page=/",
];
const DECISIONS: [&str; 3] = ["/tasks/x.md/approve", "/tasks/x.md/reject", "/tasks/x.md/edit"];

/// No cookie, not even that of the world's own browser.
const NO_COOKIE: (&str, &str) = ("Cookie", "");

#[test]
fn without_the_secret_no_page_is_shown() {
    let world = World::new();
    world.drafted("x", "ten coins");
    for path in PAGES.into_iter().chain(["/static/x", "/nowhere", "/mcp"]) {
        let reply = world.asks("GET", path, &[NO_COOKIE], "");
        assert_eq!(reply.status, 401, "{path}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{path}");
        reply.lacks("ten coins").lacks("name=\"seen\"");
        reply.has(if path == "/mcp" { "tollgate token add NAME" } else { "tollgate serve" });
    }
    for path in DECISIONS {
        assert_eq!(world.asks("POST", path, &[NO_COOKIE], "").status, 401, "{path}");
    }
    assert_eq!(world.asks("POST", "/mcp", &[NO_COOKIE], "").status, 401);
    let page = world.asks("GET", "/", &[NO_COOKIE, ("Accept", "text/html")], "");
    assert_eq!(page.status, 401);
    page.has("<form method=\"post\" action=\"/login\">").has("tollgate serve");
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    for path in ["/health", "/metrics"] {
        assert_eq!(
            world.asks("GET", path, &[NO_COOKIE], "").status,
            200,
            "{path} needs no secret on loopback"
        );
    }
}

#[test]
fn the_token_of_an_agent_opens_mcp_only() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let visitor = world.visits("/approvals?task=x.md");
    let bearer = format!("Bearer {AGENT_TOKEN}");
    let agent = [NO_COOKIE, ("Authorization", bearer.as_str())];
    for path in PAGES {
        let reply = world.asks("GET", path, &agent, "");
        assert_eq!(reply.status, 403, "{path}");
        reply.lacks("ten coins").lacks("name=\"token\"").lacks("name=\"seen\"").has("opens only `/mcp`");
    }
    // Even with everything that the person's page contains.
    let (token, seen) = (visitor.token.as_deref().unwrap(), visitor.seen.as_deref().unwrap());
    let body = form(&[("token", token), ("seen", seen), ("reason", "no"), ("text", "x")]);
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    for path in DECISIONS {
        let reply = world.asks("POST", path, &[agent[0], agent[1], kind], &body);
        assert_eq!(reply.status, 403, "{path}");
    }
    assert_eq!(world.state("x"), State::PendingApproval);
    // The token of an agent is not a secret that could be exchanged for a cookie.
    let reply = world.asks("GET", &format!("/?token={AGENT_TOKEN}"), &[NO_COOKIE], "");
    assert_eq!((reply.status, reply.header("set-cookie")), (401, None));
    let hello = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\
                 \"capabilities\":{},\"clientInfo\":{\"name\":\"test\",\"version\":\"1\"}}}";
    let kinds = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    let headers = [agent[0], agent[1], kinds[0], kinds[1]];
    assert_eq!(world.asks("POST", "/mcp", &headers, hello).status, 200);
}

#[test]
fn the_persons_secret_does_not_open_mcp() {
    let world = World::new();
    let bearer = format!("Bearer {}", world.secret.reveal());
    for headers in [[("Cookie", world.cookie.as_str()), ("X", "")], [NO_COOKIE, ("Authorization", &bearer)]] {
        let reply = world.asks("POST", "/mcp", &headers, "");
        assert_eq!(reply.status, 403);
        reply.has("tollgate token add NAME");
    }
    assert_eq!(world.asks("GET", "/approvals", &[NO_COOKIE, ("Authorization", &bearer)], "").status, 200);
}

#[test]
fn the_secret_in_the_address_becomes_a_cookie_and_disappears() {
    let world = World::new();
    let reply = world.asks("GET", &world.with_secret("/ledger?text=x"), &[NO_COOKIE], "");
    assert_eq!((reply.status, reply.header("location")), (303, Some("/ledger?text=x")));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
    let cookie = reply.header("set-cookie").unwrap();
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!reply.head.contains(world.secret.reveal()), "the cookie is not the secret: {}", reply.head);
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(world.asks("GET", "/ledger", &[("Cookie", pair)], "").status, 200);
    assert_eq!(world.asks("GET", "/ledger", &[("Cookie", &format!("{pair}0"))], "").status, 401);
    let again = world.asks("GET", "/ledger?token=old", &[("Cookie", pair)], "");
    assert_eq!(
        (again.status, again.header("location")),
        (303, Some("/ledger")),
        "logged in with an old address"
    );
    let elsewhere = world.asks("GET", &world.with_secret("//evil.example/"), &[NO_COOKIE], "");
    assert_eq!(elsewhere.header("location"), Some("/"), "not to another server");
    for wrong in ["/?token=", "/?token=x", "/?token=0123456789012345678901"] {
        let reply = world.asks("GET", wrong, &[NO_COOKIE], "");
        assert_eq!((reply.status, reply.header("set-cookie")), (401, None), "{wrong}");
    }
}

#[test]
fn a_person_can_paste_the_secret() {
    let world = World::new();
    let origin = format!("http://{}", world.address);
    let login = |token: &str, origin: &str| {
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        world.asks("POST", "/login", &[NO_COOKIE, ("Origin", origin), kind], &form(&[("token", token)]))
    };
    assert_eq!(login("wrong", &origin).status, 401);
    assert_eq!(login(world.secret.reveal(), "http://evil.example").status, 403);
    let reply = login(&format!(" {} ", world.secret.reveal()), &origin);
    assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap();
    assert_eq!(world.asks("GET", "/", &[("Cookie", cookie)], "").status, 200);
}

#[test]
fn wrong_guesses_are_slow_and_known_visitors_do_not_wait_for_them() {
    let world = World::new();
    let guesses = 24;
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let guess = |number: i32| {
            let bearer = format!("Bearer {number}");
            let reply = world.asks("POST", "/mcp", &[NO_COOKIE, ("Authorization", &bearer)], "");
            assert_eq!(reply.status, 401);
        };
        let guessing: Vec<_> = (0..guesses).map(|number| scope.spawn(move || guess(number))).collect();
        assert_eq!(world.gets("/").status, 200);
        assert!(guessing.iter().any(|guess| !guess.is_finished()), "the person does not wait");
    });
    let rate = f64::from(guesses) / began.elapsed().as_secs_f64();
    assert!(rate <= 17.0, "{rate} guesses a second");
}

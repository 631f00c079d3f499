//! No other site, no link and no old page can decide anything.

use tollgate::vault::state::State;

use crate::world::{World, form};

/// Every path that changes something.
const VERBS: [&str; 7] = ["approve", "reject", "edit", "retry", "return", "priority", "undo"];

#[test]
fn a_link_changes_nothing() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let visitor = world.visits("/approvals");
    let fields = [("token", visitor.token.as_deref().unwrap()), ("seen", visitor.seen.as_deref().unwrap())];
    for verb in VERBS {
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
            let path = format!("/tasks/x.md/{verb}?{}&reason=no&text=x", form(&fields));
            let reply = world.asks(method, &path, &[("Cookie", &visitor.cookie)], "");
            // An address with a token is always visited again without it.
            let status = if method == "GET" { 303 } else { 405 };
            assert_eq!(reply.status, status, "{method} {path}");
        }
    }
    assert_eq!(world.state("x"), State::PendingApproval);
}

#[test]
fn a_decision_needs_our_token_our_cookie_and_our_origin() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let (visitor, other) = (world.visits("/approvals"), world.visits("/approvals"));
    assert_ne!(visitor.token, other.token, "each browser has its own");
    let (token, seen) = (visitor.token.clone().unwrap(), visitor.seen.clone().unwrap());
    let good = form(&[
        ("token", &token),
        ("seen", &seen),
        ("reason", "no"),
        ("text", "x"),
        ("priority", "high"),
        ("title", "T"),
    ]);
    let without =
        form(&[("seen", &seen), ("reason", "no"), ("text", "x"), ("priority", "high"), ("title", "T")]);
    let wrong = form(&[
        ("token", &seen),
        ("seen", &seen),
        ("reason", "no"),
        ("text", "x"),
        ("priority", "high"),
        ("title", "T"),
    ]);
    let origin = format!("http://{}", world.address);
    let (cookie, ours) = (("Cookie", visitor.cookie.as_str()), ("Origin", origin.as_str()));
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    let theirs = ("Cookie", other.cookie.as_str());
    let made_up = format!("tollgate-{}=x.{seen}", world.address.port());
    let next_door = format!("http://127.0.0.1:{}", world.address.port() ^ 1);
    let cases = [
        ("no cookie", vec![("Cookie", ""), ours, kind], &good, 401_u16),
        ("another browser's cookie", vec![theirs, ours, kind], &good, 403),
        ("a made-up cookie", vec![("Cookie", &made_up), ours, kind], &good, 401),
        ("no token", vec![cookie, ours, kind], &without, 422),
        ("another token", vec![cookie, ours, kind], &wrong, 403),
        ("the origin of another site", vec![cookie, ("Origin", "http://evil.example"), kind], &good, 403),
        ("the origin of another port", vec![cookie, ("Origin", &next_door), kind], &good, 403),
        ("a hidden origin", vec![cookie, ("Origin", "null"), kind], &good, 403),
        ("another host", vec![cookie, ours, kind, ("Host", "evil.example")], &good, 403),
        ("text that looks like a form", vec![cookie, ours, ("Content-Type", "text/plain")], &good, 415),
        ("no content type", vec![cookie, ours], &good, 415),
    ];
    let paths = VERBS.map(|verb| format!("/tasks/x.md/{verb}"));
    for path in paths.iter().map(String::as_str).chain(["/tasks"]) {
        for (what, headers, body, status) in &cases {
            let reply = world.asks("POST", path, headers, body);
            assert_eq!(reply.status, *status, "{path} with {what}: {}", reply.body);
            assert_eq!(world.state("x"), State::PendingApproval, "{path} with {what}");
        }
    }
    let waiting = std::fs::read_dir(world.root().join("vault/Needs_Action")).unwrap();
    assert_eq!(
        waiting.filter(|entry| entry.as_ref().unwrap().path().extension().is_some()).count(),
        0,
        "no task was added"
    );
    let reply = world.asks("POST", "/tasks/x.md/approve", &[cookie, ours, kind], &good);
    assert_eq!((reply.status, reply.header("location")), (303, Some("/approvals?decided=x.md")));
    assert_eq!(world.state("x"), State::Approved, "with everything right, the task is approved");
}

#[test]
fn a_form_from_before_a_restart_is_asked_again() {
    let mut world = World::new();
    world.drafted("x", "ten coins");
    let (cookie, token, seen) = {
        let visitor = world.visits("/approvals");
        (visitor.cookie, visitor.token.unwrap(), visitor.seen.unwrap())
    };
    world.restart();
    let origin = format!("http://{}", world.address);
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    let headers = [("Cookie", cookie.as_str()), ("Origin", &origin), kind];
    let post = |token: &str| {
        world.asks("POST", "/tasks/x.md/approve", &headers, &form(&[("token", token), ("seen", &seen)]))
    };
    let reply = post(&token);
    assert_eq!(reply.status, 403);
    reply.has("have been restarted").has("ten coins");
    assert_eq!(world.state("x"), State::PendingApproval);
    assert_eq!(post(&reply.field("token").unwrap()).status, 303, "the new page can decide");
    assert_eq!(world.state("x"), State::Approved);
}

#[test]
fn every_response_has_the_security_headers() {
    let world = World::new();
    world.drafted("x", "ten coins");
    let page = world.gets("/");
    let style = page.body.split('"').find(|part| part.ends_with(".css")).unwrap().to_owned();
    let paths = [
        "/",
        "/board",
        "/approvals",
        "/tasks/x.md",
        "/tasks/none.md",
        "/tasks?state=Gone",
        "/ledger",
        &style,
        "/static/x",
    ];
    for path in paths {
        let reply = world.gets(path);
        let policy = reply.header("content-security-policy").unwrap_or_else(|| panic!("{path}"));
        for rule in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("same-origin"), "{path}");
        if path != style {
            assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
        }
        for inline in ["<style", " style=", " onclick=", "javascript:"] {
            reply.lacks(inline);
        }
    }
    let scripts = page.body.matches("<script").count();
    assert_eq!(scripts, page.body.matches("<script src=\"/static/").count(), "no inline script");
}

#[test]
fn style_and_script_are_cached_forever() {
    let world = World::new();
    let page = world.gets("/");
    let files: Vec<&str> = page.body.split('"').filter(|part| part.starts_with("/static/")).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let reply = world.gets(file);
        assert_eq!(reply.status, 200, "{file}");
        assert!(reply.header("cache-control").unwrap().contains("immutable"), "{file}");
    }
    assert_eq!(world.gets("/static/../Cargo.toml").status, 404);
}

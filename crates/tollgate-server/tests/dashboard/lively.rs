//! A workspace in the middle of a working day: tasks in every state, a day of history, conflicts, failures.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tollgate::event::Event;
use tollgate::ledger::Entry;
use tollgate::settings::Durability;
use tollgate::vault::Release;

use crate::world::{World, name};

/// An event of the ledger, this long ago.
pub(crate) fn entry(ago: SignedDuration, agent: &str, event: serde_json::Value) -> Entry {
    let event: Event = serde_json::from_value(event).unwrap();
    assert!(!matches!(event, Event::Other { .. }), "{event:?}");
    Entry { time: Timestamp::now() - ago, agent: Some(agent.parse().unwrap()), turn: None, event }
}

pub(crate) fn claim(task: &str, waited_ms: u64) -> serde_json::Value {
    json!({"action_type": "CLAIM", "result": {"status": "CLAIMED"}, "payload": {
        "task": task, "claim_id": "c-0123456789abcdef", "epoch": 1, "mode": "execute", "from": "Needs_Action",
        "attempt": 1, "waited_ms": waited_ms, "step": "s-0123456789abcdef"}})
}

pub(crate) fn release(task: &str, state: &str) -> serde_json::Value {
    let result = if state == "Done" || state == "Pending_Approval" { "success" } else { "failure" };
    json!({"action_type": "RELEASE", "result": {"status": state}, "payload": {
        "task": task, "claim_id": "c-0123456789abcdef", "epoch": 1, "result": result, "duration_s": 40,
        "step": "s-0123456789abcdef"}})
}

pub(crate) fn write(file: &str) -> serde_json::Value {
    let hash = format!("sha256:{}", "0".repeat(64));
    json!({"action_type": "MUTATION", "result": {"status": "APPLIED"}, "payload": {
        "id": "0123", "tool_name": "write_file", "target_file": file, "hash_before": hash, "hash_after": hash}})
}

pub(crate) fn refusal(file: &str) -> serde_json::Value {
    let hash = format!("sha256:{}", "0".repeat(64));
    json!({"action_type": "MUTATION_CONFLICT", "result": {"status": "DENIED", "error_type": "STALE_FILE"},
        "payload": {"tool_name": "write_file", "target_file": file, "baseline_hash": hash, "current_hash": hash}})
}

/// The text of a source file, long enough that a change is in the middle of it.
const SOURCE: &str = "//! Prices of one order.\n\nuse crate::money::Amount;\n\npub fn total(items: &[Item]) -> Amount {\n    \
    let mut sum = Amount::ZERO;\n    for item in items {\n        sum += item.price * item.count;\n    }\n    sum\n}\n\n\
    pub fn discount(sum: Amount, customer: &Customer) -> Amount {\n    if customer.orders > 10 {\n        \
    return sum * 0.05;\n    }\n    Amount::ZERO\n}\n";

const TITLES: [(&str, &str, &str); 9] = [
    ("rotate-keys", "priority: critical", "Rotate the signing keys before they expire"),
    ("flaky-login", "priority: high", "Find out why the login test fails on Mondays"),
    ("docs-typos", "", "Fix the typos in the getting-started guide"),
    (
        "upgrade-tls",
        "priority: high\naction: upgrade",
        "Upgrade the TLS library and run the interoperability tests",
    ),
    ("slow-search", "", "Search takes four seconds with 10,000 documents"),
    ("remove-dead-code", "priority: low", "Remove the old exporter"),
    ("german", "", "Translate the settings page into German"),
    ("error-pages", "", "Design error pages that say what to do next"),
    ("import-csv", "", "Import CSV files with quoted newlines"),
];

pub(crate) fn lively() -> World {
    let world = World::new();
    let ledger = world.workspace();
    let mut entries = Vec::new();
    for hour in (1..24_i64).rev() {
        let done = [3, 5, 4, 2, 6, 9, 7, 4][usize::try_from(hour % 8).unwrap()];
        for number in 0..done {
            let task = format!("h{hour}-{number}.md");
            let ago = |minutes: i64| SignedDuration::from_mins(hour * 60 + 50 - number * 4 - minutes);
            entries.push(entry(
                ago(0),
                "blue",
                claim(&task, 9_000 + 4_000 * u64::try_from(hour % 5).unwrap()),
            ));
            entries.push(entry(ago(1), "blue", write("src/order.rs")));
            if (hour + number) % 7 == 0 {
                entries.push(entry(ago(1), "red", refusal("src/order.rs")));
            }
            let state = if (hour + number) % 11 == 0 { "Rejected" } else { "Done" };
            entries.push(entry(ago(1 + number % 3), "blue", release(&task, state)));
        }
        if hour % 6 == 4 {
            let task = format!("p{hour}.md");
            entries.push(entry(
                SignedDuration::from_mins(hour * 60),
                "cloud",
                release(&task, "Pending_Approval"),
            ));
            entries.push(entry(SignedDuration::from_mins((hour - 2) * 60), "cloud", release(&task, "Done")));
        }
    }
    entries.sort_by_key(|entry| entry.time);
    ledger.ledger().append(&entries, Durability::Fast).unwrap();
    for (task, front, title) in TITLES {
        let front = if front.is_empty() { String::new() } else { format!("---\n{front}\n---\n") };
        world.add(task, &format!("{front}# {title}\n\nSee the notes in `docs/`.\n"));
    }
    for (agent, task) in [("blue", "slow-search"), ("red", "german"), ("green", "error-pages")] {
        world.claims(agent, task);
    }
    let output = "running 214 tests\ntest import::quoted_newlines ... FAILED\n\nthread 'import' panicked at src/csv.rs:88:\n\
        assertion `left == right` failed\n  left: 3\n right: 4";
    for _ in 0..3 {
        let failed = world.claims("blue", "import-csv");
        let release = Release { output: Some(output.to_owned()), ..Release::failure("exit status 101") };
        world.vault().release(&failed.task, &failed.claim.id, &release, Timestamp::now()).unwrap().unwrap();
    }
    let done = world.root().join("vault/Done");
    for number in 0..30 {
        fs::write(done.join(format!("done-{number}.md")), format!("# Close ticket {}\n", 4100 + number))
            .unwrap();
    }
    world.drafted_as(
        "rent",
        "Pay the November rent",
        "Transfer **1,200.00 EUR** to *Huber Immobilien*\n\n- account: DE12 3456\n- reference: November",
    );
    world.drafted_as(
        "newsletter",
        "Send the newsletter to 4,200 subscribers",
        "# Autumn news\n\nWe have released version 2.",
    );
    world.drafted_as("refund", "Refund order 88213", "Refund **34.90 EUR** to the customer's card.");
    let now = Timestamp::now();
    world.vault().approve(&name("refund"), "ada", None, now).unwrap().unwrap();
    fs::create_dir(world.root().join("src")).unwrap();
    fs::write(world.root().join("src/order.rs"), SOURCE).unwrap();
    let (blue, red) = (world.agent("blue"), world.agent("red"));
    blue.reads("src/order.rs");
    red.reads("src/order.rs");
    assert!(red.writes("src/order.rs", &SOURCE.replace("customer.orders > 10", "customer.orders >= 12")));
    let wanted = SOURCE
        .replace("sum * 0.05", "sum * customer.rate")
        .replace("customer.orders > 10", "customer.years > 2");
    assert!(!blue.writes("src/order.rs", &wanted));
    fs::write(world.root().join("README.md"), "# Shop\n\nRun `make`.\n").unwrap();
    let green = world.agent("green");
    green.reads("README.md");
    fs::write(world.root().join("README.md"), "# Shop\n\nRun `make test`.\n").unwrap();
    assert!(!green.writes("README.md", "# Shop\n\nRun `make all`.\n"));
    green.reads("README.md");
    assert!(green.writes("README.md", "# Shop\n\nRun `make all test`.\n"));
    world.is_a_repository();
    world
}

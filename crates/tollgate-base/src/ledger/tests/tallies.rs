//! The sums of each agent, from the ledger alone: exact, cheap, and not misled by a checkpoint that does not fit.

use std::collections::BTreeMap;

use super::*;
use crate::event::{
    BreakerTurned, ClaimFailed, ClaimLost, EndedAttempt, TaskClaimed, TaskReclaimed, TaskReleased,
};
use crate::name::{Agent, ClaimId, StepId};
use crate::task::{Mode, State, Verdict};

fn claim() -> Event {
    Event::Claim(TaskClaimed {
        task: "x".parse().unwrap(),
        claim_id: ClaimId::new().unwrap(),
        epoch: 1,
        mode: Mode::Execute,
        from: State::NeedsAction,
        attempt: 1,
        waited_ms: 0,
        step: StepId::new().unwrap(),
    })
}

fn lost() -> Event {
    let (task, step) = ("x".parse().unwrap(), StepId::new().unwrap());
    Event::ClaimLost(ClaimLost { task, from: State::NeedsAction, step })
}

fn failed() -> Event {
    let (task, step) = ("x".parse().unwrap(), StepId::new().unwrap());
    Event::ClaimFailed(ClaimFailed { task, error: "disk full".into(), step })
}

fn rolled_back() -> Event {
    let (task, step) = ("x".parse().unwrap(), StepId::new().unwrap());
    let reclaimed = TaskReclaimed { task, attempt: None, reason: Some("claim cut short".into()), step };
    Event::Reclaim(reclaimed, State::NeedsAction)
}

fn append(world: &World, agent: &str, events: impl IntoIterator<Item = Event>) {
    let entry = |event| Entry { agent: Some(agent.parse().unwrap()), event, ..entry(json!({})) };
    let entries: Vec<Entry> = events.into_iter().map(entry).collect();
    world.ledger().append(&entries, Durability::Fast).unwrap();
}

/// `count` claims by blue.
fn claims(world: &World, count: usize) {
    append(world, "blue", std::iter::repeat_with(claim).take(count));
}

fn tallies(world: &World) -> BTreeMap<Agent, Tally> {
    world.ledger().tallies().unwrap()
}

/// The claims of blue.
fn counted(world: &World) -> u64 {
    tallies(world).get(&"blue".parse().unwrap()).map_or(0, |tally| tally.claims)
}

fn checkpoint(world: &World) -> Option<Value> {
    fs::read(world.path("figures.json")).ok().map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

#[test]
fn claims_are_counted_by_agent_and_how_they_ended() {
    let world = World::with(3);
    append(&world, "blue", [claim(), rolled_back(), claim(), lost(), failed()]);
    append(&world, "red", [lost(), lost()]);
    append(&world, "idle", [rolled_back()]);
    let expected: Vec<(String, Tally)> = vec![
        ("blue".into(), Tally { claims: 2, lost: 1, failed: 1, ..Tally::default() }),
        ("red".into(), Tally { lost: 2, ..Tally::default() }),
    ];
    let found: Vec<_> = tallies(&world).into_iter().map(|(agent, sums)| (agent.to_string(), sums)).collect();
    assert_eq!(found, expected);
    assert_eq!(checkpoint(&world), None, "so few lines are read again");
}

#[test]
fn an_answer_costs_the_same_however_long_the_ledger_is() {
    let world = World { max_size: 100_000, ..World::new() };
    let read = || {
        let io = fs::read_to_string("/proc/thread-self/io").unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok()).unwrap()
    };
    let mut dearest = 0;
    for round in 1..=12 {
        claims(&world, 1001);
        assert_eq!(counted(&world), round * 1001);
        assert_eq!(checkpoint(&world).unwrap()["cursor"]["seq"], round * 1001);
        claims(&world, 7);
        let before = read();
        assert_eq!(counted(&world), round * 1001 + 7, "and what came after the checkpoint");
        dearest = dearest.max(read() - before);
        // As if they had not come: the next round counts from the checkpoint.
        let lines: Vec<String> = world.text();
        world.write(&lines[..lines.len() - 7]);
        fs::remove_file(world.head()).unwrap();
    }
    assert!(world.files().len() > 5);
    assert!(dearest < 300_000, "{dearest} bytes were read for one answer");
}

#[test]
fn sums_outlive_the_files_whose_lines_they_count() {
    let mut world = World::new();
    claims(&world, 1500);
    assert_eq!(counted(&world), 1500);
    world.max_size = 1;
    claims(&world, 10);
    claims(&world, 20);
    assert_eq!(world.files(), ["ledger-1.jsonl", "ledger-1501.jsonl", "ledger.jsonl"]);
    assert_eq!(counted(&world), 1530);
    fs::remove_file(world.path("ledger-1.jsonl")).unwrap();
    assert_eq!(counted(&world), 1530, "the checkpoint is at the last line of the deleted file");
    fs::remove_file(world.path("ledger-1501.jsonl")).unwrap();
    assert_eq!(counted(&world), 1520, "only lines that nobody had counted are lost with their file");
    world.max_size = 1 << 20;
    claims(&world, 1500);
    assert_eq!((counted(&world), counted(&world)), (3020, 3020));
    assert_eq!(checkpoint(&world).unwrap()["agents"]["blue"]["claims"], 3020);
}

#[test]
fn a_checkpoint_that_does_not_fit_the_ledger_is_not_used() {
    let world = World::new();
    claims(&world, 1500);
    assert_eq!(counted(&world), 1500);
    let good = fs::read(world.path("figures.json")).unwrap();

    world.write(&world.text()[..700]);
    assert_eq!(counted(&world), 700, "the ledger was cut");
    fs::remove_file(world.head()).unwrap();
    claims(&world, 1300);
    assert_eq!(counted(&world), 2000, "and written again from there");
    assert_eq!(checkpoint(&world).unwrap()["cursor"]["seq"], 2000);

    let other = World::new();
    claims(&other, 20);
    append(&other, "red", std::iter::repeat_with(lost).take(2000));
    fs::write(other.path("figures.json"), &good).unwrap();
    assert_eq!(counted(&other), 20, "it is from another ledger");
    assert_eq!(checkpoint(&other).unwrap()["cursor"]["seq"], 2020);

    for nonsense in ["", "{", "null", r#"{"version":1}"#, r#"{"version":1,"cursor":{"seq":1},"agents":{}}"#] {
        fs::write(other.path("figures.json"), nonsense).unwrap();
        assert_eq!(counted(&other), 20, "{nonsense:?}");
        assert_eq!(checkpoint(&other).unwrap()["cursor"]["seq"], 2020, "it is replaced");
    }
}

#[test]
fn a_checkpoint_of_a_later_version_is_left_alone() {
    let world = World::new();
    claims(&world, 1500);
    let newer = r#"{"version":2,"more":[]}"#;
    fs::write(world.path("figures.json"), newer).unwrap();
    assert_eq!(counted(&world), 1500);
    assert_eq!(fs::read_to_string(world.path("figures.json")).unwrap(), newer);
}

#[test]
fn a_checkpoint_that_can_be_neither_read_nor_written_is_not_a_fault() {
    let world = World::new();
    claims(&world, 1500);
    // A folder cannot be replaced by a file.
    fs::create_dir(world.path("figures.json")).unwrap();
    assert_eq!((counted(&world), counted(&world)), (1500, 1500));
    assert!(world.path("figures.json").is_dir());
}

#[test]
fn many_who_ask_while_others_claim_agree_in_the_end() {
    let world = World { max_size: 50_000, ..World::new() };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..100).for_each(|_| claims(&world, 10)));
        }
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while last < 3000 {
                    let now = counted(&world);
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            });
        }
    });
    assert_eq!(counted(&world), 3000);
    let kept: BTreeMap<Agent, Tally> =
        serde_json::from_value(checkpoint(&world).unwrap()["agents"].clone()).unwrap();
    assert!(kept[&"blue".parse().unwrap()].claims > 1000);
    let unfinished = fs::read_dir(world.folder.path()).unwrap().map(|item| item.unwrap().file_name());
    assert!(!unfinished.map(|name| name.into_string().unwrap()).any(|name| name.contains("tmp-")));
}

#[test]
fn an_open_breaker_is_remembered_until_it_closes_or_a_task_succeeds() {
    let blue: Agent = "blue".parse().unwrap();
    let turned = |until: Option<&str>| BreakerTurned {
        failures: 5,
        reason: "exit status 1".into(),
        until: until.map(|until| until.parse().unwrap()),
    };
    let open = turned(Some("2026-11-15T10:00:10Z"));
    let ended = |result| {
        let attempt = EndedAttempt { claim_id: ClaimId::new().unwrap(), epoch: 1, result, duration_s: 0 };
        let (task, step) = ("x".parse().unwrap(), StepId::new().unwrap());
        Event::Release(TaskReleased { task, attempt, reason: None, step }, State::NeedsAction)
    };
    let mut tallies = BTreeMap::new();
    let mut add = |event: &Event| {
        Tally::add_to(&mut tallies, Some(&blue), event);
        tallies.get(&blue).and_then(|tally| tally.breaker.clone())
    };
    assert_eq!(add(&ended(Verdict::Success)), None);
    for closing in [Event::Breaker(turned(None)), ended(Verdict::Success)] {
        assert_eq!(add(&Event::Breaker(open.clone())), Some(open.clone()));
        assert_eq!(add(&ended(Verdict::Failure)), Some(open.clone()));
        assert_eq!(add(&closing), None);
    }
}

//! `ledger audit`: an honest history is valid, and every fault that is planted into it is found and named.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate::digest::Digest;
use tollgate::{Gate, Options, Outcome, Workspace};

use crate::world::{World, hash, until};

/// A workspace whose participants write down what they do.
struct History {
    world: World,
    records: RefCell<Vec<Value>>,
}

impl History {
    fn new() -> Self {
        let world = World::new();
        world.run("init --vault").is(0);
        let settings = "[guard]\ndurability = \"fast\"\n[vault]\ndurability = \"fast\"\nsettle = \"0s\"\nretry = []\napprove_by_move = true\n\
                        [agent.red]\nallowed = []\nsensitive = [\"pay\"]\n[agent.blue]\nallowed = [\"pay\"]\n";
        world.puts(".tollgate/config.toml", settings);
        Self { world, records: RefCell::default() }
    }

    fn note(&self, record: Value) {
        self.records.borrow_mut().push(record);
    }

    /// An agent is told that its change is done.
    fn done(&self, agent: &str, file: &str, bytes: &str) {
        self.note(json!({"by": agent, "file": file, "done": hash(bytes)}));
    }

    fn writes(&self, agent: &str, file: &str, bytes: &str) {
        self.world.tollgate(["write", file, "--agent", agent]).stdin(bytes).ends().is(0);
        self.done(agent, file, bytes);
    }

    /// A program unaware of tollgate saves a file.
    fn saves(&self, file: &str, bytes: &str) {
        let before = fs::read(self.world.path(file)).ok().map(hash);
        self.world.puts(file, bytes);
        self.note(json!({"by": "editor", "file": file, "before": before, "after": hash(bytes)}));
    }

    fn claims(&self, task: &str, agent: &str) -> String {
        let claimed = self.world.json(&format!("task claim {task} --agent {agent}"));
        claimed["claim_id"].as_str().unwrap().to_owned()
    }

    /// Claims, works and releases. The times are those of the records alone.
    fn works(&self, task: &str, agent: &str, hours: std::ops::Range<u64>, how: &str) {
        let id = self.claims(task, agent);
        self.world.run(&format!("task renew {task} --claim-id {id} --agent {agent}")).is(0);
        self.note(json!({
            "by": agent, "task": format!("{task}.md"), "claim_id": id, "began": hours.start, "ended": hours.end,
        }));
        self.world.run(&format!("task release {task} --claim-id {id} --agent {agent} {how}")).is(0);
    }

    fn ledger(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.world.path(".tollgate/ledger.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn records_file(&self) -> PathBuf {
        let path = self.world.tmp().join("records.jsonl");
        let text: String = self.records.borrow().iter().map(|record| format!("{record}\n")).collect();
        fs::write(&path, text).unwrap();
        path
    }

    /// The audit with all records.
    fn audit(&self) -> Value {
        let records = self.records_file();
        let words = ["ledger", "audit", "--json", "--records", records.to_str().unwrap()];
        self.world.tollgate(words).ends().json()
    }
}

/// Everything that agents, people and programs do to files.
fn files(history: &History) {
    let world = &history.world;
    world.puts("a", "one\ntwo\nthree\n");
    let turn = world.turn("red");
    world.run(&format!("read a --turn {turn}")).is(0);
    history.writes("blue", "a", "ONE\ntwo\nthree\n");
    // Refused, merged, undone, restored.
    world.tollgate(["write", "a", "--turn", &turn]).stdin("one\ntwo\nTHREE\n").ends().is(1);
    world.run(&format!("merge a --write --turn {turn}")).is(0);
    history.done("red", "a", "ONE\ntwo\nTHREE\n");
    world.run("undo a --yes").is(0);
    history.done("ada", "a", "ONE\ntwo\nthree\n");
    // A program that is unaware of tollgate.
    history.saves("a", "by an editor\n");
    history.writes("red", "a", "after the editor\n");
    // Several files together, moves, a deletion.
    let changes = json!([{"path": "d/x", "content": "x\n"}, {"path": "d/y", "content": "y\n"}]);
    world.tollgate(["apply", "--agent", "blue"]).stdin(changes.to_string()).ends().is(0);
    history.done("blue", "d/x", "x\n");
    world.run("move d/x d/z --agent blue").is(0);
    let gate = Gate::new(Workspace::open(world.root(), Options::default()).unwrap());
    let mover = gate.begin_turn("blue".parse().unwrap()).unwrap();
    assert!(matches!(gate.move_folder(&mover, "d", "e").unwrap(), Outcome::Done(_)));
    history.writes("red", "e/z", "z\n");
    world.run("delete e/y --agent red").is(0);
    history.note(json!({"by": "red", "file": "e/y", "done": null}));
    // Commands.
    world.tollgate(["run", "--agent", "blue", "--", "sh", "-c", "echo run >> a; mv e/z e/w"]).ends().is(0);
    history.done("blue", "a", "after the editor\nrun\n");
    history.done("blue", "e/w", "z\n");
    // A command that merges.
    world.puts("m", "one\ntwo\nthree\n");
    let turn = world.turn("red");
    world.run(&format!("read m --turn {turn}")).is(0);
    history.writes("blue", "m", "ONE\ntwo\nthree\n");
    world.tollgate(["write", "m", "--turn", &turn]).stdin("one\ntwo\nTHREE\n").ends().is(1);
    world.tollgate(["run", "--turn", &turn, "--", "tollgate", "merge", "m", "--write"]).ends().is(0);
    history.writes("blue", "m", "more\n");
}

/// Everything that agents and people do to tasks.
fn tasks(history: &History) {
    let world = &history.world;
    for task in ["fine", "fails", "moved", "gone"] {
        world.run(&format!("task add {task} --agent ada")).is(0);
    }
    history.works("fine", "red", 0..5, "");
    history.works("fails", "red", 0..5, "--result failure --note no");
    history.works("fails", "blue", 5..9, "");
    // A sensitive task: a draft, a person's yes by a manual move, the execution.
    world.tollgate(["task", "add", "rent", "--action", "pay", "--agent", "ada"]).ends().is(0);
    history.works("rent", "red", 0..1, "");
    fs::rename(world.path("vault/Pending_Approval/rent.md"), world.path("vault/Approved/rent.md")).unwrap();
    history.works("rent", "blue", 1..2, "");
    // A person moves a claimed task back.
    history.claims("moved", "red");
    fs::rename(world.path("vault/In_Progress/red/moved.md"), world.path("vault/Needs_Action/moved.md"))
        .unwrap();
    history.works("moved", "blue", 0..1, "");
    // An owner dies while its command runs.
    let started = world.tmp().join("started");
    let command = format!("touch {}; exec sleep 600", started.display());
    let mut owner = world.tollgate(["work", "--agent", "red", "--", "sh", "-c", &command]).starts();
    until("the command", || started.exists().then_some(()));
    owner.0.kill().unwrap();
    owner.ends();
    until("the reclaim", || (world.json("task reclaim") != json!([])).then_some(()));
    history.works("gone", "blue", 0..1, "");
}

fn honest() -> History {
    let history = History::new();
    files(&history);
    tasks(&history);
    history
}

#[test]
fn an_honest_history_is_valid() {
    let history = honest();
    let report = history.audit();
    assert_eq!(
        (&report["valid"], &report["flaws"], &report["doubts"]),
        (&json!(true), &json!([]), &json!([]))
    );
    assert_eq!((&report["outside_changes"], &report["claims"]), (&json!(1), &json!(9)), "{report:#}");
    insta::assert_snapshot!(history.world.run("ledger audit").filtered, @r"
    exit 0
    --- stdout
    valid: no line contradicts the promises
      lines    47
      files    6, 16 changes, 1 outside change
      tasks    5, 9 claims
    ");
}

/// Writes the lines as a ledger whose chain is whole.
fn forge(world: &World, lines: &[Value]) {
    let mut prev = "0".repeat(64);
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let mut line = line.clone();
        (line["seq"], line["prev"]) = ((number + 1).into(), prev.into());
        let line = line.to_string();
        prev = Digest::of(line.as_bytes()).to_string();
        text += &format!("{line}\n");
    }
    fs::write(world.path(".tollgate/ledger.jsonl"), text).unwrap();
    // A forger of the ledger also forges its remembered end.
    let _ = fs::remove_dir_all(world.tmp().join("state/tollgate/heads"));
}

/// The number of the `nth` line of this type about this file or task.
fn find(lines: &[Value], kind: &str, about: &str, nth: usize) -> usize {
    let is = |line: &Value| {
        let payload = &line["payload"];
        line["action_type"] == kind && [&payload["target_file"], &payload["task"]].contains(&&json!(about))
    };
    let found = lines.iter().enumerate().filter(|(_, line)| is(line)).nth(nth);
    found.unwrap_or_else(|| panic!("no {kind} {nth} of {about}: {lines:#?}")).0
}

/// Plants a fault into the lines and returns the number of the line that the audit must name.
type Plant = fn(&mut Vec<Value>) -> usize;

const FAULTS: [(&str, &str, Plant); 22] = [
    ("a change has no line", "broken_chain", |lines| {
        lines.remove(find(lines, "MUTATION", "a", 3));
        find(lines, "MUTATION", "a", 3)
    }),
    ("a change found bytes that nobody wrote", "broken_chain", |lines| {
        let at = find(lines, "MUTATION", "a", 1);
        lines[at]["payload"]["hash_before"] = hash("nobody's").into();
        at
    }),
    ("a change left other bytes than the next one found", "broken_chain", |lines| {
        let at = find(lines, "MUTATION", "a", 0);
        lines[at]["payload"]["hash_after"] = hash("others").into();
        find(lines, "MUTATION", "a", 1)
    }),
    ("two changes are in the wrong order", "broken_chain", |lines| {
        let (one, two) = (find(lines, "MUTATION", "a", 1), find(lines, "MUTATION", "a", 2));
        lines.swap(one, two);
        one
    }),
    ("two changes replaced the same bytes", "lost_update", |lines| {
        let (one, two) = (find(lines, "MUTATION", "a", 0), find(lines, "MUTATION", "a", 1));
        lines[two]["payload"]["hash_before"] = lines[one]["payload"]["hash_before"].clone();
        two
    }),
    ("a move replaced a file", "broken_chain", |lines| {
        let at = find(lines, "MUTATION", "d/x", 1);
        lines[at]["payload"]["moved_to"] = "d/y".into();
        at
    }),
    ("a change is recorded twice", "repeated_change", |lines| {
        let at = find(lines, "MUTATION", "a", 0);
        lines.insert(at + 1, lines[at].clone());
        at + 1
    }),
    ("a change is rolled back after others were built on it", "unfounded_undo", |lines| {
        let mut undo = lines[find(lines, "MUTATION", "a", 0)].clone();
        let change = undo["payload"].clone();
        (undo["payload"]["hash_before"], undo["payload"]["hash_after"]) =
            (change["hash_after"].clone(), change["hash_before"].clone());
        undo["result"]["status"] = "UNDONE".into();
        let at = find(lines, "MUTATION", "a", 1) + 1;
        lines.insert(at, undo);
        at
    }),
    ("a file is called stale although it did not change", "false_alarm", |lines| {
        let at = find(lines, "MUTATION_CONFLICT", "a", 0);
        lines[at]["payload"]["current_hash"] = lines[at]["payload"]["baseline_hash"].clone();
        at
    }),
    ("a release has no line", "two_owners", |lines| {
        lines.remove(find(lines, "RELEASE", "fails.md", 0));
        find(lines, "CLAIM", "fails.md", 1)
    }),
    ("a task that a person moved was not taken from its owner", "two_owners", |lines| {
        lines.remove(find(lines, "RECLAIM", "moved.md", 0));
        find(lines, "CLAIM", "moved.md", 1)
    }),
    ("the task of a dead owner was not reclaimed", "two_owners", |lines| {
        lines.remove(find(lines, "RECLAIM", "gone.md", 0));
        find(lines, "CLAIM", "gone.md", 1)
    }),
    ("another agent releases the task", "not_the_owner", |lines| {
        let at = find(lines, "RELEASE", "fine.md", 0);
        lines[at]["agent"] = "blue".into();
        at
    }),
    ("a claim that nobody had is released", "not_the_owner", |lines| {
        lines.remove(find(lines, "CLAIM", "fine.md", 0));
        find(lines, "RELEASE", "fine.md", 0)
    }),
    ("a claim is renewed after its end", "not_the_owner", |lines| {
        let renew = lines.remove(find(lines, "RENEW", "fine.md", 0));
        let at = find(lines, "RELEASE", "fine.md", 0) + 1;
        lines.insert(at, renew);
        at
    }),
    ("two claims have the same fencing number", "old_epoch", |lines| {
        let (one, two) = (find(lines, "CLAIM", "fails.md", 0), find(lines, "CLAIM", "fails.md", 1));
        lines[two]["payload"]["epoch"] = lines[one]["payload"]["epoch"].clone();
        two
    }),
    ("a finished task is claimed", "illegal_step", |lines| {
        let at = find(lines, "CLAIM", "fine.md", 0);
        lines[at]["payload"]["from"] = "Done".into();
        at
    }),
    ("failed work is done", "illegal_step", |lines| {
        let at = find(lines, "RELEASE", "fails.md", 0);
        lines[at]["result"]["status"] = "Done".into();
        at
    }),
    ("a draft is done without a person", "illegal_step", |lines| {
        let at = find(lines, "RELEASE", "rent.md", 0);
        lines[at]["result"]["status"] = "Done".into();
        at
    }),
    ("the task of a dead owner is done", "illegal_step", |lines| {
        let at = find(lines, "RECLAIM", "gone.md", 0);
        lines[at]["result"]["status"] = "Done".into();
        at
    }),
    ("an approval has no line", "never_approved", |lines| {
        lines.remove(find(lines, "APPROVAL", "rent.md", 0));
        find(lines, "CLAIM", "rent.md", 1)
    }),
    ("a step is recorded twice", "repeated_step", |lines| {
        let at = find(lines, "RENEW", "fine.md", 0);
        lines.insert(at + 1, lines[at].clone());
        at + 1
    }),
];

#[test]
fn every_planted_fault_is_found_at_its_line() {
    let history = honest();
    let honest = history.ledger();
    for (name, rule, plant) in FAULTS {
        let mut lines = honest.clone();
        let seq = plant(&mut lines) + 1;
        forge(&history.world, &lines);
        let report = history.audit();
        let named = |flaw: &Value| flaw["rule"] == rule && flaw["seq"] == seq;
        let flaws = report["flaws"].as_array().unwrap();
        assert!(flaws.iter().any(named), "{name}: not `{rule}` in line {seq}: {report:#}");
        assert_eq!(report["valid"], false, "{name}");
        assert!(flaws.iter().all(|flaw| !flaw["reason"].as_str().unwrap().is_empty()));
    }
    // The forgery itself is not what was found.
    forge(&history.world, &honest);
    assert_eq!(history.audit()["flaws"], json!([]));
}

#[test]
fn a_decision_about_a_claimed_task_is_found() {
    let history = honest();
    let mut lines = history.ledger();
    let mut decision = lines[find(&lines, "APPROVAL", "rent.md", 0)].clone();
    let at = find(&lines, "CLAIM", "fine.md", 0) + 1;
    decision["payload"]["task"] = "fine.md".into();
    lines.insert(at, decision);
    forge(&history.world, &lines);
    let flaws = history.audit()["flaws"].clone();
    assert_eq!((&flaws[0]["rule"], &flaws[0]["seq"]), (&json!("illegal_step"), &json!(at + 1)), "{flaws:#}");
}

#[test]
fn records_that_contradict_the_ledger_or_each_other_are_found() {
    let history = honest();
    let plant = |record: Value, rule: &str, about: (&str, &str)| {
        let honest = history.records.borrow().clone();
        history.note(record);
        let flaws = history.audit()["flaws"].clone();
        let line = history.records.borrow().len();
        assert_eq!(
            (&flaws[0]["rule"], &flaws[0]["record"]["line"]),
            (&json!(rule), &json!(line)),
            "{flaws:#}"
        );
        assert_eq!((&flaws[0][about.0], &flaws[0]["seq"]), (&json!(about.1), &Value::Null), "{flaws:#}");
        *history.records.borrow_mut() = honest;
    };
    let done = json!({"by": "red", "file": "a", "done": hash("acknowledged, but not recorded")});
    plant(done, "missing_line", ("file", "a"));
    // The change replaced other bytes than its author had read: a stale write that was let through.
    let honest = history.records.borrow().clone();
    let change = |read: &str| json!({"by": "blue", "file": "e/w", "read": hash(read), "done": hash("z\n")});
    history.records.borrow_mut().retain(|record| record["file"] != "e/w");
    history.note(change("x\n"));
    let flaws = history.audit()["flaws"].clone();
    assert_eq!((&flaws[0]["rule"], &flaws[0]["file"]), (&json!("lost_update"), &json!("e/w")), "{flaws:#}");
    assert!(flaws[0]["seq"].is_u64(), "{flaws:#}");
    *history.records.borrow_mut() = honest;
    let claim =
        history.ledger().iter().find(|line| line["action_type"] == "CLAIM").unwrap()["payload"]["claim_id"]
            .clone();
    let work = |claim: Value, began: u64| json!({"by": "blue", "task": "fine.md", "claim_id": claim, "began": began, "ended": 9});
    plant(work(claim, 4), "two_owners", ("task", "fine.md"));
    plant(work("c-0123456789abcdef".into(), 5), "missing_line", ("task", "fine.md"));
    // A participant that was killed leaves half a record.
    let path = history.records_file();
    fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"by\":\"r").unwrap();
    history.world.tollgate(["ledger", "audit", "--records", path.to_str().unwrap()]).ends().is(0);
    fs::write(&path, "{\"by\":\"red\"}\n").unwrap();
    let fault = history
        .world
        .tollgate(["ledger", "audit", "--json", "--records", path.to_str().unwrap()])
        .ends()
        .is(2);
    assert!(fault.json()["message"].as_str().unwrap().contains("line 1 of"), "{fault}");
}

/// Without records, a file that another program has restored looks like a lost change. That is a doubt, not a flaw.
#[test]
fn without_records_a_restored_file_is_a_doubt() {
    let history = History::new();
    history.world.puts("a", "one\n");
    history.writes("red", "a", "two\n");
    history.saves("a", "one\n");
    history.writes("blue", "a", "three\n");
    insta::assert_snapshot!(history.world.run("ledger audit").filtered, @r"
    exit 0
    --- stdout
    valid: no line contradicts the promises; 1 doubt
      lines    2
      files    1, 2 changes, 1 outside change
      tasks    0, 0 claims
    doubt: line 2, `a`: found 2c8b08da, which line 1 (`red`) had replaced by 27dd8ed4: another program has restored the old bytes, or that change was lost (lost_update)
    hint: only a record of who changed the file outside tollgate can decide a doubt: see `--records`
    ");
    assert_eq!(history.audit()["doubts"], json!([]), "the record explains it");
    history.records.borrow_mut().retain(|record| record["by"] != "editor");
    let flaws = history.audit()["flaws"].clone();
    assert_eq!((&flaws[0]["rule"], &flaws[0]["seq"]), (&json!("lost_update"), &json!(2)), "{flaws:#}");
    history.note(json!({"by": "editor", "file": "a", "outside": true}));
    assert_eq!(history.audit()["flaws"], json!([]), "somebody changes this file without tollgate");
}

#[test]
fn a_planted_fault_is_explained_to_people() {
    let history = honest();
    let mut lines = history.ledger();
    lines.remove(find(&lines, "RELEASE", "fails.md", 0));
    forge(&history.world, &lines);
    insta::assert_snapshot!(history.world.run("ledger audit").filtered, @r"
    exit 1
    --- stdout
    not valid: a finding contradicts the promises
      lines    46
      files    6, 16 changes, 1 outside change
      tasks    5, 9 claims
    flaw: line 27, `fails.md`: `blue` claimed it, but `red` has owned it since line 25 (two_owners)
    hint: if other workspaces use this vault, give `--shared`
    ");
}

#[test]
fn a_damaged_ledger_is_named_like_verify_names_it() {
    let history = honest();
    let path = history.world.path(".tollgate/ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap().replacen("\"agent\":\"blue\"", "\"agent\":\"evil\"", 1);
    fs::write(&path, text).unwrap();
    let problem = history.world.run("ledger verify --json").is(1).json()["problem"]["seq"].clone();
    let flaws = history.world.run("ledger audit --json").is(1).json()["flaws"].clone();
    let damage = flaws.as_array().unwrap().iter().find(|flaw| flaw["rule"] == "damaged_ledger").unwrap();
    assert_eq!(damage["seq"], problem, "{flaws:#}");
}

#[test]
fn the_steps_of_another_workspace_with_the_same_vault_are_no_flaw() {
    let world = World::new();
    let vault = world.tmp().join("tasks");
    let other = world.tmp().join("other");
    fs::create_dir(&other).unwrap();
    for folder in [world.root(), other.clone()] {
        world.tollgate(["init", "--vault", vault.to_str().unwrap()]).folder(&folder).ends().is(0);
    }
    world.run("task add Rent").is(0);
    let claim = world.tollgate(["task", "claim", "rent", "--agent", "blue", "--json"]).folder(&other).ends();
    let id = claim.is(0).json()["claim_id"].as_str().unwrap().to_owned();
    world.run(&format!("task release rent --claim-id {id}")).is(0);
    let json = world.run("ledger audit --json").is(0).json();
    assert_eq!((&json["valid"], &json["shared"]), (&true.into(), &true.into()), "{json}");
}

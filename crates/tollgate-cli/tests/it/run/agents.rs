//! Several agents and a program without tollgate change the same files at the same time, each in its own way.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use crate::world::{PATIENCE, World};

/// How long. `TOLLGATE_TEST_SECONDS` makes it longer.
fn duration() -> Duration {
    let given = std::env::var("TOLLGATE_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(3))
}

/// Adds a token to `a`, `b` and `c`, in three ways to save.
const STYLES: [&str; 3] = [
    "for f in a b c; do x=$(cat $f); printf '%s\\n%s' \"$x\" TOKEN > $f; done",
    "for f in a b c; do (cat $f; printf '\\n%s' TOKEN) > $f.tmp; mv $f.tmp $f; done",
    "for f in a b c; do sed -i '$ a\\TOKEN' $f; done",
];

#[test]
fn no_agent_loses_a_write_and_two_files_always_agree() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    for name in ["a", "b", "c"] {
        world.puts(name, "start\n");
    }
    let end = Instant::now() + duration();
    let (made, refused, theirs) = std::thread::scope(|scope| {
        let agent = |number: usize| {
            let world = &world;
            move || {
                let (mut made, mut refused) = (BTreeSet::new(), BTreeSet::new());
                let mut count = 0;
                // On a busy machine, goes on until something was made.
                while Instant::now() < end || made.is_empty() && Instant::now() < end + PATIENCE {
                    let token = format!("agent{number}-{count}");
                    count += 1;
                    let script = STYLES[count % 3].replace("TOKEN", &token);
                    let agent = format!("agent{number}");
                    let ran = world.guarded_with(&["--agent", &agent], &script).ends();
                    match format!("{ran}").split_whitespace().nth(1) {
                        Some("0") => made.insert(token),
                        Some("75") => refused.insert(token),
                        _ => panic!("{ran}"),
                    };
                }
                (made, refused)
            }
        };
        let agents: Vec<_> = (0..4).map(|number| scope.spawn(agent(number))).collect();
        let outsider = scope.spawn(|| {
            let mut theirs = BTreeSet::new();
            while theirs.len() < 5 || Instant::now() < end {
                let token = format!("outsider-{}", theirs.len());
                let mut file = File::options().append(true).open(world.path("c")).unwrap();
                file.write_all(format!("\n{token}\n").as_bytes()).unwrap();
                theirs.insert(token);
                std::thread::sleep(Duration::from_millis(300));
            }
            theirs
        });
        let (mut made, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for agent in agents {
            let (some_made, some_refused) = agent.join().unwrap();
            made.extend(some_made);
            refused.extend(some_refused);
        }
        (made, refused, outsider.join().unwrap())
    });
    println!("{} made, {} refused, {} by the outsider", made.len(), refused.len(), theirs.len());
    assert!(made.len() > 3 && theirs.len() > 3, "{} made, {} by the outsider", made.len(), theirs.len());
    let read = |name: &str| fs::read_to_string(world.path(name)).unwrap();
    let has = |text: &str, token: &str| text.lines().any(|line| line == token);
    let (a, b, c) = (read("a"), read("b"), read("c"));
    for token in &made {
        assert!(
            [&a, &b, &c].iter().all(|text| has(text, token)),
            "{token} disappeared\n{a}\n---\n{b}\n---\n{c}"
        );
    }
    for token in &refused {
        assert!(![&a, &b, &c].iter().any(|text| has(text, token)), "{token} was refused and is there");
    }
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&a), words(&b));
    for token in &theirs {
        // A save that comes in the last microseconds of a commit is kept in recovery, and reported.
        let kept = || {
            let late = fs::read_dir(world.path(".tollgate/stage")).unwrap();
            let late = late.chain(fs::read_dir(world.path(".tollgate/history/late")).unwrap());
            late.flatten().any(|file| fs::read_to_string(file.path()).is_ok_and(|text| has(&text, token)))
        };
        assert!(has(&c, token) || kept(), "{token} by the outsider disappeared");
    }
    world.run("ledger verify").is(0);
    world.nothing_is_left();
}

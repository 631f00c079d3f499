//! `/metrics`: the exact text format, and the right figures.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;

use super::{Served, last_seq};
use crate::world::World;

/// One sample: name, labels, value.
type Sample = (String, BTreeMap<String, String>, f64);

/// A page, parsed strictly by the format's specification. Panics on every violation.
#[derive(Debug)]
pub(crate) struct Page {
    kinds: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn labels(mut text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(rest) = text.strip_prefix('{') else { return (labels, text) };
    text = rest;
    loop {
        let (name, rest) = text.split_once("=\"").expect("a label has a quoted value");
        assert!(is_name(name) && !name.contains(':'), "`{name}` is not a label");
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect("a label's value ends") {
                (at, '"') => break at,
                (_, '\\') => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => value.push(c),
                    other => panic!("`\\{other:?}` is not an escape"),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "`{name}` twice");
        text = &rest[end + 1..];
        match text.split_at(1) {
            (",", rest) => text = rest,
            ("}", rest) => return (labels, rest),
            (other, _) => panic!("`{other}` between labels"),
        }
    }
}

impl Page {
    pub(crate) fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut page = Self { kinds: BTreeMap::new(), samples: Vec::new() };
        let (mut helped, mut family, mut seen) = (BTreeSet::new(), String::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(is_name(name) && !help.is_empty() && helped.insert(name.to_owned()), "{line}");
                family = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, family, "HELP and TYPE of one family follow each other");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(page.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            } else {
                let end = line.find(['{', ' ']).unwrap();
                let (name, rest) = line.split_at(end);
                assert!(is_name(name), "{line}");
                let base = match page.kinds.get(&family).map(String::as_str) {
                    Some("histogram") => {
                        ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end))
                    }
                    _ => Some(name),
                };
                assert_eq!(base, Some(family.as_str()), "a sample stands in its family: {line}");
                let (labels, rest) = labels(rest);
                let value = rest.strip_prefix(' ').unwrap();
                assert!(!value.contains(' '), "{line}");
                let value: f64 = value.parse().unwrap();
                assert!(seen.insert((name.to_owned(), labels.clone())), "twice: {line}");
                page.samples.push((name.to_owned(), labels, value));
            }
        }
        assert!(page.kinds.keys().all(|name| helped.contains(name)));
        page.check_histograms();
        page
    }

    fn check_histograms(&self) {
        for name in self.kinds.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
            let of = |end: &str| -> Vec<&Sample> {
                self.samples.iter().filter(|(known, ..)| *known == format!("{name}{end}")).collect()
            };
            let buckets: Vec<(f64, f64)> = of("_bucket")
                .iter()
                .map(|(_, labels, value)| (labels["le"].parse().unwrap(), *value))
                .collect();
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
            let (last, all) = *buckets.last().unwrap();
            assert!(last.is_infinite());
            assert_eq!(of("_count").iter().map(|(.., value)| *value).collect::<Vec<_>>(), [all]);
            assert_eq!(of("_sum").len(), 1);
        }
    }

    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples
            .iter()
            .find(|(known, found, _)| known == name && *found == wanted)
            .map(|(.., value)| *value)
    }

    /// All samples that only grow.
    fn counters(&self) -> Vec<Sample> {
        let grows = |(name, ..): &&Sample| {
            name.ends_with("_total")
                || name.ends_with("_bucket")
                || name.ends_with("_sum")
                || name.ends_with("_count")
        };
        self.samples.iter().filter(grows).cloned().collect()
    }
}

#[test]
fn the_figures_count_all_processes_before_and_after_a_restart() {
    let world = World::with("[ledger]\nmax_size = \"2KiB\"\n[guard]\nprotected = [\"secret\"]\n");
    world.run("init --vault").is(0);
    // Before the server starts.
    world.puts("a", "one\n");
    for agent in ["blue", "green"] {
        let turn = world.turn(agent);
        let write =
            |file: &str, text: &str| world.tollgate(["write", file, "--turn", &turn]).stdin(text).ends();
        world.run(&format!("read a --turn {turn}")).is(0);
        world.puts("a", format!("two, {agent}\n"));
        write("a", "three\n").is(1);
        write("a", "three\n").is(1);
        world.run(&format!("read a --turn {turn}")).is(0);
        write("a", "three\n").is(0);
        write("secret/b", "no\n").is(1);
    }
    let served = Served::new(&world, &[]);
    let page = served.metrics(last_seq(&world));
    let value = |page: &Page, name: &str, labels: &[(&str, &str)]| {
        page.value(name, labels).unwrap_or_else(|| panic!("{name} {labels:?}: {page:?}"))
    };
    for agent in ["blue", "green"] {
        let of = |name, more: &[(&str, &str)]| value(&page, name, &[&[("agent", agent)], more].concat());
        assert_eq!(of("tollgate_refusals_total", &[("error_type", "STALE_FILE")]), 2.0);
        assert_eq!(of("tollgate_refusals_total", &[("error_type", "PROTECTED_PATH")]), 1.0);
        assert_eq!(of("tollgate_mutations_total", &[]), 1.0);
        assert_eq!(of("tollgate_turns_total", &[]), 1.0);
    }
    assert_eq!(value(&page, "tollgate_turns_open", &[]), 2.0);
    assert_eq!(value(&page, "tollgate_overlapping_files", &[]), 1.0);
    assert_eq!(value(&page, "tollgate_commit_duration_seconds_count", &[]), 2.0);
    assert!(value(&page, "tollgate_commit_duration_seconds_sum", &[]) > 0.0);
    // While the server runs. A change of several files is several mutations and one commit.
    let changes = r#"[{"path":"x","content":"x"},{"path":"y","content":"y"},{"path":"z","content":"z"}]"#;
    world.tollgate(["apply", "--agent", "red"]).stdin(changes).ends().is(0);
    world.run("task add t").is(0);
    let claimed = world.json("task claim t --agent red");
    let claim = claimed["claim_id"].as_str().unwrap();
    world.run(&format!("task release t --claim-id {claim}")).is(0);
    let page = served.metrics(last_seq(&world));
    let red = ("agent", "red");
    assert_eq!(value(&page, "tollgate_mutations_total", &[red]), 3.0);
    assert_eq!(value(&page, "tollgate_commit_duration_seconds_count", &[]), 3.0);
    assert_eq!(value(&page, "tollgate_claims_total", &[red]), 1.0);
    assert_eq!(value(&page, "tollgate_releases_total", &[red, ("state", "Done")]), 1.0);
    assert_eq!(value(&page, "tollgate_task_pick_up_seconds_count", &[]), 1.0);
    let waited = value(&page, "tollgate_task_pick_up_seconds_sum", &[]);
    assert!((0.0..60.0).contains(&waited), "{waited}");
    assert_eq!(value(&page, "tollgate_tasks", &[("state", "Done")]), 1.0);
    assert_eq!(value(&page, "tollgate_ledger_whole", &[]), 1.0);
    assert_eq!(value(&page, "tollgate_up", &[]), 1.0);
    // A new server has the same figures.
    served.ends(Signal::TERM);
    let again = Served::new(&world, &[]).metrics(last_seq(&world));
    assert_eq!(again.counters(), page.counters());
}

#[test]
fn the_strict_reader_is_strict() {
    let good = "# HELP a x\n# TYPE a gauge\na{l=\"q\\\"\\\\\\n\"} 1\n";
    assert_eq!(Page::read(good).value("a", &[("l", "q\"\\\n")]), Some(1.0));
    let bad = [
        "a 1",
        "a 1\n",
        "# HELP a x\n# TYPE a gauge\nb 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a x\n# TYPE a counter\na 1\n",
        "# HELP a x\n# TYPE a gauge\na{l=\"\\x\"} 1\n",
        "# HELP a x\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
    ];
    for text in bad {
        assert!(std::panic::catch_unwind(|| Page::read(text)).is_err(), "{text}");
    }
}

//! Memory does not grow with the ledger.

use serde_json::Value;

use crate::lines::world_with;
use crate::world::World;

/// Runs a command and prints the most memory that it had, in KiB.
const MEASURE: &str = "
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
assert done.returncode == 0, done
print(done.stdout.decode().strip(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
";

/// The number of exported events, and the most memory in KiB.
fn measured(world: &World, format: &str) -> (u64, u64) {
    let words = ["export", "--json", "--out", "/dev/null", "--to", format];
    let all = ["-c", MEASURE, env!("CARGO_BIN_EXE_tollgate")].into_iter().chain(words);
    let said = world.program("python3", all).ends().is(0).stdout();
    let (json, most) = said.trim_end().rsplit_once(' ').unwrap();
    let json: Value = serde_json::from_str(json).unwrap();
    (json["exported"].as_u64().unwrap(), most.parse().unwrap())
}

/// How much more memory an export of a long ledger may use than one of a short ledger: for what the allocator keeps.
const MORE: u64 = 6 << 10;

#[test]
fn a_million_lines_are_exported_in_bounded_memory() {
    let (few, many) =
        (measured(&world_with(2_000, 1_000), "ndjson"), measured(&world_with(1_000_000, 250_000), "ndjson"));
    assert_eq!((few.0, many.0), (2_000, 1_000_000));
    assert!(many.1 < few.1 + MORE, "{} KiB, and {} KiB for a short ledger", many.1, few.1);
}

#[test]
fn no_format_keeps_what_it_has_exported() {
    let (short, long) = (world_with(2_000, 1_000), world_with(40_000, 10_000));
    for format in ["cloudevents", "otlp"] {
        let (few, many) = (measured(&short, format), measured(&long, format));
        assert_eq!((few.0, many.0), (2_000, 40_000));
        assert!(many.1 < few.1 + MORE, "{format}: {} KiB, and {} KiB for a short ledger", many.1, few.1);
    }
}

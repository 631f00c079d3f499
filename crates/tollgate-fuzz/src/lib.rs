//! Mutated examples, for tests of code that reads what others have written.
//!
//! A target is a test next to the code that it tests. By default it runs for a moment, always with the same cases.
//! `TOLLGATE_FUZZ_SECONDS=600` runs it for longer, with more cases; `TOLLGATE_FUZZ_CASE=N` runs only the case that a failure
//! named. A target fails if the code panics, takes too long for one case, or uses too much memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The cases of a run by default, if they take no more than [`MOMENT`].
const CASES: u64 = 1500;

/// How long a run takes by default, at most.
const MOMENT: Duration = Duration::from_secs(3);

/// The longest time for one case. Correct code takes milliseconds; the rest is for a busy machine.
const LONGEST: Duration = Duration::from_secs(10);

/// The longest input: enough for deep nesting and long lines, and read in milliseconds.
const LARGEST: usize = 64 << 10;

/// The most memory that the process may have used at any time, in KiB.
const MOST_MEMORY: u64 = 2 << 20;

/// Runs the target with examples and with mutations of them.
///
/// # Panics
///
/// If the target panics, takes too long or uses too much memory. The message names the case and its input.
pub fn fuzz<E: AsRef<[u8]>>(name: &str, examples: &[E], mut target: impl FnMut(&[u8])) {
    let setting = |variable: &str| std::env::var(variable).ok().and_then(|value| value.parse::<u64>().ok());
    let seconds = setting("TOLLGATE_FUZZ_SECONDS").map(Duration::from_secs);
    let only = setting("TOLLGATE_FUZZ_CASE");
    let examples: Vec<&[u8]> = examples.iter().map(AsRef::as_ref).collect();
    let started = Instant::now();
    let mut case = only.unwrap_or(0);
    loop {
        let input = input(name, &examples, case);
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        let shown = || input[..input.len().min(4000)].escape_ascii().to_string();
        if outcome.is_err() {
            panic!("{name}: case {case} panicked with {} bytes: {}", input.len(), shown());
        }
        let took = began.elapsed();
        assert!(took < LONGEST, "{name}: case {case} took {took:?}, with {} bytes: {}", input.len(), shown());
        case += 1;
        let enough = match seconds {
            Some(seconds) => started.elapsed() >= seconds,
            None => case >= CASES || started.elapsed() >= MOMENT,
        };
        if only.is_some() || enough {
            break;
        }
    }
    let memory = peak_memory();
    assert!(memory.is_none_or(|memory| memory < MOST_MEMORY), "{name}: the process used {memory:?} KiB");
}

/// The input of a case: the examples themselves first, then mutations.
fn input(name: &str, examples: &[&[u8]], case: u64) -> Vec<u8> {
    if let Some(example) = usize::try_from(case).ok().and_then(|case| examples.get(case)) {
        return example.to_vec();
    }
    let mut random = Random::new(name, case);
    let mut input = random.one_of(examples).to_vec();
    for _ in 0..=random.below(4) {
        mutate(&mut random, &mut input, examples);
        input.truncate(LARGEST);
    }
    input
}

/// Texts that parsers trip over.
#[rustfmt::skip]
const TOKENS: &[&[u8]] = &[
    b"\0", b"\n", b"\r\n", b"\r", b"\t", b" ", b"\"", b"'", b"`", b"\\", b"{", b"}", b"[", b"]", b"(", b")", b"<", b">", b"*", b"**",
    b"?", b"!", b":", b": ", b",", b"---\n", b"- ", b"#", b"//", b"/*", b"$(", b"${", b"<<EOF\n", b"&&", b"|", b";", b"..", b"../", b"/",
    b"-1", b"0", b"9223372036854775808", b"18446744073709551616", b"1e999", b"-0.0", b"null", b"true", b"\\u0000", b"\\ud800",
    b"\xff", b"\xc3", b"\xe2\x80\xae", b"\xef\xbb\xbf", b"\xf0\x9f\xa6\x80", b"\xcc\x81", b"@@", b"*** ", b"+", b"~", b"%00", b"%",
];

/// Numbers that do not fit.
const NUMBERS: &[&[u8]] = &[b"0", b"18446744073709551615", b"99999999999999999999", b"-1", b"1e400"];

/// What can be nested.
#[rustfmt::skip]
const NESTS: &[(&[u8], &[u8])] = &[
    (b"[", b"]"), (b"{\"a\":", b"}"), (b"(", b")"), (b"$(", b")"), (b"\"$(", b")\""), (b"{", b"}"), (b"> ", b""), (b"- ", b""),
    (b"*", b"*"), (b"<b>", b"</b>"), (b"`", b"`"), (b"**/", b""), (b"a/", b""), (b"!(", b")"), (b"{a,", b"}"),
];

fn mutate(random: &mut Random, input: &mut Vec<u8>, examples: &[&[u8]]) {
    let at = random.below(input.len() + 1);
    let range = |random: &mut Random, input: &[u8]| {
        let start = random.below(input.len() + 1);
        start..start + random.below(input.len() - start + 1)
    };
    match random.below(11) {
        0 => input.truncate(at),
        1 => drop(input.drain(range(random, input))),
        2 => {
            let part = input[range(random, input)].to_vec();
            input.splice(at..at, part);
        }
        3 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        4 => {
            let other = random.one_of(examples).to_vec();
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        5 => {
            let other = random.one_of(examples);
            let part = other[range(random, other)].to_vec();
            input.splice(at..at, part);
        }
        6 => {
            let place = range(random, input);
            input.splice(place, random.one_of(TOKENS).iter().copied());
        }
        7 => {
            let count = 1 << random.below(13);
            let many = random.one_of(TOKENS).repeat(count);
            input.splice(at..at, many);
        }
        8 => {
            let (open, close) = random.one_of(NESTS);
            let depth = 1 << random.below(13);
            let inner = range(random, input);
            input.splice(inner.end..inner.end, close.repeat(depth));
            input.splice(inner.start..inner.start, open.repeat(depth));
        }
        9 => {
            // The number at or after a place.
            if let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) {
                let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let number = random.one_of(NUMBERS);
                input.splice(start..start + length, number.iter().copied());
            }
        }
        _ => input.insert(at, u8::try_from(random.below(256)).unwrap_or_default()),
    }
}

/// The most memory that this process has used, in KiB.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}

/// The generator `splitmix64`.
struct Random(u64);

impl Random {
    fn new(name: &str, case: u64) -> Self {
        let seed = name.bytes().fold(case, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }

    fn one_of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_always_the_same_and_never_too_large() {
        let examples: [&[u8]; 2] = [b"{\"a\": 1}", b""];
        for case in 0..2000 {
            let one = input("x", &examples, case);
            assert_eq!(one, input("x", &examples, case));
            assert!(one.len() <= LARGEST);
        }
        let different: std::collections::BTreeSet<_> =
            (2..500).map(|case| input("x", &examples, case)).collect();
        assert!(different.len() > 300, "{}", different.len());
    }

    #[test]
    #[should_panic(expected = "case 0 panicked with 1 bytes: a")]
    fn a_panic_names_the_case_and_its_input() {
        fuzz("x", &["a"], |_| panic!("a mistake"));
    }
}

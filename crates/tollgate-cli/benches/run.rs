//! The cost of `tollgate run`, as ratios to the same command without it: `cargo bench -p tollgate-cli --bench run`.
//!
//! The rounds of both kinds alternate, so that a busy machine slows both equally. The result is the median.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program as the linker wrote it.
const BUILT: &str = env!("CARGO_BIN_EXE_tollgate");

/// The highest ratio that was aimed at.
const AIMS: [(&str, &str); 8] = [
    ("start, 10 files", "5"),
    ("start, 10,000 files", "15"),
    ("start, 200,000 files", "15"),
    ("rg, 10,000 files", "2"),
    ("git status, 5,000 files", "3"),
    ("git status, 50,000 files", "3"),
    ("cargo build, nothing built yet", "1.1"),
    ("cargo build, one module changed", "1.1"),
];

struct Bench {
    keep: tempfile::TempDir,
}

fn main() {
    let bench = Bench { keep: tempfile::tempdir().unwrap() };
    // A copy, as every installation makes one: see the benchmark of hooks.
    fs::copy(BUILT, bench.program()).unwrap();
    println!("| command | without | with | ratio | aim |");
    println!("|---|---|---|---|---|");
    let tiny = bench.workspace("tiny", 10);
    bench.compare("start, 10 files", &tiny, &["/bin/true"], 50, &|_| {});
    let files = bench.workspace("files", 10_000);
    bench.compare("start, 10,000 files", &files, &["/bin/true"], 30, &|_| {});
    bench.compare(
        "grep -r, 10,000 files",
        &files,
        &["grep", "-rc", "nothing", "--exclude-dir=.tollgate", "."],
        15,
        &|_| {},
    );
    // ripgrep uses all processors, and is what agents search with.
    if Command::new("rg").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        bench.compare("rg, 10,000 files", &files, &["rg", "-c", "nothing"], 15, &|_| {});
    }
    bench.compare("change one file", &tiny, &["sed", "-i", "s/text/text/", "d0/f0"], 30, &|_| {});
    for (name, files) in [("5,000", 5_000), ("50,000", 50_000)] {
        let git = bench.workspace(&format!("git-{files}"), files);
        bench.git(&git, &["init", "-q"]);
        bench.git(&git, &["add", "."]);
        let status = ["git", "status", "--short"];
        bench.compare(&format!("git status, {name} files"), &git, &status, 15, &|_| {});
    }
    // More names than are listed at the start.
    let huge = bench.workspace("huge", 200_000);
    bench.git(&huge, &["init", "-q"]);
    bench.git(&huge, &["add", "."]);
    for (what, words) in [
        ("start", &["/bin/true"][..]),
        ("change one file", &["sed", "-i", "s/text/text/", "d0/f0"]),
        ("git status", &["git", "status", "--short"]),
        ("rg", &["rg", "-c", "nothing"]),
    ] {
        bench.compare(&format!("{what}, 200,000 files"), &huge, words, 7, &|_| {});
    }
    let krate = bench.workspace("crate", 0);
    let cargo = ["init", "-q", "--name", "tiny", "--vcs", "git"];
    assert!(Command::new("cargo").args(cargo).current_dir(&krate).status().unwrap().success());
    for module in 0..50 {
        let functions: String =
            (0..50).map(|number| format!("pub fn f{number}() -> u32 {{ {number} }}\n")).collect();
        fs::write(krate.join(format!("src/m{module}.rs")), functions).unwrap();
    }
    let modules: String = (0..50).map(|module| format!("pub mod m{module};\n")).collect();
    fs::write(krate.join("src/lib.rs"), modules).unwrap();
    let build = ["cargo", "build", "-q", "--offline"];
    bench.compare("cargo build, nothing built yet", &krate, &build, 5, &|krate| {
        let _ = fs::remove_dir_all(krate.join("target"));
        fs::create_dir(krate.join("target")).unwrap();
    });
    bench.compare("cargo build, one module changed", &krate, &build, 7, &|krate| {
        fs::write(krate.join("src/m0.rs"), format!("// {:?}\npub fn f() -> u32 {{ 1 }}\n", Instant::now()))
            .unwrap();
    });
}

impl Bench {
    fn program(&self) -> PathBuf {
        self.keep.path().join("tollgate")
    }

    /// A workspace with this many files.
    fn workspace(&self, name: &str, files: usize) -> PathBuf {
        let folder = self.keep.path().join(name);
        fs::create_dir(&folder).unwrap();
        for number in 0..files {
            let folder = folder.join(format!("d{}", number / 100));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("f{}", number % 100)), "some text\n".repeat(20)).unwrap();
        }
        fs::create_dir(folder.join(".tollgate")).unwrap();
        folder
    }

    fn git(&self, folder: &Path, words: &[&str]) {
        assert!(Command::new("git").args(words).current_dir(folder).status().unwrap().success());
    }

    fn compare(&self, name: &str, folder: &Path, words: &[&str], rounds: usize, before: &dyn Fn(&Path)) {
        let program = self.program();
        let guarded: Vec<&str> =
            [program.to_str().unwrap(), "run", "--"].iter().chain(words).copied().collect();
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            before(folder);
            without.push(self.time(folder, words));
            before(folder);
            with.push(self.time(folder, &guarded));
            wait_for_cleanup(folder);
        }
        let [without, with] = [without, with].map(median);
        let ratio = with.as_secs_f64() / without.as_secs_f64();
        let aim = AIMS.iter().find(|(aimed, _)| *aimed == name).map_or("", |(_, aim)| aim);
        let [without, with] = [without, with].map(|time| time.as_secs_f64() * 1e3);
        println!("| {name} | {without:.2} ms | {with:.2} ms | {ratio:.2} | {aim} |");
    }

    fn time(&self, folder: &Path, words: &[&str]) -> Duration {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(folder).env("XDG_STATE_HOME", self.keep.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let code = command.status().unwrap().code();
        let took = begun.elapsed();
        // `grep` found nothing.
        assert!(code.is_some_and(|code| code <= 1), "{words:?}: {code:?}");
        took
    }
}

/// A run removes its view after its caller has the result. That must not slow down the next command.
fn wait_for_cleanup(folder: &Path) {
    let is_empty = |folder: &Path| fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    while !is_empty(&folder.join(".tollgate/runs")) {
        std::thread::yield_now();
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

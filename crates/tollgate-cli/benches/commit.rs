//! The cost of `tollgate commit`, as a ratio to `git commit` of the same files: `cargo bench -p tollgate-cli --bench commit`.
//!
//! The rounds of both kinds alternate, so that a busy machine slows both equally. The result is the median.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program as the linker wrote it.
const BUILT: &str = env!("CARGO_BIN_EXE_tollgate");

/// What a person does before the measured commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Staged {
    Nothing,
    AFile,
}

struct Bench {
    keep: tempfile::TempDir,
}

fn main() {
    let bench = Bench { keep: tempfile::tempdir().unwrap() };
    fs::copy(BUILT, bench.program()).unwrap();
    println!("| commit | git | tollgate | ratio | aim |");
    println!("|---|---|---|---|---|");
    for (files, rounds) in [(10, 30), (1_000, 20), (50_000, 7)] {
        let folder = bench.repository(files);
        bench.compare(&format!("one file of {files}"), &folder, 1, rounds, Staged::Nothing);
        bench.compare(&format!("one file of {files}, another staged"), &folder, 1, rounds, Staged::AFile);
    }
    let folder = bench.keep.path().join("w1000");
    bench.compare("100 files of 1000", &folder, 100, 10, Staged::Nothing);
}

impl Bench {
    fn program(&self) -> PathBuf {
        self.keep.path().join("tollgate")
    }

    fn repository(&self, files: usize) -> PathBuf {
        let folder = self.keep.path().join(format!("w{files}"));
        for number in 0..files {
            let path = folder.join(name(number));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "some text\n".repeat(20)).unwrap();
        }
        fs::create_dir(folder.join(".tollgate")).unwrap();
        for words in ["init -q -b main", "config user.name Ada", "config user.email ada@example.org"] {
            run(Command::new("git").args(words.split(' ')), &folder);
        }
        run(Command::new("git").args(["add", "-A"]), &folder);
        run(Command::new("git").args(["commit", "-q", "-m", "first"]), &folder);
        folder
    }

    fn compare(&self, title: &str, folder: &Path, changed: usize, rounds: usize, staged: Staged) {
        let names: Vec<String> = (0..changed).map(name).collect();
        let (mut git, mut tollgate) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            self.prepare(folder, &names, staged);
            // What an agent does to commit its own files and nothing that others have staged.
            let mut command = Command::new("git");
            command.args(["commit", "-q", "-m", "changes", "--"]).args(&names);
            git.push(run(&mut command, folder));
            self.prepare(folder, &names, staged);
            let mut command = Command::new(self.program());
            tollgate.push(run(command.args(["commit", "-m", "changes", "--agent", "blue"]), folder));
        }
        let [git, tollgate] = [median(git), median(tollgate)];
        println!(
            "| {title} | {:.1} ms | {:.1} ms | {:.2} | 2 |",
            git.as_secs_f64() * 1000.0,
            tollgate.as_secs_f64() * 1000.0,
            tollgate.as_secs_f64() / git.as_secs_f64()
        );
    }

    fn prepare(&self, folder: &Path, names: &[String], staged: Staged) {
        for name in names {
            let text = format!("{:?}\n{}", Instant::now(), "some text\n".repeat(20));
            let from = self.keep.path().join("text");
            fs::write(&from, text).unwrap();
            let mut command = Command::new(self.program());
            command.args(["write", name, "--agent", "blue"]).stdin(fs::File::open(from).unwrap());
            run(&mut command, folder);
        }
        if staged == Staged::AFile {
            fs::write(folder.join("staged"), format!("{:?}", Instant::now())).unwrap();
            run(Command::new("git").args(["add", "staged"]), folder);
        }
    }
}

fn name(number: usize) -> String {
    format!("d{}/f{}", number / 100, number % 100)
}

fn run(command: &mut Command, folder: &Path) -> Duration {
    command
        .current_dir(folder)
        .stdout(Stdio::null())
        .env_remove("TOLLGATE_TURN")
        .env_remove("TOLLGATE_AGENT");
    let began = Instant::now();
    assert!(command.status().unwrap().success(), "{command:?}");
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

//! The cost of `tollgate commit`, as a ratio to `git commit` of the same files: `cargo bench -p tollgate-cli --bench commit`.
//!
//! The rounds of both kinds alternate, so that a busy machine slows both equally. The result is the median.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program as the linker wrote it.
const BUILT: &str = env!("CARGO_BIN_EXE_tollgate");

/// What makes a commit cost more: what a person has staged before, and hooks of the repository.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    AStagedFile,
    Hooks,
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
        bench.compare(&format!("one file of {files}"), &folder, 1, rounds, Beside::Nothing);
        bench.compare(
            &format!("one file of {files}, another staged"),
            &folder,
            1,
            rounds,
            Beside::AStagedFile,
        );
    }
    let folder = bench.keep.path().join("w1000");
    // Somebody has staged a file in it.
    run(Command::new("git").args(["commit", "-q", "-m", "staged"]), &folder);
    for changed in [20, 500] {
        bench.compare(&format!("{changed} of 1000 files"), &folder, changed, 10, Beside::Nothing);
    }
    for hook in ["pre-commit", "commit-msg"] {
        let path = folder.join(".git/hooks").join(hook);
        fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    for changed in [1, 20, 500] {
        bench.compare(&format!("{changed} of 1000 files, two hooks"), &folder, changed, 10, Beside::Hooks);
    }
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

    fn compare(&self, title: &str, folder: &Path, changed: usize, rounds: usize, beside: Beside) {
        let names: Vec<String> = (0..changed).map(name).collect();
        let (mut git, mut tollgate) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            self.prepare(folder, &names, beside);
            // What an agent does to commit its own files and nothing that others have staged.
            let mut command = Command::new("git");
            command.args(["commit", "-q", "-m", "changes", "--"]).args(&names);
            git.push(run(&mut command, folder));
            self.prepare(folder, &names, beside);
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

    fn prepare(&self, folder: &Path, names: &[String], beside: Beside) {
        let text = format!("{:?}\n{}", Instant::now(), "some text\n".repeat(20));
        let changes: Vec<_> =
            names.iter().map(|name| serde_json::json!({"path": name, "content": text})).collect();
        let from = self.keep.path().join("changes");
        fs::write(&from, serde_json::to_vec(&changes).unwrap()).unwrap();
        let mut command = Command::new(self.program());
        command.args(["apply", "--agent", "blue"]).stdin(fs::File::open(from).unwrap());
        run(&mut command, folder);
        if beside == Beside::AStagedFile {
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

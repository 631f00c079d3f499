//! What a claim over git writes in the clone is flushed before it gets its name. Otherwise a power cut could leave an empty
//! file under that name: an object, a ref, or what tollgate knows about the remote.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Machine, text};

fn git(folder: &Path, words: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-C"]).arg(folder).args(words);
    let output = git.output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

/// A clone with one task. The remote flushes, too, because its processes are recorded with the others.
fn clone(machine: &Machine) {
    let (root, work) = (machine.keep.path(), machine.path(""));
    git(root, &["init", "--quiet", "--bare", "-b", "main", "remote.git"]);
    let remote = root.join("remote.git");
    git(&remote, &["config", "core.fsync", "all"]);
    git(&work, &["init", "--quiet", "-b", "main"]);
    git(&work, &["remote", "add", "origin", &format!("file://{}", remote.display())]);
    fs::create_dir_all(work.join("vault/Needs_Action")).unwrap();
    fs::write(work.join(".gitignore"), ".tollgate/\n").unwrap();
    fs::write(work.join("vault/Needs_Action/do-it.md"), "# do it\n").unwrap();
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "--quiet", "-m", "first"]);
    git(&work, &["push", "--quiet", "origin", "main"]);
    fs::create_dir(work.join(".tollgate")).unwrap();
    let settings = "version = 1\n[vault]\ndir = \"vault\"\nsync = \"git\"\nsettle = \"0s\"\n";
    fs::write(work.join(".tollgate/config.toml"), settings).unwrap();
}

/// The names of files, and whether they were flushed under an earlier name.
fn named(log: &str) -> Vec<(String, bool)> {
    let file_name =
        |path: &str| Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (mut flushed, mut named) = (BTreeSet::new(), Vec::new());
    for line in log.lines() {
        let Some((call, rest)) = line.split_once(' ').and_then(|(_, line)| line.trim_start().split_once('('))
        else {
            continue;
        };
        let mut quoted = rest.split('"').skip(1).step_by(2).map(file_name);
        match (call, quoted.next(), quoted.next()) {
            ("fsync" | "fdatasync", ..) => {
                let path = rest.split_once('<').and_then(|(_, path)| path.split_once('>'));
                flushed.extend(path.map(|(path, _)| file_name(path)));
            }
            (_, Some(from), Some(to)) => {
                let is_flushed = flushed.remove(&from);
                if is_flushed {
                    flushed.insert(to.clone());
                }
                // What git makes has a name of its own kind before.
                let kind = if from.starts_with("tmp_obj_") { "object" } else { &to };
                named.push((kind.to_owned(), is_flushed));
            }
            _ => {}
        }
    }
    named
}

#[test]
fn what_a_claim_over_git_writes_is_flushed_before_it_gets_its_name() {
    let machine = Machine::new(&std::env::temp_dir());
    clone(&machine);
    let log = machine.keep.path().join("log");
    let words = ["task", "claim", "do-it", "--agent", "blue", "--json"].map(String::from);
    let claim = machine.command(&words);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-s", "1000", "-e"]);
    traced.arg("trace=rename,renameat,renameat2,link,linkat,fsync,fdatasync").arg("-o").arg(&log);
    traced.arg(claim.get_program()).args(claim.get_args()).env_clear();
    traced.envs(claim.get_envs().filter_map(|(name, value)| Some((name, value?))));
    traced.env("PATH", std::env::var_os("PATH").unwrap()).current_dir(machine.path(""));
    let output = traced.output().unwrap();
    assert!(text(&output).contains("\"claimed\":true"), "{output:?}");
    let log = fs::read_to_string(&log).unwrap();
    let named = named(&log);
    let is_flushed = |kind: &&str| {
        let mut all = named.iter().filter(|(name, _)| name == kind).peekable();
        all.peek().is_some() && all.all(|(_, is_flushed)| *is_flushed)
    };
    let kinds = ["object", "card", "commit", "clone", "seen.json", "pending.json"];
    assert_eq!(kinds.into_iter().filter(is_flushed).collect::<Vec<_>>(), kinds, "{log}");
}

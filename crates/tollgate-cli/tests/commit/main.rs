//! `tollgate commit`, as a process: what it says, inside a run, with an editor, and killed at any moment.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod kills;
mod stories;
#[path = "../it/terminal.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod terminal;
#[path = "../it/world.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod world;

use std::ffi::OsString;
use std::path::Path;

use world::{Ran, Run, World};

/// A workspace that is a repository with these files, which `blue` has not written.
fn repository(files: &str) -> World {
    let world = World::new();
    let script = format!(
        "set -e; git init -q -b main; git config user.name Ada; git config user.email ada@example.org; \
         echo .tollgate >.git/info/exclude\n\
         {files}\ngit add -A; git commit -q --allow-empty -m first"
    );
    world.shell(&script).is(0);
    world
}

impl World {
    /// A script with the programs of the machine, wherever they are.
    #[track_caller]
    fn shell(&self, script: &str) -> Ran {
        self.script(script).anywhere().ends()
    }

    #[track_caller]
    fn git(&self, line: &str) -> String {
        self.shell(&format!("git {line}")).is(0).stdout().trim_end().to_owned()
    }

    fn commit(&self, words: &[&str]) -> Run<'_> {
        self.tollgate(["commit"].iter().chain(words)).anywhere()
    }
}

impl Run<'_> {
    fn anywhere(self) -> Self {
        let mut path = OsString::from(Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        self.env("PATH", path).env("GIT_CONFIG_GLOBAL", "/dev/null")
    }
}

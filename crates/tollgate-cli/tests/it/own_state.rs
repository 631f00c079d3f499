//! State is only what tollgate made here. A repository, an archive or a push may bring anything under the names of the state, and
//! gets nothing for it: no file of the user outside the workspace is deleted, changed or created.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::hook::Program;
use crate::world::World;

/// A folder of the user that is none of tollgate's business.
struct Precious(PathBuf);

impl Precious {
    fn beside(world: &World) -> Self {
        let folder = world.tmp().join("precious");
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("letter.txt"), "dear\n").unwrap();
        fs::write(folder.join("deep/photo"), "x\n").unwrap();
        Self(folder)
    }

    #[track_caller]
    fn is_untouched(&self, what: &str) {
        let mut found = Vec::new();
        list(&self.0, &mut found);
        found.sort();
        let expected = [("deep/photo", "x\n"), ("letter.txt", "dear\n")];
        let expected: Vec<_> =
            expected.map(|(name, text)| (self.0.join(name), text.as_bytes().to_vec())).into();
        assert_eq!(found, expected, "{what}");
    }
}

fn list(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => list(&entry.path(), found),
            false => found.push((entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
}

/// Every way to change a file. What each answers does not matter here.
const DOORS: [&str; 5] = ["write", "create", "run", "mcp", "hook"];

fn uses(world: &World, door: &str) {
    match door {
        "write" => drop(world.tollgate(["write", "a.txt"]).stdin("new\n").ends()),
        "create" => drop(world.tollgate(["write", "sub/new.txt"]).stdin("new\n").ends()),
        "run" => drop(world.run("run -- touch b.txt")),
        "mcp" => {
            let who = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
            let call = json!({"name": "write_file", "arguments": {"path": "c.txt", "content": "new\n"}});
            let messages = [("initialize", who), ("tools/call", call)];
            let lines = messages.map(|(method, params)| {
                json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string() + "\n"
            });
            world.tollgate(["mcp", "--agent", "blue"]).stdin(lines.concat()).ends();
        }
        _ => drop(Program::new(world, "codex", "s1").runs("ls")),
    }
}

#[test]
fn a_clone_with_a_link_among_the_runs_deletes_nothing() {
    for name in ["x", "0123456789abcdef", "x.lock", "0123456789abcdef.lock"] {
        for door in DOORS {
            let world = World::bare();
            let precious = Precious::beside(&world);
            let origin = world.tmp().join("origin");
            fs::create_dir_all(origin.join(".tollgate/runs")).unwrap();
            symlink(&precious.0, origin.join(".tollgate/runs").join(name)).unwrap();
            let script = "git init -q ../origin && git -C ../origin add -Af && \
                git -C ../origin -c user.name=a -c user.email=a@b commit -qm one && git clone -q ../origin .";
            world.script(script).ends().is(0);
            assert!(world.path(".tollgate/runs").join(name).is_symlink());
            uses(&world, door);
            precious.is_untouched(&format!("{name} and {door}"));
        }
    }
}

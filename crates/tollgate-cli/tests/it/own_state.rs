//! State is only what tollgate made here. A repository, an archive or a push may bring anything under the names of the state, and
//! gets nothing for it: no file of the user outside the workspace is deleted, changed or created.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;
use tollgate_testing::etcd::Cluster;

use crate::git::{self, Remote};
use crate::hook::Program;
use crate::world::{World, until};

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
        let expected = [("deep", "a folder"), ("deep/photo", "x\n"), ("letter.txt", "dear\n")];
        let expected: Vec<_> =
            expected.map(|(name, text)| (self.0.join(name), text.as_bytes().to_vec())).into();
        assert_eq!(found, expected, "{what}");
    }
}

fn list(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => {
                found.push((entry.path(), b"a folder".to_vec()));
                list(&entry.path(), found);
            }
            false => found.push((entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
}

/// Every way to change a file.
const DOORS: [&str; 5] = ["write", "create", "run", "mcp", "hook"];

/// Uses a door, and returns what it says. Nobody may panic or hang.
fn uses(world: &World, door: &str) -> String {
    let ran = match door {
        "write" => world.tollgate(["write", "a.txt"]).stdin("new\n").ends(),
        "create" => world.tollgate(["write", "sub/new.txt"]).stdin("new\n").ends(),
        "run" => world.run("run -- touch b.txt"),
        "mcp" => {
            let who = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
            let call = json!({"name": "write_file", "arguments": {"path": "c.txt", "content": "new\n"}});
            let messages = [("initialize", who), ("tools/call", call)];
            let lines = messages.map(|(method, params)| {
                json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string() + "\n"
            });
            world.tollgate(["mcp", "--agent", "blue"]).stdin(lines.concat()).ends()
        }
        "hook" => {
            let program = Program::new(world, "claude-code", "s1");
            return format!("{:?} {:?}", program.runs("ls"), program.writes("d.txt", "new\n"));
        }
        line => git::tollgate(world, line).ends(),
    };
    assert!(ran.code().is_some_and(|code| code <= 4 || code == 125), "{door}: {ran}");
    ran.to_string()
}

/// The verbs of tasks, and what else looks at the state and heals it. The last ones are only allowed over git.
const VERBS: [&str; 11] = [
    "task list",
    "task add more",
    "task claim --next --agent blue",
    "task reclaim",
    "work --once --agent blue -- true",
    "doctor",
    "status",
    "recovery list",
    "ledger verify",
    "export --to ndjson --out ../out.ndjson",
    "sync",
];

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

/// Leaves something of everything that the state can have.
fn keeps_busy(world: &World) {
    world.puts("a.txt", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read a.txt --turn {turn}")).is(0);
    world.tollgate(["write", "a.txt", "--agent", "red"]).stdin("two\n").ends().is(0);
    world.tollgate(["write", "a.txt", "--turn", &turn]).stdin("three\n").ends().is(1);
    // A path that does not fit into the name of a staged file.
    let long = format!("{}/{}/f", "x".repeat(200), "y".repeat(200));
    world.puts(&long, "one\n");
    world.tollgate(["write", &long, "--agent", "red"]).stdin("two\n").ends().is(0);
    Program::new(world, "codex", "s0").runs("ls").ran();
    git::tollgate(world, "run -- touch b.txt").ends().is(0);
    git::tollgate(world, "export --to ndjson --out ../out.ndjson").ends().is(0);
    for task in ["one", "two", "three"] {
        git::tollgate(world, &format!("task add {task}")).ends().is(0);
    }
    git::tollgate(world, "task claim --next --agent red").ends().is(0);
    git::tollgate(world, "work --once --agent blue -- true").ends().is(0);
    git::tollgate(world, "status").ends();
    // What a run leaves is deleted after its answer.
    until("the end of the runs", || {
        fs::read_dir(world.path(".tollgate/runs")).unwrap().next().is_none().then_some(())
    });
    // What processes leave if they are killed.
    for left in ["runs/0123456789abcdef/upper/x", "runs/0123456789abcdef.lock", "stage/u-1", "journal/1.tmp"]
    {
        world.puts(Path::new(".tollgate").join(left), "");
    }
}

/// Everything in these state folders.
fn state_of(world: &World, folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| world.path(folder)).collect();
    while let Some(folder) = open.pop() {
        found.push(folder.clone());
        let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names {
            match fs::symlink_metadata(&path).unwrap() {
                kind if kind.is_dir() => open.push(path),
                // The configuration may be a link of the user.
                kind if kind.is_file() && !path.ends_with(".tollgate/config.toml") => found.push(path),
                _ => {}
            }
        }
    }
    found
}

/// Puts a link in place of each entry of these state folders, one at a time, and uses all doors. Some entries must be there.
fn no_link_is_followed(world: &World, folders: &[&str], some: &[&str], doors: &[&str]) {
    let saved = world.tmp().join("saved");
    let copy = |from: &Path, to: &Path| {
        let words = [OsStr::new("-a"), from.as_os_str(), to.as_os_str()];
        world.program("cp", words).folder(world.tmp()).ends().is(0);
    };
    copy(&world.root(), &saved);
    let entries = state_of(world, folders);
    for name in some {
        assert!(entries.contains(&world.path(name)), "{name} is not in {entries:#?}");
    }
    for entry in &entries {
        let precious = Precious::beside(world);
        let target = if entry.is_dir() { precious.0.clone() } else { precious.0.join("letter.txt") };
        fs::rename(entry, world.tmp().join("replaced")).unwrap();
        symlink(&target, entry).unwrap();
        for door in doors {
            let answer = uses(world, door);
            precious.is_untouched(&format!("{} and {door}: {answer}", entry.display()));
        }
        // A run may still be deleting its own folder.
        until("the workspace is deleted", || fs::remove_dir_all(world.root()).ok());
        copy(&saved, &world.root());
        let replaced = world.tmp().join("replaced");
        if replaced.is_dir() { fs::remove_dir_all(replaced) } else { fs::remove_file(replaced) }.unwrap();
    }
}

const QUICK: &str = "[guard]\ndurability = \"fast\"\ngrace = \"1ms\"\n[run]\nshell = \"transaction\"\n";

#[test]
fn no_entry_of_the_state_is_followed_if_it_is_a_link() {
    let vault = "[vault]\ndurability = \"fast\"\nsettle = \"1ms\"\n";
    let world = World::with(&format!("{QUICK}{vault}"));
    fs::create_dir_all(world.path("vault/Needs_Action")).unwrap();
    keeps_busy(&world);
    let doors: Vec<_> = DOORS.into_iter().chain(VERBS).filter(|door| *door != "sync").collect();
    let some = [
        ".tollgate/run",
        ".tollgate/runs/0123456789abcdef",
        ".tollgate/locks/all",
        ".tollgate/ledger.jsonl",
        ".tollgate/history/refused",
        ".tollgate/paths",
        ".tollgate/exports",
        ".tollgate/agents.json",
        "vault/.tollgate/vault/held",
        "vault/.tollgate/vault/logs",
    ];
    no_link_is_followed(&world, &[".tollgate", "vault/.tollgate"], &some, &doors);
}

/// Turns are kept in the workspace where there is no better place for them.
#[test]
fn no_entry_of_a_turn_in_the_workspace_is_followed() {
    let world = World::with(QUICK);
    world.puts("a.txt", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read a.txt --turn {turn}")).is(0);
    let folder = format!(".tollgate/run/{}", rustix::process::geteuid().as_raw());
    let move_turns = "mkdir -p .tollgate/run && chmod 770 .tollgate/run && rm -rf FOLDER && \
        mv ../run/tollgate/* FOLDER && rmdir ../run/tollgate";
    world.script(&move_turns.replace("FOLDER", &folder)).ends().is(0);
    let show = format!("turn show --turn {turn}");
    world.run(&show).is(0);
    let lines =
        ["read a.txt --turn", "write a.txt --turn", "turn end --turn"].map(|line| format!("{line} {turn}"));
    let doors = [
        "turn list",
        &show,
        &lines[0],
        &lines[1],
        "run",
        "hook",
        "status",
        "doctor",
        &lines[2],
        "turn begin",
    ];
    let kept = format!("{folder}/turns");
    let of_turn = state_of(&world, &[&kept]).into_iter().find(|path| path.to_str().unwrap().contains(&turn));
    let of_turn = of_turn.expect("the turn is kept here");
    let some = [folder.as_str(), &kept, of_turn.to_str().unwrap()];
    no_link_is_followed(&world, &[".tollgate/run"], &some, &doors);
    // The turn was there each time.
    world.run(&show).is(0);
}

#[test]
fn no_entry_of_the_state_is_followed_over_git() {
    let remote = Remote::with_tasks(1);
    let world = remote.clone("");
    let settings = fs::read_to_string(world.path(".tollgate/config.toml")).unwrap();
    world.puts(".tollgate/config.toml", format!("{QUICK}{settings}"));
    keeps_busy(&world);
    let some = ["git/repository", "git/edits", "git/seen.json", "git/tree/.tollgate/vault/held", "deadlines"];
    let some = some.map(|name| format!("vault/.tollgate/{name}"));
    let doors = ["task claim --next --agent blue", "work --once --agent blue -- true", "sync", "doctor"];
    no_link_is_followed(&world, &["vault/.tollgate"], &some.each_ref().map(String::as_str), &doors);
}

#[test]
fn no_entry_of_the_state_is_followed_on_an_engine_with_a_view() {
    let cluster = Cluster::shared();
    let world = World::with(&format!(
        "{QUICK}[vault]\nstore = \"{}\"\nview = true\nsettle = \"1ms\"\nretry = []\n",
        cluster.url()
    ));
    for line in ["task add one", "task add two", "sync", "task claim --next --agent red", "sync"] {
        git::tollgate(&world, line).ends().is(0);
    }
    let some = ["view", "view/notes", "view/stage", "deadlines"];
    let some = some.map(|name| format!("vault/.tollgate/{name}"));
    let doors = ["task claim --next --agent blue", "task list", "sync", "doctor"];
    no_link_is_followed(&world, &["vault/.tollgate"], &some.each_ref().map(String::as_str), &doors);
}

#[test]
fn a_state_folder_that_is_a_link_is_refused_with_a_message() {
    for (link, line) in [(".tollgate", "write"), (".tollgate", "run"), ("vault/.tollgate", "task list")] {
        let world = World::bare();
        fs::create_dir_all(world.path("vault/Needs_Action")).unwrap();
        let precious = Precious::beside(&world);
        symlink(&precious.0, world.path(link)).unwrap();
        let answer = uses(&world, line);
        assert!(answer.contains("it is a symbolic link, or leads through one"), "{answer}");
        assert!(
            answer.contains("hint: tollgate follows no links to its own folders: delete the link"),
            "{answer}"
        );
        precious.is_untouched(line);
    }
}

/// Places of the state in which a link could do harm.
const PLACES: [&str; 9] = ["runs", "stage", "journal", "history", "locks", "run", "exports", "paths", "open"];

#[test]
fn an_archive_that_brings_links_changes_nothing_outside() {
    for place in PLACES {
        let world = World::bare();
        let precious = Precious::beside(&world);
        let origin = world.tmp().join("origin/.tollgate");
        fs::create_dir_all(&origin).unwrap();
        fs::write(origin.join("version"), "1\n").unwrap();
        for folder in PLACES.into_iter().filter(|folder| *folder != place) {
            fs::create_dir(origin.join(folder)).unwrap();
        }
        symlink(&precious.0, origin.join(place)).unwrap();
        world.script("tar -C ../origin -cf - . | tar -xf -").ends().is(0);
        for door in DOORS {
            let answer = uses(&world, door);
            precious.is_untouched(&format!("{place} and {door}: {answer}"));
        }
    }
}

#[test]
fn a_push_that_brings_links_changes_nothing_outside() {
    for place in
        [".tollgate/runs/0123456789abcdef", "vault/.tollgate/vault/stage", "vault/.tollgate/git/edits"]
    {
        let remote = Remote::with_tasks(1);
        let (world, other) = (remote.clone(""), remote.clone(""));
        let precious = Precious::beside(&world);
        git::tollgate(&world, "task list").ends().is(0);
        let link = other.path(place);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&precious.0, &link).unwrap();
        git::git(&other.root(), &["add", "-f", place]);
        git::git(&other.root(), &["commit", "-qm", "a gift"]);
        git::git(&other.root(), &["push", "-q"]);
        for door in ["sync", "work --once --agent blue -- true", "task list", "write", "run", "hook"] {
            let answer = uses(&world, door);
            precious.is_untouched(&format!("{place} and {door}: {answer}"));
        }
    }
}

#[test]
fn what_git_tracks_is_not_state() {
    let world = World::with(QUICK);
    world.puts("a.txt", "one\n");
    world.puts("vault/Needs_Action/t.md", "# T\n");
    world.script("git init -q").ends().is(0);
    uses(&world, "write");
    world.script("git add -A && git ls-files .tollgate").ends().is(0);
    let is_refused = |door: &str, path: &str| {
        let answer = uses(&world, door);
        let expected = format!("git tracks `{}`", world.path(path).display());
        assert!(answer.contains(&expected) && answer.contains("git rm -r --cached"), "{door}: {answer}");
    };
    for door in DOORS.into_iter().chain(["task list", "status"]) {
        let answer = uses(&world, door);
        assert!(!answer.contains("git tracks"), "`config.toml` and `.gitignore` are tracked: {answer}");
    }
    for (path, doors) in [
        (".tollgate/ledger.jsonl", &["write", "create", "run", "mcp", "hook", "task list", "status"][..]),
        ("vault/.tollgate/vault/format", &["task list", "task claim --next --agent blue", "task add more"]),
    ] {
        world.script(&format!("git add -f {path}")).ends().is(0);
        for door in doors {
            is_refused(door, path);
        }
        world.script(&format!("git rm -rq --cached {path}")).ends().is(0);
        for door in doors {
            let answer = uses(&world, door);
            assert!(!answer.contains("git tracks"), "{door}: {answer}");
        }
    }
}

#[test]
fn a_pull_that_replaces_state_is_noticed_at_the_next_call() {
    let world = World::with(QUICK);
    let origin = world.tmp().join("origin");
    let script = "git init -q ../origin && cd ../origin && echo a > a.txt && git add -A && \
        git -c user.name=a -c user.email=a@b commit -qm one && cd ../w && git init -q && \
        git remote add origin ../origin && git pull -q origin HEAD";
    world.script(script).ends().is(0);
    for _ in 0..3 {
        let answer = uses(&world, "write");
        assert!(answer.starts_with("exit 0"), "{answer}");
    }
    // A forged ledger. git replaces the ignored file without asking.
    fs::create_dir(origin.join(".tollgate")).unwrap();
    fs::write(origin.join(".tollgate/ledger.jsonl"), "{}\n").unwrap();
    let script = "cd ../origin && git add -Af && git -c user.name=a -c user.email=a@b commit -qm two && \
        cd ../w && git checkout -q -f a.txt && git pull -q origin HEAD";
    world.script(script).ends().is(0);
    world.holds(".tollgate/ledger.jsonl", "{}\n");
    for door in DOORS {
        let answer = uses(&world, door);
        assert!(answer.contains("git tracks"), "{door}: {answer}");
    }
    world.holds(".tollgate/ledger.jsonl", "{}\n");
}

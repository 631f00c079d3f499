//! What a command in a run reaches: files, through the guard. Not the state of tollgate, not the tasks, not decisions.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::world::{Ran, World};

const ROLES: &str = "[guard]\ndurability = \"fast\"\n[vault]\nsettle = \"0ms\"\ndurability = \"fast\"\n\
                     approve_by_move = true\n\
                     [agent.cloud]\nsensitive = [\"payment\"]\n[agent.local]\nallowed = [\"payment\"]\n";

pub(super) const LEVELS: [&str; 2] = ["transaction", "gate"];

/// A git repository in which `rent` waits for a person.
pub(super) fn pending() -> World {
    let world = World::with(ROLES);
    world.script("git init -q").ends().is(0);
    world.run("init --vault").is(0);
    world.run("task add Rent --action payment").is(0);
    let id = world.json("task claim rent --agent cloud")["claim_id"].as_str().unwrap().to_owned();
    world.tollgate(["task", "draft", "rent", "--claim-id", &id, "pay 900"]).ends().is(0);
    world.run(&format!("task release rent --claim-id {id}")).is(0);
    world
}

pub(super) fn run_as_agent(world: &World, level: &str, script: &str) -> Ran {
    let words = ["run", "--agent", "cloud", "--mode", level, "--", "bash", "-c", script];
    world.tollgate(words).everywhere().ends()
}

/// Nobody has decided, and the agent that may execute the action gets nothing.
#[track_caller]
pub(super) fn nobody_decided(world: &World, how: &str) {
    let claimed = world.run("task claim --next --agent local");
    assert!(format!("{claimed}").starts_with("exit 1"), "{how}: {claimed}");
    let task = world.path("vault/Pending_Approval/rent.md");
    let text = fs::read_to_string(task).unwrap_or_else(|error| panic!("{how}: {error}"));
    assert!(text.contains("pay 900") && !text.contains("pay 9000"), "{how}: {text}");
    let approved = world.json("ledger tail --type APPROVAL");
    assert_eq!(approved.as_array().unwrap().len(), 0, "{how}: {approved}");
}

/// What an agent might write to have its own draft executed.
const DECISIONS: [&str; 20] = [
    "mv vault/Pending_Approval/rent.md vault/Approved/",
    "cp vault/Pending_Approval/rent.md vault/Approved/; rm vault/Pending_Approval/rent.md",
    "ln vault/Pending_Approval/rent.md vault/Approved/rent.md; rm vault/Pending_Approval/rent.md",
    "cd vault && python3 -c 'import os; os.rename(\"Pending_Approval/rent.md\", \"Approved/rent.md\")'",
    "cd /proc/self/cwd/vault/Approved && mv ../Pending_Approval/rent.md .",
    "sed -i s/900/9000/ vault/Pending_Approval/rent.md; mv vault/Pending_Approval/rent.md vault/Approved/",
    "mv vault/Approved vault/A; mv vault/Pending_Approval vault/Approved",
    "mv vault v2; mv v2/Pending_Approval/rent.md v2/Approved/; mv v2 vault",
    "mv vault v2; mv v2/Pending_Approval/rent.md v2/Approved/; ln -s v2 vault",
    "cp -r vault v2; mv v2/Pending_Approval/rent.md v2/Approved/; rm -rf vault; ln -s v2 vault",
    "ln -s Pending_Approval vault/p; mv vault/p/rent.md vault/Approved/rent.md",
    "rmdir vault/Approved; ln -s Pending_Approval vault/Approved",
    "perl -e 'rename \"vault/Pending_Approval/rent.md\", \"vault/Approved/rent.md\"'",
    "echo '[vault]\ndir = \"v2\"' > .tollgate/config.toml; cp -r vault v2; mv v2/Pending_Approval/rent.md v2/Approved/",
    "for f in vault/.tollgate/vault/logs/*; do sed -i s/Pending_Approval/Approved/g $f; done; mv vault/Pending_Approval/rent.md vault/Approved/",
    "mv .tollgate .t; mv vault/Pending_Approval/rent.md vault/Approved/; mv .t .tollgate",
    "rm -rf .tollgate vault/.tollgate; mv vault/Pending_Approval/rent.md vault/Approved/",
    "git add -f vault/Pending_Approval; git mv vault/Pending_Approval/rent.md vault/Approved/rent.md",
    "install -D vault/Pending_Approval/rent.md vault/Approved/rent.md; unlink vault/Pending_Approval/rent.md",
    "tar c vault | (mkdir t; cd t; tar x); mv t/vault/Pending_Approval/rent.md t/vault/Approved/; cp -r t/vault .",
];

#[test]
fn no_command_moves_a_draft_to_where_it_is_executed() {
    for level in LEVELS {
        for script in DECISIONS {
            let world = pending();
            run_as_agent(&world, level, script);
            nobody_decided(&world, &format!("{level}: {script}"));
        }
    }
}

/// A command that only people run, with a terminal and an answer, and with everything that names the agent removed.
#[test]
fn nobody_decides_in_a_run_whatever_the_text_of_the_command_is() {
    for level in LEVELS {
        let world = pending();
        for call in [
            "script -qec 'tollgate task approve rent' /dev/null",
            "a=(tollgate task); v=ap; script -qec \"${a[*]} ${v}prove rent\" /dev/null",
            "read -ra w <<< 'tollgate task approve rent'; script -qec \"${w[*]}\" /dev/null",
            "cp \"$(command -v tollgate)\" ../t; script -qec '../t task approve rent' /dev/null",
            "env -i PATH=\"$PATH\" HOME=\"$HOME\" XDG_STATE_HOME=\"$XDG_STATE_HOME\" script -qec 'tollgate task approve rent' /dev/null",
            "echo 'tollgate task approve rent' > s; script -qec 'bash ./s' /dev/null",
            "git -c alias.x='!script -qec \"tollgate task approve rent\" /dev/null' x",
            "TOLLGATE_RUN= TOLLGATE_RUN_FOLDER= TOLLGATE_CARRIED= script -qec 'tollgate task approve rent' /dev/null",
            "setsid script -qec 'tollgate task approve rent' /dev/null",
            "unshare -m script -qec 'tollgate task approve rent' /dev/null",
        ] {
            let answer =
                format!("{{ for i in 1 2 3 4 5 6; do echo yes; sleep 0.05; done; }} | {{ {call}; }}");
            let ran = run_as_agent(&world, level, &answer);
            assert!(!format!("{ran}").contains("approved by"), "{level}: {ran}");
            nobody_decided(&world, &format!("{level}: {call}"));
        }
        let ran =
            run_as_agent(&world, level, "script -qec 'tollgate task approve rent' /dev/null < /dev/null");
        assert!(format!("{ran}").contains("this is a command of `tollgate run`"), "{level}: {ran}");
        for call in ["trust", "token add x", "init --vault", "serve", "vault copy --to folder"] {
            let ran = run_as_agent(&world, level, &format!("tollgate {call}")).is(2);
            assert!(ran.stderr().contains("does not work inside `tollgate run`"), "{level}: {ran}");
        }
    }
}

/// Runs a program under a filter of its own: `python3 -c HIDE PREPARATION ACTION PROGRAM…`. The filter answers every operation of
/// `prctl` that no kernel has, and so the question whether a process is in a run.
const HIDE: &str = r#"
import ctypes, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
code = b"".join(struct.pack("HBBI", *instruction) for instruction in [
    (0x20, 0, 0, 0),                     # the number of the call
    (0x15, 0, 3, number),
    (0x20, 0, 0, 16),                    # its first argument
    (0x35, 0, 1, 0x60000000),
    (0x06, 0, 0, int(sys.argv[2], 16)),
    (0x06, 0, 0, 0x7FFF0000),
])
buffer = ctypes.create_string_buffer(code)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(len(code) // 8, ctypes.addressof(buffer))
zero = ctypes.c_ulong(0)
assert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0
assert libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(program), zero, zero) == 0
if sys.argv[1] == "ignore":
    signal.signal(signal.SIGSYS, signal.SIG_IGN)
if sys.argv[1] == "block":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSYS])
os.execvp(sys.argv[3], sys.argv[3:])
"#;

/// Answers of such a filter: errors (none, `ENOSYS`, and those of a run without a door), a tracer, to log, to allow, and a signal.
const ANSWERS: [&str; 8] = [
    "0x00050000",
    "0x00050026",
    "0x00050bb9",
    "0x00050bbb",
    "0x7ff00000",
    "0x7ffc0000",
    "0x7fff0000",
    "0x00030001",
];

/// A filter of the command hides from no `tollgate` that it is in a run, nor that it must call at the door.
#[test]
fn nobody_decides_under_a_filter_of_their_own() {
    for level in LEVELS {
        let (world, other) = (pending(), World::with(ROLES));
        other.run("init --vault").is(0);
        other.run("task add One").is(0);
        for world in [&world, &other] {
            fs::write(world.tmp().join("hide.py"), HIDE).unwrap();
        }
        for (preparation, action) in ANSWERS
            .map(|action| ("none", action))
            .into_iter()
            .chain([("ignore", ANSWERS[0]), ("block", ANSWERS[0])])
        {
            let how = format!("{level}: {preparation} {action}");
            let hidden = format!("python3 ../hide.py {preparation} {action}");
            let decide = "script -qec 'tollgate task approve rent' /dev/null";
            let answer = format!("{{ sleep 0.2; echo yes; }} | {hidden} {decide}");
            let ran = run_as_agent(&world, level, &answer);
            assert!(format!("{ran}").contains("this is a command of `tollgate run`"), "{how}: {ran}");
            nobody_decided(&world, &how);
            let claim = format!("TOLLGATE_RUN_FOLDER=/nowhere {hidden} tollgate task claim one --agent red");
            let ran = run_as_agent(&other, level, &claim).is(2);
            assert!(ran.stderr().contains("cannot be reached"), "{how}: {ran}");
        }
        // To end the process is the only stricter answer.
        let ended = "python3 ../hide.py none 0x80000000 tollgate task list; test $? = 159";
        run_as_agent(&world, level, ended).is(0);
    }
}

/// Makes a call at the door of the run, as any program in it could: `python3 -c KNOCK ARGUMENTS…`.
const KNOCK: &str = r#"
import array, os, socket, struct, sys
parent = lambda process: open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[1]
front = parent(parent(os.getppid()))
parts = [os.getcwd(), "0"] + [word.replace("FRONT", front) for word in sys.argv[1:]]
text = b"".join(part.encode() + b"\0" for part in parts)
door = socket.socket(socket.AF_UNIX)
folder = os.open(os.environ["TOLLGATE_RUN_FOLDER"], os.O_PATH)
door.connect(f"/proc/self/fd/{folder}/door")
streams = array.array("i", [0, 1, 2])
door.sendmsg([struct.pack("I", len(text))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
door.sendall(text)
sys.exit(door.recv(1)[0])
"#;

/// A program in a run can ask at the door for any call, not only for those that `tollgate` there passes on.
#[test]
fn the_door_carries_out_only_what_tollgate_in_the_run_would_ask_for() {
    let planted = "env -u TOLLGATE_CARRIED -u TOLLGATE_AGENT mv vault/Pending_Approval/rent.md vault/Approved/; \
                   echo x > .tollgate/planted";
    let calls: [&[&str]; 9] = [
        &["run", "--mode", "observe", "--", "sh", "-c", planted],
        &["--json", "run", "--", "sh", "-c", planted],
        &["launch", "FRONT", "--", "sh", "-c", planted],
        &["work", "--once", "--agent", "cloud", "--", "sh", "-c", planted],
        &["init", "--host", "codex"],
        &["trust", "--yes"],
        &["export", "--to", "ndjson", "--out", ".tollgate/planted"],
        &["man", ".tollgate/planted"],
        &["write", "planted"],
    ];
    for level in LEVELS {
        for call in calls {
            let world = pending();
            fs::write(world.tmp().join("knock.py"), KNOCK).unwrap();
            let words: Vec<String> = call.iter().map(|word| format!("'{word}'")).collect();
            let script = format!("echo x | python3 ../knock.py {}", words.join(" "));
            let ran = run_as_agent(&world, level, &script);
            assert_ne!(ran.code(), Some(0), "{level}: {call:?}: {ran}");
            nobody_decided(&world, &format!("{level}: {call:?}"));
            for name in [".tollgate/planted", "planted", ".codex"] {
                assert!(!world.path(name).exists(), "{level}: {call:?}: {ran}");
            }
        }
        let world = pending();
        fs::write(world.tmp().join("knock.py"), KNOCK).unwrap();
        let ran = run_as_agent(&world, level, "python3 ../knock.py task list").is(0);
        assert!(ran.stdout().contains("rent"), "{level}: {ran}");
    }
}

/// Everything below a folder, with its bytes.
fn bytes_below(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => bytes_below(&entry.path(), found),
            false => {
                let bytes = fs::read(entry.path()).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                found.insert(entry.path().display().to_string(), text);
            }
        }
    }
}

#[test]
fn a_command_changes_nothing_in_the_state_of_tollgate() {
    for level in LEVELS {
        let world = pending();
        world.puts("f", "one\n");
        world.tollgate(["write", "f"]).stdin("two\n").ends().is(0);
        world.script("mkdir -p ../state/tollgate/trusted ../home/.config/tollgate").ends().is(0);
        let state = || {
            let mut found = BTreeMap::new();
            for folder in [world.path(".tollgate"), world.path("vault/.tollgate")] {
                bytes_below(&folder, &mut found);
            }
            for folder in ["state/tollgate", "home/.config/tollgate"] {
                bytes_below(&world.tmp().join(folder), &mut found);
            }
            let own = ["/runs/", "/locks/", "ledger", "/heads/", "/history/turns/"];
            found.retain(|name, _| !own.iter().any(|own| name.contains(own)));
            // tollgate itself moves a replaced file there, after a while.
            let settled =
                |(name, text): (String, String)| (name.replace("/stage/", "/history/replaced/"), text);
            found.into_iter().map(settled).collect::<BTreeMap<_, _>>()
        };
        let before = state();
        assert!(before.keys().any(|name| name.contains("history/replaced")));
        for script in [
            "rm -rf .tollgate",
            "rm -rf .tollgate/history .tollgate/stage",
            "find .tollgate vault/.tollgate -type f -exec sh -c 'echo x >> \"$1\"' _ {} \\;",
            "mkdir .tollgate/new; echo x > .tollgate/new/x",
            "ln -s /no/where .tollgate/x; ln .tollgate/version .tollgate/y",
            "ln -s $PWD/.tollgate/config.toml x; ln -L x y; echo mode = off >> y",
            "python3 -c 'import os\nfd = os.open(\".tollgate/config.toml\", os.O_RDONLY)\nos.link(f\"/proc/self/fd/{fd}\", \"y\", src_dir_fd=os.open(\"/\", 0))\nopen(\"y\", \"a\").write(\"x\")'",
            "python3 -c 'import os,glob\nfor f in glob.glob(\".tollgate/**\", recursive=True): os.utime(f); os.chmod(f, 0o777)'",
            "echo mode = off >> .tollgate/config.toml; cp /dev/null .tollgate/config.toml; rm .tollgate/config.toml",
            "echo x > ../state/tollgate/trusted/x; echo x > ../home/.config/tollgate/config.toml",
            "mv .tollgate t; mv vault/.tollgate t2",
        ] {
            run_as_agent(&world, level, script);
            assert_eq!(state(), before, "{level}: {script}");
        }
        assert!(world.path(".tollgate/config.toml").exists());
    }
}

/// The user's own files that switch hooks off, in every workspace.
const OWN_SETTINGS: [&str; 20] = [
    ".claude/settings.json",
    ".codex/config.toml",
    ".codex/hooks.json",
    ".copilot/settings.json",
    ".copilot/mcp-config.json",
    ".cursor/hooks.json",
    ".cursor/mcp.json",
    ".gemini/settings.json",
    ".gemini/.env",
    ".gemini/mcp-server-enablement.json",
    ".config/opencode/opencode.json",
    ".config/opencode/opencode.jsonc",
    ".config/opencode/config.json",
    ".config/kilo/kilo.json",
    ".config/kilo/kilo.jsonc",
    ".config/kilo/opencode.json",
    ".config/kilo/opencode.jsonc",
    ".config/kilo/config.json",
    ".qwen/settings.json",
    ".qwen/.env",
];

/// The settings of all programs in the user's home, and the user's configuration of git. `linked`: two of them are behind links.
fn with_settings(linked: bool) -> World {
    let world = World::new();
    let home = world.tmp().join("home");
    if linked {
        fs::create_dir_all(home.join("dotfiles/copilot")).unwrap();
        symlink("dotfiles/copilot", home.join(".copilot")).unwrap();
        fs::create_dir(home.join(".gemini")).unwrap();
        symlink("../dotfiles/settings.json", home.join(".gemini/settings.json")).unwrap();
    }
    for file in OWN_SETTINGS.into_iter().chain([".config/git/config"]) {
        fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        fs::write(home.join(file), "# mine\n").unwrap();
    }
    world
}

#[test]
fn a_command_does_not_change_the_settings_of_agent_programs_in_the_home() {
    for level in LEVELS {
        // In a transaction, only what a link leads to is closed.
        let world = with_settings(level == "gate");
        let home = world.tmp().join("home");
        for file in OWN_SETTINGS.into_iter().chain([".config/git/config"]) {
            let folder = Path::new(file).parent().unwrap().display();
            for script in [
                "echo x > F",
                "echo x >> F",
                "sed -i s/mine/x/ F",
                "echo x > t; mv t F",
                "rm F; echo x > F",
                "mv F t; echo x > F",
                "ln F t; echo x > t",
                "ln -sf /no/where F",
                "python3 -c 'import os; os.truncate(\"F\", 0)'",
                "chmod 777 F",
                "mv D t; mkdir -p D; echo x > F",
                "cp -r D t; echo x > t/$(basename F); mv D u; mv t D",
                "mkdir t; echo x > t/$(basename F); mv D u; ln -s $PWD/t D",
            ] {
                let script = script.replace('F', file).replace('D', &folder.to_string());
                let ran = run_as_agent(&world, level, &format!("cd; {script}"));
                let found = fs::read_to_string(home.join(file));
                assert_eq!(found.ok().as_deref(), Some("# mine\n"), "{level}: {script}: {ran}");
                let mode = fs::metadata(home.join(file)).unwrap().permissions().mode();
                assert_eq!(mode & 0o022, 0, "{level}: {script}: {ran}");
                world.script("cd && rm -rf t u").ends().is(0);
            }
        }
        let ran = run_as_agent(&world, level, "mv ~/.config ~/c");
        assert!(home.join(".config/opencode/opencode.json").exists(), "{level}: {ran}");
    }
}

/// In a transaction, nothing can be closed that does not exist.
#[test]
fn the_gate_also_closes_settings_in_the_home_that_do_not_exist() {
    for file in OWN_SETTINGS {
        let world = World::new();
        let home = world.tmp().join("home");
        let folder = Path::new(file).parent().unwrap().display().to_string();
        for script in [
            "mkdir -p D; echo x > F",
            "mkdir -p D; touch F",
            "mkdir -p D; echo x > t; ln t F",
            "mkdir -p D; echo x > t; mv t F",
            "rm -rf D; mkdir t; echo x > t/$(basename F); mv t D",
            "rm -rf D; mkdir -p t; echo x > t/$(basename F); ln -s $PWD/t D",
            "mkdir -p D; rmdir D; echo x > t2; cp -rT t D; ln -s t2 F",
        ] {
            let script = script.replace('F', file).replace('D', &folder);
            let ran = run_as_agent(&world, "gate", &format!("cd; {script}"));
            assert!(fs::symlink_metadata(home.join(file)).is_err(), "{script}: {ran}");
            world.script("cd && rm -rf t t2").ends().is(0);
        }
    }
}

/// Agreements and tokens are in a folder that no command replaces by one with others.
#[test]
fn a_command_does_not_replace_the_folders_above_those_of_tollgate() {
    for level in LEVELS {
        let world = World::new();
        let state = world.tmp().join("home/.local/state");
        fs::create_dir_all(state.join("tollgate")).unwrap();
        fs::write(state.join("tollgate/mine"), "mine").unwrap();
        for script in
            ["mv .local/state x", "mv .local x", "mv .local/state/tollgate x", "rm -rf .local/state"]
        {
            let script = format!("cd; {script}");
            let run = ["run", "--agent", "blue", "--mode", level, "--", "sh", "-c", &script];
            let ran = world.tollgate(run).env("XDG_STATE_HOME", &state).ends();
            let found = fs::read_to_string(state.join("tollgate/mine"));
            assert_eq!(found.ok().as_deref(), Some("mine"), "{level}: {script}: {ran}");
        }
    }
}

/// A program that runs as a whole in a run keeps its sessions, logins and caches in the user's home.
#[test]
fn agent_programs_write_their_other_files_in_the_home() {
    for level in LEVELS {
        for world in [World::new(), with_settings(false), with_settings(true)] {
            let script = "set -e; cd
                for folder in .claude .codex .gemini .cursor .copilot .cline .config/opencode .local/share/opencode; do
                    mkdir -p $folder/sessions/x; chmod 700 $folder
                    echo one > $folder/sessions/x/log; echo two >> $folder/sessions/x/log
                    echo one > $folder/auth.tmp; mv $folder/auth.tmp $folder/auth.json; rm $folder/auth.json
                    mv $folder/sessions/x $folder/sessions/y; rm -r $folder/sessions
                done
                mkdir -p .claude/projects .codex/log .copilot/logs
                echo '{}' > .claude.json.tmp; mv .claude.json.tmp .claude.json; echo '{}' > .claude/history.jsonl
                echo '{}' > .codex/auth.json; echo '{}' > .copilot/config.json; echo '{}' > .cursor/cli-config.json
                echo '{}' > .gemini/oauth_creds.json; ln -s x .claude/link; rm .claude/link";
            run_as_agent(&world, level, script).is(0);
            for file in [".claude.json", ".claude/history.jsonl", ".codex/auth.json", ".copilot/config.json"]
            {
                assert!(world.tmp().join("home").join(file).exists(), "{level}: {file}");
            }
        }
    }
}

/// The layer of another agent's command, which is committed as that agent's when it ends.
#[test]
fn a_command_plants_nothing_in_the_transaction_of_another_agent() {
    let world = World::new();
    world.puts("f", "one\n");
    let ran = world.held(&["--agent", "blue"], &format!("echo mine > f; {}", super::HOLD), || {
        let script =
            "for u in .tollgate/runs/*/upper; do echo planted > $u/planted; echo planted > $u/f; done";
        let words = ["run", "--agent", "red", "--mode", "transaction", "--", "bash", "-c", script];
        world.tollgate(words).everywhere().ends();
    });
    ran.is(0);
    world.holds("f", "mine\n");
    assert!(!world.path("planted").exists());
}

/// An agent tells git to ignore the folder in which its program looks for hooks.
#[test]
fn an_ignored_folder_with_a_protected_name_is_guarded_like_others() {
    for level in LEVELS {
        for prepare in ["true", "mkdir .claude", "mkdir .claude; echo '{}' > .claude/settings.json"] {
            let world = World::new();
            world.script(&format!("git init -q && {prepare}")).ends().is(0);
            let settings = fs::read(world.path(".claude/settings.json")).ok();
            run_as_agent(&world, level, "echo .claude >> .gitignore; echo .claude >> .git/info/exclude")
                .is(0);
            for script in [
                "mkdir -p .claude && echo '{\"disableAllHooks\":true}' > .claude/settings.json",
                "mkdir -p x/.. && python3 -c 'import os; os.makedirs(\".claude\", exist_ok=True); open(\".claude/settings.json\", \"w\").write(\"x\")'",
                "mkdir -p build/c && echo x > build/c/settings.json && rm -rf .claude && ln -s build/c .claude",
                "mkdir -p t && echo x > t/settings.json && rm -rf .claude && mv t .claude",
            ] {
                let ran = run_as_agent(&world, level, script);
                let found = fs::read(world.path(".claude/settings.json")).ok();
                assert_eq!(found, settings, "{level}, {prepare}: {script}: {ran}");
                assert!(!world.path(".claude").is_symlink(), "{level}, {prepare}: {script}");
            }
        }
    }
}

#[test]
fn a_protected_folder_cannot_be_passed_through() {
    let world = World::new();
    world.script("git init -q && mkdir -p .claude build").ends().is(0);
    for folder in [".claude", ".git", ".tollgate"] {
        let ran = world.tollgate(["run", "--pass", folder, "--", "true"]).ends().is(125);
        assert!(ran.stderr().contains("cannot be passed through"), "{ran}");
    }
    world.tollgate(["run", "--pass", "build", "--", "touch", "build/x"]).ends().is(0);
}

/// An agent works on its tasks by `tollgate` in its shell: claim, read, note, draft, release, and adding new ones.
#[test]
fn the_everyday_work_on_tasks_goes_on_inside_a_run() {
    for level in LEVELS {
        let world = World::with(ROLES);
        world.run("init --vault").is(0);
        world.run("task add One").is(0);
        world.run("task add Pay --action payment").is(0);
        let script = r#"set -e
            mkdir -p only/here && cd only/here
            id=$(tollgate task claim one --agent cloud --json | sed 's/.*"claim_id":"\([^"]*\)".*/\1/')
            cd ../..
            grep -q cloud vault/In_Progress/cloud/one.md
            echo 'a note by hand' >> vault/In_Progress/cloud/one.md
            tollgate task progress one --claim-id $id 'half done'
            echo text from a pipe | tollgate task add Two --body -
            TOLLGATE_CLAIM_ID=$id tollgate task release one
            pay=$(tollgate task claim pay --json | sed 's/.*"claim_id":"\([^"]*\)".*/\1/')
            tollgate task draft pay --claim-id $pay 'pay 900'
            python3 -c 'import subprocess,sys; sys.exit(subprocess.run(["tollgate","task","release","pay","--claim-id",sys.argv[1]]).returncode)' $pay
            echo '# Three' > vault/Needs_Action/three.md
            tollgate status > /dev/null || true
            tollgate task show two | grep 'text from a pipe'
            exit 7"#;
        run_as_agent(&world, level, script).is(7);
        let done = fs::read_to_string(world.path("vault/Done/one.md")).unwrap();
        assert!(done.contains("a note by hand") && done.contains("half done"), "{level}: {done}");
        for there in ["Needs_Action/two.md", "Pending_Approval/pay.md", "Needs_Action/three.md"] {
            assert!(world.path("vault").join(there).exists(), "{level}: {there}");
        }
    }
}

#[test]
fn a_command_acts_under_the_name_of_its_agent_only() {
    for level in LEVELS {
        let world = World::with(ROLES);
        world.run("init --vault").is(0);
        world.run("task add One").is(0);
        for script in [
            "tollgate task claim one --agent red",
            "TOLLGATE_CARRIED=red tollgate task claim one --agent red",
        ] {
            let ran = run_as_agent(&world, level, script).is(2);
            assert!(ran.stderr().contains("this command runs for `cloud`"), "{level}: {ran}");
        }
        for script in [
            "TOLLGATE_RUN_FOLDER=/nowhere tollgate task claim one --agent red",
            "TOLLGATE_RUN_FOLDER=$PWD TOLLGATE_AGENT=red tollgate task claim one",
            "env -u TOLLGATE_RUN_FOLDER tollgate task claim one --agent red",
        ] {
            let ran = run_as_agent(&world, level, script).is(2);
            assert!(ran.stderr().contains("cannot be reached"), "{level}: {script}: {ran}");
        }
        run_as_agent(&world, level, "TOLLGATE_AGENT=red tollgate task claim one").is(0);
        assert!(world.path("vault/In_Progress/cloud/one.md").exists(), "{level}");
    }
}

/// The door of another agent's run is in the same folder.
#[test]
fn a_command_does_not_call_at_the_door_of_another_agent() {
    for level in LEVELS {
        let world = World::with(ROLES);
        world.run("init --vault").is(0);
        world.run("task add One").is(0);
        let mut waits = false;
        let ran = world.held(&["--agent", "blue"], &format!("{}; tollgate task list", super::HOLD), || {
            let script = "for run in \"$PWD\"/.tollgate/runs/*/; do [ $run = $TOLLGATE_RUN_FOLDER/ ] || \
                TOLLGATE_RUN_FOLDER=$run tollgate task claim one; done";
            let words = ["run", "--agent", "red", "--mode", level, "--", "bash", "-c", script];
            world.tollgate(words).everywhere().ends();
            waits = world.path("vault/Needs_Action/one.md").exists();
        });
        assert!(waits, "{level}");
        assert!(ran.is(0).stdout().contains("one"));
    }
}

/// A variable says nothing: an agent's program may take it from a file in the workspace.
#[test]
fn a_variable_does_not_switch_the_guard_off() {
    let world = World::new();
    world.puts("f", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read f --turn {turn}")).is(0);
    world.puts("f", "theirs\n");
    for level in LEVELS {
        let words = ["run", "--turn", &turn, "--mode", level, "--", "sh", "-c", "echo mine > f"];
        world.tollgate(words).env("TOLLGATE_RUN", level).ends().is(75);
        world.holds("f", "theirs\n");
    }
    let agent = crate::hook::Program::new(&world, "codex", "s1");
    let agent = agent.started_with(vec![("TOLLGATE_RUN", "gate".to_owned())]);
    agent.reads("f");
    world.puts("f", "again\n");
    agent.writes("f", "mine\n").refused("STALE_FILE");
}

//! Shell commands that run through `tollgate run`: a simulated program runs what the hook answers, with bash.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::places::{asked, from};
use super::{Program, Tool, form};
use crate::world::{Ran, World, until};

/// The programs whose commands can be changed.
pub(super) const HOSTS: [&str; 7] =
    ["claude-code", "codex", "gemini", "opencode", "copilot", "cline", "kilo"];

pub(crate) const SETTINGS: &str =
    "[guard]\nunread = \"known\"\ndurability = \"fast\"\n[run]\nshell = \"transaction\"\n";

/// What came of a command.
#[derive(Debug)]
pub(crate) enum Command {
    /// The hook blocked it for this reason.
    Blocked(String),
    /// It ran.
    Ran(Ran),
}

impl Command {
    /// What the model was told.
    pub(crate) fn said(&self) -> String {
        match self {
            Self::Blocked(reason) => reason.clone(),
            Self::Ran(ran) => ran.stdout() + &ran.stderr(),
        }
    }
}

/// Where the answer of a host has the changed commands.
pub(super) fn changed(host: &str, answer: &Value) -> Option<String> {
    let input = match form(host) {
        "claude-code" | "codex" => &answer["hookSpecificOutput"]["updatedInput"],
        "gemini" => &answer["hookSpecificOutput"]["tool_input"],
        "opencode" => &answer["args"],
        "copilot" => &answer["modifiedArgs"],
        _ => &answer["overrideInput"],
    };
    let command = input.get("command").or(input["commands"].get(0))?;
    Some(command.as_str()?.to_owned()).filter(|command| command.starts_with(". /"))
}

/// Runs a command as a program with hooks does.
pub(super) fn runs(program: &Program<'_>, command: &str) -> Command {
    runs_in(program, &program.world.root(), command)
}

/// The same for an agent in this folder.
pub(crate) fn runs_in(program: &Program<'_>, folder: &Path, command: &str) -> Command {
    let (world, tool) = (program.world, Tool::Shell(command));
    program.calls.set(program.calls.get() + 1);
    let call = format!("run-{}", program.calls.get());
    let before = from(program.before(&tool, &call), folder);
    let answer = program.hook(&before);
    if let Some(reason) = program.blocks(&answer) {
        return Command::Blocked(reason);
    }
    if !answer.stdout().is_empty()
        && let Some(text) = changed(program.host, &answer.json())
    {
        let (line, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, command);
        let ran = world.script(&text).folder(folder).ends();
        let mut after = from(program.after(&tool, &call, &(ran.stdout() + &ran.stderr())), folder);
        // Programs report the command that they ran.
        put_command(&mut after, command, &text);
        program.ends(&after);
        let file = line.split(' ').nth(1).unwrap();
        assert!(!fs::exists(file).unwrap(), "the prologue is left");
        return Command::Ran(ran);
    }
    // Only its text was read.
    let ran = world.script(command).folder(folder).ends();
    program.ends(&from(program.after(&tool, &call, &(ran.stdout() + &ran.stderr())), folder));
    Command::Ran(ran)
}

/// Replaces a text in JSON.
fn put_command(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) if text == old => *text = new.to_owned(),
        Value::Array(list) => list.iter_mut().for_each(|value| put_command(value, old, new)),
        Value::Object(map) => map.values_mut().for_each(|value| put_command(value, old, new)),
        _ => {}
    }
}

/// A repository with a file `f`, and everything that the commands below need. It is made once, and copied.
pub(super) fn repository(settings: &str) -> World {
    static MADE: LazyLock<World> = LazyLock::new(make_repository);
    let world = World::with(settings);
    let from = MADE.root();
    world.script(&format!("cp -a '{0}'/[!.]* '{0}/.git' '{0}/.gitignore' .", from.display())).ends().is(0);
    world
}

fn make_repository() -> World {
    let world = World::with("");
    let files = [
        ("f", "one\ntwo\n"),
        ("mine", "mine\n"),
        ("d/f", "mine\n"),
        ("fix.sh", "echo mine > f\n"),
        ("fix.py", "import pathlib\npathlib.Path('f').write_text('mine\\n')\n"),
        ("edit.py", "t = open('f').read()\nopen('f', 'w').write(t.replace('one', 'mine'))\n"),
        ("Makefile", "all:\n\techo mine > f\n"),
        ("p.patch", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+mine\n"),
        (".gitignore", ".tollgate/\n"),
    ];
    for (file, text) in files {
        world.puts(file, text);
    }
    let set_up = "git init -q . && git config user.name a && git config user.email a@b && chmod +x fix.sh && cd d && tar cf ../mine.tar f && zip -q ../mine.zip f && cd .. && git add -A && git commit -qm one";
    world.script(set_up).ends().is(0);
    world
}

/// What a foreign program writes into `f` after the agent has read it. Every patch still applies to it.
const FOREIGN: &str = "one\nforeign\n";

/// Commands that change `f`, and of which no parser could tell that they do.
const HOLE: &[&str] = &[
    "python3 -c \"open('f', 'w').write('mine\\n')\"",
    "python3 -c \"import os; os.remove('f')\"",
    "python3 -c \"import os; os.rename('mine', 'f')\"",
    "python3 -c \"t = open('f').read(); open('f', 'w').write(t.replace('one', 'mine'))\"",
    "python3 -c \"f = open('f', 'r+'); f.write('ONE')\"",
    "python3 -c \"import mmap; f = open('f', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:3] = b'ONE'; m.flush()\"",
    "python3 fix.py",
    "python3 edit.py",
    "python3 <<'END'\nopen('f', 'w').write('mine\\n')\nEND",
    "node -e \"require('fs').writeFileSync('f', 'mine\\n')\"",
    "perl -e 'open(F, \">\", \"f\"); print F \"mine\\n\"'",
    "perl -e 'unlink \"f\"'",
    "./fix.sh",
    "sh fix.sh",
    "source fix.sh",
    ". ./fix.sh",
    "make -s",
    "echo 'echo mine > f' | sh",
    "sh <<< 'echo mine > f'",
    "exec 3> >(cat > f); echo mine >&3; exec 3>&-; wait $!",
    "echo f | xargs cp mine",
    "find . -name f -path ./f -exec cp mine {} \\;",
    "export T=f; sh -c 'echo mine > \"$T\"'",
    "a=f; b=a; echo mine > \"${!b}\"",
    "echo mine > \"$(echo f)\"",
    "shopt -s expand_aliases\nalias w='tee f'\necho mine | w",
    "w() { echo mine > \"$1\"; }; w f",
    "git reset -q --hard HEAD",
    "git stash -q",
    "git apply --unidiff-zero p.patch",
    "patch -s -p1 < p.patch",
    "cp --target-directory=. d/f",
    "sed -n 'w f' mine",
    "printf '%s\\n' '1s/one/mine/' w q | ed -s f",
    "ex -sc '1s/one/mine/|x' f",
    "awk '{print > \"f\"}' mine",
    "sort -o f mine",
    "curl -s -o f \"file://$PWD/mine\"",
    "tar xf mine.tar",
    "unzip -oq mine.zip",
    "ln -s f l; echo mine > l",
    "trap 'echo mine > f' EXIT",
    "BASH_ENV=./fix.sh bash -c true",
    "echo mine 1<>f",
    "eval \"$(printf 'echo mine > %s' f)\"",
    "(cd d && echo mine > ../f)",
    "bash -c \"$(cat fix.sh)\"",
    "env -i /bin/sh -c 'echo mine > f'",
    "nice python3 fix.py & wait",
    "truncate -s 0 \"$(ls f)\"",
];

fn text(world: &World) -> Option<String> {
    fs::read_to_string(world.path("f")).ok()
}

/// Each command is run on a stale file without tollgate, on a stale file with it, and on an unchanged file with it.
fn close_the_hole(hosts: [&'static str; 3]) {
    let ours = HOLE.iter().enumerate().filter(|(at, _)| hosts.contains(&HOSTS[at % HOSTS.len()]));
    let mut wrong = Vec::new();
    for (at, command) in ours {
        let host = HOSTS[at % HOSTS.len()];
        let control = repository("");
        control.puts("f", FOREIGN);
        control.script(command).ends();
        if text(&control).as_deref() == Some(FOREIGN) {
            wrong.push(format!("`{command}` does not even change the file without tollgate"));
        }

        let stale = repository(SETTINGS);
        let agent = Program::new(&stale, host, "s");
        runs(&agent, "cat f");
        stale.puts("f", FOREIGN);
        let came = runs(&agent, command);
        if text(&stale).as_deref() != Some(FOREIGN) || !came.said().contains("STALE_FILE") {
            wrong.push(format!("{host}: `{command}` on a stale file: {:?}, {}", text(&stale), came.said()));
        }
        if let Command::Ran(ran) = &came
            && ran.code() != Some(75)
        {
            wrong.push(format!("{host}: `{command}` ended with {ran}"));
        }

        let (fresh, native) = (repository(SETTINGS), repository(""));
        let agent = Program::new(&fresh, host, "s");
        runs(&agent, "cat f");
        let came = runs(&agent, command);
        native.script(command).ends();
        if text(&fresh) != text(&native) || came.said().contains("error_type") {
            wrong.push(format!(
                "{host}: `{command}` on an unchanged file: {:?}, {}",
                text(&fresh),
                came.said()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_that_no_parser_sees_lose_nothing_in_claude_code_codex_and_gemini() {
    close_the_hole(["claude-code", "codex", "gemini"]);
}

#[test]
fn commands_that_no_parser_sees_lose_nothing_in_opencode_copilot_and_cline() {
    close_the_hole(["opencode", "copilot", "cline"]);
}

#[test]
fn a_command_that_the_parser_knows_to_be_stale_does_not_run() {
    for host in HOSTS {
        let world = repository(SETTINGS);
        let agent = Program::new(&world, host, "s");
        runs(&agent, "cat f");
        world.puts("f", FOREIGN);
        let came = runs(&agent, "touch ran; echo mine > f");
        assert!(
            matches!(&came, Command::Blocked(reason) if reason.contains("STALE_FILE")),
            "{host}: {came:?}"
        );
        assert!(!world.path("ran").exists());
        // The agent reads again, and the same command runs.
        runs(&agent, "cat f");
        let came = runs(&agent, "touch ran; echo mine > f");
        assert!(matches!(&came, Command::Ran(ran) if ran.code() == Some(0)), "{host}: {came:?}");
        world.holds("f", "mine\n");
    }
}

#[test]
fn the_turn_learns_what_a_command_wrote_and_only_what_its_output_shows() {
    for host in HOSTS {
        let world = repository(SETTINGS);
        let agent = Program::new(&world, host, "s");
        // Its own change is no foreign one.
        runs(&agent, "cat f");
        runs(&agent, "python3 fix.py");
        assert!(matches!(runs(&agent, "echo two > f"), Command::Ran(_)), "{host}");
        world.holds("f", "two\n");
        // A command that reads all files does not show them.
        world.puts("f", FOREIGN);
        runs(&agent, "grep -rc no-such-word . | wc -l");
        let came = runs(&agent, "python3 fix.py");
        assert!(came.said().contains("STALE_FILE"), "{host}: {came:?}");
        // This one shows it.
        runs(&agent, "python3 -c \"print(open('f').read())\"");
        let came = runs(&agent, "python3 fix.py");
        assert!(!came.said().contains("STALE_FILE"), "{host}: {came:?}");
        world.holds("f", "mine\n");
    }
}

#[test]
fn no_answer_decides_for_the_person_except_where_the_program_needs_it() {
    for host in HOSTS {
        let world = repository(SETTINGS);
        let agent = Program::new(&world, host, "s");
        let answer = agent.hook(&agent.before(&Tool::Shell("ls"), "c")).json();
        assert_eq!(answer.to_string().contains("allow"), host == "codex", "{host}: {answer}");
        let answer = agent.hook(&agent.before(&Tool::Read("f"), "d"));
        assert!(host == "codex" || answer.stdout().is_empty(), "{host}: only commands run");
    }
    let world = repository(SETTINGS);
    let agent = Program::new(&world, "claude-code", "s");
    let mut before = agent.before(&Tool::Shell("ls"), "c");
    before["tool_input"] = json!({"command": "ls", "description": "d", "timeout": 5});
    let input = agent.hook(&before).json()["hookSpecificOutput"]["updatedInput"].clone();
    assert_eq!((&input["description"], &input["timeout"]), (&json!("d"), &json!(5)), "all fields are kept");
}

/// Nobody would see what a server writes in a transaction before it ends.
#[test]
fn a_command_that_the_program_leaves_running_is_guarded_call_by_call() {
    for (host, field, value, level) in [
        ("claude-code", "run_in_background", json!(true), "gate"),
        ("claude-code", "run_in_background", json!(false), "transaction"),
        ("gemini", "is_background", json!(true), "gate"),
        ("gemini", "is_background", json!(false), "transaction"),
        ("copilot", "mode", json!("async"), "gate"),
        ("copilot", "mode", json!("sync"), "transaction"),
    ] {
        let world = repository(SETTINGS);
        let agent = Program::new(&world, host, "s");
        let mut before = agent.before(&Tool::Shell("echo $TOLLGATE_RUN"), "c");
        let input = if host == "copilot" { "toolArgs" } else { "tool_input" };
        before[input][field] = value.clone();
        let text = changed(host, &agent.hook(&before).json()).unwrap();
        let ran = world.script(&text).ends().is(0);
        assert_eq!(ran.stdout().trim(), level, "{host}, {field}: {value}");
    }
}

/// The line of an earlier prologue that a model repeats, because its program showed it the changed command.
#[test]
fn a_repeated_line_is_replaced() {
    let world = repository(SETTINGS);
    let agent = Program::new(&world, "copilot", "s");
    let old = ". /tmp/tollgate-0/x/hooks/y/prologues/z-0 || exit 74\n";
    let answer = agent.hook(&agent.before(&Tool::Shell(&format!("{old}echo hello")), "c")).json();
    let text = changed("copilot", &answer).unwrap();
    assert!(!text.contains("/x/hooks/y") && text.ends_with("|| exit 74\necho hello"), "{text}");
}

#[test]
fn a_command_cannot_switch_the_guard_off() {
    let world = repository(SETTINGS);
    let agent = Program::new(&world, "codex", "s");
    runs(&agent, "cat f");
    world.puts("f", FOREIGN);
    runs(
        &agent,
        "python3 -c \"open('.tollgate/config.toml', 'a').write('[guard]\\nmode = \\\"off\\\"\\n')\"",
    );
    runs(&agent, "python3 -c \"import os; os.rename('mine', '.tollgate/config.toml')\"");
    assert_eq!(fs::read_to_string(world.path(".tollgate/config.toml")).unwrap(), SETTINGS);
    let came = runs(&agent, "python3 fix.py");
    assert!(came.said().contains("STALE_FILE"), "{came:?}");
    world.holds("f", FOREIGN);
}

#[test]
fn a_command_through_a_path_that_leads_elsewhere_is_refused() {
    for host in HOSTS {
        let world = repository(SETTINGS);
        world.puts("v1/c", "old\n");
        world.puts("v2/c", "foreign\n");
        std::os::unix::fs::symlink("v1", world.path("cur")).unwrap();
        let agent = Program::new(&world, host, "session-1");
        agent.reads("cur/c").reads("f").reads("d/f");
        world
            .script("ln -sfn v2 cur; rm f; ln -s mine f; mv d d1; mkdir d2; cp mine d2/f; ln -s d2 d")
            .ends()
            .is(0);
        for (name, target, text) in
            [("cur/c", "v2/c", "foreign\n"), ("f", "mine", "mine\n"), ("d/f", "d2/f", "mine\n")]
        {
            // The second command looks at what it overwrites, but the agent does not.
            for mode in ["w", "r+"] {
                let ran = runs(&agent, &format!("python3 -c \"open('{name}', '{mode}').write('lost')\""));
                // The same bytes are not a conflict: `d/f` was the same as `mine`.
                if target == "d2/f" {
                    assert!(matches!(&ran, Command::Ran(ran) if ran.code() == Some(0)), "{}", ran.said());
                    break;
                }
                assert!(ran.said().contains("STALE_FILE"), "{host}: {}", ran.said());
                world.holds(target, text);
            }
        }
    }
}

#[test]
fn a_link_that_a_command_made_says_nothing_about_the_file_to_which_it_leads() {
    // Codex CLI writes files by shell commands, too.
    for host in HOSTS.into_iter().filter(|host| *host != "codex") {
        let world = repository(SETTINGS);
        let agent = Program::new(&world, host, "session-1");
        let links = |command: &str| {
            let ran = runs(&agent, command);
            assert!(matches!(&ran, Command::Ran(ran) if ran.code() == Some(0)), "{}", ran.said());
        };
        links("ln -s mine unread");
        agent.writes("unread", "more\n").ran();
        agent.reads("f");
        links("ln -s f l");
        agent.writes("l", "one\n").ran();
        agent.writes("f", "two\n").ran();
        links("python3 -c \"open('l', 'w').write('three'); import os; os.remove('l')\"");
        world.holds("f", "three");
    }
}

#[test]
fn a_workspace_inside_another_takes_no_file_out_of_the_transaction() {
    let kinds = [
        ("a state", "mkdir sub/.tollgate && cp .tollgate/config.toml sub/.tollgate"),
        ("a checkout", "git init -q sub"),
        ("a worktree", "rm -r sub && git worktree add -q sub -b other"),
    ];
    for (kind, set_up) in kinds {
        for (file, read_in, run_in) in ["sub/x", "f"]
            .into_iter()
            .flat_map(|file| [(file, "", ""), (file, "", "sub"), (file, "sub", ""), (file, "sub", "sub")])
        {
            let case = format!("{kind}: `{file}`, read in `{read_in}`, written in `{run_in}`");
            let world = repository(SETTINGS);
            world.puts("sub/x", "old\n");
            world.script(set_up).ends().is(0);
            world.puts(file, "old\n");
            let agent = Program::new(&world, "claude-code", "session-1");
            let (path, folder) = (world.path(file).display().to_string(), world.path(run_in));
            let reads = || {
                let read = Tool::Read(&path);
                asked(&agent, &read, &world.path(read_in)).ran();
                let text = fs::read_to_string(&path).unwrap();
                agent.ends(&from(agent.after(&read, "elsewhere", &text), &world.path(read_in)));
            };
            reads();
            world.puts(file, "foreign\n");
            // A script does not name the file.
            world.puts("write.py", format!("open('{path}', 'w').write('mine')"));
            let command = format!("python3 {}", world.path("write.py").display());
            let ran = runs_in(&agent, &folder, &command);
            assert!(ran.said().contains("STALE_FILE"), "{case}: {}", ran.said());
            world.holds(file, "foreign\n");
            reads();
            let ran = runs_in(&agent, &folder, &command);
            assert!(matches!(&ran, Command::Ran(ran) if ran.code() == Some(0)), "{case}: {}", ran.said());
            world.holds(file, "mine");
            // Every workspace has learned what the command wrote.
            for folder in ["", "sub"] {
                asked(&agent, &Tool::Write(&path, "mine"), &world.path(folder)).ran();
            }
        }
    }
}

#[test]
fn a_save_during_a_refused_command_is_not_the_agents_own_in_an_inner_workspace() {
    let world = repository(SETTINGS);
    world.puts("sub/x", "old\n");
    world.script("git init -q sub").ends().is(0);
    let agent = Program::new(&world, "claude-code", "session-1");
    let (path, sub) = (world.path("sub/x").display().to_string(), world.path("sub"));
    let read = Tool::Read(&path);
    asked(&agent, &read, &sub).ran();
    agent.ends(&from(agent.after(&read, "elsewhere", "old\n"), &sub));
    let [ready, go] = ["ready", "go"].map(|name| world.tmp().join(name));
    // The hook of the inner workspace knows that the command names the file.
    let command = format!(
        "touch {}; until [ -e {} ]; do sleep 0.01; done; python3 -c \"open('x', 'w').write('mine')\"",
        ready.display(),
        go.display()
    );
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the command", || ready.exists().then_some(()));
            fs::write(&path, "foreign\n").unwrap();
            fs::write(&go, "").unwrap();
        });
        runs_in(&agent, &sub, &command)
    });
    assert!(ran.said().contains("STALE_FILE"), "{}", ran.said());
    asked(&agent, &Tool::Write(&path, "mine\n"), &sub).refused("STALE_FILE");
    world.holds("sub/x", "foreign\n");
}

//! Programs with a prefix: all their commands go through `tollgate run --prefixed`, and a hook adds only a comment to a command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::run::{SETTINGS, repository};
use super::{Program, Tool};
use crate::world::{Ran, World};

/// The file that the shells of Gemini CLI read first, as the docs have it.
pub(super) fn start_file() -> &'static str {
    let docs = include_str!("../../../../../docs/internals/hosts.md");
    let line = |line: &&str| line.starts_with("[[ ${BASH_EXECUTION_STRING-}");
    docs.lines().find(line).expect("the docs have the file")
}

/// Gemini CLI with that file.
struct Gemini<'w> {
    world: &'w World,
    file: PathBuf,
    program: Program<'w>,
}

impl<'w> Gemini<'w> {
    fn new(world: &'w World) -> Self {
        let file = world.tmp().join("tollgate.bash");
        fs::write(&file, start_file()).unwrap();
        let variable = vec![("BASH_ENV", file.display().to_string())];
        Self { world, file, program: Program::new(world, "gemini", "s").started_with(variable) }
    }

    /// What the hook makes of a command.
    fn asks(&self, command: &str) -> String {
        let answer = self.program.hook(&self.program.before(&Tool::Shell(command), "c")).json();
        let changed = &answer["hookSpecificOutput"]["tool_input"]["command"];
        changed.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// As Gemini CLI executes a text.
    fn executes(&self, text: &str) -> Ran {
        let wrapped = format!(
            "shopt -u promptvars nullglob extglob nocaseglob dotglob; _bgpids_file=/dev/null\n(\n  \
             trap 'jobs -p > \"$_bgpids_file\"' EXIT\n{text}\n)\n__code=$?\nexit $__code"
        );
        self.world.program("bash", ["-c", &wrapped]).env("BASH_ENV", &self.file).ends()
    }

    fn reports(&self, text: &str, ran: &Ran) {
        self.program.says(&self.program.after(&Tool::Shell(text), "c", &(ran.stdout() + &ran.stderr())));
    }
}

/// The rules of Gemini CLI judge how a text begins, so the comment is at its end.
#[test]
fn a_program_whose_shells_read_a_file_first_runs_a_command_as_a_transaction() {
    let world = repository(SETTINGS);
    let gemini = Gemini::new(&world);
    for command in ["cat f; echo $TOLLGATE_RUN", "cat <<E\nthe text\nE\ncat f; echo $TOLLGATE_RUN"] {
        let text = gemini.asks(command);
        let comment = text.strip_prefix(command).unwrap_or_else(|| panic!("{text}"));
        let file = Path::new(comment.trim_start().strip_prefix("# tollgate: ").unwrap());
        assert!(file.exists(), "{text}");
        let ran = gemini.executes(&text).is(0);
        assert!(ran.stdout().ends_with("one\ntwo\ntransaction\n"), "{ran}");
        gemini.reports(&text, &ran);
        assert!(!file.exists(), "the prologue is left");
    }
    // The turn has learned what was shown.
    world.puts("f", "foreign\n");
    let text = gemini.asks("python3 fix.py");
    let ran = gemini.executes(&text).is(75);
    assert!(ran.stderr().contains("STALE_FILE"), "{ran}");
    world.holds("f", "foreign\n");
    gemini.reports(&text, &ran);
    // A command without a comment, and one whose comment the hook did not write, runs as without the file.
    for text in ["echo $TOLLGATE_RUN plain", "echo $TOLLGATE_RUN plain # tollgate: /etc/passwd"] {
        assert_eq!(gemini.executes(text).is(0).stdout().trim(), "plain", "{text}");
    }
    // What cannot be guarded does not run.
    let text = gemini.asks("python3 edit.py");
    fs::remove_file(text.split("# tollgate: ").nth(1).unwrap()).unwrap();
    let ran = gemini.executes(&text).is(74);
    assert!(ran.stderr().contains("did not run"), "{ran}");
}

/// Gemini CLI takes the text out of `bash -c` and executes it by itself.
#[test]
fn the_comment_stays_in_the_text_that_the_program_takes_out_of_a_shell() {
    let world = repository(SETTINGS);
    let text = Gemini::new(&world).asks("bash -c 'cat f'");
    let inner = text.strip_prefix("bash -c '").and_then(|text| text.strip_suffix('\'')).unwrap();
    assert!(inner.starts_with("cat f # tollgate: /"), "{text}");
}

/// Another file, or none, is no reason to let a command run without a guard: it gets the line in front.
#[test]
fn without_that_file_a_command_gets_the_line() {
    let world = repository(SETTINGS);
    let gemini = Gemini::new(&world);
    for text in [Some("# nothing\n"), None] {
        match text {
            Some(text) => fs::write(&gemini.file, text).unwrap(),
            None => fs::remove_file(&gemini.file).unwrap(),
        }
        assert!(gemini.asks("ls").starts_with(". /"));
    }
}

/// Claude Code starts every command with the prefix from its settings. The line in front of a command is a comment then.
#[test]
fn a_program_with_a_prefix_runs_a_command_as_a_transaction() {
    let world = repository(SETTINGS);
    world.run("init --host claude-code").is(0);
    let settings: Value =
        serde_json::from_slice(&fs::read(world.path(".claude/settings.json")).unwrap()).unwrap();
    let prefix = settings["env"]["CLAUDE_CODE_SHELL_PREFIX"].as_str().unwrap();
    let agent = Program::new(&world, "claude-code", "s");
    let before = |command: &str, call: &str| agent.before(&Tool::Shell(command), call);
    let ask = |command: &str, call: &str| {
        let hook = world.tollgate(["hook", "claude-code"]).env("CLAUDE_CODE_SHELL_PREFIX", prefix);
        let answer = hook.stdin(before(command, call).to_string()).ends();
        let input = &answer.json()["hookSpecificOutput"]["updatedInput"];
        input["command"].as_str().unwrap().to_owned()
    };
    let words = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    // As Claude Code puts it together: a snapshot of the user's shell, then the command.
    let starts = |command: &str| {
        let text = format!("source /dev/null && eval {} < /dev/null && pwd -P >| ../cwd", words(command));
        world.script(&format!("{prefix} {}", words(&text))).ends()
    };
    let command = ask("echo $TOLLGATE_RUN it\\'s; python3 fix.py", "c");
    assert!(command.starts_with("# tollgate: /"), "{command}");
    let ran = starts(&command).is(0);
    assert_eq!(ran.stdout(), "transaction it's\n", "{ran}");
    world.holds("f", "mine\n");
    // A command without a hook runs as without a prefix, and so does one whose comment names another file.
    for command in ["echo $TOLLGATE_RUN plain", "# tollgate: /etc/passwd\necho $TOLLGATE_RUN plain"] {
        assert_eq!(starts(command).is(0).stdout().trim(), "plain", "{command}");
    }
    // What cannot be guarded does not run.
    let file = command.lines().next().unwrap().strip_prefix("# tollgate: ").unwrap();
    fs::remove_file(file).unwrap();
    let ran = starts(&command).is(74);
    assert!(ran.stderr().contains("did not run"), "{ran}");
    // Without tollgate, the prefix does nothing.
    let plain = world.script(&format!("PATH=/usr/bin:/bin; {prefix} 'echo one'")).ends().is(0);
    assert_eq!(plain.stdout(), "one\n");
}

/// A `tollgate` that writes down its arguments, in front of the real one in `PATH`.
fn listed(world: &World) -> (PathBuf, String) {
    let (bin, list) = (world.tmp().join("programs"), world.tmp().join("list"));
    fs::create_dir_all(&bin).unwrap();
    let real = env!("CARGO_BIN_EXE_tollgate");
    let text = format!("#!/bin/sh\necho \"$*\" >> '{}'\nexec '{real}' \"$@\"\n", list.display());
    fs::write(bin.join("tollgate"), text).unwrap();
    fs::set_permissions(bin.join("tollgate"), fs::Permissions::from_mode(0o755)).unwrap();
    (list, format!("{}:/usr/bin:/bin", bin.display()))
}

#[test]
fn the_doctor_sends_its_command_through_the_prefix_that_is_installed() {
    let own = "{\"env\": {\"CLAUDE_CODE_SHELL_PREFIX\": \"mine\"}}\n";
    for (settings, prefixed) in [("", true), (own, false)] {
        let world = World::with(SETTINGS);
        world.puts(".claude/settings.json", settings);
        world.run("init --host claude-code").is(0);
        let (list, path) = listed(&world);
        // It may run in the program, which was started with other settings.
        let doctor = world.tollgate(["doctor"]).env("PATH", path).env("CLAUDE_CODE_SHELL_PREFIX", "another");
        let said = doctor.env("SHELL", "/bin/false").ends().stdout();
        let line = said.lines().find(|line| line.contains("`claude-code`: hooks")).unwrap_or_default();
        assert!(line.contains("`tollgate run`, level `transaction`"), "{said}");
        let calls = fs::read_to_string(list).unwrap();
        assert_eq!(calls.contains("run --prefixed -- source "), prefixed, "{calls}");
    }
}

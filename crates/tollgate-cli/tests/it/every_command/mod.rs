//! Every command of the help: its help, its text, its JSON and its errors, as one transcript each.
//!
//! The scripts are in `scripts.rs`, the transcripts in `transcripts/`. To write the transcripts again:
//! `INSTA_UPDATE=always cargo test -p tollgate-cli --test it every_command`. Then read what has changed.

mod scripts;
mod task_scripts;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use self::scripts::{FILES, LEDGER, PROGRAMS};
use self::task_scripts::TASKS;
use crate::help::commands;
use crate::world::{World, name_of};

/// A command, and the lines for a shell that show what it does.
pub(crate) type Script = (&'static str, &'static str);

const SETTINGS: &str = "[guard]
durability = \"fast\"
[vault]
durability = \"fast\"
settle = \"0ms\"
retry = [\"1h\"]
[agent.cloud]
allowed = [\"triage\"]
sensitive = [\"payment\"]
";

/// A workspace with one file and two tasks.
fn prepared() -> World {
    let world = World::with(SETTINGS);
    world.puts("a.md", "one\ntwo\nthree\n");
    world.puts("vault/Needs_Action/paint.md", "# Paint the fence\n");
    world.puts(
        "vault/Needs_Action/pay-the-rent.md",
        "---\naction: payment\npriority: high\n---\n# Pay the rent\n",
    );
    world
}

/// The last id of each kind that a command has printed, for the lines after it.
#[derive(Default)]
struct LastIds([(&'static str, String); 3]);

impl LastIds {
    fn note(&mut self, printed: &str) {
        let kinds = [("[TURN]", "TURN"), ("[CLAIM]", "CLAIM"), ("[ID]", "ID")];
        for word in printed.split(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
            for (slot, (kind, variable)) in self.0.iter_mut().zip(kinds) {
                if name_of(word) == Some(kind) {
                    *slot = (variable, word.to_owned());
                }
            }
        }
    }
}

/// What stands after these texts differs from run to run.
const VARIES: &[(&str, &str)] = &[
    ("\"age_s\":", "[N]"),
    ("\"epoch\":", "[N]"),
    ("\"waited_ms\":", "[N]"),
    ("\"took_us\":", "[N]"),
    ("**Duration**: ", "[N]"),
    ("\"step\":\"", "[STEP]"),
    ("\"tip\":\"", "[COMMIT]"),
    ("{\"commit\":\"", "[COMMIT]"),
    ("committed 1 file on `main`: ", "[COMMIT]"),
    ("the remote is at ", "[COMMIT]"),
    ("last line 2 (", "[HASH]"),
];

/// The text, the same in every run and on every machine.
fn settled(text: &str) -> String {
    let mut text = text.replace(env!("CARGO_PKG_VERSION"), "[VERSION]");
    // The terminal shows what the person types.
    text = text.replace(" it:\nyes\n", " it:\n");
    for (before, name) in VARIES {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        text = parts.fold(first, |text, part| text + before + name + part.trim_start_matches(plain));
    }
    let seconds = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let is_time = |at: usize| {
            words[at].parse::<f32>().is_ok()
                && words.get(at + 1).is_some_and(|unit| ["s", "s,"].contains(unit))
        };
        let mut line = (0..words.len())
            .map(|at| if is_time(at) { "[N]" } else { words[at] })
            .collect::<Vec<_>>()
            .join(" ");
        // In a table, the width of the number decides how many spaces are before it.
        while line.contains("   [N]") {
            line = line.replace("   [N]", "  [N]");
        }
        line
    };
    text.lines().map(|line| seconds(line) + "\n").collect()
}

/// The help of a command without the options of all commands, which are in the transcript of `tollgate` itself.
fn without_global_options(command: &str, text: &str) -> String {
    match text.split_once("Global options:") {
        Some((own, rest)) if !command.is_empty() => {
            format!("{own}{}", &rest[rest.find("Example").unwrap()..])
        }
        _ => text.to_owned(),
    }
}

/// Runs the lines of a script and returns what came of each. A line after `?` runs on a terminal, where a person types yes.
fn transcript((command, script): Script) -> String {
    let world = prepared();
    let mut ids = LastIds::default();
    let help = format!("tollgate {command} --help").replace("  ", " ");
    let mut text = String::new();
    for line in std::iter::once(help.as_str()).chain(script.trim().lines()) {
        let (on_terminal, line) = match line.strip_prefix("? ") {
            Some(line) => (true, line),
            None => (false, line),
        };
        let mut run = world.script(line);
        for (name, value) in ids.0.iter().filter(|(_, value)| !value.is_empty()) {
            run = run.env(name, value);
        }
        if on_terminal {
            let typed = run.typed("yes");
            ids.note(&typed.shown);
            let shown = world.filtered(&typed.shown);
            let code = typed.code().map_or("by a signal".to_owned(), |code| code.to_string());
            writeln!(text, "$ {line}    # on a terminal\nexit {code}\n{}\n", shown.trim_end()).unwrap();
        } else {
            let ran = run.ends();
            ids.note(&ran.stdout());
            writeln!(text, "$ {line}\n{}\n", without_global_options(command, &ran.filtered)).unwrap();
        }
    }
    settled(&text)
}

fn check(scripts: &[Script]) {
    for script in scripts {
        let text = transcript(*script);
        let fails = ["\nexit 1\n", "\nexit 2\n", "\nexit 3\n"].iter().any(|code| text.contains(code));
        assert!(fails, "`{}` shows no error: {text}", script.0);
        insta::with_settings!({
            prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "transcripts",
        }, {
            insta::assert_snapshot!(file_name(script.0), text);
        });
    }
}

fn file_name(command: &str) -> String {
    if command.is_empty() { "tollgate".to_owned() } else { command.replace(' ', "-") }
}

#[test]
fn commands_for_files() {
    check(FILES);
}

#[test]
fn commands_for_tasks() {
    check(TASKS);
}

#[test]
fn commands_for_the_ledger_and_for_what_it_keeps() {
    check(LEDGER);
}

#[test]
fn commands_for_programs_and_for_setting_up() {
    check(PROGRAMS);
}

#[test]
fn every_command_of_the_help_has_a_transcript() {
    let commands = commands(&World::new());
    let scripts: Vec<Script> = [FILES, TASKS, LEDGER, PROGRAMS].concat();
    let scripted: BTreeSet<String> = scripts.iter().map(|(command, _)| (*command).to_owned()).collect();
    assert_eq!(scripted, commands, "add a script for each command to `scripts.rs`");
    assert_eq!(scripted.len(), scripts.len(), "one script for each command");
    for (command, script) in scripts {
        let shows = |what: &str| {
            let has = |line: &str| line.contains(&format!("tollgate {command}")) && line.contains(what);
            script.lines().any(has)
        };
        assert!(shows("") && shows("--json"), "the script of `{command}` shows text and JSON");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/every_command/transcripts");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let expected = commands.iter().map(|command| format!("{}.snap", file_name(command)));
    assert_eq!(files.collect::<BTreeSet<_>>(), expected.collect(), "no other files");
}

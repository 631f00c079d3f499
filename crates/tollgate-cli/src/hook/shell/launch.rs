//! Programs that run the command in their arguments, or a text: `env`, `timeout`, `xargs`, `find -exec`, `bash -c`, `eval`.

use super::arguments::{ProgramArgs, Valued};
use super::reader::Reader;
use super::state::Streams;
use super::word::Word;

/// Programs in front of a command, the letters of their options with values, and the number of their own operands.
const PREFIXES: [(&str, &str, usize); 13] = [
    ("sudo", "ugCDhprRTtU", 0),
    ("doas", "uCa", 0),
    ("env", "uCS", 0),
    ("exec", "a", 0),
    ("command", "", 0),
    ("builtin", "", 0),
    ("nohup", "", 0),
    ("setsid", "", 0),
    ("time", "fo", 0),
    ("timeout", "ks", 1),
    ("nice", "n", 0),
    ("stdbuf", "ioe", 0),
    ("xargs", "adEILnPs", 0),
];

/// Options of these programs whose value may be the next word.
const NAMES: &[&str] = &[
    "user",
    "group",
    "unset",
    "chdir",
    "split-string",
    "signal",
    "kill-after",
    "adjustment",
    "max-args",
    "max-procs",
    "command",
];

impl Reader {
    /// Reads what a program runs. Returns whether this is such a program.
    pub(super) fn launch(&mut self, program: &Word, arguments: &[Word], streams: &Streams) -> bool {
        let Some(name) = program.as_text().and_then(|name| name.rsplit('/').next()) else {
            // It may be nothing (`$SUDO cp a b`), or a program that runs the rest.
            self.simple(arguments, streams);
            return true;
        };
        if let Some((_, letters, own)) = PREFIXES.iter().find(|(prefix, ..)| *prefix == name) {
            let (given, rest) = ProgramArgs::before_operands(arguments, Valued { letters, names: NAMES });
            let rest = rest.get(*own..).unwrap_or_default();
            self.in_subshell(|reader| reader.behind(name, &given, rest, streams));
            return true;
        }
        match name {
            "eval" | "trap" => {
                let words = if name == "eval" { arguments } else { arguments.get(..1).unwrap_or_default() };
                let words: Option<Vec<&str>> = words.iter().map(Word::as_text).collect();
                self.script(words.map(|words| words.join(" ")).as_deref(), streams.shown);
            }
            "bash" | "sh" | "zsh" | "dash" | "ksh" => {
                self.in_subshell(|reader| reader.of_shell(arguments, streams));
            }
            // It gives the command a terminal, which only people have.
            "script" | "su" => {
                let valued = Valued { letters: "cEIOBTmtgsu", names: NAMES };
                if let Some(text) = ProgramArgs::of(arguments, valued).value(&["c", "command"]) {
                    self.script(text.as_text(), streams.shown);
                }
            }
            "find" => self.find(arguments, streams),
            _ => return false,
        }
        true
    }

    /// The command behind a program such as `env`, `timeout` or `xargs`.
    fn behind(&mut self, name: &str, given: &ProgramArgs, rest: &[Word], streams: &Streams) {
        let chdir = if name == "env" { "C" } else { "D" };
        if given.has(&[chdir, "chdir"]) {
            self.shell.change_folder(given.value(&[chdir, "chdir"]));
        }
        let is_cleared =
            given.has(&["i", "ignore-environment"]) || rest.first().is_some_and(|word| word.is(&["-"]));
        let is_unset = given.value(&["u", "unset"]).is_some_and(|name| name.as_text().is_none());
        if name == "env" && (is_cleared || is_unset) {
            self.shell.agents.push(String::new());
        }
        // `env -S TEXT` splits the text as a shell does. More arguments may follow.
        if let Some(text) = given.value(&["S", "split-string"]).filter(|_| name == "env") {
            self.script(text.as_text().filter(|_| rest.is_empty()), streams.shown);
        }
        let mut command = rest.strip_prefix(&[Word::text("-")]).unwrap_or(rest).to_vec();
        if name == "xargs" {
            // What comes from its input is added, or replaces a text.
            let replaced = given.value(&["I", "i", "replace"]).and_then(Word::as_text);
            command = with_unknown(rest, replaced.unwrap_or("{}"));
            command.push(Word::default());
        }
        self.simple(&command, streams);
    }

    /// The command that `find` runs. Which files it finds is not known.
    fn find(&mut self, arguments: &[Word], streams: &Streams) {
        for words in arguments.windows(2).filter(|words| words[0].is(&["-name", "-path", "-iname"])) {
            words[1].as_text().into_iter().for_each(|pattern| self.shell.note_pattern(pattern));
        }
        let deletes = arguments.iter().any(|word| word.is(&["-delete"]));
        let runs = arguments.iter().position(|word| word.is(&["-exec", "-execdir", "-ok", "-okdir"]));
        let behind = runs.map(|at| &arguments[at + 1..]).unwrap_or_default();
        let end = behind.iter().position(|word| word.is(&[";", "+"])).unwrap_or(behind.len());
        let command = with_unknown(&behind[..end], "{}");
        if deletes || command.first().is_some_and(|program| program.is(&["rm"])) {
            self.shell.plan.vague = true;
            let starts = arguments.iter().take_while(|word| !word.raw.starts_with(['-', '(', '!']));
            starts.for_each(|start| self.shell.touch(start));
        }
        self.simple(&command, streams);
    }

    /// `bash -c TEXT`, or a shell that reads its commands from its input. A file with a script is not followed.
    fn of_shell(&mut self, arguments: &[Word], streams: &Streams) {
        let valued = Valued { letters: "oO", names: &["rcfile", "init-file"] };
        let (given, operands) = ProgramArgs::before_operands(arguments, valued);
        match operands.first() {
            Some(text) if given.has(&["c"]) => self.script(text.as_text(), streams.shown),
            Some(file) if file.raw.starts_with("<(") => self.script(None, streams.shown),
            Some(_) if !given.has(&["s"]) => {}
            _ => self.script(streams.text.as_deref(), streams.shown),
        }
    }
}

/// A command in which the words with this text are not known.
fn with_unknown(command: &[Word], replaced: &str) -> Vec<Word> {
    let known = |word: &Word| match word.as_text() {
        Some(text) if text.contains(replaced) => Word::default(),
        _ => word.clone(),
    };
    command.iter().map(known).collect()
}

//! Programs that run the command in their arguments, or a text: `env`, `timeout`, `xargs`, `find -exec`, `bash -c`, `eval`.

use super::arguments::{NONE, ProgramArgs, Valued};
use super::reader::Reader;
use super::state::Streams;
use super::word::Word;

/// Programs in front of a command, their options with values, and the number of their own operands.
const PREFIXES: [(&str, Valued, usize); 14] = [
    (
        "sudo",
        Valued { letters: "u:g:C:D:h:p:R:r:T:t:U:", names: &["user", "group", "chdir", "host", "prompt"] },
        0,
    ),
    ("doas", Valued { letters: "u:C:a:", names: &[] }, 0),
    ("env", Valued { letters: "u:C:S:", names: &["unset", "chdir", "split-string"] }, 0),
    ("exec", Valued { letters: "a:", names: &[] }, 0),
    ("command", NONE, 0),
    ("builtin", NONE, 0),
    ("nohup", NONE, 0),
    ("setsid", NONE, 0),
    ("time", Valued { letters: "f:o:", names: &["format", "output"] }, 0),
    ("timeout", Valued { letters: "k:s:", names: &["kill-after", "signal"] }, 1),
    ("nice", Valued { letters: "n:", names: &["adjustment"] }, 0),
    ("ionice", Valued { letters: "c:n:p:P:u:", names: &["class", "classdata"] }, 0),
    ("stdbuf", Valued { letters: "i:o:e:", names: &["input", "output", "error"] }, 0),
    (
        "xargs",
        Valued {
            letters: "a:d:E:I:L:n:P:s:e::i::l::",
            names: &["arg-file", "delimiter", "max-args", "max-chars", "max-procs"],
        },
        0,
    ),
];

impl Reader {
    /// Reads what a program runs. Returns whether this is such a program.
    pub(super) fn launch(&mut self, program: &Word, arguments: &[Word], streams: &Streams) -> bool {
        let Some(name) = program.as_text().and_then(|name| name.rsplit('/').next()) else {
            // It may be nothing (`$SUDO cp a b`), or a program that runs the rest.
            self.simple(arguments, streams);
            return true;
        };
        if let Some((_, valued, own)) = PREFIXES.iter().find(|(prefix, ..)| *prefix == name) {
            self.behind(name, ProgramArgs::before_operands(arguments, *valued), *own, streams);
            return true;
        }
        match name {
            "eval" | "trap" => {
                let words = if name == "eval" { arguments } else { arguments.get(..1).unwrap_or_default() };
                let words: Option<Vec<&str>> = words.iter().map(Word::as_text).collect();
                self.script(words.map(|words| words.join(" ")).as_deref(), streams.shown);
            }
            "." | "source" => {
                let is_input = |file: &Word| is_printed(file) || file.is(&["/dev/stdin"]);
                self.shell.plan.vague |= arguments.first().is_some_and(is_input);
            }
            "bash" | "sh" | "zsh" | "dash" | "ksh" => self.of_shell(arguments, streams),
            "script" | "su" => {
                let valued = Valued { letters: "c:E:I:O:B:T:m:o:t::g:s:u:", names: &["command"] };
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
    fn behind(&mut self, name: &str, (given, rest): (ProgramArgs, &[Word]), own: usize, streams: &Streams) {
        let mut rest = rest.get(own..).unwrap_or_default();
        let before = (self.shell.folder.clone(), self.shell.is_certain);
        let folder = match name {
            "env" => given.value(&["C", "chdir"]),
            "sudo" => given.value(&["D", "chdir"]),
            _ => None,
        };
        if folder.is_some() {
            self.shell.change_folder(folder);
        }
        let is_cleared =
            given.has(&["i", "ignore-environment"]) || rest.first().is_some_and(|word| word.is(&["-"]));
        let is_unset = given.value(&["u", "unset"]).is_some_and(|name| name.value.is_none());
        if name == "env" && (is_cleared || is_unset) {
            self.shell.agents.push(String::new());
            rest = rest.strip_prefix(&[Word::text("-")]).unwrap_or(rest);
        }
        let mut command = rest.to_vec();
        if let Some(words) = given.value(&["S", "split-string"]).filter(|_| name == "env") {
            // It splits the text as a shell does. More arguments may follow.
            self.script(words.as_text().filter(|_| rest.is_empty()), streams.shown);
        }
        if name == "xargs" {
            // What comes from its input is added, or replaces a text.
            let replaced = given.value(&["I", "i", "replace"]).and_then(Word::as_text);
            command = with_unknown(rest, replaced.filter(|text| !text.is_empty()).unwrap_or("{}"));
            command.push(Word::unknown());
        }
        self.simple(&command, streams);
        (self.shell.folder, self.shell.is_certain) = before;
    }

    /// The commands that `find` runs. Which files it finds is not known.
    fn find(&mut self, arguments: &[Word], streams: &Streams) {
        let mut rest = arguments;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            match word.as_text() {
                Some("-name" | "-path" | "-wholename" | "-iname") => {
                    let pattern = after.first().and_then(Word::as_text);
                    pattern.into_iter().for_each(|pattern| self.shell.note_pattern(pattern));
                }
                Some("-delete") => {
                    self.shell.plan.vague = true;
                    starts(arguments).iter().for_each(|start| self.shell.touch(start));
                }
                Some("-exec" | "-execdir" | "-ok" | "-okdir") => {
                    let end = after.iter().position(|word| word.is(&[";", "+"])).unwrap_or(after.len());
                    if after.first().is_some_and(|program| program.is(&["rm"])) {
                        starts(arguments).iter().for_each(|start| self.shell.touch(start));
                    }
                    self.simple(&with_unknown(&after[..end], "{}"), streams);
                    rest = &after[end..];
                }
                _ => {}
            }
        }
    }

    /// `bash -c TEXT`, or a shell that reads its commands from its input. A file with a script is not followed.
    fn of_shell(&mut self, arguments: &[Word], streams: &Streams) {
        let valued = Valued { letters: "o:O:", names: &["rcfile", "init-file"] };
        let (given, operands) = ProgramArgs::before_operands(arguments, valued);
        let before = (self.shell.folder.clone(), self.shell.is_certain);
        match operands.first() {
            Some(text) if given.has(&["c"]) => self.script(text.as_text(), streams.shown),
            Some(file) if is_printed(file) => self.script(None, streams.shown),
            Some(file) if !given.has(&["s"]) && !file.is(&["-", "/dev/stdin"]) => {}
            _ if given.has(&["version", "help"]) => {}
            _ => self.script(streams.text.as_deref(), streams.shown),
        }
        (self.shell.folder, self.shell.is_certain) = before;
    }
}

/// A command in which the words with this text are not known.
fn with_unknown(command: &[Word], replaced: &str) -> Vec<Word> {
    let known = |word: &Word| match word.as_text() {
        Some(text) if text.contains(replaced) => Word::unknown(),
        _ => word.clone(),
    };
    command.iter().map(known).collect()
}

/// The words before the first test of `find`: everything below these may be deleted.
fn starts(arguments: &[Word]) -> &[Word] {
    let is_test = |word: &Word| word.as_text().is_some_and(|word| word.starts_with(['-', '(', '!']));
    &arguments[..arguments.iter().position(is_test).unwrap_or(arguments.len())]
}

/// Whether a file is what another command prints: `bash <(...)`.
fn is_printed(file: &Word) -> bool {
    file.raw.starts_with("<(")
}

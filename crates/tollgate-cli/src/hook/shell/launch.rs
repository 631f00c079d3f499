//! Programs that run the command in their arguments: `env`, `timeout`, `sudo`, `xargs`, `find -exec`.

use std::path::PathBuf;

use super::arguments::{NONE, ProgramArgs, Valued};
use super::environment::AGENT;
use super::find;
use super::state::Shell;
use super::word::Word;

/// The commands that a program runs, and where.
pub(super) struct Launched {
    pub(super) commands: Vec<Vec<Word>>,
    /// Another folder than the shell's. `Some(None)`: one that is not known.
    pub(super) folder: Option<Option<PathBuf>>,
    /// Variables that are set for the commands.
    pub(super) variables: Vec<(String, String)>,
}

/// A program in front of a command, its options with values, and the number of its own operands.
const PREFIXES: [(&str, Valued, usize); 24] = [
    (
        "sudo",
        Valued {
            letters: "u:g:C:D:h:p:R:r:T:t:U:",
            names: &[
                "user",
                "group",
                "close-from",
                "chdir",
                "host",
                "prompt",
                "chroot",
                "role",
                "type",
                "other-user",
                "command-timeout",
            ],
        },
        0,
    ),
    ("doas", Valued { letters: "u:C:a:", names: &[] }, 0),
    ("env", Valued { letters: "u:C:S:", names: &["unset", "chdir", "split-string"] }, 0),
    ("exec", Valued { letters: "a:", names: &[] }, 0),
    ("command", NONE, 0),
    ("builtin", NONE, 0),
    ("coproc", NONE, 0),
    ("nohup", NONE, 0),
    ("setsid", NONE, 0),
    ("unbuffer", NONE, 0),
    ("busybox", NONE, 0),
    ("then", NONE, 0),
    ("do", NONE, 0),
    ("else", NONE, 0),
    ("time", Valued { letters: "f:o:", names: &["format", "output"] }, 0),
    ("timeout", Valued { letters: "k:s:", names: &["kill-after", "signal"] }, 1),
    ("nice", Valued { letters: "n:", names: &["adjustment"] }, 0),
    ("ionice", Valued { letters: "c:n:p:P:u:", names: &["class", "classdata"] }, 0),
    ("chrt", Valued { letters: "T:P:D:", names: &[] }, 1),
    ("taskset", NONE, 1),
    ("stdbuf", Valued { letters: "i:o:e:", names: &["input", "output", "error"] }, 0),
    ("strace", Valued { letters: "a:b:e:E:I:o:O:p:P:s:S:u:U:X:", names: &["output", "trace", "user"] }, 0),
    ("ltrace", Valued { letters: "a:A:D:e:F:l:n:o:p:s:u:w:x:", names: &["output"] }, 0),
    ("flock", Valued { letters: "w:E:", names: &["timeout", "conflict-exit-code"] }, 1),
];

const XARGS: Valued = Valued {
    letters: "a:d:E:I:L:n:P:s:e::i::l::",
    names: &["arg-file", "delimiter", "max-args", "max-chars", "max-procs", "process-slot-var"],
};

/// The longest word that is put together, in bytes.
const LONGEST_WORD: usize = 128 << 10;

/// The largest number of names for which a command is read one by one.
const NAMES: usize = 200;

/// The commands that this program runs, if it runs commands.
pub(super) fn launched(
    shell: &Shell,
    name: &str,
    arguments: &[Word],
    input: Option<&str>,
) -> Option<Launched> {
    let mut launch = Launched { commands: Vec::new(), folder: None, variables: Vec::new() };
    match name {
        "xargs" => {
            let (given, command) = ProgramArgs::before_operands(arguments, XARGS);
            // What comes from its input replaces a text, or is added at the end.
            let replaced =
                given.value(&["I", "i", "replace"]).and_then(Word::as_text).filter(|text| !text.is_empty());
            let replaced = replaced.unwrap_or("{}");
            let in_parts = given.has(&["n", "L", "l", "max-args", "max-lines"]) || command.is_empty();
            let names = input.filter(|_| !in_parts).and_then(|input| names_in_input(input, &given));
            let replaces = given.has(&["I", "i", "replace"]);
            launch.commands = match names {
                Some(names) if replaces => each(command, replaced, &names),
                Some(names) => {
                    let names = names.iter().map(|name| Word::text(name));
                    vec![command.iter().cloned().chain(names).collect()]
                }
                None => {
                    let mut command = with_unknown(command, replaced);
                    command.extend((!replaces).then_some(Word::Unknown));
                    vec![command]
                }
            };
        }
        "find" => launch.commands = executed_by_find(arguments, find::found(shell, arguments).as_deref()),
        name => {
            let (_, valued, operands) = PREFIXES.iter().find(|(prefix, ..)| *prefix == name)?;
            let (given, mut rest) = ProgramArgs::before_operands(arguments, *valued);
            let options = &arguments[..arguments.len() - rest.len()];
            rest = rest.get(*operands..).unwrap_or_default();
            let folder = match name {
                "env" => given.value(&["C", "chdir"]),
                "sudo" => given.value(&["D", "chdir"]),
                _ => None,
            };
            launch.folder = folder.map(|folder| folder.as_text().and_then(|folder| shell.env.path(folder)));
            if name == "env" {
                let mut clears = given.has(&["i", "ignore-environment"]);
                if let [word, after @ ..] = rest
                    && word.as_text() == Some("-")
                {
                    (clears, rest) = (true, after);
                }
                // `-u NAME`, `-uNAME`, `--unset=NAME`
                let is_agent = |word: &Word| word.as_text().is_none_or(|word| word.ends_with(AGENT));
                if clears || given.has(&["u", "unset"]) && options.iter().any(is_agent) {
                    launch.variables.push((AGENT.to_owned(), String::new()));
                }
            }
            while let [word, after @ ..] = rest
                && ["env", "sudo"].contains(&name)
                && let Some((variable, value)) = word.as_text().and_then(|word| word.split_once('='))
            {
                launch.variables.push((variable.to_owned(), value.to_owned()));
                rest = after;
            }
            let text = |script: Word, arguments: &[Word]| {
                let shell = [Word::text("sh"), Word::text("-c"), script, Word::text("sh")];
                shell.into_iter().chain(arguments.iter().cloned()).collect()
            };
            let command = match (name, given.value(&["S", "split-string"]), rest) {
                // It splits the text as a shell does, and more arguments follow.
                ("env", Some(words), rest) => {
                    let script = words.as_text().map(|words| Word::text(&format!("{words} \"$@\"")));
                    text(script.unwrap_or(Word::Unknown), rest)
                }
                ("flock", _, [option, script, ..])
                    if option.as_text().is_some_and(|option| option.starts_with("-c")) =>
                {
                    text(script.clone(), &[])
                }
                (.., rest) => rest.to_vec(),
            };
            launch.commands.push(command);
        }
    }
    Some(launch)
}

/// The words in the input of `xargs`. `None` if they may have quotes, or are too many.
fn names_in_input(input: &str, given: &ProgramArgs) -> Option<Vec<String>> {
    let names: Vec<&str> = match given.has(&["0", "null"]) {
        true => input.split('\0').filter(|name| !name.is_empty()).collect(),
        false if given.has(&["d", "delimiter", "a", "arg-file"]) || input.contains(['"', '\'', '\\']) => {
            return None;
        }
        false if given.has(&["I", "i", "replace"]) => input.lines().map(str::trim_start).collect(),
        false => input.split_whitespace().collect(),
    };
    (1..=NAMES).contains(&names.len()).then(|| names.into_iter().map(str::to_owned).collect())
}

/// A command for each name, which replaces this text.
fn each(command: &[Word], replaced: &str, names: &[String]) -> Vec<Vec<Word>> {
    let with = |name: &String| {
        let word = |word: &Word| match word.as_text() {
            Some(text) if text.contains(replaced) => {
                let number = text.matches(replaced).count();
                match text.len() + number * name.len() {
                    ..LONGEST_WORD => Word::text(&text.replace(replaced, name)),
                    _ => Word::Unknown,
                }
            }
            _ => word.clone(),
        };
        command.iter().map(word).collect()
    };
    names.iter().map(with).collect()
}

/// The commands after `-exec`, with the files that it has found, if they are known.
fn executed_by_find(arguments: &[Word], found: Option<&[String]>) -> Vec<Vec<Word>> {
    let is = |word: &Word, words: &[&str]| word.as_text().is_some_and(|word| words.contains(&word));
    let mut commands = Vec::new();
    let mut rest = arguments;
    while let Some(at) = rest.iter().position(|word| is(word, &["-exec", "-execdir", "-ok", "-okdir"])) {
        rest = &rest[at + 1..];
        let end = rest.iter().position(|word| is(word, &[";", "+"])).unwrap_or(rest.len());
        let command = &rest[..end];
        let at_once = rest.get(end).is_some_and(|word| is(word, &["+"]));
        match found {
            Some(found) if at_once => {
                let fixed = command.iter().filter(|word| !is(word, &["{}"])).cloned();
                commands.push(fixed.chain(found.iter().map(|name| Word::text(name))).collect());
            }
            Some(found) if found.len() <= NAMES => commands.extend(each(command, "{}", found)),
            _ => commands.push(with_unknown(command, "{}")),
        }
        rest = &rest[end..];
    }
    if arguments.iter().any(|word| is(word, &["-delete"])) {
        let files =
            found.map_or(vec![Word::Unknown], |found| found.iter().map(|name| Word::text(name)).collect());
        commands.push([Word::text("rm")].into_iter().chain(files).collect());
    }
    if commands.iter().any(|command| command.first().is_some_and(|program| is(program, &["rm"]))) {
        // Everything below these may be deleted.
        let starts = find::starts(arguments).iter().cloned();
        commands.push([Word::text("rmdir")].into_iter().chain(starts).collect());
    }
    commands
}

/// A command in which the words with this text are not known.
fn with_unknown(command: &[Word], replaced: &str) -> Vec<Word> {
    let known = |word: &Word| match word.as_text() {
        Some(text) if text.contains(replaced) => Word::Unknown,
        _ => word.clone(),
    };
    command.iter().map(known).collect()
}

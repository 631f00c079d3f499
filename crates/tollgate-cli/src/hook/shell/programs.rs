//! What usual programs do to the files in their arguments. Other programs are unknown, and nothing of theirs is listed.

use std::path::PathBuf;

use tollgate::turn::Extent;

use super::arguments::{NONE, ProgramArgs, Valued};
use super::git;
use super::people;
use super::reader::{Reader, Streams};
use super::word::Word;
use crate::hook::plan::{PlannedChange, Text};

/// Programs that print their files, how much of them, and the letters of their options that take a value.
const SHOW: [(&str, Extent, &str); 18] = [
    ("cat", Extent::Whole, ""),
    ("nl", Extent::Whole, "b:d:f:h:i:l:n:s:v:w:"),
    ("tac", Extent::Whole, ""),
    ("bat", Extent::Whole, "l:r:H:m:"),
    ("batcat", Extent::Whole, "l:r:H:m:"),
    ("less", Extent::Whole, ""),
    ("more", Extent::Whole, ""),
    ("head", Extent::Part, "n:c:"),
    ("tail", Extent::Part, "n:c:"),
    ("cut", Extent::Part, "d:f:c:b:"),
    ("sort", Extent::Part, "k:t:o:S:T:"),
    ("uniq", Extent::Part, "f:s:w:"),
    ("jq", Extent::Part, ""),
    ("yq", Extent::Part, ""),
    ("xxd", Extent::Part, "l:s:c:"),
    ("od", Extent::Part, "A:t:j:N:"),
    ("diff", Extent::Part, "U:"),
    ("column", Extent::Part, "s:t:c:o:"),
];

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

/// Whether a program prints all or some of its input.
pub(super) fn lets_through(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let filters = ["sed", "awk", "gawk", "mawk", "grep", "egrep", "fgrep", "rg", "tee", "tr", "fold", "rev"];
    filters.contains(&name) || SHOW.iter().any(|(shows, ..)| *shows == name)
}

/// Adds what one command does. Returns what it prints, if that is certain.
pub(super) fn run(
    reader: &mut Reader,
    program: &Word,
    arguments: &[Word],
    streams: &Streams,
) -> Option<String> {
    let Some(name) = program.as_text().and_then(|name| name.rsplit('/').next()) else {
        // It may be nothing (`$SUDO cp a b`), or a program that runs the rest.
        reader.simple(arguments, streams);
        return None;
    };
    if let Some((_, valued, own)) = PREFIXES.iter().find(|(prefix, ..)| *prefix == name) {
        launch(reader, name, ProgramArgs::before_operands(arguments, *valued), *own, streams);
        return None;
    }
    let given = |letters, names| ProgramArgs::of(arguments, Valued { letters, names });
    match name {
        "tollgate" => people::note_call(reader, arguments),
        "cd" | "pushd" => reader.change_folder(given("", &[]).operands.first()),
        "popd" => reader.is_certain = false,
        "eval" | "trap" => {
            let words = if name == "eval" { arguments } else { arguments.get(..1).unwrap_or_default() };
            let words: Option<Vec<&str>> = words.iter().map(Word::as_text).collect();
            reader.script(words.map(|words| words.join(" ")).as_deref(), streams.shown);
        }
        "." | "source" => {
            let is_input = |file: &Word| is_printed(file) || file.is(&["/dev/stdin"]);
            reader.plan.vague |= arguments.first().is_some_and(is_input);
        }
        "bash" | "sh" | "zsh" | "dash" | "ksh" => of_shell(reader, arguments, streams),
        "script" | "su" => {
            if let Some(text) = given("c:E:I:O:B:T:m:o:t::g:s:u:", &["command"]).value(&["c", "command"]) {
                reader.script(text.as_text(), streams.shown);
            }
        }
        "find" => find(reader, arguments, streams),
        "cat" if arguments.is_empty() && streams.input.is_none() => return streams.text.clone(),
        "echo" => return echoed(arguments),
        "sed" => {
            let given = given("e:f:l:i::", &["expression", "file", "line-length"]);
            let script = usize::from(!given.has(&["e", "expression", "f", "file"]));
            match given.has(&["i", "in-place"]) {
                true => reader.change_all(given.operands.get(script..).unwrap_or_default(), Extent::Part),
                false => show(reader, &given, script, Extent::Part, streams),
            }
        }
        "awk" | "gawk" | "mawk" => {
            let given = given("F:v:f:i:e:E:l:", &["field-separator", "assign", "file", "include", "source"]);
            let script = usize::from(!given.has(&["f", "file", "e", "source", "E"]));
            match given.value(&["i", "include"]).is_some_and(|file| file.is(&["inplace"])) {
                true => reader.change_all(given.operands.get(script..).unwrap_or_default(), Extent::Part),
                false => show(reader, &given, script, Extent::Part, streams),
            }
        }
        "perl" | "ruby" => {
            let given = match name {
                "perl" => given("e:E:I:M:m:C::D::F::V::x::i::0#l#", &[]),
                _ => given("e:I:r:C:E:F::K::T::W::x::i::0#", &[]),
            };
            let script = usize::from(!given.has(&["e", "E"]));
            if given.has(&["i"]) {
                reader.change_all(given.operands.get(script..).unwrap_or_default(), Extent::Part);
            }
        }
        "grep" | "egrep" | "fgrep" | "rg" => {
            let given = given("e:f:A:B:C:m:g:t:T:d:D:", &["regexp", "file", "context", "glob", "type"]);
            let pattern = usize::from(!given.has(&["e", "regexp", "f", "file", "files"]));
            let silent = ["l", "L", "c", "q", "files-with-matches", "count", "quiet", "files"];
            if !given.has(&silent) {
                show(reader, &given, pattern, Extent::Part, streams);
            }
        }
        "tee" => {
            let given = given("", &[]);
            let extent = if given.has(&["a", "append"]) { Extent::Part } else { Extent::Whole };
            let text = streams.text.clone().filter(|_| given.operands.len() == 1 && extent == Extent::Whole);
            given.operands.iter().for_each(|file| reader.change(file, extent, text.clone()));
        }
        "mv" | "cp" | "install" | "ln" => transfer(reader, name, arguments),
        "rm" | "unlink" => reader.change_all(&given("", &[]).operands, Extent::Whole),
        "shred" | "truncate" => {
            let given = given("n:s:r:", &["iterations", "size", "random-source", "reference"]);
            reader.change_all(&given.operands, Extent::Whole);
        }
        "mkdir" | "rmdir" | "touch" | "mkfifo" => {
            let given = given("m:d:r:t:", &["mode", "date", "reference", "time"]);
            given.operands.iter().for_each(|file| reader.touch(file));
        }
        "chmod" | "chown" | "chgrp" => {
            let given = given("", &["reference", "from"]);
            // `-x` is no option but a mode.
            let removes = name == "chmod" && given.has(&["r", "w", "x", "X", "s", "t", "u", "g", "o"]);
            let own = usize::from(!removes && !given.has(&["reference"]));
            given.operands.iter().skip(own).for_each(|file| reader.touch(file));
        }
        "dd" => {
            for word in arguments.iter().filter(|word| word.raw.starts_with("of=")) {
                let file = word.as_text().map_or(Word::unknown(), |text| Word::text(&text["of=".len()..]));
                reader.change(&file, Extent::Whole, None);
            }
        }
        "patch" => {
            let given = given("p:i:o:d:r:B:D:F:V:Y:z:g:", &["strip", "input", "output", "directory"]);
            if !given.has(&["dry-run"]) {
                git::diffed(reader, given.value(&["i", "input"]), streams);
            }
            reader.change_all(given.operands.get(..1).unwrap_or_default(), Extent::Part);
        }
        "apply_patch" | "applypatch" => {
            let text = arguments.first().and_then(Word::as_text).or(streams.text.as_deref());
            git::patched(reader, text.unwrap_or_default());
        }
        "git" => git::run(reader, arguments, streams),
        name => {
            if let Some((_, extent, letters)) = SHOW.iter().find(|(shows, ..)| *shows == name) {
                let given = given(letters, &["output", "key", "lines", "bytes"]);
                match given.value(&["o", "output"]).filter(|_| name == "sort") {
                    Some(file) => reader.change(file, Extent::Whole, None),
                    None => show(reader, &given, 0, *extent, streams),
                }
            }
        }
    }
    None
}

/// The operands are shown, except for the first ones.
fn show(reader: &mut Reader, given: &ProgramArgs, skipped: usize, extent: Extent, streams: &Streams) {
    let files = given.operands.get(skipped..).unwrap_or_default();
    let input = streams.input.as_ref().filter(|_| files.is_empty());
    for file in files.iter().chain(input).filter(|_| streams.shown) {
        // Some operands are not files but, for example, a filter.
        if extent == Extent::Whole || file.as_text().is_some_and(|text| reader.path(text).is_file()) {
            reader.read(file, extent);
        }
    }
}

/// The command behind a program such as `env`, `timeout` or `xargs`.
fn launch(
    reader: &mut Reader,
    name: &str,
    (given, rest): (ProgramArgs, &[Word]),
    own: usize,
    streams: &Streams,
) {
    let mut rest = rest.get(own..).unwrap_or_default();
    let before = (reader.folder.clone(), reader.is_certain);
    let folder = match name {
        "env" => given.value(&["C", "chdir"]),
        "sudo" => given.value(&["D", "chdir"]),
        _ => None,
    };
    if folder.is_some() {
        reader.change_folder(folder);
    }
    let is_cleared =
        given.has(&["i", "ignore-environment"]) || rest.first().is_some_and(|word| word.is(&["-"]));
    let is_unset = given.value(&["u", "unset"]).is_some_and(|name| name.value.is_none());
    if name == "env" && (is_cleared || is_unset) {
        reader.agents.push(String::new());
        rest = rest.strip_prefix(&[Word::text("-")]).unwrap_or(rest);
    }
    let mut command = rest.to_vec();
    if let Some(words) = given.value(&["S", "split-string"]).filter(|_| name == "env") {
        // It splits the text as a shell does. More arguments may follow.
        reader.script(words.as_text().filter(|_| rest.is_empty()), streams.shown);
    }
    if name == "xargs" {
        // What comes from its input is added, or replaces a text.
        let replaced = given.value(&["I", "i", "replace"]).and_then(Word::as_text);
        command = with_unknown(rest, replaced.filter(|text| !text.is_empty()).unwrap_or("{}"));
        command.push(Word::unknown());
    }
    reader.simple(&command, streams);
    (reader.folder, reader.is_certain) = before;
}

/// A command in which the words with this text are not known.
fn with_unknown(command: &[Word], replaced: &str) -> Vec<Word> {
    let known = |word: &Word| match word.as_text() {
        Some(text) if text.contains(replaced) => Word::unknown(),
        _ => word.clone(),
    };
    command.iter().map(known).collect()
}

/// The commands that `find` runs. Which files it finds is not known.
fn find(reader: &mut Reader, arguments: &[Word], streams: &Streams) {
    let mut rest = arguments;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        match word.as_text() {
            Some("-name" | "-path" | "-wholename" | "-iname") => {
                let pattern = after.first().and_then(Word::as_text);
                pattern.into_iter().for_each(|pattern| reader.note_pattern(pattern));
            }
            Some("-delete") => {
                reader.plan.vague = true;
                starts(arguments).iter().for_each(|start| reader.touch(start));
            }
            Some("-exec" | "-execdir" | "-ok" | "-okdir") => {
                let end = after.iter().position(|word| word.is(&[";", "+"])).unwrap_or(after.len());
                if after.first().is_some_and(|program| program.is(&["rm"])) {
                    starts(arguments).iter().for_each(|start| reader.touch(start));
                }
                reader.simple(&with_unknown(&after[..end], "{}"), streams);
                rest = &after[end..];
            }
            _ => {}
        }
    }
}

/// The words before the first test of `find`: everything below these may be deleted.
fn starts(arguments: &[Word]) -> &[Word] {
    let is_test = |word: &Word| word.as_text().is_some_and(|word| word.starts_with(['-', '(', '!']));
    &arguments[..arguments.iter().position(is_test).unwrap_or(arguments.len())]
}

/// `bash -c TEXT`, or a shell that reads its commands from its input. A file with a script is not followed.
fn of_shell(reader: &mut Reader, arguments: &[Word], streams: &Streams) {
    let valued = Valued { letters: "o:O:", names: &["rcfile", "init-file"] };
    let (given, operands) = ProgramArgs::before_operands(arguments, valued);
    let before = (reader.folder.clone(), reader.is_certain);
    match operands.first() {
        Some(text) if given.has(&["c"]) => reader.script(text.as_text(), streams.shown),
        Some(file) if is_printed(file) => reader.script(None, streams.shown),
        Some(file) if !given.has(&["s"]) && !file.is(&["-", "/dev/stdin"]) => {}
        _ if given.has(&["version", "help"]) => {}
        _ => reader.script(streams.text.as_deref(), streams.shown),
    }
    (reader.folder, reader.is_certain) = before;
}

/// Whether a file is what another command prints: `bash <(...)`.
fn is_printed(file: &Word) -> bool {
    file.raw.starts_with("<(")
}

/// Moves, copies and links. The last word is the target, unless `-t` gives it.
pub(super) fn transfer(reader: &mut Reader, name: &str, arguments: &[Word]) {
    let names = &["target-directory", "suffix", "mode", "group", "owner"];
    let mut given = ProgramArgs::of(arguments, Valued { letters: "t:S:m:g:o:", names });
    let folder = given.value(&["t", "target-directory"]).cloned();
    let symbolic = given.has(&["s", "symbolic", "symbolic-link"]);
    let hard = !symbolic && (name == "ln" || name == "cp" && given.has(&["l", "link"]));
    let target = match (&folder, given.operands.len()) {
        (Some(folder), _) => folder.clone(),
        // `ln file`: a link of the same name in the current folder.
        (None, 1) if name == "ln" => Word::text("."),
        (None, 0) => return,
        (None, _) => given.operands.pop().unwrap_or_default(),
    };
    let target = reader.target(&target);
    let is_folder = !given.has(&["T", "no-target-directory"])
        && target.as_ref().is_some_and(|target| folder.is_some() || target.is_dir());
    for word in &given.operands {
        let Some(source) = word.as_text().map(|text| reader.path(text)) else {
            // In a folder its name decides, and a move deletes it.
            reader.plan.vague |= is_folder || name == "mv";
            target.iter().filter(|_| !is_folder).for_each(|target| bring(reader, target.clone(), true));
            continue;
        };
        let names = || std::fs::read_dir(&source).into_iter().flatten().flatten().take(MOST_NAMES + 1);
        if hard {
            // Whoever writes to the one file also writes to the other.
            reader.touch(word);
            reader.plan.touched.extend(names().map(|entry| entry.path()));
        }
        match &target {
            Some(target) if ["cp", "mv"].contains(&name) && is_everything(word) => {
                let all: Vec<_> = names().collect();
                if all.len() > MOST_NAMES {
                    reader.change_path(target.clone(), Extent::Whole, None);
                    return;
                }
                for entry in all {
                    bring(reader, target.join(entry.file_name()), entry.path().is_dir());
                }
            }
            Some(target) => {
                let to = match (is_folder, source.file_name()) {
                    (true, Some(name)) => target.join(name),
                    _ => target.clone(),
                };
                // A link may lead to a folder that is made later.
                bring(reader, to, name == "ln" || symbolic || source.is_dir());
            }
            None => {}
        }
        if name == "mv" {
            reader.change(word, Extent::Whole, None);
        }
    }
}

/// Whether a word names what is in a folder, and not the folder.
fn is_everything(word: &Word) -> bool {
    word.as_text().is_some_and(|text| text == "." || text.ends_with("/."))
}

/// The largest number of names in a folder that are looked at one by one. More may replace everything.
const MOST_NAMES: usize = 5_000;

/// A file or a folder comes to this path.
fn bring(reader: &mut Reader, path: PathBuf, brings_files: bool) {
    let (extent, text) = (Extent::Whole, Text::Unknown);
    reader.plan_change(PlannedChange { path, extent, text, by_git: false, brings_files });
}

fn echoed(arguments: &[Word]) -> Option<String> {
    let words: Option<Vec<&str>> = arguments.iter().map(Word::as_text).collect();
    let words = words?;
    // Options and escapes differ between shells.
    let plain = !words.iter().any(|word| word.contains('\\'))
        && !words.first().is_some_and(|word| word.starts_with('-'));
    plain.then(|| words.join(" ") + "\n")
}

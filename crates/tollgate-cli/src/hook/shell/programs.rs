//! What usual programs do to the files in their arguments. Other programs are unknown, and nothing of theirs is listed.

use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::git;
use super::people;
use super::state::{Shell, Streams};
use super::transfer::transfer;
use super::word::Word;

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

/// Whether a program prints all or some of its input.
pub(super) fn lets_through(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let filters = ["sed", "awk", "gawk", "mawk", "grep", "egrep", "fgrep", "rg", "tee", "tr", "fold", "rev"];
    filters.contains(&name) || SHOW.iter().any(|(shows, ..)| *shows == name)
}

/// Adds what one command does. Returns what it prints, if that is certain.
pub(super) fn run(
    shell: &mut Shell,
    program: &Word,
    arguments: &[Word],
    streams: &Streams,
) -> Option<String> {
    let name = program.as_text().and_then(|name| name.rsplit('/').next())?;
    let given = |letters, names| ProgramArgs::of(arguments, Valued { letters, names });
    match name {
        "tollgate" => people::note_call(shell, arguments),
        "cd" | "pushd" => shell.change_folder(given("", &[]).operands.first()),
        "popd" => shell.is_certain = false,
        "cat" if arguments.is_empty() && streams.input.is_none() => return streams.text.clone(),
        "echo" => return echoed(arguments),
        "sed" => {
            let given = given("e:f:l:i::", &["expression", "file", "line-length"]);
            let script = usize::from(!given.has(&["e", "expression", "f", "file"]));
            match given.has(&["i", "in-place"]) {
                true => shell.change_all(given.operands.get(script..).unwrap_or_default(), Extent::Part),
                false => show(shell, &given, script, Extent::Part, streams),
            }
        }
        "awk" | "gawk" | "mawk" => {
            let given = given("F:v:f:i:e:E:l:", &["field-separator", "assign", "file", "include", "source"]);
            let script = usize::from(!given.has(&["f", "file", "e", "source", "E"]));
            match given.value(&["i", "include"]).is_some_and(|file| file.is(&["inplace"])) {
                true => shell.change_all(given.operands.get(script..).unwrap_or_default(), Extent::Part),
                false => show(shell, &given, script, Extent::Part, streams),
            }
        }
        "perl" | "ruby" => {
            let given = match name {
                "perl" => given("e:E:I:M:m:C::D::F::V::x::i::0#l#", &[]),
                _ => given("e:I:r:C:E:F::K::T::W::x::i::0#", &[]),
            };
            let script = usize::from(!given.has(&["e", "E"]));
            if given.has(&["i"]) {
                shell.change_all(given.operands.get(script..).unwrap_or_default(), Extent::Part);
            }
        }
        "grep" | "egrep" | "fgrep" | "rg" => {
            let given = given("e:f:A:B:C:m:g:t:T:d:D:", &["regexp", "file", "context", "glob", "type"]);
            let pattern = usize::from(!given.has(&["e", "regexp", "f", "file", "files"]));
            let silent = ["l", "L", "c", "q", "files-with-matches", "count", "quiet", "files"];
            if !given.has(&silent) {
                show(shell, &given, pattern, Extent::Part, streams);
            }
        }
        "tee" => {
            let given = given("", &[]);
            let extent = if given.has(&["a", "append"]) { Extent::Part } else { Extent::Whole };
            let text = streams.text.clone().filter(|_| given.operands.len() == 1 && extent == Extent::Whole);
            given.operands.iter().for_each(|file| shell.change(file, extent, text.clone()));
        }
        "mv" | "cp" | "install" | "ln" => transfer(shell, name, arguments),
        "rm" | "unlink" => shell.change_all(&given("", &[]).operands, Extent::Whole),
        "shred" | "truncate" => {
            let given = given("n:s:r:", &["iterations", "size", "random-source", "reference"]);
            shell.change_all(&given.operands, Extent::Whole);
        }
        "mkdir" | "rmdir" | "touch" | "mkfifo" => {
            let given = given("m:d:r:t:", &["mode", "date", "reference", "time"]);
            given.operands.iter().for_each(|file| shell.touch(file));
        }
        "chmod" | "chown" | "chgrp" => {
            let given = given("", &["reference", "from"]);
            // `-x` is no option but a mode.
            let removes = name == "chmod" && given.has(&["r", "w", "x", "X", "s", "t", "u", "g", "o"]);
            let own = usize::from(!removes && !given.has(&["reference"]));
            given.operands.iter().skip(own).for_each(|file| shell.touch(file));
        }
        "dd" => {
            for word in arguments.iter().filter(|word| word.raw.starts_with("of=")) {
                let file = word.as_text().map_or(Word::unknown(), |text| Word::text(&text["of=".len()..]));
                shell.change(&file, Extent::Whole, None);
            }
        }
        "patch" => {
            let given = given("p:i:o:d:r:B:D:F:V:Y:z:g:", &["strip", "input", "output", "directory"]);
            if !given.has(&["dry-run"]) {
                git::diffed(shell, given.value(&["i", "input"]), streams);
            }
            shell.change_all(given.operands.get(..1).unwrap_or_default(), Extent::Part);
        }
        "apply_patch" | "applypatch" => {
            let text = arguments.first().and_then(Word::as_text).or(streams.text.as_deref());
            git::patched(shell, text.unwrap_or_default());
        }
        "git" => git::run(shell, arguments, streams),
        name => {
            if let Some((_, extent, letters)) = SHOW.iter().find(|(shows, ..)| *shows == name) {
                let given = given(letters, &["output", "key", "lines", "bytes"]);
                match given.value(&["o", "output"]).filter(|_| name == "sort") {
                    Some(file) => shell.change(file, Extent::Whole, None),
                    None => show(shell, &given, 0, *extent, streams),
                }
            }
        }
    }
    None
}

/// The operands are shown, except for the first ones.
fn show(shell: &mut Shell, given: &ProgramArgs, skipped: usize, extent: Extent, streams: &Streams) {
    let files = given.operands.get(skipped..).unwrap_or_default();
    let input = streams.input.as_ref().filter(|_| files.is_empty());
    for file in files.iter().chain(input).filter(|_| streams.shown) {
        // Some operands are not files but, for example, a filter.
        if extent == Extent::Whole || file.as_text().is_some_and(|text| shell.path(text).is_file()) {
            shell.read(file, extent);
        }
    }
}

fn echoed(arguments: &[Word]) -> Option<String> {
    let words: Option<Vec<&str>> = arguments.iter().map(Word::as_text).collect();
    let words = words?;
    // Options and escapes differ between shells.
    let plain = !words.iter().any(|word| word.contains('\\'))
        && !words.first().is_some_and(|word| word.starts_with('-'));
    plain.then(|| words.join(" ") + "\n")
}

//! The effects of common programs on their files. Other programs are unknown, and no effects of theirs are listed.

use std::path::PathBuf;

use tollgate::turn::Extent;

use super::after_program::AfterProgram;
use super::arguments::{NONE, ProgramArgs, Valued};
use super::find;
use super::git::{Stripped, diffed, git, patched};
use super::launch::launched;
use super::people::{acts_as, people_only};
use super::redirect::{OutputTarget, Redirects};
use super::scripts;
use super::state::Shell;
use super::transfer::{change, transfer};
use super::word::Word;

/// Programs that print their files whole.
const SHOW_ALL: [&str; 8] = ["cat", "nl", "tac", "bat", "batcat", "less", "more", "zcat"];

/// Programs that print some of their files, and the letters of their options that take a value.
const SHOW_SOME: [(&str, &str); 16] = [
    ("head", "n:c:"),
    ("tail", "n:c:"),
    ("cut", "d:f:c:b:"),
    ("sort", "k:t:o:"),
    ("uniq", "f:s:w:"),
    ("jq", ""),
    ("yq", ""),
    ("xxd", "l:s:c:"),
    ("od", "A:t:j:N:"),
    ("hexdump", "n:s:e:"),
    ("strings", "n:"),
    ("fold", "w:"),
    ("column", "s:t:c:o:"),
    ("rev", ""),
    ("diff", "U:"),
    ("expand", "t:"),
];

/// Programs that add and remove no names, so that `find` finds what is there now.
const HARMLESS: [&str; 12] =
    ["cd", "pushd", "popd", "set", "export", "echo", "printf", "ls", "cat", "grep", "rg", "sed"];

/// Whether a program prints all or some of its input.
pub(super) fn lets_through(name: &str) -> bool {
    let filters = ["sed", "awk", "gawk", "mawk", "grep", "egrep", "fgrep", "rg", "tee", "tr"];
    SHOW_ALL.contains(&name) || filters.contains(&name) || SHOW_SOME.iter().any(|(some, _)| *some == name)
}

/// Adds the effects of one command.
pub(super) fn run(
    shell: &mut Shell,
    words: &[Word],
    output: OutputTarget,
    redirects: &Redirects,
) -> AfterProgram {
    let Some((program, arguments)) = words.split_first() else { return AfterProgram::Quiet };
    if shell.effects.people_only.is_none() {
        shell.effects.people_only = people_only(shell, program.as_text(), arguments, redirects);
    }
    let acts_as = acts_as(shell, program.as_text(), arguments);
    shell.effects.acts_as.extend(acts_as);
    let Some(name) = program.as_text().and_then(|name| name.rsplit('/').next()) else {
        return AfterProgram::Quiet;
    };
    if name == "find"
        // The order in which it prints is not known.
        && redirects.outputs.is_empty()
        && let Some(text) = find::printed(shell, arguments)
    {
        return AfterProgram::Prints(text);
    }
    if let Some(launch) = launched(shell, name, arguments, redirects.text.as_deref()) {
        return AfterProgram::Launched(launch);
    }
    shell.has_run |= !HARMLESS.contains(&name);
    let given = |letters, names| ProgramArgs::of(arguments, Valued { letters, names });
    let shown = output == OutputTarget::Shown;
    match name {
        "cd" | "pushd" => change_folder(shell, arguments),
        "popd" => {
            let last = shell.env.last_folder.take();
            shell.env.may_be_in(last);
        }
        "set" => {
            if let Some(operands) = set_arguments(arguments) {
                shell.env.positional = Some(operands.to_vec());
            }
        }
        "shift" => {
            let by = arguments.first().map_or(Some(1), |word| word.as_text()?.parse::<usize>().ok());
            let positional = shell.env.positional.take().zip(by);
            shell.env.positional = positional.map(|(words, by)| words.into_iter().skip(by).collect());
        }
        // Their values are not in the text.
        "read" | "mapfile" | "readarray" | "unset" | "getopts" | "let" => {
            arguments.iter().filter_map(Word::as_text).for_each(|name| {
                shell.env.set(name.split(['=', '+', '-', '[']).next().unwrap_or(name), Word::Unknown);
            });
        }
        "cat" if arguments.is_empty() && redirects.inputs.is_empty() => {
            return AfterProgram::prints(redirects.text.clone());
        }
        "echo" => return AfterProgram::prints(echoed(arguments)),
        "printf" => {
            if let [option, name, ..] = arguments
                && option.as_text() == Some("-v")
            {
                shell.env.set(name.as_text().unwrap_or_default(), Word::Unknown);
            }
            return AfterProgram::prints(printed(arguments));
        }
        name if SHOW_ALL.contains(&name) => {
            if shown {
                let valued = match name {
                    "nl" => "b:d:f:h:i:l:n:s:v:w:",
                    "bat" | "batcat" => "l:r:H:m:",
                    _ => "",
                };
                show(shell, given(valued, &[]).operands, Extent::Whole, redirects);
            }
        }
        "sed" => sed(shell, &given("e:f:l:i::", &["expression", "file", "line-length"]), shown, redirects),
        "awk" | "gawk" | "mawk" => {
            let given = given("F:v:f:i:e:E:l:", &["field-separator", "assign", "file", "include", "source"]);
            let program = usize::from(!given.has(&["f", "file", "e", "source", "E"]));
            let files = given.operands.iter().skip(program).cloned().collect();
            if given.value(&["i", "include"]).is_some_and(|file| file.as_text() == Some("inplace")) {
                change(shell, files, Extent::Part, None);
            } else if shown {
                show(shell, files, Extent::Part, redirects);
            }
        }
        "grep" | "egrep" | "fgrep" | "rg" => {
            let given = given("e:f:A:B:C:m:g:t:T:d:D:", &["regexp", "file", "context", "glob", "type"]);
            let pattern = usize::from(!given.has(&["e", "regexp", "f", "file", "files"]));
            let silent = ["l", "L", "c", "q", "files-with-matches", "count", "quiet", "files"];
            if shown && !given.has(&silent) {
                show(shell, given.operands.into_iter().skip(pattern).collect(), Extent::Part, redirects);
            }
        }
        "tee" => {
            let given = given("", &[]);
            let appends = given.has(&["a", "append"]);
            let extent = if appends { Extent::Part } else { Extent::Whole };
            let only = given.operands.len() == 1 && !appends;
            change(shell, given.operands, extent, redirects.text.clone().filter(|_| only));
        }
        "perl" | "ruby" => {
            let given = match name {
                "perl" => given("e:E:I:M:m:C::D::F::V::x::i::0#l#", &[]),
                _ => given("e:I:r:C:E:F::K::T::W::x::i::0#", &[]),
            };
            let script = usize::from(!given.has(&["e", "E"]));
            if given.has(&["i"]) {
                change(shell, given.operands.into_iter().skip(script).collect(), Extent::Part, None);
            }
        }
        "mv" | "cp" | "install" | "ln" => transfer(shell, name, arguments),
        "rm" | "unlink" | "shred" => {
            let given = given("n:s:", &["iterations", "size", "random-source"]);
            change(shell, given.operands, Extent::Whole, None);
        }
        "mkdir" | "rmdir" | "touch" | "mkfifo" => {
            touch(shell, given("m:d:r:t:", &["mode", "date", "reference", "time"]).operands);
        }
        "chmod" | "chown" | "chgrp" => {
            let given = given("", &["reference", "from"]);
            // `-x` is no option but a mode.
            let removes = name == "chmod" && given.has(&["r", "w", "x", "X", "s", "t", "u", "g", "o"]);
            let own = usize::from(!removes && !given.has(&["reference"]));
            touch(shell, given.operands.into_iter().skip(own).collect());
        }
        "sort" if let Some(file) = sorted_to(arguments) => change(shell, vec![file], Extent::Whole, None),
        "truncate" => {
            let given = given("s:r:", &["size", "reference"]);
            change(shell, given.operands, Extent::Whole, None);
        }
        "patch" => {
            let given = given("p:i:o:d:r:B:D:F:V:Y:z:g:", &["strip", "input", "output", "directory"]);
            let input = given.value(&["i", "input"]).cloned().or_else(|| redirects.inputs.first().cloned());
            if !given.has(&["dry-run"]) {
                let folders = if given.has(&["p", "strip"]) { Stripped::First } else { Stripped::All };
                diffed(shell, input.as_ref(), redirects, folders);
            }
            change(shell, given.operands.into_iter().take(1).collect(), Extent::Part, None);
        }
        "dd" => {
            let target = |word: &Word| match word.as_text() {
                Some(text) => text.strip_prefix("of=").map(Word::text),
                None => Some(Word::Unknown),
            };
            change(shell, arguments.iter().filter_map(target).collect(), Extent::Whole, None);
        }
        "git" => git(shell, arguments, redirects),
        "apply_patch" | "applypatch" => {
            let text = arguments.first().and_then(Word::as_text).map(str::to_owned);
            patched(shell, &text.or_else(|| redirects.text.clone()).unwrap_or_default());
        }
        "eval" => return scripts::eval(shell, arguments),
        "." | "source" => return scripts::source(shell, arguments, redirects),
        "trap" => return scripts::trap(shell, arguments),
        "watch" => return scripts::watch(shell, arguments),
        "script" | "su" | "runuser" => return scripts::of_option(shell, name, arguments),
        "bash" | "sh" | "zsh" | "dash" | "ksh" | "fish" => {
            return scripts::of_shell(shell, arguments, redirects);
        }
        name => {
            if let Some((_, valued)) = SHOW_SOME.iter().find(|(some, _)| *some == name)
                && shown
            {
                let files = given(valued, &[]).operands;
                // Some operands are not files but, for example, a filter. Only existing files count.
                let files = files
                    .into_iter()
                    .filter(|word| shell.env.paths(word.clone()).iter().any(|path| path.is_file()));
                let files = files.collect();
                show(shell, files, Extent::Part, redirects);
            }
        }
    }
    AfterProgram::Quiet
}

fn show(shell: &mut Shell, files: Vec<Word>, extent: Extent, redirects: &Redirects) {
    let inputs = if files.is_empty() { redirects.inputs.clone() } else { Vec::new() };
    for word in files.into_iter().chain(inputs) {
        if shell.is_exhausted(0) {
            return;
        }
        // Elsewhere, another file of the same name may have been shown.
        if shell.env.is_vague(&word) {
            continue;
        }
        for path in shell.env.paths(word) {
            if !path.is_dir() && !path.ends_with("-") {
                shell.read(path, extent);
            }
        }
    }
}

fn touch(shell: &mut Shell, files: Vec<Word>) {
    for word in files {
        if shell.is_exhausted(0) {
            return;
        }
        let paths = shell.env.paths(word);
        shell.effects.touched.extend(paths);
    }
}

/// If the folder is not there, `cd` fails, and the shell stays where it is. If its name is not known, only the old folder is
/// left as a candidate.
fn change_folder(shell: &mut Shell, arguments: &[Word]) {
    let given = ProgramArgs::of(arguments, NONE);
    let folders: Vec<PathBuf> = match given.operands.first().map(Word::as_text) {
        None => shell.env.home.iter().cloned().collect(),
        Some(Some("-")) => shell.env.last_folder.iter().cloned().collect(),
        Some(name) => name.map(|name| shell.env.possible_paths(name)).unwrap_or_default(),
    };
    let last = shell.env.folder.clone();
    let is_absolute = given
        .operands
        .first()
        .and_then(Word::as_text)
        .is_none_or(|name| name == "-" || name.starts_with('/'));
    match &folders[..] {
        [folder] if shell.has_folder(folder) && (last.is_some() || is_absolute) => {
            shell.env.folder = Some(folder.clone());
            shell.env.folders.clear();
        }
        _ => shell.env.may_be_in(folders),
    }
    shell.env.last_folder = last;
}

/// The new arguments of the shell, if `set` gives it some: what follows its options, or `--`.
fn set_arguments(words: &[Word]) -> Option<&[Word]> {
    let mut rest = words;
    while let [word, after @ ..] = rest {
        rest = match word.as_text() {
            Some("--") => return Some(after),
            Some("-") => return Some(after).filter(|after| !after.is_empty()),
            // The name of an option follows, as in `-euo pipefail`.
            Some(option) if option.starts_with(['-', '+']) && option.contains('o') => {
                after.get(1..).unwrap_or_default()
            }
            Some(option) if option.starts_with(['-', '+']) => after,
            _ => return Some(rest),
        };
    }
    None
}

/// The file that `sort` writes instead of printing.
fn sorted_to(arguments: &[Word]) -> Option<Word> {
    let names = &["output", "key", "field-separator", "buffer-size", "temporary-directory", "parallel"];
    let given = ProgramArgs::of(arguments, Valued { letters: "k:t:o:S:T:", names });
    given.value(&["o", "output"]).cloned()
}

fn sed(shell: &mut Shell, given: &ProgramArgs, shown: bool, redirects: &Redirects) {
    let has_script = given.has(&["e", "expression", "f", "file"]);
    let files: Vec<Word> = given.operands.iter().skip(usize::from(!has_script)).cloned().collect();
    if given.has(&["i", "in-place"]) {
        change(shell, files, Extent::Part, None);
    } else if shown {
        show(shell, files, Extent::Part, redirects);
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

fn printed(arguments: &[Word]) -> Option<String> {
    match arguments {
        [format] => format.as_text().filter(|text| !text.contains(['%', '\\'])).map(str::to_owned),
        [format, value] if format.as_text() == Some("%s") => value.as_text().map(str::to_owned),
        [format, value] if format.as_text() == Some("%s\\n") => {
            value.as_text().map(|text| format!("{text}\n"))
        }
        _ => None,
    }
}

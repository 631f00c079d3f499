//! What the usual programs do to the files that they are given. A program that is not listed does nothing that we know of.

use std::path::PathBuf;

use tollgate::turn::Extent;

use super::word::Word;
use super::{Output, Reader, Redirects};
use crate::hook::event::Deed;
use crate::hook::patch;

/// Programs that show the whole of their files.
const SHOW_ALL: [&str; 8] = ["cat", "nl", "tac", "bat", "batcat", "less", "more", "zcat"];

/// Programs that show something of their files, after options that may take a value.
const SHOW_SOME: [(&str, &str); 16] = [
    ("head", "nc"),
    ("tail", "nc"),
    ("cut", "dfcb"),
    ("sort", "kto"),
    ("uniq", "fsw"),
    ("jq", ""),
    ("yq", ""),
    ("xxd", "lsc"),
    ("od", "AtjN"),
    ("hexdump", "nse"),
    ("strings", "n"),
    ("fold", "w"),
    ("column", "stco"),
    ("rev", ""),
    ("diff", "U"),
    ("expand", "t"),
];

/// More files than this are not looked at before a program of which we know nothing.
const NAMED: usize = 100;

/// Whether what goes into a program comes out again, all or some of it.
pub(super) fn lets_through(name: &str) -> bool {
    let filters = ["sed", "awk", "gawk", "mawk", "grep", "egrep", "fgrep", "rg", "tee", "tr"];
    SHOW_ALL.contains(&name) || filters.contains(&name) || SHOW_SOME.iter().any(|(some, _)| *some == name)
}

/// Follows one command. Says what its standard output will be, if that is certain.
pub(super) fn run(
    reader: &mut Reader,
    words: &[Word],
    output: Output,
    redirects: &Redirects,
    depth: usize,
) -> Option<String> {
    let words = without_prefix(words);
    let (name, arguments) = words.split_first()?;
    let name = name.as_text()?.rsplit('/').next()?.to_owned();
    let given = Arguments { words: arguments };
    let shown = output == Output::Shown;
    match name.as_str() {
        "cd" | "pushd" => reader.folder = change_folder(reader, &given),
        "popd" => reader.folder = None,
        "cat" if arguments.is_empty() && redirects.inputs.is_empty() => return redirects.text.clone(),
        "echo" => return echoed(arguments),
        "printf" => return printed(arguments),
        name if SHOW_ALL.contains(&name) => {
            if shown {
                let valued = match name {
                    "nl" => "bdfhilnsvw",
                    "bat" | "batcat" => "lrHm",
                    _ => "",
                };
                show(reader, given.operands(valued).0, Extent::Whole, redirects);
            }
        }
        "sed" => sed(reader, &given, shown, redirects),
        "awk" | "gawk" | "mawk" => {
            let (operands, options) = given.operands("Fvf");
            let program = usize::from(!options.iter().any(|option| option == "-f"));
            if shown {
                show(reader, operands.into_iter().skip(program).collect(), Extent::Part, redirects);
            }
        }
        "grep" | "egrep" | "fgrep" | "rg" => {
            let (operands, options) = given.operands("efABCmgtTdD");
            let pattern =
                usize::from(!options.iter().any(|option| option.starts_with("-e") || option == "--files"));
            let silent = ["-l", "-L", "-c", "-q", "--files-with-matches", "--count", "--quiet", "--files"];
            if shown && !options.iter().any(|option| silent.contains(&option.as_str())) {
                show(reader, operands.into_iter().skip(pattern).collect(), Extent::Part, redirects);
            }
        }
        "tee" => {
            let (operands, options) = given.operands("");
            let appends = options.iter().any(|option| option == "-a" || option == "--append");
            let extent = if appends { Extent::Part } else { Extent::Whole };
            let only = operands.len() == 1 && !appends;
            change(reader, operands, extent, redirects.text.clone().filter(|_| only));
        }
        "perl" | "ruby" => {
            let (operands, options) = given.operands("eEIMm");
            // `-i`, `-pi`, `-i.bak`.
            let in_place = options.iter().any(|option| {
                option.strip_prefix('-').is_some_and(|letters| {
                    letters.chars().take_while(char::is_ascii_alphabetic).any(|letter| letter == 'i')
                })
            });
            let script = usize::from(!options.iter().any(|option| option.ends_with(['e', 'E'])));
            if in_place {
                change(reader, operands.into_iter().skip(script).collect(), Extent::Part, None);
            }
        }
        "mv" | "cp" | "install" | "ln" => transfer(reader, &name, &given),
        "rm" | "unlink" | "shred" => change(reader, given.operands("nsz").0, Extent::Whole, None),
        "truncate" => change(reader, given.operands("sr").0, Extent::Whole, None),
        "patch" => {
            change(reader, given.operands("piodrBD").0.into_iter().take(1).collect(), Extent::Part, None);
        }
        "dd" => {
            let target = |word: &Word| word.as_text()?.strip_prefix("of=").map(Word::text);
            change(reader, arguments.iter().filter_map(target).collect(), Extent::Whole, None);
        }
        "git" => git(reader, &given),
        "apply_patch" | "applypatch" => {
            let text = arguments.first().and_then(Word::as_text).map(str::to_owned);
            patched(reader, &text.or_else(|| redirects.text.clone()).unwrap_or_default());
        }
        "bash" | "sh" | "zsh" | "dash" | "ksh" => {
            let flag = arguments.iter().position(|word| {
                word.as_text().is_some_and(|word| {
                    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
                })
            });
            if let Some(script) = flag.and_then(|flag| arguments.get(flag + 1)?.as_text()) {
                nested(reader, script, output, depth);
            } else if arguments.is_empty()
                && let Some(script) = &redirects.text
            {
                nested(reader, script, output, depth);
            }
        }
        "eval" => {
            let script: Option<Vec<&str>> = arguments.iter().map(Word::as_text).collect();
            if let Some(script) = script {
                reader.text(&script.join(" "), output, depth + 1);
            }
        }
        name => {
            if let Some((_, valued)) = SHOW_SOME.iter().find(|(some, _)| *some == name)
                && shown
            {
                let files = given.operands(valued).0;
                // Some take more than files, such as a filter; only what is there is a file.
                let files = files
                    .into_iter()
                    .filter(|word| reader.paths(word.clone()).iter().any(|path| path.is_file()));
                let files = files.collect();
                show(reader, files, Extent::Part, redirects);
            } else if reader.effects.named.len() < NAMED {
                let named = arguments.iter().flat_map(|word| reader.paths(word.clone()));
                let named: Vec<PathBuf> = named.filter(|path| path.is_file()).take(NAMED).collect();
                reader.effects.named.extend(named);
            }
        }
    }
    None
}

/// A shell in a shell: what it does to its folder and variables is its own.
fn nested(reader: &mut Reader, script: &str, output: Output, depth: usize) {
    let (folder, variables) = (reader.folder.clone(), reader.variables.clone());
    if !reader.is_exhausted(depth + 1) {
        reader.text(script, output, depth + 10);
    }
    (reader.folder, reader.variables) = (folder, variables);
}

/// Words that run the command behind them.
fn without_prefix(mut words: &[Word]) -> &[Word] {
    loop {
        let Some(name) = words.first().and_then(Word::as_text) else { return words };
        let takes_value = match name.rsplit('/').next().unwrap_or(name) {
            "sudo" | "doas" => "ugC",
            "command" | "builtin" | "exec" | "nohup" | "time" | "then" | "do" | "else" => "",
            "env" => "uC",
            "timeout" => "sk",
            "nice" | "ionice" => "ncp",
            "stdbuf" => "ioe",
            _ => return words,
        };
        let timed = name.ends_with("timeout");
        let mut rest = &words[1..];
        while let Some(word) = rest.first().and_then(Word::as_text) {
            if let Some(letters) = word.strip_prefix('-') {
                let skip = letters.len() == 1 && takes_value.contains(letters);
                rest = rest.get(1 + usize::from(skip)..).unwrap_or_default();
            } else if name.ends_with("env") && word.contains('=') {
                rest = &rest[1..];
            } else {
                break;
            }
        }
        if timed {
            rest = rest.get(1..).unwrap_or_default();
        }
        words = rest;
    }
}

/// The arguments of a command.
struct Arguments<'w> {
    words: &'w [Word],
}

impl Arguments<'_> {
    /// What is no option, and the options. These letters take a value, in the same word or in the next.
    fn operands(&self, valued: &str) -> (Vec<Word>, Vec<String>) {
        let (mut operands, mut options) = (Vec::new(), Vec::new());
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            match word.as_text() {
                Some("--") => {
                    operands.extend(words.by_ref().cloned());
                }
                Some(option) if option.len() > 1 && option.starts_with('-') => {
                    options.push(option.to_owned());
                    if !option.starts_with("--")
                        && option.len() >= 2
                        && option.chars().last().is_some_and(|letter| valued.contains(letter))
                        && option.chars().skip(1).all(|letter| letter.is_ascii_alphabetic())
                    {
                        words.next();
                    }
                }
                _ => operands.push(word.clone()),
            }
        }
        (operands, options)
    }
}

fn show(reader: &mut Reader, files: Vec<Word>, extent: Extent, redirects: &Redirects) {
    let inputs = if files.is_empty() { redirects.inputs.clone() } else { Vec::new() };
    for word in files.into_iter().chain(inputs) {
        for path in reader.paths(word) {
            if !path.is_dir() && !path.ends_with("-") {
                reader.read(path, extent);
            }
        }
    }
}

fn change(reader: &mut Reader, files: Vec<Word>, extent: Extent, text: Option<String>) {
    for word in files {
        for path in reader.paths(word) {
            reader.change(path, extent, text.clone());
        }
    }
}

fn change_folder(reader: &Reader, given: &Arguments<'_>) -> Option<PathBuf> {
    match given.operands("").0.first() {
        None => reader.home.clone(),
        Some(word) => reader.path(word.as_text().filter(|word| *word != "-")?),
    }
}

fn sed(reader: &mut Reader, given: &Arguments<'_>, shown: bool, redirects: &Redirects) {
    let (operands, options) = given.operands("ef");
    let has_script =
        |option: &String| option.starts_with("-e") || option.starts_with("-f") || option.ends_with('e');
    let has_script = options.iter().any(|option| has_script(option) || option.starts_with("--expression"));
    let files: Vec<Word> = operands.into_iter().skip(usize::from(!has_script)).collect();
    let in_place = options.iter().any(|option| {
        option.starts_with("--in-place")
            || !option.starts_with("--")
                && option.trim_start_matches(['-', 'n', 'E', 'r', 's', 'z', 'u']).starts_with('i')
    });
    if in_place {
        change(reader, files, Extent::Part, None);
    } else if shown {
        show(reader, files, Extent::Part, redirects);
    }
}

/// Files that go from one place to another: the last word is where, unless `-t` says so.
fn transfer(reader: &mut Reader, name: &str, given: &Arguments<'_>) {
    let (mut operands, _) = given.operands("tSmgo");
    let into = given.words.iter().position(|word| word.as_text() == Some("-t"));
    let target = match into.and_then(|at| given.words.get(at + 1)) {
        Some(folder) => Some(folder.clone()),
        None => operands.pop(),
    };
    let Some(target) = target.and_then(Word::into_text).and_then(|text| reader.path(&text)) else {
        if name == "mv" {
            change(reader, operands, Extent::Whole, None);
        }
        return;
    };
    let is_folder = target.is_dir();
    for word in operands {
        for source in reader.paths(word) {
            let to = match (is_folder, source.file_name()) {
                (true, Some(name)) => target.join(name),
                _ => target.clone(),
            };
            reader.change(to, Extent::Whole, None);
            if name == "mv" {
                reader.change(source, Extent::Whole, None);
            }
        }
    }
}

/// The commands of git that put other bytes into files that they are given by name.
fn git(reader: &mut Reader, given: &Arguments<'_>) {
    let mut words = given.words;
    let mut folder = reader.folder.clone();
    while let [option, value, rest @ ..] = words {
        match option.as_text() {
            Some("-C") => folder = value.as_text().and_then(|text| reader.path(text)),
            Some("-c") => {}
            _ => break,
        }
        words = rest;
    }
    let Some((command, rest)) = words.split_first() else { return };
    let here = std::mem::replace(&mut reader.folder, folder);
    let (operands, _) = Arguments { words: rest }.operands("sbBmF");
    match command.as_text() {
        // Branches are named in the same place; only what is there is a file.
        Some("checkout" | "restore" | "rm") => {
            let files = operands
                .into_iter()
                .filter(|word| reader.paths(word.clone()).iter().any(|path| path.exists()));
            let files = files.collect();
            change(reader, files, Extent::Whole, None);
        }
        Some("mv") => transfer(reader, "mv", &Arguments { words: rest }),
        _ => {}
    }
    reader.folder = here;
}

fn patched(reader: &mut Reader, text: &str) {
    for deed in patch::deeds(text) {
        let (path, extent, text) = match deed {
            Deed::Write(path, text) => (path, Extent::Whole, text),
            Deed::Edit(path, _) | Deed::Patch(path, _) => (path, Extent::Part, None),
            Deed::Delete(path) => (path, Extent::Whole, None),
            Deed::Read(..) => continue,
        };
        if let Some(path) = path.to_str().and_then(|path| reader.path(path)) {
            reader.change(path, extent, text);
        }
    }
}

fn echoed(arguments: &[Word]) -> Option<String> {
    let words: Option<Vec<&str>> = arguments.iter().map(Word::as_text).collect();
    let words = words?;
    // Options and escapes mean different things in different shells.
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

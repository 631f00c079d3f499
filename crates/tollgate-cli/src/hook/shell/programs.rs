//! The effects of common programs on their files. Other programs are unknown, and no effects of theirs are listed.

use std::path::PathBuf;

use tollgate::turn::Extent;

use super::people::people_only;
use super::redirect::{OutputTarget, Redirects};
use super::state::Shell;
use super::word::Word;
use crate::host::event::Deed;
use crate::host::patch;

/// Programs that print their files whole.
const SHOW_ALL: [&str; 8] = ["cat", "nl", "tac", "bat", "batcat", "less", "more", "zcat"];

/// Programs that print some of their files, and the letters of their options that take a value.
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

/// The largest number of files of unknown programs that are listed.
const NAMED: usize = 100;

/// The largest number of paths of one command that are only touched.
const TOUCHED: usize = 1_000;

/// Whether a program prints all or some of its input.
pub(super) fn lets_through(name: &str) -> bool {
    let filters = ["sed", "awk", "gawk", "mawk", "grep", "egrep", "fgrep", "rg", "tee", "tr"];
    SHOW_ALL.contains(&name) || filters.contains(&name) || SHOW_SOME.iter().any(|(some, _)| *some == name)
}

/// What the shell does after a program.
pub(super) enum AfterProgram {
    /// The program prints exactly this.
    Prints(String),
    /// Nothing else is certain.
    Quiet,
    /// The shell runs this text itself.
    Eval(String),
    /// Another shell runs this text.
    Script(String),
}

impl AfterProgram {
    fn prints(text: Option<String>) -> Self {
        text.map_or(Self::Quiet, Self::Prints)
    }
}

/// Adds the effects of one command.
pub(super) fn run(
    shell: &mut Shell,
    words: &[Word],
    output: OutputTarget,
    redirects: &Redirects,
) -> AfterProgram {
    let Some((name, arguments)) = without_prefix(words).split_first() else { return AfterProgram::Quiet };
    let name = name.as_text().and_then(|name| name.rsplit('/').next());
    if shell.effects.people_only.is_none() {
        shell.effects.people_only = people_only(name, arguments);
    }
    let Some(name) = name else { return AfterProgram::Quiet };
    let given = ProgramArgs { words: arguments };
    let shown = output == OutputTarget::Shown;
    match name {
        "cd" | "pushd" => shell.env.folder = change_folder(shell, &given),
        "popd" => shell.env.folder = None,
        "cat" if arguments.is_empty() && redirects.inputs.is_empty() => {
            return AfterProgram::prints(redirects.text.clone());
        }
        "echo" => return AfterProgram::prints(echoed(arguments)),
        "printf" => return AfterProgram::prints(printed(arguments)),
        name if SHOW_ALL.contains(&name) => {
            if shown {
                let valued = match name {
                    "nl" => "bdfhilnsvw",
                    "bat" | "batcat" => "lrHm",
                    _ => "",
                };
                show(shell, given.operands(valued).0, Extent::Whole, redirects);
            }
        }
        "sed" => sed(shell, &given, shown, redirects),
        "awk" | "gawk" | "mawk" => {
            let (operands, options) = given.operands("Fvf");
            let program = usize::from(!options.iter().any(|option| option == "-f"));
            if shown {
                show(shell, operands.into_iter().skip(program).collect(), Extent::Part, redirects);
            }
        }
        "grep" | "egrep" | "fgrep" | "rg" => {
            let (operands, options) = given.operands("efABCmgtTdD");
            let pattern =
                usize::from(!options.iter().any(|option| option.starts_with("-e") || option == "--files"));
            let silent = ["-l", "-L", "-c", "-q", "--files-with-matches", "--count", "--quiet", "--files"];
            if shown && !options.iter().any(|option| silent.contains(&option.as_str())) {
                show(shell, operands.into_iter().skip(pattern).collect(), Extent::Part, redirects);
            }
        }
        "tee" => {
            let (operands, options) = given.operands("");
            let appends = options.iter().any(|option| option == "-a" || option == "--append");
            let extent = if appends { Extent::Part } else { Extent::Whole };
            let only = operands.len() == 1 && !appends;
            change(shell, operands, extent, redirects.text.clone().filter(|_| only));
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
                change(shell, operands.into_iter().skip(script).collect(), Extent::Part, None);
            }
        }
        "mv" | "cp" | "install" | "ln" => transfer(shell, name, &given),
        "rm" | "unlink" | "shred" => change(shell, given.operands("nsz").0, Extent::Whole, None),
        "mkdir" | "rmdir" | "touch" | "mkfifo" => {
            let paths = given.operands("mdrt").0.into_iter().flat_map(|word| shell.env.paths(word));
            let paths: Vec<PathBuf> = paths.take(TOUCHED).collect();
            shell.effects.touched.extend(paths);
        }
        "chmod" | "chown" | "chgrp" => {
            let paths = given.operands("").0.into_iter().skip(1).flat_map(|word| shell.env.paths(word));
            let paths: Vec<PathBuf> = paths.take(TOUCHED).collect();
            shell.effects.touched.extend(paths);
        }
        "truncate" => change(shell, given.operands("sr").0, Extent::Whole, None),
        "patch" => {
            change(shell, given.operands("piodrBD").0.into_iter().take(1).collect(), Extent::Part, None);
        }
        "dd" => {
            let target = |word: &Word| word.as_text()?.strip_prefix("of=").map(Word::text);
            change(shell, arguments.iter().filter_map(target).collect(), Extent::Whole, None);
        }
        "git" => git(shell, &given),
        "apply_patch" | "applypatch" => {
            let text = arguments.first().and_then(Word::as_text).map(str::to_owned);
            patched(shell, &text.or_else(|| redirects.text.clone()).unwrap_or_default());
        }
        "watch" => {
            let script = given.operands("n").0.into_iter().map(Word::into_text).collect::<Option<Vec<_>>>();
            return script.map_or(AfterProgram::Quiet, |script| AfterProgram::Script(script.join(" ")));
        }
        // `script` runs its command in another shell, and so do the programs that change the user.
        "bash" | "sh" | "zsh" | "dash" | "ksh" | "fish" | "script" | "su" | "runuser" => {
            let flag = arguments.iter().position(|word| {
                word.as_text().is_some_and(|word| {
                    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
                })
            });
            let long = |word: &Word| word.as_text()?.strip_prefix("--command=").map(str::to_owned);
            if let Some(script) = flag.and_then(|flag| arguments.get(flag + 1)?.as_text()) {
                return AfterProgram::Script(script.to_owned());
            } else if let Some(script) = arguments.iter().find_map(long) {
                return AfterProgram::Script(script);
            } else if arguments.is_empty()
                && let Some(script) = &redirects.text
            {
                return AfterProgram::Script(script.to_owned());
            }
        }
        "eval" => {
            let script: Option<Vec<&str>> = arguments.iter().map(Word::as_text).collect();
            if let Some(script) = script {
                return AfterProgram::Eval(script.join(" "));
            }
        }
        name => {
            if let Some((_, valued)) = SHOW_SOME.iter().find(|(some, _)| *some == name)
                && shown
            {
                let files = given.operands(valued).0;
                // Some operands are not files but, for example, a filter. Only existing files count.
                let files = files
                    .into_iter()
                    .filter(|word| shell.env.paths(word.clone()).iter().any(|path| path.is_file()));
                let files = files.collect();
                show(shell, files, Extent::Part, redirects);
            } else if shell.effects.named.len() < NAMED {
                let named = arguments.iter().flat_map(|word| shell.env.paths(word.clone()));
                let named: Vec<PathBuf> = named.filter(|path| path.is_file()).take(NAMED).collect();
                shell.effects.named.extend(named);
            }
        }
    }
    AfterProgram::Quiet
}

/// The command without words that only run it, such as `sudo`.
fn without_prefix(mut words: &[Word]) -> &[Word] {
    loop {
        let Some(name) = words.first().and_then(Word::as_text) else { return words };
        let takes_value = match name.rsplit('/').next().unwrap_or(name) {
            "sudo" | "doas" => "ugC",
            "command" | "builtin" | "exec" | "nohup" | "setsid" | "unbuffer" | "time" | "then" | "do"
            | "else" => "",
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
struct ProgramArgs<'w> {
    words: &'w [Word],
}

impl ProgramArgs<'_> {
    /// The operands and the options. The options with these letters take a value, in the same word or in the next.
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

fn show(shell: &mut Shell, files: Vec<Word>, extent: Extent, redirects: &Redirects) {
    let inputs = if files.is_empty() { redirects.inputs.clone() } else { Vec::new() };
    for word in files.into_iter().chain(inputs) {
        for path in shell.env.paths(word) {
            if !path.is_dir() && !path.ends_with("-") {
                shell.read(path, extent);
            }
        }
    }
}

fn change(shell: &mut Shell, files: Vec<Word>, extent: Extent, text: Option<String>) {
    for word in files {
        for path in shell.env.paths(word) {
            shell.change(path, extent, text.clone());
        }
    }
}

fn change_folder(shell: &Shell, given: &ProgramArgs<'_>) -> Option<PathBuf> {
    match given.operands("").0.first() {
        None => shell.env.home.clone(),
        Some(word) => shell.env.path(word.as_text().filter(|word| *word != "-")?),
    }
}

fn sed(shell: &mut Shell, given: &ProgramArgs<'_>, shown: bool, redirects: &Redirects) {
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
        change(shell, files, Extent::Part, None);
    } else if shown {
        show(shell, files, Extent::Part, redirects);
    }
}

/// Moves and copies. The last word is the target, unless `-t` gives it.
fn transfer(shell: &mut Shell, name: &str, given: &ProgramArgs<'_>) {
    let (mut operands, _) = given.operands("tSmgo");
    let into = given.words.iter().position(|word| word.as_text() == Some("-t"));
    let long = |word: &Word| word.as_text()?.strip_prefix("--target-directory=").map(Word::text);
    let target = match into.and_then(|at| given.words.get(at + 1)) {
        Some(folder) => Some(folder.clone()),
        None => given.words.iter().find_map(long).or_else(|| operands.pop()),
    };
    let Some(target) = target.and_then(Word::into_text).and_then(|text| shell.env.path(&text)) else {
        if name == "mv" {
            change(shell, operands, Extent::Whole, None);
        }
        return;
    };
    let is_folder = target.is_dir();
    for word in operands {
        for source in shell.env.paths(word) {
            let to = match (is_folder, source.file_name()) {
                (true, Some(name)) => target.join(name),
                _ => target.clone(),
            };
            // A link may lead to a folder that is made later.
            let brings_files = name == "ln" || source.is_dir();
            shell.change(to.clone(), Extent::Whole, None);
            let made = shell.effects.changes.iter_mut().filter(|change| change.path == to);
            made.for_each(|change| change.brings_files |= brings_files);
            if name == "mv" {
                shell.change(source, Extent::Whole, None);
            }
        }
    }
}

/// The git commands that change files given by name.
fn git(shell: &mut Shell, given: &ProgramArgs<'_>) {
    let mut words = given.words;
    let mut folder = shell.env.folder.clone();
    while let [option, value, rest @ ..] = words {
        match option.as_text() {
            Some("-C") => folder = value.as_text().and_then(|text| shell.env.path(text)),
            Some("-c") => {}
            _ => break,
        }
        words = rest;
    }
    let Some((command, rest)) = words.split_first() else { return };
    let here = std::mem::replace(&mut shell.env.folder, folder);
    let (operands, _) = ProgramArgs { words: rest }.operands("sbBmF");
    match command.as_text() {
        // A word may also be a branch. Only existing files count.
        Some("checkout" | "restore" | "rm") => {
            let files = operands
                .into_iter()
                .filter(|word| shell.env.paths(word.clone()).iter().any(|path| path.exists()));
            let files = files.collect();
            let others = shell.effects.changes.len();
            change(shell, files, Extent::Whole, None);
            shell.effects.changes[others..].iter_mut().for_each(|change| change.by_git = true);
        }
        Some("mv") => transfer(shell, "mv", &ProgramArgs { words: rest }),
        _ => {}
    }
    shell.env.folder = here;
}

fn patched(shell: &mut Shell, text: &str) {
    for deed in patch::deeds(text) {
        let (path, extent, text) = match deed {
            Deed::Write(path, text) => (path, Extent::Whole, text),
            Deed::Edit(path, _) | Deed::Patch(path, _) => (path, Extent::Part, None),
            Deed::Delete(path) => (path, Extent::Whole, None),
            Deed::Read(..) | Deed::Unreadable => continue,
        };
        if let Some(path) = path.to_str().and_then(|path| shell.env.path(path)) {
            shell.change(path, extent, text);
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

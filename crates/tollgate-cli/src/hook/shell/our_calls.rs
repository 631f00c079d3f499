//! Where a command calls our program: directly, under another name, or through another program that may run it.

use super::environment::AGENT;
use super::redirect::Redirects;
use super::state::Shell;
use super::word::Word;

/// The name of our program, and of the packages that contain it.
const NAMES: [&str; 2] = ["tollgate", "tollgate-guard"];

/// Options of every command whose value is the next word.
const VALUED: [&str; 4] = ["-C", "--workspace", "--turn", "--agent"];

/// Programs that run the command in their arguments, as words or as one text.
const LAUNCHERS: [&str; 12] = [
    "parallel",
    "unshare",
    "chroot",
    "nsenter",
    "systemd-run",
    "ssh",
    "npx",
    "bunx",
    "uvx",
    "pipx",
    "tmux",
    "screen",
];

/// Programs that may run a command in the text of an argument, or in their input. A version may follow the name.
const INTERPRETERS: [&str; 21] = [
    "python", "pypy", "perl", "ruby", "node", "nodejs", "php", "lua", "luajit", "bun", "deno", "tclsh",
    "expect", "pwsh", "socat", "fd", "npm", "pnpm", "yarn", "uv", "busybox",
];

/// Shells whose text is parsed, and so need no search for words.
const PARSED: [&str; 6] = ["bash", "sh", "zsh", "dash", "ksh", "fish"];

/// Programs to which our name is only a text or a file.
const READERS: [&str; 34] = [
    "echo", "printf", "grep", "egrep", "fgrep", "rg", "git", "gh", "ls", "cat", "head", "tail", "less",
    "more", "wc", "sed", "awk", "gawk", "mawk", "diff", "cp", "mv", "ln", "rm", "mkdir", "touch", "test",
    "[", "which", "type", "cd", "find", "man", "kubectl",
];

/// Words before the name of a package, a project or a folder.
const SELECTS: [&str; 17] = [
    "-p",
    "--package",
    "--exclude",
    "--bin",
    "--crate",
    "-w",
    "--workspace",
    "workspace",
    "-F",
    "--filter",
    "--scope",
    "--project",
    "-C",
    "--cwd",
    "--dir",
    "--directory",
    "--prefix",
];

/// Programs that give our program another name, or tell where it is.
const RENAMERS: [&str; 12] = [
    "cp", "mv", "ln", "install", "cat", "rsync", "alias", "command", "which", "type", "readlink", "realpath",
];

/// How certain it is that words are the arguments of our program.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Certainty {
    /// Our program gets them.
    Certain,
    /// Our name is among the words of another program, or in a text. It may be the name of something else, so a whole call
    /// must follow it.
    Guessed,
}

/// A call of our program.
pub(super) struct OurCall {
    pub(super) arguments: Vec<Word>,
    pub(super) certainty: Certainty,
}

/// All calls of our program in a command.
pub(super) fn calls(
    shell: &Shell,
    program: Option<&str>,
    arguments: &[Word],
    redirects: &Redirects,
) -> Vec<OurCall> {
    let name = base_name(program);
    if let Some(name) = name.filter(|_| only_reads(program)) {
        return in_reader(name, arguments);
    }
    let mut calls = direct_calls(shell, program, arguments);
    let runs = |name| runs_texts(name) || is_our_name(name) && runs_commands(arguments);
    if name.is_some_and(runs) {
        let texts = arguments.iter().filter_map(Word::as_text);
        calls.extend(texts.chain(redirects.input_text().map(String::as_str)).flat_map(in_text));
    }
    // Our program may have another name: a copy, a link, a variable. Nearly no other program is called with `task` and a verb.
    let is_renamed = shell.may_rename_us && program.is_none_or(|program| is_made(shell, program));
    let mut words = arguments.iter();
    let is_task = operand(&mut words) == Some(Some("task")) && operand(&mut words).flatten().is_some();
    if (is_renamed || is_task) && !name.is_some_and(is_our_name) {
        calls.push(OurCall { arguments: arguments.to_vec(), certainty: Certainty::Certain });
    }
    calls
}

/// The calls of our program whose words are arguments of this command.
pub(super) fn direct_calls(shell: &Shell, program: Option<&str>, arguments: &[Word]) -> Vec<OurCall> {
    if only_reads(program) {
        return Vec::new();
    }
    let name = base_name(program);
    let is_ours = name.is_some_and(is_our_name) || program.is_some_and(|program| leads_to_us(shell, program));
    let launches = name.is_some_and(|name| LAUNCHERS.contains(&name)) || is_ours && runs_commands(arguments);
    let certainty = if launches { Certainty::Certain } else { Certainty::Guessed };
    let is_selected = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| arguments[before].as_text());
        // `cargo run -p tollgate -- trust`
        let word = |at: usize| arguments.get(at).and_then(Word::as_text);
        let is_run = word(0) == Some("run") && word(at + 1) == Some("--");
        !launches && !is_run && before.is_some_and(|before| SELECTS.contains(&before))
    };
    let mut calls = Vec::new();
    if is_ours {
        calls.push(OurCall { arguments: arguments.to_vec(), certainty: Certainty::Certain });
    }
    for (at, word) in arguments.iter().enumerate() {
        if word.as_text().is_some_and(names_our_program) && !is_selected(at) {
            calls.push(OurCall { arguments: arguments[at + 1..].to_vec(), certainty });
        }
    }
    calls
}

/// Notes what the commands that follow must know: the agent's name, and other names of our program.
pub(super) fn note_names(shell: &mut Shell, program: Option<&str>, arguments: &[Word]) {
    // A shell in this shell has the agent's name from it, if that is exported.
    if let Some(agent) = shell.env.variables.get(AGENT).cloned() {
        shell.env.passed.entry(AGENT.to_owned()).or_insert(agent);
    }
    if base_name(program) == Some("alias") {
        let aliases = arguments.iter().filter_map(|word| word.as_text()?.split_once('='));
        for (alias, text) in aliases.filter(|(_, text)| text.split_whitespace().any(names_our_program)) {
            shell.env.functions.insert(alias.to_owned(), format!("{text} \"$@\""));
        }
    }
}

/// Whether our name is only a text or a file to this program.
fn only_reads(program: Option<&str>) -> bool {
    base_name(program).is_some_and(|name| READERS.contains(&name))
}

/// Whether our program, with these arguments, runs another command.
fn runs_commands(arguments: &[Word]) -> bool {
    matches!(operand(&mut arguments.iter()), Some(Some("run" | "work")))
}

/// Whether a program may run a command in a text: a launcher, an interpreter of any version, another shell.
fn runs_texts(name: &str) -> bool {
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-');
    LAUNCHERS.contains(&name)
        || INTERPRETERS.iter().any(|program| name.strip_prefix(program).is_some_and(is_version))
        || name.ends_with("sh") && !PARSED.contains(&name)
}

fn base_name(program: Option<&str>) -> Option<&str> {
    program.and_then(|program| program.rsplit('/').next())
}

fn is_our_name(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Whether a word is our name, or a path that ends with it.
pub(super) fn names_our_program(word: &str) -> bool {
    base_name(Some(word)).is_some_and(is_our_name)
}

/// Whether this program is a link to ours.
fn leads_to_us(shell: &Shell, program: &str) -> bool {
    let Some(path) = shell.env.path(program).filter(|_| program.contains('/')) else { return false };
    let path = shell.through_links(&path);
    let path = path.canonicalize().unwrap_or(path);
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_our_name)
}

/// Whether the command itself makes, or may make, this program.
fn is_made(shell: &Shell, program: &str) -> bool {
    let mut changed = shell.effects.changes.iter().map(|change| change.path.as_path());
    if !program.contains('/') {
        return changed.any(|path| path.file_name().is_some_and(|name| name == program));
    }
    match shell.env.path(program) {
        Some(path) => shell.effects.gave_up || changed.any(|changed| changed == path),
        None => true,
    }
}

/// Whether a command copies or links our program, looks for it, or gives its name to a variable. A folder of the same name in
/// a path does not count.
pub(super) fn may_rename_us(text: &str) -> bool {
    let hands_on = words_of(text).any(|word| word == "xargs");
    statements(text).any(|statement| {
        let renames = hands_on || words_of(statement).any(|word| RENAMERS.contains(&word));
        let is_assigned = |(at, _): (usize, &str)| {
            let before = statement[..at].trim_end_matches([' ', '\t', '"', '\'', '(', '$']);
            // `$(echo tollgate) trust`
            let is_printed = ["(echo", "(printf", "`echo", "`printf"].iter().any(|end| before.ends_with(end));
            is_printed || before.ends_with(['=', '<'])
        };
        let mut named = words_of(statement).filter(|word| names_our_program(word));
        named.any(|word| renames || statement.match_indices(word).any(is_assigned))
    })
}

/// The statements of a text, roughly.
pub(super) fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split([';', '|', '&', '\n'])
}

/// The words of a text for a shell, roughly.
pub(super) fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`(){}[]$=,<>\\".contains(c));
    words.filter(|word| !word.is_empty())
}

/// A word of a text. With a placeholder of any language its value is not known.
fn word_of_text(word: &str) -> Word {
    let is_placeholder = word.contains(['$', '%']) || word.contains('{') && word.contains('}');
    match word.rsplit('{').next() {
        // `qx{tollgate trust}`
        Some(word) if !is_placeholder => Word::text(word.trim_end_matches('}')),
        _ => Word::Unknown,
    }
}

/// The calls in the arguments of a program to which our name is usually only a text.
fn in_reader(name: &str, arguments: &[Word]) -> Vec<OurCall> {
    let texts = arguments.iter().filter_map(Word::as_text);
    // Of `sed`: `1e COMMAND`.
    let sed_runs = |text: &&str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.windows(2).any(|two| {
            let address = two[0].strip_suffix('e').filter(|_| names_our_program(two[1]));
            address.is_some_and(|address| !address.ends_with(char::is_alphabetic))
        })
    };
    let awk_runs = |text: &&str| ["system", "getline", "|"].iter().any(|word| text.contains(word));
    match name {
        "git" => in_git(arguments),
        "awk" | "gawk" | "mawk" => texts.filter(awk_runs).flat_map(in_text).collect(),
        "sed" => texts.filter(sed_runs).flat_map(in_text).collect(),
        _ => Vec::new(),
    }
}

/// The calls in what git runs: aliases, `bisect run`, `submodule foreach`, `rebase --exec`.
fn in_git(arguments: &[Word]) -> Vec<OurCall> {
    let texts: Vec<&str> = arguments.iter().map(|word| word.as_text().unwrap_or("$")).collect();
    let mut calls = Vec::new();
    for text in &texts {
        let alias = text.strip_prefix("alias.").and_then(|text| Some(text.split_once("=!")?.1));
        let value = || text.strip_prefix('!').or_else(|| text.strip_prefix("--exec="));
        calls.extend(alias.or_else(value).into_iter().flat_map(in_text));
    }
    let behind = |two: &[&str]| matches!(two, ["bisect", "run"] | ["submodule", "foreach"]);
    let rebases = || {
        texts.contains(&"rebase").then(|| texts.iter().position(|text| ["-x", "--exec"].contains(text)))?
    };
    let from = texts.windows(2).position(behind).map(|at| at + 2).or_else(rebases);
    if let Some(rest) = from.and_then(|from| texts.get(from..)) {
        calls.extend(in_text(&rest.join(" ")));
    }
    calls
}

/// The calls in a text in any language. Between the words of one are only white space, quotes, commas and brackets.
fn in_text(text: &str) -> Vec<OurCall> {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        joined.push_str(line);
        joined.push(if line.trim_end().ends_with([',', '[', '\\']) { ' ' } else { '\n' });
    }
    let mut calls = Vec::new();
    for part in joined.split(|c: char| ";()|&<>\n".contains(c)) {
        let words = part.split(|c: char| c.is_whitespace() || "\"'`,[]\\!".contains(c));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        for (at, _) in words.iter().enumerate().filter(|(_, word)| names_our_program(word)) {
            let arguments = words[at + 1..].iter().map(|word| word_of_text(word)).collect();
            calls.push(OurCall { arguments, certainty: Certainty::Guessed });
        }
    }
    calls
}

/// The next word that is not an option or its value. `Some(None)`: a word whose value is not known.
pub(super) fn operand<'w>(words: &mut std::slice::Iter<'w, Word>) -> Option<Option<&'w str>> {
    loop {
        match words.next()?.as_text() {
            Some(option) if VALUED.contains(&option) => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            word => return Some(word),
        }
    }
}

/// Whether this is an option of every command of ours.
pub(super) fn is_global(option: &str) -> bool {
    let option = option.split('=').next().unwrap_or(option);
    ["--json", "--"].contains(&option) || option.starts_with("-C") || VALUED.contains(&option)
}

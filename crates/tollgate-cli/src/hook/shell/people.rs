//! The commands of tollgate that only people run: decisions, tokens, trust, the server, and the installation of hooks.

use super::effects::ActsAs;
use super::redirect::Redirects;
use super::state::Shell;
use super::word::{AGENT, OWN_NAME, Word};

/// The name of our program, and of the packages that contain it.
const NAMES: [&str; 2] = ["tollgate", "tollgate-guard"];

/// Options of every command whose value is the next word.
const VALUED: [&str; 4] = ["-C", "--workspace", "--turn", "--agent"];

/// The commands of our program.
const COMMANDS: [&str; 29] = [
    "init",
    "status",
    "turn",
    "read",
    "write",
    "edit",
    "create",
    "delete",
    "move",
    "apply",
    "merge",
    "run",
    "task",
    "work",
    "sync",
    "vault",
    "mcp",
    "serve",
    "token",
    "undo",
    "recovery",
    "ledger",
    "export",
    "hook",
    "doctor",
    "trust",
    "man",
    "completions",
    "help",
];

/// The verbs of `tollgate task` that are decisions.
const DECISIONS: [&str; 5] = ["approve", "reject", "retry", "return", "edit"];

/// The options of `tollgate init` that change which files are protected, or who guards them.
const SETUP: [&str; 5] = ["--remove", "--host", "--mcp", "--store", "--vault"];

/// Commands for which a name only selects what they show, or means nothing.
const NAMELESS: [&str; 14] = [
    "status",
    "ledger",
    "doctor",
    "export",
    "help",
    "completions",
    "man",
    "task list",
    "task show",
    "task why",
    "task verify",
    "turn show",
    "recovery list",
    "recovery show",
];

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
enum Certainty {
    /// Our program gets them.
    Certain,
    /// Our name is among the words of another program, or in a text. It may be the name of something else, so a whole call
    /// must follow it.
    Guessed,
}

/// The part of this command that only a person may run. A word whose value is not known may be anything.
pub(super) fn people_only(
    shell: &mut Shell,
    program: Option<&str>,
    arguments: &[Word],
    redirects: &Redirects,
) -> Option<String> {
    let name = base_name(program);
    prepare(shell, name, arguments);
    let shell = &*shell;
    if let Some(name) = name.filter(|name| READERS.contains(name)) {
        return in_reader(name, arguments);
    }
    let direct =
        || ours(shell, program, arguments).find_map(|(arguments, certainty)| command(arguments, certainty));
    let in_texts = || {
        let texts =
            arguments.iter().filter_map(Word::as_text).chain(redirects.input_text().map(String::as_str));
        let runs = |name| runs_texts(name) || is_our_name(name) && runs_commands(arguments);
        texts.filter(|_| name.is_some_and(runs)).find_map(in_text)
    };
    // Our program may have another name: a copy, a link, a variable.
    let renamed = || match program {
        _ if name.is_some_and(is_our_name) => None,
        None if shell.names_us => command(arguments, Certainty::Certain),
        Some(program) if shell.names_us && is_made(shell, program) => command(arguments, Certainty::Certain),
        _ => {
            let mut rest = arguments.iter();
            let is_task = operand(&mut rest)? == Some("task");
            decision(operand(&mut rest).filter(|_| is_task)??)
        }
    };
    direct().or_else(in_texts).or_else(renamed)
}

/// What the commands that follow must know.
fn prepare(shell: &mut Shell, name: Option<&str>, arguments: &[Word]) {
    // A shell in this shell has the agent's name from it, if that is exported.
    if let Some(agent) = shell.env.variables.get(AGENT).cloned() {
        shell.env.passed.entry(AGENT.to_owned()).or_insert(agent);
    }
    if name == Some("alias") {
        let aliases = arguments.iter().filter_map(|word| word.as_text()?.split_once('='));
        for (alias, text) in aliases.filter(|(_, text)| text.split_whitespace().any(names_our_program)) {
            shell.env.functions.insert(alias.to_owned(), format!("{text} \"$@\""));
        }
    }
}

/// The command of ours in this command, if it acts in the name of an agent.
pub(super) fn acts_as(shell: &Shell, program: Option<&str>, arguments: &[Word]) -> Vec<ActsAs> {
    if base_name(program).is_some_and(|name| READERS.contains(&name)) {
        return Vec::new();
    }
    ours(shell, program, arguments)
        .filter_map(|(arguments, certainty)| acts(shell, arguments, certainty))
        .collect()
}

fn acts(shell: &Shell, arguments: &[Word], certainty: Certainty) -> Option<ActsAs> {
    let mut rest = arguments.iter();
    let mut command = match operand(&mut rest)? {
        Some(command) => command,
        // Options, as in `tollgate $FLAGS write f`.
        None => operand(&mut rest)?.filter(|command| COMMANDS.contains(command))?,
    }
    .to_owned();
    if certainty == Certainty::Guessed && !COMMANDS.contains(&command.as_str()) {
        return None;
    }
    if ["task", "turn", "recovery"].contains(&command.as_str())
        && let Some(Some(verb)) = operand(&mut rest)
    {
        command = format!("{command} {verb}");
    }
    let mut words = arguments.iter().take_while(|word| word.as_text() != Some("--"));
    let mut name = shell.env.variables.get(AGENT).cloned();
    while let Some(word) = words.next() {
        let given = match word.as_text() {
            Some("--agent") => words.next().and_then(Word::as_text).unwrap_or_default(),
            Some("--help" | "-h") => return None,
            Some(word) => match word.strip_prefix("--agent=") {
                Some(given) => given,
                None => continue,
            },
            None => continue,
        };
        // The name that the shell has is the same as none.
        if given != OWN_NAME {
            name = Some(given.to_owned());
        }
    }
    // Without a name it would be the user's. Other commands need the id of a claim or a turn.
    let acts = !NAMELESS.contains(&command.as_str()) && (name.is_some() || command == "task claim");
    acts.then(|| ActsAs { command: format!("tollgate {command}"), name })
}

/// The arguments of our program, if this is it, and wherever another program may run it.
fn ours<'w>(
    shell: &Shell,
    program: Option<&str>,
    arguments: &'w [Word],
) -> impl Iterator<Item = (&'w [Word], Certainty)> {
    let name = base_name(program);
    let is_ours = name.is_some_and(is_our_name) || program.is_some_and(|program| leads_to_us(shell, program));
    let launches = name.is_some_and(|name| LAUNCHERS.contains(&name)) || is_ours && runs_commands(arguments);
    let certainty = if launches { Certainty::Certain } else { Certainty::Guessed };
    let is_selected = move |at: usize| {
        let before = at.checked_sub(1).and_then(|before| arguments[before].as_text());
        // `cargo run -p tollgate -- trust`
        let word = |at: usize| arguments.get(at).and_then(Word::as_text);
        let is_run = word(0) == Some("run") && word(at + 1) == Some("--");
        !launches && !is_run && before.is_some_and(|before| SELECTS.contains(&before))
    };
    let named =
        arguments.iter().enumerate().filter(|(_, word)| word.as_text().is_some_and(names_our_program));
    let behind =
        named.filter(move |(at, _)| !is_selected(*at)).map(move |(at, _)| (&arguments[at + 1..], certainty));
    is_ours.then_some((arguments, Certainty::Certain)).into_iter().chain(behind)
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
fn names_our_program(word: &str) -> bool {
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
pub(super) fn names_us(text: &str) -> bool {
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
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split([';', '|', '&', '\n'])
}

/// The words of a text for a shell, roughly.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`(){}[]$=,<>\\".contains(c));
    words.filter(|word| !word.is_empty())
}

/// Such a command in the arguments of a program to which our name is usually only a text.
fn in_reader(name: &str, arguments: &[Word]) -> Option<String> {
    let mut texts = arguments.iter().filter_map(Word::as_text);
    match name {
        "git" => in_git(arguments),
        "awk" | "gawk" | "mawk" => texts
            .filter(|text| ["system", "getline", "|"].iter().any(|word| text.contains(word)))
            .find_map(in_text),
        // `1e COMMAND`.
        "sed" => texts.find_map(|text| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let runs = |two: &[&str]| {
                let address = two[0].strip_suffix('e').filter(|_| names_our_program(two[1]));
                address.is_some_and(|address| !address.ends_with(char::is_alphabetic))
            };
            words.windows(2).any(runs).then(|| in_text(text))?
        }),
        _ => None,
    }
}

/// The commands that git runs: aliases, `bisect run`, `submodule foreach`, `rebase --exec`.
fn in_git(arguments: &[Word]) -> Option<String> {
    let texts: Vec<&str> = arguments.iter().map(|word| word.as_text().unwrap_or("$")).collect();
    let alias =
        |text: &&str| text.strip_prefix("alias.")?.split_once("=!").and_then(|(_, text)| in_text(text));
    let value = |text: &&str| in_text(text.strip_prefix('!').or_else(|| text.strip_prefix("--exec="))?);
    let behind = |two: &[&str]| matches!(two, ["bisect", "run"] | ["submodule", "foreach"]);
    let rebases = || {
        texts.contains(&"rebase").then(|| texts.iter().position(|text| ["-x", "--exec"].contains(text)))?
    };
    let from = texts.windows(2).position(behind).map(|at| at + 2).or_else(rebases);
    let rest = || in_text(&texts.get(from?..)?.join(" "));
    texts.iter().find_map(alias).or_else(|| texts.iter().find_map(value)).or_else(rest)
}

/// The words of such a command one after the other, in any language: between them are only white space, quotes, commas and
/// brackets.
fn in_text(text: &str) -> Option<String> {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        joined.push_str(line);
        joined.push(if line.trim_end().ends_with([',', '[', '\\']) { ' ' } else { '\n' });
    }
    joined.split(|c: char| ";()|&<>\n".contains(c)).find_map(|part| {
        let words = part.split(|c: char| c.is_whitespace() || "\"'`,[]\\!".contains(c));
        let words: Vec<Word> = words.filter(|word| !word.is_empty()).map(word_of_text).collect();
        let ours = words.iter().enumerate().filter(|(_, word)| word.as_text().is_some_and(names_our_program));
        ours.map(|(at, _)| at).find_map(|at| command(&words[at + 1..], Certainty::Guessed))
    })
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

/// The part that only a person may run, of the arguments of our program.
fn command(arguments: &[Word], certainty: Certainty) -> Option<String> {
    let guessed = certainty == Certainty::Guessed;
    let before_the_end = arguments.iter().take_while(|word| word.as_text() != Some("--"));
    if before_the_end.into_iter().any(|word| matches!(word.as_text(), Some("--help" | "-h"))) {
        return None;
    }
    let is_foreign =
        |word: &Word| word.as_text().is_some_and(|word| word.starts_with('-') && !is_global(word));
    let mut rest = arguments.iter();
    let mut first = operand(&mut rest)?;
    if guessed && arguments[..arguments.len() - rest.len()].iter().any(is_foreign) {
        return None;
    }
    if first.is_none() {
        // Options, as in `tollgate $FLAGS status`, or a command.
        first = operand(&mut rest.clone()).flatten().filter(|command| COMMANDS.contains(command));
        first.and_then(|_| operand(&mut rest));
    }
    // Without these words the name and the verb may have another meaning.
    let is_whole = |verbs: &[&str]| match operand(&mut rest.clone()) {
        Some(Some(verb)) => verbs.contains(&verb),
        Some(None) => true,
        None => verbs.is_empty(),
    };
    match first {
        Some("token") if guessed && !is_whole(&["add", "list", "remove"]) => None,
        Some("vault") if guessed && !is_whole(&["copy"]) => None,
        Some("trust") if guessed && !is_whole(&[]) => None,
        Some("serve")
            if guessed
                && rest.clone().next().and_then(Word::as_text).is_some_and(|word| !word.starts_with('-')) =>
        {
            None
        }
        Some(name @ ("serve" | "token" | "trust" | "vault")) => Some(format!("tollgate {name}")),
        Some("task") => match operand(&mut rest)? {
            Some(verb) => decision(verb),
            None => Some("tollgate task".into()),
        },
        Some("init") => rest.find_map(|word| match word.as_text() {
            Some(word) => {
                let option = word.split('=').next().unwrap_or(word);
                SETUP.contains(&option).then(|| format!("tollgate init {option}"))
            }
            None => Some("tollgate init".into()),
        }),
        Some(_) => None,
        None => (!guessed).then(|| "tollgate".into()),
    }
}

/// Whether this is an option of every command of ours.
fn is_global(option: &str) -> bool {
    let option = option.split('=').next().unwrap_or(option);
    ["--json", "--"].contains(&option) || option.starts_with("-C") || VALUED.contains(&option)
}

/// The next word that is not an option or its value. `Some(None)`: a word whose value is not known.
fn operand<'w>(words: &mut std::slice::Iter<'w, Word>) -> Option<Option<&'w str>> {
    loop {
        match words.next()?.as_text() {
            Some(option) if VALUED.contains(&option) => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            word => return Some(word),
        }
    }
}

fn decision(verb: &str) -> Option<String> {
    DECISIONS.contains(&verb).then(|| format!("tollgate task {verb}"))
}

/// The same for a text that could not be parsed: whether one of its statements has the words of such a command after our name,
/// or any of them if our program may have another name.
pub(super) fn may_be_people_only(text: &str) -> Option<String> {
    if names_us(text) {
        return has_words(&words_of(text).collect::<Vec<_>>());
    }
    statements(text).find_map(|statement| {
        let words: Vec<&str> = words_of(statement).collect();
        let at = words.iter().position(|word| names_our_program(word))?;
        has_words(&words[at + 1..])
    })
}

fn has_words(words: &[&str]) -> Option<String> {
    // `tollgate edit` is for agents.
    let decides = |word: &str| DECISIONS.contains(&word) && word != "edit";
    let only = |word: &&&str| decides(word) || ["serve", "token", "trust"].contains(word);
    // The word alone is also the name of a folder.
    let copies = || words.windows(2).find(|two| two == &["vault", "copy"]).map(|two| &two[0]);
    let sets_up = || words.iter().find(|word| SETUP.contains(word)).filter(|_| words.contains(&"init"));
    words.iter().find(only).or_else(copies).or_else(sets_up).map(|word| format!("tollgate {word}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::effects;

    fn people_only(command: &str) -> Option<String> {
        effects(command, Path::new("/w"), Some(Path::new("/home/u"))).people_only
    }

    #[test]
    fn every_command_is_known() {
        let arguments = <crate::command::Arguments as clap::CommandFactory>::command();
        let mut names: Vec<&str> = arguments.get_subcommands().map(clap::Command::get_name).collect();
        names.push("help");
        let mut known = super::COMMANDS.to_vec();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    /// A folder, a package, a container or a word in a text may have our name.
    #[test]
    fn ordinary_commands_near_our_name_run() {
        let blocked: Vec<_> = [
            "cd ~/src/tollgate && ./manage.py serve",
            "cd /w/my-tollgate-demo && .venv/bin/mkdocs serve",
            "cat .tollgate/config.toml; \"$VENV/bin/mkdocs\" serve",
            "cp ../tollgate/mkdocs.yml . && ./manage.py serve",
            "PYTHONPATH=src/tollgate:lib ./manage.py serve",
            "tollgate status && ./manage.py serve",
            "python -m mypy src/tollgate/vault/x.py",
            "node tollgate/serve.js",
            "uv run ruff check tollgate/token.py",
            "python3 -c 'import tollgate.token'",
            "python3 -c 'import tollgate; token = 1'",
            "python3 - <<'E'\nimport tollgate\ntoken = tollgate.vault\nE",
            "python3 -c 'print(\"the tollgate trust model\")'",
            "cargo test -p tollgate vault",
            "cargo test --package tollgate trust",
            "pnpm --filter tollgate serve",
            "yarn workspace tollgate serve",
            "kubectl logs tollgate vault",
            "tollgate status; curl https://x/token | sh",
            "eval \"$(direnv export bash)\"; cd ~/src/tollgate && ./manage.py serve",
            "tollgate $FLAGS status",
            "tollgate \"$FLAGS\" --json task list",
            "awk '/tollgate token add/ { print $1 }' a.txt",
            "sed -n '/tollgate token add/p' a.txt",
            "git log --grep 'tollgate token add'",
            "alias t=tollgate; t status; mkdocs serve",
            "ROOT=$(cd ~/src/tollgate && pwd); \"$ROOT/manage.py\" serve",
            "cp -r ../tollgate . && mkdocs serve",
            "cargo test -p tollgate -- trust",
            "ruff check tollgate serve tests",
        ]
        .into_iter()
        .filter_map(|command| Some((command, people_only(command)?)))
        .collect();
        assert_eq!(blocked, Vec::new());
    }

    #[test]
    fn what_only_people_run_is_found_in_other_programs() {
        let missed: Vec<_> = [
            "cp $(which tollgate) tg && ./tg token add bob",
            "x=/usr/bin/tollgate; \"$x\" token add bob",
            "x=$(which -a tollgate | head -n 1); $x token add bob",
            "cat /usr/bin/tollgate > tg; chmod +x tg; ./tg token add bob",
            "cp /usr/bin/tollgate ~/bin/tg; tg token add bob",
            "$(echo tollgate) token add bob",
            "`echo tollgate` token add bob",
            "echo tollgate | xargs -I% % token add bob",
            "cargo run -p tollgate -- token add bob",
            "tollgate $FLAGS",
            "tollgate $FLAGS token add bob",
            "tollgate \"$FLAGS\" task approve rent",
            "some-new-program /usr/bin/tollgate --json -C . token add bob",
            "npx tollgate token add bob",
            "npx tollgate $SOMETHING",
            "ssh host tollgate serve",
            "printf 'tollgate %s add bob' token | bash",
            "eval \"$(which tollgate) token add $SOMETHING\"",
            "python3.12 -c 'import os; os.system(\"tollgate token add bob\")'",
            "nodejs -e 'require(\"child_process\").execSync(\"/usr/bin/tollgate serve\")'",
            "node22 -e 'spawn(\"tollgate\", [\"--json\", \"token\", \"add\", \"bob\"])'",
            "python3 - <<'E'\nrun([\"tollgate\",\n  \"trust\"])\nE",
            "python3 -c 'run(f\"tollgate token {verb} bob\")'",
            "lua5.4 -e 'os.execute(\"tollgate trust\")'",
            "bun -e '$`tollgate token add bob`'",
            "deno eval 'run(\"tollgate token add bob\")'",
            "mksh -c 'tollgate token add bob'",
            "awk 'BEGIN { system(\"tollgate token add bob\") }'",
            "gawk 'BEGIN { \"tollgate token add bob\" | getline }'",
            "git -c alias.x='!tollgate token add bob' x",
            "git config alias.x '!tollgate token add bob'",
            "git bisect run tollgate token add bob",
            "git -C sub submodule foreach 'tollgate token add bob'",
            "git rebase --exec 'tollgate token add bob' main",
            "sed '1e tollgate token add bob' a.txt",
            "alias t=tollgate; t token add bob",
            "alias t='tollgate --json'; t token add bob",
        ]
        .into_iter()
        .filter(|command| people_only(command).is_none())
        .collect();
        assert_eq!(missed, Vec::<&str>::new());
    }
}

//! The commands of tollgate that only people run: decisions, tokens, trust, the server, and the installation of hooks.

use super::effects::ActsAs;
use super::environment::OWN_NAME;
use super::our_calls::{
    Certainty, OurCall, calls, direct_calls, is_global, may_rename_us, names_our_program, note_names,
    operand, statements, words_of,
};
use super::redirect::Redirects;
use super::state::Shell;
use super::word::Word;

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

/// The part of this command that only a person may run. A word whose value is not known may be anything.
pub(super) fn people_only(
    shell: &mut Shell,
    program: Option<&str>,
    arguments: &[Word],
    redirects: &Redirects,
) -> Option<String> {
    note_names(shell, program, arguments);
    calls(shell, program, arguments, redirects).iter().find_map(command)
}

/// The commands of ours in this command that act in the name of an agent.
pub(super) fn acts_as(shell: &Shell, program: Option<&str>, arguments: &[Word]) -> Vec<ActsAs> {
    direct_calls(shell, program, arguments).iter().filter_map(|call| acts(shell, call)).collect()
}

fn acts(shell: &Shell, OurCall { arguments, certainty }: &OurCall) -> Option<ActsAs> {
    let mut rest = arguments.iter();
    let mut command = match operand(&mut rest)? {
        Some(command) => command,
        // Options, as in `tollgate $FLAGS write f`.
        None => operand(&mut rest)?.filter(|command| COMMANDS.contains(command))?,
    }
    .to_owned();
    if *certainty == Certainty::Guessed && !COMMANDS.contains(&command.as_str()) {
        return None;
    }
    if ["task", "turn", "recovery"].contains(&command.as_str())
        && let Some(Some(verb)) = operand(&mut rest)
    {
        command = format!("{command} {verb}");
    }
    let mut words = arguments.iter().take_while(|word| word.as_text() != Some("--"));
    let mut name = shell.env.given_agent();
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

/// The part that only a person may run, of the arguments of our program.
fn command(OurCall { arguments, certainty }: &OurCall) -> Option<String> {
    let guessed = *certainty == Certainty::Guessed;
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

fn decision(verb: &str) -> Option<String> {
    DECISIONS.contains(&verb).then(|| format!("tollgate task {verb}"))
}

/// A people-only command in a text that could not be parsed: whether one of its statements has the words of such a command after our name,
/// or any of them if our program may have another name.
pub(super) fn may_be_people_only(text: &str) -> Option<String> {
    if may_rename_us(text) {
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

//! Programs that run a text as shell commands: shells themselves, `eval`, `trap`, `watch`, `script -c`, `su -c`.

use super::after_program::AfterProgram;
use super::arguments::{NONE, ProgramArgs, Valued};
use super::redirect::Redirects;
use super::state::Shell;
use super::word::Word;

/// A text that another shell runs with these arguments. If it is not known, it may change every file that the command names.
fn script(shell: &mut Shell, text: Option<String>, arguments: Vec<Word>) -> AfterProgram {
    match text {
        Some(text) => AfterProgram::Script(text, arguments),
        None => {
            (shell.effects.gave_up, shell.runs_unknown_text) = (true, true);
            AfterProgram::Quiet
        }
    }
}

/// These words as one text.
fn joined(words: &[Word]) -> Option<String> {
    words.iter().map(Word::as_text).collect::<Option<Vec<_>>>().map(|words| words.join(" "))
}

pub(super) fn eval(shell: &mut Shell, arguments: &[Word]) -> AfterProgram {
    match script(shell, joined(arguments), Vec::new()) {
        AfterProgram::Script(text, _) => AfterProgram::Eval(text),
        after => after,
    }
}

/// `. FILE` runs a file in the same shell.
pub(super) fn source(shell: &mut Shell, arguments: &[Word], redirects: &Redirects) -> AfterProgram {
    let (_, operands) = ProgramArgs::before_operands(arguments, NONE);
    let Some((file, more)) = operands.split_first() else { return AfterProgram::Quiet };
    let Some(text) = text_of_file(file, redirects) else { return AfterProgram::Quiet };
    if !more.is_empty() {
        // They are its arguments, and afterwards the shell has its own again.
        shell.env.positional = None;
    }
    match script(shell, text, Vec::new()) {
        AfterProgram::Script(text, _) => AfterProgram::Eval(text),
        after => after,
    }
}

/// The text of a script that comes from another command or from the input. `None` if it is a file like others.
fn text_of_file(file: &Word, redirects: &Redirects) -> Option<Option<String>> {
    match file {
        Word::Substituted(printed) => Some(printed.clone()),
        file if file.as_text().is_some_and(|file| INPUT.contains(&file)) => {
            Some(redirects.input_text().cloned())
        }
        _ => None,
    }
}

/// Names of the input.
const INPUT: [&str; 4] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-"];

/// The text runs later, in the same shell.
pub(super) fn trap(shell: &mut Shell, arguments: &[Word]) -> AfterProgram {
    let given = ProgramArgs::of(arguments, Valued { letters: "", names: &[] });
    match given.operands.first() {
        Some(text) => eval(shell, std::slice::from_ref(text)),
        None => AfterProgram::Quiet,
    }
}

pub(super) fn watch(shell: &mut Shell, arguments: &[Word]) -> AfterProgram {
    let (_, command) =
        ProgramArgs::before_operands(arguments, Valued { letters: "n:q:", names: &["interval", "equexit"] });
    script(shell, joined(command), Vec::new())
}

/// `script` runs its command in another shell, and so do the programs that change the user.
pub(super) fn of_option(shell: &mut Shell, name: &str, arguments: &[Word]) -> AfterProgram {
    let names =
        &["command", "log-out", "log-in", "log-io", "log-timing", "logging-format", "echo", "output-limit"];
    let valued = match name {
        "script" => Valued { letters: "c:E:I:O:B:T:m:o:t::", names },
        _ => Valued {
            letters: "c:g:G:s:u:w:",
            names: &[
                "command",
                "session-command",
                "group",
                "supp-group",
                "shell",
                "user",
                "whitelist-environment",
            ],
        },
    };
    let given = ProgramArgs::of(arguments, valued);
    if let Some(text) = given.value(&["c", "command", "session-command"]) {
        return script(shell, text.as_text().map(str::to_owned), Vec::new());
    }
    // `script FILE COMMAND...` of BSD and of new versions, `runuser -u USER COMMAND...`.
    let own = usize::from(name == "script");
    match given.operands.get(own..) {
        Some(command) if !command.is_empty() && name != "su" => script(shell, joined(command), Vec::new()),
        _ => AfterProgram::Quiet,
    }
}

/// `bash -c TEXT NAME ARGUMENT...`, or a shell that reads its commands from its input.
pub(super) fn of_shell(shell: &mut Shell, arguments: &[Word], redirects: &Redirects) -> AfterProgram {
    let valued = Valued { letters: "o:O:", names: &["rcfile", "init-file", "command"] };
    let (given, operands) = ProgramArgs::before_operands(arguments, valued);
    let after = |from: usize| operands.get(from..).unwrap_or_default().to_vec();
    let long = given.value(&["command"]).cloned();
    match (operands.first(), long) {
        (_, Some(text)) => script(shell, text.into_text(), after(0)),
        (Some(text), None) if given.has(&["c"]) => script(shell, text.as_text().map(str::to_owned), after(2)),
        (Some(file), None) if !given.has(&["s"]) => match text_of_file(file, redirects) {
            Some(text) => script(shell, text, after(1)),
            // A file with a script.
            None => AfterProgram::Quiet,
        },
        // Without a text it talks to a terminal, or reads a file or the output of another program.
        _ if given.has(&["version", "help"]) => AfterProgram::Quiet,
        _ => script(shell, redirects.input_text().cloned(), after(0)),
    }
}

//! The prologue: one line in front of a shell command that makes the command run through `tollgate run`.
//!
//! The command itself stays as it is, so that the rules of the agent program still see it: `tollgate run` in front of it, with
//! the command as an argument, would hide it from them. The line sources a file, and the file starts the same shell once
//! more, with the same text without the line, inside the run. If the file is missing, or if the shell does not tell what it
//! executes, the command does not run.
//!
//! Some programs have rules that no such line passes, but can put a prefix in front of every command, or let each of their
//! shells read a file first. There the line is a comment, and the prefix finds the file: see [`crate::prefixed`].
//!
//! Each call has its own file. It lies in the private folder of the session, so no other user can write or replace it, and the
//! hook after the tool deletes it. The run writes its record into the state of the workspace, because the sandbox of an agent
//! program may allow it to write only there.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate::error::Fault;
use tollgate::name::{Agent, TurnId};
use tollgate_base::private;

use crate::host::event::{Call, HookEvent, ToolEffects};
use crate::host::{Host, PREFIXED, ShellPrefix};
use crate::prefixed::{self, COMMENT, FOLDER, NOT_GUARDED, is_plain, plain_part};
use crate::replace::{FileAccess, replace_file};
use crate::surroundings::Surroundings;
use crate::words;

/// A prologue, and where its run writes its record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Prologue {
    file: PathBuf,
    record: PathBuf,
    #[serde(default)]
    form: PrologueForm,
}

/// What a prologue adds to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum PrologueForm {
    /// A line in front of it that sources the file.
    #[default]
    Sourced,
    /// A comment in front of it, which names the file for [`crate::prefixed`]. The rules of the program ignore comments.
    Comment,
    /// A comment at its end. The rules of the program judge how a text begins.
    LastComment,
}

impl PrologueForm {
    /// A comment, if the program has our prefix now.
    pub(super) fn with(prefix: Option<ShellPrefix>) -> Self {
        match prefix {
            Some(ShellPrefix::Words(variable)) if Surroundings::mentions(variable, PREFIXED) => Self::Comment,
            Some(ShellPrefix::StartFile(variable)) if is_start_file(variable) => Self::LastComment,
            _ => Self::Sourced,
        }
    }
}

/// Whether this variable names a file that starts our prefix.
fn is_start_file(variable: &str) -> bool {
    let file = Surroundings::folder_in(variable).filter(|file| file.is_absolute());
    file.is_some_and(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(PREFIXED)))
}

/// What the run of a command needs to know.
pub(super) struct RunInput<'a> {
    /// The program `tollgate` itself.
    pub(super) tollgate: &'a Path,
    pub(super) workspace: &'a Path,
    pub(super) agent: &'a Agent,
    /// The agent's name for tasks.
    pub(super) claims_as: &'a Agent,
    pub(super) turn: &'a TurnId,
    /// The folder of the turn. The command may have another environment, so it could not find it.
    pub(super) turns: &'a Path,
    /// Whether the command keeps running. Then nobody waits for the end of a transaction.
    pub(super) keep_running: bool,
    /// Whether the agent's program can tell the agent something after the command.
    pub(super) tells: bool,
    /// The command, for a shell that does not tell what it executes.
    pub(super) command: &'a str,
}

impl Prologue {
    /// Writes a prologue for this command into the folder of a session. The name is unique.
    pub(super) fn write(
        session: &Path,
        name: &str,
        records: &Path,
        form: PrologueForm,
        run: &RunInput<'_>,
    ) -> Result<Self, Fault> {
        let file = session.join(FOLDER).join(name);
        if !file.to_str().is_some_and(|path| path.chars().all(is_plain)) {
            // Programs quote the line in their own ways, and then the file would not find it in what the shell executes.
            let what = format!("`{}` has characters that a line of a shell must quote", file.display());
            return Err(Fault::invalid(what));
        }
        let prologue = Self { file, record: records.join(name), form };
        let text = match form {
            PrologueForm::Sourced => prologue.script(run),
            PrologueForm::Comment | PrologueForm::LastComment => prologue.words(run)[1..].join("\0"),
        };
        replace_file(&prologue.file, text.as_bytes(), FileAccess::Private)?;
        Ok(prologue)
    }

    /// A command with this prologue.
    pub(super) fn on(&self, command: &str) -> String {
        let comment = format!("{COMMENT}{}", self.file.display());
        match self.form {
            PrologueForm::Sourced => self.line() + command,
            PrologueForm::Comment => format!("{comment}\n{command}"),
            PrologueForm::LastComment => {
                // On a line of its own it cannot become a part of the end of a here-document. Otherwise a space: a rule for the
                // whole command ends at one.
                let between = if command.contains('\n') { '\n' } else { ' ' };
                let (text, rest) = command.split_at(end_of_script(command));
                format!("{text}{between}{comment}{rest}")
            }
        }
    }

    /// The line that sources the file.
    fn line(&self) -> String {
        format!(". {} || exit {NOT_GUARDED}\n", self.file.display())
    }

    pub(super) fn record(&self) -> &Path {
        &self.record
    }

    /// Deletes the file and the record. Both may be gone.
    pub(super) fn remove(&self) {
        let _ = private::remove_file(&self.file);
        let _ = private::remove_file(&self.record);
    }

    /// `tollgate run` and its options.
    fn words(&self, run: &RunInput<'_>) -> Vec<String> {
        let words = [
            run.tollgate.display().to_string(),
            "-C".into(),
            run.workspace.display().to_string(),
            "--agent".into(),
            run.agent.to_string(),
            "run".into(),
            "--turn".into(),
            run.turn.to_string(),
            "--record".into(),
            self.record.display().to_string(),
            "--by-hook".into(),
            run.turns.display().to_string(),
            "--claims-as".into(),
            run.claims_as.to_string(),
        ];
        let flags = [(run.keep_running, "--keep-running"), (run.tells, "--hook-tells")];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned());
        words.into_iter().chain(flags).collect()
    }

    /// The script, in the part of the language that all shells share. What only one shell can parse is a text for `eval`.
    fn script(&self, run: &RunInput<'_>) -> String {
        let start = self.words(run).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let (line, command) = (quoted(&self.line()), quoted(run.command));
        let why = quoted(words::unknown_shell());
        format!(
            r#"# Runs one command of an agent through `tollgate run`. A hook of tollgate wrote this file, and deletes it.
tollgate_line={line}
if [ -n "${{BASH_VERSION-}}" ]; then
  tollgate_text=${{BASH_EXECUTION_STRING-}}
  eval 'tollgate_rest=${{tollgate_text/"$tollgate_line"/}}'
  if shopt -q login_shell; then tollgate_login=-l; else tollgate_login=; fi
  tollgate_shell=$BASH
elif [ -n "${{ZSH_VERSION-}}" ]; then
  tollgate_text=${{ZSH_EXECUTION_STRING-}}
  eval 'tollgate_rest=${{tollgate_text/$tollgate_line/}}'
  case $- in *l*) tollgate_login=-l ;; *) tollgate_login= ;; esac
  tollgate_shell=$(command -v zsh)
elif [ -n "${{KSH_VERSION-}}${{YASH_VERSION-}}" ]; then
  tollgate_text= tollgate_rest=
else
  tollgate_text=. tollgate_rest={command} tollgate_login= tollgate_shell=/bin/sh
fi
if [ "$tollgate_text" = "$tollgate_rest" ] || [ -n "${{KSH_VERSION-}}${{YASH_VERSION-}}" ]; then
  echo {why} >&2
  exit {NOT_GUARDED}
fi
exec {start} -- "$tollgate_shell" ${{tollgate_login:+"$tollgate_login"}} -c "$tollgate_rest" "$0" "$@"
"#
        )
    }
}

/// Where the text ends that is executed. The program that needs a comment at the end takes a text out of `bash -c '...'` and
/// executes it by itself.
fn end_of_script(command: &str) -> usize {
    let script = || {
        let (shell, rest) = command.trim_start().split_once(char::is_whitespace)?;
        let text = rest.trim_start().strip_prefix("-c")?.strip_prefix(char::is_whitespace)?.trim();
        let is_shell = ["sh", "bash", "zsh"].contains(&shell.rsplit('/').next()?);
        let is_in = |quote: char| text.len() > 1 && text.starts_with(quote) && text.ends_with(quote);
        (is_shell && (is_in('\'') || is_in('"'))).then(|| command.trim_end().len() - 1)
    };
    script().unwrap_or(command.len())
}

/// A command without an earlier prologue: programs report the changed command, and some models repeat it.
///
/// The shell executes what is removed here, and nobody judges it. So a line is removed only if it is exactly what
/// [`Prologue::on`] writes: the path needs no quotes, and is in one of these folders, where no agent may write.
fn without_prologue(command: &str, folders: &[PathBuf]) -> String {
    let is_prologue = |path: &str| {
        let is_ours = prefixed::prologue(path, folders).is_some() || is_gone(Path::new(path), folders);
        path.starts_with('/') && path.chars().all(is_plain) && is_ours
    };
    let is_line = |line: &str| {
        let sourced = line.strip_prefix(". ").and_then(|line| line.strip_suffix(" || exit 74"));
        sourced.or_else(|| line.strip_prefix(COMMENT)).is_some_and(is_prologue)
    };
    if let Some((line, rest)) = command.split_once('\n')
        && is_line(line)
    {
        return rest.to_owned();
    }
    if let Some((text, comment)) = command.rsplit_once(COMMENT)
        && let path = plain_part(comment)
        && is_prologue(path)
        && let (rest, Some(text)) = (&comment[path.len()..], text.strip_suffix([' ', '\n']))
        && ["", "'", "\""].contains(&rest.trim_end())
    {
        return format!("{text}{rest}");
    }
    command.to_owned()
}

/// Whether this was a prologue of a session that has ended. Its line runs nothing: the shell does not find the file, and exits.
fn is_gone(path: &Path, folders: &[PathBuf]) -> bool {
    let is_below = folders.iter().any(|folder| path.starts_with(folder));
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    let is_in = |folder: &Path| folder.ends_with(FOLDER) && folder.symlink_metadata().is_err();
    is_below && !goes_up && path.parent().is_some_and(is_in)
}

/// Removes the prologues that the hook before a tool has given to commands. They are in these folders.
pub(super) fn remove_prologues(event: &mut HookEvent, folders: &[PathBuf]) {
    let (HookEvent::Before(call) | HookEvent::Unknown(call) | HookEvent::After(call, _)) = event else {
        return;
    };
    if let ToolEffects::Shell { commands, .. } = &mut call.effects {
        for command in commands {
            *command = without_prologue(command, folders);
        }
        // Where a call has no id, its input is the same before and after the tool.
        let put = &mut |text: &str| without_prologue(text, folders).into();
        if let Some(input) = with_commands(&call.input, put) {
            call.input = input;
        }
    }
}

/// The input of a shell tool with other commands. `None` if it names its commands in another way.
fn with_commands(input: &Value, put: &mut dyn FnMut(&str) -> Value) -> Option<Value> {
    let mut input = input.clone();
    let fields = input.as_object_mut()?;
    if let Some(command) = ["command", "cmd"].into_iter().find(|name| fields.contains_key(*name)) {
        let field = &mut fields[command];
        *field = put(field.as_str()?);
        return Some(input);
    }
    for command in fields.get_mut("commands")?.as_array_mut()? {
        let text = if command.is_object() { command.get_mut("command")? } else { command };
        *text = put(text.as_str()?);
    }
    Some(input)
}

/// Whether the commands of a call can run through `tollgate run`: the program must support it.
pub(super) fn can_run(host: &dyn Host, call: &Call) -> bool {
    with_prologues(host, call, &[]).is_some()
}

/// The answer that gives these prologues to the commands of a call. `None` if the program does not support it.
pub(super) fn with_prologues(host: &dyn Host, call: &Call, prologues: &[Prologue]) -> Option<Value> {
    if !matches!(call.effects, ToolEffects::Shell { .. }) {
        return None;
    }
    let mut prologues = prologues.iter();
    let mut put = |text: &str| {
        Value::from(prologues.next().map_or_else(|| text.to_owned(), |prologue| prologue.on(text)))
    };
    host.change_input(with_commands(&call.input, &mut put)?)
}

/// A word as a shell reads it.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Output};

    use super::*;

    /// A prologue whose `tollgate` only says that it runs, and then runs the command.
    fn prologue(folder: &Path, command: &str) -> Prologue {
        prologue_of(PrologueForm::Sourced, folder, command)
    }

    fn prologue_of(form: PrologueForm, folder: &Path, command: &str) -> Prologue {
        let tollgate = folder.join("tollgate");
        fs::write(
            &tollgate,
            "#!/bin/sh\necho guarded\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n",
        )
        .unwrap();
        fs::set_permissions(&tollgate, fs::Permissions::from_mode(0o755)).unwrap();
        let run = RunInput {
            tollgate: &tollgate,
            workspace: Path::new("/it's a folder"),
            agent: &"a".parse().unwrap(),
            claims_as: &"a".parse().unwrap(),
            turn: &TurnId::new().unwrap(),
            turns: folder,
            keep_running: false,
            tells: false,
            command,
        };
        Prologue::write(folder, "call-0", folder, form, &run).unwrap()
    }

    fn run(shell: &[&str], text: &str) -> Output {
        Command::new(shell[0])
            .args(&shell[1..])
            .arg(text)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap()
    }

    const SHELLS: [&[&str]; 4] =
        [&["bash", "-c"], &["bash", "--norc", "--noprofile", "-c"], &["zsh", "-f", "-c"], &["sh", "-c"]];

    #[test]
    fn a_command_behind_a_prologue_runs_once_and_inside_the_run() {
        for shell in SHELLS {
            for (command, prints) in [
                ("echo one; exit 3", "one\n"),
                ("cat <<'EOF'\nit's \"$HOME\"\nEOF\nexit 3", "it's \"$HOME\"\n"),
                ("# a comment\nx='a  b'; echo \"$x\"; false || exit 3", "a  b\n"),
            ] {
                let folder = tempfile::tempdir().unwrap();
                let prologue = prologue(folder.path(), command);
                let ran = run(shell, &(prologue.line() + command));
                let said = String::from_utf8_lossy(&ran.stdout);
                assert_eq!(
                    (&*said, ran.status.code()),
                    (&*format!("guarded\n{prints}"), Some(3)),
                    "{shell:?} {ran:?}"
                );
            }
        }
    }

    /// Programs put a command into a text of their own.
    #[test]
    fn a_prologue_inside_the_text_of_a_program_runs_the_whole_text_again() {
        let folder = tempfile::tempdir().unwrap();
        let prologue = prologue(folder.path(), "echo 'one'");
        let text = prologue.line() + "echo 'one'";
        let evaluated = format!("true && eval {} < /dev/null && echo two", quoted(&text));
        let nested = format!("true\n(\n  trap 'true' EXIT\n{text}\n)\n__code=$?\necho two\nexit $__code");
        for (text, prints) in [(evaluated, "guarded\none\ntwo\n"), (nested, "guarded\none\ntwo\ntwo\n")] {
            let ran = run(&["bash", "-c"], &text);
            assert_eq!(String::from_utf8_lossy(&ran.stdout), prints, "{ran:?}");
        }
    }

    #[test]
    fn a_command_that_cannot_be_guarded_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let prologue = prologue(folder.path(), "echo one");
        let text = prologue.line() + "echo one";
        // Read from a file, so that the shell does not know its text.
        let script = folder.path().join("script");
        fs::write(&script, &text).unwrap();
        let ran = run(&["bash"], script.to_str().unwrap());
        assert_eq!((ran.stdout.as_slice(), ran.status.code()), (&b""[..], Some(74)), "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains("did not run"), "{ran:?}");
        // Another program in its place.
        fs::remove_file(folder.path().join("tollgate")).unwrap();
        let ran = run(&["bash", "-c"], &text);
        assert_eq!((ran.stdout.as_slice(), ran.status.code()), (&b""[..], Some(127)), "{ran:?}");
        // The file is gone, or the sandbox hides it.
        prologue.remove();
        for shell in SHELLS {
            let ran = run(shell, &text);
            assert!(ran.stdout.is_empty() && !ran.status.success(), "{shell:?} {ran:?}");
        }
    }

    #[test]
    fn the_file_is_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let prologue = prologue(folder.path(), "true");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&prologue.file), mode(prologue.file.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn only_a_prologue_is_removed_and_the_command_is_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        for form in [PrologueForm::Sourced, PrologueForm::Comment, PrologueForm::LastComment] {
            let prologue = prologue_of(form, folder.path(), "true");
            for command in
                ["echo one\necho two", "ls", "ls # all", "bash -c 'ls' ", "cat <<E\none\nE\n", "a \\", ""]
            {
                let with = prologue.on(command);
                assert!(with.contains(prologue.file.to_str().unwrap()), "{with}");
                assert_eq!(without_prologue(&with, &folders), command, "{form:?}: {with}");
            }
        }
        let line = prologue(folder.path(), "true").line();
        for text in [
            "",
            "echo one",
            ". ~/.profile\necho one",
            ". /etc/x || exit 74\necho one",
            line.trim_end(),
            "grep '# tollgate: /x' f",
            "ls # tollgate: /etc/passwd",
        ] {
            assert_eq!(without_prologue(text, &folders), text);
        }
    }

    /// What is removed is executed without being judged.
    #[test]
    fn nothing_else_is_removed_with_a_line_that_looks_like_a_prologue() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for folder in [&folder, &elsewhere] {
            fs::create_dir(folder.path().join(FOLDER)).unwrap();
        }
        let ours = folder.path().join(FOLDER).join("call-0");
        let theirs = elsewhere.path().join(FOLDER).join("call-0");
        let (ours, theirs) = (ours.display(), theirs.display());
        let up = elsewhere.path().file_name().unwrap().to_str().unwrap();
        for text in [
            format!(". /dev/null; rm a.txt; : {ours} || exit 74\ntrue"),
            format!(". {ours} || rm a.txt || exit 74\ntrue"),
            format!(". $(rm a.txt){ours} || exit 74\ntrue"),
            format!(". {theirs} || exit 74\ntrue"),
            format!(". {}/../{up}/{FOLDER}/call-0 || exit 74\ntrue", folder.path().display()),
            format!(". {FOLDER}/call-0 || exit 74\ntrue"),
            format!(". {}/gone/../{FOLDER}/call-0 || exit 74\ntrue", folder.path().display()),
            format!("true {COMMENT}{theirs}"),
        ] {
            assert_eq!(without_prologue(&text, &[folder.path().to_owned()]), text);
        }
        // A model may repeat the line of a session that has ended.
        let old = format!(". {}/gone/{FOLDER}/call-0 || exit 74\ntrue", folder.path().display());
        assert_eq!(without_prologue(&old, &[folder.path().to_owned()]), "true");
    }

    #[test]
    fn a_comment_at_the_end_leaves_the_beginning_and_the_meaning_of_a_command() {
        let folder = tempfile::tempdir().unwrap();
        for command in
            ["echo one", "cat <<'E'\none\nE", "sh -c 'echo one'", "/bin/bash  -c \"echo one\"", "echo one #"]
        {
            let with = prologue_of(PrologueForm::LastComment, folder.path(), command).on(command);
            assert!(with.starts_with(command.trim_end_matches(['\'', '"'])), "{with}");
            assert_eq!(run(&["bash", "-c"], &with).stdout, b"one\n", "{with}");
        }
    }
}

//! The prefix in front of every command of a program: `tollgate run --prefixed -- TEXT`.
//!
//! The text is what the program would execute with a shell. If the hook before the tool has put a comment in it that names a
//! prologue, the text runs through `tollgate run`, with the options from that file; otherwise as without a prefix.
//! A program without such a prefix can have a file that each of its shells reads first, and that file names the shell:
//! `tollgate run --prefixed -- TEXT SHELL`.
//!
//! Whatever the text says, exactly this text is executed: the rules of the program have judged it. So a comment that an agent
//! writes cannot bring other commands past them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use tollgate_base::private;

/// What is before the path of a prologue in a comment.
pub(crate) const COMMENT: &str = "# tollgate: ";

/// The folder of the prologues, in the folder of a session.
pub(crate) const FOLDER: &str = "prologues";

/// The exit code of a command that did not run because it could not be guarded.
pub(crate) const NOT_GUARDED: u8 = 74;

/// The characters in the path of a prologue, so that nobody has to quote it.
pub(crate) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._-".contains(c)
}

/// What to execute for a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PrefixedCommand {
    /// These words.
    Execute(Vec<OsString>),
    /// Nothing, because the prologue is gone, or because the text names several.
    Nothing,
}

/// The shell for a text, if the prefix does not name it: shell commands first source a snapshot of the user's shell. Hooks and
/// MCP servers do not, and run in `sh`.
pub(crate) fn shell_for(text: &OsStr, of_user: OsString) -> OsString {
    if text.as_bytes().starts_with(b"source ") { of_user } else { "sh".into() }
}

/// What to execute for a text of this shell, by this tollgate. Prologues are below these folders, where no agent may write.
pub(crate) fn command(
    text: &OsStr,
    tollgate: &Path,
    shell: OsString,
    folders: &[PathBuf],
) -> PrefixedCommand {
    let alone = [shell, "-c".into(), text.to_owned()];
    let mut files = prologues(text, folders).into_iter();
    let file = match (files.next(), files.next()) {
        (None, _) => return PrefixedCommand::Execute(alone.into()),
        (Some(file), None) => file,
        // Only one is of the hook.
        (Some(_), Some(_)) => return PrefixedCommand::Nothing,
    };
    let Ok(options) = private::read(&file) else { return PrefixedCommand::Nothing };
    let options = options.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let words = [tollgate.as_os_str().to_owned()].into_iter().chain(options).chain(["--".into()]);
    PrefixedCommand::Execute(words.chain(alone).collect())
}

/// The prologues that comments in a text name.
fn prologues(text: &OsStr, folders: &[PathBuf]) -> BTreeSet<PathBuf> {
    let text = text.to_str().unwrap_or_default();
    let comments = text.match_indices(COMMENT).map(|(at, comment)| &text[at + comment.len()..]);
    comments.filter_map(|comment| prologue(plain_part(comment), folders)).collect()
}

/// The beginning of a text that nobody has to quote.
pub(crate) fn plain_part(text: &str) -> &str {
    &text[..text.find(|c| !is_plain(c)).unwrap_or(text.len())]
}

/// The prologue at this path, if it can be one.
pub(crate) fn prologue(path: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = Path::new(path);
    let folder = path.parent()?.canonicalize().ok()?;
    let is_below = |top: &PathBuf| top.canonicalize().is_ok_and(|top| folder.starts_with(top));
    (folder.ends_with(FOLDER) && folders.iter().any(is_below))
        .then(|| folder.join(path.file_name().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn words(words: &[&str]) -> PrefixedCommand {
        PrefixedCommand::Execute(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn a_text_with_the_comment_of_a_hook_runs_as_it_is_with_the_options_of_the_prologue() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().canonicalize().unwrap().join("s").join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("call-0"), "-C\0/w\0run\0--turn\0t").unwrap();
        let of = |text: &str| {
            let shell = shell_for(text.as_ref(), "zsh".into());
            command(text.as_ref(), "tg".as_ref(), shell, &[top.path().to_owned()])
        };
        let comment = format!("{COMMENT}{}", folder.join("call-0").display());
        let text = format!("source s && eval '{comment}\ncat f' < /dev/null");
        assert_eq!(of(&text), words(&["tg", "-C", "/w", "run", "--turn", "t", "--", "zsh", "-c", &text]));
        let gone = format!("source s && eval '{comment}9\ncat f'");
        assert_eq!(of(&gone), PrefixedCommand::Nothing, "the prologue is gone");
        // Another comment changes nothing, wherever it is.
        for more in
            [format!("{text} {COMMENT}/elsewhere"), format!("source s && {COMMENT}/elsewhere\n{text}")]
        {
            assert!(matches!(of(&more), PrefixedCommand::Execute(words) if words[0] == "tg"), "{more}");
        }
        // Which of two prologues is that of the hook?
        fs::write(folder.join("call-1"), "run").unwrap();
        let other = comment.replace("call-0", "call-1");
        for both in [format!("{text} {other}"), format!("source s && eval '{other}\n{text}'")] {
            assert_eq!(of(&both), PrefixedCommand::Nothing, "{both}");
        }
    }

    #[test]
    fn a_text_without_such_a_comment_runs_as_without_a_prefix() {
        let top = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let folder = elsewhere.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x"), "run").unwrap();
        let of = |text: &str| {
            let shell = shell_for(text.as_ref(), "zsh".into());
            command(text.as_ref(), "tg".as_ref(), shell, &[top.path().to_owned()])
        };
        let forged = format!("source s && eval 'cat f {COMMENT}{}'", folder.join("x").display());
        for text in ["source s && eval 'cat f'", "source s && eval 'grep \"# tollgate: \" f'", &forged] {
            assert_eq!(of(text), words(&["zsh", "-c", text]));
        }
        assert_eq!(of("tollgate hook HOST"), words(&["sh", "-c", "tollgate hook HOST"]));
    }
}

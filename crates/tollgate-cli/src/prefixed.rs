//! The prefix in front of every command of a program: `tollgate run --prefixed -- TEXT`.
//!
//! The text is what the program would execute with a shell. If the hook before the tool has put a comment in it that names a
//! prologue, the text runs through `tollgate run`, with the options from that file; otherwise as without a prefix.
//!
//! Whatever the text says, exactly this text is executed: the rules of the program have judged it. So a comment that an agent
//! writes cannot bring other commands past them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

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
pub(crate) enum Prefixed {
    /// These words.
    Execute(Vec<OsString>),
    /// Nothing, because the prologue is gone.
    Nothing,
}

/// What to execute for this text, by this tollgate. Prologues are below these folders, where no agent may write.
pub(crate) fn command(text: &OsStr, tollgate: &Path, shell: OsString, folders: &[PathBuf]) -> Prefixed {
    // Shell commands first source a snapshot of the user's shell. Hooks and MCP servers do not, and run in `sh`.
    let shell = if text.as_bytes().starts_with(b"source ") { shell } else { "sh".into() };
    let alone = [shell, "-c".into(), text.to_owned()];
    let Some(file) = prologue(text, folders) else { return Prefixed::Execute(alone.into()) };
    let Ok(options) = fs::read(file) else { return Prefixed::Nothing };
    let options = options.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let words = [tollgate.as_os_str().to_owned()].into_iter().chain(options).chain(["--".into()]);
    Prefixed::Execute(words.chain(alone).collect())
}

/// The prologue that the first comment in a text names.
fn prologue(text: &OsStr, folders: &[PathBuf]) -> Option<PathBuf> {
    let text = text.to_str()?;
    let rest = &text[text.find(COMMENT)? + COMMENT.len()..];
    let path = Path::new(&rest[..rest.find(|c| !is_plain(c)).unwrap_or(rest.len())]);
    let folder = path.parent()?.canonicalize().ok()?;
    let is_below = |top: &PathBuf| top.canonicalize().is_ok_and(|top| folder.starts_with(top));
    (folder.ends_with(FOLDER) && folders.iter().any(is_below))
        .then(|| folder.join(path.file_name().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Prefixed {
        Prefixed::Execute(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn a_text_with_the_comment_of_a_hook_runs_as_it_is_with_the_options_of_the_prologue() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().canonicalize().unwrap().join("s").join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("call-0"), "-C\0/w\0run\0--turn\0t").unwrap();
        let of = |text: &str| command(text.as_ref(), "tg".as_ref(), "zsh".into(), &[top.path().to_owned()]);
        let comment = format!("{COMMENT}{}", folder.join("call-0").display());
        let text = format!("source s && eval '{comment}\ncat f' < /dev/null");
        assert_eq!(of(&text), words(&["tg", "-C", "/w", "run", "--turn", "t", "--", "zsh", "-c", &text]));
        let gone = format!("source s && eval '{comment}9\ncat f'");
        assert_eq!(of(&gone), Prefixed::Nothing, "the prologue is gone");
        // Only the first comment counts, which is that of the hook.
        let two = format!("{text} {COMMENT}/elsewhere");
        assert!(matches!(of(&two), Prefixed::Execute(words) if words[0] == "tg"));
    }

    #[test]
    fn a_text_without_such_a_comment_runs_as_without_a_prefix() {
        let top = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let folder = elsewhere.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x"), "run").unwrap();
        let of = |text: &str| command(text.as_ref(), "tg".as_ref(), "zsh".into(), &[top.path().to_owned()]);
        let forged = format!("source s && eval 'cat f {COMMENT}{}'", folder.join("x").display());
        for text in ["source s && eval 'cat f'", "source s && eval 'grep \"# tollgate: \" f'", &forged] {
            assert_eq!(of(text), words(&["zsh", "-c", text]));
        }
        assert_eq!(of("tollgate hook HOST"), words(&["sh", "-c", "tollgate hook HOST"]));
    }
}

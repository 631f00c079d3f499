//! The files that the text of a command names, and the folders of the workspace: those whose files it probably reads.
//!
//! The text is only cut into words. A word that leads nowhere costs one look, and a folder that is missed is not watched, so nobody
//! knows what the command reads there.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::request::RunRequest;

/// More words are a list of files, and the first ones show where they are.
const MOST_WORDS: usize = 256;

/// The number of folders. Each word is looked for in each of them, because of `cd`.
const MOST_FOLDERS: usize = 16;

impl RunRequest<'_> {
    /// The paths that the words of the command name, also those of a script that is one of its arguments. Most of them are no files.
    pub(crate) fn named_files(&self) -> HashSet<PathBuf> {
        let texts = self.command.iter().map(|word| word.as_bytes());
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"';|&<>()`".contains(byte);
        let words = texts.flat_map(|text| [text].into_iter().chain(text.split(is_end)));
        let path = |word: &[u8]| self.folder.join(OsStr::from_bytes(word)).components().collect();
        words.filter(|word| !word.is_empty()).map(path).collect()
    }
}

/// The folder in which a command runs, and those that its words name or that have what they name, relative to the workspace.
pub(super) fn named_folders(root: &Path, folder: &Path, command: &[OsString]) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let texts = command.iter().map(|text| text.as_bytes());
    let words = texts.flat_map(|text| text.split(|byte| is_between_words(*byte)));
    for word in words.filter(|word| !word.is_empty()).take(MOST_WORDS) {
        let word = Path::new(OsStr::from_bytes(word));
        for base in 0..found.len() {
            let path = found[base].join(word);
            // Of a pattern, the part before it.
            let Some(near) = path.ancestors().find(|path| path.is_dir()) else { continue };
            let Ok(near) = near.canonicalize() else { continue };
            if found.len() < MOST_FOLDERS && near.starts_with(root) && !found.contains(&near) {
                found.push(near);
            }
        }
    }
    found.iter().filter_map(|folder| Some(folder.strip_prefix(root).ok()?.to_owned())).collect()
}

/// Bytes that separate words in a shell, an option from its value, or a commit from a path.
fn is_between_words(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'`;|&<>()$=,:{}".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_files_and_patterns_are_named_also_after_cd() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::os::unix::fs::symlink("d", root.join("link")).unwrap();
        let table: [(&str, &[&str], &[&str]); 10] = [
            ("", &["cat", "a/b/x"], &["", "a/b"]),
            ("", &["sh", "-c", "cat a/b/c/*.rs | head"], &["", "a/b/c"]),
            ("", &["sh", "-c", "cd a; cd b && cat c/x"], &["", "a", "a/b", "a/b/c"]),
            ("a", &["cat", "b/x", "../d/y"], &["a", "a/b", "d"]),
            ("", &["cc", "--out=a/x", "-I", "d"], &["", "a", "d"]),
            ("", &["git", "show", "HEAD:a/b/x"], &["", "a/b"]),
            ("", &["sh", "-c", "cat 'a/b/x'>d/y"], &["", "a/b", "d"]),
            ("", &["cat", "link/x"], &["", "d"]),
            ("", &["cat", "../x", "/etc/passwd", "a-longer-name"], &[""]),
            ("", &["true"], &[""]),
        ];
        for (folder, command, named) in table {
            let words: Vec<OsString> = command.iter().map(OsString::from).collect();
            let found = named_folders(&root, &root.join(folder), &words);
            assert_eq!(found, named.iter().map(PathBuf::from).collect::<Vec<_>>(), "{command:?}");
        }
        let many: Vec<OsString> = (0..MOST_WORDS).map(|number| format!("n{number}").into()).collect();
        let named = |words: &[OsString]| named_folders(&root, &root, words).len();
        assert_eq!(
            (named(&[&many[1..], &["a/x".into()]].concat()), named(&[many, vec!["a/x".into()]].concat())),
            (2, 1)
        );
    }
}

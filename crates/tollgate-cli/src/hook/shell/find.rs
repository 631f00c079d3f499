//! What `find` finds, if its tests are simple. Then the files of `-exec`, `-delete` and `| xargs` are known.

use std::fs;

use super::glob::matches_text;
use super::state::Shell;
use super::word::Word;

/// The largest number of names that are looked at.
const LOOKED_AT: usize = 20_000;

/// The largest number of files that count as known.
const FOUND: usize = 1_000;

/// A test of one path.
enum Test {
    Name(String),
    Path(String),
    NotPath(String),
    IsFile,
    IsFolder,
}

/// The whole call of `find`.
struct Search {
    starts: Vec<String>,
    tests: Vec<Test>,
    depths: (usize, usize),
    /// What is between the names that it prints.
    separator: char,
    /// It runs commands or deletes, and prints nothing.
    acts: bool,
}

/// The paths that it finds, as it spells them. `None`: they are not known.
pub(super) fn found(shell: &Shell, arguments: &[Word]) -> Option<Vec<String>> {
    search(arguments)?.paths(shell)
}

/// What it prints, if it only prints. Its order is not known.
pub(super) fn printed(shell: &Shell, arguments: &[Word]) -> Option<String> {
    let search = search(arguments).filter(|search| !search.acts)?;
    let paths = search.paths(shell)?;
    Some(paths.into_iter().map(|path| format!("{path}{}", search.separator)).collect())
}

/// The words before the first test: where it starts.
pub(super) fn starts(arguments: &[Word]) -> &[Word] {
    let is_test = |word: &Word| word.as_text().is_some_and(|word| word.starts_with(['-', '(', '!']));
    let end = arguments.iter().position(is_test).unwrap_or(arguments.len());
    &arguments[..end]
}

/// `None`: it has a test that is not followed here.
fn search(arguments: &[Word]) -> Option<Search> {
    let first = starts(arguments);
    let mut starts: Vec<String> =
        first.iter().map(|word| word.as_text().map(str::to_owned)).collect::<Option<_>>()?;
    if starts.is_empty() {
        starts.push(".".to_owned());
    }
    let mut search =
        Search { starts, tests: Vec::new(), depths: (0, usize::MAX), separator: '\n', acts: false };
    let mut rest = arguments[first.len()..].iter().map(Word::as_text);
    while let Some(word) = rest.next() {
        let word = word?;
        // A test after an action restricts nothing that the action does.
        if search.acts && !["-exec", "-execdir", "-ok", "-okdir", "-delete", "-print"].contains(&word) {
            return None;
        }
        let mut argument = || Some(rest.next()??.to_owned());
        match word {
            "-name" => search.tests.push(Test::Name(argument()?)),
            "-path" | "-wholename" => search.tests.push(Test::Path(argument()?)),
            "-not" | "!" if argument()? == "-path" => search.tests.push(Test::NotPath(argument()?)),
            "-type" => search.tests.push(match argument()?.as_str() {
                "f" => Test::IsFile,
                "d" => Test::IsFolder,
                _ => return None,
            }),
            "-mindepth" => search.depths.0 = argument()?.parse().ok()?,
            "-maxdepth" => search.depths.1 = argument()?.parse().ok()?,
            "-print" => {}
            "-print0" => search.separator = '\0',
            "-delete" => search.acts = true,
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                search.acts = true;
                // The words of the command need not be known.
                rest.find(|word| word.is_some_and(|word| [";", "+"].contains(&word)))?;
            }
            _ => return None,
        }
    }
    Some(search)
}

impl Search {
    /// `None` if there are too many, or none: what the command itself makes is not there yet.
    fn paths(&self, shell: &Shell) -> Option<Vec<String>> {
        let folder = shell.env.folder.as_deref().filter(|_| !shell.has_run)?;
        let (mut found, mut looked_at) = (Vec::new(), 0);
        let mut next: Vec<(String, usize)> = self.starts.iter().map(|start| (start.clone(), 0)).collect();
        while let Some((path, depth)) = next.pop() {
            let Ok(metadata) = fs::symlink_metadata(folder.join(&path)) else { continue };
            if depth >= self.depths.0 && self.tests.iter().all(|test| test.holds(&path, &metadata)) {
                found.push(path.clone());
            }
            if metadata.is_dir() && depth < self.depths.1 {
                for entry in fs::read_dir(folder.join(&path)).ok()?.flatten() {
                    looked_at += 1;
                    if looked_at > LOOKED_AT || found.len() > FOUND {
                        return None;
                    }
                    let name = entry.file_name().into_string().ok()?;
                    next.push((format!("{}/{name}", path.trim_end_matches('/')), depth + 1));
                }
            }
        }
        found.sort();
        Some(found).filter(|found| !found.is_empty())
    }
}

impl Test {
    fn holds(&self, path: &str, metadata: &fs::Metadata) -> bool {
        match self {
            Self::Name(pattern) => matches_text(pattern, path.rsplit('/').next().unwrap_or(path)),
            Self::Path(pattern) => matches_text(pattern, path),
            Self::NotPath(pattern) => !matches_text(pattern, path),
            Self::IsFile => metadata.is_file(),
            Self::IsFolder => metadata.is_dir(),
        }
    }
}

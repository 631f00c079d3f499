//! What `find` finds, if its tests are simple. Then the files of `-exec`, `-delete` and `| xargs` are known.

use std::fs;
use std::path::Path;

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
    search(arguments)?.paths(shell.env.folder.as_deref()?)
}

/// What it prints, if it only prints.
pub(super) fn printed(shell: &Shell, arguments: &[Word]) -> Option<String> {
    let search = search(arguments).filter(|search| !search.acts)?;
    let paths = search.paths(shell.env.folder.as_deref()?)?;
    Some(paths.into_iter().map(|path| format!("{path}{}", search.separator)).collect())
}

/// `None`: it has a test that is not followed here.
fn search(arguments: &[Word]) -> Option<Search> {
    let mut words = Vec::new();
    for word in arguments {
        // The words of a command after `-exec` need not be known.
        words.push(word.as_text().unwrap_or("$"));
    }
    let end = words.iter().position(|word| word.starts_with(['-', '(', '!'])).unwrap_or(words.len());
    let mut starts: Vec<String> = words[..end].iter().map(|word| (*word).to_owned()).collect();
    if starts.is_empty() {
        starts.push(".".to_owned());
    }
    let mut search =
        Search { starts, tests: Vec::new(), depths: (0, usize::MAX), separator: '\n', acts: false };
    let mut rest = words[end..].iter().copied();
    while let Some(word) = rest.next() {
        match word {
            "-name" => search.tests.push(Test::Name(rest.next()?.to_owned())),
            "-path" | "-wholename" => search.tests.push(Test::Path(rest.next()?.to_owned())),
            "-not" | "!" if rest.next()? == "-path" => {
                search.tests.push(Test::NotPath(rest.next()?.to_owned()));
            }
            "-type" => search.tests.push(match rest.next()? {
                "f" => Test::IsFile,
                "d" => Test::IsFolder,
                _ => return None,
            }),
            "-mindepth" => search.depths.0 = rest.next()?.parse().ok()?,
            "-maxdepth" => search.depths.1 = rest.next()?.parse().ok()?,
            "-print" => {}
            "-print0" => search.separator = '\0',
            "-delete" => search.acts = true,
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                search.acts = true;
                rest.find(|word| [";", "+"].contains(word))?;
            }
            _ => return None,
        }
    }
    let is_known = |text: &String| text != "$";
    search.starts.iter().all(is_known).then_some(search)
}

impl Search {
    fn paths(&self, folder: &Path) -> Option<Vec<String>> {
        let (mut found, mut looked_at) = (Vec::new(), 0);
        let mut next: Vec<(String, usize)> = self.starts.iter().map(|start| (start.clone(), 0)).collect();
        while let Some((path, depth)) = next.pop() {
            looked_at += 1;
            if looked_at > LOOKED_AT || found.len() > FOUND {
                return None;
            }
            let Ok(metadata) = fs::symlink_metadata(folder.join(&path)) else { continue };
            if depth >= self.depths.0 && self.tests.iter().all(|test| test.holds(&path, &metadata)) {
                found.push(path.clone());
            }
            if metadata.is_dir() && depth < self.depths.1 {
                let entries = fs::read_dir(folder.join(&path)).ok()?;
                for entry in entries.flatten() {
                    let name = entry.file_name().into_string().ok()?;
                    next.push((format!("{}/{name}", path.trim_end_matches('/')), depth + 1));
                }
            }
        }
        found.sort();
        Some(found)
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

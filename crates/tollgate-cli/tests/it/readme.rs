//! The examples in the guides and in some pages of the reference run as shown, and the README is one page.
//!
//! The `console` blocks are one session. Lines that start with `$` are commands for one shell, the others are their output.
//! `[..]` stands for any text within a line.

use std::fs;
use std::path::Path;

use crate::world::World;

/// Separates the output of two commands.
const MARK: &str = "---8<---";

/// The commands, each with its output on the page.
fn session(page: &str) -> Vec<(String, String)> {
    let mut session: Vec<(String, String)> = Vec::new();
    let mut within = false;
    for line in page.lines() {
        match (within, line.strip_prefix("$ "), line) {
            (_, _, "```console") => within = true,
            (_, _, "```") => within = false,
            (true, Some(command), _) => session.push((command.to_owned(), String::new())),
            (true, None, line) => {
                let (_, answer) = session.last_mut().unwrap();
                *answer += &format!("{line}\n");
            }
            (false, ..) => {}
        }
    }
    session
}

/// Whether the line is as shown, where `[..]` matches any text.
fn matches(shown: &str, line: &str) -> bool {
    let parts: Vec<&str> = shown.split("[..]").collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 || !line.starts_with(first) {
        return shown == line;
    }
    let mut rest = &line[first.len()..];
    for part in &parts[1..parts.len() - 1] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap()
}

#[test]
fn the_examples_in_the_guides_run_as_shown() {
    // What these pages show needs a compiler, or several trees.
    let without = ["install.md", "limits.md", "troubleshooting.md", "worktrees.md"];
    let guides = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide")).unwrap();
    let mut pages: Vec<String> =
        guides.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.retain(|page| !without.contains(&page.as_str()));
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        runs_as_shown(&format!("docs/guide/{page}"));
    }
}

#[test]
fn the_examples_in_the_page_about_exports_run_as_shown() {
    runs_as_shown("docs/reference/exports.md");
}

#[test]
fn the_index_names_every_page() {
    let index = read("docs/README.md");
    for folder in ["guide", "reference", "internals"] {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(folder);
        for page in fs::read_dir(pages).unwrap() {
            let name = page.unwrap().file_name().into_string().unwrap();
            assert!(
                index.contains(&format!("({folder}/{name}")),
                "docs/README.md does not name {folder}/{name}"
            );
        }
    }
}

/// A newcomer reads it before anything else.
#[test]
fn the_readme_has_at_most_900_words() {
    let readme = read("README.md");
    let words = readme.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
    assert!(words.count() <= 900);
}

#[track_caller]
fn runs_as_shown(page: &str) {
    let session = session(&read(page));
    assert!(session.len() > 2, "{page} has no examples");
    let script: String = session.iter().map(|(command, _)| format!("{command}\necho '{MARK}'\n")).collect();
    let world = World::bare();
    let ran = world.script(&format!("exec 2>&1\n{script}")).ends();
    let said = ran.stdout();
    let answers: Vec<&str> = said.split(&format!("{MARK}\n")).collect();
    for ((command, shown), answer) in session.iter().zip(answers) {
        let same = shown.lines().count() == answer.lines().count()
            && shown.lines().zip(answer.lines()).all(|(shown, line)| matches(shown, line));
        assert!(same, "$ {command}\n{answer}\nbut {page} shows\n{shown}");
    }
}

#[test]
fn the_wildcard_matches_any_text_within_a_line() {
    for (shown, line, same) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("[..]", "", true),
        ("a[..]c", "abc", true),
        ("a[..]c", "ab", false),
        ("a[..]b[..]c", "a--b--c", true),
        ("a[..]b[..]c", "a--c", false),
    ] {
        assert_eq!(matches(shown, line), same, "{shown} {line}");
    }
}

//! Moves, copies and links.

use std::path::PathBuf;

use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::state::Shell;
use super::word::Word;
use crate::hook::plan::{PlannedChange, Text};

/// Moves, copies and links. The last word is the target, unless `-t` gives it.
pub(super) fn transfer(shell: &mut Shell, name: &str, arguments: &[Word]) {
    let names = &["target-directory", "suffix", "mode", "group", "owner"];
    let mut given = ProgramArgs::of(arguments, Valued { letters: "t:S:m:g:o:", names });
    let folder = given.value(&["t", "target-directory"]).cloned();
    let symbolic = given.has(&["s", "symbolic", "symbolic-link"]);
    let hard = !symbolic && (name == "ln" || name == "cp" && given.has(&["l", "link"]));
    let target = match (&folder, given.operands.len()) {
        (Some(folder), _) => folder.clone(),
        // `ln file`: a link of the same name in the current folder.
        (None, 1) if name == "ln" => Word::text("."),
        (None, 0) => return,
        (None, _) => given.operands.pop().unwrap_or_default(),
    };
    let target = shell.target(&target);
    let is_folder = !given.has(&["T", "no-target-directory"])
        && target.as_ref().is_some_and(|target| folder.is_some() || target.is_dir());
    for word in &given.operands {
        let Some(source) = word.as_text().map(|text| shell.path(text)) else {
            // In a folder its name decides, and a move deletes it.
            shell.plan.vague |= is_folder || name == "mv";
            target.iter().filter(|_| !is_folder).for_each(|target| bring(shell, target.clone(), true));
            continue;
        };
        let names = || std::fs::read_dir(&source).into_iter().flatten().flatten().take(MOST_NAMES + 1);
        if hard {
            // A program that writes to one of them also writes to the other.
            shell.touch(word);
            shell.plan.touched.extend(names().map(|entry| entry.path()));
        }
        match &target {
            Some(target) if ["cp", "mv"].contains(&name) && is_everything(word) => {
                let all: Vec<_> = names().collect();
                if all.len() > MOST_NAMES {
                    shell.change_path(target.clone(), Extent::Whole, None);
                    return;
                }
                for entry in all {
                    bring(shell, target.join(entry.file_name()), entry.path().is_dir());
                }
            }
            Some(target) => {
                let to = match (is_folder, source.file_name()) {
                    (true, Some(name)) => target.join(name),
                    _ => target.clone(),
                };
                // A link may lead to a folder that is made later.
                bring(shell, to, name == "ln" || symbolic || source.is_dir());
            }
            None => {}
        }
        if name == "mv" {
            shell.change(word, Extent::Whole, None);
        }
    }
}

/// Whether a word names what is in a folder, and not the folder.
fn is_everything(word: &Word) -> bool {
    word.as_text().is_some_and(|text| text == "." || text.ends_with("/."))
}

/// The largest number of names in a folder that are looked at one by one. More may replace everything.
const MOST_NAMES: usize = 5_000;

/// A file or a folder comes to this path.
fn bring(shell: &mut Shell, path: PathBuf, brings_files: bool) {
    let (extent, text) = (Extent::Whole, Text::Unknown);
    shell.plan_change(PlannedChange { path, extent, text, by_git: false, brings_files });
}

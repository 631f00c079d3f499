//! Programs that change, move, copy and link the files in their arguments.

use tollgate::turn::Extent;

use super::arguments::{ProgramArgs, Valued};
use super::state::Shell;
use super::word::Word;

pub(super) fn change(shell: &mut Shell, files: Vec<Word>, extent: Extent, text: Option<String>) {
    for word in files {
        if shell.is_exhausted(0) {
            return;
        }
        for path in shell.targets(word) {
            shell.change(path, extent, text.clone());
        }
    }
}

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
        (None, _) => given.operands.pop().unwrap_or(Word::Unknown),
    };
    let target = shell.targets(target).pop();
    let is_folder = !given.has(&["T", "no-target-directory"])
        && target.as_ref().is_some_and(|target| folder.is_some() || target.is_dir());
    for word in given.operands {
        let text = word.as_text().map(str::to_owned);
        let Some(text) = text else {
            // In a folder its name decides, and a move deletes it.
            shell.effects.gave_up |= is_folder || name == "mv";
            target.iter().filter(|_| !is_folder).for_each(|target| shell.bring(target.clone(), true));
            continue;
        };
        for source in shell.targets(word) {
            if shell.is_exhausted(0) {
                return;
            }
            if hard {
                // Whoever writes to the one file also writes to the other.
                let below = shell.names_in(&source).into_iter().map(|name| source.join(name));
                shell.effects.touched.extend(below.chain([source.clone()]));
            }
            match &target {
                // Everything in the folder.
                Some(target) if ["cp", "mv"].contains(&name) && (text == "." || text.ends_with("/.")) => {
                    for name in shell.names_in(&source) {
                        if shell.is_exhausted(0) {
                            // Too many names: it may replace everything in the target.
                            shell.change(target.clone(), Extent::Whole, None);
                            return;
                        }
                        shell.bring(target.join(&name), source.join(&name).is_dir());
                    }
                }
                Some(target) => {
                    let to = match (is_folder, source.file_name()) {
                        (true, Some(name)) => target.join(name),
                        _ => target.clone(),
                    };
                    // A link may lead to a folder that is made later.
                    shell.bring(to.clone(), name == "ln" || symbolic || source.is_dir());
                    match to.parent() {
                        // Where a symbolic link leads is relative to its own folder.
                        Some(folder) if symbolic => shell.link(&to, folder.join(&text)),
                        _ if hard => shell.link(&to, source.clone()),
                        _ => {}
                    }
                }
                None => {}
            }
            if name == "mv" {
                shell.change(source, Extent::Whole, None);
            }
        }
    }
}

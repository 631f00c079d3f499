//! Patches in the format `*** Begin Patch`: which files they add, change, move and delete, and the new text of each file.
//!
//! The new text is known only if every change has exactly one place in the file. If it has several, or if white space would
//! have to be ignored, programs differ in which place they choose.

use super::event::{FileEffect, Hunk};

/// The effects of a patch, file by file.
pub(crate) fn effects(patch: &str) -> Vec<FileEffect> {
    let mut effects: Vec<FileEffect> = Vec::new();
    for line in patch.lines() {
        // Lines of text in a patch start with a sign or a space, so no text looks like a header.
        let head = |word: &str| line.strip_prefix(word).map(|path| path.trim().into());
        if let Some(path) = head("*** Add File: ") {
            effects.push(FileEffect::Write(path, Some(String::new())));
        } else if let Some(path) = head("*** Update File: ") {
            effects.push(FileEffect::Patch(path, Vec::new()));
        } else if let Some(path) = head("*** Delete File: ") {
            effects.push(FileEffect::Delete(path));
        } else if let Some(to) = head("*** Move to: ") {
            // A move deletes the file at its old path.
            if let Some(FileEffect::Patch(from, _)) = effects.last().cloned() {
                effects.pop();
                effects.push(FileEffect::Delete(from));
            }
            effects.push(FileEffect::Write(to, None));
        } else {
            match effects.last_mut() {
                Some(FileEffect::Write(_, Some(text))) => {
                    if let Some(line) = line.strip_prefix('+') {
                        text.push_str(line);
                        text.push('\n');
                    }
                }
                Some(FileEffect::Patch(_, hunks)) => add(hunks, line),
                _ => {}
            }
        }
    }
    effects
}

/// Adds one line to the changes of a file.
fn add(hunks: &mut Vec<Hunk>, line: &str) {
    if let Some(below) = line.strip_prefix("@@") {
        let below = Some(below.trim()).filter(|below| !below.is_empty()).map(str::to_owned);
        return hunks.push(Hunk { below, ..Hunk::default() });
    }
    if line.starts_with("***") {
        return;
    }
    if hunks.is_empty() {
        hunks.push(Hunk::default());
    }
    let Some(hunk) = hunks.last_mut() else { return };
    match (line.as_bytes().first(), line.get(1..)) {
        (Some(b'-'), Some(text)) => hunk.old.push(text.to_owned()),
        (Some(b'+'), Some(text)) => hunk.new.push(text.to_owned()),
        (_, text) => {
            // An empty line may lack its leading space.
            let text = text.unwrap_or_default().to_owned();
            hunk.old.push(text.clone());
            hunk.new.push(text);
        }
    }
}

/// The text after these changes, if there is only one way to apply them.
pub(crate) fn outcome(text: &str, hunks: &[Hunk]) -> Option<String> {
    let mut lines: Vec<&str> = text.strip_suffix('\n')?.split('\n').collect();
    let mut from = 0;
    for hunk in hunks {
        if let Some(below) = &hunk.below {
            from += lines[from..].iter().position(|line| line.trim() == below)? + 1;
        }
        if hunk.old.is_empty() {
            return None;
        }
        let mut places =
            lines[from..].windows(hunk.old.len()).enumerate().filter(|(_, there)| **there == hunk.old[..]);
        let at = from + places.next()?.0;
        if places.next().is_some() {
            return None;
        }
        lines.splice(at..at + hunk.old.len(), hunk.new.iter().map(String::as_str));
        from = at + hunk.new.len();
    }
    Some(lines.join("\n") + "\n").filter(|_| !hunks.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunk(below: Option<&str>, old: &[&str], new: &[&str]) -> Hunk {
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        Hunk { below: below.map(str::to_owned), old: owned(old), new: owned(new) }
    }

    #[test]
    fn every_kind_of_change_is_found() {
        let patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n+*** Delete File: not.me\n*** Update File: a b.txt\n@@\n-x\n+y\n\
                     *** Update File: old.txt\n*** Move to: moved.txt\n@@\n-x\n+y\n*** Delete File: gone.txt\n*** End Patch";
        assert_eq!(
            effects(patch),
            [
                FileEffect::Write("new.txt".into(), Some("one\n*** Delete File: not.me\n".into())),
                FileEffect::Patch("a b.txt".into(), vec![hunk(None, &["x"], &["y"])]),
                FileEffect::Delete("old.txt".into()),
                FileEffect::Write("moved.txt".into(), None),
                FileEffect::Delete("gone.txt".into()),
            ]
        );
        assert_eq!(effects(""), []);
        assert_eq!(effects("*** Add File: x"), [FileEffect::Write("x".into(), Some(String::new()))]);
        assert_eq!(effects("*** Move to: x"), [FileEffect::Write("x".into(), None)]);
    }

    #[test]
    fn the_new_text_is_known_if_there_is_one_way_to_apply_a_patch() {
        let made = |text: &str, changes: &str| {
            let patch = format!("*** Begin Patch\n*** Update File: f\n{changes}\n*** End Patch");
            let [FileEffect::Patch(_, hunks)] = &effects(&patch)[..] else { panic!("{patch}") };
            outcome(text, hunks)
        };
        for (text, changes, expected) in [
            ("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
            ("a\nb\n", "-b\n+B\n+C", "a\nB\nC\n"),
            ("a\nb\n", "@@\n-a\n@@\n-b\n+B\n*** End of File", "B\n"),
            ("fn x\n1\nfn y\n1\n", "@@ fn y\n-1\n+2", "fn x\n1\nfn y\n2\n"),
            ("a\n\nb\n", "@@\n a\n\n-b\n+c", "a\n\nc\n"),
        ] {
            assert_eq!(made(text, changes).as_deref(), Some(expected), "{changes}");
        }
        for (text, changes) in [
            ("a\na\n", "@@\n-a\n+b"),
            ("someone\n", "@@\n-one\n+two"),
            ("a \n", "@@\n-a\n+b"),
            ("a\r\n", "@@\n-a\n+b"),
            ("a", "@@\n-a\n+b"),
            ("a\n", "@@\n+b"),
            ("a\n", "@@ missing\n-a\n+b"),
            ("a\n", ""),
            ("", "@@\n-a"),
        ] {
            assert_eq!(made(text, changes), None, "{text:?} {changes}");
        }
    }

    #[test]
    fn mutated_patches_are_read_without_a_panic() {
        let patches = [
            "*** Begin Patch\n*** Add File: new.txt\n+one\n*** Update File: a b.txt\n@@ fn y\n a\n-x\n+y\n*** End of File\n*** End Patch",
            "*** Begin Patch\n*** Update File: old.txt\n*** Move to: moved.txt\n@@\n-b\n+c\n\n*** Delete File: gone.txt\n*** End Patch\n",
        ];
        tollgate_fuzz::fuzz("patch", &patches, |bytes| {
            for effect in effects(&String::from_utf8_lossy(bytes)) {
                if let FileEffect::Patch(_, hunks) = effect {
                    let _ = outcome("a\nb\nfn y\na\nx\n", &hunks);
                }
            }
        });
    }
}

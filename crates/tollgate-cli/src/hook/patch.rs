//! Patches in the form `*** Begin Patch`: which files they add, change, move and delete.
//!
//! Only the heads of the files are read. Where the changed lines go is the business of the program that applies the
//! patch; whether the file is still what the agent knows is ours.

use crate::hook::event::Deed;

/// What a patch does, file by file.
pub(crate) fn deeds(patch: &str) -> Vec<Deed> {
    let mut deeds: Vec<Deed> = Vec::new();
    let mut added: Option<String> = None;
    for line in patch.lines() {
        // A line of text in a patch begins with a sign or a space, so nothing in a file looks like a head.
        let head = |word: &str| line.strip_prefix(word).map(|path| path.trim().into());
        if let (Some(text), Some(line)) = (&mut added, line.strip_prefix('+')) {
            text.push_str(line);
            text.push('\n');
            continue;
        }
        if let (Some(text), Some(Deed::Write(_, content))) = (added.take(), deeds.last_mut()) {
            *content = Some(text);
        }
        if let Some(path) = head("*** Add File: ") {
            deeds.push(Deed::Write(path, None));
            added = Some(String::new());
        } else if let Some(path) = head("*** Update File: ") {
            deeds.push(Deed::Edit(path, Vec::new()));
        } else if let Some(path) = head("*** Delete File: ") {
            deeds.push(Deed::Delete(path));
        } else if let Some(to) = head("*** Move to: ") {
            // The file goes away from where it was.
            if let Some(Deed::Edit(from, _)) = deeds.last().cloned() {
                deeds.pop();
                deeds.push(Deed::Delete(from));
            }
            deeds.push(Deed::Write(to, None));
        }
    }
    if let (Some(text), Some(Deed::Write(_, content))) = (added, deeds.last_mut()) {
        *content = Some(text);
    }
    deeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_is_found() {
        let patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n+*** Delete File: not.me\n*** Update File: a b.txt\n@@\n-x\n+y\n\
                     *** Update File: old.txt\n*** Move to: moved.txt\n@@\n-x\n+y\n*** Delete File: gone.txt\n*** End Patch";
        assert_eq!(
            deeds(patch),
            [
                Deed::Write("new.txt".into(), Some("one\n*** Delete File: not.me\n".into())),
                Deed::Edit("a b.txt".into(), vec![]),
                Deed::Delete("old.txt".into()),
                Deed::Write("moved.txt".into(), None),
                Deed::Delete("gone.txt".into()),
            ]
        );
        assert_eq!(deeds(""), []);
        assert_eq!(deeds("*** Add File: x"), [Deed::Write("x".into(), Some(String::new()))]);
        assert_eq!(deeds("*** Move to: x"), [Deed::Write("x".into(), None)]);
    }
}

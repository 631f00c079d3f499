//! Finds old text whose white space is not quite right, as models often write it.
//!
//! The gate accepts only old text that is in the file exactly. This file finds the place that the model meant: lines that
//! are equal except for the white space at their ends, if there is only one such place. The new text then gets the
//! indentation of that place. If there is no such place, or more than one, the edit stays unchanged and the gate refuses it.

use tollgate::edit::{Edit, Occurrence};

/// The edits, each with its old text exactly as it is in the file after the edits before it.
pub(crate) fn exact(bytes: &[u8], edits: Vec<Edit>) -> Vec<Edit> {
    let Ok(text) = str::from_utf8(bytes) else { return edits };
    let mut text = text.replace("\r\n", "\n");
    let mut settled = Vec::with_capacity(edits.len());
    let mut edits = edits.into_iter();
    for edit in edits.by_ref() {
        let old = edit.old.replace("\r\n", "\n");
        let new = edit.new.replace("\r\n", "\n");
        let found = match text.contains(&old) {
            true => Some((old, new)),
            false => meant(&text, &old, &new),
        };
        let Some((old, new)) = found.filter(|(old, _)| !old.is_empty() && text.matches(old).count() == 1)
        else {
            settled.push(edit);
            break;
        };
        text = text.replacen(&old, &new, 1);
        settled.push(Edit { old, new, occurrence: Occurrence::Once });
    }
    settled.extend(edits);
    settled
}

/// The lines that are compared to find old text. Each line of the file may be compared with each line of the old text.
const MOST_COMPARED: usize = 50_000_000;

/// The exact old text, and the new text for it.
fn meant(text: &str, old: &str, new: &str) -> Option<(String, String)> {
    if old.trim().is_empty() {
        return None;
    }
    let wanted: Vec<&str> = old.split('\n').collect();
    let lines: Vec<&str> = text.split('\n').collect();
    if lines.len().saturating_mul(wanted.len()) > MOST_COMPARED {
        return None;
    }
    let same =
        |window: &[&str]| window.iter().zip(&wanted).all(|(line, wanted)| line.trim() == wanted.trim());
    let mut places = lines.windows(wanted.len()).enumerate().filter(|(_, window)| same(window));
    let (at, window) = places.next()?;
    if places.next().is_some() {
        return None;
    }
    let stands = window.join("\n");
    let shall = indented(new, window, &wanted);
    // These are whole lines, so the line ends around them distinguish them from the same words inside another line.
    let before = if at > 0 { "\n" } else { "" };
    let after = if at + wanted.len() < lines.len() { "\n" } else { "" };
    [("", ""), (before, ""), ("", after), (before, after)]
        .into_iter()
        .map(|(before, after)| (format!("{before}{stands}{after}"), format!("{before}{shall}{after}")))
        .find(|(stands, _)| text.matches(stands.as_str()).count() == 1)
}

fn indent(line: &str) -> &str {
    // Only spaces and tabs, so that it can be cut anywhere.
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The new lines. Each is indented relative to the file's line as it was relative to the line that the model gave.
fn indented(new: &str, stands: &[&str], wanted: &[&str]) -> String {
    let line = |(index, line): (usize, &str)| {
        if line.trim().is_empty() {
            return line.to_owned();
        }
        let pair = index.min(wanted.len() - 1);
        let (there, given, ours) = (indent(stands[pair]), indent(wanted[pair]).len(), indent(line));
        let there = match ours.len().checked_sub(given) {
            Some(deeper) => format!("{there}{}", &ours[ours.len() - deeper..]),
            // The first line keeps its indentation: the model only left it out.
            None if index == 0 => there.to_owned(),
            None => {
                there.get(..there.len().saturating_sub(given - ours.len())).unwrap_or_default().to_owned()
            }
        };
        format!("{there}{}", line.trim_start_matches([' ', '\t']))
    };
    new.split('\n').enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, old: &str, new: &str) -> (String, String) {
        let edit = exact(text.as_bytes(), vec![Edit::once(old, new)]).remove(0);
        (edit.old, edit.new)
    }

    #[test]
    fn old_text_with_different_white_space_is_found() {
        let text = "fn a() {\n    one();\n    two();\n}\n";
        assert_eq!(one(text, "one();", "1"), ("one();".into(), "1".into()));
        assert_eq!(
            one(text, "fn a() {\n  one();", "fn b() {\n  x();\n    y();"),
            ("fn a() {\n    one();".into(), "fn b() {\n    x();\n      y();".into())
        );
        assert_eq!(
            one(text, "     one();\n two();", "x();"),
            ("    one();\n    two();".into(), "    x();".into())
        );
        assert_eq!(
            one(text, "one();\ntwo();", "three();"),
            ("    one();\n    two();".into(), "    three();".into())
        );
        assert_eq!(
            one(text, "  one();  \n  two();", "  x\n    y"),
            ("    one();\n    two();".into(), "    x\n      y".into())
        );
    }

    #[test]
    fn ambiguous_old_text_stays_unchanged() {
        assert_eq!(one("\ta\n b\n  a\n b\n", "a\nb", "x"), ("a\nb".into(), "x".into()));
        assert_eq!(one("a\n", "   ", "x"), ("   ".into(), "x".into()));
        assert_eq!(one("a\n", "", "x"), ("".into(), "x".into()));
    }

    #[test]
    fn a_whole_line_is_not_confused_with_a_part_of_another() {
        assert_eq!(one("xa()\n\tb\n  a()\n", "  a() ", "c()"), ("  a()".into(), "  c()".into()));
        assert_eq!(one("\ta()b\n\ta()\n", " a()", "c()"), ("\n\ta()".into(), "\n\tc()".into()));
    }

    #[test]
    fn each_edit_sees_the_edits_before_it() {
        let edits = vec![Edit::once("a", "b\n\tc"), Edit::once(" c ", "d")];
        let found = exact(b"a\r\n", edits);
        assert_eq!((found[1].old.as_str(), found[1].new.as_str()), ("\tc", "\td"));
    }
}

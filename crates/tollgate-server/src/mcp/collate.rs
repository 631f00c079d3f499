//! Sorts names as people expect: signs before digits before letters, and case last.
//!
//! The reference server sorts with the collation of its JavaScript engine. This is the part of it that file names need:
//! ASCII in that order, then everything else by code point.

/// Signs, in Unicode collation order.
const SIGNS: &str = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";

/// The sort key of a name: first without case, then with it.
pub(crate) fn key(name: &str) -> (Vec<u32>, Vec<bool>, String) {
    let weights = name.chars().map(weight).collect();
    // Lower case first.
    let cases = name.chars().map(|char| char.is_ascii_uppercase()).collect();
    (weights, cases, name.to_owned())
}

fn weight(char: char) -> u32 {
    if let Some(at) = SIGNS.find(char) {
        return u32::try_from(at).unwrap_or(0);
    }
    // This comes after the signs, because there are fewer signs than the code of the digit zero.
    u32::from(char.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    #[test]
    fn case_is_compared_last() {
        let mut names = ["b", "A", "a", "B", "_x", "1", ".a", "é", "a-b", "ab", "Z"];
        names.sort_by_cached_key(|name| super::key(name));
        assert_eq!(names, ["_x", ".a", "1", "a", "A", "a-b", "ab", "b", "B", "Z", "é"]);
    }
}

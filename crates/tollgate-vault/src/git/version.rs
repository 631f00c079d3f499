//! The version of a task over git: the object of its card on the remote, then the version of its file in the tree.

use crate::store::Version;

/// One version of both. The first byte is the length of the object's name; 0 if there is no card.
pub(super) fn join(card: Option<&str>, file: &Version) -> Version {
    let card = card.unwrap_or_default();
    let len = u8::try_from(card.len()).unwrap_or(0);
    Version::from([&[len], card.as_bytes(), file].concat())
}

/// The card and the file of a version; `None` if this store did not make it.
pub(super) fn split(version: &Version) -> Option<(Option<String>, Version)> {
    let (len, rest) = version.split_first()?;
    let (card, file) = rest.split_at_checked(usize::from(*len))?;
    let card = str::from_utf8(card).ok()?;
    Some(((!card.is_empty()).then(|| card.to_owned()), Version::from(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_both_parts() {
        let file = Version::from(*b"\x05file");
        for card in [None, Some("1".repeat(40)), Some("2".repeat(64))] {
            let both = join(card.as_deref(), &file);
            assert_eq!(split(&both), Some((card, file.clone())));
        }
        for foreign in [&[][..], &[9, 1], &[1, 0xff]] {
            assert_eq!(split(&Version::from(foreign)), None);
        }
    }
}

//! The versions of etcd: which of them keep what they have acknowledged. Pure.

/// The numbers of a version.
fn numbers(version: &str) -> [Option<u32>; 3] {
    let mut numbers = version.split(['.', '-', '+']).map_while(|part| part.parse().ok());
    [numbers.next(), numbers.next(), numbers.next()]
}

/// Whether this version can lose acknowledged writes if the cluster has no other member: it acknowledges a write before the
/// write is on its disk, see <https://github.com/etcd-io/etcd/issues/14370>.
pub(crate) fn needs_others(version: &str) -> bool {
    matches!(numbers(version), [Some(3), Some(4), Some(0..=20)] | [Some(3), Some(5), Some(0..=4)])
}

/// Why a version cannot be used by a node, which may be the only member of its cluster; `None` if it can.
pub(crate) fn wrong_version(version: &str, is_alone: bool) -> Option<String> {
    match numbers(version) {
        [Some(3), Some(5), Some(0..=2)] => Some(format!(
            "etcd {version} can lose data (3.5.0 to 3.5.2 do, see the postmortem of 3.5): install 3.5.5 or later"
        )),
        [Some(3), Some(4..), Some(_)] if is_alone && needs_others(version) => Some(format!(
            "etcd {version} can lose writes that it has acknowledged if it is the only member of its cluster: install \
             3.4.21, 3.5.5 or later, or run three members"
        )),
        [Some(3), Some(4..), Some(_)] => None,
        _ => Some(format!("etcd {version} is not supported: tollgate needs 3.4 or later")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_lose_data_or_are_too_old_are_refused() {
        for good in ["3.4.23", "3.4.21", "3.5.5", "3.5.16", "3.6.0", "3.6.0-rc.1", "3.7.1"] {
            assert_eq!((wrong_version(good, false), wrong_version(good, true)), (None, None), "{good}");
        }
        for good_with_others in ["3.4.0", "3.4.20", "3.5.3", "3.5.4"] {
            assert_eq!(wrong_version(good_with_others, false), None, "{good_with_others}");
            let why = wrong_version(good_with_others, true).unwrap();
            assert!(why.contains("only member"), "{why}");
        }
        for bad in ["3.5.0", "3.5.1", "3.5.2", "3.3.27", "2.3.8", "4.0.0", "", "x"] {
            assert!(wrong_version(bad, false).is_some(), "{bad}");
        }
    }
}

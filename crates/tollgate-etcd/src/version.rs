//! The versions of etcd: which of them keep what they have acknowledged. Pure.

/// The numbers of a version.
fn numbers(version: &str) -> [Option<u32>; 3] {
    let mut numbers = version.split(['.', '-', '+']).map_while(|part| part.parse().ok());
    [numbers.next(), numbers.next(), numbers.next()]
}

/// Whether this version can lose acknowledged writes if the cluster has no other member: it acknowledges a write before the
/// write is on its disk, see <https://github.com/etcd-io/etcd/issues/14370>.
pub(crate) fn needs_others(version: &str) -> bool {
    matches!(numbers(version), [Some(3), Some(4), Some(0..=20)])
}

/// Why a version cannot be used by a node, which may be the only member of its cluster; `None` if it can.
pub(crate) fn wrong_version(version: &str, is_alone: bool) -> Option<String> {
    match numbers(version) {
        // See <https://github.com/etcd-io/etcd/pull/14730>, and the postmortem of 3.5 for 3.5.0 to 3.5.2.
        [Some(3), Some(5), Some(0..=5)] => Some(format!(
            "etcd {version} can carry out a transaction twice after a crash, and then its members differ: install 3.5.6 or \
             later"
        )),
        [Some(3), Some(4..), Some(_)] if is_alone && needs_others(version) => Some(format!(
            "etcd {version} can lose writes that it has acknowledged if it is the only member of its cluster: install \
             3.4.22 or later, or run three members"
        )),
        [Some(3), Some(4..), Some(_)] => None,
        _ => Some(format!("etcd {version} is not supported: tollgate needs 3.4 or later")),
    }
}

/// What can happen with this version if the engine wants a login; `None` if nothing can. See
/// <https://github.com/etcd-io/etcd/issues/14571>.
pub(crate) fn risk_with_login(version: &str) -> Option<String> {
    let has_risk = matches!(numbers(version), [Some(3), Some(4), Some(20 | 21)]);
    has_risk.then(|| {
        format!("with logins, a member that is added to a cluster of etcd {version} can differ from the others for ever")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_lose_data_or_are_too_old_are_refused() {
        for good in ["3.4.23", "3.4.21", "3.5.6", "3.5.16", "3.6.0", "3.6.0-rc.1", "3.7.1"] {
            assert_eq!((wrong_version(good, false), wrong_version(good, true)), (None, None), "{good}");
        }
        for good_with_others in ["3.4.0", "3.4.20"] {
            assert_eq!(wrong_version(good_with_others, false), None, "{good_with_others}");
            let why = wrong_version(good_with_others, true).unwrap();
            assert!(why.contains("only member"), "{why}");
        }
        for bad in ["3.5.0", "3.5.2", "3.5.3", "3.5.5", "3.3.27", "2.3.8", "4.0.0", "", "x"] {
            assert!(wrong_version(bad, false).is_some(), "{bad}");
        }
    }

    #[test]
    fn two_versions_have_a_risk_with_logins() {
        let risks =
            ["3.4.19", "3.4.20", "3.4.21", "3.4.22", "3.5.6"].map(|one| risk_with_login(one).is_some());
        assert_eq!(risks, [false, true, true, false, false]);
    }
}

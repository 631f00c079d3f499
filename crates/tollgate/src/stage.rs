//! Names in `.tollgate/stage/` and `.tollgate/recovery/`: each says what the file is, so that no journal is needed.
//!
//! A guarded write swaps the staged file with its target, so the same name stands first for the new bytes and then for
//! the replaced ones. It carries the target and both hashes: whoever finds it after a crash can tell from the
//! bytes alone which of the two it is, or that it is neither, and a foreign save is in there.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use jiff::Timestamp;

use crate::digest::Digest;
use crate::error::Result;
use crate::name::{Agent, random_id};
use crate::path::{escape, unescape};
use crate::turn::FileState;

/// The version of the names. A later one is left alone.
const VERSION: &str = "1";

/// The version of the names of files that are settled.
const SETTLED: &str = "1s";

/// Ends the name of a file that is set aside in the middle of a swap in steps, or of taking a new file back. With the
/// comma it cannot be read as a staged file whose target ends with a tilde.
const ASIDE: &str = ",~";

/// The longest name that the usual file systems take.
const NAME_MAX: usize = 255;

/// The id of one change of one file: its time in microseconds and a random part, so that ids sort by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChangeId(String);

impl ChangeId {
    pub(crate) fn new(now: Timestamp) -> Result<Self> {
        let us = u64::try_from(now.as_microsecond()).unwrap_or(0);
        Ok(Self(format!("{us:014x}{}", &random_id()?[..8])))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = text.len() == 22 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        hex.then(|| Self(text.to_owned()))
    }

    pub(crate) fn time(&self) -> Timestamp {
        let us = i64::from_str_radix(&self.0[..14], 16).unwrap_or(0);
        Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// One change of one file, as its staged file is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageName {
    pub(crate) standing: Standing,
    pub(crate) id: ChangeId,
    /// What was there before.
    pub(crate) base: FileState,
    /// What is there after.
    pub(crate) new: FileState,
    pub(crate) agent: Agent,
    pub(crate) target: TargetName,
}

/// Whether anything is still to be decided about a staged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its bytes and the ledger tell what became of the change.
    Open,
    /// The change did not come about, and that is decided: only the second look is left. Without this mark, a refused
    /// write whose old bytes lie here would later be taken for one that succeeded.
    Settled,
}

/// The target, relative to the workspace; or its hash, where the path is too long for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetName {
    Path(PathBuf),
    /// The path itself is in `.tollgate/paths/`.
    Hashed(Digest),
}

impl StageName {
    /// The file name. If it would be too long, the target has to be [`TargetName::Hashed`].
    pub(crate) fn file_name(&self) -> Option<OsString> {
        let target = match &self.target {
            TargetName::Path(path) => escape(path),
            TargetName::Hashed(digest) => format!("+{}", to_base64(digest)),
        };
        let state = |state: FileState| state.digest().map_or("-".into(), |digest| to_base64(&digest));
        let (base, new) = (state(self.base), state(self.new));
        let version = match self.standing {
            Standing::Open => VERSION,
            Standing::Settled => SETTLED,
        };
        let name = format!("{version},{},{base},{new},{},{target}", self.id.as_str(), self.agent);
        (name.len() <= NAME_MAX).then(|| name.into())
    }

    pub(crate) fn parse(name: &OsStr) -> Option<Self> {
        let mut parts = name.to_str()?.split(',');
        let standing = match parts.next()? {
            VERSION => Standing::Open,
            SETTLED => Standing::Settled,
            _ => return None,
        };
        let state = |text: &str| match text {
            "-" => Some(FileState::Absent),
            text => from_base64(text).map(FileState::Present),
        };
        let id = ChangeId::parse(parts.next()?)?;
        let (base, new) = (state(parts.next()?)?, state(parts.next()?)?);
        let agent = parts.next()?.parse().ok()?;
        let target = parts.next()?;
        let target = match target.strip_prefix('+') {
            Some(hash) => TargetName::Hashed(from_base64(hash)?),
            None => TargetName::Path(unescape(target)?),
        };
        parts.next().is_none().then_some(Self { standing, id, base, new, agent, target })
    }
}

/// The name for setting aside what belongs to a staged file.
pub(crate) fn aside_name(name: &OsStr) -> OsString {
    let mut aside = name.to_owned();
    aside.push(ASIDE);
    aside
}

/// The staged file that something set aside belongs to; `None` if it is not set aside.
pub(crate) fn owner_of_aside(name: &OsStr) -> Option<&OsStr> {
    name.to_str()?.strip_suffix(ASIDE).map(OsStr::new)
}

/// A file that is being written and is no change yet. The stripe tells by whose lock its writer is known to live.
pub(crate) fn unfinished_name(stripe: u8, id: &ChangeId) -> OsString {
    format!("tmp,{stripe:02x},{}", id.as_str()).into()
}

/// The stripe of an unfinished file, and when it was begun.
pub(crate) fn parse_unfinished(name: &OsStr) -> Option<(u8, ChangeId)> {
    let (stripe, id) = name.to_str()?.strip_prefix("tmp,")?.split_once(',')?;
    Some((u8::from_str_radix(stripe, 16).ok()?, ChangeId::parse(id)?))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// 43 characters instead of the 64 of hex: two hashes and a path have to share 255.
fn to_base64(digest: &Digest) -> String {
    let mut text = String::with_capacity(43);
    for group in digest.as_bytes().chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for index in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * index)) as usize & 63]));
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Digest> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.bytes() {
        bits = bits << 6 | u32::try_from(ALPHABET.iter().position(|&letter| letter == byte)?).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            *bytes.get_mut(filled)? = u8::try_from(bits >> count & 255).ok()?;
            filled += 1;
        }
    }
    (filled == 32 && text.len() == 43).then(|| Digest::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &str) -> StageName {
        StageName {
            standing: Standing::Open,
            id: ChangeId::new("2026-11-15T12:00:00Z".parse().unwrap()).unwrap(),
            base: FileState::Present(Digest::of(b"base")),
            new: FileState::Absent,
            agent: "blue.2@host".parse().unwrap(),
            target: TargetName::Path(path.into()),
        }
    }

    #[test]
    fn a_name_says_everything() {
        for path in ["src/a.rs", "a,b", "a~", "~", "%", "tmp,x"] {
            let name = name(path);
            let file_name = name.file_name().unwrap();
            assert_eq!(StageName::parse(&file_name), Some(name.clone()), "{file_name:?}");
            assert_eq!(name.id.time().to_string(), "2026-11-15T12:00:00Z");
        }
        let settled = StageName { standing: Standing::Settled, ..name("a") };
        assert_eq!(StageName::parse(&settled.file_name().unwrap()), Some(settled));
        for path in ["a", "a~", "tmp,x"] {
            let staged = name(path).file_name().unwrap();
            let aside = aside_name(&staged);
            assert_eq!(StageName::parse(&aside), None, "what is set aside is no staged file");
            assert_eq!((owner_of_aside(&aside), owner_of_aside(&staged)), (Some(staged.as_os_str()), None));
        }
        let hashed = StageName { target: TargetName::Hashed(Digest::of(b"long")), ..name("") };
        assert_eq!(StageName::parse(&hashed.file_name().unwrap()), Some(hashed));
    }

    #[test]
    fn a_long_path_does_not_fit() {
        assert!(name(&"x".repeat(100)).file_name().is_some());
        assert!(name(&"x".repeat(200)).file_name().is_none());
    }

    #[test]
    fn other_names_are_left_alone() {
        let good = name("a").file_name().unwrap().into_string().unwrap();
        for bad in ["", "x", "2,", &good[1..], &format!("{good},x"), &good.replace(",-,", ",AA,"), "tmp,00,x"]
        {
            assert_eq!(StageName::parse(OsStr::new(bad)), None, "{bad}");
            assert_eq!(parse_unfinished(OsStr::new(bad)), None, "{bad}");
        }
        let id = ChangeId::new(Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(parse_unfinished(&unfinished_name(7, &id)), Some((7, id)));
    }

    #[test]
    fn base64_is_the_usual_one() {
        assert_eq!(to_base64(&Digest::from_bytes([0xff; 32])), "_".repeat(42) + "8");
        let digest = Digest::of(b"abc");
        assert_eq!(to_base64(&digest), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
        assert_eq!(from_base64(&to_base64(&digest)), Some(digest));
    }
}

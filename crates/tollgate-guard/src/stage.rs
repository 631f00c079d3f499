//! Names in `.tollgate/stage/` and `.tollgate/history/`. A name says what its file is, so that no journal is needed.
//!
//! A guarded write swaps the staged file with its target, so the same name first stands for the new bytes and then for
//! the replaced ones. The name carries the target and both hashes. After a crash, the bytes tell which of the two the
//! file is; if it is neither, it holds a save by a program outside tollgate.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use serde::Serialize;

use crate::path::{escape, unescape};
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::{Agent, random_id};

/// The version of the names. tollgate leaves files with a later version alone.
const VERSION: &str = "1";

/// The version of the names of settled files.
const SETTLED: &str = "1s";

/// The version of the names of files whose bytes are in the store of contents.
const STORED: &str = "1c";

/// Ends the name of a file that is set aside in the middle of a two-step swap, or while a new file is rolled back. With
/// the comma, it cannot be read as a staged file whose target ends with a tilde.
const ASIDE: &str = ",~";

const BESIDE: &str = ".tollgate-";

/// The longest name that the usual file systems accept.
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

/// The name of a staged file: one change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageName {
    pub(crate) standing: Standing,
    pub(crate) id: ChangeId,
    /// The target before the change.
    pub(crate) base: FileState,
    /// The target after the change.
    pub(crate) new: FileState,
    pub(crate) agent: Agent,
    pub(crate) target: TargetName,
}

/// Whether the fate of the change is decided, and where the bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The file's bytes and the ledger tell whether the change was made.
    Open,
    /// The change was not made; only the late-write check is left. Without this mark, a refused write whose old bytes lie
    /// here would later be taken for one that succeeded.
    Settled,
    /// The bytes are in the store of contents. The file itself only says how many there are.
    Stored,
}

/// The target, relative to the workspace. If the path is too long for a name, its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetName {
    Path(PathBuf),
    /// The path itself is in `.tollgate/paths/`.
    Hashed(Digest),
}

/// Why a file is kept in recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryKind {
    /// A guarded write replaced it.
    Replaced,
    /// A program outside tollgate wrote it during a guarded write, and it may not be at its path.
    Late,
    /// The new bytes of a guarded write that was rolled back after they had been visible at the path.
    TakenBack,
}

impl RecoveryKind {
    /// Most valuable first: bytes that nobody else has come before bytes that an agent can write again.
    pub(crate) const ALL: [Self; 3] = [Self::Late, Self::Replaced, Self::TakenBack];

    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Late => "late",
            Self::TakenBack => "taken_back",
        }
    }
}

impl StageName {
    /// The hash of the bytes, if the file is kept for this reason. `None`: only the bytes tell.
    pub(crate) fn kept_digest(&self, kind: RecoveryKind) -> Option<Digest> {
        match kind {
            RecoveryKind::Replaced => self.base.digest(),
            RecoveryKind::TakenBack => self.new.digest(),
            RecoveryKind::Late => None,
        }
    }

    /// The file name. `None` if it would be too long: then the target must be [`TargetName::Hashed`].
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
            Standing::Stored => STORED,
        };
        let name = format!("{version},{},{base},{new},{},{target}", self.id.as_str(), self.agent);
        (name.len() <= NAME_MAX).then(|| name.into())
    }

    pub(crate) fn parse(name: &OsStr) -> Option<Self> {
        let mut parts = name.to_str()?.split(',');
        let standing = match parts.next()? {
            VERSION => Standing::Open,
            SETTLED => Standing::Settled,
            STORED => Standing::Stored,
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

/// The name under which a staged file, or what belongs to it, is set aside.
pub(crate) fn aside_name(name: &OsStr) -> OsString {
    let mut aside = name.to_owned();
    aside.push(ASIDE);
    aside
}

/// The staged file that a file set aside belongs to. `None` if this is not the name of a file set aside.
pub(crate) fn owner_of_aside(name: &OsStr) -> Option<&OsStr> {
    name.to_str()?.strip_suffix(ASIDE).map(OsStr::new)
}

/// The name of a file that is still being written and is not a change yet. Its writer holds the lock of this stripe for
/// as long as it lives.
pub(crate) fn unfinished_name(stripe: u8, id: &ChangeId) -> OsString {
    format!("tmp,{stripe:02x},{}", id.as_str()).into()
}

pub(crate) fn parse_unfinished(name: &OsStr) -> Option<(u8, ChangeId)> {
    let (stripe, id) = name.to_str()?.strip_prefix("tmp,")?.split_once(',')?;
    Some((u8::from_str_radix(stripe, 16).ok()?, ChangeId::parse(id)?))
}

/// The name of a staged or deleted file that is not in the stage but beside its target, because the target is on another
/// file system than the state.
pub(crate) fn name_beside(id: &ChangeId) -> OsString {
    format!("{BESIDE}{}", id.as_str()).into()
}

pub(crate) fn is_beside(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(BESIDE.as_bytes())
}

/// 43 characters instead of the 64 of hex: two hashes and a path must fit into 255.
pub(crate) fn to_base64(digest: &Digest) -> String {
    BASE64.encode(digest.as_bytes())
}

fn from_base64(text: &str) -> Option<Digest> {
    let bytes = BASE64.decode(text).ok()?;
    Some(Digest::from_bytes(bytes.try_into().ok()?))
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
    fn a_name_carries_the_whole_change() {
        for path in ["src/a.rs", "a,b", "a~", "~", "%", "tmp,x"] {
            let name = name(path);
            let file_name = name.file_name().unwrap();
            assert_eq!(StageName::parse(&file_name), Some(name.clone()), "{file_name:?}");
            assert_eq!(name.id.time().to_string(), "2026-11-15T12:00:00Z");
        }
        for standing in [Standing::Settled, Standing::Stored] {
            let name = StageName { standing, ..name("a") };
            assert_eq!(StageName::parse(&name.file_name().unwrap()), Some(name));
        }
        for path in ["a", "a~", "tmp,x"] {
            let staged = name(path).file_name().unwrap();
            let aside = aside_name(&staged);
            assert_eq!(StageName::parse(&aside), None, "a file set aside is not a staged file");
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
    fn base64_is_the_url_safe_alphabet_without_padding() {
        assert_eq!(to_base64(&Digest::from_bytes([0xff; 32])), "_".repeat(42) + "8");
        let digest = Digest::of(b"abc");
        assert_eq!(to_base64(&digest), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
        assert_eq!(from_base64(&to_base64(&digest)), Some(digest));
        for wrong in ["", "AA", &"A".repeat(42), &"A".repeat(44), &"=".repeat(43), &("A".repeat(42) + "+")] {
            assert_eq!(from_base64(wrong), None, "{wrong}");
        }
    }

    /// Names that version 0.1.0 wrote. A workspace may still have such files in its stage.
    #[test]
    fn names_written_by_version_0_1_0_are_still_read_and_written() {
        let a = "1,0660598855661e793eaac2,LIsI2lzmA5jh8Zrw5dzMdE3ydLgmq-WF6rpoxSVDSAY,\
                 J92O1EqD_5TVV_n9BBLtWoy8pp6gSSLYjAEYSgcwClo,blue.2@host,";
        let states = [FileState::Present(Digest::of(b"one\n")), FileState::Present(Digest::of(b"two\n"))];
        let long = "0afe51d0a39cd1c3ca4b4e1da53128e4fd9897afeb143999ef5a97ffff28f568".parse().unwrap();
        for (text, target) in [
            ("a.txt", TargetName::Path("a.txt".into())),
            ("src=deep%20dir=%c3%bc.rs", TargetName::Path("src/deep dir/ü.rs".into())),
            ("+Cv5R0KOc0cPKS04dpTEo5P2Yl6_rFDmZ71qX__8o9Wg", TargetName::Hashed(long)),
        ] {
            let old = format!("{a}{text}");
            let name = StageName::parse(OsStr::new(&old)).unwrap();
            assert_eq!((name.standing, [name.base, name.new]), (Standing::Open, states));
            assert_eq!((name.agent.as_str(), &name.target), ("blue.2@host", &target));
            assert_eq!(name.id.time().to_string(), "2026-11-16T00:05:15.917854Z");
            assert_eq!(name.file_name().unwrap(), OsStr::new(&old));
        }
    }

    #[test]
    fn mutated_names_are_read_without_a_panic() {
        use std::os::unix::ffi::OsStrExt;
        let id = ChangeId::new(Timestamp::UNIX_EPOCH).unwrap();
        let states = [FileState::Absent, FileState::Present(Digest::of(b"x"))];
        let name = StageName {
            standing: Standing::Open,
            id: id.clone(),
            base: states[0],
            new: states[1],
            agent: "blue".parse().unwrap(),
            target: TargetName::Path("a/b c,d.txt".into()),
        };
        let names = [
            name.file_name().unwrap(),
            unfinished_name(7, &id),
            name_beside(&id),
            aside_name(OsStr::new("x")),
        ];
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        tollgate_fuzz::fuzz("stage name", &names, |bytes| {
            let name = OsStr::from_bytes(bytes);
            let _ = (StageName::parse(name), parse_unfinished(name), owner_of_aside(name), is_beside(name));
        });
    }
}

//! Recovery: bytes that guarded writes replaced, and late foreign writes, kept for a while.
//!
//! A kept file is the very inode that was replaced, under a name that says what it was. It is bounded by age and by size;
//! what came from a foreign program is never dropped for size before what came from an agent.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::digest::Digest;
use crate::disk::{Found, Spot};
use crate::error::{At, Fault, Result};
use crate::name::Agent;
use crate::path::FilePath;
use crate::stage::StageName;
use crate::workspace::Workspace;

/// Often enough that the bounds mean something, seldom enough that writes do not pay for it.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Why a file is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A guarded write replaced it.
    Replaced,
    /// A foreign program wrote it at the same time as a guarded write, and it did not reach the path.
    Late,
    /// The bytes of a guarded write that was taken back, after they had stood at the path for a moment.
    TakenBack,
}

impl Kind {
    /// Most worth keeping first: what nobody else has comes before what an agent can write again.
    pub(crate) const ALL: [Self; 3] = [Self::Late, Self::Replaced, Self::TakenBack];

    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Late => "late",
            Self::TakenBack => "taken_back",
        }
    }
}

/// One kept file.
#[derive(Debug, Clone, Serialize)]
pub struct Kept {
    /// By which it is shown and restored.
    pub id: String,
    /// Where it was.
    pub path: FilePath,
    /// Why it is kept.
    pub kind: Kind,
    /// The agent whose write replaced it.
    pub replaced_by: Agent,
    /// When.
    pub time: Timestamp,
    /// How many bytes it has.
    pub size: u64,
    /// Their hash; of a late write only known when it is read.
    pub sha256: Option<Digest>,
    #[serde(skip)]
    name: std::ffi::OsString,
}

impl Serialize for FilePath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Workspace {
    /// What is kept, newest first. Also what still waits for its second look.
    pub fn recovery(&self) -> Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for kind in Kind::ALL {
            let folder = self.recovery_folder().open_below(kind.folder().as_ref())?;
            for name in folder.names()? {
                kept.extend(self.kept(&folder.spot(name), kind)?);
            }
        }
        for name in self.stage().names()? {
            kept.extend(
                self.kept(&self.stage().spot(name), Kind::Replaced)?.filter(|kept| kept.sha256.is_some()),
            );
        }
        kept.sort_by(|a, b| b.id.cmp(&a.id));
        kept.dedup_by(|a, b| a.id == b.id);
        Ok(kept)
    }

    fn kept(&self, spot: &Spot, kind: Kind) -> Result<Option<Kept>> {
        let Some(stage) = StageName::parse(spot.name()) else { return Ok(None) };
        let Found::File(file) = spot.open()? else { return Ok(None) };
        let relative = self.target_path(&stage.target)?;
        Ok(Some(Kept {
            id: stage.id.as_str().to_owned(),
            path: FilePath::trusted(self.path().join(relative)),
            kind,
            replaced_by: stage.agent,
            time: stage.id.time(),
            size: file.len(),
            sha256: match kind {
                Kind::Replaced => stage.base.digest(),
                Kind::TakenBack => stage.new.digest(),
                Kind::Late => None,
            },
            name: spot.name().to_owned(),
        }))
    }

    /// One kept file and its bytes.
    pub fn recovered(&self, id: &str) -> Result<(Kept, Vec<u8>)> {
        let missing = || Fault::Missing { what: format!("the recovery entry `{}`", id.escape_debug()) };
        let mut kept = self.recovery()?.into_iter().find(|kept| kept.id == id).ok_or_else(missing)?;
        // It may be moved from the stage to recovery between the two looks.
        let mut folders = vec![self.stage().clone()];
        for kind in Kind::ALL {
            folders.push(self.recovery_folder().open_below(kind.folder().as_ref())?);
        }
        for folder in folders {
            if let Found::File(file) = folder.spot(&kept.name).open()? {
                let (bytes, digest) = file.read()?;
                kept.sha256 = Some(digest);
                return Ok((kept, bytes));
            }
        }
        Err(missing())
    }

    /// Drops what is older or more than the settings allow. Says how many.
    ///
    /// It looks at everything that is kept, so it is done once in a while and not at every sweep.
    pub(crate) fn prune_recovery(&self) -> Result<usize> {
        let settings = &self.settings().recovery;
        let now = self.now();
        let stamp = self.state_path().join("recovery/pruned");
        let last = std::fs::metadata(&stamp).and_then(|stamp| stamp.modified()).ok();
        let last = last.and_then(|last| Timestamp::try_from(last).ok()).unwrap_or(Timestamp::UNIX_EPOCH);
        if now.duration_since(last).unsigned_abs() < PRUNE_EVERY.min(settings.max_age.0) {
            return Ok(0);
        }
        std::fs::write(&stamp, "").at("write", &stamp)?;
        let mut room = settings.max_size.0;
        let mut pruned = self.prune_conflicts(now, settings.max_age.0)?;
        for kind in Kind::ALL {
            let folder = self.recovery_folder().open_below(kind.folder().as_ref())?;
            // The names begin with the time: newest first.
            let mut names = folder.names()?;
            names.sort_unstable_by(|a, b| b.cmp(a));
            for name in names {
                let Some(stage) = StageName::parse(&name) else { continue };
                let spot = folder.spot(name);
                let Found::File(file) = spot.open()? else { continue };
                let young = now.duration_since(stage.id.time()).unsigned_abs() <= settings.max_age.0;
                if young && file.len() <= room {
                    room -= file.len();
                } else {
                    spot.remove()?;
                    pruned += 1;
                }
            }
        }
        Ok(pruned)
    }
}

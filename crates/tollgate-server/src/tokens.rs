//! The tokens of agents and of monitoring programs: their names and hashes, in one private file.
//!
//! The file is in the user's own state folder and not in the workspace: a repository cannot bring tokens with it, and no
//! file tool of an agent can reach them. It holds hashes only. The server reads it for every new request, so that an added
//! token works at once and a removed one does not.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::name::Agent;
use tollgate_base::error::At;
use tollgate_base::file::replace_file_with_mode;
use tollgate_base::lock::Lock;
use tollgate_base::private;
use tollgate_base::settings::Durability;

use crate::secret::{Secret, same};

/// The format of the file.
const VERSION: u32 = 1;

/// Many more than anybody needs. Each request with a token is compared with all of them.
pub const MOST: usize = 1000;

/// How long to wait for another process that changes the file.
const WAIT: Duration = Duration::from_secs(5);

/// What a token opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// `/mcp`, as the agent of the token's name.
    Mcp,
    /// `/health` and `/metrics`.
    Figures,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The name of the agent or of the monitoring program.
    pub name: Agent,
    /// What it opens.
    pub opens: TokenScope,
    /// When it was added.
    pub added: Timestamp,
    /// The hash of the secret.
    sha256: Digest,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    tokens: Vec<Token>,
}

/// The file.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The file at this path, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// All tokens, the oldest first.
    pub fn list(&self) -> Result<Vec<Token>> {
        let path = &self.0;
        let text = match private::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).at("read", path),
        };
        self.is_private()?;
        let damaged = |what: String| Fault::Damaged { path: path.clone(), what };
        // First only the version, because a later format may look different.
        let version = serde_json::from_slice::<serde_json::Value>(&text)
            .map_err(|error| damaged(error.to_string()))?["version"]
            .as_u64()
            .and_then(|version| u32::try_from(version).ok())
            .ok_or_else(|| damaged("it has no version".into()))?;
        if version > VERSION {
            return Err(Fault::NewerFormat { path: path.clone(), found: version, known: VERSION });
        }
        let content: Content = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        Ok(content.tokens)
    }

    /// Adds a token and returns its secret, which is stored nowhere. `None` if there is a token of this name.
    pub fn add(&self, name: &Agent, opens: TokenScope, now: Timestamp) -> Result<Option<Secret>> {
        let secret = Secret::random()?;
        let token = Token { name: name.clone(), opens, added: now, sha256: secret.hash() };
        let added = self.change(|tokens| {
            if tokens.len() >= MOST {
                return Err(Fault::invalid(format!("there are {MOST} tokens, which is the most")));
            }
            let is_new = tokens.iter().all(|known| known.name != *name);
            if is_new {
                tokens.push(token);
            }
            Ok(is_new)
        })?;
        Ok(added.then_some(secret))
    }

    /// Removes the token of this name. Returns whether there was one.
    pub fn remove(&self, name: &Agent) -> Result<bool> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != *name);
            Ok(tokens.len() < before)
        })
    }

    /// The token with this hash. Compares with all tokens, so that the time says nothing about them.
    pub(crate) fn find(&self, given: &Digest) -> Result<Option<Token>> {
        let mut found = None;
        for token in self.list()? {
            if same(&token.sha256, given) {
                found = Some(token);
            }
        }
        Ok(found)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Token>) -> Result<bool>) -> Result<bool> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        private::create_folders(folder, 0o700).at("make the folder", folder)?;
        let lock = folder.join("lock");
        let Some(_lock) = Lock::acquire(&lock, WAIT)? else {
            return Err(Fault::Locked { path: lock, waited_s: WAIT.as_secs() });
        };
        let mut tokens = self.list()?;
        let changed = change(&mut tokens)?;
        if changed {
            let content = serde_json::to_vec(&Content { version: VERSION, tokens })
                .map_err(|error| Fault::invalid(error.to_string()))?;
            replace_file_with_mode(&self.0, &content, Durability::Durable, Some(0o600))?;
        }
        Ok(changed)
    }

    /// Whoever can write the file could give out tokens, so only its user may.
    fn is_private(&self) -> Result<()> {
        let metadata = fs::metadata(&self.0).at("look at", &self.0)?;
        let what = if metadata.uid() != rustix::process::geteuid().as_raw() {
            "it belongs to another user"
        } else if metadata.mode() & 0o022 != 0 {
            "other users can write it"
        } else {
            return Ok(());
        };
        Err(Fault::Damaged { path: self.0.clone(), what: what.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file() -> (tempfile::TempDir, TokenFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().join("tokens/w.json"));
        (folder, file)
    }

    fn agent(name: &str) -> Agent {
        name.parse().unwrap()
    }

    #[test]
    fn a_token_is_found_by_its_secret_until_it_is_removed() {
        let (_keep, file) = file();
        assert_eq!(file.list().unwrap(), []);
        let now = Timestamp::UNIX_EPOCH;
        let blue = file.add(&agent("blue"), TokenScope::Mcp, now).unwrap().unwrap();
        let watch = file.add(&agent("watch"), TokenScope::Figures, now).unwrap().unwrap();
        assert!(file.add(&agent("blue"), TokenScope::Mcp, now).unwrap().is_none(), "the name is taken");
        let found = file.find(&blue.hash()).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.opens), ("blue", TokenScope::Mcp));
        assert_eq!(file.find(&watch.hash()).unwrap().unwrap().opens, TokenScope::Figures);
        assert_eq!(file.find(&Digest::of(b"x")).unwrap(), None);
        assert!(file.remove(&agent("blue")).unwrap() && !file.remove(&agent("blue")).unwrap());
        assert_eq!(file.find(&blue.hash()).unwrap(), None);
    }

    #[test]
    fn the_file_is_private_and_holds_no_secret() {
        let (_keep, file) = file();
        let secret = file.add(&agent("blue"), TokenScope::Mcp, Timestamp::UNIX_EPOCH).unwrap().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file.0), mode(file.0.parent().unwrap())), (0o600, 0o700));
        assert!(!fs::read_to_string(&file.0).unwrap().contains(secret.reveal()));
        fs::set_permissions(&file.0, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(file.find(&secret.hash()).is_err(), "others can write it");
    }

    #[test]
    fn a_file_that_is_not_ours_is_an_error() {
        let (_keep, file) = file();
        fs::create_dir_all(file.0.parent().unwrap()).unwrap();
        for text in ["", "{}", "[]", "{\"version\":1}", "{\"version\":2,\"tokens\":[]}", "{\"version\":-1}"] {
            fs::write(&file.0, text).unwrap();
            assert!(file.list().is_err(), "{text}");
        }
    }
}

//! `[vault] store`: which store keeps the tasks. Pure.
//!
//! Invariant: no password is in the value, because the configuration is in the repository.

use serde::Deserialize;

/// Which store keeps the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum StoreChoice {
    /// Folders on this machine.
    #[default]
    Folder,
    /// A git remote.
    Git,
    /// An engine, at this address.
    Engine(String),
}

impl StoreChoice {
    /// Whether this is an address with a password, which must not be in a configuration or in the arguments of a command.
    pub fn has_password(text: &str) -> bool {
        let Some((_, rest)) = text.split_once("://") else { return false };
        let named = rest.split(['/', '?']).next().unwrap_or_default();
        let user = named.rsplit_once('@').map_or("", |(user, _)| user);
        user.contains(':') || rest.contains("password=")
    }
}

impl TryFrom<String> for StoreChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Some((scheme, _)) = text.split_once("://") else {
            return match text.as_str() {
                "folder" => Ok(Self::Folder),
                "git" => Ok(Self::Git),
                _ => Err(format!(
                    "`{}` is not a store: use `folder`, `git`, or the address of an engine, as in `etcd://HOST:PORT/PREFIX`",
                    text.escape_debug()
                )),
            };
        };
        if Self::has_password(&text) {
            return Err(format!(
                "the address `{scheme}://…` has a password, and this file is for everybody to read: delete the password \
                 and set `TOLLGATE_STORE_PASSWORD` in your environment"
            ));
        }
        Ok(Self::Engine(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_word_or_an_address_without_a_password() {
        let read = |text: &str| StoreChoice::try_from(text.to_owned());
        assert_eq!(read("folder"), Ok(StoreChoice::Folder));
        assert_eq!(read("git"), Ok(StoreChoice::Git));
        for url in ["etcd://a:1,b:2/team", "postgres://ada@db:5432/tasks?schema=team"] {
            assert_eq!(read(url), Ok(StoreChoice::Engine(url.to_owned())));
        }
        assert!(read("dropbox").unwrap_err().contains("dropbox"));
        for url in ["etcd://ada:hunter2@a:1/x", "postgres://db/x?password=hunter2"] {
            let said = read(url).unwrap_err();
            assert!(said.contains("TOLLGATE_STORE_PASSWORD") && !said.contains("hunter2"), "{said}");
        }
    }
}

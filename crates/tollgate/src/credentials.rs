//! What the user proves who they are with to an engine: a login, a password file, a certificate and its key.
//!
//! Invariant: it goes only to an address that the user has chosen or agreed to. The address is in the configuration, which may
//! come from somebody else.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_base::error::{At, Fault, Result};
use tollgate_postgres::{PostgresOptions, read_passfile};

use crate::trust::outside;

/// A user of an engine.
#[derive(Clone)]
pub struct StoreLogin {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// The user's credentials, and the engine that they are for.
pub(crate) struct EngineCredentials<'o> {
    /// The address of the engine.
    pub(crate) engine: &'o str,
    /// Whether the user has chosen this address, or has agreed to it.
    pub(crate) is_agreed: bool,
    pub(crate) login: Option<&'o StoreLogin>,
    pub(crate) passfile: Option<&'o Path>,
}

impl EngineCredentials<'_> {
    /// The login, if there is one.
    pub(crate) fn login(&self) -> Result<Option<&StoreLogin>> {
        self.login.map(|login| self.agreed("your password for engines").map(|()| login)).transpose()
    }

    /// Adds the passwords in the password file that are for this address.
    pub(crate) fn add_passwords(&self, options: &mut PostgresOptions) -> Result<()> {
        let Some(passfile) = self.passfile.filter(|path| path.is_file()) else { return Ok(()) };
        read_passfile(&fs::read_to_string(passfile).at("read", passfile)?, options);
        match options.hosts.iter().any(|host| host.password.is_some()) {
            true => self.agreed(&format!("the password in `{}`", passfile.display())),
            false => Ok(()),
        }
    }

    /// Checks the files of the user's own certificate. What is in the workspace came with the configuration.
    pub(crate) fn check_files<'p>(
        &self,
        base: &Path,
        files: impl IntoIterator<Item = &'p PathBuf>,
    ) -> Result<()> {
        let mut files = files.into_iter().filter_map(|file| outside(base, file));
        files.try_for_each(|file| self.agreed(&format!("`{}`", file.display())))
    }

    fn agreed(&self, what: &str) -> Result<()> {
        if self.is_agreed {
            return Ok(());
        }
        let Self { engine, .. } = self;
        Err(Fault::Untrusted {
            what: format!("{what} is not used for `{engine}`, because you have not agreed to this address"),
        })
    }
}

//! Opening a vault in PostgreSQL by its address: who we are, and where the password comes from.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate_base::error::{At, Fault, Result};
use tollgate_base::settings::VaultSettings;
use tollgate_postgres::{PostgresOptions, PostgresStore, PostgresTls, read_passfile};
use tollgate_vault::event::Journal;

/// The longest time without a heartbeat after which the owner of a held claim is gone. Heartbeats are cheap, so it is short.
const LONGEST_HELD: Duration = Duration::from_secs(60);

/// Whether an address is one of PostgreSQL.
pub(crate) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// The store at this address, whose relative paths begin at `base`. The login is a user and a password; without a login the address names the user,
/// and the password comes from the password file.
pub(crate) fn open_postgres(
    url: &str,
    base: &Path,
    settings: &VaultSettings,
    login: Option<(String, String)>,
    passfile: Option<&Path>,
    journal: Option<Arc<dyn Journal>>,
) -> Result<PostgresStore> {
    let mut options = PostgresOptions::parse(url)?;
    if let PostgresTls::VerifyFull { ca, own } = &mut options.tls {
        let own = own.iter_mut().flat_map(|(cert, key)| [cert, key]);
        ca.iter_mut().chain(own).for_each(|path| *path = base.join(&*path));
    }
    if let Some((user, password)) = login {
        options.user = user;
        options.password = Some(password);
    } else if let Some(passfile) = passfile.filter(|path| path.is_file()) {
        let text = fs::read_to_string(passfile).at("read", passfile)?;
        read_passfile(&text, &mut options);
    }
    if options.user.is_empty() {
        return Err(Fault::invalid(format!(
            "`{options}` names no user: add one as in `postgres://USER@HOST/DB`, or set `TOLLGATE_STORE_USER` and \
             `TOLLGATE_STORE_PASSWORD` (for the other store of a copy `TOLLGATE_COPY_USER` and `TOLLGATE_COPY_PASSWORD`)"
        )));
    }
    options.lease = settings.lease.0.min(LONGEST_HELD);
    options.patience = settings.remote_timeout.0.min(options.patience);
    options.journal = journal;
    PostgresStore::open(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_user_needs_a_login() {
        let open = |url: &str, login| {
            let settings = VaultSettings::default();
            open_postgres(url, Path::new("/"), &settings, login, None, None).map(drop)
        };
        let login = || Some(("ada".to_owned(), "secret".to_owned()));
        let said = open("postgres://db/x?sslmode=disable", None).unwrap_err().to_string();
        assert!(said.contains("TOLLGATE_STORE_USER"), "{said}");
        assert!(open("postgres://db/x?sslmode=disable", login()).is_ok());
        assert!(open("postgres://ada@db/x?sslmode=disable", None).is_ok());
        assert!(open("postgres://ada@db", None).is_err());
    }
}

//! Opening a vault in PostgreSQL by its address: who we are, and where the password comes from.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tollgate_base::error::{Fault, Result};
use tollgate_base::settings::VaultSettings;
use tollgate_postgres::{PostgresOptions, PostgresStore, PostgresTls};
use tollgate_vault::event::Journal;

use crate::credentials::{EngineCredentials, StoreLogin};

/// The longest time without a heartbeat after which the owner of a held claim is gone. Heartbeats are cheap, so it is short.
const LONGEST_HELD: Duration = Duration::from_secs(60);

/// Whether an address is one of PostgreSQL.
pub(crate) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// The store at the address of these credentials, whose relative paths begin at `base`. Without a login the address names the
/// user, and the password comes from the password file.
pub(crate) fn open_postgres(
    credentials: &EngineCredentials<'_>,
    base: &Path,
    settings: &VaultSettings,
    journal: Option<Arc<dyn Journal>>,
) -> Result<PostgresStore> {
    let mut options = PostgresOptions::parse(credentials.engine)?;
    if let PostgresTls::VerifyFull { ca, own } = &mut options.tls {
        credentials.check_files(base, own.iter().flat_map(|(cert, key)| [cert, key]))?;
        let own = own.iter_mut().flat_map(|(cert, key)| [cert, key]);
        ca.iter_mut().chain(own).for_each(|path| *path = base.join(&*path));
    }
    match credentials.login()?.cloned() {
        Some(StoreLogin { user, password }) => (options.user, options.password) = (user, Some(password)),
        None => credentials.add_passwords(&mut options)?,
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
        let open = |engine: &str, login: Option<&StoreLogin>| {
            let settings = VaultSettings::default();
            let credentials = EngineCredentials { engine, is_agreed: true, login, passfile: None };
            open_postgres(&credentials, Path::new("/"), &settings, None).map(drop)
        };
        let login = StoreLogin { user: "ada".to_owned(), password: "secret".to_owned() };
        let said = open("postgres://db/x?sslmode=disable", None).unwrap_err().to_string();
        assert!(said.contains("TOLLGATE_STORE_USER"), "{said}");
        assert!(open("postgres://db/x?sslmode=disable", Some(&login)).is_ok());
        assert!(open("postgres://ada@db/x?sslmode=disable", None).is_ok());
        assert!(open("postgres://ada@db", None).is_err());
    }

    #[test]
    fn no_credential_goes_to_an_address_that_the_user_has_not_agreed_to() {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        let base = top.join("w");
        std::fs::create_dir(&base).unwrap();
        let passfile = top.join("pgpass");
        std::fs::write(&passfile, "db:5432:*:ada:secret\n").unwrap();
        let login = StoreLogin { user: "ada".to_owned(), password: "secret".to_owned() };
        let (none, plain) = (None, "postgres://ada@db/x?sslmode=disable");
        let keys = "postgres://ada@db/x?cert=../c.pem&key=../k.pem";
        let mixed = "postgres://ada@db/x?cert=c.pem&key=../k.pem";
        for (engine, login, passfile, is_withheld) in [
            (plain, none, None, false),
            (plain, Some(&login), None, true),
            (plain, none, Some(passfile.as_path()), true),
            // The file has no password for this one.
            ("postgres://eve@db/x?sslmode=disable", none, Some(passfile.as_path()), false),
            ("postgres://ada@other/x?sslmode=disable", none, Some(passfile.as_path()), false),
            (keys, none, None, true),
            (mixed, none, None, true),
        ] {
            let open = |is_agreed| {
                let credentials = EngineCredentials { engine, is_agreed, login, passfile };
                let opened = open_postgres(&credentials, &base, &VaultSettings::default(), None);
                opened.err().map(|fault| format!("{} {fault}", fault.code())).unwrap_or_default()
            };
            let said = open(false);
            assert_eq!(said.starts_with("NOT_TRUSTED"), is_withheld, "{engine}: {said}");
            assert!(!said.contains("secret"), "{said}");
            assert!(!open(true).starts_with("NOT_TRUSTED"), "{engine}");
        }
    }
}

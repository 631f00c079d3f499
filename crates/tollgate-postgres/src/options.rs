//! Where the database is and how to talk to it, parsed from a URL. Pure.
//!
//! Invariant: a URL has no password. URLs are in files that people share and in lists of processes.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_vault::event::Journal;

/// One server.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresHost {
    /// Its name or address. A name that starts with `/` is the folder of a Unix socket.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Its own password: see [`read_passfile`](crate::read_passfile).
    pub password: Option<String>,
}

/// The password stays out of logs.
impl fmt::Debug for PostgresHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresHost({}:{})", self.name, self.port)
    }
}

impl PostgresHost {
    /// Whether what is sent to it stays on this machine.
    fn is_here(&self) -> bool {
        let address = self.name.parse::<IpAddr>();
        self.name.starts_with('/')
            || self.name == "localhost"
            || address.is_ok_and(|address| address.is_loopback())
    }
}

/// Whether and how the connection is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostgresTls {
    /// The connection is not encrypted.
    Off,
    /// The connection is encrypted, and the server's certificate is verified.
    VerifyFull {
        /// A PEM file with the certificates to trust; `None`: those that the system trusts.
        ca: Option<PathBuf>,
        /// PEM files with the client's own certificate and its key.
        own: Option<(PathBuf, PathBuf)>,
    },
}

/// What [`PostgresStore`](crate::PostgresStore) needs to know.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The servers. The first one that accepts writes is used.
    pub hosts: Vec<PostgresHost>,
    /// The name of the database.
    pub database: String,
    /// The schema of the vault.
    pub schema: String,
    /// Encryption.
    pub tls: PostgresTls,
    /// The user.
    pub user: String,
    /// The password, if the servers want one and have none of their own.
    pub password: Option<String>,
    /// How long a held claim lasts without a heartbeat.
    pub lease: Duration,
    /// How long one server may take to accept a connection.
    pub connect: Duration,
    /// How long one answer may take before the store connects again and repeats the call.
    pub answer: Duration,
    /// How long one call may take, with all its repetitions.
    pub patience: Duration,
    /// Gets a copy of what this process does. The ledger of all machines is in the database.
    pub journal: Option<Arc<dyn Journal>>,
    /// The caller's clock, to be compared with that of the database in a checkup.
    pub clock: fn() -> Timestamp,
}

/// The password stays out of logs.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresOptions({self}, user {})", self.user)
    }
}

/// The address, as people read it.
impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> =
            self.hosts.iter().map(|host| format!("{}:{}", host.name, host.port)).collect();
        write!(f, "postgres://{}/{}?schema={}", hosts.join(","), self.database, self.schema)
    }
}

/// The port that PostgreSQL listens on unless it is told otherwise.
const PORT: u16 = 5432;

/// Leaves room for the prefix in the name of the channel, which PostgreSQL cuts after 63 bytes.
const LONGEST_SCHEMA: usize = 50;

impl PostgresOptions {
    /// Parses `postgres://[USER@]HOST[:PORT][,HOST[:PORT]...]/DB[?schema=NAME&sslmode=verify-full&ca=FILE&cert=FILE&key=FILE]`.
    /// `sslmode` is `verify-full` or `disable`; a Unix socket needs no encryption.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = |what: &str| Fault::invalid(format!("the URL of the store is not valid: {what}"));
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| wrong("it does not start with `postgres://`"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            None => (String::new(), authority),
            Some((user, _)) if user.contains(':') => {
                return Err(Fault::invalid(
                    "the URL of the store contains a password: remove it, and pass it by `TOLLGATE_STORE_PASSWORD` or \
                     a password file",
                ));
            }
            Some((user, hosts)) => (decoded(user)?, hosts),
        };
        if database.is_empty() {
            return Err(wrong("it names no database"));
        }
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>>>()?;
        let is_local = hosts.iter().all(|host| host.name.starts_with('/'));
        let mut schema = "tollgate".to_owned();
        let (mut mode, mut ca, mut cert, mut key) = (None, None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value)?;
            match name {
                "schema" => schema = value,
                "sslmode" => mode = Some(value),
                "ca" => ca = Some(PathBuf::from(value)),
                "cert" => cert = Some(PathBuf::from(value)),
                "key" => key = Some(PathBuf::from(value)),
                "password" => return Err(wrong("it contains a password")),
                other => return Err(wrong(&format!("`{other}` is not a parameter"))),
            }
        }
        let tls = match (mode.as_deref(), cert, key) {
            (Some("disable"), None, None) if ca.is_none() => PostgresTls::Off,
            (Some("disable"), ..) => return Err(wrong("`sslmode=disable` has no use for certificates")),
            (None, ..) if is_local => PostgresTls::Off,
            (None | Some("verify-full"), None, None) => PostgresTls::VerifyFull { ca, own: None },
            (None | Some("verify-full"), Some(cert), Some(key)) => {
                PostgresTls::VerifyFull { ca, own: Some((cert, key)) }
            }
            (None | Some("verify-full"), ..) => return Err(wrong("`cert` and `key` belong together")),
            (Some(_), ..) => return Err(wrong("`sslmode` is `verify-full` or `disable`")),
        };
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let starts_well = schema.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !starts_well || !schema.bytes().all(fits) || schema.len() > LONGEST_SCHEMA {
            return Err(wrong("`schema` must consist of at most 50 lowercase letters, digits and `_`"));
        }
        Ok(Self {
            hosts,
            database: decoded(database)?,
            schema,
            tls,
            user,
            password: None,
            lease: Duration::from_secs(600),
            connect: Duration::from_secs(2),
            answer: Duration::from_secs(3),
            patience: Duration::from_secs(10),
            journal: None,
            clock: Timestamp::now,
        })
    }

    /// Whether a host that is not on this machine can ask for a password that then crosses the network unencrypted.
    pub(crate) fn may_tell_password(&self) -> bool {
        let has_password = |host: &PostgresHost| host.password.is_some() || self.password.is_some();
        self.tls == PostgresTls::Off && self.hosts.iter().any(|host| !host.is_here() && has_password(host))
    }
}

fn host(text: &str) -> Result<PostgresHost> {
    let wrong = || Fault::invalid(format!("`{}` is not a host of a store", text.escape_debug()));
    // An address of IPv6 stands in brackets, because it has colons of its own.
    let (name, port) =
        match text.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(wrong)).transpose()? {
            Some((name, "")) => (name, None),
            Some((name, port)) => (name, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
    let port = port.map_or(Ok(PORT), str::parse).map_err(|_| wrong())?;
    if name.is_empty() {
        Err(wrong())
    } else {
        Ok(PostgresHost { name: decoded(name)?, port, password: None })
    }
}

/// The text without percent-encoding.
fn decoded(text: &str) -> Result<String> {
    let wrong = || Fault::invalid(format!("`{}` is not percent-encoded text", text.escape_debug()));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        rest = others;
        if first == b'%' {
            let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok()).ok_or_else(wrong)?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
            rest = &rest[2..];
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> PostgresOptions {
        PostgresOptions::parse(url).unwrap_or_else(|fault| panic!("{url}: {fault}"))
    }

    #[test]
    fn a_url_says_where_the_vault_is() {
        let plain = parsed("postgres://db/work");
        assert_eq!(plain.hosts, [PostgresHost { name: "db".into(), port: 5432, password: None }]);
        assert_eq!((&*plain.database, &*plain.schema, &*plain.user), ("work", "tollgate", ""));
        assert_eq!(
            plain.tls,
            PostgresTls::VerifyFull { ca: None, own: None },
            "encrypted unless told otherwise"
        );
        let full = parsed(
            "postgresql://me%40home@db1:1,[::1]:2,%2Frun%2Fpg/a%20b?schema=x_1&sslmode=verify-full&ca=/c&cert=/d&key=/k",
        );
        let hosts: Vec<_> = full.hosts.iter().map(|host| (&*host.name, host.port)).collect();
        assert_eq!(hosts, [("db1", 1), ("::1", 2), ("/run/pg", 5432)]);
        assert_eq!((&*full.database, &*full.schema, &*full.user), ("a b", "x_1", "me@home"));
        let own = Some(("/d".into(), "/k".into()));
        assert_eq!(full.tls, PostgresTls::VerifyFull { ca: Some("/c".into()), own });
        assert_eq!(parsed("postgres://%2Frun%2Fpg/a").tls, PostgresTls::Off, "a socket is local");
        assert_eq!(parsed("postgres://db/a?sslmode=disable").tls, PostgresTls::Off);
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        for url in ["postgres://me:secret@db/work", "postgres://db/work?password=secret"] {
            let said = PostgresOptions::parse(url).unwrap_err().to_string();
            assert!(said.contains("password") && !said.contains("secret"), "{said}");
        }
        let mut options = parsed("postgres://me@db/work");
        options.password = Some("secret".into());
        options.hosts[0].password = Some("secret".into());
        assert!(!format!("{options:?} {options} {:?}", options.hosts).contains("secret"));
    }

    #[test]
    fn a_password_that_may_cross_a_network_unencrypted_is_known() {
        for (hosts, is_told) in [
            ("db", true),
            ("localhost,db", true),
            ("localhost", false),
            ("127.0.0.1,[::1]", false),
            ("%2Frun%2Fpg", false),
        ] {
            let mut options = parsed(&format!("postgres://me@{hosts}/work?sslmode=disable"));
            assert!(!options.may_tell_password(), "there is none");
            options.password = Some("secret".into());
            assert_eq!(options.may_tell_password(), is_told, "{hosts}");
            options.password = None;
            options.hosts.iter_mut().for_each(|host| host.password = Some("secret".into()));
            assert_eq!(options.may_tell_password(), is_told, "{hosts}");
            options.tls = PostgresTls::VerifyFull { ca: None, own: None };
            assert!(!options.may_tell_password(), "{hosts}");
        }
    }

    #[test]
    fn a_wrong_url_is_refused() {
        for url in [
            "etcd://db/work",
            "postgres://db",
            "postgres:///work",
            "postgres://db:x/work",
            "postgres://db:70000/work",
            "postgres://[::1/work",
            "postgres://db/work?schema=",
            "postgres://db/work?schema=A",
            "postgres://db/work?schema=1a",
            "postgres://db/work?schema=a-b",
            "postgres://db/work?schema=pg%22",
            "postgres://db/work?sslmode=prefer",
            "postgres://db/work?cert=/c",
            "postgres://db/work?sslmode=disable&ca=/c",
            "postgres://db/work?colour=red",
            "postgres://db/w%zz",
            "postgres://db/w%00",
            "postgres://db/w%",
        ] {
            assert!(PostgresOptions::parse(url).is_err(), "{url}");
        }
    }
}

//! Where the certificates are that this machine trusts, for everything that talks TLS.

use std::path::Path;

/// The file with the authorities that this machine trusts, in PEM; `None` if there is none where systems keep it.
pub fn of_this_machine() -> Option<&'static Path> {
    AUTHORITIES.map(Path::new).into_iter().find(|path| path.is_file())
}

/// Where systems keep it: Debian, Fedora, openSUSE, Alpine and macOS.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

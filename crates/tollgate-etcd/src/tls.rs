//! Who we are for the nodes, and whom we believe: a login, and the files of TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_base::error::{At, Fault, Result};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::url::TlsFiles;

/// A user of etcd.
#[derive(Clone)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password. It is never shown.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The TLS settings: ring for the cryptography, only the named authorities, our own certificate if there is one.
pub(crate) fn tls(files: &TlsFiles, base: &Path) -> Result<TlsConfig> {
    let read = |path: &PathBuf| -> Result<(PathBuf, Vec<u8>)> {
        let path = base.join(path);
        let bytes = std::fs::read(&path).at("read", &path)?;
        Ok((path, bytes))
    };
    let certificates = |path: &PathBuf| -> Result<Vec<Certificate<'static>>> {
        let (path, bytes) = read(path)?;
        let found: Vec<_> = parse_pem(&bytes)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if found.is_empty() {
            return Err(Fault::invalid(format!("`{}` has no certificate in PEM", path.display())));
        }
        Ok(found)
    };
    let own = match &files.own {
        None => None,
        Some((certificate, key)) => {
            let (path, bytes) = read(key)?;
            let key = PrivateKey::from_pem(&bytes)
                .map_err(|_| Fault::invalid(format!("`{}` has no private key in PEM", path.display())))?;
            Some(ClientCert::new_with_certs(&certificates(certificate)?, key))
        }
    };
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(certificates(&files.ca)?)))
        .client_cert(own)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

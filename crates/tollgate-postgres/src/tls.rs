//! Encrypted connections: rustls under the client.
//!
//! Invariant: the certificate of the server is always verified, with its name.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tollgate_base::authorities;
use tollgate_base::error::{Fault, Result};

use crate::options::PostgresTls;

/// The client's side of encrypted connections; without a configuration there are none.
#[derive(Clone)]
pub(crate) struct TlsClient(Option<Arc<ClientConfig>>);

impl TlsClient {
    /// Reads the certificates.
    pub(crate) fn new(tls: &PostgresTls) -> Result<Self> {
        let PostgresTls::VerifyFull { ca, own } = tls else { return Ok(Self(None)) };
        let path = ca.as_deref().or(authorities::of_this_machine());
        let path =
            path.ok_or_else(|| Fault::invalid("this system lists no certificates to trust: add `ca=FILE`"))?;
        let mut roots = RootCertStore::empty();
        // A system's list may contain certificates that rustls cannot use.
        roots.add_parsable_certificates(certificates(path)?);
        if roots.is_empty() {
            return Err(Fault::invalid(format!("`{}` contains no certificate", path.display())));
        }
        let wrong = |error: &dyn std::fmt::Display| Fault::invalid(format!("TLS cannot be used: {error}"));
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
                builder.with_client_auth_cert(certificates(cert)?, key).map_err(|error| wrong(&error))?
            }
        };
        Ok(Self(Some(Arc::new(config))))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Fault {
    Fault::invalid(format!("`{}` cannot be read: {error}", path.display()))
}

/// Makes one encrypted connection, unless encryption is off.
pub(crate) struct Handshake(Option<(TlsConnector, ServerName<'static>)>);

impl MakeTlsConnect<Socket> for TlsClient {
    type Stream = EncryptedStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        let Some(config) = self.0.clone() else { return Ok(Handshake(None)) };
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(Handshake(Some((TlsConnector::from(config), name))))
    }
}

impl TlsConnect<Socket> for Handshake {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<EncryptedStream>>;

    fn connect(self, stream: Socket) -> Self::Future {
        async {
            let (connector, name) = self.0.ok_or_else(|| io::Error::other("encryption is off"))?;
            Ok(EncryptedStream(Box::new(connector.connect(name, stream).await?)))
        }
        .boxed()
    }
}

/// An encrypted stream.
pub(crate) struct EncryptedStream(Box<Encrypted<Socket>>);

impl TlsStream for EncryptedStream {
    fn channel_binding(&self) -> ChannelBinding {
        // The certificate is verified with its name, so nobody is in the middle.
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

//! Encryption of connections over TCP, by TLS. Host and device still prove that they know the shared key.
//!
//! Invariants
//! 1. A host that has root certificates talks only to a device whose certificate is issued by one of them, for
//!    the host name or the IP address to which it connects.
//! 2. A device that has a certificate answers no host without TLS.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use crate::error::{Result, SmartError};

/// The certificate of a device, with its private key.
#[derive(Clone)]
pub struct DeviceCertificate(Arc<ServerConfig>);

impl fmt::Debug for DeviceCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceCertificate")
    }
}

impl DeviceCertificate {
    /// Reads a certificate, with those between it and its root, and its private key. Both files are PEM.
    ///
    /// # Errors
    /// A file that can't be read, a key that other users may read, or a key of another certificate.
    pub fn of_files(certificate: &Path, key: &Path) -> Result<DeviceCertificate> {
        let chain = certificates(certificate)?;
        let metadata = key.metadata().map_err(|error| refused(key, &error.to_string()))?;
        let others = if metadata.uid() == 0 { 0o037 } else { 0o077 };
        if metadata.mode() & others != 0 {
            let why = "others may read this private key: make its mode 0600 (chmod 600)";
            return Err(refused(key, why));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, &error.to_string()))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
        let unfit = |error| refused(certificate, &format!("it can't be used with its key: {error}"));
        Ok(DeviceCertificate(Arc::new(config.map_err(unfit)?)))
    }

    pub(crate) fn connection(&self) -> Result<ServerConnection> {
        ServerConnection::new(Arc::clone(&self.0)).map_err(|error| SmartError::Tls(error.to_string()))
    }
}

/// The root certificates that a host trusts.
#[derive(Clone)]
pub struct RootCertificates(Arc<ClientConfig>);

impl fmt::Debug for RootCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootCertificates")
    }
}

impl RootCertificates {
    /// Reads root certificates from a PEM file.
    ///
    /// # Errors
    /// A file that can't be read, or that holds something else.
    pub fn of_file(file: &Path) -> Result<RootCertificates> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| refused(file, &error.to_string()))?;
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(file, &error.to_string()))?;
        Ok(RootCertificates(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Returns a connection to the device at this address.
    pub(crate) fn connection(&self, host_and_port: &str) -> Result<ClientConnection> {
        let host = host_and_port.rsplit_once(':').map_or(host_and_port, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let no_name = |error| SmartError::Tls(format!("{host} is no host name or IP address: {error}"));
        let name = ServerName::try_from(host.clone()).map_err(no_name)?;
        ClientConnection::new(Arc::clone(&self.0), name).map_err(|error| SmartError::Tls(error.to_string()))
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn refused(file: &Path, why: &str) -> SmartError {
    SmartError::Certificate { file: file.to_owned(), why: why.to_owned() }
}

/// Reads the certificates of a PEM file. There is at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let found = found.map_err(|error| refused(file, &error.to_string()))?;
    if found.is_empty() {
        return Err(refused(file, "it holds no certificate"));
    }
    Ok(found)
}

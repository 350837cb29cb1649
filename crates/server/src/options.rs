//! Options of a server: authentication, encryption, limits and time-outs.
//!
//! This module does not know how options are configured (`varve.toml`).

use std::fs::Metadata;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::end_point::end_point;
use crate::error::ServerError;

/// The time limit of a login (PostgreSQL's `authentication_timeout`).
pub const AUTHENTICATION_PATIENCE: Duration = Duration::from_secs(60);

/// The proof that a client needs for a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// No proof: every user name is accepted. This is allowed only for loopback addresses.
    Nothing,
    /// The password of its role, by SCRAM-SHA-256.
    Password,
}

/// The configuration of TLS.
#[derive(Debug)]
pub struct Tls {
    /// Certificate, key and versions.
    pub(crate) config: Arc<ServerConfig>,
    /// The channel binding, if the certificate has one.
    end_point: Option<Vec<u8>>,
}

/// Encryption of connections by TLS.
#[derive(Debug, Clone)]
pub enum Encryption {
    /// No encryption. A client that requests it gets this answer.
    Off,
    /// Clients may request encryption.
    Offered(Arc<Tls>),
    /// Sessions without encryption are refused.
    Required(Arc<Tls>),
}

impl Encryption {
    /// Returns the channel binding of connections with TLS.
    pub(crate) fn end_point(&self) -> Option<&[u8]> {
        match self {
            Encryption::Off => None,
            Encryption::Offered(tls) | Encryption::Required(tls) => tls.end_point.as_deref(),
        }
    }
}

/// The options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The limit of sessions.
    pub sessions_max: usize,
    /// The proof that clients need.
    pub proof: Proof,
    /// Encryption.
    pub encryption: Encryption,
    /// The time limit of a login.
    pub patience: Duration,
}

impl Options {
    /// Options for clients on this machine, without passwords and encryption.
    pub fn new(sessions_max: usize) -> Options {
        Options {
            sessions_max,
            proof: Proof::Nothing,
            encryption: Encryption::Off,
            patience: AUTHENTICATION_PATIENCE,
        }
    }

    /// Checks that a server with these options may listen on an address.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), ServerError> {
        match self.proof {
            Proof::Nothing if !address.ip().is_loopback() => Err(ServerError::NotLoopback { address }),
            _ => Ok(()),
        }
    }
}

/// Returns whether other users than the owner may read or change a key. As in PostgreSQL, a key that root
/// owns may be readable by a group.
fn is_exposed(key: &Metadata) -> bool {
    let others = if key.uid() == 0 { 0o037 } else { 0o077 };
    key.mode() & others != 0
}

/// Reads the configuration of TLS from two PEM files: one with the certificate (and those between it and its
/// authority), and one with its key.
pub fn tls(certificate: &Path, key: &Path) -> Result<Arc<Tls>, ServerError> {
    let fail = |path: &Path, problem: String| ServerError::Tls { path: path.to_owned(), problem };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|e| fail(certificate, e.to_string()))?;
    if chain.is_empty() {
        return Err(fail(certificate, "it holds no certificate".to_owned()));
    }
    let metadata = key.metadata().map_err(|e| fail(key, e.to_string()))?;
    if is_exposed(&metadata) {
        let problem =
            "others may read this private key: make its mode 0600 (chmod 600), or 0640 if it belongs to root";
        return Err(fail(key, problem.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| fail(key, e.to_string()))?;
    let end_point = chain.first().and_then(|certificate| end_point(certificate));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let config =
        config.map(Arc::new).map_err(|e| fail(certificate, format!("it can't be used with its key: {e}")))?;
    Ok(Arc::new(Tls { config, end_point }))
}

//! Errors of scans in a smart device. After each of them, the host scans the rest itself.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a scan can't run in the device, or stopped there.
#[derive(Debug, Error)]
pub enum SmartError {
    /// The program can't be run.
    #[error("the scan program is refused: {0}")]
    Program(String),
    /// A limit of the device is reached.
    #[error("the device refuses the scan: {what}, and its limit is {limit}")]
    Limit {
        /// The thing that is too large.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// The other side sent bytes that are no message of the protocol.
    #[error("the other side sent what is no message: {0}")]
    Malformed(String),
    /// The shared key is too short or too long.
    #[error("the key has {found} bytes; give it {min} to {max}")]
    KeyLength {
        /// Its bytes.
        found: usize,
        /// The fewest bytes.
        min: usize,
        /// The most bytes.
        max: usize,
    },
    /// The other side does not know the shared key.
    #[error("the shared key is not that of the other side")]
    Key,
    /// The device answered with an error.
    #[error("the device answered: {0}")]
    Device(String),
    /// The device can't listen on this address.
    #[error("the device can't listen on {address}: {why}")]
    Listen {
        /// The address.
        address: String,
        /// The reason.
        why: String,
    },
    /// A certificate, or a private key, can't be used.
    #[error("{}: {why}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// Only a connection over TCP can be encrypted.
    #[error("{address} is a local socket, which TLS can't encrypt; give HOST:PORT, or no certificate")]
    NoTcp {
        /// The address.
        address: String,
    },
    /// The device has sent no greeting.
    #[error(
        "the device at {address} sent no greeting; if it uses TLS, set tls_root_certificate in section [smart] of varve.toml"
    )]
    NoGreeting {
        /// The address.
        address: String,
    },
    /// The device does not answer with TLS.
    #[error(
        "the device at {address} did not answer with TLS: it serves without --tls-certificate, or has too many connections"
    )]
    NoTls {
        /// The address.
        address: String,
    },
    /// The two sides can't agree on TLS.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// A profile of a device can't be used.
    #[error("the profile is refused: {0}")]
    Profile(String),
    /// A file of the configuration can't be read.
    #[error("a file can't be read: {0}")]
    Read(std::io::Error),
    /// There is no such session on this connection.
    #[error("session {0} does not exist")]
    Session(u32),
    /// The connection failed or ended.
    #[error("the connection failed: {0}")]
    Connection(#[from] std::io::Error),
    /// The library for arrays refused something.
    #[error("the arrays are refused: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// The data file can't be read.
    #[error("the data file can't be read: {0}")]
    File(#[from] varve_device::DeviceError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] varve_engine::Error),
}

/// Reads a file of the configuration.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>> {
    let named = |error: std::io::Error| {
        SmartError::Read(std::io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    };
    std::fs::read(file).map_err(named)
}

/// Result of a step of a scan.
pub type Result<T> = std::result::Result<T, SmartError>;

//! The command that serves a device, for the programs `varve` and `varve-device`.
//!
//! Invariants
//! 1. The files of the database are opened for reading only, and its lock is not taken. So the device runs
//!    beside the server of the database.
//! 2. `listening on ADDRESS` is printed when hosts can connect.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use varve_device::{FileDirectory, FileOptions};

use crate::client::Address;
use crate::error::Result;
use crate::key::SharedKey;
use crate::profile::DeviceProfile;
use crate::serve::{Limits, Server, ServerOptions};
use crate::tls::DeviceCertificate;

/// How to serve a device.
#[derive(Debug, Args)]
pub struct ServeCommand {
    /// Where to listen: unix:PATH or HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    listen: Address,
    /// The directory with the data file: the data directory, or that of the device of the data space
    #[arg(long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// The data file in this directory; may be given several times
    #[arg(long = "file", value_name = "NAME", default_value = "data.varve")]
    files: Vec<String>,
    /// The file with the key that hosts must know, 16 bytes or more
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Encrypt connections over TCP by TLS, with this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Be as slow as this device: smart-ssd, or a file with a profile
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

impl ServeCommand {
    /// Serves until SIGINT or SIGTERM comes.
    pub fn run(&self) -> Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let certificate = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(DeviceCertificate::of_files(certificate, key)?),
            _ => None,
        };
        let encryption = if certificate.is_some() { ", with TLS" } else { "" };
        let options = ServerOptions {
            key: SharedKey::of_file(&self.key_file)?,
            certificate,
            limits: Limits::default(),
            profile: self.profile.as_deref().map(DeviceProfile::find).transpose()?,
        };
        let files = FileOptions { read_only: true, ..FileOptions::default() };
        let directory = FileDirectory::open(&self.directory, files)?;
        let server = Server::start(&self.listen, options, &*directory, &self.files)?;
        if let Some(profile) = server.profile() {
            say(&format!("as slow as {}: {}", profile.name, profile.source));
        }
        say(&format!("serving {} of {}", self.files.join(", "), self.directory.display()));
        say(&format!("listening on {}{encryption}", server.address()));
        // The iterator ends only when it is closed, and it is never closed.
        let _ = signals.forever().next();
        say("stopped");
        Ok(())
    }
}

/// Prints a line. If the reader has gone, the program continues.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

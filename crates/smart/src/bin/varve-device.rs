//! `varve-device`: a smart device as a program of its own, which scans tables for a database server.
//!
//! Invariants
//! 1. The files of the database are opened for reading only, and its lock is not taken. So it runs beside the
//!    server.
//! 2. `listening on ADDRESS` is printed when hosts can connect.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use varve_device::{FileDirectory, FileOptions};
use varve_smart::{Address, DeviceProfile, Limits, Result, Server, ServerOptions, SharedKey, SmartError};

/// Scans the tables of a Varve database next to their drive, and sends only results
///
/// It opens the data file for reading, and runs beside the database. Hosts must know the key. The connection
/// is not encrypted, so use HOST:PORT only in a trusted network. A key can be made by: head -c 32
/// /dev/urandom | base64
#[derive(Debug, Parser)]
#[command(name = "varve-device", version)]
struct Arguments {
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
    /// Be as slow as this device: smart-ssd, or a file with a profile
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

fn main() -> ExitCode {
    match serve(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "varve-device: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &Arguments) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let options = ServerOptions {
        key: SharedKey::of(&read(&arguments.key_file)?)?,
        limits: Limits::default(),
        profile: arguments.profile.as_deref().map(profile).transpose()?,
    };
    let files = FileOptions { read_only: true, ..FileOptions::default() };
    let directory = FileDirectory::open(&arguments.directory, files)?;
    let server = Server::start(&arguments.listen, options, &*directory, &arguments.files)?;
    if let Some(profile) = server.profile() {
        say(&format!("as slow as {}: {}", profile.name, profile.source));
    }
    say(&format!("serving {} of {}", arguments.files.join(", "), arguments.directory.display()));
    say(&format!("listening on {}", server.address()));
    // The iterator ends only when it is closed, and it is never closed.
    let _ = signals.forever().next();
    say("stopped");
    Ok(())
}

/// The profile with this name, or in the file with this name.
fn profile(name: &str) -> Result<DeviceProfile> {
    let parsed = match DeviceProfile::named(name) {
        Some(parsed) => parsed,
        None => DeviceProfile::parse(&String::from_utf8_lossy(&read(Path::new(name))?)),
    };
    parsed.map_err(SmartError::Profile)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let named = |error: std::io::Error| {
        SmartError::Read(std::io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    };
    std::fs::read(file).map_err(named)
}

/// Prints a line. If the reader has gone, the program continues.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

//! `varve-device`: a smart device as a program of its own, for a machine that has no other part of Varve.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use varve_smart::ServeCommand;

/// Scans the tables of a Varve database next to their drive, and sends only results
///
/// It opens the data file for reading, and runs beside the database. Hosts must know the key. The connection
/// is not encrypted, so use HOST:PORT only in a trusted network. A key can be made by: head -c 32
/// /dev/urandom | base64
#[derive(Debug, Parser)]
#[command(name = "varve-device", version)]
struct Arguments {
    #[command(flatten)]
    serve: ServeCommand,
}

fn main() -> ExitCode {
    match Arguments::parse().serve.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "varve-device: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The program `varve-lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(varve_lab::cli::run(std::env::args_os()))
}

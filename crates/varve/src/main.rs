//! The program `varve`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(varve::cli::run(std::env::args_os()))
}

//! The command `varve import`.

use std::io::Write;

use super::{CommandError, ImportArgs, dump, say};
use crate::transfer::TransferError;
use crate::transfer::import::{Order, import};
use crate::transfer::link::EndPoint;
use crate::transfer::read::Scope;

pub fn run(arguments: &ImportArgs) -> Result<(), CommandError> {
    let source = EndPoint::server(&arguments.from)?;
    let order = Order {
        scope: Scope { schemas: arguments.schemas.clone(), tables: Vec::new() },
        jobs: usize::from(arguments.jobs),
        reports_only: arguments.report_only,
    };
    let Some(to) = &arguments.to else {
        let scratch = tempfile::tempdir()
            .map_err(|error| TransferError::Scratch { path: std::env::temp_dir(), error })?;
        let target = dump::open(&scratch.path().display().to_string(), &arguments.opening, true)?;
        return run_into(&source, target, &order);
    };
    run_into(&source, dump::open(to, &arguments.opening, true)?, &order)
}

fn run_into(source: &EndPoint, target: EndPoint, order: &Order) -> Result<(), CommandError> {
    let done = import(source, &target, order, &tell, &|text| say(text));
    let closed = target.close();
    done?;
    Ok(closed?)
}

/// Writes a line of progress. If it can't be written, the import continues.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

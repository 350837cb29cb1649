//! `varve bench` runs the measurements of `varve-bench`. This module gives them functions that open databases
//! and run general queries (joins, subqueries).
//!
//! Invariants
//! 1. A measurement creates and drops tables only in two kinds of directories. One is an empty directory. The
//!    other is a directory of an earlier measurement, which the user has named.

use std::sync::Arc;

use varve_bench::BenchError;
use varve_bench::cli::{BenchArgs, DatabaseRequest, OpenedDatabase};
use varve_engine::Database;
use varve_query::{Queries, QueryOptions};

use super::{CommandError, Where, warn};
use crate::data_directory::{DatabaseDevices, DirectoryState};
use crate::error::OpenError;

/// Runs a measurement, and prints the results.
pub fn run(arguments: &BenchArgs) -> Result<(), CommandError> {
    let queries = Queries::new(&QueryOptions::default()).map_err(OpenError::Queries)?;
    let refused = |error: OpenError| {
        let text = error.to_string();
        BenchError::Arguments(text.strip_suffix('.').unwrap_or(&text).to_owned())
    };
    let open = |wanted: &DatabaseRequest<'_>| open(wanted).map_err(refused);
    Ok(varve_bench::cli::run(arguments, &open, Arc::new(queries), &mut std::io::stdout())?)
}

/// Opens and locks a database as `varve serve` does, on the devices that the configuration names.
fn open(wanted: &DatabaseRequest<'_>) -> Result<OpenedDatabase, OpenError> {
    let place = Where {
        directory: wanted.directory.to_owned(),
        config: wanted.config.map(ToOwned::to_owned),
        pool: wanted.pool_bytes,
        accept_copy: false,
    };
    let mut settings = place.settings()?;
    settings.pool.size_bytes.get_or_insert(wanted.pool_bytes_default);
    let refuse = || OpenError::NotForMeasuring { path: place.directory.clone() };
    if !wanted.may_exist && place.state()? == DirectoryState::Database {
        return Err(refuse());
    }
    let mut home = DatabaseDevices::open(&place.directory, &settings)?;
    home.warn_of_small_levels(&settings);
    if !wanted.may_exist && !home.is_new {
        return Err(refuse());
    }
    home.warnings.iter().for_each(|what| warn(what));
    let database = Database::open(home.options(&settings)?)?;
    Ok(OpenedDatabase { database, lock: Box::new(home) })
}

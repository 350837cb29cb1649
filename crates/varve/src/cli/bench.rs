//! `varve bench`: the measurements of `varve-bench`, with what runs general queries.

use std::sync::Arc;

use varve_bench::cli::BenchArgs;
use varve_query::{Queries, QueryOptions};

use super::CommandError;
use crate::error::OpenError;

/// Measures, and prints the figures.
pub fn run(arguments: &BenchArgs) -> Result<(), CommandError> {
    let queries = Queries::new(&QueryOptions::default()).map_err(OpenError::Queries)?;
    Ok(varve_bench::cli::run(arguments, Arc::new(queries), &mut std::io::stdout())?)
}

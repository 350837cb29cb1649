//! `varve experiment`: the published figures that `varve-bench` runs again.

use varve_bench::experiment::ExperimentArgs;

use super::CommandError;

/// Measures, and prints rows and tables.
pub fn run(arguments: &ExperimentArgs) -> Result<(), CommandError> {
    Ok(varve_bench::experiment::run(arguments, &mut std::io::stdout())?)
}

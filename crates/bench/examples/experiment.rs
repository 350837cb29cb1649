//! `varve experiment` without the rest of the program: what is measured here needs no query engine, so this builds in a tenth of the time.
//! `cargo run --release -p varve-bench --example experiment -- nvm-flush-sweep --quick`

use clap::Parser;
use varve_bench::experiment::{ExperimentArgs, run};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    experiment: ExperimentArgs,
}

fn main() -> Result<(), varve_bench::BenchError> {
    run(&Arguments::parse().experiment, &mut std::io::stdout())
}

//! The command line of `varve-lab`.

use std::ffi::OsString;
use std::io::Write;

use clap::{Args, Parser, Subcommand};
use varve_bench::measure::{self, MeasureArgs};
use varve_bench::wire::Wire;
use varve_bench::workload::Workload;
use varve_bench::{BenchError, Result};

use crate::experiment::{self, ExperimentArgs};
use crate::linkbench::LinkBench;
use crate::mysql::{self, MySql};
use crate::picture::TraceArgs;
use crate::stores::killed::ChildArgs;
use crate::tpce_like::TpceLike;
use crate::tpch_like::TpchLike;

/// Varve's laboratory: published results, run again
#[derive(Debug, Parser)]
#[command(name = "varve-lab", version, about, max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run published figures again, beside the published values
    #[command(long_about = EXPERIMENT)]
    Experiment(Box<ExperimentArgs>),
    /// Measure a server with a workload of the experiments; `varve bench` has the others
    #[command(long_about = RUN)]
    Run(RunArgs),
    /// Draw the I/O trace of a server: time and address of each request, by space and purpose
    #[command(long_about = TRACE)]
    Trace(TraceArgs),
    /// A process that `nvm-recovery` kills
    #[command(hide = true)]
    StoreChild(ChildArgs),
}

/// The help that `varve-lab help experiment` prints.
const EXPERIMENT: &str = "\
Runs a published figure or table again on this program: an emulated drive, sizes made smaller in the same \
ratios, fixed seeds. Prints a JSON row for each point and each claim, with the hash of its configuration, \
and tables of our values beside the published ones. Ratios on an emulated drive are evidence about \
algorithms, not about real devices; a point that the emulation spoilt (processors too busy, requests \
late) is shown and not judged.

Examples:

    varve-lab experiment list
    varve-lab experiment doublewrite-cost --quick
    varve-lab experiment doublewrite-cost --full --directory /mnt/fast --out rows.jsonl
    varve-lab experiment compression-page-size --profile none     # on the drive that is there";

/// The help that `varve-lab help run` prints.
const RUN: &str = "\
Runs a workload against a server: Varve, PostgreSQL or (linkbench only) MariaDB. Prints rates and latencies \
with the settings they belong to.

Examples:

    varve-lab run linkbench --rows 100000 --server \"host=127.0.0.1 port=5433 user=postgres\"
    varve-lab run linkbench --no-load --server mysql://root@127.0.0.1:3306/bench";

/// The help that `varve-lab help trace` prints.
const TRACE: &str = "\
Draws the I/O trace of a server as SVG: time and address of each request, one panel for each space of each \
device, one colour for each purpose. The setting trace_entries switches the trace on.

Example:

    psql -c \"alter system set trace_entries = 200000\"     # begin, then run the workload
    psql -c \"\\copy (select * from varve_io_trace) to 'trace.csv' csv header\"
    psql -c \"alter system set trace_entries = 0\"          # end
    varve-lab trace trace.csv --out trace.svg";

#[derive(Debug, Args)]
struct RunArgs {
    /// linkbench, tpce-like or tpch-like
    workload: String,
    /// The server, as a connection string: "host=127.0.0.1 port=5433 user=postgres"; MariaDB as
    /// "mysql://root@127.0.0.1:3306/DATABASE"
    #[arg(long)]
    server: String,
    /// Nodes of LinkBench's graph, customers of tpce-like, orders of tpch-like
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    #[command(flatten)]
    measured: MeasureArgs,
}

/// Runs a command line. Returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let program = match Program::try_parse_from(arguments) {
        Ok(program) => program,
        Err(error) => {
            // If the help cannot be printed, an error about that cannot be printed either.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let out = &mut std::io::stdout();
    let done = match program.command {
        Command::Experiment(arguments) => experiment::run(&arguments, out),
        Command::Run(arguments) => run_workload(&arguments, out),
        Command::Trace(arguments) => arguments.execute(),
        Command::StoreChild(arguments) => arguments.execute(out),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "varve-lab: The measurement failed: {error}.");
            1
        }
    }
}

fn run_workload(args: &RunArgs, out: &mut dyn Write) -> Result<()> {
    let workload = workload_of(args)?;
    match args.server.starts_with(mysql::PREFIX) {
        true => measure::run(&MySql::named(&args.server)?, workload.as_ref(), &args.measured, out),
        false => measure::run(&Wire::new(&args.server), workload.as_ref(), &args.measured, out),
    }
}

fn workload_of(args: &RunArgs) -> Result<Box<dyn Workload>> {
    match args.workload.as_str() {
        "linkbench" => Ok(Box::new(LinkBench::new(args.rows)?)),
        "tpce-like" => Ok(Box::new(TpceLike::new(args.rows)?)),
        "tpch-like" => Ok(Box::new(TpchLike::new(args.rows)?)),
        name => Err(BenchError::Arguments(format!(
            "{name} is no workload of the experiments; choose linkbench, tpce-like or tpch-like, or see varve bench"
        ))),
    }
}

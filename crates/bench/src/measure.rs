//! Measures one workload on one target: loads the data, runs rounds, runs the workload's own checks, and
//! reports.
//!
//! `varve bench` and `varve-lab` choose the workload and the target.

use std::io::Write;

use clap::Args;

use crate::database::MeasuredDatabase;
use crate::driver::{self, Plan};
use crate::report::{self, Configuration};
use crate::workload::Workload;
use crate::{Result, check};

/// How a workload is measured.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Sessions
    #[arg(long, default_value_t = 16)]
    pub threads: usize,
    /// Rounds; the report gives the median and the ends
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of a round
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Seconds before the first round
    #[arg(long, default_value_t = 2)]
    pub warm_seconds: u64,
    /// Use the tables that an earlier run left
    #[arg(long)]
    pub no_load: bool,
    /// Check the conditions of the workload (such as the twelve of TPC-C) after the last round
    #[arg(long)]
    pub check: bool,
}

/// Loads the workload's tables if need be, runs its rounds and writes the figures to `out`.
pub fn run(
    target: &dyn MeasuredDatabase,
    workload: &dyn Workload,
    args: &MeasureArgs,
    out: &mut dyn Write,
) -> Result<()> {
    let mut connection = target.connect(&[])?;
    if !args.no_load {
        workload.load(connection.as_mut())?;
    }
    let plan = args.plan();
    let rounds = driver::run(target, workload, plan)?;
    workload.verify(connection.as_mut())?;
    report::write(out, &Configuration::of(target, workload, plan), &rounds)?;
    if args.check { check::run(workload, connection.as_mut(), out) } else { Ok(()) }
}

impl MeasureArgs {
    fn plan(&self) -> Plan {
        Plan {
            threads: self.threads,
            rounds: self.rounds,
            seconds: self.seconds,
            warm_seconds: self.warm_seconds,
        }
    }
}

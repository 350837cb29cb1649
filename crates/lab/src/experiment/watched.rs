//! Runs a load and samples its throughput over time. (Other experiments measure one figure for the whole
//! run.)
//!
//! 1. Samples are taken at equal intervals of the emulated drives' time. The load is not paused for a sample.
//! 2. If the machine was too slow for the emulation, the run is repeated with all device times doubled. All
//!    runs that are compared with it are repeated, too.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use varve_device::EmulationReport;

use super::device::Device;
use super::drives::Drive;
use super::row::Emulation;
use super::stand::{OpenStand, Stand};
use super::warm::{self, Warmth};
use varve_bench::database::MeasuredDatabase;
use varve_bench::driver::{self, Plan, RoundObserver};
use varve_bench::embedded::Embedded;
use varve_bench::workload::Workload;
use varve_bench::{BenchError, Result};

/// The largest dilation. A run with this dilation is kept even if the emulation was too slow.
const DILATION_MAX: f64 = 8.0;

/// The conditions of a run.
#[derive(Clone, Copy)]
pub struct Stretch<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The drives.
    pub device: &'a Device,
    /// The number of sessions.
    pub clients: usize,
    /// Milliseconds of load before the first sample, and from the first sample to the last.
    pub lengths_ms: (u64, u64),
    /// The number of samples after the first.
    pub looks: u32,
    /// The dilation of the first attempt.
    pub dilation: f64,
}

/// The values that an observer gets with each sample.
pub struct Sight<'a> {
    /// The open database.
    pub opened: &'a OpenStand,
    /// The database as a target, on which the observer can run statements of its own.
    pub target: &'a dyn MeasuredDatabase,
    /// Seconds of the drives since the first sample.
    pub seconds: f64,
    /// A function that returns the number of transactions since the first sample.
    pub done: &'a dyn Fn() -> u64,
    /// The factor on all times of the drives.
    pub dilation: f64,
}

/// The circumstances of a run that was sampled.
pub struct SampledRun {
    /// The factor on all times of the drives.
    pub dilation: f64,
    /// The report of the emulation, if the drives were emulated.
    pub emulation: Option<Emulation>,
    /// The results of the warm-up, if there was one.
    pub warmth: Option<Warmth>,
}

/// An observer of a run, which collects its samples.
pub trait Onlooker: Default {
    /// Takes a sample. The first call is at the beginning of the run.
    fn look(&mut self, sight: &Sight<'_>) -> Result<()>;
}

/// Runs a load on a stand, and calls an observer for each sample.
pub fn run<O: Onlooker>(stand: &Stand, stretch: Stretch<'_>) -> Result<(SampledRun, O)> {
    let mut dilation = stretch.dilation;
    loop {
        let (watched, onlooker) = once(stand, stretch, dilation)?;
        let counts = watched.emulation.as_ref().is_none_or(|emulation| emulation.counts);
        if counts || dilation >= DILATION_MAX {
            return Ok((watched, onlooker));
        }
        dilation *= 2.0;
    }
}

/// Runs the load on all stands with the same dilation. The last stands are the fastest ones, which are spoilt
/// most easily. So they run first. The results are in the order of the stands.
pub fn all<O: Onlooker>(stands: &[Stand], stretch: Stretch<'_>) -> Result<Vec<(SampledRun, O)>> {
    let mut dilation = stretch.dilation;
    loop {
        let mut done = Vec::new();
        for stand in stands.iter().rev() {
            let one = run(stand, Stretch { dilation, ..stretch })?;
            let is_other = one.0.dilation > dilation;
            dilation = one.0.dilation;
            if is_other && !done.is_empty() {
                break;
            }
            done.push(one);
        }
        if done.len() == stands.len() {
            done.reverse();
            return Ok(done);
        }
    }
}

fn once<O: Onlooker>(stand: &Stand, stretch: Stretch<'_>, dilation: f64) -> Result<(SampledRun, O)> {
    let opened = stand.open(stretch.device, dilation)?;
    let target = Embedded::new(opened.database.clone(), &stand.describe());
    let plan = Plan { threads: stretch.clients, rounds: 1, seconds: 0, warm_seconds: 0 };
    let warm = |transactions| warm::up(&opened, &target, stretch.workload, plan, transactions, 0);
    let warmth = stand.variant.warm_transactions().map(warm).transpose()?;
    opened.take_times(true);
    let dilated = |ms: u64| Duration::from_millis(ms).mul_f64(dilation);
    let (settle_ms, length_ms) = stretch.lengths_ms;
    if settle_ms > 0 {
        driver::round(&target, stretch.workload, plan, dilated(settle_ms), 1)?;
    }
    let emulated = |drive: &Drive| drive.emulated.clone();
    let drives: Vec<_> =
        opened.drives.iter().filter_map(|drive| Some((drive.name, emulated(drive)?))).collect();
    drives.iter().for_each(|(_, drive)| drive.begin_report());
    let (mut onlooker, mut failed, began) = (O::default(), None, Instant::now());
    let mut look = |done: &dyn Fn() -> u64| {
        let seconds = began.elapsed().as_secs_f64() / dilation;
        let sight = Sight { opened: &opened, target: &target, seconds, done, dilation };
        failed = failed.take().or(onlooker.look(&sight).err());
        ControlFlow::Continue(())
    };
    let _begins = look(&|| 0);
    let watch = RoundObserver { looks: stretch.looks, look: &mut look };
    driver::round_watched(&target, stretch.workload, plan, dilated(length_ms), 2, Some(watch))?;
    let reports: Vec<(&'static str, EmulationReport)> =
        drives.iter().map(|(name, drive)| (*name, drive.report())).collect();
    drop(target);
    opened.take_times(false);
    opened.database.shutdown()?;
    if let Some(error) = failed {
        return Err(BenchError::Wrong(format!("what was looked at while the load ran failed: {error}")));
    }
    let emulation = Emulation::of_drives(&[reports], stretch.device.flush_us());
    Ok((SampledRun { dilation, emulation, warmth }, onlooker))
}

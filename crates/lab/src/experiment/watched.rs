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

/// Dilation beyond which a stretch is taken as it is.
const DILATION_MAX: f64 = 8.0;

/// What runs on what.
#[derive(Clone, Copy)]
pub struct Stretch<'a> {
    /// The load.
    pub workload: &'a dyn Workload,
    /// The drives.
    pub device: &'a Device,
    /// Sessions.
    pub clients: usize,
    /// Milliseconds before the first look's interval begins, and from there to the last look.
    pub lengths_ms: (u64, u64),
    /// How often it is looked at.
    pub looks: u32,
    /// Device times are multiplied by this at first.
    pub dilation: f64,
}

/// The values that an observer gets with each sample.
pub struct Sight<'a> {
    /// The database, open.
    pub opened: &'a OpenStand,
    /// For statements of the onlooker's own.
    pub target: &'a dyn MeasuredDatabase,
    /// Seconds of the drives since the stretch began.
    pub seconds: f64,
    /// Counts the transactions of the load since then.
    pub done: &'a dyn Fn() -> u64,
    /// Device times are multiplied by this.
    pub dilation: f64,
}

/// How it went.
pub struct SampledRun {
    /// Device times were multiplied by this.
    pub dilation: f64,
    /// How far it can be believed.
    pub emulation: Option<Emulation>,
    /// How it was warmed up, if it was.
    pub warmth: Option<Warmth>,
}

/// An observer of a run, which collects its samples.
pub trait Onlooker: Default {
    /// Looks; the first time when the stretch begins.
    fn look(&mut self, sight: &Sight<'_>) -> Result<()>;
}

/// Runs a load on a stand and samples it.
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

/// Runs it on all of them under one dilation, the last ones first, which are the fastest and are spoilt most easily. In their order.
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

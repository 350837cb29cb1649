//! Stops a database under load and starts it again, with emulated drive times.
//!
//! 1. The drives are emulated from the end of the warm-up on, and also during shutdown and recovery.
//! 2. A crash is simulated by dropping the database without a shutdown. Its memory is lost, and its files
//!    stay as they are. The simulated crash takes no time.
//! 3. The first query reads one row by its key, in a new session, as soon as the database is open. Its time
//!    is measured from the beginning of the start.

use std::time::{Duration, Instant};

use serde::Serialize;
use varve_device::{EmulationReport, Purpose};

use super::device::Device;
use super::stand::{OpenStand, Stand, levels};
use super::warm::{self, Warmth};
use varve_bench::Result;
use varve_bench::database::MeasuredDatabase;
use varve_bench::driver::{self, Plan};
use varve_bench::embedded::Embedded;
use varve_bench::workload::Workload;

/// Between two stops, the warm-up is repeated with its number of transactions divided by this.
const AGAIN: u64 = 4;

/// The most stops of one configuration that are repeated because the emulation was too slow. A sample of one
/// second is spoilt if the machine does something else for 30 ms. A larger dilation would not prevent that.
const SPOILT_MAX: u32 = 3;

/// Returns the first query after a start, for each load.
fn first_query(workload: &dyn Workload) -> &'static str {
    match workload.name().as_str() {
        "tpce-like" => "SELECT c_name FROM bench_e_customer WHERE c_id = 1",
        _ => "SELECT c_balance FROM bench_customer WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
    }
}

/// The way in which a database is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Shutdown,
    Crash,
}

impl Stop {
    pub(super) const ALL: [Stop; 2] = [Stop::Shutdown, Stop::Crash];

    pub(super) fn name(self) -> &'static str {
        match self {
            Stop::Shutdown => "shutdown",
            Stop::Crash => "crash",
        }
    }
}

/// How many stops and starts of a configuration were spoilt and repeated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spoilt {
    pub count: u32,
}

/// What happens with the result of a stop and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    RunAgain,
    /// Discard it, and measure all compared configurations with a larger dilation.
    GiveUp,
}

impl Spoilt {
    /// Decides what happens with the result of a stop and start. `counts` is whether the emulation was fast
    /// enough. If it was not, the stop is repeated up to [`SPOILT_MAX`] times. After that, the result is kept
    /// only at the largest dilation (`is_last`).
    pub(super) fn judge(&mut self, counts: bool, is_last: bool) -> Fate {
        match counts {
            true => Fate::Keep,
            false if self.count < SPOILT_MAX => {
                self.count += 1;
                Fate::RunAgain
            }
            false if is_last => Fate::Keep,
            false => Fate::GiveUp,
        }
    }
}

/// The database that is stopped and started, its drives, and its load.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub stand: &'a Stand,
    pub device: &'a Device,
    pub workload: &'a dyn Workload,
    pub clients: usize,
    pub dilation: f64,
}

/// A database that was started again.
pub(super) struct Started {
    pub opened: OpenStand,
    /// The moment at which the database was open.
    pub at: Instant,
    /// Seconds of the drives from the beginning of the start: until the database was open, and until the
    /// first query was answered.
    pub recovery_seconds: f64,
    pub first_query_seconds: f64,
    /// Three parts of `recovery_seconds`: analysis, opening the levels, and redo.
    pub parts_seconds: [f64; 3],
    /// Bytes of the log that the start read, slots of the cache that it reused, and the work of redo.
    pub log_read_bytes: u64,
    pub restored_pages: u64,
    pub redone: Redone,
    /// Warnings of the start.
    pub warnings: Vec<String>,
}

/// The work of redo. If a start was tried twice, this is the work of the second try.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Redone {
    /// Bytes of the log from the position at which redo begins to the end.
    pub log_bytes: u64,
    /// Changes of pages that redo applied, and changes that it skipped: the pages had them already, or are
    /// not needed.
    pub applied: u64,
    pub skipped: u64,
    /// Pages that were read until the database was open, for any purpose, and pages that were written.
    pub pages_read: u64,
    pub pages_written: u64,
}

impl Redone {
    fn by(opened: &OpenStand) -> Redone {
        let redo = opened.database.pager().recovery().unwrap_or_default().redo;
        let stats = opened.database.pager().stats();
        Redone {
            log_bytes: redo.log_bytes,
            applied: redo.applied_count,
            skipped: redo.skipped_count,
            pages_read: stats.misses + stats.prefetched,
            pages_written: stats.evict_writes + stats.inline_writes + stats.checkpoint_writes,
        }
    }
}

impl Ground<'_> {
    pub(super) fn plan(&self) -> Plan {
        Plan { threads: self.clients, rounds: 1, seconds: 0, warm_seconds: 0 }
    }

    pub(super) fn dilated(&self, ms: u64) -> Duration {
        Duration::from_millis(ms).mul_f64(self.dilation)
    }

    /// Returns the seconds since this moment, in the drives' time.
    pub(super) fn seconds(&self, since: Instant) -> f64 {
        since.elapsed().as_secs_f64() / self.dilation
    }

    pub(super) fn target(&self, opened: &OpenStand) -> Embedded {
        Embedded::new(opened.database.clone(), "")
    }

    /// Runs the load for this time, and returns its transactions per second of the drives' time. Returns 0 if
    /// the time is 0.
    pub(super) fn rate(&self, opened: &OpenStand, ms: u64, seed: u64) -> Result<f64> {
        if ms == 0 {
            return Ok(0.0);
        }
        let round = driver::round(&self.target(opened), self.workload, self.plan(), self.dilated(ms), seed)?;
        Ok(round.tps() * self.dilation)
    }

    /// Opens the database and warms it up while the drives have no delays. Then the emulation begins.
    pub(super) fn warmed(&self) -> Result<(OpenStand, Option<Warmth>)> {
        let opened = self.stand.open(self.device, self.dilation)?;
        let warm = |transactions| self.warm(&opened, transactions, 0);
        let warmth = self.stand.variant.warm_transactions().map(warm).transpose()?;
        opened.take_times(true);
        Ok((opened, warmth))
    }

    /// Warms the database up by this many transactions. `number` is the number of the warm-up.
    pub(super) fn warm(&self, opened: &OpenStand, transactions: u64, number: u64) -> Result<Warmth> {
        warm::up(opened, &self.target(opened), self.workload, self.plan(), transactions, number)
    }

    /// Repeats a part of the warm-up, while the drives have no delays. So the next round of stops and starts
    /// begins with a pool, a cache and a log like those of the first round.
    pub(super) fn warm_again(&self, opened: &OpenStand, round: u64) -> Result<Option<Warmth>> {
        opened.take_times(false);
        let warm = |transactions| self.warm(opened, transactions / AGAIN, round);
        let warmth = self.stand.variant.warm_transactions().map(warm).transpose()?;
        opened.take_times(true);
        Ok(warmth)
    }

    /// Stops the database. Returns how long this took, in seconds of the drives.
    pub(super) fn stop(&self, opened: &OpenStand, stop: Stop) -> Result<f64> {
        let began = Instant::now();
        match stop {
            Stop::Crash => Ok(0.0),
            Stop::Shutdown => {
                opened.database.shutdown()?;
                Ok(self.seconds(began))
            }
        }
    }

    /// Opens the database again and runs the first query. The database must be closed before.
    pub(super) fn start(&self) -> Result<Started> {
        let began = Instant::now();
        let opened = self.stand.open_at_once(self.device, self.dilation)?;
        let (at, recovery_seconds) = (Instant::now(), self.seconds(began));
        let did = opened.database.pager().recovery().unwrap_or_default();
        let parts = [did.analysis_time, did.levels_time, did.redo_time];
        let parts_seconds = parts.map(|took| took.as_secs_f64() / self.dilation);
        let log_read_bytes = read_of(&opened, Purpose::Log);
        let redone = Redone::by(&opened);
        let restored_pages = levels(&opened.database).get("flash.restored").copied().unwrap_or(0);
        let warnings = opened.database.pager().warnings();
        self.target(&opened).connect(&[])?.scalar(first_query(self.workload))?;
        let first_query_seconds = self.seconds(began);
        Ok(Started {
            opened,
            at,
            recovery_seconds,
            first_query_seconds,
            parts_seconds,
            log_read_bytes,
            restored_pages,
            redone,
            warnings,
        })
    }
}

/// Returns the bytes that the drives read for this purpose.
fn read_of(opened: &OpenStand, purpose: Purpose) -> u64 {
    let rows = opened.drives.iter().flat_map(|drive| drive.account.rows());
    rows.filter(|row| row.purpose == purpose).map(|row| row.read.bytes).sum()
}

/// Begins the reports of all emulated drives.
pub(super) fn begin_reports(opened: &OpenStand) {
    opened.drives.iter().filter_map(|drive| drive.emulated.as_ref()).for_each(|drive| drive.begin_report());
}

/// Returns the reports of all emulated drives since [`begin_reports`].
pub(super) fn reports(opened: &OpenStand) -> Vec<(&'static str, EmulationReport)> {
    let drives = opened.drives.iter();
    drives.filter_map(|drive| Some((drive.name, drive.emulated.as_ref()?.report()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spoilt_is_run_again_a_few_times() {
        for is_last in [false, true] {
            let mut spoilt = Spoilt::default();
            assert_eq!(spoilt.judge(true, is_last), Fate::Keep);
            for _ in 0..SPOILT_MAX {
                assert_eq!(spoilt.judge(false, is_last), Fate::RunAgain);
                assert_eq!(spoilt.judge(true, is_last), Fate::Keep);
            }
            assert_eq!(spoilt.judge(false, is_last), if is_last { Fate::Keep } else { Fate::GiveUp });
            assert_eq!(spoilt.count, SPOILT_MAX);
        }
    }
}

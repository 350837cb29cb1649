//! Sets up the databases for repeating chapter 4 of Do 2012, in which a flash cache stays warm over a
//! restart. The data is on eighteen disks. The modules `flash_*` beside this one measure these databases.
//!
//! Sizes are in units of `Scale::flash_unit_bytes`. The buffer pool has 24 units, the flash cache has 140,
//! and the database has 200. A fifth of the cache slots may be dirty (lambda in the thesis). The data files
//! are on the drive profile `hdd-18` (table 4.3). The flash cache and the log are on the same drives as for
//! chapter 3.
//!
//! 1. A log budget limits how much log a start replays, for all restart schemes. If the log since the oldest
//!    unwritten change is longer than the budget, pages are written to the data files, oldest change first.
//!    The budget stands for the thesis' recovery interval (30 minutes for TPC-C). It is given in the same
//!    units as memory.
//! 2. The log can hold much more than the budget. So no session waits for log space. The position at which
//!    redo starts may also be further back than the budget says, until the records of the flash cache are
//!    written.

use varve_pager::{FlashDesign, FlashRestart};

use super::device::Device;
use super::flash::{self, Mix, Settings};
use super::lab::Lab;
use super::scale::ByScale;
use super::stand::{Sizes, Variant};
use varve_bench::Result;

/// The sizes of the buffer pool, of the flash cache, and of the database, in units.
const POOL_UNITS: u64 = 24;
pub(super) const CACHE_UNITS: u64 = flash::CACHE_UNITS;
pub(super) const UNITS: u64 = 200;
/// The limit of dirty slots of the cache, in percent.
const LAMBDA: u8 = 20;
const HOME: &str = "hdd-18";

/// The log budget: the most log from the oldest change that the data files lack to the end. It is half as
/// large as the pool.
///
/// The thesis' unit is 1 GiB, and the unit of `--quick` is 2 MiB. So 30 minutes of the thesis correspond to
/// 3.5 s here. In 3.5 s, the drives of the data files read 9,500 pages, which are 37 units. If the changes of
/// a page take 2.6 KiB of the log on average, a log of 12 units changes that many pages.
pub(super) const LOG_BUDGET_UNITS: u64 = 12;
/// The log budget of tpce-like. It is a quarter, because the thesis' recovery interval for TPC-E is a
/// quarter, too (7.5 minutes).
const LOG_BUDGET_UNITS_E: u64 = LOG_BUDGET_UNITS / 4;
/// The size of the log: four pools. It has as many files as a log with default settings, because a start
/// reads the headers of all of them.
const LOG_UNITS: u64 = 4 * POOL_UNITS;
const LOG_SEGMENTS: u64 = 16;
/// The share of the log that may be filled. The pager reserves the rest.
const LOG_ADMITTED: f64 = 7.0 / 8.0;

/// The designs and restart schemes that are measured. The first scheme is the baseline: it reuses nothing.
pub(super) const DESIGNS: [FlashDesign; 2] = [FlashDesign::DualWrite, FlashDesign::LazyCleaning];
pub(super) const SCHEMES: [FlashRestart; 4] =
    [FlashRestart::None, FlashRestart::MemoryMapped, FlashRestart::LogBased, FlashRestart::LazyVerification];
/// The number of sessions.
pub(super) const SESSIONS: usize = flash::SESSIONS;

/// The loads of section 4.4.
pub(super) const TPCC: Mix = Mix { sizes: &[UNITS], dirty_percent: LAMBDA, ..flash::TPCC };
pub(super) const TPCE: Mix = Mix { sizes: &[UNITS], dirty_percent: LAMBDA, ..flash::TPCE };

/// A variant, given by the factors in which variants differ.
#[derive(Clone, Copy)]
pub(super) struct KeptVariant {
    pub mix: &'static Mix,
    pub design: FlashDesign,
    pub restart: FlashRestart,
    pub cache_units: u64,
    pub log_budget_units: u64,
    /// The limit of dirty slots of the cache, in percent.
    pub dirty_percent: u8,
}

impl KeptVariant {
    /// Returns the variant with the cache, log budget and limit of dirty slots of the thesis.
    pub(super) fn of(mix: &'static Mix, design: FlashDesign, restart: FlashRestart) -> Self {
        let log_budget_units = if mix.name == TPCE.name { LOG_BUDGET_UNITS_E } else { LOG_BUDGET_UNITS };
        let (cache_units, dirty_percent) = (CACHE_UNITS, mix.dirty_percent);
        Self { mix, design, restart, cache_units, log_budget_units, dirty_percent }
    }

    pub(super) fn variant(self, lab: &Lab<'_>) -> Variant {
        let Self { mix, design, restart, cache_units, log_budget_units, dirty_percent } = self;
        let budget_bytes = (log_budget_units * lab.scale().flash_unit_bytes) as f64;
        let log_fraction = budget_bytes / (sizes(lab).log_bytes as f64 * LOG_ADMITTED);
        let settings =
            Settings { cache_units, restart, log_fraction, dirty_percent, ..Settings::of(lab, mix) };
        flash::cached_so(lab, mix, design, settings).with("scheme", restart.name())
    }
}

/// Returns the drives for data files, log and flash cache. If nothing is to be emulated, all three are the
/// machine's own drive.
pub(super) fn drives(lab: &Lab<'_>) -> Result<Device> {
    flash::drives_with(lab, HOME)
}

pub(super) fn sizes(lab: &Lab<'_>) -> Sizes {
    let unit_bytes = lab.scale().flash_unit_bytes;
    let segment_bytes = (LOG_UNITS * unit_bytes / LOG_SEGMENTS).next_multiple_of(flash::SEGMENT_BYTES_MIN);
    Sizes::new(flash::PAGE_BYTES, (POOL_UNITS * unit_bytes) as usize).with_log(LOG_SEGMENTS, segment_bytes)
}

/// Sets the lengths of rounds and of the load before them, for both scales. Prints the settings that all
/// points share.
pub(super) fn begin(lab: &mut Lab<'_>, round_ms: ByScale<u64>, settle_ms: ByScale<u64>) -> Result<()> {
    lab.prefer_lengths(round_ms, settle_ms);
    lab.say(&format!(
        "home {HOME}, flash {}, log {} (one disk); pool : cache : database as {POOL_UNITS} : {CACHE_UNITS} : {UNITS}, a unit is {} KiB; \
         lambda {LAMBDA} %, where nothing else is said; redo reads at most about {LOG_BUDGET_UNITS} units of log, the log budget, with tpce-like {LOG_BUDGET_UNITS_E}, likewise; \
         protection none. Every point is warmed by the same number of transactions before the drives take their time.",
        flash::FLASH,
        flash::LOG,
        lab.scale().flash_unit_bytes >> 10
    ))
}

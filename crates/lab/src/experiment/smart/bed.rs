//! The table of the published scans, and single runs of queries over it.
//!
//! 1. The table has the columns of `lineitem` of TPC-H, with the published 148 bytes of a row (section
//!    5.4.1). It has no primary key, as the published heap. Order keys are in no order, so the rows of a
//!    result are spread over the table.
//! 2. Each run opens the database again, so the buffer pool is empty, and nothing is known about the leaves
//!    (decision 0407). The pool has space for a quarter of the table, as in the thesis.
//! 3. A run without the smart device uses a database that does not know the device.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use varve_bench::database::{Connection, MeasuredDatabase};
use varve_bench::embedded::{Embedded, open_with};
use varve_bench::{BenchError, Result};
use varve_device::{Emulated, EmulationReport, MemoryDirectory, Profile};
use varve_engine::Database;
use varve_pager::{PagerConfig, PagerStats};
use varve_query::{Queries, QueryOptions, SmartOptions};
use varve_smart::{
    Address, DeviceProfile, EmulatedTimes, Limits, Server, ServerOptions, SharedKey, SmartDevice, SmartError,
};

use super::super::copies::Copied;

const PAGE_BYTES: usize = 8192;
/// The least bytes of a buffer pool, and those of the pool while the table is loaded.
const POOL_BYTES_MIN: usize = 4 << 20;
const LOAD_POOL_BYTES: usize = 64 << 20;
/// The log, which is in memory, too.
const LOG_SEGMENT_BYTES: u64 = 8 << 20;
const LOG_BYTES: u64 = 64 << 20;
/// Rows that are loaded by one statement.
const LOAD_ROWS: u64 = 20_000;
/// Row number x has the order key `x * KEY_STEP % rows`. The numbers of rows are not divisible by it.
const KEY_STEP: u64 = 7919;
/// The file with the tables.
const DATA_FILE: &str = "data.varve";
const KEY: &[u8] = b"the key of an experiment's device";
/// The longest time for an answer of the device.
const PATIENCE: Duration = Duration::from_secs(120);
/// The processor of the host is this many times as fast as that of the device: the default of `[smart]`.
const PROCESSOR_FACTOR: f64 = 4.0;

/// 11 numbers of four bytes, and 37 characters. The comment has the others.
const COLUMNS: &str = "l_orderkey int, l_partkey int, l_suppkey int, l_linenumber int, l_quantity int,
    l_extendedprice int, l_discount int, l_tax int, l_returnflag char(1), l_linestatus char(1), l_shipdate int,
    l_commitdate int, l_receiptdate int, l_shipinstruct char(25), l_shipmode char(10)";
/// Characters of the comment: of a row of 148 bytes, and of a row of which a page has 51.
const COMMENT_CHARS: usize = 67;
const DENSE_COMMENT_CHARS: usize = 33;

/// The layout of the leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanLayout {
    /// By rows: the thesis' NSM.
    Row,
    /// By columns: PAX.
    Pax,
    /// PAX with shorter rows, so that a page has as many rows as in the thesis. Varve's rows take more bytes
    /// besides their values than those of the thesis.
    DensePax,
}

impl ScanLayout {
    /// Those with rows of the published length.
    pub const BOTH: [Self; 2] = [Self::Row, Self::Pax];
    /// All.
    pub const ALL: [Self; 3] = [Self::Row, Self::Pax, Self::DensePax];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Pax => "pax",
            Self::DensePax => "pax-dense",
        }
    }

    /// Characters of the comment of a row.
    fn comment_chars(self) -> usize {
        if self == Self::DensePax { DENSE_COMMENT_CHARS } else { COMMENT_CHARS }
    }

    /// The statement that makes the table.
    fn create(self) -> String {
        let layout = if self == Self::Row { "row" } else { "pax" };
        let comment = self.comment_chars();
        format!("CREATE TABLE lineitem ({COLUMNS}, l_comment char({comment})) WITH (layout = '{layout}')")
    }
}

/// The drive of the table, and who scans it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDrive {
    /// The host scans a disk.
    Disk,
    /// The host scans a flash drive.
    Flash,
    /// The smart device scans its own flash.
    Smart,
    /// The planner chooses between the device and the host, with the default `smart_scan = auto`.
    Planner,
}

impl ScanDrive {
    /// All, the ones whose emulation is spoilt first at the front.
    pub const ALL: [Self; 4] = [Self::Flash, Self::Smart, Self::Planner, Self::Disk];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Flash => "flash",
            Self::Smart => "smart",
            Self::Planner => "auto",
        }
    }

    /// The value of the setting `smart_scan`; `None` without a device.
    fn setting(self) -> Option<&'static str> {
        match self {
            Self::Disk | Self::Flash => None,
            Self::Smart => Some("on"),
            Self::Planner => Some("auto"),
        }
    }

    /// The profile of the drive through which the host reads.
    fn profile(self) -> Result<Profile> {
        let name = if self == Self::Disk { "sas-hdd" } else { "sas-ssd" };
        Profile::shipped(name).map_err(|error| BenchError::Arguments(error.to_string()))
    }
}

/// A query of section 5.4.2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanQuery {
    /// Percent of the rows that the condition keeps.
    pub percent: f64,
    /// Whether the query returns the average of the order keys instead of the order keys.
    pub is_average: bool,
}

impl ScanQuery {
    /// The queries of figures 5.4 and 5.5.
    pub const ALL: [Self; 5] =
        [Self::rows(0.1), Self::rows(1.0), Self::rows(10.0), Self::rows(100.0), Self::average(1.0)];

    /// The query that returns order keys.
    pub const fn rows(percent: f64) -> Self {
        Self { percent, is_average: false }
    }

    /// The query that returns their average.
    pub const fn average(percent: f64) -> Self {
        Self { percent, is_average: true }
    }

    /// The name in results.
    pub fn name(self) -> &'static str {
        if self.is_average { "average" } else { "rows" }
    }

    fn kept(self, rows: u64) -> u64 {
        (rows as f64 * self.percent / 100.0).round() as u64
    }

    fn sql(self, rows: u64) -> String {
        let output = if self.is_average { "avg(l_orderkey)" } else { "l_orderkey" };
        format!("SELECT {output} FROM lineitem WHERE l_orderkey < {}", self.kept(rows))
    }
}

/// The figures of one run.
#[derive(Debug, Clone)]
pub struct ScanRun {
    /// Seconds of the query, in the time of drives and device.
    pub seconds: f64,
    /// Bytes between the host and the drive or device.
    pub host_bytes: u64,
    /// Leaves that the device scanned.
    pub device_leaves: u64,
    /// Leaves of a scan in the device that the host had to read.
    pub deferred_leaves: u64,
    /// The reports of the drive's and the device's emulation.
    pub reports: Vec<(&'static str, EmulationReport)>,
}

/// A loaded table.
pub struct SmartBed {
    files: Arc<MemoryDirectory>,
    folder: Copied,
    rows: u64,
    /// Pages of the database; 0 while it is loaded.
    pages: u64,
}

/// A smart device, and the host's view of it.
struct OpenDevice {
    server: Server,
    options: Arc<SmartOptions>,
}

/// A database that is open for one run.
struct OpenRun {
    database: Arc<Database>,
    target: Embedded,
    drive: Arc<Emulated>,
    device: Option<OpenDevice>,
}

fn refused(error: SmartError) -> BenchError {
    std::io::Error::other(error).into()
}

/// A profile whose times are multiplied by the dilation.
fn dilated(mut profile: DeviceProfile, dilation: f64) -> DeviceProfile {
    profile.internal_bytes_per_s /= dilation;
    profile.host_bytes_per_s /= dilation;
    for time in [&mut profile.row_ns, &mut profile.column_row_ns, &mut profile.returned_row_ns] {
        *time *= dilation;
    }
    profile
}

/// The published profile of the device.
fn device_profile(dilation: f64) -> Result<DeviceProfile> {
    DeviceProfile::find("smart-ssd").map(|profile| dilated(profile, dilation)).map_err(refused)
}

impl SmartBed {
    /// Loads a table with this layout and this many rows.
    pub fn load(folder: Copied, layout: ScanLayout, rows: u64) -> Result<Self> {
        let bed = Self { files: MemoryDirectory::new(), folder, rows, pages: 0 };
        let opened = bed.open(ScanDrive::Flash, 1.0)?;
        let mut connection = opened.target.connect(&[])?;
        connection.simple(&layout.create())?;
        let mut from = 0;
        while from < rows {
            let to = (from + LOAD_ROWS).min(rows);
            connection.simple(&insert(from..to, rows, layout.comment_chars()))?;
            from = to;
        }
        drop(connection);
        opened.database.tick()?;
        opened.database.checkpoint_all()?;
        let pages = opened.database.stats().pager.data_pages;
        opened.close()?;
        Ok(Self { pages, ..bed })
    }

    /// Bytes of the database's pages for each row of the table.
    pub fn page_bytes_a_row(&self) -> f64 {
        (self.pages as usize * PAGE_BYTES) as f64 / self.rows as f64
    }

    /// Opens the database. The drive takes no time yet.
    fn open(&self, drive: ScanDrive, dilation: f64) -> Result<OpenRun> {
        let emulated = Emulated::wrap(self.files.clone(), drive.profile()?, dilation);
        emulated.take_times(false);
        let mut pager = PagerConfig::new(self.files.clone());
        pager.data = emulated.clone();
        pager.page_size = PAGE_BYTES;
        (pager.log_segment_bytes, pager.log_capacity_bytes) = (LOG_SEGMENT_BYTES, LOG_BYTES);
        pager.pool_bytes = match self.pages as usize {
            0 => LOAD_POOL_BYTES,
            pages => (pages * PAGE_BYTES / 4).max(POOL_BYTES_MIN),
        };
        let database = open_with(pager)?;
        let device = drive.setting().map(|_| self.serve(dilation)).transpose()?;
        let smart = device.as_ref().map(|device| Arc::clone(&device.options));
        let queries = Queries::new(&QueryOptions { smart, ..QueryOptions::default() })?;
        let target = Embedded::with_general(Arc::clone(&database), Arc::new(queries), drive.name());
        Ok(OpenRun { database, target, drive: emulated, device })
    }

    /// Starts the smart device.
    fn serve(&self, dilation: f64) -> Result<OpenDevice> {
        let key = || SharedKey::of(KEY).map_err(refused);
        let profile = device_profile(dilation)?;
        let address = Address::Unix(self.folder.place().region.join("device"));
        let served = ServerOptions {
            key: key()?,
            certificate: None,
            limits: Limits::default(),
            profile: Some(profile.clone()),
        };
        let server =
            Server::start(&address, served, &*self.files, &[DATA_FILE.to_owned()]).map_err(refused)?;
        let device = Arc::new(SmartDevice::new(address, key()?, PATIENCE));
        let options = SmartOptions { device, profile, processor_factor: PROCESSOR_FACTOR };
        Ok(OpenDevice { server, options: Arc::new(options) })
    }

    /// Runs a query once with a cold pool, and checks its result.
    pub fn run(&self, query: ScanQuery, drive: ScanDrive, dilation: f64) -> Result<ScanRun> {
        let opened = self.open(drive, dilation)?;
        let mut connection = opened.target.connect(&[query.sql(self.rows)])?;
        if let Some(setting) = drive.setting() {
            connection.simple(&format!("SET smart_scan = {setting}"))?;
        }
        let before = opened.begin();
        let begin = Instant::now();
        self.query(query, connection.as_mut())?;
        let run = opened.figures(&before, begin.elapsed(), dilation);
        drop(connection);
        opened.check(drive)?;
        opened.close()?;
        Ok(run)
    }

    fn query(&self, query: ScanQuery, connection: &mut dyn Connection) -> Result<()> {
        let kept = query.kept(self.rows);
        let (found, expected) = if query.is_average {
            let text = connection.scalar(&query.sql(self.rows))?;
            (text.parse().unwrap_or(f64::NAN), (kept as f64 - 1.0) / 2.0)
        } else {
            (connection.run(0, &[])? as f64, kept as f64)
        };
        match found == expected {
            true => Ok(()),
            false => Err(BenchError::Wrong(format!("{} gave {found}, not {expected}", query.sql(self.rows)))),
        }
    }
}

/// The statement that inserts the rows with these numbers.
fn insert(numbers: Range<u64>, rows: u64, comment_chars: usize) -> String {
    let (from, to) = (numbers.start, numbers.end - 1);
    format!(
        "INSERT INTO lineitem SELECT (x::bigint * {KEY_STEP} % {rows})::int, x, x % 10000, x % 7 + 1, x % 50 * 100,
            x % 100000, x % 11, x % 9, 'N', 'O', 9000 + x % 2500, 9030 + x % 2500, 9010 + x % 2500,
            lpad(x::text, 25, 'i'), lpad(x::text, 10, 'm'), lpad(x::text, {comment_chars}, 'c') FROM generate_series({from}, {to}) x"
    )
}

/// Counters when a run begins.
struct RunBegin {
    read_pages: u64,
}

/// Pages that were read into the pool.
fn read_pages(stats: &PagerStats) -> u64 {
    stats.misses + stats.prefetched
}

impl OpenRun {
    /// Begins the measurement: the drive takes its times.
    fn begin(&self) -> RunBegin {
        self.drive.take_times(true);
        self.drive.begin_report();
        RunBegin { read_pages: read_pages(&self.database.stats().pager) }
    }

    /// The figures of a run that has ended.
    fn figures(&self, before: &RunBegin, took: Duration, dilation: f64) -> ScanRun {
        let of_drive = self.drive.report();
        self.drive.take_times(false);
        let pages = read_pages(&self.database.stats().pager) - before.read_pages;
        let count = |of: fn(&varve_smart::ScanCounts) -> &AtomicU64| {
            let device = self.device.as_ref();
            device.map_or(0, |device| of(device.options.device.counts()).load(Ordering::Relaxed))
        };
        let times = self.device.as_ref().and_then(|device| device.server.emulated_times());
        let of_device = times.filter(|times| !times.modelled.is_zero());
        let of_device = of_device.map(|times| ("device", report_of(times, took, &of_drive)));
        ScanRun {
            seconds: took.as_secs_f64() / dilation,
            host_bytes: pages * PAGE_BYTES as u64 + count(|counts| &counts.bytes),
            device_leaves: count(|counts| &counts.leaves),
            deferred_leaves: count(|counts| &counts.deferred),
            reports: [("drive", of_drive)].into_iter().chain(of_device).collect(),
        }
    }

    /// Checks that the device was used where it must be, and that it did not fail.
    fn check(&self, drive: ScanDrive) -> Result<()> {
        let Some(OpenDevice { options, .. }) = &self.device else { return Ok(()) };
        let counts = options.device.counts();
        let failures = counts.failures.load(Ordering::Relaxed);
        if failures > 0 {
            let why = options.device.last_failure().unwrap_or_default();
            return Err(BenchError::Wrong(format!("the smart device failed: {why}")));
        }
        if drive == ScanDrive::Smart && counts.leaves.load(Ordering::Relaxed) == 0 {
            return Err(BenchError::Wrong("the smart device scanned no leaf".to_owned()));
        }
        Ok(())
    }

    fn close(self) -> Result<()> {
        let Self { database, target, drive, device } = self;
        drop((target, device));
        drive.take_times(false);
        Ok(database.shutdown()?)
    }
}

/// The report of the device's emulation in a run of this length.
fn report_of(times: EmulatedTimes, took: Duration, of_drive: &EmulationReport) -> EmulationReport {
    let modelled_s = times.modelled.as_secs_f64();
    EmulationReport {
        profile: "smart-ssd".to_owned(),
        model_error_share: times.late.as_secs_f64() / modelled_s,
        modelled_ns: times.modelled.as_nanos() as u64,
        busy_share: modelled_s / took.as_secs_f64(),
        flash: None,
        ..of_drive.clone()
    }
}

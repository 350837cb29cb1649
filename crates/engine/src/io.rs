//! Counters of what a database has read and written, by space and purpose, and the trace of single requests.
//!
//! Invariants
//! 1. Spaces on one device share its counters, which are counted once in a total.
//!
//! This module does not know the content of the data.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use varve_device::{Accounting, Directory, LatencySummary, Space, Tally, Timed, TraceEntry};
use varve_pager::{PagerConfig, SpaceId};

/// Traffic between a database and its devices since it was opened, for one space and purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoRow {
    /// Name of the space whose files were read or written, such as `data` or `tablespace fast`. All dropped
    /// tablespaces are `dropped tablespaces`.
    pub space: String,
    /// The purpose of the I/O.
    pub purpose: &'static str,
    /// The number of reads.
    pub read_count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// The number of writes.
    pub write_count: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// The trace of one device.
#[derive(Clone, Debug)]
pub struct DeviceTrace {
    /// The directory of the device.
    pub location: String,
    /// The requests, in the order in which they ended.
    pub entries: Vec<TraceEntry>,
}

/// The traffic of one device since the database was opened, or since `reset_latencies` for latencies.
#[derive(Clone, Debug)]
pub struct DeviceRow {
    /// The directory of the device.
    pub location: String,
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub written: Tally,
    /// The bytes that were written, by purpose.
    pub written_by_purpose: Vec<(&'static str, u64)>,
    /// The number of flushes.
    pub flush_count: u64,
    /// The latencies of each kind of operation, in the order of [`Timed::ALL`].
    pub latencies: [LatencySummary; Timed::ALL.len()],
    /// The average number of operations that the device worked on at the same time: the sum of all latencies,
    /// divided by the time since they are recorded.
    pub queue: f64,
    /// The free bytes for files, if they are known.
    pub free_bytes: Option<u64>,
    /// The bytes that the device may write in its life, if the configuration says so.
    pub rated_bytes: Option<u64>,
    /// The years in which the device would reach them, at the average rate of writes since the database was
    /// opened.
    pub rated_years: Option<f64>,
}

/// The seconds of a year.
const YEAR_S: f64 = 365.25 * 86_400.0;

/// The I/O account of one device.
struct Account {
    /// Says how much space is free, as long as the device is in use.
    directory: Weak<dyn Directory>,
    location: String,
    /// The tablespace, if the device has only its files.
    tablespace: Option<SpaceId>,
    counters: Arc<Accounting>,
}

/// The I/O accounts of a database's devices. Each account is in the list once.
pub(crate) struct Accounts {
    all: Mutex<Vec<Account>>,
    /// The most entries that the trace of each device keeps.
    trace_entries_max: Mutex<usize>,
    opened: Instant,
    /// Since when latencies are recorded; `None`: they are not recorded.
    timed_since: Mutex<Option<Instant>>,
    /// The bytes that devices may write in their life, by location.
    rated_bytes: Mutex<Vec<(String, u64)>>,
}

impl Accounts {
    pub(crate) fn of(config: &PagerConfig) -> Self {
        let mut all: Vec<Account> = Vec::new();
        let files = [&config.control, &config.data, &config.log, &config.rollback, &config.temporary];
        let nvm = config.nvm.as_ref().map(|nvm| &nvm.directory);
        let flash = config.flash.as_ref().map(|flash| &flash.directory);
        for device in files.into_iter().chain(nvm).chain(flash) {
            add(&mut all, device, None);
        }
        Self {
            all: Mutex::new(all),
            trace_entries_max: Mutex::default(),
            opened: Instant::now(),
            timed_since: Mutex::default(),
            rated_bytes: Mutex::default(),
        }
    }

    /// Adds the devices of tablespaces.
    pub(crate) fn add(&self, devices: &[(SpaceId, Arc<dyn Directory>)]) {
        let entries_max = *self.trace_entries_max.lock();
        let is_timed = self.timed_since.lock().is_some();
        let mut all = self.all.lock();
        for (space, device) in devices {
            if add(&mut all, device, Some(*space)) {
                device.accounting().observe(is_timed, entries_max);
            }
        }
    }

    /// Records single requests from now on, at most `entries_max` for each device. Another number begins a
    /// new trace, and 0 ends it.
    pub(crate) fn set_trace(&self, entries_max: usize) {
        let mut now = self.trace_entries_max.lock();
        if *now != entries_max {
            let is_timed = self.timed_since.lock().is_some();
            self.all.lock().iter().for_each(|account| account.counters.observe(is_timed, entries_max));
            *now = entries_max;
        }
    }

    /// Begins or ends the recording of latencies.
    pub(crate) fn set_timed(&self, is_on: bool) {
        let mut since = self.timed_since.lock();
        if since.is_some() != is_on {
            self.all.lock().iter().for_each(|account| account.counters.observe_latencies(is_on));
            *since = is_on.then(Instant::now);
        }
    }

    /// Forgets the recorded latencies.
    pub(crate) fn clear_latencies(&self) {
        let mut since = self.timed_since.lock();
        self.all.lock().iter().for_each(|account| account.counters.latencies().clear());
        *since = since.map(|_| Instant::now());
    }

    /// Sets the bytes that devices may write in their life, by location.
    pub(crate) fn set_rated(&self, rated_bytes: Vec<(String, u64)>) {
        *self.rated_bytes.lock() = rated_bytes;
    }

    /// One row for each device.
    pub(crate) fn devices(&self) -> Vec<DeviceRow> {
        let timed_s = self.timed_since.lock().map_or(0.0, |since| since.elapsed().as_secs_f64());
        let rated = self.rated_bytes.lock().clone();
        let all = self.all.lock();
        all.iter().map(|account| account.row(timed_s, self.opened.elapsed().as_secs_f64(), &rated)).collect()
    }

    /// Returns the trace of each device.
    pub(crate) fn traces(&self) -> Vec<DeviceTrace> {
        let trace = |account: &Account| DeviceTrace {
            location: account.location.clone(),
            entries: account.counters.trace().entries(),
        };
        self.all.lock().iter().map(trace).collect()
    }

    /// Returns the number of requests that did not fit in the traces.
    pub(crate) fn trace_dropped_count(&self) -> u64 {
        self.all.lock().iter().map(|account| account.counters.trace().dropped_count()).sum()
    }

    /// One row for each space and purpose with any traffic: first the spaces that each database has, in their
    /// order, then the tablespaces by their names. `name` returns the name of a tablespace, unless it was
    /// dropped.
    pub(crate) fn rows(&self, name: impl Fn(SpaceId) -> Option<String>) -> Vec<IoRow> {
        let mut sums: BTreeMap<(Option<String>, usize, usize), IoRow> = BTreeMap::new();
        for account in &*self.all.lock() {
            let tablespace = account.tablespace.map(|id| match name(id) {
                Some(name) => format!("tablespace {name}"),
                None => "dropped tablespaces".to_owned(),
            });
            for row in account.counters.rows() {
                // The purpose tells which files of a tablespace were read or written.
                let order = if tablespace.is_some() { 0 } else { row.space as usize };
                let sum = sums.entry((tablespace.clone(), order, row.purpose as usize)).or_default();
                sum.space = tablespace.clone().unwrap_or_else(|| row.space.name().to_owned());
                sum.purpose = row.purpose.name();
                sum.read_count += row.read.operations;
                sum.read_bytes += row.read.bytes;
                sum.write_count += row.written.operations;
                sum.written_bytes += row.written.bytes;
            }
        }
        sums.into_values().collect()
    }
}

impl Account {
    fn row(&self, timed_s: f64, opened_s: f64, rated: &[(String, u64)]) -> DeviceRow {
        let (mut read, mut written) = (Tally::default(), Tally::default());
        let mut by_purpose: BTreeMap<usize, (&'static str, u64)> = BTreeMap::new();
        for row in self.counters.rows() {
            (read, written) = (read + row.read, written + row.written);
            let sum = by_purpose.entry(row.purpose as usize).or_insert((row.purpose.name(), 0));
            sum.1 += row.written.bytes;
        }
        let latencies = Timed::ALL.map(|kind| self.counters.latencies().summary(kind));
        let busy_ns: f64 = latencies.iter().map(|kind| kind.latency_ns_mean as f64 * kind.count as f64).sum();
        let rated_bytes =
            rated.iter().find(|(location, _)| *location == self.location).map(|(_, bytes)| *bytes);
        let years = |rated: u64| rated as f64 / (written.bytes as f64 / opened_s) / YEAR_S;
        DeviceRow {
            location: self.location.clone(),
            read,
            written,
            written_by_purpose: by_purpose.into_values().filter(|(_, bytes)| *bytes > 0).collect(),
            flush_count: Space::ALL.iter().map(|space| self.counters.flush_count(*space)).sum(),
            latencies,
            queue: if timed_s > 0.0 { busy_ns / 1e9 / timed_s } else { 0.0 },
            free_bytes: self.directory.upgrade().and_then(|directory| directory.free_bytes()),
            rated_bytes,
            rated_years: rated_bytes.filter(|_| written.bytes > 0).map(years),
        }
    }
}

/// Adds the account of a device, unless it is in the list. Returns whether it was added.
fn add(all: &mut Vec<Account>, device: &Arc<dyn Directory>, tablespace: Option<SpaceId>) -> bool {
    let counters = device.accounting();
    let is_new = !all.iter().any(|known| Arc::ptr_eq(&known.counters, counters));
    if is_new {
        let directory = Arc::downgrade(device);
        all.push(Account {
            directory,
            location: device.location(),
            tablespace,
            counters: Arc::clone(counters),
        });
    }
    is_new
}

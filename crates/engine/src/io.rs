//! Counters of what a database has read and written, by space and purpose, and the trace of single requests.
//!
//! Invariants
//! 1. Spaces on one device share its counters, which are counted once in a total.
//!
//! This module does not know the content of the data.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{Accounting, Directory, TraceEntry};
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

/// The I/O account of one device.
struct Account {
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
        Self { all: Mutex::new(all), trace_entries_max: Mutex::default() }
    }

    /// Adds the devices of tablespaces.
    pub(crate) fn add(&self, devices: &[(SpaceId, Arc<dyn Directory>)]) {
        let entries_max = *self.trace_entries_max.lock();
        let mut all = self.all.lock();
        for (space, device) in devices {
            if add(&mut all, device, Some(*space)) {
                device.accounting().observe(false, entries_max);
            }
        }
    }

    /// Records single requests from now on, at most `entries_max` for each device. Another number begins a
    /// new trace, and 0 ends it.
    pub(crate) fn set_trace(&self, entries_max: usize) {
        let mut now = self.trace_entries_max.lock();
        if *now != entries_max {
            self.all.lock().iter().for_each(|account| account.counters.observe(false, entries_max));
            *now = entries_max;
        }
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

/// Adds the account of a device, unless it is in the list. Returns whether it was added.
fn add(all: &mut Vec<Account>, device: &Arc<dyn Directory>, tablespace: Option<SpaceId>) -> bool {
    let counters = device.accounting();
    let is_new = !all.iter().any(|known| Arc::ptr_eq(&known.counters, counters));
    if is_new {
        all.push(Account { location: device.location(), tablespace, counters: Arc::clone(counters) });
    }
    is_new
}

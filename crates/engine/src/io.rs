//! Counters of what a database has read and written, by space and purpose.
//!
//! Invariants
//! 1. Spaces on one device share its counters, which are counted once in a total.
//!
//! This module knows nothing about the content of the data.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_device::Accounting;
use varve_pager::PagerConfig;

/// Traffic between a database and its devices since it was opened, for one space and purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoRow {
    /// Name of the space whose files were read or written.
    pub space: &'static str,
    /// The purpose of the I/O.
    pub purpose: &'static str,
    /// Reads.
    pub read_count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub write_count: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// The I/O accounts of a database's devices. Each account is in the list once.
pub(crate) struct Accounts(Vec<Arc<Accounting>>);

impl Accounts {
    pub(crate) fn of(config: &PagerConfig) -> Self {
        let mut accounts: Vec<Arc<Accounting>> = Vec::new();
        let files = [&config.control, &config.data, &config.log, &config.rollback, &config.temporary];
        let nvm = config.nvm.as_ref().map(|nvm| &nvm.directory);
        let flash = config.flash.as_ref().map(|flash| &flash.directory);
        for device in files.into_iter().chain(nvm).chain(flash) {
            let account = device.accounting();
            if !accounts.iter().any(|known| Arc::ptr_eq(known, account)) {
                accounts.push(Arc::clone(account));
            }
        }
        Self(accounts)
    }

    /// One row for each space and purpose with any traffic, in their order.
    pub(crate) fn rows(&self) -> Vec<IoRow> {
        let mut sums: BTreeMap<(usize, usize), IoRow> = BTreeMap::new();
        for row in self.0.iter().flat_map(|account| account.rows()) {
            let sum = sums.entry((row.space as usize, row.purpose as usize)).or_default();
            (sum.space, sum.purpose) = (row.space.name(), row.purpose.name());
            sum.read_count += row.read.operations;
            sum.read_bytes += row.read.bytes;
            sum.write_count += row.written.operations;
            sum.written_bytes += row.written.bytes;
        }
        sums.into_values().collect()
    }
}

//! Predicts how long a scan takes in the device, and on the host. The planner of general queries compares the
//! two times.
//!
//! ```text
//! host   = max( pages outside the pool * page bytes / host bandwidth,
//!               rows * time for a row / processor factor )
//! device = START_S
//!        + max( leaves in the file * page bytes / internal bandwidth,
//!               rows in the file * time for a row + kept rows * time to return a row,
//!               sent bytes / host bandwidth )
//!        + host * share of the leaves whose changes the file lacks
//! ```
//!
//! The device's medium, processor and interface work at the same time, so the slowest of them counts, as in
//! `profile`. The bandwidths and times are those of the device's profile. The *processor factor* says how
//! many times faster the host's processor is. A row that is aggregated counts as a row that is returned.
//!
//! This module does not know how the numbers were estimated.

use crate::profile::DeviceProfile;

/// The time to connect to a device and to open a session. Because of this time, small tables are scanned on
/// the host.
const START_S: f64 = 0.002;

/// What a scan reads and returns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScanShape {
    /// The leaves of the table.
    pub leaves: f64,
    /// The bytes of a page.
    pub page_bytes: f64,
    /// The rows of the table.
    pub rows: f64,
    /// Whether the leaves store their rows by columns.
    pub is_by_columns: bool,
    /// The rows that pass the condition.
    pub kept_rows: f64,
    /// The rows, or groups, that the device sends.
    pub sent_rows: f64,
    /// The bytes of a sent row.
    pub sent_row_bytes: f64,
    /// The share of the leaves with changes that the data file lacks.
    pub newer: f64,
    /// The share of the leaves that are in the buffer pool.
    pub resident: f64,
}

impl DeviceProfile {
    fn row_s(&self, is_by_columns: bool) -> f64 {
        (if is_by_columns { self.column_row_ns } else { self.row_ns }) / 1e9
    }

    /// Returns the seconds that the host needs.
    pub fn host_s(&self, shape: &ScanShape, processor_factor: f64) -> f64 {
        let read = shape.leaves * (1.0 - shape.resident) * shape.page_bytes / self.host_bytes_per_s;
        read.max(shape.rows * self.row_s(shape.is_by_columns) / processor_factor)
    }

    /// Returns the seconds that the device needs, with the part of the host.
    pub fn device_s(&self, shape: &ScanShape, processor_factor: f64) -> f64 {
        let part = 1.0 - shape.newer;
        let read = shape.leaves * shape.page_bytes / self.internal_bytes_per_s;
        let kept = shape.kept_rows * self.returned_row_ns / 1e9;
        let processed = shape.rows * self.row_s(shape.is_by_columns) + kept;
        let sent = shape.sent_rows * shape.sent_row_bytes / self.host_bytes_per_s;
        let own = part * read.max(processed).max(sent);
        START_S + own + shape.newer * self.host_s(shape, processor_factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the published table: 600 million rows of 148 bytes in pages of 8 KiB.
    fn published(is_by_columns: bool, selectivity: f64) -> ScanShape {
        ScanShape {
            leaves: 90e9 / 8192.0,
            page_bytes: 8192.0,
            rows: 600e6,
            is_by_columns,
            kept_rows: 600e6 * selectivity,
            sent_rows: 600e6 * selectivity,
            sent_row_bytes: 148.0,
            newer: 0.0,
            resident: 0.0,
        }
    }

    /// Of the published scans, the device wins at low selectivities and loses if all rows are returned.
    #[test]
    fn the_published_scans_are_ordered_as_published() {
        let profile = DeviceProfile::named("smart-ssd").unwrap().unwrap();
        let gain = |shape: ScanShape| profile.host_s(&shape, 4.0) / profile.device_s(&shape, 4.0);
        assert!((1.8..2.9).contains(&gain(published(true, 0.001))), "{}", gain(published(true, 0.001)));
        assert!((1.1..1.5).contains(&gain(published(false, 0.001))), "{}", gain(published(false, 0.001)));
        assert!(gain(published(true, 0.001)) > gain(published(true, 0.1)));
        assert!(gain(published(true, 1.0)) < 1.0 && gain(published(false, 1.0)) < 1.0);
    }

    /// The device is no gain for a table that is in memory, that has just changed, or that is small.
    #[test]
    fn the_host_wins_if_it_need_not_read_or_must_read_anyway() {
        let profile = DeviceProfile::named("smart-ssd").unwrap().unwrap();
        let wins = |shape: ScanShape| profile.device_s(&shape, 4.0) < profile.host_s(&shape, 4.0);
        let shape = published(true, 0.001);
        assert!(wins(shape));
        assert!(!wins(ScanShape { resident: 1.0, ..shape }));
        assert!(!wins(ScanShape { newer: 1.0, ..shape }));
        assert!(!wins(ScanShape { leaves: 10.0, rows: 500.0, kept_rows: 1.0, sent_rows: 1.0, ..shape }));
    }
}

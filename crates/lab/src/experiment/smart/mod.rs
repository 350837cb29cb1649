//! `smart-scan`: scans in a smart device, on a flash drive and on a disk (Do 2012, section 5.4, figures 5.4
//! and 5.5, table 5.1).
//!
//! 1. Each run is an SQL query of an embedded database with a cold buffer pool. The data file is in memory,
//!    and its drive is emulated. The smart device reads the same file, and is as slow as its profile says.
//! 2. So times are those of the profiles, except for the work of the host. A larger dilation makes the host
//!    faster in relation to drive and device. The host does most of its work in scans without the device. So
//!    a larger dilation never helps the device.
//! 3. The device's times for a row are the published ones. So ratios of two runs in the device are an input.
//!    The bytes of a row, the scans of the host and the planner's choice are Varve's own.
//! 4. Energy is modelled: the time of a run, multiplied by published watts ([`energy`]).
//!
//! This module does not know how a device computes a scan (the crate `smart` does), or why the planner
//! chooses the device (the crate `query`).

mod bed;
mod claims;
mod energy;
mod rows;

use varve_bench::Result;

use super::claim::Claim;
use super::lab::Lab;
use super::tell;
use rows::ScanRows;

const MODELLED: &str = "times of drives and of the smart device are modelled by the profiles sas-hdd, sas-ssd and smart-ssd; energy is modelled: \
                        time multiplied by published watts";

/// `smart-scan`.
pub fn smart_scan(lab: &mut Lab<'_>) -> Result<()> {
    lab.say(MODELLED)?;
    let rows = ScanRows::measure(lab)?;
    let found = claims::claims(&rows);
    let found: Vec<Claim> = found.into_iter().map(|claim| lab.write_claim(claim)).collect::<Result<_>>()?;
    lab.say_tables(&[rows.table(), tell::claims_table(&found)])
}

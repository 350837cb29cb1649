//! Scans inside a device, beside the host's scans of the same tables at the same snapshot.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bed;
mod process;
mod programs;
mod sessions;
mod snapshots;
mod tls;
mod updates;

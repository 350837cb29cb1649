//! The policy of the flash cache: which pages it takes, and how fast. The parts are designs, temperatures,
//! recognition of scans, the throttle, and the daily limit.
//!
//! This module does not know slots, or how slots are written.

pub(crate) mod chosen;
pub(crate) mod daily_writes;
pub(crate) mod design;
pub(crate) mod scans;
pub(crate) mod temperature;
pub(crate) mod throttle;

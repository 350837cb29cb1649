//! What decides which pages the cache takes, and how fast: designs, temperatures, scans, throttle, daily limit.
//!
//! What it does not know: frames, and how they are written.

pub(crate) mod chosen;
pub(crate) mod daily_writes;
pub(crate) mod design;
pub(crate) mod scans;
pub(crate) mod temperature;
pub(crate) mod throttle;

//! The interface with which other code sees each log record while a start analyses the log.
//!
//! What it does not know: which code uses it.

use crate::base::error::Result;
use crate::base::lsn::Lsn;
use crate::log::record::Record;

/// Somebody who wants to see the log during analysis.
pub trait Observe {
    /// A record of the group that ends at `lsn`, in log order.
    fn observe(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<()>;
}

//! The interface with which other code sees each log record while a start analyses the log.
//!
//! This module does not know which code uses it.

use crate::base::error::Result;
use crate::base::lsn::Lsn;
use crate::log::record::Record;

/// An observer, which sees each record during analysis.
pub trait Observe {
    /// Is called with each record, in the order of the log. The group of the record ends at `lsn`.
    fn observe(&mut self, lsn: Lsn, record: &Record<'_>) -> Result<()>;
}

//! The log. (log engineer)
use crate::error::Result;
use crate::lsn::Lsn;

/// The write-ahead log.
pub struct Log {}

impl Log {
    /// End of the durable log.
    pub fn durable_lsn(&self) -> Lsn {
        unimplemented!()
    }
    /// Where the next record will go; taken inside the append section.
    pub fn append_lsn(&self) -> Lsn {
        unimplemented!()
    }
    /// Makes the log durable up to `upto`; the caller's thread does the I/O or waits for the leader.
    pub fn flush(&self, _upto: Lsn) -> Result<()> {
        unimplemented!()
    }
}

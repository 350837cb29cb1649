//! A quota limits the total size of the temporary files that share it.
//!
//! This module does not know which files share a quota, or to which statement or session they belong.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// The used bytes, and the limit.
#[derive(Debug)]
pub struct TemporaryQuota {
    used: AtomicU64,
    limit: AtomicU64,
    /// All bytes that were taken, including those that were given back.
    taken: AtomicU64,
}

impl Default for TemporaryQuota {
    /// Returns a quota without a limit.
    fn default() -> Self {
        Self { used: AtomicU64::new(0), limit: AtomicU64::new(u64::MAX), taken: AtomicU64::new(0) }
    }
}

impl TemporaryQuota {
    /// Sets the limit. Bytes that are already used stay counted.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != u64::MAX
    }

    /// Counts bytes by which files will grow. If they exceed the limit, returns an error and counts nothing.
    pub fn take(&self, bytes: u64) -> Result<()> {
        let limit_bytes = self.limit.load(Ordering::Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit_bytes);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|_| Error::TemporaryQuota { kilobytes: limit_bytes >> 10 })?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the bytes of all temporary files so far, including those of removed files.
    pub fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Subtracts the bytes of removed files.
    pub fn give_back(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more was given back than was taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_not_noted() {
        let quota = TemporaryQuota::default();
        quota.take(u64::MAX >> 1).unwrap();
        quota.give_back(u64::MAX >> 1);
        quota.set_limit(2048);
        quota.take(2000).unwrap();
        let refused = quota.take(49).unwrap_err();
        assert_eq!(
            (refused.sqlstate(), refused.to_string().as_str()),
            ("53400", "temporary file size exceeds temp_file_limit (2kB)")
        );
        quota.take(48).unwrap();
        quota.give_back(2048);
        assert_eq!(quota.taken_bytes(), (u64::MAX >> 1) + 2048);
    }
}

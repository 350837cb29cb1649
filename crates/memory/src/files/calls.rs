//! Counts the calls on files, and lets each take the time of a system call.
//!
//! Programs reach a file in persistent memory through the kernel, but memory of the allocator without it. The
//! paper finds that this costs the engines with files much of their speed (Arulraj, Pavlo and Dulloor 2015,
//! figure 1). Here the files are code of the same process, without the kernel. So the time of a system call
//! is a parameter.
//!
//! This module does not know what the calls do.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::error::{FileError, FileResult};

/// The time that a call on files takes in addition to its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileCosts {
    /// The time that each call waits in a loop without sleeping. If it is zero, calls do not wait.
    pub system_call: Duration,
    /// The number of the call that fails, for tests. The first call has number 1. With 0, no call fails.
    pub failing_call: u64,
}

/// The numbers of calls on files since the files were opened, and the numbers of bytes that were moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// The number of calls that read.
    pub reads_count: u64,
    /// The number of bytes that these calls read.
    pub read_bytes: u64,
    /// The number of calls that wrote.
    pub writes_count: u64,
    /// The number of bytes that these calls wrote.
    pub written_bytes: u64,
    /// The number of calls of `fsync`.
    pub fsyncs_count: u64,
    /// The number of calls that reserved room or cut a file.
    pub resizes_count: u64,
    /// The number of calls that named a file: create, open, rename, remove.
    pub names_count: u64,
}

impl CallCounts {
    /// Returns the number of all calls.
    pub fn total_count(&self) -> u64 {
        self.reads_count + self.writes_count + self.fsyncs_count + self.resizes_count + self.names_count
    }
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Read { len_bytes: usize },
    Write { len_bytes: usize },
    Fsync,
    Resize,
    Name,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::Read { .. } => "a read",
            Call::Write { .. } => "a write",
            Call::Fsync => "an fsync",
            Call::Resize => "a change of the size",
            Call::Name => "a change of the directory",
        }
    }
}

/// The counters of a set of files. Reads are counted too, through a shared reference, so the counters are
/// atomic.
pub(super) struct Calls {
    costs: FileCosts,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    fsyncs: AtomicU64,
    resizes: AtomicU64,
    names: AtomicU64,
    /// The number of all calls. They are counted only if one of them should fail.
    all: AtomicU64,
}

impl Calls {
    pub(super) fn new(costs: FileCosts) -> Calls {
        let zero = || AtomicU64::new(0);
        Calls {
            costs,
            reads: zero(),
            read_bytes: zero(),
            writes: zero(),
            written_bytes: zero(),
            fsyncs: zero(),
            resizes: zero(),
            names: zero(),
            all: zero(),
        }
    }

    /// Counts a call, and waits. Errors: the call is the one that should fail.
    pub(super) fn enter(&self, call: Call) -> FileResult<()> {
        let counter = match call {
            Call::Read { len_bytes } => {
                self.read_bytes.fetch_add(len_bytes as u64, Relaxed);
                &self.reads
            }
            Call::Write { len_bytes } => {
                self.written_bytes.fetch_add(len_bytes as u64, Relaxed);
                &self.writes
            }
            Call::Fsync => &self.fsyncs,
            Call::Resize => &self.resizes,
            Call::Name => &self.names,
        };
        counter.fetch_add(1, Relaxed);
        if !self.costs.system_call.is_zero() {
            let begun = Instant::now();
            while begun.elapsed() < self.costs.system_call {
                std::hint::spin_loop();
            }
        }
        let failing = self.costs.failing_call;
        if failing > 0 && self.all.fetch_add(1, Relaxed) + 1 == failing {
            return Err(FileError::Failed { what: call.name() });
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> CallCounts {
        CallCounts {
            reads_count: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes_count: self.writes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            fsyncs_count: self.fsyncs.load(Relaxed),
            resizes_count: self.resizes.load(Relaxed),
            names_count: self.names.load(Relaxed),
        }
    }
}

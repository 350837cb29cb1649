//! Batches of I/O operations through io_uring. All operations of a batch are submitted together, and the
//! caller waits until all of them are done.
//!
//! The rings of io_uring are in a pool, and each batch borrows a ring from it. So the number of rings is the
//! number of batches that run at the same time, not the number of threads.
//!
//! Invariants
//! 1. A batch returns only when every operation that it submitted has completed. So the kernel never has a
//!    pointer into a buffer whose borrow has ended.
//! 2. No operation of a ring in the pool is in flight.
//! 3. If the kernel refuses a ring, the pool remembers that, and callers use plain system calls from then on.
//!
//! Short transfers are completed by the file, not here.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;

use crate::block::{Durability, ReadOp, WriteOp};

/// The largest number of operations of one batch that are in flight at once. Longer batches are run in
/// several rounds.
const RING_ENTRIES: u32 = 128;

/// An operation of a batch.
pub(crate) enum Transfer<'a, 'b> {
    Read(&'a mut ReadOp<'b>),
    Write(&'a WriteOp<'b>),
}

impl Transfer<'_, '_> {
    fn entry(&mut self, fd: BorrowedFd<'_>) -> squeue::Entry {
        let fd = types::Fd(fd.as_raw_fd());
        match self {
            Transfer::Read(op) => {
                let read = opcode::Read::new(fd, op.buf.as_mut_ptr(), op.buf.len() as u32);
                read.offset(op.offset).build()
            }
            Transfer::Write(op) => {
                let flags = if op.durability == Durability::Now { libc::RWF_DSYNC } else { 0 };
                let write = opcode::Write::new(fd, op.buf.as_ptr(), op.buf.len() as u32);
                write.offset(op.offset).rw_flags(flags).build()
            }
        }
    }
}

/// The rings that no batch is using.
pub(crate) struct RingPool {
    idle: Mutex<Vec<IoUring>>,
    refused: AtomicBool,
}

impl RingPool {
    /// Returns a pool. Makes a first ring to find out whether the kernel allows rings.
    pub(crate) fn new(allowed: bool) -> RingPool {
        let pool = RingPool { idle: Mutex::default(), refused: AtomicBool::new(!allowed) };
        if let Some(ring) = pool.take() {
            pool.idle.lock().push(ring);
        }
        pool
    }

    /// Returns whether batches can use a ring.
    pub(crate) fn available(&self) -> bool {
        !self.refused.load(Relaxed)
    }

    fn take(&self) -> Option<IoUring> {
        if !self.available() {
            return None;
        }
        if let Some(ring) = self.idle.lock().pop() {
            return Some(ring);
        }
        let ring = IoUring::builder().setup_coop_taskrun().build(RING_ENTRIES);
        let ring = ring.or_else(|_| IoUring::new(RING_ENTRIES));
        ring.map_err(|_| self.refused.store(true, Relaxed)).ok()
    }

    /// Runs all transfers on one file. `done(index, result)` gets each result as the kernel reports it
    /// (bytes, or a negative errno). If there is no ring, returns false and does nothing.
    pub(crate) fn run(
        &self,
        fd: BorrowedFd<'_>,
        transfers: &mut [Transfer<'_, '_>],
        mut done: impl FnMut(usize, i32),
    ) -> bool {
        let Some(mut ring) = self.take() else { return false };
        let mut first = 0;
        for round in transfers.chunks_mut(RING_ENTRIES as usize) {
            run_round(&mut ring, fd, round, |index, result| done(first + index, result));
            first += round.len();
        }
        self.idle.lock().push(ring);
        true
    }
}

fn run_round(
    ring: &mut IoUring,
    fd: BorrowedFd<'_>,
    round: &mut [Transfer<'_, '_>],
    mut done: impl FnMut(usize, i32),
) {
    for (index, transfer) in round.iter_mut().enumerate() {
        let entry = transfer.entry(fd).user_data(index as u64);
        // SAFETY: the buffer is borrowed by `round` until this function returns, and it returns only
        // after the completion of every entry (the loop below).
        let pushed = unsafe { ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "a round fits the ring");
    }
    let mut missing = round.len();
    while missing > 0 {
        wait(ring, missing);
        for completion in ring.completion() {
            done(completion.user_data() as usize, completion.result());
            missing -= 1;
        }
    }
}

/// Submits the queued operations, and waits until `want` of them have completed. It may return earlier if the
/// kernel requires a repetition.
fn wait(ring: &IoUring, want: usize) {
    if let Err(error) = ring.submit_and_wait(want) {
        match error.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
            // The kernel may still have pointers into the buffers. If this function returned, their owners
            // could free them. So there is no memory-safe way to return.
            _ => std::process::abort(),
        }
    }
}

//! The setting `work_mem`: the memory that one sort, group or join may use before it spills to files.
//!
//! Invariants
//! 1. All queries together share a memory pool with a limit. The pool in this file also limits each operator
//!    to `work_mem`, which is smaller.
//! 2. Three kinds of requests may exceed the limit of an operator. The first kind is the first two batches of
//!    an operator that has no memory yet. Otherwise it could not begin, or not merge two files. The second
//!    kind is the memory that an operator needs for spilling. The third kind is the groups of a grouping that
//!    merges its files.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use parking_lot::Mutex;

use crate::error::AT_WORK_MEM;

/// DataFusion's name for the side of a hash join that is kept in memory. This side cannot spill, so the query
/// is planned again with a join that can. If DataFusion changes the name, the test
/// `work_mem_is_the_session_s_limit` fails.
const KEPT_SIDE: &str = "HashJoinInput";

/// The minimum of the limit, in bytes. With less memory, the merge of spilled data could not run.
const BYTES_MIN: usize = 4 << 20;

/// The number of requests that are granted in any case. A merge of two files needs a batch of each.
const FREE_GRANTS: usize = 2;

/// The memory pool, with a limit for each operator.
#[derive(Debug)]
struct Bounded {
    pool: Arc<dyn MemoryPool>,
    bytes: usize,
    /// The memory of each operator, by the id of its consumer.
    held: Mutex<HashMap<usize, OperatorMemory>>,
}

/// The memory of one operator.
#[derive(Debug, Default)]
struct OperatorMemory {
    bytes: usize,
    /// The number of requests that were granted since the operator last had no memory.
    grants: usize,
    /// Whether a request of the operator was refused, so that it spills. It may exceed the limit while it
    /// spills.
    spills: bool,
}

impl OperatorMemory {
    fn granted(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.grants += 1;
    }
}

impl Bounded {
    fn is_bounded(consumer: &MemoryConsumer) -> bool {
        consumer.can_spill() || consumer.name().starts_with(KEPT_SIDE)
    }

    /// Records a change of the memory that an operator holds.
    fn note(&self, consumer: &MemoryConsumer, change: impl FnOnce(&mut OperatorMemory)) {
        if Self::is_bounded(consumer) {
            let mut held = self.held.lock();
            let held = held.entry(consumer.id()).or_default();
            change(held);
            if held.bytes == 0 {
                held.grants = 0;
            }
            held.spills &= held.bytes > self.bytes / 2;
        }
    }

    /// Checks a request of an operator for more memory. The first request beyond the limit is refused, so
    /// that the operator spills. Then the operator may exceed the limit until it holds at most half of the
    /// limit.
    ///
    /// A grouping that merges its files has two reservations: first one for the files, and then one for its
    /// groups. It cannot spill these groups again. So only the memory of all queries limits the second one.
    fn check(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        if !Self::is_bounded(consumer) {
            return Ok(());
        }
        let mut held = self.held.lock();
        let held = held.entry(consumer.id()).or_default();
        if held.bytes > reservation.size() {
            return Ok(());
        }
        if held.spills || held.grants < FREE_GRANTS || held.bytes.saturating_add(additional) <= self.bytes {
            return Ok(());
        }
        held.spills = true;
        let message = format!(
            "no memory for {}: it holds {} bytes, and {AT_WORK_MEM} {}",
            consumer.name(),
            held.bytes,
            self.bytes
        );
        Err(DataFusionError::ResourcesExhausted(message))
    }
}

impl fmt::Display for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes each of {}", self.bytes, self.pool)
    }
}

impl MemoryPool for Bounded {
    fn name(&self) -> &str {
        "work_mem"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.held.lock().remove(&consumer.id());
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
        self.note(reservation.consumer(), |held| held.granted(additional));
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
        self.note(reservation.consumer(), |held| held.bytes = held.bytes.saturating_sub(shrink));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        self.check(reservation, additional)?;
        self.pool.try_grow(reservation, additional)?;
        self.note(consumer, |held| held.granted(additional));
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

/// Returns the context with a memory limit of `bytes` for each operator.
pub fn bounded(context: TaskContext, bytes: usize) -> Arc<TaskContext> {
    let whole = context.runtime_env();
    let memory_pool = Arc::new(Bounded {
        pool: whole.memory_pool.clone(),
        bytes: bytes.max(BYTES_MIN),
        held: Mutex::default(),
    });
    let runtime = RuntimeEnv { memory_pool, ..(*whole).clone() };
    Arc::new(context.with_runtime(Arc::new(runtime)))
}

//! Runs the transactions of a partition, with group commit.
//!
//! A commit that has to wait is acknowledged when [`Store::sync`] has returned. The driver syncs when a group
//! of such commits is complete, and at the end. So all engines answer durable commits only, and the number
//! of commits in a group does not depend on the speed of the machine.
//!
//! This module does not know engines.

use std::time::Instant;

use varve_bench::Result;
use varve_device::thread_cpu_ns;
use varve_memory::{Commit, Store};

use super::load::{Ending, Worker, refused};

/// The times of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTimes {
    /// Nanoseconds of wall time.
    pub wall_ns: u64,
    /// Nanoseconds of processor time.
    pub cpu_ns: u64,
}

/// Runs the transactions with these numbers. Calls `on_group` after every `group` transactions.
///
/// Errors: the store refuses a call, or a row is not as the worker expects it.
pub fn run(
    worker: &mut dyn Worker,
    store: &mut dyn Store,
    numbers: std::ops::Range<usize>,
    group: usize,
    on_group: &mut dyn FnMut(),
) -> Result<RunTimes> {
    let (began, cpu_began) = (Instant::now(), thread_cpu_ns());
    let (mut pending, group) = (0, group.max(1));
    for number in numbers {
        match worker.execute(number, store)? {
            Ending::RollBack => store.rollback().map_err(refused)?,
            Ending::Commit => {
                let is_pending = store.commit().map_err(refused)? == Commit::Pending;
                pending += usize::from(is_pending);
            }
        }
        if pending >= group {
            store.sync().map_err(refused)?;
            pending = 0;
        }
        if number % group == group - 1 {
            on_group();
        }
    }
    store.sync().map_err(refused)?;
    let wall_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(RunTimes { wall_ns, cpu_ns: thread_cpu_ns() - cpu_began })
}

//! The region is full at each allocation in turn. Then a change is refused and nothing is changed, or the
//! change succeeds. The files of an engine are in the same region, so their calls fail in the same way.

use std::sync::Arc;

use varve_device::{Directory, RecordLog};
use varve_memory::{Allocator, MemoryError, Pointer, SEGMENT_BYTES};

use super::life::{self, Plan};
use super::{ENGINES, Engine, owner};
use crate::life::{DATABASE, REGION};
use crate::traced::{Calls, Traced};

/// The owner of a store and the owner of its table. `OTHER` is an owner without a store.
const STORE_OWNERS: [u16; 2] = [1, 2];
const OTHER: u16 = 9;
/// The number of allocations of a call that fail in turn, for each size class and for segments.
const ALLOCATIONS: usize = 4;

/// The chunks or segments that allocations can still get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// This many chunks of each size class of each owner, as far as slabs have them, and no segment.
    Chunks(usize),
    /// This many segments, and no chunk of a slab.
    Segments(usize),
}

/// Holds all free chunks except those in `Left`, until it is dropped.
pub struct Taken {
    allocator: Arc<Allocator>,
    chunks: Vec<Pointer>,
}

impl Taken {
    pub fn all_but(allocator: &Arc<Allocator>, left: Left) -> Taken {
        let mut taken = Taken { allocator: Arc::clone(allocator), chunks: Vec::new() };
        let (chunks, segments) = match left {
            Left::Chunks(count) => (count, 0),
            Left::Segments(count) => (0, count),
        };
        taken.take(OTHER, SEGMENT_BYTES, segments);
        for of in STORE_OWNERS {
            let mut len_bytes = 1;
            while len_bytes <= SEGMENT_BYTES / 2 {
                len_bytes = taken.take(of, len_bytes, chunks).max(len_bytes) + 1;
                // Classes grow by at least 16 bytes, and by an eighth.
                len_bytes = len_bytes.max(17 + (len_bytes - 1).next_multiple_of(16) - 16);
            }
        }
        taken
    }

    /// Takes chunks of one length until the region is full, and gives `left` of them back. Returns the length
    /// of their class.
    fn take(&mut self, of: u16, len_bytes: u64, left: usize) -> u64 {
        let before = self.chunks.len();
        loop {
            match self.allocator.allocate(owner(of), len_bytes) {
                Ok(chunk) => self.chunks.push(chunk),
                Err(MemoryError::Full { needed_bytes, .. }) => {
                    let kept = self.chunks.len().saturating_sub(left).max(before);
                    self.chunks.drain(kept..).for_each(|chunk| drop(self.allocator.free(chunk)));
                    return needed_bytes;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.chunks.drain(..).for_each(|chunk| drop(self.allocator.free(chunk)));
    }
}

/// Runs a life in which the region is full at the first allocation of each operation, then at the second one,
/// and so on, until the operation succeeds. Returns how often an operation was refused.
fn sweep(engine: &Engine, seed: u64) -> Result<u64, String> {
    let directory = life::with_table(engine, 900_000);
    // The pages of `cow` and the arenas of the log-structured engines have room in advance. So few of their
    // operations allocate.
    let allocates_often = ["nvm_inplace", "inplace", "nvm_cow"].contains(&engine.name);
    let (operations, keys) = if allocates_often { (150, 60) } else { (500, 300) };
    let plan = Plan { seed, operations, keys, traced: Calls::None };
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    let before = Plan { seed: !seed, ..plan };
    let before = life::live_on(engine, Arc::clone(&region), &RecordLog::new(), Default::default(), &before)?;
    let state = before.states.last().cloned().unwrap_or_default();
    let allocator =
        Arc::new(Allocator::open(Arc::clone(&region), DATABASE).map_err(|error| error.to_string())?);
    let store = (engine.open)(Arc::clone(&allocator)).map_err(|error| error.to_string())?;
    let mut working = life::Working::new(store, Traced::wrap(region, RecordLog::new(), Calls::None), state);
    let lefts = (0..ALLOCATIONS).map(Left::Chunks).chain((0..ALLOCATIONS).map(Left::Segments));
    let lefts: Vec<Option<Left>> = lefts.map(Some).chain([None]).collect();
    working.work_between(&plan, |working, work| {
        for left in &lefts {
            let refused = working.full_count();
            let taken = left.map(|left| Taken::all_but(&allocator, left));
            work(working)?;
            drop(taken);
            if working.full_count() == refused {
                return Ok(());
            }
        }
        Ok(())
    })?;
    let refused = working.full_count();
    let last = working.end_all()?;
    let region = directory.map(REGION, 4096).map_err(|error| error.to_string())?;
    super::random::judge(
        engine,
        Allocator::open(region, DATABASE).map_err(|error| error.to_string())?,
        &last,
    )?;
    Ok(refused)
}

#[test]
fn a_region_that_is_full_at_any_allocation_loses_nothing() {
    for engine in &ENGINES {
        let run =
            |seed| sweep(engine, seed).unwrap_or_else(|error| panic!("{} seed {seed}: {error}", engine.name));
        let refused: u64 = (0..2).map(run).sum();
        println!("{}: {refused} operations were refused", engine.name);
        assert!(refused >= 20, "{}: {refused} operations were refused", engine.name);
    }
}

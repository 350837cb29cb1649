//! Counts the bytes that operators really allocate, with an allocator of its own, and compares them with the
//! budget. The other tests rely on the account of the budget. This test shows that nothing is missing in the
//! account.
//!
//! Invariants
//! 1. Only the thread of the test is counted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use varve_device::{Directory, FileDirectory, FileOptions};
use varve_spill::{
    AggregateSettings, Aggregator, BlockIo, CandidatePairs, DriveTimes, InputSize, Join, JoinCondition,
    JoinInput, JoinKind, JoinMethod, JoinOutput, JoinSettings, Joined, MemoryBudget, MergeStates,
    PartitionFiles, Partners, Result, Row, RowSource, RunMethod, Side, SortSettings, Sorter, TemporarySpace,
};

thread_local! {
    static USED: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn note(bytes: isize) {
    let _ = USED.try_with(|used| {
        used.set(used.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(used.get())));
    });
}

// SAFETY: all calls go to the system's allocator with the same arguments; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that belong to no buffer, table or tree: names of files, settings, small lists.
const SMALL_BYTES: isize = 12 << 10;

/// A source that makes its rows when they are read: the key n * factor mod modulus, and a payload.
struct Rows {
    next: u32,
    end: u32,
    modulus: u32,
    key: [u8; 4],
}

impl Rows {
    fn new(end: u32, modulus: u32) -> Rows {
        Rows { next: 0, end, modulus, key: [0; 4] }
    }
}

impl RowSource for Rows {
    fn rewind(&mut self, _memory: &Arc<MemoryBudget>, _read_bytes: usize) -> Result<()> {
        self.next = 0;
        Ok(())
    }
    fn advance(&mut self) -> Result<bool> {
        self.key = (self.next.wrapping_mul(2_654_435_761) % self.modulus).to_be_bytes();
        self.next += 1;
        Ok(self.next <= self.end)
    }
    fn row(&self) -> Row<'_> {
        Row::new(&self.key, &[7; 60])
    }
}

struct First;

impl MergeStates for First {
    fn merge(&self, state: &[u8], _other: &[u8], merged: &mut Vec<u8>) -> Result<()> {
        merged.extend_from_slice(state);
        Ok(())
    }
}

/// An output that keeps no row, with a condition that half of the pairs pass.
struct Half;

impl JoinOutput for Half {
    fn joined(&mut self, _row: Joined<'_>) -> Result<()> {
        Ok(())
    }
    fn condition(&mut self) -> Option<&mut dyn JoinCondition> {
        Some(self)
    }
}

impl JoinCondition for Half {
    fn decide(&mut self, pairs: &CandidatePairs<'_>, partners: &mut Partners) -> Result<()> {
        (0..pairs.count()).step_by(2).for_each(|n| partners.set(n));
        Ok(())
    }
}

/// Runs an operator with a budget, and checks the largest number of bytes that it allocated.
fn check(
    what: &str,
    budget_bytes: usize,
    run: impl Fn(&Arc<TemporarySpace>, &Arc<MemoryBudget>) -> Result<()>,
) {
    let folder = tempfile::tempdir().unwrap();
    let directory: Arc<dyn Directory> = FileDirectory::open(folder.path(), FileOptions::default()).unwrap();
    let space = TemporarySpace::open(directory, u64::MAX).unwrap();
    let memory = MemoryBudget::new(budget_bytes);
    let before = USED.get();
    PEAK.set(before);
    run(&space, &memory).unwrap();
    let peak = PEAK.get() - before;
    let most = budget_bytes as isize + SMALL_BYTES;
    assert!(peak <= most, "{what}: {peak} bytes of {budget_bytes} were allocated");
    assert!(peak > budget_bytes as isize / 3, "{what}: the budget is used: {peak} of {budget_bytes}");
    assert!(space.tally_all().written.bytes > 0, "{what}: it spills");
}

fn sort(space: &Arc<TemporarySpace>, memory: &Arc<MemoryBudget>, runs: RunMethod) -> Result<()> {
    let settings = SortSettings { page_bytes: 4096, write_pages: 4, cluster_bytes: None, runs };
    let mut sorter = Sorter::new(space, memory, settings)?;
    let mut rows = Rows::new(40_000, u32::MAX);
    while rows.advance()? {
        sorter.push(rows.row())?;
    }
    let mut sorted = sorter.finish(0)?;
    while sorted.advance()? {}
    Ok(())
}

#[test]
fn operators_allocate_no_more_than_their_budget() {
    for budget_bytes in [128 << 10, 512 << 10] {
        for runs in [RunMethod::ReplacementSelection, RunMethod::Quicksort] {
            check("sort", budget_bytes, |space, memory| sort(space, memory, runs));
        }
        for method in JoinMethod::ALL.into_iter().filter(|method| *method != JoinMethod::NestedLoops) {
            let join = |space: &Arc<TemporarySpace>, memory: &Arc<MemoryBudget>, has_condition: bool| {
                let times = DriveTimes::DISK;
                let (io, partition_files) = (BlockIo::Blocked, PartitionFiles::Shared);
                let settings = JoinSettings { page_bytes: 4096, io, partition_files, times };
                let (space, memory) = (Arc::clone(space), Arc::clone(memory));
                let (kind, build) = (JoinKind::Full, Side::Left);
                let join = Join { space, memory, settings, method, kind, build };
                let (mut left, mut right) = (Rows::new(12_000, 9_000), Rows::new(20_000, 9_000));
                let size = |rows| InputSize { rows, bytes: rows * 72 };
                let left = JoinInput { source: &mut left, size: size(12_000) };
                let right = JoinInput { source: &mut right, size: size(20_000) };
                match has_condition {
                    true => join.run(left, right, &mut Half),
                    false => join.run(left, right, &mut |_: Joined<'_>| Ok(())),
                }
            };
            for has_condition in [false, true] {
                let name = format!("{method:?} {has_condition}");
                check(&name, budget_bytes, |space, memory| join(space, memory, has_condition));
            }
        }
        check("aggregate", budget_bytes, |space, memory| {
            let settings = AggregateSettings { page_bytes: 4096, block_pages: 4 };
            let mut groups = Aggregator::new(space, memory, settings, &First)?;
            let mut rows = Rows::new(40_000, 30_000);
            while rows.advance()? {
                groups.push(rows.row())?;
            }
            groups.finish(&mut |_: Row<'_>| Ok(()))
        });
    }
}

//! varve-spill has operators whose rows may not fit in memory: sort, joins and aggregation.
//!
//! An operator has a memory budget. Rows that exceed the budget are written to the temporary space. The user
//! can put the temporary space on a separate device.
//!
//! Invariants
//! 1. The memory of an operator never exceeds its budget ([`MemoryBudget`]).
//! 2. The temporary space never exceeds its limit ([`TemporarySpace`]). Its files are removed when the
//!    operator ends, also after an error. After a crash, they are removed at the next start.
//! 3. Damaged bytes in the temporary space cause an error, but never a panic or a wrong row.
//! 4. Results do not depend on budgets, page sizes or devices, except for the order of rows.
//!
//! This crate does not know SQL, types, pages of tables, or transactions. For it, a row is a key, which is
//! compared as bytes, and other bytes.
//!
//! Sources: Do 2012, chapter 2; Lee 2008, section 6; Haas, Carey, Livny and Shukla, "Seeking the Truth About
//! ad hoc Join Costs" (1997), for the allocation of buffers.

mod aggregate;
mod allocation;
mod bits;
mod chunk;
mod drive;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod join;
mod memory;
mod merge;
mod page;
mod reader;
mod row;
mod sort;
mod space;
mod spool;
mod step;
mod workspace;
mod writer;

pub use aggregate::{AggregateSettings, Aggregator, MergeStates};
pub use allocation::{DriveTimes, FUDGE, JoinPages, NestedLoopsBuffers, PartitionBuffers, SortMergeBuffers};
pub use error::{Result, SpillError};
pub use join::{
    BlockIo, CandidatePairs, InputSize, IoCount, Join, JoinCondition, JoinCost, JoinInput, JoinKind,
    JoinMethod, JoinOutput, JoinSettings, JoinShape, Joined, OwnedInput, PartitionFiles, Partners, PhaseCost,
    ProcessorTimes, Side,
};
pub use memory::{MemoryBudget, MemoryGrant};
pub use row::{Row, RowSource};
pub use sort::{RunMethod, SortSettings, SortedRows, Sorter};
pub use space::{SpillPurpose, SpillTally, TemporarySpace};
pub use spool::{Spool, SpoolSettings, SpoolWriter};
pub use step::Steps;
pub use writer::RowList;

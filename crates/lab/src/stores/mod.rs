//! Partitions of the memory-oriented engines (crate `memory`), and the loads under which Arulraj, Pavlo and
//! Dulloor measured such engines ("Let's Talk About Storage & Recovery Methods for Non-Volatile Memory
//! Database Systems", SIGMOD 2015).
//!
//! 1. Every engine runs the same transactions, which are drawn before the run.
//! 2. A partition has one worker and a region of its own. The region is ordinary memory. If counts are taken,
//!    a modelled cache is in front of the region (decision 0110). If times are measured, there is none.
//! 3. After a run the rows are compared with what the transactions must have left.
//!
//! This module does not know published values or rows of results.

mod bed;
mod driver;
mod engines;
pub mod killed;
mod load;
mod partition;
mod parts;
mod sampled;
mod split;
mod system_call;
pub mod tpcc;
pub mod ycsb;

pub use bed::{Bed, Counted, RawRun};
pub use driver::{RunTimes, run};
pub use engines::{ENGINES, Engine, Lookups, StoreSettings, VARIANTS};
pub use load::{Ending, PartitionLoad, Worker, refused};
pub use partition::Partition;
pub use parts::Part;
pub use sampled::SampledRegion;
pub use split::{Metered, Split, split};
pub use system_call::system_call;

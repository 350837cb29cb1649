//! The crate varve-device makes all reads and writes of files, devices and persistent memory.
//!
//! The crate has two small traits, [`Directory`] and [`BlockFile`]. They are implemented by real files, by
//! files in memory, by an emulated device, by a recorder that makes crash images, and by a fault injector. So
//! the same engine runs on all of them.
//!
//! Invariants
//! 1. Offsets and lengths are in bytes, and are multiples of [`BlockFile::sector_bytes`]. Buffers are aligned
//!    to this size ([`AlignedBuf`] always is). A violation is a programmer's error and is asserted.
//! 2. A write is durable in two cases only. Either it completed, and then a flush of its file was issued and
//!    succeeded. Or it was written with [`Durability::Now`]. A creation, rename or removal is durable only
//!    after a later successful [`Directory::sync`].
//! 3. After a failed flush, the file accepts no more writes, and no later flush succeeds.
//! 4. A file has one descriptor, which all its users share.

mod accounting;
mod block;
mod boot;
mod buf;
mod cache_model;
mod capabilities;
mod counted;
mod emulated;
mod emulated_memory;
mod error;
mod faulty;
mod file;
mod flash;
mod ftl;
mod identity;
mod image;
mod latency;
mod lock;
mod mapped;
mod memory;
mod merges;
mod nvm_profile;
mod owner;
mod persist;
mod planted;
mod probe;
mod profile;
mod purpose;
mod recorder;
mod region;
mod region_emulated;
mod region_files;
mod region_part;
mod service;
mod sys;
mod trace;
mod tracked;
mod uring;
mod volatile;

pub use accounting::{Accounting, Tally, TallyRow};
pub use block::{BlockFile, Create, Directory, Durability, Location, OpenHow, ReadOp, WriteOp};
pub use buf::AlignedBuf;
pub use cache_model::{CacheCounts, CacheShape, CachedRegion, MEDIUM_BLOCK_BYTES, Wear};
pub use capabilities::Capabilities;
pub use emulated::{Emulated, EmulationReport};
pub use emulated_memory::EmulatedMemory;
pub use error::{DeviceError, ErrorKind, Operation, Result};
pub use faulty::{Fault, Faulty, Rule, When};
pub use file::{FileDirectory, FileOptions};
pub use flash::FlashReport;
pub use ftl::{Mapping, Translation};
pub use image::{Fate, Lies, Timeline};
pub use latency::{Latencies, LatencySummary, Timed};
pub use lock::DirLock;
pub use memory::{MemoryDirectory, MemoryImage};
pub use merges::{MergeCounts, Merges};
pub use nvm_profile::NvmProfile;
pub use owner::{create_directory, directory_mode, restrict_directory};
pub use planted::{IN_HARNESS, PlantedFault, plant_panic, planted, planted_panic, reached};
#[cfg(feature = "planted")]
pub use planted::{plant, planted_hits, take_reached};
pub use profile::{DurableWrite, OperationsPerSecond, Profile, ProfileError};
pub use purpose::{Purpose, Space};
pub use recorder::{Change, DeviceNo, Event, FileNo, NEVER, RecordLog, Recorder, Recording};
pub use region::{LINE_BYTES, Medium, NvmCell, Region, RegionFacts, RegionTally, WORD_BYTES, WriteBack};
pub use region_emulated::EmulatedRegion;
pub use region_files::{HEAD_BYTES, RegionExtents, RegionFiles};
pub use region_part::RegionPart;
pub use sys::thread_cpu_ns;
pub use trace::{IoTrace, TRACE_ENTRY_BYTES, TraceEntry};
pub use tracked::Tracked;
pub use volatile::VolatileMachine;

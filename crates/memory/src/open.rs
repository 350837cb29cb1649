//! Creates and opens an allocator's region.
//!
//! Opening repeats the steps of sealed lanes (changes that a crash has interrupted). Then it reads the
//! header, the roots and the descriptors: 8 bytes for each segment of 64 KiB. So its time depends on the
//! length of the region, and not on the number of allocated chunks.
//!
//! Invariants
//! 1. A crash while a region is created leaves a region without an allocator.
//! 2. Opening changes only the words that lanes name. Opening a region twice has the same effect as opening
//!    it once.
//!
//! Bitmaps are read later, when they are needed (`heap.rs`).

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use varve_device::{Region, WORD_BYTES};

use crate::error::{MemoryError, Result};
use crate::intent::{self, store_back};
use crate::layout::{self, Descriptor, LANES, Layout, MAGIC, MAGIC_AT, get_u64};
use crate::pool::{Pool, Run};
use crate::roots::Roots;
use crate::sizes::OWNERS;
use crate::state::{Allocator, next_number};

/// Zeros are stored in pieces of this many bytes.
const PIECE_BYTES: usize = 4096;

impl Allocator {
    /// Makes an empty allocator in a region, for a database. Everything that was in the region is lost.
    ///
    /// Errors: the region is too small or too large.
    pub fn format(region: Arc<dyn Region>, database: u64) -> Result<Allocator> {
        let layout = Layout::of(region.len_bytes())?;
        // The old magic is cleared first, so that a crash cannot leave an old header together with new
        // tables.
        store_back(&*region, MAGIC_AT, 0);
        region.fence();
        let tables = layout.tables();
        let zeros = [0; PIECE_BYTES];
        tables.clone().step_by(PIECE_BYTES).for_each(|at| region.store(at, &zeros));
        region.write_back(tables.start, tables.end - tables.start);
        let header = layout::encode_header(&layout, database);
        let behind_magic = header.get(WORD_BYTES..).unwrap_or_default();
        region.store(WORD_BYTES as u64, behind_magic);
        region.write_back(0, header.len() as u64);
        region.fence();
        store_back(&*region, MAGIC_AT, MAGIC);
        region.fence();
        Allocator::open(region, database)
    }

    /// Opens the allocator in a region. Chunks that were reserved are free now, and active chunks have not
    /// changed.
    ///
    /// Errors: there is no allocator, it is of another version or database, or it is damaged.
    pub fn open(region: Arc<dyn Region>, database: u64) -> Result<Allocator> {
        let layout = layout::read_header(&*region, database)?;
        intent::recover(&*region, &layout)?;
        let roots = Roots::read(&*region, &layout)?;
        let allocator = Allocator {
            number: next_number(),
            directory: (0..layout.segments).map(|_| AtomicU64::new(0)).collect(),
            owners: (0..OWNERS).map(|_| OnceLock::new()).collect(),
            pool: Mutex::new(Pool::default()),
            lanes: (0..LANES).map(|_| Mutex::new(())).collect(),
            threads: AtomicUsize::new(0),
            roots,
            region,
            layout,
        };
        allocator.read_descriptors()?;
        Ok(allocator)
    }

    fn read_descriptors(&self) -> Result<()> {
        let mut words = vec![0; self.layout.segments as usize * WORD_BYTES];
        self.region.read(self.layout.descriptor_at(0), &mut words);
        let mut segment = 0;
        while segment < self.layout.segments {
            let word = get_u64(&words, segment as usize * WORD_BYTES);
            let at = self.layout.descriptor_at(segment);
            let damaged = MemoryError::Damaged { what: "the descriptor of a segment", at };
            let descriptor = Descriptor::decode(word, segment).ok_or(damaged)?;
            let count = match descriptor {
                Descriptor::Run { segments, .. } => {
                    self.check_run(segment, segments, &words)?;
                    segments
                }
                _ => 1,
            };
            self.add_found(segment, descriptor);
            segment += count;
        }
        Ok(())
    }

    /// Checks that a run ends within the region, and that no descriptor is inside it.
    fn check_run(&self, start: u32, segments: u32, words: &[u8]) -> Result<()> {
        let at = self.layout.descriptor_at(start);
        let what = "the descriptor of a run, which overlaps something else";
        let end = start.checked_add(segments).filter(|end| segments > 0 && *end <= self.layout.segments);
        let end = end.ok_or(MemoryError::Damaged { what, at })?;
        let is_alone = (start + 1..end).all(|segment| get_u64(words, segment as usize * WORD_BYTES) == 0);
        if is_alone { Ok(()) } else { Err(MemoryError::Damaged { what, at }) }
    }

    fn add_found(&self, segment: u32, descriptor: Descriptor) {
        self.describe(segment, descriptor);
        match descriptor {
            Descriptor::Free => self.pool.lock().give(segment, 1),
            Descriptor::Slab { class, owner } => {
                self.with_heap(owner, class, |heap| heap.add_unread(segment));
            }
            Descriptor::Run { segments, owner } => {
                let run = Run { segments, owner, is_active: true, is_claimed: false };
                self.pool.lock().add_run(segment, run);
            }
        }
    }
}

//! Tests the cache model against cases that can be counted by hand, and against a simpler model.

use std::collections::HashMap;

use super::*;
use crate::block::Directory;
use crate::memory::MemoryDirectory;

const REGION_BYTES: u64 = 1 << 20;

/// Returns a region with a cache of two sets of two lines in front of it.
fn small(write_back: WriteBack) -> Arc<CachedRegion> {
    behind(CacheShape { bytes: 4 * LINE_BYTES, ways: 2, write_back })
}

fn behind(shape: CacheShape) -> Arc<CachedRegion> {
    let Ok(region) = MemoryDirectory::new().map("r", REGION_BYTES) else { panic!("memory has regions") };
    CachedRegion::wrap(region, shape)
}

fn load(region: &CachedRegion, line: u64) {
    region.read(line * LINE_BYTES, &mut [0; 8]);
}

fn store(region: &CachedRegion, line: u64) {
    region.store(line * LINE_BYTES, &[7; 8]);
}

fn persist(region: &CachedRegion, line: u64) {
    region.persist(line * LINE_BYTES, 8);
}

#[test]
fn the_paper_s_cache_has_16384_sets_and_is_split_equally() {
    assert_eq!(CacheShape::PAPER.sets(), 16_384);
    assert_eq!(CacheShape::PAPER.split(2).sets(), 8_192);
    assert_eq!(CacheShape::PAPER.split(1 << 40).sets(), 1);
}

#[test]
fn a_line_is_fetched_once_while_it_stays() {
    let region = small(WriteBack::Clwb);
    load(&region, 0);
    load(&region, 0);
    store(&region, 0);
    store(&region, 1);
    let counts = region.counts();
    assert_eq!((counts.load_misses, counts.store_misses, counts.stored_lines()), (1, 1, 0));
}

/// The first access has twelve lines, and ten of them are fetched at once. The second access has one line.
#[test]
fn lines_of_one_access_are_fetched_in_parallel_if_the_caller_says_so() {
    let region = behind(CacheShape { bytes: 64 * LINE_BYTES, ways: 2, write_back: WriteBack::Clwb });
    region.read(0, &mut [0; 12 * LINE_BYTES as usize]);
    load(&region, 20);
    load(&region, 20);
    let counts = region.counts();
    assert_eq!(counts.fetches_by_lines, BTreeMap::from([(12, 1), (1, 1)]));
    let Ok(profile) = NvmProfile::shipped("nvm-2x") else { panic!("it is shipped") };
    assert_eq!(
        [counts.extra_ns(&profile), counts.overlapped_extra_ns(&profile)],
        [13.0 * 160.0, 2.2 * 160.0]
    );
}

#[test]
fn a_read_over_three_lines_fetches_three_and_an_empty_one_none() {
    let region = small(WriteBack::Clwb);
    region.read(LINE_BYTES - 1, &mut [0; 66]);
    region.read(5 * LINE_BYTES, &mut []);
    region.store(5 * LINE_BYTES, &[]);
    assert_eq!(region.counts().loaded_lines(), 3);
}

#[test]
fn the_line_used_longest_ago_makes_room_and_reaches_the_medium_if_it_is_changed() {
    let region = small(WriteBack::Clwb);
    // Lines 0, 2, 4 share a set of two.
    store(&region, 0);
    load(&region, 2);
    load(&region, 0);
    load(&region, 4); // Line 2 makes room: unchanged.
    assert_eq!(region.counts().dirty_evictions, 0);
    load(&region, 0);
    load(&region, 2); // Line 4 makes room.
    load(&region, 4); // Line 0 makes room: changed.
    assert_eq!(region.counts().dirty_evictions, 1);
    assert_eq!(region.wear(), Wear { worn_lines: 1, writes: 1, most_writes: 1, most_at: 0 });
}

#[test]
fn clwb_keeps_the_line_and_clflush_drops_it() {
    for (how, misses) in [(WriteBack::Clwb, 0), (WriteBack::Clflush, 1), (WriteBack::ClflushOpt, 1)] {
        let region = small(how);
        store(&region, 3);
        persist(&region, 3);
        load(&region, 3);
        let counts = region.counts();
        assert_eq!((counts.written_back_lines, counts.load_misses), (1, misses), "{}", how.name());
    }
}

#[test]
fn with_caches_that_persist_nothing_is_written_back() {
    let region = small(WriteBack::FenceOnly);
    store(&region, 3);
    persist(&region, 3);
    let counts = region.counts();
    assert_eq!((counts.written_back_lines, counts.clean_write_backs, counts.fences()), (0, 0, 1));
}

#[test]
fn a_line_that_is_equal_to_the_medium_is_not_written_again() {
    let region = small(WriteBack::Clwb);
    store(&region, 3);
    persist(&region, 3);
    persist(&region, 3);
    persist(&region, 9);
    let counts = region.counts();
    assert_eq!((counts.written_back_lines, counts.clean_write_backs), (1, 2));
    assert_eq!(counts.fences_by_lines, BTreeMap::from([(0, 2), (1, 1)]));
}

#[test]
fn lines_of_one_block_are_written_together_while_it_waits() {
    let region = behind(CacheShape::PAPER);
    // Four lines of block 0 one after the other, then block 0 again after 64 other blocks.
    for line in 0..4 {
        store(&region, line);
        persist(&region, line);
    }
    assert_eq!(region.counts().medium_writes, 1);
    for block in 1..=BUFFERED_BLOCKS as u64 {
        store(&region, block * 4);
        persist(&region, block * 4);
    }
    store(&region, 0);
    persist(&region, 0);
    assert_eq!(region.counts().medium_writes, 1 + BUFFERED_BLOCKS as u64 + 1);
    assert_eq!(region.wear().most_writes, 2);
}

#[test]
fn counts_begin_again_and_lines_stay() {
    let region = small(WriteBack::Clwb);
    store(&region, 3);
    region.restart_counts();
    load(&region, 3);
    assert_eq!(region.counts(), CacheCounts::default());
    assert_eq!(region.wear(), Wear::default());
    persist(&region, 3);
    assert_eq!(region.counts().written_back_lines, 1);
}

#[test]
fn a_word_and_a_store_in_one_pass_count_as_their_steps() {
    let region = small(WriteBack::Clwb);
    region.store_word(64, 1);
    assert_eq!(region.load_word(64), 1);
    region.store_back(128, &[1; 64]);
    region.fence();
    let counts = region.counts();
    assert_eq!((counts.store_misses, counts.load_misses, counts.written_back_lines), (2, 0, 1));
}

#[test]
fn time_is_latency_of_fetched_lines_and_the_longer_of_latency_and_transfer_of_fences() {
    let profile = NvmProfile {
        read_extra_ns: 100.0,
        persist_extra_ns: 50.0,
        write_line_ns: 0.0,
        bandwidth_bytes_per_s: 64e7, // 100 ns a line
        ..NvmProfile::shipped("nvm-2x").unwrap()
    };
    let mut counts = CacheCounts { load_misses: 3, store_misses: 1, ..CacheCounts::default() };
    counts.fences_by_lines = BTreeMap::from([(0, 5), (1, 2), (3, 1)]);
    assert_eq!(counts.extra_ns(&profile), 400.0 + 2.0 * 100.0 + 300.0);
    let unlimited = NvmProfile { bandwidth_bytes_per_s: 0.0, ..profile };
    assert_eq!(counts.extra_ns(&unlimited), 400.0 + 3.0 * 50.0);
    let mut both = counts.clone();
    both.add(&counts);
    assert_eq!(both.extra_ns(&unlimited), 2.0 * counts.extra_ns(&unlimited));
}

/// A simple, slow model of a cache: a map from each set to its lines, in the order of their use.
#[derive(Default)]
struct Plain {
    sets: HashMap<u64, Vec<(u64, bool)>>,
    misses: u64,
    evictions: u64,
    written_back: u64,
}

impl Plain {
    fn touch(&mut self, line: u64, sets: u64, ways: usize, changes: bool) {
        let set = self.sets.entry(line % sets).or_default();
        let was = set.iter().position(|(held, _)| *held == line).map(|at| set.remove(at));
        self.misses += u64::from(was.is_none());
        if set.len() == ways {
            self.evictions += u64::from(set.remove(0).1);
        }
        set.push((line, changes || was.is_some_and(|(_, changed)| changed)));
    }

    fn write_back(&mut self, line: u64, sets: u64) {
        for held in self.sets.entry(line % sets).or_default() {
            if held.0 == line && std::mem::take(&mut held.1) {
                self.written_back += 1;
            }
        }
    }
}

#[test]
fn it_counts_as_a_plain_model_does() {
    let (sets, ways) = (8, 3);
    let shape = CacheShape { bytes: sets * ways as u64 * LINE_BYTES, ways, write_back: WriteBack::Clwb };
    let region = behind(shape);
    let mut plain = Plain::default();
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..50_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let line = state % 61;
        match state >> 32 & 3 {
            0 | 1 => {
                load(&region, line);
                plain.touch(line, sets, ways, false);
            }
            2 => {
                store(&region, line);
                plain.touch(line, sets, ways, true);
            }
            _ => {
                persist(&region, line);
                plain.write_back(line, sets);
            }
        }
    }
    let counts = region.counts();
    let modelled = (counts.loaded_lines(), counts.dirty_evictions, counts.written_back_lines);
    assert_eq!(modelled, (plain.misses, plain.evictions, plain.written_back));
    assert_eq!(region.wear().writes, counts.stored_lines());
}

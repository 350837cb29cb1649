//! Helpers for tests of the tree: a pager in memory, and changes of single entries.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use varve_device::{Directory, MemoryDirectory};
use varve_engine::node::Stamp;
use varve_engine::redo::EngineRedo;
use varve_engine::tree::{Checker, Put, Tree};
use varve_pager::{Pager, PagerConfig};

/// Opens a pager without threads over a memory directory, which may be new or may have files.
pub fn open_pager(directory: Arc<dyn Directory>, page_bytes: usize, pool_bytes: usize) -> Pager {
    let mut config = PagerConfig::new(directory);
    config.page_size = page_bytes;
    config.pool_bytes = pool_bytes;
    config.log_segment_bytes = 4 << 20;
    config.log_capacity_bytes = 16 << 20;
    config.background = false;
    Pager::open(config, Arc::new(EngineRedo)).unwrap()
}

pub fn new_pager(page_bytes: usize) -> Pager {
    open_pager(new_directory(), page_bytes, 1024 * page_bytes)
}

pub fn new_directory() -> Arc<dyn Directory> {
    MemoryDirectory::new()
}

/// Inserts or replaces an entry. Makes room for it like the transaction layer.
pub fn put(pager: &Pager, tree: &Tree, key: &[u8], stamp: Stamp, payload: &[u8]) {
    loop {
        let mut mtr = pager.begin().unwrap();
        let mut position = tree.locate_x(pager, &mut mtr, key).unwrap();
        assert_eq!(
            tree.has_room(&mtr, &position, key, payload.len()),
            tree.put(&mut mtr, &mut position, key, stamp, payload) == Put::Done
        );
        if position.found && tree.entry(&mtr, &position).payload(&mut Vec::new()) == payload {
            mtr.commit();
            return;
        }
        drop(mtr);
        tree.make_room(pager, key, payload.len()).unwrap();
    }
}

/// Removes a key, and merges the leaf if that is worth it. Returns whether the key was there.
pub fn remove(pager: &Pager, tree: &Tree, key: &[u8]) -> bool {
    let mut mtr = pager.begin().unwrap();
    let mut position = tree.locate_x(pager, &mut mtr, key).unwrap();
    if !position.found {
        return false;
    }
    tree.remove(&mut mtr, &mut position);
    let underfull = tree.is_underfull(&mtr, &position);
    mtr.commit();
    if underfull {
        tree.tidy(pager, key).unwrap();
    }
    true
}

pub fn get(pager: &Pager, tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    tree.get(pager, key, |entry| entry.payload(&mut Vec::new()).to_vec()).unwrap()
}

/// Keys with their payloads.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Checks the tree. Returns its entries and the number of its pages.
pub fn check(pager: &Pager, tree: &Tree) -> (Entries, usize) {
    let mut checker = Checker::new();
    let mut entries = Vec::new();
    tree.check(pager, &mut checker, &mut |_, entry| {
        entries.push((entry.key(), entry.payload(&mut Vec::new()).to_vec()))
    })
    .unwrap();
    checker.compare_with_allocation(pager, tree.root().space(), tree.owner()).unwrap();
    assert_eq!(checker.damages(), [] as [String; 0]);
    (entries, checker.claimed().len())
}

/// A small generator (xorshift64*), so that tests repeat.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Returns an encoded row of columns with these widths (0: variable), of at most `limit` bytes, or `None` if
/// even empty values do not fit.
pub fn any_row(random: &mut Random, widths: &[u8], limit: usize) -> Option<Vec<u8>> {
    let fixed: usize = widths.iter().map(|width| usize::from(*width)).sum();
    let variable = widths.iter().filter(|width| **width == 0).count();
    let mut row = vec![varve_engine::row::ROW_LAYOUT];
    row.extend(random.bytes(widths.len().div_ceil(8) + fixed));
    let ends_at = row.len();
    row.resize(ends_at + 2 * variable, 0);
    let mut left = limit.checked_sub(row.len())?;
    for which in 0..variable {
        let len = random.below(left.min(40) + 1);
        left -= len;
        row.extend(random.bytes(len));
        let end = (row.len() as u16).to_le_bytes();
        row[ends_at + 2 * which..ends_at + 2 * which + 2].copy_from_slice(&end);
    }
    Some(row)
}

/// Returns the key of an integer, as `key::push` makes it.
pub fn int_key(value: i64) -> Vec<u8> {
    let mut key = Vec::new();
    varve_engine::key::push(&mut key, varve_engine::ColumnType::Int8, &varve_engine::Datum::Int8(value));
    key
}

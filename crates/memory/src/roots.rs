//! Named roots: the pointers at which the data structures of a region begin.
//!
//! Invariants
//! 1. A root's name and a value of 0 are durable before its seal is stored. So a root with a seal is
//!    complete, and a seal that does not match its name is damage.
//!
//! This module does not know what a root points to.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use varve_device::Region;

use crate::error::{MemoryError, Result};
use crate::intent::store_back;
use crate::layout::{Layout, NAME_AT, ROOT_BYTES, SEAL_AT, decode_name, encode_name, get_u64};
use crate::pointer::Word;
use crate::sizes::{ROOT_NAME_BYTES_MAX, ROOTS};

/// The names of the roots, and their places in the table of roots.
pub(crate) struct Roots {
    state: Mutex<State>,
}

struct State {
    by_name: FxHashMap<Box<str>, u32>,
    /// The places without a root. The last place of the list is used next.
    free: Vec<u32>,
    /// Whether a place has a root.
    used: Vec<bool>,
}

impl State {
    fn insert(&mut self, name: &str, root: u32) {
        self.by_name.insert(name.into(), root);
        self.mark(root, true);
    }

    fn mark(&mut self, root: u32, is_used: bool) {
        if let Some(used) = self.used.get_mut(root as usize) {
            *used = is_used;
        }
    }
}

impl Roots {
    /// Reads all roots of a region.
    pub(crate) fn read(region: &dyn Region, layout: &Layout) -> Result<Roots> {
        let mut state =
            State { by_name: FxHashMap::default(), free: Vec::new(), used: vec![false; ROOTS as usize] };
        for root in (0..ROOTS).rev() {
            let mut bytes = [0; ROOT_BYTES];
            region.read(layout.root_at(root), &mut bytes);
            if get_u64(&bytes, SEAL_AT as usize) == 0 {
                state.free.push(root);
                continue;
            }
            let damaged =
                MemoryError::Damaged { what: "a root, whose seal is wrong", at: layout.root_at(root) };
            let name = decode_name(&bytes).ok_or(damaged)?;
            state.insert(name, root);
        }
        Ok(Roots { state: Mutex::new(state) })
    }

    /// Makes a root with the value 0.
    pub(crate) fn create(&self, region: &dyn Region, layout: &Layout, name: &str) -> Result<Word> {
        let (field, seal) = encode_name(name)?;
        let mut state = self.state.lock();
        if state.by_name.contains_key(name) {
            return Err(MemoryError::RootExists { name: name.into() });
        }
        let root = state.free.pop().ok_or(MemoryError::RootsFull)?;
        let at = layout.root_at(root);
        region.store_word(at, 0);
        region.store(at + NAME_AT, &field);
        region.persist(at, NAME_AT + ROOT_NAME_BYTES_MAX as u64);
        store_back(region, at + SEAL_AT, seal);
        region.fence();
        state.insert(name, root);
        value_of(layout, root, name)
    }

    /// Returns the word with a root's value.
    pub(crate) fn find(&self, layout: &Layout, name: &str) -> Result<Word> {
        let root = self.state.lock().by_name.get(name).copied();
        let no_root = || MemoryError::NoRoot { name: name.into() };
        root.ok_or_else(no_root).and_then(|root| value_of(layout, root, name))
    }

    /// Removes a root.
    pub(crate) fn remove(&self, region: &dyn Region, layout: &Layout, name: &str) -> Result<()> {
        let mut state = self.state.lock();
        let root = state.by_name.remove(name).ok_or_else(|| MemoryError::NoRoot { name: name.into() })?;
        store_back(region, layout.root_at(root) + SEAL_AT, 0);
        region.fence();
        state.free.push(root);
        state.mark(root, false);
        Ok(())
    }

    /// Returns whether there is a root in this place.
    pub(crate) fn has(&self, root: u32) -> bool {
        self.state.lock().used.get(root as usize).is_some_and(|used| *used)
    }

    /// Returns the names, sorted.
    pub(crate) fn names(&self) -> Vec<Box<str>> {
        let mut names: Vec<Box<str>> = self.state.lock().by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }
}

fn value_of(layout: &Layout, root: u32, name: &str) -> Result<Word> {
    Word::at(layout.root_at(root)).ok_or_else(|| MemoryError::NoRoot { name: name.into() })
}

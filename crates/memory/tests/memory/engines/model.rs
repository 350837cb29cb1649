//! A model of the contents of a store: ordered maps.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use varve_memory::{Direction, KeyRange, Store, TableNo};

/// The number of indexes of the table. They have the primary key, a unique key, and a key that is followed by
/// the primary key.
pub const INDEXES: usize = 3;
pub const TABLE: u16 = 0;

/// A row and its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub keys: [Vec<u8>; INDEXES],
    pub bytes: Vec<u8>,
}

impl Row {
    pub fn keys(&self) -> [&[u8]; INDEXES] {
        [&self.keys[0], &self.keys[1], &self.keys[2]]
    }
}

/// The rows by primary key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub rows: BTreeMap<Vec<u8>, Row>,
}

impl Model {
    pub fn table(&self) -> TableNo {
        TableNo::new(TABLE)
    }

    /// Returns the index that refuses a row. The row with the primary key `but` is left out.
    pub fn duplicate(&self, row: &Row, but: &[u8]) -> Option<usize> {
        (0..INDEXES).find(|index| {
            self.rows.values().any(|other| other.keys[0] != but && other.keys[*index] == row.keys[*index])
        })
    }

    /// Compares a range of an index, in both directions.
    pub fn compare_range(&self, store: &dyn Store, index: usize, range: &KeyRange<'_>) -> Result<(), String> {
        let rows = self.rows.values().map(|row| (&row.keys[index][..], &row.bytes[..]));
        let mut expected: Vec<(&[u8], &[u8])> = rows.filter(|(key, _)| is_inside(range, key)).collect();
        expected.sort_unstable();
        for direction in [Direction::Forward, Direction::Backward] {
            let (mut found, mut first) = (0, None);
            let mut on_row = |key: &[u8], row: &[u8]| {
                let number = match direction {
                    Direction::Forward => Some(found),
                    Direction::Backward => expected.len().checked_sub(found + 1),
                };
                if number.and_then(|number| expected.get(number)) != Some(&(key, row)) {
                    first.get_or_insert(found);
                }
                found += 1;
                ControlFlow::Continue(())
            };
            let scanned = store.scan(self.table(), index, range, direction, &mut on_row);
            scanned.map_err(|error| error.to_string())?;
            if first.is_some() || found != expected.len() {
                let count = expected.len();
                return Err(format!(
                    "index {index}, {direction:?}: {found} rows, not {count}; the first other: {first:?}"
                ));
            }
        }
        Ok(())
    }

    /// Compares everything.
    pub fn compare(&self, store: &dyn Store) -> Result<(), String> {
        (0..INDEXES).try_for_each(|index| self.compare_range(store, index, &KeyRange::ALL))
    }
}

fn is_inside(range: &KeyRange<'_>, key: &[u8]) -> bool {
    let is_behind = match range.from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    is_behind
        && match range.to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        }
}

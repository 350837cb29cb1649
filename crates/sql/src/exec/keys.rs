//! Keys and key ranges as bytes.
//!
//! Invariants
//! 1. Every range is half open: it has its lower bound, but not its upper bound.
//! 2. After `prepare` the ranges are in key order and disjoint, so that no row is read twice.
//! 3. A comparison with NULL is never true, so a range with a NULL bound is left out.
//!
//! This module does not know which tree the keys belong to.

use std::collections::HashSet;

use varve_engine::{Datum, RowRef, TableDef, key};

use crate::error::Result;
use crate::eval::{Cx, Expr, Input};
use crate::plan::KeyRange;

/// Byte ranges in one buffer.
#[derive(Default)]
pub struct Ranges {
    bytes: Vec<u8>,
    /// For each range, three offsets in `bytes`: the start of its lower bound, the start of its upper bound,
    /// and the end of its upper bound.
    spans: Vec<(usize, usize, usize)>,
}

/// A list of keys in one buffer.
#[derive(Default)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    /// Returns the memory that the buffer has allocated, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<usize>() * self.ends.capacity()
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the n-th key.
    pub fn get(&self, n: usize) -> &[u8] {
        let start = n.checked_sub(1).map_or(0, |p| self.ends[p]);
        &self.bytes[start..self.ends[n]]
    }
}

/// The keys of rows that the statement has changed or locked, if it had found them under another key.
#[derive(Default)]
pub struct Landed(HashSet<Box<[u8]>>);

impl Landed {
    /// Records that the row found at key `from` now has the key `to`. `to` is empty if the table has no
    /// primary key, because then the key of a row never changes.
    pub fn note(&mut self, from: &[u8], to: &[u8]) {
        if !to.is_empty() && from != to {
            self.0.insert(to.into());
        }
    }

    /// Returns whether the statement has already changed or locked this row under another key. Then the row
    /// that the snapshot has under the current key is another row.
    pub fn holds<'a>(&self, table: &TableDef, row: &RowRef<'a>, buffer: &mut Vec<u8>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        key_of(table, |column| row.get(column), buffer);
        self.0.contains(buffer.as_slice())
    }
}

impl Ranges {
    /// Returns the memory that the buffer has allocated, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<(usize, usize, usize)>() * self.spans.capacity()
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the lower and upper bound of the n-th range.
    pub fn get(&self, n: usize) -> (&[u8], &[u8]) {
        let (lower, upper, end) = self.spans[n];
        (&self.bytes[lower..upper], &self.bytes[upper..end])
    }

    /// Evaluates the bounds of all ranges, which may read `row`. Then sorts the ranges and merges those that
    /// overlap.
    pub fn prepare<'a>(
        &mut self,
        table: &TableDef,
        columns: &[usize],
        ranges: &'a [KeyRange],
        row: &Input<'a>,
        cx: &Cx<'a>,
    ) -> Result<()> {
        self.bytes.clear();
        self.spans.clear();
        for range in ranges {
            let Some(place) = range.each else {
                self.add(table, columns, range, None, row, cx)?;
                continue;
            };
            // If the array is NULL, no comparison with its elements is true, so there is no range.
            if let Datum::Array(array) = range.equal[place].eval(row, cx)? {
                for element in array.iter() {
                    self.add(table, columns, range, Some((place, element)), row, cx)?;
                }
            }
        }
        if self.spans.len() > 1 {
            self.merge();
        }
        Ok(())
    }

    /// Makes the range of one whole key. Its parts read no row.
    pub fn prepare_point<'a>(&mut self, table: &TableDef, parts: &'a [Expr], cx: &Cx<'a>) -> Result<()> {
        self.spans.clear();
        if point_key(&mut self.bytes, table, parts, &Input::None, cx)? {
            let end = self.bytes.len();
            self.bytes.extend_from_within(..end);
            key::prefix_end(&mut self.bytes);
            self.spans.push((0, end, self.bytes.len()));
        }
        Ok(())
    }

    /// Adds a range, unless it is empty. `element` is a position in the key, and the array element that this
    /// position must equal.
    fn add<'a>(
        &mut self,
        table: &TableDef,
        columns: &[usize],
        range: &'a KeyRange,
        element: Option<(usize, Datum<'_>)>,
        row: &Input<'a>,
        cx: &Cx<'a>,
    ) -> Result<()> {
        let start = self.bytes.len();
        match self.append(table, columns, range, element, row, cx)? {
            Some(span) if self.bytes[span.0..span.1] < self.bytes[span.1..span.2] => self.spans.push(span),
            _ => self.bytes.truncate(start),
        }
        Ok(())
    }

    fn append<'a>(
        &mut self,
        table: &TableDef,
        columns: &[usize],
        range: &'a KeyRange,
        element: Option<(usize, Datum<'_>)>,
        row: &Input<'a>,
        cx: &Cx<'a>,
    ) -> Result<Option<(usize, usize, usize)>> {
        let lower = self.bytes.len();
        for (n, (e, column)) in range.equal.iter().zip(columns).enumerate() {
            let is_value = match element {
                Some((place, value)) if place == n => self.append_datum(table, *column, &value),
                _ => self.append_value(table, *column, e, row, cx)?,
            };
            if !is_value {
                return Ok(None);
            }
        }
        let prefix_end = self.bytes.len();
        let next = columns.get(range.equal.len()).copied();
        if let (Some((e, included)), Some(column)) = (&range.lower, next) {
            if !self.append_value(table, column, e, row, cx)? {
                return Ok(None);
            }
            if !included {
                key::prefix_end(&mut self.bytes);
            }
        }
        let upper = self.bytes.len();
        self.bytes.extend_from_within(lower..prefix_end);
        match (&range.upper, next) {
            (Some((e, included)), Some(column)) => {
                if !self.append_value(table, column, e, row, cx)? {
                    return Ok(None);
                }
                if *included {
                    key::prefix_end(&mut self.bytes);
                }
            }
            // The range has only a lower bound. NULLs are sorted last, but a comparison with NULL is not
            // true, so the range ends before them.
            (None, Some(column)) if range.lower.is_some() => {
                table.push_key(&mut self.bytes, column, &Datum::Null)
            }
            _ => key::prefix_end(&mut self.bytes),
        }
        Ok(Some((lower, upper, self.bytes.len())))
    }

    /// Appends a value to the key. Returns false if the value is NULL.
    fn append_value<'a>(
        &mut self,
        table: &TableDef,
        column: usize,
        e: &'a Expr,
        row: &Input<'a>,
        cx: &Cx<'a>,
    ) -> Result<bool> {
        let value = e.eval(row, cx)?;
        Ok(self.append_datum(table, column, &value))
    }

    /// Appends a value to the key. Returns false if the value is NULL.
    fn append_datum(&mut self, table: &TableDef, column: usize, value: &Datum<'_>) -> bool {
        if !value.is_null() {
            table.push_key(&mut self.bytes, column, value);
        }
        !value.is_null()
    }

    fn merge(&mut self) {
        let bytes = &self.bytes;
        let lower = |s: &(usize, usize, usize)| &bytes[s.0..s.1];
        let upper = |s: &(usize, usize, usize)| &bytes[s.1..s.2];
        self.spans.sort_unstable_by(|a, b| lower(a).cmp(lower(b)).then_with(|| upper(a).cmp(upper(b))));
        self.spans.dedup_by(|b, a| lower(a) == lower(b) && upper(a) == upper(b));
        let disjoint = self.spans.windows(2).all(|w| upper(&w[0]) < lower(&w[1]));
        if !disjoint {
            self.rebuild();
        }
    }

    /// Rewrites the sorted ranges. Ranges that overlap or touch become one range.
    fn rebuild(&mut self) {
        let mut out: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(self.spans.len());
        for n in 0..self.spans.len() {
            let (lower, upper) = self.get(n);
            match out.last_mut() {
                Some(last) if lower <= last.1.as_slice() => {
                    if upper > last.1.as_slice() {
                        last.1 = upper.to_vec();
                    }
                }
                _ => out.push((lower.to_vec(), upper.to_vec())),
            }
        }
        self.bytes.clear();
        self.spans.clear();
        for (lower, upper) in out {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&lower);
            let middle = self.bytes.len();
            self.bytes.extend_from_slice(&upper);
            self.spans.push((start, middle, self.bytes.len()));
        }
    }
}

/// Builds the primary key of a row from its values. The result is empty if the table has no primary key.
pub fn key_of<'a>(table: &TableDef, value: impl Fn(usize) -> Datum<'a>, out: &mut Vec<u8>) {
    out.clear();
    for column in table.key_columns() {
        table.push_key(out, *column, &value(*column));
    }
}

/// Builds the key of one row. Its parts may read `row`. Returns false if a part is NULL.
pub fn point_key<'a>(
    out: &mut Vec<u8>,
    table: &TableDef,
    parts: &'a [Expr],
    row: &Input<'a>,
    cx: &Cx<'a>,
) -> Result<bool> {
    out.clear();
    for (e, column) in parts.iter().zip(table.key_columns()) {
        let value = e.eval(row, cx)?;
        if value.is_null() {
            return Ok(false);
        }
        table.push_key(out, *column, &value);
    }
    Ok(true)
}

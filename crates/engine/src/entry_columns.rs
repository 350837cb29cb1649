//! Reads columns of a row from the key of an index entry, for an index-only scan.
//!
//! An entry's key has the index's columns, then those of the primary key. For some types the key bytes only
//! keep the order of the values: 1.0 and 1.00 have the same bytes. Columns of such types are skipped, never
//! read.
//!
//! Invariants
//! 1. A column that is read from a key has exactly the value that the row stores.
//! 2. All other columns of the returned row are NULL. The caller does not read them.
//!
//! This module does not know whether the row of an entry is visible.

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::key;
use crate::row::RowSchema;
use crate::types::ColumnType;

/// The type of a part of a key, and the table's column that it is, unless it is an expression.
pub(crate) type KeyColumn = (ColumnType, Option<usize>);

/// One part of an entry's key.
struct Part {
    column_type: ColumnType,
    /// The table's column that can be read from it.
    readable: Option<usize>,
}

/// The parts of one of the two keys in an entry's key, up to the first one whose end is not known.
struct Section {
    parts: Vec<Part>,
    /// The bit of its first part in `Wanted`.
    first_bit: u32,
}

/// The parts of the keys of an index's entries: those of the index, then those of the primary key.
pub(crate) struct EntryColumns {
    sections: [Section; 2],
}

/// The parts that a scan reads, as bits. A key has at most 32 columns, so there are at most 64 parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted(u64);

/// Columns of varying width, with their parts of the key.
type Texts<'k> = SmallVec<[(usize, &'k [u8]); 4]>;

impl EntryColumns {
    /// Returns the parts for keys whose parts have these types and, if they are columns, these ordinals.
    pub(crate) fn of(index_parts: &[KeyColumn], primary_parts: &[KeyColumn]) -> Self {
        let index_section = Section::of(index_parts, 0);
        let primary_section = Section::of(primary_parts, index_section.parts.len() as u32);
        Self { sections: [index_section, primary_section] }
    }

    /// Returns the parts with these columns. `None` means that one of them cannot be read from the key.
    pub(crate) fn wanted(&self, columns: &[usize]) -> Option<Wanted> {
        let mut bits = 0;
        for column in columns {
            bits |= 1u64 << self.sections.iter().find_map(|section| section.bit_of(*column))?;
        }
        Some(Wanted(bits))
    }

    /// Makes `row` a row with the wanted columns of an entry, whose two keys are given: the index's and the
    /// primary one.
    pub(crate) fn read(
        &self,
        wanted: Wanted,
        keys: [&[u8]; 2],
        schema: &RowSchema,
        row: &mut Vec<u8>,
    ) -> Result<()> {
        schema.make_blank(row);
        let mut texts = Texts::new();
        for (section, key) in self.sections.iter().zip(keys) {
            section.read(wanted.0 >> section.first_bit, key, schema, row, &mut texts)?;
        }
        // A row has its values of varying width in the order of its columns.
        texts.sort_unstable_by_key(|(column, _)| *column);
        for (column, text) in texts {
            schema.fill_variable(row, column, |out| key::append_bytes(out, text));
        }
        Ok(())
    }
}

impl Section {
    fn of(columns: &[KeyColumn], first_bit: u32) -> Self {
        let known = columns.iter().take_while(|(column_type, _)| key::has_known_end(*column_type));
        let parts = known.map(|(column_type, ordinal)| Part {
            column_type: *column_type,
            readable: ordinal.filter(|_| key::is_exact(*column_type)),
        });
        Self { parts: parts.collect(), first_bit }
    }

    fn bit_of(&self, column: usize) -> Option<u32> {
        let part = self.parts.iter().position(|part| part.readable == Some(column))?;
        Some(self.first_bit + part as u32)
    }

    /// Reads the wanted parts (bit 0: the first one of this key) into the row, those of varying width into
    /// `texts`.
    fn read<'k>(
        &self,
        mut wanted: u64,
        mut key: &'k [u8],
        schema: &RowSchema,
        row: &mut [u8],
        texts: &mut Texts<'k>,
    ) -> Result<()> {
        for part in &self.parts {
            if wanted == 0 {
                break;
            }
            let bytes = key::part_bytes(part.column_type, key);
            let Some((this, behind)) = bytes.and_then(|bytes| key.split_at_checked(bytes)) else {
                return Err(Error::corrupt("an index entry is shorter than its columns"));
            };
            if let Some(column) = part.readable.filter(|_| wanted & 1 == 1 && !key::is_null(this)) {
                match key::fixed_value(part.column_type, this) {
                    Some(datum) => schema.fill_fixed(row, column, &datum),
                    None => texts.push((column, this)),
                }
            }
            (key, wanted) = (behind, wanted >> 1);
        }
        Ok(())
    }
}

//! Entries of secondary indexes: how they are made, marked as deleted, and checked for uniqueness.
//!
//! Invariants
//! 1. The uniqueness check and the insert of a value are done under one mutex, which is chosen by a hash of
//!    the value (a stripe). So of two writers of the same value, the later one sees the earlier.
//! 2. Every call is idempotent: its arguments describe the final state of the entry, not a change.

use std::ops::Bound;

use super::{EntryShape, PagedIndex, PagedStore, split_entry_key};
use varve_device::{planted, reached};

use crate::context::Context;
use crate::core::{Core, WriteAccess, hash_key};
use crate::error::{Error, KeyPartValue, Result};
use crate::ids::{Owner, TxnId};
use crate::key;
use crate::node::{self, FLAG_DELETED, Stamp};
use crate::row::RowRef;
use crate::tree::{Direction, Put, Scan};
use crate::types::{Datum, Value};
use crate::versions::Version;

/// The reason why a unique value cannot be inserted.
enum Conflict {
    None,
    /// A committed row, or one of this transaction, has the value.
    Duplicate,
    /// Under SERIALIZABLE: a row has the value that was inserted after this transaction had found the value
    /// free.
    Unforeseen,
    /// A row of a transaction that has not ended may have the value.
    Open(Owner),
}

/// Returns whether the entry is short enough for a tree. If it is too long, it was refused when the row was
/// inserted, so that row is being rolled back.
pub(super) fn may_exist(core: &Core, entry: &[u8]) -> bool {
    entry.len() <= node::key_bytes_max(core.pager.page_size())
}

impl PagedIndex {
    /// Makes sure that the entry exists, either live or with a delete mark.
    pub(super) fn set_entry(&self, core: &Core, entry: &[u8], txn: TxnId, is_live: bool) -> Result<()> {
        if planted("index: every eighth entry is missed") && hash_key(0, entry).is_multiple_of(8) {
            return Ok(());
        }
        let flags = if is_live { 0 } else { FLAG_DELETED };
        let stamp = Stamp { txn: txn.get(), roll: 0, flags };
        loop {
            let mut mtr = core.pager.begin()?;
            let mut at = self.tree.locate_x(&core.pager, &mut mtr, entry)?;
            if at.found {
                self.tree.stamp(&mut mtr, &at, stamp);
                mtr.commit();
                return Ok(());
            }
            if self.tree.has_room(&mtr, &at, entry, 0) {
                reached("index: entry made");
                let put = self.tree.put(&mut mtr, &mut at, entry, stamp, &[]);
                assert_eq!(put, Put::Done, "a leaf with room refused an entry");
                mtr.commit();
                return Ok(());
            }
            drop(mtr);
            self.tree.make_room(&core.pager, entry, 0)?;
        }
    }

    /// Sets the delete mark of the entry, if it exists.
    pub(super) fn mark_entry(&self, core: &Core, entry: &[u8], txn: TxnId) -> Result<()> {
        if !may_exist(core, entry) {
            return Ok(());
        }
        let mut mtr = core.pager.begin()?;
        let at = self.tree.locate_x(&core.pager, &mut mtr, entry)?;
        if at.found {
            let stamp = Stamp { txn: txn.get(), roll: 0, flags: FLAG_DELETED };
            self.tree.stamp(&mut mtr, &at, stamp);
            mtr.commit();
        }
        Ok(())
    }

    /// Removes the entry if it exists and `may_go` allows it. `may_go` is called while the leaf is latched. A
    /// transaction that needs the entry again changes the row first, and the entry afterwards. So either
    /// `may_go` sees the change of this transaction, or the transaction finds no entry and makes a new one.
    pub(super) fn remove_entry(
        &self,
        core: &Core,
        entry: &[u8],
        may_go: impl FnOnce(bool) -> Result<bool>,
    ) -> Result<()> {
        if !may_exist(core, entry) {
            return Ok(());
        }
        let mut mtr = core.pager.begin()?;
        let mut at = self.tree.locate_x(&core.pager, &mut mtr, entry)?;
        if !at.found || !may_go(self.tree.entry(&mtr, &at).is_deleted())? {
            return Ok(());
        }
        self.tree.remove(&mut mtr, &mut at);
        let is_underfull = self.tree.is_underfull(&mtr, &at);
        mtr.commit();
        if is_underfull {
            self.tree.tidy(&core.pager, entry)?;
        }
        Ok(())
    }
}

impl PagedStore {
    /// Makes the live entry of a new version. In a unique index, it refuses a duplicate, or waits for the
    /// transaction that may have made a duplicate.
    pub(super) fn add_entry(
        &self,
        cx: &mut Context,
        index: &PagedIndex,
        entry: &[u8],
        EntryShape { prefix_bytes, has_null }: EntryShape,
        row: RowRef<'_>,
    ) -> Result<()> {
        let core = std::sync::Arc::clone(&cx.core);
        if !index.def.unique || has_null {
            return index.set_entry(&core, entry, cx.id, true);
        }
        let prefix = &entry[..prefix_bytes];
        loop {
            let stripe = core.unique.lock(hash_key(index.tree.owner(), prefix));
            match self.conflict(cx, index, entry, prefix_bytes)? {
                Conflict::None => return index.set_entry(&core, entry, cx.id, true),
                Conflict::Unforeseen => return Err(Error::ReadWriteConflict),
                Conflict::Duplicate => return Err(self.duplicate_in(index, row)?),
                Conflict::Open(owner) => {
                    drop(stripe);
                    cx.wait_for(owner, index.tree.owner(), prefix)?;
                }
            }
        }
    }

    fn conflict(
        &self,
        cx: &Context,
        index: &PagedIndex,
        entry: &[u8],
        prefix_bytes: usize,
    ) -> Result<Conflict> {
        let prefix = &entry[..prefix_bytes];
        let mut end = prefix.to_vec();
        key::prefix_end(&mut end);
        let mut scan = Scan::new(Bound::Included(prefix), Bound::Excluded(&end), Direction::Forward, 0);
        while index.tree.next_batch(cx.pager(), &mut scan)? {
            for at in 0..scan.len() {
                let other = scan.entry(at).key();
                if other == entry {
                    continue;
                }
                match self.rival(cx, index, &other)? {
                    Conflict::None => {}
                    conflict => return Ok(conflict),
                }
            }
        }
        Ok(Conflict::None)
    }

    /// Returns whether the row of another entry with the same value is a conflict.
    fn rival(&self, cx: &Context, index: &PagedIndex, entry: &[u8]) -> Result<Conflict> {
        let (core, (_, key)) = (&*cx.core, split_entry_key(entry)?);
        let (mut version, mut spare) = (Version::default(), Vec::new());
        let hold = self.tree.get(&core.pager, key, |found| {
            version.set(found.stamp(), found.payload(&mut spare));
            core.hold(TxnId::new(found.txn()), cx.id)
        })?;
        let hold = match hold {
            None => return Ok(Conflict::None),
            Some(WriteAccess::Busy(owner)) => return Ok(Conflict::Open(owner)),
            Some(WriteAccess::Mine | WriteAccess::Free(_)) if version.is_deleted() => {
                return Ok(Conflict::None);
            }
            Some(hold) => hold,
        };
        let row = self.row(self.whole_row(core, &version.payload, &mut spare)?);
        let mut current = Vec::new();
        index.entry_key(&self.def, row, key, &mut current)?;
        Ok(match current == entry {
            true if self.is_unforeseen(cx, hold, key, row) => Conflict::Unforeseen,
            true => Conflict::Duplicate,
            false => Conflict::None,
        })
    }

    /// Returns whether a conflicting row is newer than the snapshot with which this transaction has read the
    /// key, under SERIALIZABLE. The transaction found the key free. So it must begin again, and not report a
    /// duplicate.
    pub(super) fn is_unforeseen(&self, cx: &Context, hold: WriteAccess, key: &[u8], row: RowRef<'_>) -> bool {
        let (Some(serial), WriteAccess::Free(lsn)) = (&cx.serial, hold) else { return false };
        if cx.snapshot_taken().is_none_or(|snapshot| lsn <= snapshot) {
            return false;
        }
        let mut entry = Vec::new();
        serial.has_read(self.tree.owner(), key)
            || self.indexes.iter().any(|index| {
                let made = index.entry_key(&self.def, row, key, &mut entry);
                matches!(made, Ok(Some(_))) && serial.has_read(index.tree.owner(), &entry)
            })
    }

    fn key_part(&self, column: usize, row: RowRef<'_>) -> KeyPartValue {
        let def = &self.def.columns[column];
        let (name, column_type) = (def.name.clone(), def.column_type);
        KeyPartValue { name, column_type, value: row.get(column).to_value() }
    }

    /// Returns the error 23505 for a row that an index refuses.
    pub(super) fn duplicate_in(&self, index: &PagedIndex, row: RowRef<'_>) -> Result<Error> {
        let (Some(derived), Some(keys)) = (&index.def.derived, &index.keys) else {
            return Ok(self.duplicate(&index.def.name, &index.def.columns, row));
        };
        let values = keys.of(&self.def, &index.def, row)?.unwrap_or_default();
        let named = |(part, value): (usize, Value)| KeyPartValue {
            name: derived.key_name(part, &self.def).to_owned(),
            column_type: derived.key_type(part, &self.def),
            value,
        };
        Ok(violation(&index.def.name, values.into_iter().enumerate().map(named).collect()))
    }

    /// Returns the error 23505 for a row that a key of these columns refuses.
    pub(super) fn duplicate(&self, constraint: &str, columns: &[usize], row: RowRef<'_>) -> Error {
        violation(constraint, columns.iter().map(|c| self.key_part(*c, row)).collect())
    }
}

/// Returns the error 23505 with PostgreSQL's text.
pub(crate) fn violation(constraint: &str, key: Box<[KeyPartValue]>) -> Error {
    let names: Vec<_> = key.iter().map(|part| part.name.as_str()).collect();
    let values: Vec<_> = key.iter().map(|part| shown(part.value.as_datum())).collect();
    let detail = format!("Key ({})=({}) already exists.", names.join(", "), values.join(", "));
    Error::UniqueViolation { constraint: constraint.to_owned(), detail, key }
}

/// Returns a value in an error's detail.
fn shown(datum: Datum<'_>) -> String {
    match datum {
        Datum::Null => "null".into(),
        Datum::Bool(v) => if v { "t" } else { "f" }.into(),
        Datum::Int2(v) => v.to_string(),
        Datum::Int4(v) | Datum::Date(v) => v.to_string(),
        Datum::Int8(v) | Datum::Timestamp(v) | Datum::TimestampTz(v) | Datum::Time(v) => v.to_string(),
        Datum::Float4(v) => v.to_string(),
        Datum::Float8(v) => v.to_string(),
        Datum::Interval(v) => format!("{} months {} days {} us", v.months, v.days, v.micros),
        Datum::Uuid(v) => hex(&v),
        Datum::Numeric(v) => v.to_owned().to_string(),
        Datum::Text(v) => v.to_owned(),
        Datum::Bytea(v) => format!("\\x{}", hex(v)),
        Datum::Array(v) => {
            let (lower, elements) = (v.lower_bound(), v.iter().map(shown).collect::<Vec<_>>().join(","));
            let upper = i64::from(lower) + v.len() as i64 - 1;
            let bounds = if lower == 1 { String::new() } else { format!("[{lower}:{upper}]=") };
            format!("{bounds}{{{elements}}}")
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

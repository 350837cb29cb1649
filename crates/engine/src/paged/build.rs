//! Work of DDL on the rows of a table: CREATE INDEX on a filled table, new keys and columns, SET NOT NULL.
//!
//! Invariants
//! 1. The caller holds the table's exclusive lock, so only purge can change rows in the meantime.
//! 2. A new index has an entry for every version that an older snapshot may still see, not only for the
//!    newest versions.
//!
//! This module does not know the catalog.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use varve_pager::{Lsn, PageId};

use super::{KEY_LENGTH_BYTES, PagedIndex, PagedStore, split_entry_key};
use crate::catalog::{IndexDef, TableDef};
use crate::context::Context;
use crate::core::{Core, Sight, View};
use crate::error::{Error, Result};
use crate::ids::TxnId;
use crate::node::{FLAG_DELETED, Stamp};
use crate::overflow;
use crate::reshape::Reshape;
use crate::row::{RowImage, RowRef};
use crate::sort::{Sorted, Sorter};
use crate::tree::{BulkError, Direction, Scan, Tree, TreeKind, bulk_build};
use crate::versions::Version;
use crate::visible_version::step_back_kept;

/// Key, stamp and payload of an entry of a clustered leaf.
type LeafEntry = (Vec<u8>, Stamp, Vec<u8>);

/// The result of a change of a row in place.
pub(crate) struct ChangedInPlace<T> {
    /// The result of the edit.
    pub(crate) result: T,
    /// The LSN up to which the log must be durable, so that the change is durable.
    pub(crate) durable_by: Lsn,
}

/// The entry of a version in an index.
struct Contribution {
    entry: Vec<u8>,
    flags: u8,
}

impl PagedStore {
    /// Builds a secondary index of this table in the (noted, empty) segment of `def`.
    pub(crate) fn build_index(&self, cx: &mut Context, def: &IndexDef) -> Result<Tree> {
        let core = Arc::clone(&cx.core);
        let tree = Tree::open(self.tree.root(), def.place.owner, TreeKind::Secondary);
        let index = PagedIndex::open(&core, &self.def, Arc::new(def.clone()), tree);
        let mut sorter = Sorter::new(&core.temporary);
        self.for_each_row(cx, |key, version| {
            self.contribute(&core, &index, key, version, &mut |entry, flags| sorter.push(entry, &[flags]))
        })?;
        let mut sorted = sorter.finish()?;
        let stamp_txn = cx.id.get();
        let mut last = Contribution { entry: Vec::new(), flags: FLAG_DELETED };
        let entries = std::iter::from_fn(|| {
            self.next_entry(&core, &index, &mut sorted, &mut last)
                .map(|found| {
                    found.map(|c| (c.entry, Stamp { txn: stamp_txn, roll: 0, flags: c.flags }, Vec::new()))
                })
                .transpose()
        });
        bulk_build(&core.pager, def.place.space, def.place.owner, TreeKind::Secondary, &[], entries)
            .map_err(bulk_error)
    }

    /// Returns the next entry in order. Equal entries become one entry, which is live if one of them is live.
    /// Two live entries with the same value are a duplicate, which is an error.
    fn next_entry(
        &self,
        core: &Core,
        index: &PagedIndex,
        sorted: &mut Sorted,
        last: &mut Contribution,
    ) -> Result<Option<Contribution>> {
        let Some((entry, flags)) = sorted.next()? else { return Ok(None) };
        let mut found = Contribution { entry, flags: flags[0] };
        while let Some((_, flags)) = sorted.next_if_key(&found.entry)? {
            found.flags &= flags[0];
        }
        if found.flags & FLAG_DELETED == 0 {
            if index.def.unique {
                self.refuse_equal(core, index, &last.entry, &found.entry)?;
            }
            last.entry.clone_from(&found.entry);
        }
        Ok(Some(found))
    }

    fn refuse_equal(&self, core: &Core, index: &PagedIndex, last: &[u8], next: &[u8]) -> Result<()> {
        if last.len() < KEY_LENGTH_BYTES || split_entry_key(last)?.0 != split_entry_key(next)?.0 {
            return Ok(());
        }
        let (_, key) = split_entry_key(next)?;
        let (mut version, mut spare) = (Version::default(), Vec::new());
        self.copy_newest(core, key, &mut version)?;
        let row = self.row(self.whole_row(core, &version.payload, &mut spare)?);
        match index.entry_key(&self.def, row, key, &mut Vec::new())? {
            Some(shape) if !shape.has_null => Err(self.duplicate_in(index, row)?),
            _ => Ok(()),
        }
    }

    /// Calls `on_row` with key and newest version of every entry of the clustered tree.
    fn for_each_row(
        &self,
        cx: &Context,
        mut on_row: impl FnMut(&[u8], &mut Version) -> Result<()>,
    ) -> Result<()> {
        let (mut key, mut version, mut spare) = (Vec::new(), Version::default(), Vec::new());
        let mut scan = Scan::new(Bound::Unbounded, Bound::Unbounded, Direction::Forward, 0);
        while self.tree.next_batch(&cx.core.pager, &mut scan)? {
            cx.check_cancel()?;
            for at in 0..scan.len() {
                let entry = scan.entry(at);
                key.clear();
                entry.append_key(&mut key);
                version.set(entry.stamp(), entry.payload(&mut spare));
                on_row(&key, &mut version)?;
            }
        }
        Ok(())
    }

    /// Returns the error 23502 if the newest version of a row has NULL in the column.
    pub(crate) fn refuse_nulls(&self, cx: &Context, column: usize) -> Result<()> {
        let mut spare = Vec::new();
        self.for_each_row(cx, |_, version| {
            if version.is_deleted() {
                return Ok(());
            }
            let row = self.whole_row(&cx.core, &version.payload, &mut spare)?;
            self.refuse_null(column, &self.row(row).get(column))
        })
    }

    /// Makes the entries of a row: a live entry for its newest version, and entries with a delete mark for
    /// older versions that a snapshot may see.
    fn contribute(
        &self,
        core: &Core,
        index: &PagedIndex,
        key: &[u8],
        version: &mut Version,
        add: &mut dyn FnMut(&[u8], u8) -> Result<()>,
    ) -> Result<()> {
        let view = View { snapshot: core.purge.horizon(), me: TxnId::NONE, floor: core.status.floor() };
        let (mut entry, mut spare, mut flags) = (Vec::new(), Vec::new(), 0);
        loop {
            if !version.is_deleted() {
                let row = self.whole_row(core, &version.payload, &mut spare)?;
                let row = self.row(row);
                // An older version only has an entry if its key can be computed.
                let shape = match flags {
                    0 => index.new_entry_key(&self.def, row, key, &mut entry)?,
                    _ => index.entry_key(&self.def, row, key, &mut entry)?,
                };
                if shape.is_some() {
                    add(&entry, flags)?;
                }
            }
            flags = FLAG_DELETED;
            if core.sight(&view, TxnId::new(version.stamp.txn)) == Sight::Seen {
                return Ok(());
            }
            if !step_back_kept(version, core, self.tree.owner(), key)? {
                return Ok(());
            }
        }
    }

    /// Builds the clustered tree of this table's rows in the order of `def`'s primary key, in the (noted,
    /// empty) segment `owner`. `columns` says where each column of `def` comes from, if the columns are not
    /// the same. Rows keep the transaction ids of their writers. Older versions are not copied, so the error
    /// is 40001 if the caller's own snapshot needs them.
    pub(crate) fn rebuild(
        &self,
        cx: &mut Context,
        def: &TableDef,
        owner: u32,
        mut columns: Option<Reshape<'_, '_>>,
    ) -> Result<Tree> {
        let core = Arc::clone(&cx.core);
        // The new tree has no root yet. Only the space of this page id counts: overflow chains are written
        // there.
        let no_root = PageId::new(def.storage.space(), self.tree.root().no());
        let target = PagedStore {
            schema: Arc::clone(&def.row_schema),
            tree: Tree::open(no_root, owner, TreeKind::Clustered),
            indexes: Vec::new(),
            next_row_id: Arc::new(AtomicU64::new(1)),
            def: Arc::new(def.clone()),
        };
        let mut sorter = Sorter::new(&core.temporary);
        let (mut key, mut spare) = (Vec::new(), Vec::new());
        let view = cx.view()?;
        self.for_each_row(cx, |_, version| {
            if core.sight(&view, TxnId::new(version.stamp.txn)) != Sight::Seen {
                return Err(Error::SerializationFailure);
            }
            if version.is_deleted() {
                return Ok(());
            }
            let mut row = self.whole_row(&core, &version.payload, &mut spare)?;
            let reshaped;
            if let Some(columns) = &mut columns {
                reshaped = columns.apply(self.row(row), &target.schema)?;
                row = reshaped.as_bytes();
            }
            if !target.primary_key_of(target.row(row), &mut key)? {
                target.new_row_id(&core, &mut key)?;
            }
            sorter.push(&key, &[&version.stamp.txn.to_le_bytes()[..], row].concat())
        })?;
        let mut sorted = sorter.finish()?;
        let mut last = None;
        let entries = std::iter::from_fn(|| target.next_row(cx, &mut sorted, &mut last).transpose());
        bulk_build(&core.pager, def.storage.space(), owner, TreeKind::Clustered, &def.leaf_widths(), entries)
            .map_err(bulk_error)
    }

    fn next_row(
        &self,
        cx: &mut Context,
        sorted: &mut Sorted,
        last: &mut Option<Vec<u8>>,
    ) -> Result<Option<LeafEntry>> {
        let Some((key, value)) = sorted.next()? else { return Ok(None) };
        let mut raw = [0; 8];
        raw.copy_from_slice(&value[..8]);
        let row = &value[8..];
        if last.as_ref() == Some(&key) {
            let name = self.def.primary_key.as_ref().map_or("", |k| &k.name);
            return Err(self.duplicate(name, self.def.key_columns(), self.row(row)));
        }
        let stamp = Stamp { txn: u64::from_le_bytes(raw), roll: 0, flags: 0 };
        let payload = match overflow::must_spill(cx.pager(), key.len(), row.len()) {
            true => self.spill(cx, row)?,
            false => row.to_vec(),
        };
        *last = Some(key.clone());
        Ok(Some((key, stamp, payload)))
    }

    /// Reads the newest version of a row that is in its leaf, committed or not.
    pub(crate) fn peek<T>(
        &self,
        core: &Core,
        key: &[u8],
        read: impl FnOnce(RowRef<'_>) -> T,
    ) -> Result<Option<T>> {
        let mut spare = Vec::new();
        let found = self.tree.get(&core.pager, key, |entry| {
            (!entry.is_deleted()).then(|| read(self.row(entry.payload(&mut spare))))
        })?;
        Ok(found.flatten())
    }

    /// Replaces the content of a row for all transactions at once, without a transaction and without undo.
    /// `edit` returns its result and the new row, which must have the length of the old row. Returns `None`
    /// if the row does not exist.
    pub(crate) fn change_in_place<T>(
        &self,
        core: &Core,
        key: &[u8],
        edit: impl FnOnce(RowRef<'_>) -> Result<(T, RowImage)>,
    ) -> Result<Option<ChangedInPlace<T>>> {
        let mut mtr = core.pager.begin()?;
        let mut at = self.tree.locate_x(&core.pager, &mut mtr, key)?;
        if !at.found || self.tree.entry(&mtr, &at).is_deleted() {
            return Ok(None);
        }
        let entry = self.tree.entry(&mtr, &at);
        let (stamp, mut spare) = (entry.stamp(), Vec::new());
        let payload = entry.payload(&mut spare);
        let (result, image) = edit(self.row(payload))?;
        assert_eq!(image.as_bytes().len(), payload.len(), "a row of another size in place");
        let put = self.tree.put(&mut mtr, &mut at, key, stamp, image.as_bytes());
        assert_eq!(put, crate::tree::Put::Done, "a row of the same size needs no room");
        Ok(Some(ChangedInPlace { result, durable_by: mtr.commit() }))
    }
}

fn bulk_error(error: BulkError<Error>) -> Error {
    match error {
        BulkError::Tree(error) => error.into(),
        BulkError::Input(error) => error,
        BulkError::NotAscending { .. } => Error::corrupt("sorted entries do not ascend"),
    }
}

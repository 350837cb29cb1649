//! Reads the MemTable and all runs as one set of rows.
//!
//! A row is assembled from its entries, newest first: patches, down to a row entry (Arulraj 2015, section
//! 3.3, "coalescing").
//!
//! Invariants
//! 1. A read of a key looks into the MemTable, then into the runs whose Bloom filter may have the key, and
//!    stops at the first entry that needs no older one.
//!
//! This module does not know changes.

use std::ops::{Bound, ControlFlow};

use super::cursor::{Cursor, Seek};
use super::entry::{EntryAt, Kind, apply_pieces};
use super::key::{PREFIX_BYTES, SearchKey, TableId};
use super::media::{Media, damaged};
use super::run::{Run, RunForm};
use super::skip_list::{self, SkipList};
use crate::store::{Direction, KeyRange, OnRow};
use crate::store_error::StoreResult;

/// All entries of a store.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    pub(crate) media: Media<'v>,
    pub(crate) memtable: SkipList,
    /// The runs, newest first.
    pub(crate) runs: &'v [Run],
}

/// The entries of a key, newest first.
pub(crate) struct Chain<'v> {
    view: View<'v>,
    key: SearchKey<'v>,
    hash: Option<u64>,
    /// The next run to search; `None`: the MemTable is searched next.
    next_run: Option<usize>,
    /// The entry that was returned last, if older entries of it are in the same MemTable.
    last: Option<EntryAt>,
}

impl Chain<'_> {
    /// Returns the next older entry.
    pub(crate) fn next(&mut self) -> StoreResult<Option<EntryAt>> {
        let mut found = match &self.last {
            None => None,
            Some(last) => Some(skip_list::older(self.view.media.space, last)?),
        };
        while found.is_none() {
            let run = match self.next_run {
                None => {
                    self.next_run = Some(0);
                    found = self.find_in(&RunForm::MemTable(self.view.memtable))?;
                    continue;
                }
                Some(number) => {
                    self.next_run = Some(number + 1);
                    let Some(run) = self.view.runs.get(number) else { return Ok(None) };
                    run
                }
            };
            let hash = *self.hash.get_or_insert_with(|| self.key.hash());
            if run.filter.may_have(&self.view.media, hash)? {
                found = self.find_in(&run.form)?;
            }
        }
        self.last = found.filter(|entry| !entry.older.is_none());
        Ok(found)
    }

    fn find_in(&self, form: &RunForm) -> StoreResult<Option<EntryAt>> {
        match form {
            RunForm::Packed(run) => run.find(&self.view.media, &self.key),
            RunForm::MemTable(list) => {
                let found = list.find(self.view.media.space, &self.key)?.found;
                found.map(|node| skip_list::newest(self.view.media.space, node)).transpose()
            }
        }
    }
}

/// The buffers in which rows are assembled.
#[derive(Default)]
pub(crate) struct RowBuffers {
    /// The entries of a key, the newest one first.
    pub(crate) entries: Vec<EntryAt>,
    pieces: Vec<u8>,
}

impl RowBuffers {
    /// Puts the row together from `entries`, which end with a row entry or a tombstone. Returns whether the
    /// row exists.
    pub(crate) fn row(&mut self, media: &Media<'_>, row: &mut Vec<u8>) -> StoreResult<bool> {
        let Some((last, patches)) = self.entries.split_last() else { return Ok(false) };
        match last.head.kind {
            Kind::Tombstone => return Ok(false),
            Kind::Row => last.row(media, row)?,
            Kind::Patch | Kind::Reference => return Err(damaged("the entries of a row", last.at)),
        }
        for patch in patches.iter().rev() {
            patch.value(media, &mut self.pieces)?;
            apply_pieces(&self.pieces, row).ok_or(damaged("the pieces of a patch", patch.at))?;
        }
        Ok(true)
    }

    /// Adds an entry, and older entries of its MemTable as far as needed. Returns whether entries of older
    /// runs are needed.
    pub(crate) fn add(&mut self, media: &Media<'_>, mut entry: EntryAt) -> StoreResult<bool> {
        loop {
            self.entries.push(entry);
            if entry.head.kind != Kind::Patch {
                return Ok(false);
            }
            if entry.older.is_none() {
                return Ok(true);
            }
            entry = skip_list::older(media.space, &entry)?;
        }
    }
}

impl<'v> View<'v> {
    /// Returns the entries of a key.
    pub(crate) fn chain<'k>(&'k self, key: &SearchKey<'k>) -> Chain<'k> {
        Chain { view: *self, key: *key, hash: None, next_run: None, last: None }
    }

    /// Returns the newest entry of a key, or `None` if there is no entry, or if it is a tombstone.
    pub(crate) fn newest(&self, key: &SearchKey<'_>) -> StoreResult<Option<EntryAt>> {
        Ok(self.chain(key).next()?.filter(|entry| entry.head.kind != Kind::Tombstone))
    }

    /// Returns the row entry of a primary key, without the patches above it, or `None` if there is no row.
    pub(crate) fn base(&self, key: &SearchKey<'_>) -> StoreResult<Option<EntryAt>> {
        let mut chain = self.chain(key);
        while let Some(entry) = chain.next()? {
            match entry.head.kind {
                Kind::Row => return Ok(Some(entry)),
                Kind::Patch => {}
                Kind::Tombstone | Kind::Reference => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Copies the row with a primary key. Returns whether the row exists. Allocates memory only if the row
    /// has patches.
    pub(crate) fn row(&self, key: &SearchKey<'_>, row: &mut Vec<u8>) -> StoreResult<bool> {
        let mut chain = self.chain(key);
        let Some(newest) = chain.next()? else { return Ok(false) };
        match newest.head.kind {
            Kind::Tombstone => return Ok(false),
            Kind::Row => return newest.row(&self.media, row).map(|()| true),
            Kind::Patch | Kind::Reference => {}
        }
        let mut buffers = RowBuffers { entries: vec![newest], pieces: Vec::new() };
        while let Some(entry) = chain.next()? {
            buffers.entries.push(entry);
            if entry.head.kind != Kind::Patch {
                break;
            }
        }
        buffers.row(&self.media, row)
    }

    /// Copies the row that an index has under a key. Returns whether there is one.
    pub(crate) fn get(
        &self,
        table: TableId,
        index: usize,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> StoreResult<bool> {
        let key = SearchKey::of(table, index, key);
        if index == 0 {
            return self.row(&key, row);
        }
        let Some(entry) = self.newest(&key)? else { return Ok(false) };
        let mut primary = Vec::new();
        entry.value(&self.media, &mut primary)?;
        self.row(&SearchKey::of(table, 0, &primary), row)
    }

    /// Returns whether there is any entry of a table. Tombstones count, too.
    pub(crate) fn has_entries(&self, table: TableId) -> StoreResult<bool> {
        let mut merge = MergingCursors::new(self);
        let begin = SearchKey::of(table, 0, &[]);
        merge.seek(&self.media, &Limit { key: begin, seek: Seek::AtLeast })?;
        let is_there = merge.next(&self.media, Direction::Forward, &mut RowBuffers::default())?;
        Ok(is_there && SearchKey::whole(&merge.key).table() == table)
    }

    /// Calls `on_row` with the rows of a range. Returns the number of tombstones that it has passed.
    pub(crate) fn scan(
        &self,
        table: TableId,
        index: usize,
        range: &KeyRange<'_>,
        direction: Direction,
        on_row: &mut OnRow<'_>,
    ) -> StoreResult<u64> {
        let mut merge = MergingCursors::new(self);
        merge.seek(&self.media, &Limit::of(table, index, range, direction))?;
        let end = Limit::of(table, index, range, opposite(direction));
        let (mut buffers, mut row, mut primary) = (RowBuffers::default(), Vec::new(), Vec::new());
        let mut tombstones = 0;
        while merge.next(&self.media, direction, &mut buffers)? {
            if !end.is_before_end(&merge.key) {
                break;
            }
            let is_there = match buffers.entries.first() {
                Some(entry) if entry.head.kind == Kind::Tombstone => {
                    tombstones += 1;
                    continue;
                }
                Some(entry) if entry.head.kind == Kind::Reference => {
                    entry.value(&self.media, &mut primary)?;
                    self.row(&SearchKey::of(table, 0, &primary), &mut row)?
                }
                _ => buffers.row(&self.media, &mut row)?,
            };
            let key = merge.key.get(PREFIX_BYTES..).unwrap_or_default();
            if is_there && on_row(key, &row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(tombstones)
    }
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Forward => Direction::Backward,
        Direction::Backward => Direction::Forward,
    }
}

/// One end of a range.
struct Limit<'k> {
    key: SearchKey<'k>,
    /// The direction in which a cursor moves from the key of this end into the range.
    seek: Seek,
}

impl<'k> Limit<'k> {
    /// Returns the end of a range at which a scan in this direction begins.
    fn of(table: TableId, index: usize, range: &KeyRange<'k>, direction: Direction) -> Limit<'k> {
        let of = |key, seek| Limit { key: SearchKey::of(table, index, key), seek };
        match (direction, range.from, range.to) {
            (Direction::Forward, Bound::Included(key), _) => of(key, Seek::AtLeast),
            (Direction::Forward, Bound::Excluded(key), _) => of(key, Seek::Above),
            (Direction::Forward, Bound::Unbounded, _) => of(&[], Seek::AtLeast),
            (Direction::Backward, _, Bound::Included(key)) => of(key, Seek::AtMost),
            (Direction::Backward, _, Bound::Excluded(key)) => of(key, Seek::Below),
            // The empty key of the next index is greater than all keys of this index.
            (Direction::Backward, _, Bound::Unbounded) => {
                Limit { key: SearchKey::of(table, index + 1, &[]), seek: Seek::Below }
            }
        }
    }

    /// Returns whether a key is on the inner side of this end.
    fn is_before_end(&self, whole_key: &[u8]) -> bool {
        let order = whole_key
            .get(..PREFIX_BYTES)
            .unwrap_or_default()
            .cmp(&self.key.prefix[..])
            .then_with(|| whole_key.get(PREFIX_BYTES..).unwrap_or_default().cmp(self.key.key));
        match self.seek {
            Seek::AtLeast => order.is_ge(),
            Seek::Above => order.is_gt(),
            Seek::AtMost => order.is_le(),
            Seek::Below => order.is_lt(),
        }
    }
}

/// Cursors in several sources, newest first. They are read as one sequence of keys.
pub(crate) struct MergingCursors {
    cursors: Vec<Cursor>,
    /// The key of the last entries that were read.
    pub(crate) key: Vec<u8>,
    is_begun: bool,
}

impl MergingCursors {
    fn new(view: &View<'_>) -> MergingCursors {
        let memtable = RunForm::MemTable(view.memtable);
        let forms = std::iter::once(&memtable).chain(view.runs.iter().map(|run| &run.form));
        MergingCursors { cursors: forms.map(Cursor::new).collect(), key: Vec::new(), is_begun: false }
    }

    /// Cursors in some runs, newest first. Each cursor is at the first key of its run.
    pub(crate) fn at_begin<'r>(
        media: &Media<'_>,
        runs: impl Iterator<Item = &'r Run>,
    ) -> StoreResult<MergingCursors> {
        let cursors = runs.map(|run| Cursor::new(&run.form)).collect();
        let mut merge = MergingCursors { cursors, key: Vec::new(), is_begun: false };
        let begin = Limit { key: SearchKey::whole(&[0; PREFIX_BYTES]), seek: Seek::AtLeast };
        merge.seek(media, &begin)?;
        Ok(merge)
    }

    fn seek(&mut self, media: &Media<'_>, limit: &Limit<'_>) -> StoreResult<()> {
        self.is_begun = false;
        self.cursors.iter_mut().try_for_each(|cursor| cursor.seek(media, &limit.key, limit.seek))
    }

    /// Reads the entries of the next key into the buffers, as far as they are needed. Returns whether there
    /// is a next key.
    pub(crate) fn next(
        &mut self,
        media: &Media<'_>,
        direction: Direction,
        buffers: &mut RowBuffers,
    ) -> StoreResult<bool> {
        if self.is_begun {
            for cursor in &mut self.cursors {
                if cursor.entry.is_some() && cursor.key == self.key {
                    cursor.step(media, direction)?;
                }
            }
        }
        self.is_begun = true;
        buffers.entries.clear();
        let keys = self.cursors.iter().filter(|cursor| cursor.entry.is_some()).map(|cursor| &cursor.key);
        let next = match direction {
            Direction::Forward => keys.min(),
            Direction::Backward => keys.max(),
        };
        let Some(next) = next else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(next);
        for cursor in &self.cursors {
            let Some(entry) = cursor.entry.filter(|_| cursor.key == self.key) else { continue };
            if !buffers.add(media, entry)? {
                break;
            }
        }
        Ok(true)
    }
}

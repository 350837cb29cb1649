//! Purges one undo record: removes everything that only versions older than every snapshot need.
//!
//! Invariants
//! 1. After a crash, records that were already purged are purged again, so purge is idempotent. The only step
//!    that could not be repeated is the release of an overflow chain. So the record stores how far this
//!    release got.
//! 2. An index entry is removed only if no version newer than the record has it.
//!
//! This module does not know which records may be purged (`crate::purge`).

use varve_device::{planted, reached};
use varve_pager::PageId;

use super::{PagedIndex, PagedStore};
use crate::core::{Core, hash_key};
use crate::error::Result;
use crate::ids::RollPointer;
use crate::overflow;
use crate::row::RowRef;
use crate::undo::{Kind, RecordRef, page};
use crate::versions::Version;
use crate::visible_version::step_back_kept;

impl PagedStore {
    /// Purges the record of an update or delete.
    pub(crate) fn purge_row(&self, core: &Core, record: &RecordRef<'_>, pointer: RollPointer) -> Result<()> {
        if record.kind != Kind::UpdatePlain {
            let _stripe = core.rows.lock(hash_key(self.tree.owner(), record.key));
            self.purge_entries(core, record, pointer)?;
            if record.kind == Kind::Delete {
                self.purge_deleted(core, record, pointer)?;
            }
        }
        match record.chain.filter(|_| !planted("purge: overflow chains stay")) {
            Some(first) => self.purge_chain(core, PageId::new(self.tree.root().space(), first), pointer),
            None => Ok(()),
        }
    }

    fn purge_entries(&self, core: &Core, record: &RecordRef<'_>, pointer: RollPointer) -> Result<()> {
        let payload = record.before.payload;
        // The entries are removed before the chain is freed. So if a part of the chain is freed, the entries
        // are removed.
        let is_done = overflow::is_pointer(payload)
            && record.chain != Some(overflow::first_page(&self.tree, payload).no());
        if self.indexes.is_empty() || payload.is_empty() || is_done {
            return Ok(());
        }
        let (mut spare, mut entry) = (Vec::new(), Vec::new());
        // This check is needed: fuzzing found an undo page that was damaged although its checksum was right.
        // On this page, a row's fields were outside of the row.
        let row = RowRef::checked(&self.schema, self.whole_row(core, payload, &mut spare)?)?;
        for index in &self.indexes {
            if index.entry_key(&self.def, row, record.key, &mut entry)?.is_none() {
                continue;
            }
            index.remove_entry(core, &entry, |is_deleted| {
                Ok(is_deleted && !self.newer_has(core, index, record.key, &entry, pointer)?)
            })?;
        }
        Ok(())
    }

    /// Returns whether a version newer than the record at `until` has this index entry.
    fn newer_has(
        &self,
        core: &Core,
        index: &PagedIndex,
        key: &[u8],
        entry: &[u8],
        until: RollPointer,
    ) -> Result<bool> {
        let mut version = Version::default();
        if !self.copy_newest(core, key, &mut version)? {
            return Ok(false);
        }
        loop {
            if self.version_has(core, index, key, &version, entry)? {
                return Ok(true);
            }
            let is_last = RollPointer::from_raw(version.stamp.roll) == until;
            if is_last || !step_back_kept(&mut version, core, self.tree.owner(), key)? {
                return Ok(false);
            }
        }
    }

    /// Removes the row with a delete mark, if the record's transaction is the last one that changed it.
    fn purge_deleted(&self, core: &Core, record: &RecordRef<'_>, pointer: RollPointer) -> Result<()> {
        let mut mtr = core.pager.begin()?;
        let mut at = self.tree.locate_x(&core.pager, &mut mtr, record.key)?;
        if !at.found {
            return Ok(());
        }
        let entry = self.tree.entry(&mtr, &at);
        let is_same = entry.txn() == record.txn.get() && entry.roll() == pointer.raw();
        if !is_same || !entry.is_deleted() {
            return Ok(());
        }
        reached("purge: deleted row");
        self.tree.remove(&mut mtr, &mut at);
        let is_underfull = self.tree.is_underfull(&mtr, &at);
        mtr.commit();
        if is_underfull {
            self.tree.tidy(&core.pager, record.key)?;
        }
        Ok(())
    }

    fn purge_chain(&self, core: &Core, mut first: PageId, pointer: RollPointer) -> Result<()> {
        loop {
            let mut mtr = core.pager.begin()?;
            reached("purge: overflow page");
            let next = overflow::free_first(&mut mtr, &self.tree, first)?;
            let undo = mtr.x(pointer.page())?;
            page::patch_chain(&mut mtr, undo, pointer.slot(), next);
            mtr.commit();
            match next {
                Some(next) => first = next,
                None => return Ok(()),
            }
        }
    }
}

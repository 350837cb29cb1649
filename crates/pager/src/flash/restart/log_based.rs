//! Log-based restart (LBR, Do 2012, section 4.3.2): for each page that the cache writes to a slot, the log
//! gets a record of the page, its version and the slot. The next start uses these records to find pages on
//! flash.
//!
//! A checkpoint logs the whole slot table again if the redo position would pass the existing records
//! (`notes.rs` has their format).
//!
//! Invariants
//! 1. A record is a statement about the log up to the record's own position (`record.rs`). Later changes of
//!    the page are in the log after it, and a start reads them. So nothing is logged when a slot is freed.
//! 2. The cache needs the log from the last record of the whole table on.
//!
//! This module does not know what happens to a slot after its record.

use std::collections::HashMap;

use varve_device::reached;

use super::notes::{EPOCH_BYTES, NOTE_FLASH};
use super::record::Record;
use crate::base::error::{PagerError, Result};
use crate::base::ids::PageId;
use crate::base::lsn::Lsn;
use crate::flash::cache::{FlashCache, add};
use crate::flash::config::FlashRestart;
use crate::flash::restart::notes::{NOTE_SLOTS_MAX, NOTED_SLOT_BYTES};
use crate::flash::table::Kept;
use crate::log::record::{put_varint, take_varint};
use crate::log::{Observe, Record as LogRecord};

impl FlashCache {
    /// Appends note records of these slots to the log. Returns false if the log has no space for them.
    pub(super) fn note_slots(&self, slots: &[(u32, Kept)]) -> bool {
        if slots.is_empty() {
            return true;
        }
        let mut payload = Vec::with_capacity(EPOCH_BYTES + slots.len() * NOTED_SLOT_BYTES as usize);
        payload.extend(self.records.hardening.whose().epoch.to_le_bytes());
        for (stored, Kept { page, lsn, .. }) in slots {
            let fields = [u64::from(*stored), page.to_u64(), lsn.get()];
            fields.into_iter().for_each(|field| put_varint(&mut payload, field));
        }
        add(&self.counters.hardened);
        self.around.log.note(NOTE_FLASH, &payload)
    }

    /// Is called before the redo position is taken. The position would be `from` now (`None` means the end of
    /// the log), the log's open block begins at `block`, and the log ends at `end`. Returns the limit for the
    /// position, so that a start still finds the records of all slots. `None` means no limit.
    pub(crate) fn keep_in_log(
        &self,
        from: Option<Lsn>,
        block: impl Fn() -> Lsn,
        end: impl Fn() -> Lsn,
    ) -> Option<Lsn> {
        if self.records.scheme != FlashRestart::LogBased || !self.records.hardening.is_on() || !self.is_on() {
            return None;
        }
        let mut noted = self.records.keeping.noted.lock();
        if let Some((begin, then)) = *noted
            && (from.is_some_and(|from| from <= begin) || then == end())
        {
            return Some(begin);
        }
        if !self.around.log.make_room_for(&self.notes_of_table()) {
            reached("flash: no room in the log for the table");
            *noted = None;
            return None;
        }
        let begin = block();
        let all = self.tables().enumerate().all(|(partition, table)| {
            let each = (0..table.slot_count()).filter_map(|slot| {
                Some((
                    self.slots.stored(partition, slot),
                    table.kept(slot).filter(|kept| self.is_newest(kept))?,
                ))
            });
            let slots: Vec<(u32, Kept)> = each.collect();
            slots.chunks(NOTE_SLOTS_MAX).all(|some| self.note_slots(some))
        });
        if !all {
            reached("flash: no room in the log for the table");
            *noted = None;
            return None;
        }
        add(&self.counters.hardened_passes);
        *noted = Some((begin, end()));
        Some(begin)
    }

    /// Returns the largest sizes, in bytes, of the note records of the whole slot table.
    fn notes_of_table(&self) -> Vec<usize> {
        let bytes = |slots: usize| EPOCH_BYTES + slots * NOTED_SLOT_BYTES as usize;
        let of_partition = |kept: u64| {
            let kept = kept as usize;
            let whole = std::iter::repeat_n(bytes(NOTE_SLOTS_MAX), kept / NOTE_SLOTS_MAX);
            whole.chain(Some(kept % NOTE_SLOTS_MAX).filter(|rest| *rest > 0).map(bytes))
        };
        self.tables().map(|table| table.counts()).flat_map(|of| of_partition(of.clean + of.dirty)).collect()
    }
}

/// The slots according to the note records in the log, for the last epoch in the log.
#[derive(Default)]
pub(crate) struct Noted {
    epoch: u64,
    slots: HashMap<u32, Record>,
    by_page: HashMap<PageId, u32>,
    changed: HashMap<PageId, Lsn>,
}

impl Noted {
    /// Returns the records of all slots, if the log's epoch is this one.
    pub(in crate::flash) fn records(&self, epoch: u64) -> impl Iterator<Item = (u32, Record)> + '_ {
        let slots = self.slots.iter().filter(move |_| epoch == self.epoch);
        slots.map(|(stored, record)| (*stored, *record))
    }

    fn forget(&mut self, page: PageId) {
        let slot = self.by_page.remove(&page);
        slot.and_then(|slot| self.slots.remove(&slot));
    }

    fn note(&mut self, lsn: Lsn, payload: &[u8]) -> Option<()> {
        let (epoch, mut payload) = payload.split_first_chunk::<EPOCH_BYTES>()?;
        let epoch = u64::from_le_bytes(*epoch);
        if epoch != self.epoch {
            // The file begins with a new epoch.
            self.epoch = epoch;
            self.slots.clear();
            self.by_page.clear();
        }
        while !payload.is_empty() {
            let stored = u32::try_from(take_varint(&mut payload)?).ok()?;
            let page = PageId::from_u64(take_varint(&mut payload)?)?;
            let page_lsn = Lsn::new(take_varint(&mut payload)?);
            if self.changed.get(&page).is_some_and(|changed| *changed > page_lsn) {
                continue;
            }
            self.forget(page);
            let at = lsn.get();
            let record = Record {
                page,
                lsn: page_lsn,
                before: lsn,
                last: at,
                last_but_one: at,
                admitted: at,
                is_dirty: false,
            };
            if let Some(other) = self.slots.insert(stored, record) {
                self.by_page.remove(&other.page);
            }
            self.by_page.insert(page, stored);
        }
        Some(())
    }
}

impl Observe for Noted {
    fn observe(&mut self, lsn: Lsn, record: &LogRecord<'_>) -> Result<()> {
        match *record {
            LogRecord::Change { page, .. } => {
                self.changed.insert(page, lsn);
                if self.by_page.get(&page).is_some_and(|stored| self.slots[stored].lsn < lsn) {
                    self.forget(page);
                }
                Ok(())
            }
            LogRecord::Note { kind: NOTE_FLASH, payload } => {
                self.note(lsn, payload).ok_or_else(|| PagerError::Corrupt {
                    what: format!("the note of slots on flash at LSN {lsn} makes no sense"),
                })
            }
            LogRecord::Note { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::notes::NOTED_SLOT_BYTES;
    use super::*;
    use crate::base::ids::{PageNo, SpaceId};

    fn page(no: u32) -> PageId {
        PageId::new(SpaceId::DATA, PageNo(no))
    }

    fn payload(epoch: u64, slots: &[(u32, u32, u64)]) -> Vec<u8> {
        let mut payload = epoch.to_le_bytes().to_vec();
        for (slot, no, lsn) in slots {
            let fields = [u64::from(*slot), page(*no).to_u64(), *lsn];
            fields.into_iter().for_each(|field| put_varint(&mut payload, field));
        }
        payload
    }

    fn found(noted: &Noted, epoch: u64) -> Vec<(u32, PageId)> {
        let mut found: Vec<_> = noted.records(epoch).map(|(stored, record)| (stored, record.page)).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn notes_of_an_earlier_epoch_of_the_file_say_nothing_of_it() {
        let mut noted = Noted::default();
        noted.note(Lsn::new(100), &payload(7, &[(1, 11, 50), (2, 12, 60)])).unwrap();
        assert_eq!(found(&noted, 7), [(1, page(11)), (2, page(12))]);
        assert_eq!(found(&noted, 8), []);
        noted.note(Lsn::new(200), &payload(8, &[(1, 13, 150)])).unwrap();
        assert_eq!((found(&noted, 7), found(&noted, 8)), (vec![], vec![(1, page(13))]));
    }

    #[test]
    fn a_note_that_is_cut_off_makes_no_sense() {
        let whole = payload(7, &[(1, 11, 50)]);
        assert_eq!(&whole[..EPOCH_BYTES], 7_u64.to_le_bytes());
        for bytes in 0..whole.len() {
            let is_whole = Noted::default().note(Lsn::new(100), &whole[..bytes]).is_some();
            assert_eq!(is_whole, bytes == EPOCH_BYTES, "{bytes} bytes");
        }
    }

    /// The numbers in the test are the largest possible ones.
    #[test]
    fn a_slot_takes_no_more_room_in_a_note_than_is_reckoned_with() {
        let mut payload = Vec::new();
        let last = PageId::new(SpaceId::ROLLBACK, PageNo(u32::MAX));
        let fields = [u64::from(u32::MAX), last.to_u64(), (1 << 49) - 1];
        fields.into_iter().for_each(|field| put_varint(&mut payload, field));
        assert!(payload.len() as u64 <= NOTED_SLOT_BYTES, "{} bytes", payload.len());
    }
}

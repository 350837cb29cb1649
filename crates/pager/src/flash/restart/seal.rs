//! The seal of a clean shutdown. With a seal, changed pages stay on flash, and the next start needs no redo.
//!
//! A seal is a number that the cache file and the control file both have.
//!
//! ```text
//!   shutdown:  records of all slots durable --> header: seal, sum over the records
//!              --> control file: the seal, and the end of the log
//!   start:     seal as in the control file, and the sum is right
//!                --> the records say which slots are dirty; the log is read from its end on
//!              otherwise, or if any page had to be repaired
//!                --> as after a crash, from the redo position, which was kept
//! ```
//!
//! Invariants
//! 1. Under a seal the data files lack exactly the pages in dirty slots. The dirty-page table has exactly
//!    these pages, each with the slot's version.
//! 2. A start removes the seal from the control file before anything changes, and writes another header to
//!    the cache file.
//! 3. The redo position does not move until the data files have the dirty pages. If a slot has another page
//!    than its record says, it counts as lost.
//!
//! This module does not know what else a start reads of the log.

use varve_device::{AlignedBuf, Directory, planted, reached};

use super::record::{TABLE_BLOCK_BYTES, sum_of};
use crate::base::error::Result;
use crate::control::random_id;
use crate::flash::cache::FlashCache;
use crate::flash::config::FlashRestart;
use crate::flash::io::store::{Seal, Store, Whose};
use crate::flash::restart::start::{ANY_SUM, READ_BLOCKS};

impl FlashCache {
    /// Returns whether a shutdown can write a seal with this design and this restart scheme.
    pub(crate) fn may_be_sealed(&self) -> bool {
        self.records.scheme == FlashRestart::LazyVerification
            && self.policy.design().may_end_dirty()
            && !self.around.is_below_nvm
    }

    /// Seals the records if they name every page that the data files lack. `sum` is the sum over the records.
    /// No page changes any more. Returns the seal's number, or the reason why there is no seal.
    pub(crate) fn seal(&self, sum: u32) -> std::result::Result<u64, String> {
        if let Some(stranger) = self.stranger() {
            reached("flash: what home lacks is not all in slots");
            return Err(stranger);
        }
        let seal = Seal { number: random_id(), sum };
        let signed = self.drive.store.sign(&Whose { seal, ..self.records.hardening.whose() });
        match signed.inspect_err(|cause| self.note_error(cause)) {
            Ok(()) => Ok(seal.number),
            Err(cause) => Err(cause.to_string()),
        }
    }

    /// Reports that a shutdown leaves changed pages on flash without a seal, and why.
    pub(crate) fn tell_unsealed(&self, why: &str) {
        self.tell(&format!("is left without a seal, and the next start redoes what home lacks: {why}"));
    }

    /// Reports that a start uses the slots, but does redo of the changes that only the cache has. `mended`
    /// says whether the reason is that pages had to be repaired.
    pub(crate) fn tell_redone(&self, mended: bool) {
        self.tell(match mended {
            true => "is read with redo, since pages at home had to be mended: what only it has is redone",
            false => "is not as the last shutdown left it; what only it has is redone",
        });
    }

    /// Looks for a contradiction, and describes it. It is a page that the data files lack and that is in no
    /// slot, or in a slot in another version. Or it is a slot that should have such a page, and does not have
    /// it.
    fn stranger(&self) -> Option<String> {
        let dirty: Vec<_> = self.tables().flat_map(|table| table.dirty_pages()).collect();
        let is_told = |id| {
            let version = self.table_of(id).version(id);
            version.is_some_and(|(lsn, is_dirty)| {
                is_dirty && self.around.ledger.has(id) && self.around.ledger.is_held_by(id, lsn)
            })
        };
        let lacking = self.around.ledger.pages_count();
        if lacking != dirty.len() {
            return Some(format!("home lacks {lacking} pages, and {} are dirty here", dirty.len()));
        }
        let stranger = dirty.iter().find(|id| !is_told(**id))?;
        Some(format!("{stranger} is not here as the log has it"))
    }

    /// Returns whether the records on flash are unchanged since start `start` wrote the seal `number`.
    pub(crate) fn has_seal(&self, number: u64, start: u64) -> bool {
        let is_meant = self.may_be_sealed() && self.is_on();
        let is_it = self.records.hardening.seal.number == number
            && self.records.hardening.earlier.is_ok_and(|marks| marks.are_of(start));
        let read = if is_meant && is_it { self.sum_of_table() } else { return false };
        let is_whole = read.is_ok_and(|sum| sum == self.records.hardening.seal.sum);
        if !is_whole {
            reached("flash: a seal over other records");
        }
        is_whole || planted(ANY_SUM)
    }

    fn sum_of_table(&self) -> Result<u32> {
        let (blocks, mut sum) = (self.drive.store.table_blocks(), 0);
        for first in (0..blocks).step_by(READ_BLOCKS as usize) {
            let mut bytes = AlignedBuf::new(READ_BLOCKS.min(blocks - first) as usize * TABLE_BLOCK_BYTES);
            self.drive.store.read_records(first, &mut bytes)?;
            sum = sum_of(sum, &bytes);
        }
        Ok(sum)
    }
}

/// Returns whether the cache file of this database in a directory has this seal. A file that can't be read
/// has none.
pub(crate) fn is_sealed(directory: &dyn Directory, database: u64, number: u64) -> bool {
    let seal = Store::seal_in(directory, database);
    seal.is_ok_and(|seal| seal.is_some_and(|seal| seal.number == number))
}

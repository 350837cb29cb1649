//! Logs how the pages of owners are compressed. When the old part of the log is about to be cut, the
//! compression of all owners is logged again. So redo finds the compression of every owner.
//!
//! This module does not know the format of the log record (`log/notes/stored_forms.rs`).

use varve_device::reached;

use crate::base::compression::Compression;
use crate::base::ids::SpaceId;
use crate::base::lsn::Lsn;
use crate::log::notes::stored_forms::{Form, NOTE_FORMS, encode};
use crate::log::{GROUP_SLACK_BYTES, record};
use crate::running::shared::Shared;

/// The largest number of owners in one log record.
const NOTE_OWNERS_MAX: usize = 1024;
/// When this share of the log has been written since the last full record, all owners are logged again. Then
/// the log before it can be cut.
const LOG_SHARE: u64 = 64;

impl Shared {
    /// Sets the compression with which pages of these owners are stored from now on, and logs it.
    pub(crate) fn change_forms(&self, space: SpaceId, owners: &[(u32, Option<Compression>)]) {
        // The lock keeps the log records in the order of the changes.
        let _noting = self.forms_noted.lock();
        if self.compressions.set(space, owners) {
            let forms: Vec<Form> = owners.iter().map(|(owner, how)| (space, *owner, *how)).collect();
            self.append_forms(&forms);
        }
    }

    /// Is called by a checkpoint. Returns the position from which the log must be kept, so that redo finds
    /// the compression of all owners. `oldest` is the position from which the log is kept for other reasons.
    pub(crate) fn keep_forms(&self, oldest: Lsn) -> Option<Lsn> {
        let mut noted = self.forms_noted.lock();
        let share = self.log.cleaning_bytes() / LOG_SHARE;
        // True if free space could be reused at once if the log before `oldest` were not kept for this
        // record.
        let keeps_room = |noted| self.spaces.wait_between(noted, oldest);
        if noted.is_some_and(|noted| oldest <= noted || oldest.since(noted) <= share && !keeps_room(noted)) {
            return *noted;
        }
        let forms = self.compressions.own();
        *noted = if forms.is_empty() { None } else { self.append_forms(&forms) };
        *noted
    }

    /// Logs the compression of owners. Returns the start of the block with the first record, or `None` if
    /// there is no space for all of them.
    fn append_forms(&self, forms: &[Form]) -> Option<Lsn> {
        let mut first = None;
        for forms in forms.chunks(NOTE_OWNERS_MAX) {
            let mut records = Vec::new();
            record::put_note(&mut records, NOTE_FORMS, &encode(forms));
            if self.log.check().is_err() || !self.log.has_segment_for(records.len() + GROUP_SLACK_BYTES) {
                return None;
            }
            let block = self.log.append_note(&records).block;
            first = first.or(Some(block));
        }
        reached("compressions: forms noted");
        first
    }
}

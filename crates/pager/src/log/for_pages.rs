//! Implements [`WriteAhead`], the interface of the log for the pool and the levels below it.
//!
//! This module does not know which code calls its functions.

use varve_device::planted;

use crate::base::error::{PagerError, Result};
use crate::base::image::Image;
use crate::base::lsn::Lsn;
use crate::log::notes::written::{self, BEFORE_REDO, IMAGE_IGNORED};
use crate::log::write_ahead::WriteAhead;
use crate::log::{GROUP_SLACK_BYTES, Log, record};

impl WriteAhead for Log {
    fn durable_lsn(&self) -> Lsn {
        self.durable()
    }

    fn durable_block(&self) -> Lsn {
        Log::durable_block(self)
    }

    fn flush(&self, upto: Lsn) -> Result<()> {
        Ok(Log::flush(self, upto)?)
    }

    fn note_written(&self, images: &[&Image]) {
        let mut records = Vec::new();
        record::put_note(&mut records, written::NOTE_WRITTEN, &written::encode(images));
        // The record is only a hint, so no new segment is made for it.
        let is_left_out = planted(IMAGE_IGNORED) || planted(BEFORE_REDO);
        if self.has_segment_for(records.len()) && !is_left_out {
            self.append_note(&records);
        }
    }

    fn note(&self, kind: u8, payload: &[u8]) -> bool {
        let mut records = Vec::with_capacity(payload.len() + 8);
        record::put_note(&mut records, kind, payload);
        let has_room = self.has_segment_for(records.len());
        if has_room {
            self.append_note(&records);
        }
        has_room
    }

    fn make_room_for(&self, notes: &[usize]) -> bool {
        let groups: Vec<usize> = notes.iter().map(|bytes| bytes + GROUP_SLACK_BYTES).collect();
        // An error of the device need not be reported here, because other callers get it, too.
        self.make_segments_for(&groups).unwrap_or(false)
    }

    fn check(&self) -> Result<()> {
        Ok(Log::check(self)?)
    }

    fn stop(&self, cause: &PagerError) {
        match cause {
            // Only the cause is passed on. The rest of the message is added again for each caller that finds
            // the log stopped.
            PagerError::Stopped { cause } => self.poison(cause),
            other => self.poison(&other.to_string()),
        }
    }

    fn panicked(&self) {
        Log::panicked(self);
    }
}

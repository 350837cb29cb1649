//! Fuzzes the decoding of the log: groups of records, records of page changes, and records that change no
//! page (notes).
//!
//! The input has the bytes of a group, without its length.

use varve_pager::fuzzing;
use varve_pager::log::record::{self, Records};
use varve_pager::log::{Record, RecordError};

const NOTE_DISCARD: u8 = 1;
const NOTE_WRITTEN: u8 = 2;
const NOTE_FORMS: u8 = 4;

/// Checks that records which can be read are the same after encoding and decoding.
pub fn log_records(bytes: &[u8]) {
    let read: Vec<Record<'_>> = Records::new(bytes).map_while(Result::ok).filter(can_be_written).collect();
    let mut again = Vec::new();
    read.iter().for_each(|record| put(&mut again, record));
    let back: Result<Vec<_>, RecordError> = Records::new(&again).collect();
    assert_eq!(back.as_ref(), Ok(&read));
    for record in read {
        if let Record::Note { kind, payload } = record {
            note(kind, payload);
        }
    }
}

/// Returns whether a record can be written. Operation 0 can be read, but redo refuses it and no code writes
/// it.
fn can_be_written(record: &Record<'_>) -> bool {
    !matches!(record, Record::Change { op: 0, .. })
}

fn put(out: &mut Vec<u8>, record: &Record<'_>) {
    match *record {
        Record::Change { page, op, payload } => {
            record::put_page(out, page);
            record::put_change(out, op, payload);
        }
        Record::Note { kind, payload } => record::put_note(out, kind, payload),
    }
}

fn note(kind: u8, payload: &[u8]) {
    match kind {
        NOTE_DISCARD => {
            for range in fuzzing::discarded(payload).into_iter().flatten() {
                assert!(range.count == 0 || range.contains(range.first.plus(range.count - 1)));
            }
        }
        NOTE_WRITTEN => drop(fuzzing::written(payload)),
        NOTE_FORMS => drop(fuzzing::forms(payload)),
        _ => {}
    }
}

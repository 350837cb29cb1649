//! When the log's device fails, no more commits are acknowledged, and no acknowledged commit is lost.

use std::sync::Arc;

use crate::log_support::*;
use varve_device::{Directory, ErrorKind, Fault, Faulty, MemoryDirectory, Operation, Rule, When};
use varve_pager::log::{Admission, FIRST_LSN, LogConfig, StoredLog, Tail};
use varve_pager::{Log, LogError};

fn faulty_log(directory: &Arc<MemoryDirectory>) -> (Arc<Faulty>, Log) {
    let faulty = Faulty::wrap(directory.clone());
    let wrapped: Arc<dyn Directory> = faulty.clone();
    let config = LogConfig { directory: wrapped, ..config(directory) };
    let log = StoredLog::open(config, DATABASE).unwrap().resume(1, Tail::empty(), FIRST_LSN).unwrap();
    (faulty, log)
}

/// Commits until the first error. Returns the acknowledged commits.
fn commit_until_error(log: &Log, most: usize) -> (Vec<Note>, Option<LogError>) {
    let mut acknowledged = Vec::new();
    for i in 0..most {
        match log.admit() {
            Ok(Admission::Go) => {}
            Ok(Admission::Full) => log.truncate(log.redo_point(|| None).unwrap()).unwrap(),
            Err(error) => return (acknowledged, Some(error)),
        }
        let bytes = payload(i, 3000);
        let lsn = append(log, &bytes);
        if let Err(error) = log.flush(lsn) {
            return (acknowledged, Some(error));
        }
        acknowledged.push((lsn, bytes));
    }
    (acknowledged, None)
}

#[test]
fn the_nth_failed_write_stops_the_log_for_good() {
    for nth in 1..40 {
        for fault in
            [Fault::Fails(ErrorKind::Io(5)), Fault::Fails(ErrorKind::NoSpace), Fault::Short, Fault::Gone]
        {
            let directory = MemoryDirectory::new();
            let (faulty, log) = faulty_log(&directory);
            let rule = Rule { operation: Some(Operation::Write), space: None, when: When::Nth(nth), fault };
            faulty.arm(rule.clone());
            let (acknowledged, error) = commit_until_error(&log, 40);
            if error.is_none() && rule.fault == Fault::Fails(ErrorKind::NoSpace) {
                // The fault hit a segment that was being made. The log continues with the segments that it
                // has.
                assert_eq!((acknowledged.len(), faulty.fired_count()), (40, 1), "{rule:?}");
                continue;
            }
            assert!(error.is_some(), "write {nth} failed unnoticed: {rule:?}");
            faulty.disarm();
            let (notes, _) = read_all(&directory).unwrap();
            assert!(notes.len() >= acknowledged.len(), "{rule:?}");
            assert_eq!(notes[..acknowledged.len()], acknowledged, "{rule:?}");
        }
    }
}

#[test]
fn after_a_failed_flush_no_commit_succeeds_although_the_device_is_well_again() {
    let directory = MemoryDirectory::new();
    let (faulty, log) = faulty_log(&directory);
    let rule = |fault| Rule { operation: Some(Operation::Write), space: None, when: When::Nth(1), fault };
    faulty.arm(rule(Fault::Fails(ErrorKind::Io(5))));
    let lost = append(&log, b"lost");
    assert!(matches!(log.flush(lost), Err(LogError::Poisoned(_))));
    faulty.disarm();
    let later = append(&log, b"later");
    assert!(log.flush(later).is_err());
    assert!(log.admit().is_err());
    assert!(read_all(&directory).unwrap().0.is_empty());
}

#[test]
fn a_full_device_is_an_error_of_admission_and_the_log_goes_on_when_there_is_room() {
    let directory = MemoryDirectory::new();
    let (faulty, log) = faulty_log(&directory);
    let no_space = Fault::Fails(ErrorKind::NoSpace);
    faulty.arm(Rule {
        operation: Some(Operation::SetLen),
        space: None,
        when: When::From(1),
        fault: no_space,
    });
    let (acknowledged, error) = commit_until_error(&log, 100);
    assert!(matches!(&error, Some(LogError::Device(error)) if error.is_no_space()), "{error:?}");
    assert!(!acknowledged.is_empty());
    log.check().unwrap();
    faulty.disarm();
    let (more, error) = commit_until_error(&log, 30);
    assert!(error.is_none() && more.len() == 30);
}

#[test]
fn a_device_that_fills_up_later_is_a_full_log_not_a_failure() {
    let directory = MemoryDirectory::new();
    let (faulty, log) = faulty_log(&directory);
    let no_space = Fault::Fails(ErrorKind::NoSpace);
    faulty.arm(Rule {
        operation: Some(Operation::SetLen),
        space: None,
        when: When::From(4),
        fault: no_space,
    });
    let (acknowledged, error) = commit_until_error(&log, 500);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(acknowledged.len(), 500);
    assert!(directory.list().unwrap().len() <= 5, "{:?}", directory.list());
}

#[test]
fn a_block_that_ends_with_its_segment_leaves_a_redo_position_that_exists() {
    let directory = MemoryDirectory::new();
    let log = create(&directory);
    let start = log.end().get();
    // Header, length and note take 40 + 3 + 5 bytes more than the payload.
    let fitting = (SEGMENT_BYTES - start) as usize - 48;
    let lsn = append(&log, &payload(1, fitting));
    assert_eq!(lsn.get(), SEGMENT_BYTES, "the block must end with the segment");
    log.flush(lsn).unwrap();
    let redo = log.redo_point(|| None).unwrap();
    assert!(redo.get() > SEGMENT_BYTES);
    let (notes, tail) = read(&directory, &first_life(), redo, NOTHING_KNOWN).unwrap();
    assert!(notes.is_empty());
    assert_eq!(tail.next, redo);
}

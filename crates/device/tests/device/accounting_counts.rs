//! The counters show what was read and written, by space and purpose. Histograms and trace are filled only if
//! they are switched on.

use crate::common::{all_kinds, filled};
use varve_device::{AlignedBuf, Durability, OpenHow, Purpose, Space, Tally, Timed};

#[test]
fn bytes_and_operations_by_space_and_purpose() {
    for kind in all_kinds() {
        let account = kind.directory.accounting();
        let data = kind.directory.open("data", OpenHow::new_file(Space::Data)).unwrap();
        let log = kind.directory.open("log", OpenHow::new_file(Space::Log)).unwrap();
        data.write_at(0, &filled(8192, 1), Purpose::DataPage, Durability::Later).unwrap();
        data.write_at(8192, &filled(8192, 1), Purpose::Doublewrite, Durability::Later).unwrap();
        log.write_at(0, &filled(4096, 1), Purpose::Log, Durability::Now).unwrap();
        log.flush().unwrap();
        data.read_at(0, &mut AlignedBuf::new(4096), Purpose::DataPage).unwrap();
        let tally = |operations, bytes| Tally { operations, bytes };
        assert_eq!(account.written(Space::Data, Purpose::DataPage), tally(1, 8192), "{}", kind.what);
        assert_eq!(account.written(Space::Data, Purpose::Doublewrite), tally(1, 8192));
        assert_eq!(account.written(Space::Log, Purpose::Log), tally(1, 4096));
        assert_eq!(account.read(Space::Data, Purpose::DataPage), tally(1, 4096));
        assert_eq!((account.flush_count(Space::Log), account.flush_count(Space::Data)), (1, 0));
        assert_eq!(account.rows().len(), 3);
    }
}

#[test]
fn latencies_and_trace_are_kept_only_while_switched_on() {
    for kind in all_kinds() {
        let account = kind.directory.accounting();
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        let write = |at: u64| {
            file.write_at(at, &filled(4096, 1), Purpose::DataPage, Durability::Later).unwrap();
        };
        write(0);
        assert_eq!(account.latencies().summary(Timed::Write).count, 0);
        account.observe(true, 2);
        (1..4).for_each(|no| write(no * 4096));
        let summary = account.latencies().summary(Timed::Write);
        assert_eq!(summary.count, 3);
        assert!(summary.latency_ns_max >= summary.latency_ns_p50);
        let (entries, dropped_count) = account.trace().take();
        let offsets: Vec<_> = entries.iter().map(|entry| entry.offset).collect();
        assert_eq!((offsets, dropped_count), (vec![4096, 8192], 1), "{}", kind.what);
        account.observe(false, 0);
        write(0);
        assert_eq!(account.latencies().summary(Timed::Write).count, 3);
    }
}

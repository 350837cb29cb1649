//! Each injected fault does what its name says. It does this at the chosen operation, and at no other
//! operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::filled;
use varve_device::{
    AlignedBuf, BlockFile, Directory, Durability, ErrorKind, Fault, Faulty, MemoryDirectory, OpenHow,
    Operation, Purpose, Rule, Space, When,
};

const WHY: Purpose = Purpose::DataPage;

fn bench(operation: Operation, when: When, fault: Fault) -> (Arc<Faulty>, Arc<dyn BlockFile>) {
    let faulty = Faulty::wrap(MemoryDirectory::new());
    let file = faulty.open("a", OpenHow::new_file(Space::Data)).expect("nothing is armed yet");
    file.write_at(0, &filled(16384, 1), WHY, Durability::Later).expect("nothing is armed yet");
    faulty.arm(Rule { operation: Some(operation), space: Some(Space::Data), when, fault });
    (faulty, file)
}

fn write(file: &dyn BlockFile, byte: u8) -> Result<(), ErrorKind> {
    file.write_at(0, &filled(4096, byte), WHY, Durability::Later).map_err(|error| error.kind)
}

fn first_byte(file: &dyn BlockFile, offset: u64) -> Result<u8, ErrorKind> {
    let mut buf = AlignedBuf::new(4096);
    file.read_at(offset, &mut buf, WHY).map_err(|error| error.kind)?;
    Ok(buf[0])
}

#[test]
fn the_nth_write_fails_once_or_from_there_on() {
    let full = || Fault::Fails(ErrorKind::NoSpace);
    let cases = [(When::Nth(2), [true, false, true]), (When::From(2), [true, false, false])];
    for (when, expected) in cases {
        let (faulty, file) = bench(Operation::Write, when, full());
        assert_eq!([2, 3, 4].map(|byte| write(&*file, byte).is_ok()), expected);
        assert_eq!(faulty.fired_count(), expected.iter().filter(|ok| !**ok).count() as u64);
        faulty.disarm();
        assert!(write(&*file, 5).is_ok());
    }
}

#[test]
fn a_failed_flush_poisons_until_a_restart() {
    let (faulty, file) = bench(Operation::Flush, When::Nth(1), Fault::Fails(ErrorKind::Io(5)));
    assert_eq!(file.flush().unwrap_err().kind, ErrorKind::Io(5));
    faulty.disarm();
    assert_eq!(file.flush().unwrap_err().kind, ErrorKind::Poisoned);
    assert_eq!(write(&*file, 2), Err(ErrorKind::Poisoned));
    assert_eq!(first_byte(&*file, 0), Ok(1), "reads go on");
    faulty.restart();
    file.flush().unwrap();
}

#[test]
fn lost_and_misdirected_writes_report_success() {
    let (_, file) = bench(Operation::Write, When::Nth(1), Fault::Lost);
    write(&*file, 2).unwrap();
    assert_eq!(first_byte(&*file, 0), Ok(1));
    let (_, file) = bench(Operation::Write, When::Nth(1), Fault::Misdirected { by_bytes: 8192 });
    write(&*file, 2).unwrap();
    assert_eq!((first_byte(&*file, 0), first_byte(&*file, 8192)), (Ok(1), Ok(2)));
}

#[test]
fn one_bit_flips_in_what_is_read_or_written() {
    let (_, file) = bench(Operation::Read, When::Nth(1), Fault::BitFlip { bit: 1 });
    assert_eq!((first_byte(&*file, 0), first_byte(&*file, 0)), (Ok(3), Ok(1)));
    let (_, file) = bench(Operation::Write, When::Nth(1), Fault::BitFlip { bit: 0 });
    write(&*file, 2).unwrap();
    assert_eq!(first_byte(&*file, 0), Ok(3));
}

#[test]
fn short_transfers_move_half_and_say_so() {
    let (_, file) = bench(Operation::Write, When::Nth(1), Fault::Short);
    let kind = ErrorKind::ShortWrite { wanted_bytes: 4096, got_bytes: 2048 };
    assert_eq!(write(&*file, 2), Err(kind));
    assert_eq!(first_byte(&*file, 0), Ok(2));
    let (_, file) = bench(Operation::Read, When::Nth(1), Fault::Short);
    let kind = ErrorKind::ShortRead { wanted_bytes: 4096, got_bytes: 2048 };
    assert_eq!(first_byte(&*file, 0), Err(kind));
}

#[test]
fn a_device_that_is_gone_stays_gone() {
    let (faulty, file) = bench(Operation::Read, When::Nth(1), Fault::Gone);
    assert_eq!(first_byte(&*file, 0), Err(ErrorKind::Gone));
    assert_eq!(write(&*file, 2), Err(ErrorKind::Gone));
    assert_eq!(faulty.sync().unwrap_err().kind, ErrorKind::Gone);
    faulty.disarm();
    assert_eq!(first_byte(&*file, 0), Ok(1));
}

#[test]
fn a_slow_operation_is_slow() {
    let (_, file) = bench(Operation::Read, When::Nth(1), Fault::Slow(Duration::from_millis(20)));
    let started = Instant::now();
    assert_eq!(first_byte(&*file, 0), Ok(1));
    assert!(started.elapsed() >= Duration::from_millis(20));
}

#[test]
fn filling_a_punched_hole_can_fail_for_lack_of_space() {
    let (_, file) = bench(Operation::Write, When::From(1), Fault::Fails(ErrorKind::NoSpace));
    file.punch(0, 4096).unwrap();
    assert_eq!(write(&*file, 2), Err(ErrorKind::NoSpace));
    assert_eq!(first_byte(&*file, 0), Ok(0), "nothing half-written");
}

#[test]
fn rules_for_another_space_do_nothing() {
    let (faulty, file) = bench(Operation::Read, When::Nth(9), Fault::Gone);
    faulty.arm(Rule { operation: None, space: Some(Space::Log), when: When::From(1), fault: Fault::Gone });
    assert_eq!(first_byte(&*file, 0), Ok(1));
    assert_eq!(faulty.fired_count(), 0);
}

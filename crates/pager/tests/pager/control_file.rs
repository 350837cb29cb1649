//! The control file survives torn writes. Damage, other versions and a missing file give different errors.

use std::sync::Arc;

use varve_device::{AlignedBuf, BlockFile, Directory, Durability, MemoryDirectory, OpenHow, Purpose, Space};
use varve_pager::Lsn;
use varve_pager::control::{Attached, CONTROL_FILE, Control, InForce, Positions, Sealed, State, Superblock};
use varve_pager::log::Life;

fn create() -> (Arc<MemoryDirectory>, Control) {
    let directory = MemoryDirectory::new();
    let control = Control::create(&*directory, Superblock::new(7, 8192, 1 << 20)).unwrap();
    (directory, control)
}

fn life(incarnation: u32, start: u64) -> Life {
    Life { incarnation, after: Lsn::new(start), start: Lsn::new(start) }
}

fn file(directory: &MemoryDirectory) -> Arc<dyn BlockFile> {
    directory.open(CONTROL_FILE, OpenHow::existing(Space::Control)).unwrap()
}

/// Changes one byte of the file.
fn flip(directory: &MemoryDirectory, at: usize) {
    let file = file(directory);
    let mut bytes = AlignedBuf::new(8192);
    file.read_at(0, &mut bytes, Purpose::Control).unwrap();
    bytes[at] ^= 1;
    file.write_at(0, &bytes, Purpose::Control, Durability::Now).unwrap();
}

#[test]
fn the_last_update_is_read_back() {
    let (directory, control) = create();
    for incarnation in 1..6 {
        control
            .update(|block| {
                block.state = State::Open;
                block.begin_life(life(incarnation, u64::from(incarnation) * 512));
            })
            .unwrap();
        let found = Control::open(&*directory).unwrap().unwrap().get();
        assert_eq!(found, control.get());
        assert_eq!(found.lives.len(), incarnation as usize);
    }
}

#[test]
fn lives_before_the_redo_position_are_dropped() {
    let mut block = Superblock::new(7, 8192, 1 << 20);
    (1..=4).for_each(|n| block.begin_life(life(n, u64::from(n) * 1000)));
    block.advance_redo(Positions::both(Lsn::new(2500)), Lsn::new(2600));
    assert_eq!(block.lives, [life(2, 2000), life(3, 3000), life(4, 4000)]);
    block.advance_redo(Positions::both(Lsn::new(10)), Lsn::new(20));
    assert_eq!((block.redo, block.durable), (Lsn::new(2500), Lsn::new(2600)));
}

#[test]
fn a_life_without_blocks_is_replaced() {
    let mut block = Superblock::new(7, 8192, 1 << 20);
    block.begin_life(life(1, 1000));
    block.begin_life(life(2, 2000));
    block.begin_life(life(3, 2000));
    assert_eq!(block.lives, [life(1, 1000), life(3, 2000)]);
    assert!(block.next_incarnation() > 3);
}

#[test]
fn any_damaged_byte_of_the_newer_slot_gives_the_older_one() {
    let (directory, control) = create();
    control.update(|block| block.state = State::Open).unwrap();
    let older = control.get();
    control.update(|block| block.durable = Lsn::new(99)).unwrap();
    let images = directory.images();
    for at in 4096..8192 {
        let damaged = MemoryDirectory::from_images(images.clone());
        flip(&damaged, at);
        let found = Control::open(&*damaged).unwrap().unwrap().get();
        assert_eq!(found, older, "byte {at}");
    }
}

#[test]
fn two_damaged_slots_are_an_error() {
    let (directory, control) = create();
    control.update(|block| block.state = State::Open).unwrap();
    flip(&directory, 100);
    flip(&directory, 4196);
    let error = Control::open(&*directory).err().unwrap();
    assert!(error.to_string().contains("no valid control file"), "{error}");
}

#[test]
fn a_missing_file_is_none() {
    let directory = MemoryDirectory::new();
    assert!(Control::open(&*directory).unwrap().is_none());
}

#[test]
fn a_shortened_file_is_an_error() {
    let (directory, _) = create();
    file(&directory).set_len(4096).unwrap();
    assert!(Control::open(&*directory).is_err());
}

#[test]
fn another_version_is_named() {
    let (directory, _) = create();
    let file = file(&directory);
    let mut slot = AlignedBuf::new(4096);
    file.read_at(4096, &mut slot, Purpose::Control).unwrap();
    slot[8] = 77;
    let crc = crc32c::crc32c(&slot[..4092]);
    slot[4092..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(4096, &slot, Purpose::Control, Durability::Now).unwrap();
    let error = Control::open(&*directory).err().unwrap();
    assert!(error.to_string().contains("format 77"), "{error}");
}

/// Writes a field of the newer slot and makes its checksum right.
fn write(directory: &MemoryDirectory, at: usize, field: &[u8]) {
    let file = file(directory);
    let mut slot = AlignedBuf::new(4096);
    file.read_at(4096, &mut slot, Purpose::Control).unwrap();
    slot[at..at + field.len()].copy_from_slice(field);
    let crc = crc32c::crc32c(&slot[..4092]);
    slot[4092..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(4096, &slot, Purpose::Control, Durability::Now).unwrap();
}

#[test]
fn a_slot_with_a_right_checksum_and_impossible_contents_is_refused_and_not_passed_over() {
    let last = u64::MAX.to_le_bytes();
    // The fields are the sequence, the segment size, the redo and the durable LSN, the state, the number of
    // lives, the life's incarnation and LSNs, and where redo starts.
    let fields = [(16, 8), (32, 8), (40, 8), (48, 8), (56, 4), (60, 4), (64, 4), (72, 8), (80, 8), (4080, 8)];
    for (at, field) in fields {
        let (directory, control) = create();
        control.update(|block| block.begin_life(life(1, 4096))).unwrap();
        control.update(|block| block.state = State::Open).unwrap();
        write(&directory, at, &last[..field]);
        let error = Control::open(&*directory).err().expect("must be refused").to_string();
        assert!(error.contains("right checksum"), "field at {at}: {error}");
    }
}

#[test]
fn what_would_be_refused_is_not_written() {
    let (directory, control) = create();
    let before = control.get();
    assert!(
        control.update(|block| block.advance_redo(Positions::both(Lsn::ZERO), Lsn::new(u64::MAX))).is_err()
    );
    assert_eq!(Control::open(&*directory).unwrap().unwrap().get(), before);
}

#[test]
fn a_life_that_begins_behind_the_redo_position_takes_it_along() {
    let mut block = Superblock::new(7, 8192, 1 << 20);
    block.begin_life(life(1, 4608));
    assert_eq!(block.redo, Lsn::new(4608));
    // The database was opened without a write, and then again on larger sectors.
    block.begin_life(Life { incarnation: 2, after: Lsn::new(4608), start: Lsn::new(8192) });
    assert_eq!((block.redo, block.lives.len()), (Lsn::new(8192), 1));
}

/// Returns the format version that the newer slot names.
fn version(directory: &MemoryDirectory, control: &Control) -> u8 {
    control.update(|_| ()).unwrap();
    let mut slots = AlignedBuf::new(8192);
    file(directory).read_at(0, &mut slots, Purpose::Control).unwrap();
    let newer = usize::from(slots[16] < slots[4096 + 16]) * 4096;
    slots[newer + 8]
}

#[test]
fn compressed_pages_make_a_database_of_version_2() {
    let (directory, control) = create();
    assert_eq!(version(&directory, &control), 1);
    control.update(|block| block.has_compressed_pages = true).unwrap();
    assert_eq!(version(&directory, &control), 2);
    assert!(Control::open(&*directory).unwrap().unwrap().get().has_compressed_pages);
    let mut slots = AlignedBuf::new(8192);
    file(&directory).read_at(0, &mut slots, Purpose::Control).unwrap();
    let newer = usize::from(slots[16] < slots[4096 + 16]) * 4096;
    assert_eq!(slots[newer + 3904..newer + 3908], [1, 0, 0, 0]);
}

#[test]
fn hollow_extents_are_read_back() {
    let (directory, control) = create();
    control.update(|block| block.has_hollow_extents = true).unwrap();
    assert_eq!(version(&directory, &control), 2);
    let found = Control::open(&*directory).unwrap().unwrap().get();
    assert!(found.has_hollow_extents && !found.has_compressed_pages && !found.packed);
    let mut slots = AlignedBuf::new(8192);
    file(&directory).read_at(0, &mut slots, Purpose::Control).unwrap();
    let newer = usize::from(slots[16] < slots[4096 + 16]) * 4096;
    assert_eq!(slots[newer + 3904..newer + 3912], [0, 0, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn that_there_was_a_cache_is_read_back_beside_it() {
    let (directory, control) = create();
    control.update(|block| block.has_cache = true).unwrap();
    assert_eq!(version(&directory, &control), 2);
    control.update(|block| block.has_hollow_extents = true).unwrap();
    let found = Control::open(&*directory).unwrap().unwrap().get();
    assert!(found.has_cache && found.has_hollow_extents);
    control.update(|block| (block.has_cache, block.has_hollow_extents) = (false, false)).unwrap();
    assert_eq!(version(&directory, &control), 1);
}

const REGION: Attached = Attached { region: 77, pages: true, log: true, copies: false, stamp: 5 };

#[test]
fn region_and_protection_are_read_back_and_make_a_database_of_version_2() {
    let (directory, control) = create();
    assert_eq!(version(&directory, &control), 1);
    control.update(|block| block.protection = InForce::Nothing).unwrap();
    assert_eq!(version(&directory, &control), 2);
    control.update(|block| block.attached = Some(REGION)).unwrap();
    assert_eq!(Control::open(&*directory).unwrap().unwrap().get(), control.get());
    control
        .update(|block| {
            block.attached = None;
            block.protection = InForce::Doublewrite;
            block.state = State::Clean;
            block.log_begins_empty = true;
        })
        .unwrap();
    let found = Control::open(&*directory).unwrap().unwrap().get();
    assert!(found.log_begins_empty && found.attached.is_none());
    assert_eq!(version(&directory, &control), 2);
    control.update(|block| block.log_begins_empty = false).unwrap();
    assert_eq!(version(&directory, &control), 1, "nothing is left that an older program would miss");
}

#[test]
fn redo_may_start_behind_the_reading() {
    let (directory, control) = create();
    control.update(|block| block.begin_life(life(1, 4096))).unwrap();
    let advance = |read, redo| {
        control
            .update(|block| {
                // Then only the positions make it another version.
                block.protection = InForce::Doublewrite;
                let to = Positions { read: Lsn::new(read), redo: Lsn::new(redo) };
                block.advance_redo(to, Lsn::new(redo));
            })
            .unwrap();
        let found = Control::open(&*directory).unwrap().unwrap().get();
        (found.redo.get(), found.stable.map(Lsn::get), found.redo_start().get())
    };
    assert_eq!(advance(5000, 0x0003_0201), (5000, Some(0x0003_0201), 0x0003_0201));
    assert_eq!(version(&directory, &control), 2);
    let mut slot = AlignedBuf::new(4096);
    file(&directory).read_at(0, &mut slot, Purpose::Control).unwrap();
    assert_eq!(slot[4080..4092], [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(advance(6000, 5500), (6000, Some(0x0003_0201), 0x0003_0201), "neither goes back");
    assert_eq!(advance(0x0003_0202, 0x0003_0202), (0x0003_0202, None, 0x0003_0202));
    assert_eq!(version(&directory, &control), 1);
    control.update(|block| block.stable = Some(Lsn::new(6000))).expect_err("it would be before the reading");
}

#[test]
fn a_seal_is_read_back_and_keeps_its_layout() {
    let (directory, control) = create();
    let sealed = Sealed { seal: 0x0102, end: Lsn::new(0x0304_0506) };
    control
        .update(|block| {
            block.state = State::Open;
            block.sealed = Some(sealed);
        })
        .unwrap();
    let found = Control::open(&*directory).unwrap().unwrap().get();
    assert_eq!((found.sealed, version(&directory, &control)), (Some(sealed), 2));
    let mut slot = AlignedBuf::new(4096);
    file(&directory).read_at(0, &mut slot, Purpose::Control).unwrap();
    assert_eq!(slot[4032..4048], [2, 1, 0, 0, 0, 0, 0, 0, 6, 5, 4, 3, 0, 0, 0, 0]);
    // After a clean shutdown, nothing is on flash alone.
    assert!(control.update(|block| block.state = State::Clean).is_err());
}

#[test]
fn the_parts_of_version_2_keep_their_layout() {
    let (directory, control) = create();
    control.update(|block| block.protection = InForce::Nothing).unwrap();
    control.update(|block| block.attached = Some(Attached { stamp: 0x0102, ..REGION })).unwrap();
    let mut slot = AlignedBuf::new(4096);
    file(&directory).read_at(4096, &mut slot, Purpose::Control).unwrap();
    assert_eq!(slot[16], 3);
    assert!(slot[3904..4048].iter().all(|byte| *byte == 0), "nothing is compressed, and the rest is kept");
    let expected = [77, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(slot[4048..4072], expected);
    assert!(slot[4072..4092].iter().all(|byte| *byte == 0));
}

/// Marks are stored at the place of the last life, which older programs don't read. So the version of the
/// format stays the same.
#[test]
fn marks_keep_their_places() {
    let (directory, control) = create();
    control.update(|block| block.announce_mark(0x0102)).unwrap();
    control.update(|block| block.announce_mark(0x0506)).unwrap();
    assert_eq!((control.get().mark, control.get().next_mark), (0, 0x0102), "headers may have the first one");
    control.update(|block| block.note_marked(Lsn::new(0x0700))).unwrap();
    control.update(|block| block.announce_mark(0x0304)).unwrap();
    let found = Control::open(&*directory).unwrap().unwrap().get();
    assert_eq!((found.mark, found.next_mark, found.durable), (0x0102, 0x0304, Lsn::new(0x0700)));
    assert_eq!(found, control.get());
    let mut slot = AlignedBuf::new(4096);
    file(&directory).read_at(4096, &mut slot, Purpose::Control).unwrap();
    assert_eq!((slot[16], slot[8]), (5, 1));
    let expected = [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(slot[3880..3904], expected);
    control.update(|block| block.start = 0x0807).unwrap();
    assert_eq!(Control::open(&*directory).unwrap().unwrap().get().start, 0x0807);
    file(&directory).read_at(0, &mut slot, Purpose::Control).unwrap();
    assert_eq!((slot[16], slot[8], &slot[3896..3904]), (6, 1, &[7, 8, 0, 0, 0, 0, 0, 0][..]));
    // There are as many lives as there can be. The last one needs the room of the other fields.
    let lives: Vec<Life> = (1..=160).map(|n| life(n, 0x0304 + u64::from(n) - 1)).collect();
    control.update(|block| (block.redo, block.lives) = (Lsn::new(0x0304), lives.clone())).unwrap();
    let found = Control::open(&*directory).unwrap().unwrap().get();
    assert_eq!((found.lives, found.mark, found.next_mark, found.start), (lives, 0, 0, 0));
}

#[test]
fn steps_of_incarnations_differ_and_end_before_their_numbers_do() {
    let (_, control) = create();
    let next = |last: u32| {
        let mut block = control.get();
        block.lives = vec![life(last, 0x0304)];
        block.next_incarnation()
    };
    let steps: std::collections::BTreeSet<u32> = (0..20).map(|_| next(100) - 100).collect();
    assert!(steps.len() > 10 && steps.iter().all(|step| (1..=2048).contains(step)), "{steps:?}");
    assert_eq!(next(u32::MAX / 2), u32::MAX / 2 + 1);
}

/// The control file names such a region before it is made and after it was left, but not together with a
/// region that is needed.
#[test]
fn a_region_that_is_not_needed_is_read_back() {
    let (directory, control) = create();
    let found = || Control::open(&*directory).unwrap().unwrap().get();
    control.update(|block| block.unneeded_region = Some(0x0304)).unwrap();
    assert_eq!(found(), control.get());
    let mut slot = AlignedBuf::new(4096);
    file(&directory).read_at(0, &mut slot, Purpose::Control).unwrap();
    assert_eq!((slot[16], slot[8]), (2, 2));
    assert_eq!(slot[4072..4084], [4, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(control.update(|block| block.attached = Some(REGION)).is_err(), "a region is needed or not");
    control.update(|block| block.attach(REGION)).unwrap();
    assert_eq!((found().attached, found().unneeded_region), (Some(REGION), None));
    control
        .update(|block| {
            block.state = State::Clean;
            block.leave_region();
        })
        .unwrap();
    assert_eq!((found().attached, found().unneeded_region), (None, Some(77)));
    let (directory, control) = create();
    control.update(|_| ()).unwrap();
    control.update(|block| block.attached = Some(REGION)).unwrap();
    write(&directory, 4072, &[1]);
    let error = Control::open(&*directory).err().expect("must be refused").to_string();
    assert!(error.contains("right checksum"), "{error}");
}

/// Control files with contradictions: a region without a part or a number, parts without a region, two uses
/// of the page area, and a log that begins empty although another log exists.
#[test]
fn impossible_attachments_are_neither_written_nor_read() {
    let cases = [
        Attached { region: 0, ..REGION },
        Attached { pages: false, log: false, ..REGION },
        Attached { copies: true, ..REGION },
        Attached { stamp: u64::MAX, ..REGION },
    ];
    for attached in cases {
        let (_, control) = create();
        assert!(control.update(|block| block.attached = Some(attached)).is_err(), "{attached:?}");
    }
    let (_, control) = create();
    assert!(control.update(|block| block.log_begins_empty = true).is_err(), "the log is in use");
    let with_log = control.update(|block| {
        block.state = State::Clean;
        block.attached = Some(REGION);
        block.log_begins_empty = true;
    });
    assert!(with_log.is_err(), "the log is in the region");
    for (at, field) in
        [(4048, [0; 8].as_slice()), (4056, &[0]), (4056, &[5]), (4056, &[9]), (4064, &[255; 8])]
    {
        let (directory, control) = create();
        control.update(|_| ()).unwrap();
        control.update(|block| block.attached = Some(REGION)).unwrap();
        write(&directory, at, field);
        let error = Control::open(&*directory).err().expect("must be refused").to_string();
        assert!(error.contains("right checksum"), "{field:?} at {at}: {error}");
    }
}

#[test]
fn parts_in_a_database_of_version_1_are_damage_and_unknown_ones_are_refused() {
    for (at, value, expected) in [
        (4057, 1, "right checksum"),
        (4057, 99, "doesn't know"),
        (4056, 0x40, "doesn't know"),
        (3904, 1, "right checksum"),
        (3904, 4, "doesn't know"),
        (3907, 1, "doesn't know"),
    ] {
        let (directory, control) = create();
        control.update(|_| ()).unwrap();
        control.update(|_| ()).unwrap();
        write(&directory, at, &[value]);
        let error = Control::open(&*directory).err().expect("must be refused").to_string();
        assert!(error.contains(expected), "{value} at {at}: {error}");
    }
}

#[test]
fn the_layout_of_the_spaces_is_read_back_and_what_is_not_known_is_refused() {
    let (directory, control) = create();
    control.update(|block| block.packed = true).unwrap();
    assert!(Control::open(&*directory).unwrap().unwrap().get().packed);
    let mut slot = AlignedBuf::new(4096);
    file(&directory).read_at(0, &mut slot, Purpose::Control).unwrap();
    assert_eq!((slot[16], slot[8]), (2, 2));
    assert_eq!(slot[3904..3912], [2, 0, 0, 0, 1, 1, 0, 0]);
    control.update(|block| block.map_checkpoints = [3, 0x104]).unwrap();
    file(&directory).read_at(4096, &mut slot, Purpose::Control).unwrap();
    assert_eq!(slot[3912..3928], [3, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Control::open(&*directory).unwrap().unwrap().get().map_checkpoints, [3, 0x104]);
    for (at, value) in [(3904, 0), (3904, 6), (3907, 1), (3908, 0), (3909, 2)] {
        let (directory, control) = create();
        control.update(|block| block.packed = true).unwrap();
        control.update(|_| ()).unwrap();
        write(&directory, at, &[value]);
        let error = Control::open(&*directory).err().expect("must be refused").to_string();
        assert!(error.contains("doesn't know"), "{value} at {at}: {error}");
    }
}

/// Identities are stored in bytes that older programs fill with zeros and don't read. So the version of the
/// format stays the same.
#[test]
fn what_runs_is_read_back_as_long_as_there_is_room_for_it() {
    let (directory, control) = create();
    let running = [5, 0, u64::MAX];
    for count in 1..=160_u32 {
        control
            .update(|block| {
                block.state = State::Open;
                block.running = running;
                block.begin_life(life(count, u64::from(count) * 512));
            })
            .unwrap();
        let found = Control::open(&*directory).unwrap().unwrap().get();
        assert_eq!(found.lives.len(), count as usize);
        assert_eq!(found.running, if count < 159 { running } else { [0; 3] }, "{count} lives");
        assert_eq!(found.lives, control.get().lives, "{count} lives");
    }
    let mut version = AlignedBuf::new(4096);
    file(&directory).read_at(0, &mut version, Purpose::Control).unwrap();
    assert_eq!(version[8], 1);
}

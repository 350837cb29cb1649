//! Fuzzes the reader of the log: it reads two segments with any blocks, and then appends after the last valid
//! block.
//!
//! The input has these fields, in this order. A life of the log begins when a database opens the log, and
//! ends at the next opening. A run overwrites some bytes (see `input.rs`).
//!
//! | field | bytes |
//! |---|---|
//! | LSN up to which the log is known to be durable | 4 |
//! | number of lives, at most 3 | 1 |
//! | for each life: incarnation, LSN after which it begins, its start | 1, 4, 4 |
//! | for each segment: its number; a value that damages the header unless it is 0 | 1, 1 |
//! | blocks or runs, until the input ends | |
//!
//! A block has these fields: place (u8: segment and sector), flags (u8, see fn `block`), incarnation (u8),
//! durable LSN (u32), length (u16), length of the groups (u8), and the groups of records. If the place is
//! 255, runs over the segment file follow instead.

use std::sync::Arc;

use varve_device::{MemoryDirectory, MemoryImage};
use varve_pager::log::format::{BLOCK_HEADER_BYTES, BlockHeader, Epoch, SegmentHeader};
use varve_pager::log::record::put_note;
use varve_pager::log::{FIRST_LSN, Known, Life, LogConfig, StoredLog, Tail};
use varve_pager::{LogError, Lsn};

use crate::input::Input;

const DATABASE: u64 = 0xD00D;
const SEGMENT_BYTES: u64 = 64 << 10;
const SECTOR_BYTES: u64 = 512;
const RAW: u8 = 255;

/// Checks that the log is reported as damaged, or that the blocks that were read are still readable after new
/// blocks are appended.
pub fn log_reader(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let known = Lsn::new(u64::from(input.u32()));
    let lives = lives(&mut input);
    let directory = directory(&mut input);
    let Ok(stored) = StoredLog::open(config(&directory), DATABASE) else { return };
    let mut before = Vec::new();
    let Ok(tail) = read(&stored, &lives, known, &mut before) else { return };
    let shut_down = Known { lsn: tail.end, why: "it was shut down at", is_end: true };
    let again = stored.each_group(&lives, FIRST_LSN, shut_down, |_| Ok::<(), LogError>(()));
    // If the header of a file is not valid, the result may differ.
    let is_same = again.as_ref().map_or(true, |again| *again == tail);
    assert!(is_same, "behind a shutdown it ends elsewhere: {again:?}, {tail:?}");
    let (first, last) = (&lives[0], &lives[lives.len() - 1]);
    assert!(tail.next >= first.start.min(FIRST_LSN), "the log ends before it begins");
    let incarnation = last.incarnation.wrapping_add(1);
    let start = stored.next_start(tail);
    let Ok(log) = stored.resume(incarnation, tail, FIRST_LSN) else { return };
    let mut note = Vec::new();
    put_note(&mut note, 77, b"written on");
    let end = log.append(&note, |at| at.end);
    if log.flush(end).is_err() {
        return;
    }
    drop(log);
    let mut lives = lives;
    lives.retain(|life| life.start < tail.next);
    lives.push(Life { incarnation, after: tail.next, start });
    if lives[0].start > FIRST_LSN {
        return;
    }
    let stored = StoredLog::open(config(&directory), DATABASE).expect("it was open before");
    let mut after = Vec::new();
    if let Ok(tail) = read(&stored, &lives, end, &mut after) {
        before.push((end, note));
        assert_eq!(after, before, "what was read before is in front of what was written then");
        assert_eq!(tail.end, end);
    }
}

type Groups = Vec<(Lsn, Vec<u8>)>;

fn read(stored: &StoredLog, lives: &[Life], known: Lsn, groups: &mut Groups) -> Result<Tail, LogError> {
    let known = Known { lsn: known, why: "the target says", is_end: false };
    stored.each_group(lives, FIRST_LSN, known, |group| {
        let mut bytes = Vec::new();
        for record in group.records.map_while(Result::ok) {
            if let varve_pager::log::Record::Note { kind, payload } = record {
                put_note(&mut bytes, kind, payload);
            }
        }
        groups.push((group.end, bytes));
        Ok(())
    })
}

fn config(directory: &Arc<MemoryDirectory>) -> LogConfig {
    LogConfig {
        directory: directory.clone(),
        segment_bytes: SEGMENT_BYTES,
        capacity_bytes: 8 * SEGMENT_BYTES,
    }
}

fn lives(input: &mut Input<'_>) -> Vec<Life> {
    let count = input.byte() % 4;
    if count == 0 {
        return vec![Life { incarnation: 1, after: FIRST_LSN, start: FIRST_LSN }];
    }
    let mut life = || Life {
        incarnation: u32::from(input.byte()),
        after: Lsn::new(u64::from(input.u32())),
        start: Lsn::new(u64::from(input.u32())),
    };
    (0..count).map(|_| life()).collect()
}

/// Returns two segment files with valid headers and the blocks of the input.
fn directory(input: &mut Input<'_>) -> Arc<MemoryDirectory> {
    let mut files = [vec![0; SEGMENT_BYTES as usize], vec![0; SEGMENT_BYTES as usize]];
    for (at, file) in files.iter_mut().enumerate() {
        let number = match input.byte() {
            0 => at as u64,
            RAW => u64::MAX,
            number => u64::from(number),
        };
        SegmentHeader { database: DATABASE, number, segment_bytes: SEGMENT_BYTES }.encode(file);
        file[1] ^= input.byte();
    }
    while !input.is_empty() {
        let place = input.byte();
        let file = &mut files[usize::from(place) & 1];
        if place == RAW {
            input.runs(file);
            continue;
        }
        block(input, u64::from(place), file);
    }
    let images = files.into_iter().enumerate().map(|(at, bytes)| {
        let mut image = MemoryImage::default();
        image.set_len(SEGMENT_BYTES);
        image.write(0, &bytes);
        (format!("log.{at:04}"), image)
    });
    MemoryDirectory::from_images(images)
}

/// Writes a block with a valid checksum. Odd places are in the second segment.
fn block(input: &mut Input<'_>, place: u64, file: &mut [u8]) {
    let sector = 8 + place / 2 % (SEGMENT_BYTES / SECTOR_BYTES - 8);
    let offset = sector * SECTOR_BYTES;
    let flags = input.byte();
    let incarnation = u32::from(input.byte());
    let durable_before = Lsn::new(u64::from(input.u32()));
    let claimed = usize::from(input.u16());
    let groups = input.piece();
    let room = file.len() - offset as usize;
    let length = if claimed == 0 { BLOCK_HEADER_BYTES + groups.len() } else { claimed };
    let length = length.clamp(BLOCK_HEADER_BYTES, room);
    let header = BlockHeader {
        length_bytes: length as u32,
        start: Lsn::new((place & 1) * SEGMENT_BYTES + offset + u64::from(flags >> 6 == 3)),
        epoch: Epoch { database: DATABASE + u64::from(flags >> 5 & 1), incarnation },
        jump: flags & 1 != 0,
        sector_shift: if flags & 2 != 0 { flags >> 2 } else { 9 },
        durable_before,
    };
    let block = &mut file[offset as usize..];
    let end = (BLOCK_HEADER_BYTES + groups.len()).min(block.len());
    block[BLOCK_HEADER_BYTES..end].copy_from_slice(&groups[..end - BLOCK_HEADER_BYTES]);
    header.seal(block);
}

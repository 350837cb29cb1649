//! Fuzzes the control file: its two slots with checksums, and how a start uses their contents.
//!
//! The input has these fields, in this order. A run overwrites some bytes (see `input.rs`).
//!
//! | field | bytes |
//! |---|---|
//! | for each slot: runs over a valid slot; a number, of which 0 corrects the checksum | runs, 1 |
//! | four distances in the log: start of the next life of the log, three positions after it | 4 each |
//! | flags of the new state (table below) | 1 |
//! | id of the region of persistent memory | 8 |
//! | stamp of the region | 8 |
//!
//! | flag | meaning |
//! |---|---|
//! | 1, 2, 4 | the region has pages, the log, doublewrite copies |
//! | 8 | the log begins again, with no lives |
//! | 16 | no page protection |
//! | 32 | packed layout; region and stamp are then also the numbers of the page maps' checkpoints |
//! | 64 | compressed pages |
//! | 128 | the region is not needed |

use varve_device::{MemoryDirectory, MemoryImage};
use varve_pager::Lsn;
use varve_pager::control::{Attached, CONTROL_FILE, Control, InForce, Positions, Sealed, State, Superblock};
use varve_pager::log::Life;

use crate::input::Input;

const SLOT_BYTES: usize = 4096;
/// No log gets near the largest LSN that a slot can name, so the target does not continue above this limit.
const LSN_MAX: u64 = 1 << 61;

/// Checks that a slot is refused, or that the database can continue with its contents.
pub fn control(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let directory = directory(&mut input);
    let Ok(Some(control)) = Control::open(&*directory) else { return };
    let found = control.get();
    let last = found.lives.last().map_or(found.redo, |life| life.start);
    let start = last.max(found.redo).forward(u64::from(input.u32()));
    if start.get() > LSN_MAX {
        return;
    }
    let updated = control.update(|block| {
        let incarnation = block.next_incarnation();
        block.begin_life(Life { incarnation, after: start, start });
        let (redo, later) = (last.forward(u64::from(input.u32())), u64::from(input.u32()));
        block.advance_redo(
            Positions { read: redo, redo: redo.forward(later) },
            last.forward(u64::from(input.u32())),
        );
        block.state = State::Open;
        block.log_begins_empty = false;
        block.sealed = None;
    });
    let expected = if updated.is_ok() { control.get() } else { found };
    assert_eq!(
        stored(&directory).as_ref(),
        Some(&expected),
        "what was stored last is read back ({updated:?})"
    );
    let moved = control.update(|block| attach(block, &mut input));
    let expected = if moved.is_ok() { control.get() } else { expected };
    assert_eq!(stored(&directory), Some(expected), "what was attached last is read back ({moved:?})");
}

fn stored(directory: &MemoryDirectory) -> Option<Superblock> {
    Control::open(directory).ok().flatten().map(|control| control.get())
}

/// Adds or removes a region, moves the log out of it, or changes the protection, as the input says.
fn attach(block: &mut Superblock, input: &mut Input<'_>) {
    let flags = input.byte();
    let has = |flag| flags & flag != 0;
    let region = input.u64();
    let attached = Attached { region, pages: has(1), log: has(2), copies: has(4), stamp: input.u64() };
    block.attached = has(7).then_some(attached);
    block.unneeded_region = (has(128) && region != 0).then_some(region);
    block.log_begins_empty = has(8);
    if has(8) {
        block.state = State::Clean;
        block.lives.clear();
    }
    let seal = Sealed { seal: region, end: block.redo_start() };
    block.sealed = (has(2) && !has(8) && region != 0).then_some(seal);
    block.protection = if has(16) { InForce::Nothing } else { InForce::Doublewrite };
    block.packed = has(32);
    block.map_checkpoints = if has(32) { [region, attached.stamp] } else { [0; 2] };
    block.has_compressed_pages = has(64);
    block.has_hollow_extents = has(128);
    block.has_cache = has(4);
}

/// Returns a control file with slots as the input says.
fn directory(input: &mut Input<'_>) -> std::sync::Arc<MemoryDirectory> {
    let mut image = valid();
    for number in 0..2 {
        let offset = number * SLOT_BYTES as u64;
        let mut slot = vec![0; SLOT_BYTES];
        image.read(offset, &mut slot);
        input.runs(&mut slot);
        if input.byte() == 0 {
            seal(&mut slot);
        }
        image.write(offset, &slot);
    }
    MemoryDirectory::from_images([(CONTROL_FILE.to_owned(), image)])
}

fn seal(slot: &mut [u8]) {
    let crc = crc32c::crc32c(&slot[..SLOT_BYTES - 4]);
    slot[SLOT_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// Returns a control file with both slots written, and with two lives.
fn valid() -> MemoryImage {
    let directory = MemoryDirectory::new();
    let control = Control::create(&*directory, Superblock::new(7, 8192, 1 << 20)).expect("memory takes it");
    for (incarnation, at) in [(1, 4096), (2, 8192)] {
        let life = Life { incarnation, after: Lsn::new(at), start: Lsn::new(at) };
        let stored = control.update(|block| {
            block.begin_life(life);
            block.state = State::Open;
            block.redo = Lsn::new(4096);
        });
        stored.expect("memory takes it");
    }
    let mut images = directory.images().into_iter();
    images.find(|(name, _)| name == CONTROL_FILE).expect("it was made").1
}

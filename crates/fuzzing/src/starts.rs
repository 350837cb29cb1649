//! Fuzzes the history of starts, and how a start uses it.
//!
//! The input has these fields, in this order. A run overwrites some bytes (see `input.rs`).
//!
//! | field | bytes |
//! |---|---|
//! | for each slot: runs over a valid slot; a number, of which 0 corrects the checksum | runs, 1 |
//! | slot whose newest start the control file names, if the number is odd; otherwise it names another one | 1 |
//! | number of bytes that the file lacks at its end | 2 |

use varve_device::{AlignedBuf, Directory, Durability, MemoryDirectory, OpenHow, Purpose, Space};
use varve_pager::control::{Control, STARTS_FILE, Superblock};
use varve_pager::fuzzing::{START_SLOT_BYTES, begin_start, start_history};
use varve_pager::{LogState, Lsn};

use crate::input::Input;

const DATABASE: u64 = 7;
/// The LSNs of the valid starts. The next starts are after them.
const AFTER: [u64; 4] = [0, 4096, 8192, 1 << 50];

/// Checks that a start continues a valid history, or begins a new one, and that the next start continues it.
pub fn starts(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let directory = valid();
    let file = directory.open(STARTS_FILE, OpenHow::existing(Space::Control)).expect("it was made");
    let mut slots = AlignedBuf::new(2 * START_SLOT_BYTES);
    file.read_at(0, &mut slots, Purpose::Control).expect("memory");
    for slot in slots.chunks_exact_mut(START_SLOT_BYTES) {
        input.runs(slot);
        if input.byte() == 0 {
            let checksum = crc32c::crc32c(&slot[..START_SLOT_BYTES - 4]);
            slot[START_SLOT_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let found: Vec<_> =
        slots.chunks_exact(START_SLOT_BYTES).map(|slot| start_history(slot, DATABASE)).collect();
    file.write_at(0, &slots, Purpose::Control, Durability::Now).expect("memory");
    let choice = usize::from(input.byte());
    let chosen = found[choice / 2 % 2].as_ref().filter(|_| choice % 2 == 1);
    let named = chosen.and_then(|history| history.newest()).map_or(3, |start| start.id);
    let newest =
        found.iter().flatten().filter_map(|history| history.newest()).find(|start| start.id == named);
    let control = Control::open(&*directory).expect("memory").expect("it was made");
    control.update(|block| block.newest_start = named).expect("memory");
    let lacks = usize::from(input.u16()).min(slots.len());
    file.set_len((slots.len() - lacks) as u64).expect("memory");

    let (first, warned) = begin_start(&*directory, Lsn::new(AFTER[3])).expect("a start is never refused");
    let continued = newest.filter(|_| lacks == 0);
    assert!(warned || continued.is_some(), "a history that is not in force");
    if let Some(newest) = continued {
        assert_eq!(first.includes(&LogState { newest, end: newest.after.min(Lsn::new(AFTER[3])) }), Ok(()));
    }
    let newest = first.newest().expect("the start that began");
    let (second, warned) = begin_start(&*directory, Lsn::new(AFTER[3])).expect("a start is never refused");
    assert!(!warned, "the second start continues the history of the first one");
    assert_eq!(second.includes(&LogState { newest, end: Lsn::new(AFTER[3]) }), Ok(()));
    assert!(second.includes(&LogState { newest, end: Lsn::new(AFTER[3] + 1) }).is_err());
}

/// Returns a database with both slots written.
fn valid() -> std::sync::Arc<MemoryDirectory> {
    let directory = MemoryDirectory::new();
    Control::create(&*directory, Superblock::new(DATABASE, 8192, 1 << 20)).expect("memory takes it");
    for after in &AFTER[..3] {
        begin_start(&*directory, Lsn::new(*after)).expect("memory takes it");
    }
    directory
}

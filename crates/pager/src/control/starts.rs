//! The history of the database's starts, in the file `starts.varve` beside the control file.
//!
//! Each start continues the log and gets a random id. The history has this id for each start, and the LSN at
//! which the log of the earlier starts ended. So a database can decide whether a state is in its own past
//! (`StartHistory::includes`). The database id cannot decide this. Suppose that the files of a database are
//! copied, and that the original and the copy continue. Both have the same id, but their logs differ at the
//! same LSNs.
//!
//! The file has two slots of 16 KiB, little endian; slot n starts at n x 16384:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | magic "VARVESTA" |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | number of starts, from 1 to 1000 |
//! | 16 | 8 | database id |
//! | 24 | 16 each | starts, oldest first: id, not 0 (8), LSN at which the earlier log ended (8) |
//! | .. | .. | zeros |
//! | 16380 | 4 | crc32c over bytes 0..16380 |
//!
//! Invariants
//! 1. A slot is in force if its newest start has the id that the control file names. A start writes the other
//!    slot first. Then one write of the control file makes the slot and the new life of the log valid. So a
//!    crash between the two writes leaves the earlier history in force.
//! 2. A start is in the history before its first log block is written.
//! 3. If no slot is in force, a new history begins. This is so if an older program has opened the database,
//!    or if the file is missing, damaged, or not of the same moment as the control file. So the history never
//!    has a start that is not in the database's past.
//! 4. The history has the newest 1000 starts. States of older starts are not recognized.
//!
//! This module does not know which code asks about a state. Backups do so.

use std::fmt;

use varve_device::{AlignedBuf, Directory, Durability, OpenHow, Purpose, Space, reached};

use super::{Control, Superblock, random_id};
use crate::base::error::Result;
use crate::base::lsn::{LSN_MAX, Lsn};
use crate::log::format::{get_u32, get_u64, put_u32, put_u64};

/// Name of the file.
pub const STARTS_FILE: &str = "starts.varve";

const MAGIC: u64 = u64::from_le_bytes(*b"VARVESTA");
const VERSION: u32 = 1;
/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 16 << 10;
const HEAD_BYTES: usize = 24;
const START_BYTES: usize = 16;
const CHECKSUM_AT: usize = SLOT_BYTES - 4;
const SLOTS_COUNT: usize = 2;
/// The largest number of starts in a history.
const STARTS_MAX: usize = 1000;

const _: () = assert!(HEAD_BYTES + STARTS_MAX * START_BYTES <= CHECKSUM_AT);

/// One start of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// A random number, not 0.
    pub id: u64,
    /// The LSN at which the log of the earlier starts ended.
    pub after: Lsn,
}

/// A state of a database: all changes that its log had up to an LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// The start during which the newest part of this log was written.
    pub newest: LogStart,
    /// The end of the log.
    pub end: Lsn,
}

/// Why a state is not in the past of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotIncluded {
    /// The history does not have the newest start of the state.
    UnknownStart,
    /// The history has the newest start of the state, but a later start has continued at an earlier LSN.
    LeftBefore(Lsn),
}

impl fmt::Display for NotIncluded {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotIncluded::UnknownStart => {
                write!(to, "the history of this database does not have the start in which it was made")
            }
            NotIncluded::LeftBefore(at) => {
                write!(to, "this database has continued from an older state, at LSN {at}")
            }
        }
    }
}

/// The newest starts of a database, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartHistory(Vec<LogStart>);

impl StartHistory {
    /// Returns the newest start. It is `None` only before the first start.
    pub fn newest(&self) -> Option<LogStart> {
        self.0.last().copied()
    }

    /// Returns whether a state is in the past of this database: the state and this database have the same log
    /// up to the end of the state.
    ///
    /// # Errors
    ///
    /// Fails if the state is not in the past, or if the history is too short to know it.
    pub fn includes(&self, state: &LogState) -> std::result::Result<(), NotIncluded> {
        let found = self.0.iter().rposition(|start| *start == state.newest);
        let later = self.0.iter().skip(found.ok_or(NotIncluded::UnknownStart)? + 1);
        // A device that has lost durable log can make a later start continue at an earlier LSN than the
        // start after the state.
        let left = later.map(|start| start.after).min();
        left.filter(|left| *left < state.end).map_or(Ok(()), |left| Err(NotIncluded::LeftBefore(left)))
    }

    /// Returns this history with one more start.
    fn followed_by(&self, start: LogStart) -> StartHistory {
        let skipped = (self.0.len() + 1).saturating_sub(STARTS_MAX);
        StartHistory(self.0.iter().skip(skipped).copied().chain([start]).collect())
    }

    pub(crate) fn encode(&self, database: u64) -> AlignedBuf {
        let mut slot = AlignedBuf::new(SLOT_BYTES);
        put_u64(&mut slot, 0, MAGIC);
        put_u32(&mut slot, 8, VERSION);
        put_u32(&mut slot, 12, self.0.len() as u32);
        put_u64(&mut slot, 16, database);
        for (start, out) in self.0.iter().zip(slot[HEAD_BYTES..].chunks_exact_mut(START_BYTES)) {
            put_u64(out, 0, start.id);
            put_u64(out, 8, start.after.get());
        }
        let checksum = crc32c::crc32c(&slot[..CHECKSUM_AT]);
        put_u32(&mut slot, CHECKSUM_AT, checksum);
        slot
    }

    /// Reads a slot of this database. Returns `None` if it was never written, or is damaged.
    pub(crate) fn decode(slot: &[u8], database: u64) -> Option<StartHistory> {
        let is_whole = slot.len() == SLOT_BYTES
            && get_u32(slot, CHECKSUM_AT) == crc32c::crc32c(&slot[..CHECKSUM_AT])
            && (get_u64(slot, 0), get_u32(slot, 8), get_u64(slot, 16)) == (MAGIC, VERSION, database);
        let count = is_whole.then(|| get_u32(slot, 12) as usize)?;
        if !(1..=STARTS_MAX).contains(&count) {
            return None;
        }
        let (starts, rest) = slot[HEAD_BYTES..CHECKSUM_AT].split_at(count * START_BYTES);
        let decode = |bytes: &[u8]| {
            let (id, after) = (get_u64(bytes, 0), get_u64(bytes, 8));
            (id != 0 && after <= LSN_MAX).then_some(LogStart { id, after: Lsn::new(after) })
        };
        let starts = starts.chunks_exact(START_BYTES).map(decode).collect::<Option<Vec<_>>>()?;
        rest.iter().all(|byte| *byte == 0).then_some(StartHistory(starts))
    }
}

/// The history of a database that is open, and a warning of its start.
#[derive(Default)]
pub(super) struct OpenHistory {
    history: StartHistory,
    warning: Option<String>,
}

/// What a start has found in the file.
struct FoundHistory {
    history: StartHistory,
    /// The slot for the next history.
    next_slot: usize,
    /// Whether the file has both slots.
    is_whole: bool,
    warning: Option<String>,
}

impl FoundHistory {
    /// Returns the state without a history in force.
    fn nothing(warning: Option<String>) -> FoundHistory {
        FoundHistory { history: StartHistory::default(), next_slot: 0, is_whole: false, warning }
    }

    /// Reads the history that belongs to the control file. A file that cannot be read is replaced, because
    /// the database itself does not need it.
    fn read(directory: &dyn Directory, block: &Superblock) -> FoundHistory {
        if block.newest_start == 0 {
            return FoundHistory::nothing(None);
        }
        let warned = |why: &str| {
            reached("open: the history of starts begins anew");
            let what = format!(
                "{}/{STARTS_FILE}, the history of starts, {why}. A new history begins. Incremental backups cannot \
                 use earlier backups: take a full backup",
                directory.location()
            );
            FoundHistory::nothing(Some(what))
        };
        let slots = match read_slots(directory) {
            Ok(Some(slots)) => slots,
            Ok(None) => return warned("is missing or too short"),
            Err(error) => return warned(&format!("cannot be read: {error}")),
        };
        let found = slots.chunks_exact(SLOT_BYTES).enumerate().find_map(|(slot, bytes)| {
            let history = StartHistory::decode(bytes, block.database)?;
            let is_in_force = history.newest().is_some_and(|newest| newest.id == block.newest_start);
            is_in_force.then_some((slot, history))
        });
        match found {
            Some((slot, history)) => {
                FoundHistory { history, next_slot: 1 - slot, is_whole: true, warning: None }
            }
            None => warned("is damaged, or is not of the same moment as the control file"),
        }
    }
}

/// Returns the bytes of both slots, or `None` if there are none.
fn read_slots(directory: &dyn Directory) -> Result<Option<AlignedBuf>> {
    let mut slots = AlignedBuf::new(SLOTS_COUNT * SLOT_BYTES);
    if !directory.exists(STARTS_FILE)? {
        return Ok(None);
    }
    let file = directory.open(STARTS_FILE, OpenHow::existing(Space::Control))?;
    if file.len_bytes()? < slots.len() as u64 {
        return Ok(None);
    }
    file.read_at(0, &mut slots, Purpose::Control)?;
    Ok(Some(slots))
}

/// Writes a slot durably. All bytes of the file are written when it is made. So later starts need no space.
fn write_slot(directory: &dyn Directory, stored: &FoundHistory, bytes: &AlignedBuf) -> Result<()> {
    let file = directory.open(STARTS_FILE, OpenHow::or_create(Space::Control))?;
    if !stored.is_whole {
        let empty = AlignedBuf::new(SLOTS_COUNT * SLOT_BYTES);
        file.set_len(empty.len() as u64)?;
        file.write_at(0, &empty, Purpose::Control, Durability::Later)?;
    }
    file.write_at((stored.next_slot * SLOT_BYTES) as u64, bytes, Purpose::Control, Durability::Later)?;
    file.flush()?;
    if stored.is_whole { Ok(()) } else { Ok(directory.sync()?) }
}

/// Returns the state of a start for whose history the device has no space.
fn without_history(directory: &dyn Directory) -> OpenHistory {
    reached("open: no space for the history of starts");
    let what = format!(
        "{} has no space for {STARTS_FILE}, the history of starts. Until the next start there are no backups: make \
         space, and start again",
        directory.location()
    );
    OpenHistory { history: StartHistory::default(), warning: Some(what) }
}

impl Control {
    /// Begins a start. It enters the history, and then `change` changes the control file in the same write
    /// that makes the start valid. The log of the earlier starts has ended at `after`.
    pub(crate) fn begin_start(
        &self,
        directory: &dyn Directory,
        after: Lsn,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let block = self.get();
        let stored = FoundHistory::read(directory, &block);
        let start = LogStart { id: random_id(), after };
        let history = stored.history.followed_by(start);
        let opened = match write_slot(directory, &stored, &history.encode(block.database)) {
            // The database itself needs no history.
            Err(error) if error.is_no_space() => without_history(directory),
            written => written.map(|()| OpenHistory { history, warning: stored.warning })?,
        };
        self.update(|block| {
            change(block);
            block.newest_start = opened.history.newest().map_or(0, |newest| newest.id);
        })?;
        *self.starts.lock() = opened;
        Ok(())
    }

    /// Returns the history of starts. It is empty before `begin_start`.
    pub(crate) fn starts(&self) -> StartHistory {
        self.starts.lock().history.clone()
    }

    /// Returns the warning of the start about its history.
    pub(crate) fn starts_warning(&self) -> Option<String> {
        self.starts.lock().warning.clone()
    }
}

#[cfg(test)]
mod tests {
    use varve_device::MemoryDirectory;

    use super::*;

    fn start(id: u64, after: u64) -> LogStart {
        LogStart { id, after: Lsn::new(after) }
    }

    fn state(newest: LogStart, end: u64) -> LogState {
        LogState { newest, end: Lsn::new(end) }
    }

    fn history() -> StartHistory {
        StartHistory(vec![start(5, 0), start(9, 1000), start(7, 3000)])
    }

    #[test]
    fn a_state_is_included_up_to_the_next_start() {
        let history = history();
        let [first, second, last] = [0, 1, 2].map(|at| history.0[at]);
        assert_eq!(history.includes(&state(first, 1000)), Ok(()));
        assert_eq!(history.includes(&state(first, 1001)), Err(NotIncluded::LeftBefore(Lsn::new(1000))));
        assert_eq!(history.includes(&state(second, 3000)), Ok(()));
        assert_eq!(history.includes(&state(second, 3001)), Err(NotIncluded::LeftBefore(Lsn::new(3000))));
        assert_eq!(history.includes(&state(last, 1 << 40)), Ok(()));
        for unknown in [start(6, 1000), start(9, 1001)] {
            assert_eq!(history.includes(&state(unknown, 0)), Err(NotIncluded::UnknownStart));
        }
        assert_eq!(StartHistory::default().includes(&state(first, 0)), Err(NotIncluded::UnknownStart));
    }

    #[test]
    fn a_later_start_that_continues_earlier_counts() {
        let history = history().followed_by(start(8, 500));
        let left = Err(NotIncluded::LeftBefore(Lsn::new(500)));
        assert_eq!(history.includes(&state(start(5, 0), 501)), left);
        assert_eq!(history.includes(&state(start(5, 0), 500)), Ok(()));
    }

    #[test]
    fn only_the_newest_starts_are_kept() {
        let add = |history: StartHistory, id| history.followed_by(start(id, id * 10));
        let history = (1..=1005).fold(StartHistory::default(), add);
        assert_eq!((history.0.len(), history.0[0]), (STARTS_MAX, start(6, 60)));
        assert_eq!(StartHistory::decode(&history.encode(3), 3), Some(history));
    }

    #[test]
    fn a_history_comes_back_and_damage_is_seen() {
        let bytes = history().encode(3);
        assert_eq!(StartHistory::decode(&bytes, 3), Some(history()));
        assert_eq!(StartHistory::decode(&bytes, 4), None, "another database");
        for at in 0..SLOT_BYTES {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(StartHistory::decode(&damaged, 3), None, "byte {at}");
        }
        assert_eq!(StartHistory::decode(&bytes[..SLOT_BYTES - 1], 3), None);
        assert_eq!(StartHistory::decode(&AlignedBuf::new(SLOT_BYTES), 0), None);
    }

    /// Begins a start over the files in `directory`. Returns the history and the warning.
    fn begin(directory: &MemoryDirectory, after: u64) -> (StartHistory, Option<String>) {
        let control = Control::open(directory).unwrap().unwrap();
        control.begin_start(directory, Lsn::new(after), |_| ()).unwrap();
        (control.starts(), control.starts_warning())
    }

    #[test]
    fn each_start_is_added_and_a_missing_or_foreign_file_begins_a_new_history() {
        let directory = MemoryDirectory::new();
        Control::create(&*directory, Superblock::new(3, 8192, 1 << 20)).unwrap();
        let first = begin(&directory, 0);
        assert_eq!((first.0.0.len(), first.1), (1, None), "a database without the file");
        let second = begin(&directory, 4096).0;
        assert!(second.0.starts_with(&first.0.0) && second.0.len() == 2);
        let copy = MemoryDirectory::from_images(directory.images());
        let third = begin(&directory, 8192).0;
        assert!(third.0.starts_with(&second.0) && third.0.len() == 3);
        let other = begin(&copy, 8192).0;
        assert!(other.0.starts_with(&second.0) && other.0[2].id != third.0[2].id);
        // The file of the copy, beside the control file of the original.
        let foreign = copy.images().into_iter().filter(|(name, _)| name == STARTS_FILE);
        let own = directory.images().into_iter().filter(|(name, _)| name != STARTS_FILE);
        let mixed = begin(&MemoryDirectory::from_images(own.clone().chain(foreign)), 12288);
        assert_eq!(mixed.0.0.len(), 1);
        assert!(mixed.1.unwrap().contains("not of the same moment"));
        let missing = begin(&MemoryDirectory::from_images(own), 12288);
        assert_eq!(missing.0.0.len(), 1);
        assert!(missing.1.unwrap().contains("is missing"));
        assert_eq!(begin(&directory, 12288).0.0.len(), 4);
    }

    #[test]
    fn a_full_device_refuses_backups_and_no_start() {
        let directory = MemoryDirectory::with_capacity(16 << 10);
        Control::create(&*directory, Superblock::new(3, 8192, 1 << 20)).unwrap();
        let (history, warning) = begin(&directory, 0);
        assert_eq!(history.newest(), None);
        assert!(warning.unwrap().contains("no space"));
    }
}

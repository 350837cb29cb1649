//! The append section of the log: records get their LSNs, and their bytes are copied into the block that the
//! next flush writes.
//!
//! Invariants
//! 1. A group of records is in one block, and a block is in one segment.
//! 2. When the open block is sealed, the next block starts at the next sector or segment. So bytes that a
//!    flush wrote are never written again.
//! 3. A group ends after it starts, so the end LSNs of groups are unique and grow.
//!
//! This module does not know the device. Sealed blocks wait here until a flush takes them (`flush.rs`).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use varve_device::{AlignedBuf, planted};

use super::format::{BLOCK_HEADER_BYTES, BlockHeader, Epoch, Geometry};
use super::notes::time::TIME_BYTES;
use super::record::varint_bytes;
use super::{Log, LogError};
use crate::base::lsn::Lsn;

const BLOCK_BYTES: u64 = 1 << 20;
const SPARE_BUFFERS_MAX: usize = 4;

/// The position of a group that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Start of the block with the group, where redo of the group can begin.
    pub block: Lsn,
    /// Start of the group.
    pub start: Lsn,
    /// End of the group: the LSN of its changes.
    pub end: Lsn,
}

/// A block that is being filled, or waits to be written.
pub(super) struct Block {
    buf: AlignedBuf,
    start: Lsn,
    used: usize,
    room: usize,
    jump: bool,
}

impl Block {
    fn open(geometry: Geometry, start: Lsn, buf: AlignedBuf) -> Block {
        let room = geometry.segment_end(start).since(start).min(buf.len() as u64) as usize;
        Block { buf, start, used: BLOCK_HEADER_BYTES, room, jump: false }
    }

    fn is_empty(&self) -> bool {
        self.used == BLOCK_HEADER_BYTES
    }

    fn end(&self) -> Lsn {
        self.start.forward(self.used as u64)
    }

    pub(super) fn start(&self) -> Lsn {
        self.start
    }

    pub(super) fn last(&self) -> Lsn {
        self.end()
    }

    /// Returns whether the next block is in the next segment.
    pub(super) fn jumps(&self) -> bool {
        self.jump
    }

    /// Adds header, checksum and padding. Returns the bytes to write.
    pub(super) fn seal(&mut self, epoch: Epoch, sector_shift: u8, durable_before: Lsn) -> &[u8] {
        let length_bytes = u32::try_from(self.used).expect("a block is shorter than 4 GiB");
        let padded = self.used.next_multiple_of(1 << sector_shift);
        self.buf[self.used..padded].fill(0);
        let jump = self.jump;
        let header =
            BlockHeader { length_bytes, start: self.start, epoch, jump, sector_shift, durable_before };
        header.seal(&mut self.buf[..self.used]);
        &self.buf[..padded]
    }
}

/// State of the append section.
pub(super) struct Appender {
    geometry: Geometry,
    sector_shift: u8,
    active: Block,
    /// Start of the last sealed block, or of the last block before the log was opened.
    last: Lsn,
    sealed: VecDeque<Block>,
    spare: Vec<AlignedBuf>,
    groups_count: u64,
    group_bytes: u64,
}

impl Appender {
    pub(super) fn new(geometry: Geometry, sector_shift: u8, last: Lsn, start: Lsn) -> Appender {
        let active = Block::open(geometry, start, AlignedBuf::new(Self::buffer_bytes(geometry, 0)));
        Appender {
            geometry,
            sector_shift,
            active,
            last,
            sealed: VecDeque::new(),
            spare: Vec::new(),
            groups_count: 0,
            group_bytes: 0,
        }
    }

    fn buffer_bytes(geometry: Geometry, group_bytes: usize) -> usize {
        let usual = BLOCK_BYTES.min(geometry.segment_bytes()) as usize;
        usual.max((group_bytes + BLOCK_HEADER_BYTES).next_multiple_of(AlignedBuf::ALIGN_BYTES))
    }

    /// Makes sure that the open block has space for `group_bytes` more bytes.
    fn make_room(&mut self, group_bytes: usize) {
        while self.active.used + group_bytes > self.active.room {
            let end = self.active.end();
            let left_bytes = self.geometry.segment_end(self.active.start).since(end);
            if left_bytes < group_bytes as u64 {
                self.active.jump = true;
                self.rotate(group_bytes);
            } else if self.active.is_empty() {
                let buf = AlignedBuf::new(Self::buffer_bytes(self.geometry, group_bytes));
                self.active = Block::open(self.geometry, self.active.start, buf);
            } else {
                self.rotate(group_bytes);
            }
        }
    }

    /// Seals the open block and opens the next one.
    fn rotate(&mut self, group_bytes: usize) {
        let start = if self.active.jump {
            self.geometry.first_block(self.geometry.segment_of(self.active.start) + 1)
        } else {
            self.geometry.block_start(self.active.end(), self.sector_shift)
        };
        let wanted = Self::buffer_bytes(self.geometry, group_bytes);
        let spare = self.spare.pop().filter(|buf| buf.len() >= wanted);
        let buf = spare.unwrap_or_else(|| AlignedBuf::new(wanted));
        let sealed = std::mem::replace(&mut self.active, Block::open(self.geometry, start, buf));
        self.last = sealed.start;
        self.sealed.push_back(sealed);
    }

    fn push(&mut self, records: &[u8]) -> Appended {
        let prefix_bytes = varint_bytes(records.len() as u64);
        let group_bytes = prefix_bytes + records.len();
        assert!(group_bytes <= self.geometry.group_bytes_max(), "a mini-transaction of {group_bytes} bytes");
        self.make_room(group_bytes);
        let start = self.active.end();
        let at = self.active.used;
        let mut rest = records.len() as u64;
        for i in 0..prefix_bytes {
            let more = if i + 1 < prefix_bytes { 0x80 } else { 0 };
            self.active.buf[at + i] = (rest & 0x7F) as u8 | more;
            rest >>= 7;
        }
        self.active.buf[at + prefix_bytes..at + group_bytes].copy_from_slice(records);
        self.active.used += group_bytes;
        self.groups_count += 1;
        self.group_bytes += group_bytes as u64;
        Appended { block: self.active.start, start, end: self.active.end() }
    }

    fn give_back(&mut self, block: Block) {
        if self.spare.len() < SPARE_BUFFERS_MAX {
            self.spare.push(block.buf);
        }
    }
}

impl Log {
    /// Appends one group of records and runs `inside` in the append section.
    ///
    /// Panics if the group is larger than a segment can hold.
    pub fn append<R>(&self, records: &[u8], inside: impl FnOnce(Appended) -> R) -> R {
        self.append_in(self.appender.lock(), records, inside)
    }

    /// Does the same as `append`. In addition, the 8 bytes of `records` from `at` on become the time of the
    /// append.
    pub(crate) fn append_timed<R>(
        &self,
        records: &mut [u8],
        at: usize,
        inside: impl FnOnce(Appended) -> R,
    ) -> R {
        let appender = self.appender.lock();
        if let Some(place) = records.get_mut(at..at + TIME_BYTES) {
            place.copy_from_slice(&self.clock.tick().to_le_bytes());
        }
        self.append_in(appender, records, inside)
    }

    fn append_in<R>(
        &self,
        mut appender: MutexGuard<'_, Appender>,
        records: &[u8],
        inside: impl FnOnce(Appended) -> R,
    ) -> R {
        let appended = appender.push(records);
        let result = inside(appended);
        self.end.advance(appended.end);
        if self.is_stopped() {
            appender.sealed.clear();
        }
        result
    }

    /// Appends a group with note records, which changes no page. Returns its position.
    pub(crate) fn append_note(&self, records: &[u8]) -> Appended {
        self.append(records, |appended| {
            self.count_note();
            appended
        })
    }

    /// Counts a group that changes no page. The caller is in the append section.
    pub(super) fn count_note(&self) {
        self.notes_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of groups that mini-transactions have appended. If it is the same as before, no
    /// page was changed meanwhile.
    pub(crate) fn changes_count(&self) -> u64 {
        let appender = self.appender.lock();
        appender.groups_count - self.notes_count.load(Ordering::Relaxed)
    }

    /// Runs `inside` in the append section, with the end of the log, but appends nothing.
    pub fn append_nothing<R>(&self, inside: impl FnOnce(Lsn) -> R) -> R {
        let _appender = self.appender.lock();
        inside(self.end())
    }

    /// Returns the position from which redo would have to read the log. It is the position that `oldest`
    /// returns in the append section, or the start of the open block if there is nothing to redo. When this
    /// returns, everything that was appended before is durable. So log records about stable or discarded
    /// pages are not lost.
    ///
    /// The segment of the position must exist, or a later start would report it as lost. If the open block is
    /// the first of a segment for which a full device has no space, the position is the previous block.
    pub fn redo_point(&self, oldest: impl FnOnce() -> Option<Lsn>) -> Result<Lsn, LogError> {
        self.redo_points(|_| [oldest()]).map(|[point]| point)
    }

    /// Does the same as `redo_point`, for several positions, of which the first one is the earliest. `oldest`
    /// gets the start of the open block.
    pub(crate) fn redo_points<const N: usize>(
        &self,
        oldest: impl FnOnce(Lsn) -> [Option<Lsn>; N],
    ) -> Result<[Lsn; N], LogError> {
        let appender = self.appender.lock();
        let (last, next) = (appender.last, appender.active.start);
        let oldest = oldest(next);
        let end = self.end();
        drop(appender);
        if !planted("checkpoint: the log is not flushed before it is stored") {
            self.flush(end)?;
        }
        let points = oldest.map(|oldest| oldest.unwrap_or(next).min(next));
        let first = points.first().copied().unwrap_or(next);
        match self.prepare(first) {
            Err(error) if error.is_no_space() && first == next => Ok([last; N]),
            prepared => prepared.map(|()| points),
        }
    }

    /// Returns the start of the open block.
    pub(crate) fn block_start(&self) -> Lsn {
        self.appender.lock().active.start
    }

    /// Returns the blocks to write now, oldest first: all sealed blocks, and the open one unless it is empty.
    /// Also returns where the next block begins.
    pub(super) fn take_blocks(&self, out: &mut Vec<Block>) -> Lsn {
        let mut appender = self.appender.lock();
        if !appender.active.is_empty() {
            appender.rotate(0);
        }
        out.extend(appender.sealed.drain(..));
        appender.active.start
    }

    pub(super) fn give_back(&self, blocks: &mut Vec<Block>) {
        let mut appender = self.appender.lock();
        blocks.drain(..).for_each(|block| appender.give_back(block));
    }

    pub(super) fn appended(&self) -> (u64, u64) {
        let appender = self.appender.lock();
        (appender.groups_count, appender.group_bytes)
    }
}

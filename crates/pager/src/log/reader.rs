//! Reading the log after a crash. The reader must tell the end of the log from damage.
//!
//! Invariants
//! 1. The reader returns only blocks of this database, with a right checksum. Their incarnation (the number
//!    of the log's life, which grows at each opening) is the one that wrote this part of the log.
//! 2. The log ends at the first place without a valid block, unless there is a proof that more log was
//!    written. Then the log is damaged, which is an error and never a silent cut. There are five proofs:
//!    - a block of a later incarnation;
//!    - a higher LSN in the control file or in a page;
//!    - a later block of the same incarnation that was written when this place was already durable;
//!    - a block of an incarnation that the control file should know, but does not know;
//!    - a missing segment, if the log before it or after it shows that it existed.
//! 3. After a clean shutdown only a later incarnation writes. So the reader looks for later blocks only where
//!    a later incarnation could begin.
//! 4. One kind of damage can't be proven. If the very last blocks before the crash are damaged, and no block
//!    was written after them, they look like an unfinished flush.
//!
//! This module does not know what records mean.

use varve_device::{AlignedBuf, Purpose, planted};

use super::LogError;
use super::format::{BLOCK_HEADER_BYTES, BlockHeader, Geometry, LOG_SECTOR_BYTES_MIN, SEGMENT_HEADER_BYTES};
use super::record::{Records, take_bytes, take_varint};
use super::segments::Segments;
use crate::base::log_error::RecordError;
use crate::base::lsn::Lsn;

/// One life of the database, from one opening to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The number of the life.
    pub incarnation: u32,
    /// The LSN at which the next block of the previous life would have started.
    pub after: Lsn,
    /// Start of its first block: `after`, or the next boundary of a larger sector.
    pub start: Lsn,
}

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Start of the last block, or the start of reading if there was no block.
    pub block: Lsn,
    /// End of the last group, or the start of reading if there was no group.
    pub end: Lsn,
    /// Where the next block starts.
    pub next: Lsn,
}

/// Proof from outside the log that it was durable up to some LSN.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The log was durable up to this LSN.
    pub lsn: Lsn,
    /// The proof, for messages: the words before the LSN.
    pub why: &'a str,
    /// Whether the log ended at `lsn` with a shutdown of the database. Then only a later life of the log can
    /// follow, and it begins at this end.
    pub is_end: bool,
}

/// A group as found in the log.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Start of its block.
    pub block: Lsn,
    /// Its first byte.
    pub start: Lsn,
    /// The position after the last byte of the group, which is the LSN of its changes.
    pub end: Lsn,
    /// Its records.
    pub records: Records<'a>,
}

/// The number of bytes of one read. Each read continues where the last one ended, so a disk has to seek only
/// once for a segment.
const CHUNK_BYTES: usize = 1 << 20;
/// The largest step of the search for later blocks. If the sectors of the log are or were smaller, the step
/// is a sector.
const SCAN_STEP_BYTES_MAX: u64 = 512;
const ALIGN_BYTES: usize = AlignedBuf::ALIGN_BYTES;

/// A *window* of the reader is a part of a segment in memory.
struct Window {
    number: u64,
    from: usize,
    bytes: AlignedBuf,
}

impl Window {
    /// Returns `count` bytes from byte `offset` of the segment, if the window has them.
    fn part(&self, number: u64, offset: usize, count: usize) -> Option<&[u8]> {
        let at = offset.checked_sub(self.from).filter(|_| number == self.number)?;
        self.bytes.get(at..at + count)
    }
}

/// Reads blocks in order.
pub(crate) struct Reader<'a> {
    segments: &'a Segments,
    geometry: Geometry,
    database: u64,
    lives: &'a [Life],
    /// Index of the life to which the tail belongs.
    life: usize,
    window: Option<Window>,
    tail: Tail,
    /// Whether the last block said that the next block is in the next segment.
    jumps: bool,
    /// The sector shift of the last block.
    sector_shift: Option<u8>,
    /// The position at which reading ends, except for the rest of its sector, because a new life may be
    /// writing after it.
    until: Option<Lsn>,
    /// Whether the bytes are kept for a second reading.
    keeps: bool,
}

impl<'a> Reader<'a> {
    /// Reads the log from `from`, which is the start of a block. `lives` are in ascending order. It is an
    /// error if the first life does not contain `from`.
    pub(crate) fn new(
        segments: &'a Segments,
        geometry: Geometry,
        database: u64,
        lives: &'a [Life],
        from: Lsn,
    ) -> Result<Reader<'a>, LogError> {
        let life = lives.iter().rposition(|life| life.start <= from);
        let tail = Tail { block: from, end: from, next: from };
        let reader = Reader {
            segments,
            geometry,
            database,
            lives,
            life: life.unwrap_or(0),
            window: None,
            tail,
            jumps: false,
            sector_shift: None,
            until: None,
            keeps: false,
        };
        match life {
            Some(_) => Ok(reader),
            None => Err(reader
                .damaged("the control file says that the log is read from here, in no incarnation".into())),
        }
    }

    /// Returns a reader that keeps the bytes that it reads in memory for a second reader, as far as there is
    /// space. Bytes that are read only to prove the end of the log are not kept.
    pub(crate) fn keeping(self) -> Reader<'a> {
        Reader { keeps: true, ..self }
    }

    /// Calls `visit` with every group up to the end of the log. Then proves as well as possible that this is
    /// the end.
    pub(crate) fn each_group<E: From<LogError>>(
        &mut self,
        known: Known<'_>,
        mut visit: impl FnMut(Group<'_>) -> Result<(), E>,
    ) -> Result<Tail, E> {
        if self.segments.file(self.geometry.segment_of(self.tail.next)).is_none() {
            return Err(self.damaged("the control file says that the log is read from here".into()).into());
        }
        while let Some(header) = self.next_block()? {
            let bytes = self.block_bytes(&header);
            for group in Groups::new(&header, bytes) {
                visit(group?)?;
            }
        }
        self.keeps = false;
        self.prove_end(known)?;
        Ok(self.tail)
    }

    /// Calls `visit` with every group before `until`, the end of the log that an earlier reading found.
    /// Nothing after the sector of `until` is read, because a new life of the log may be writing there.
    pub(crate) fn each_group_before<E: From<LogError>>(
        &mut self,
        until: Lsn,
        mut visit: impl FnMut(Group<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.until = Some(until);
        // A life without blocks may have moved the end to a boundary of larger sectors.
        self.enter_lives();
        while self.tail.next < until {
            let Some(header) = self.next_block()? else {
                return Err(self.damaged(format!("it was read up to LSN {until} a moment ago")).into());
            };
            let bytes = self.block_bytes(&header);
            for group in Groups::new(&header, bytes) {
                visit(group?)?;
            }
            self.enter_lives();
        }
        Ok(())
    }

    /// Returns the bytes of a block that was just found valid.
    fn block_bytes(&self, header: &BlockHeader) -> &[u8] {
        let (number, offset) = self.place(header.start);
        let window = self.window.as_ref();
        window
            .and_then(|window| window.part(number, offset, header.length_bytes as usize))
            .unwrap_or_default()
    }

    /// Returns the block at the tail, if it is valid, and moves the tail past it.
    fn next_block(&mut self) -> Result<Option<BlockHeader>, LogError> {
        self.enter_lives();
        let Some(header) = self.valid_block(self.tail.next)? else { return Ok(None) };
        (self.jumps, self.sector_shift) = (header.jump, Some(header.sector_shift));
        self.tail = Tail { block: header.start, end: header.end(), next: header.next_start(self.geometry) };
        Ok(Some(header))
    }

    /// Moves to the next life while one begins at the tail.
    fn enter_lives(&mut self) {
        while let Some(next) = self.lives.get(self.life + 1).filter(|life| life.after == self.tail.next) {
            self.life += 1;
            self.tail.next = next.start;
        }
    }

    fn valid_block(&mut self, at: Lsn) -> Result<Option<BlockHeader>, LogError> {
        let now = self.lives[self.life].incarnation;
        Ok(self.sealed_block(at)?.filter(|header| header.epoch.incarnation == now))
    }

    /// Returns the block of this database at `at`, if its checksum is right. It may be of any life.
    fn sealed_block(&mut self, at: Lsn) -> Result<Option<BlockHeader>, LogError> {
        let (database, room_bytes) = (self.database, self.geometry.segment_end(at).since(at));
        if room_bytes < BLOCK_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let Some(header) = self.load(at, BLOCK_HEADER_BYTES)?.and_then(BlockHeader::peek) else {
            return Ok(None);
        };
        if !header.claims(at, database, room_bytes) {
            return Ok(None);
        }
        let block = self.load(at, header.length_bytes as usize)?;
        let sealed =
            |bytes: &&[u8]| header.is_sealed(bytes) || planted("log: torn blocks are taken for whole");
        Ok(block.filter(sealed).map(|_| header))
    }

    fn place(&self, at: Lsn) -> (u64, usize) {
        (self.geometry.segment_of(at), self.geometry.offset_of(at) as usize)
    }

    /// Loads `count` bytes from `at`, within its segment. `None` means that there is no such segment.
    fn load(&mut self, at: Lsn, count: usize) -> Result<Option<&[u8]>, LogError> {
        let (number, offset) = self.place(at);
        if self.window.as_ref().is_none_or(|window| window.part(number, offset, count).is_none()) {
            if self.segments.file(number).is_none() {
                return self.refuse_headless(at).map(|()| None);
            }
            self.slide(number, offset, count)?;
        }
        Ok(self.window.as_ref().and_then(|window| window.part(number, offset, count)))
    }

    fn slide(&mut self, number: u64, offset: usize, count: usize) -> Result<(), LogError> {
        let readable_bytes = self.readable_bytes(number);
        let from = offset / ALIGN_BYTES * ALIGN_BYTES;
        let old = self.window.take().filter(|old| old.number == number);
        let kept =
            old.as_ref().and_then(|old| old.bytes.get(from.checked_sub(old.from)?..)).unwrap_or_default();
        let wanted = (offset + count - from).next_multiple_of(ALIGN_BYTES).max(kept.len() + CHUNK_BYTES);
        let length = wanted.min(readable_bytes.saturating_sub(from)).max(kept.len());
        let mut bytes = AlignedBuf::new(length);
        let (before, rest) = bytes.split_at_mut(kept.len());
        before.copy_from_slice(kept);
        if !rest.is_empty() {
            self.segments.read(number, from + kept.len(), rest, self.keeps)?;
        }
        self.window = Some(Window { number, from, bytes });
        Ok(())
    }

    /// Returns the number of bytes of a segment that no thread may be writing.
    fn readable_bytes(&self, number: u64) -> usize {
        let until = self.until.filter(|until| self.geometry.segment_of(*until) == number);
        let bytes = until.map_or(self.geometry.segment_bytes(), |until| {
            // A new life begins at the next boundary of a sector.
            self.geometry.offset_of(until).next_multiple_of(u64::from(self.segments.sector_bytes()))
        });
        bytes as usize
    }

    /// Returns an error if a file with a damaged segment header has a block of this log at `at`.
    fn refuse_headless(&self, at: Lsn) -> Result<(), LogError> {
        let offset = self.geometry.offset_of(at);
        let mut sector = AlignedBuf::new(SEGMENT_HEADER_BYTES as usize);
        let page_offset = offset / SEGMENT_HEADER_BYTES * SEGMENT_HEADER_BYTES;
        for file in self.segments.headless() {
            file.read_at(page_offset, &mut sector, Purpose::Log)?;
            let header = sector.get((offset - page_offset) as usize..).and_then(BlockHeader::peek);
            let ours = |header: BlockHeader| header.start == at && header.epoch.database == self.database;
            if header.is_some_and(ours) {
                let evidence =
                    format!("only the header of {} is damaged, it holds this LSN", file.location());
                return Err(self.damaged(evidence));
            }
        }
        Ok(())
    }

    /// Returns an error if there is a proof that the log continued after the tail.
    fn prove_end(&mut self, known: Known<'_>) -> Result<(), LogError> {
        let at = self.tail.next;
        if let Some(life) = self.lives.get(self.life + 1) {
            let evidence = format!("the database was opened again with its log at LSN {}", life.start);
            return Err(self.damaged(evidence));
        }
        if known.lsn > at {
            return Err(self.damaged(format!("{} LSN {}", known.why, known.lsn)));
        }
        self.refuse_gap(at)?;
        let later = match known.is_end && known.lsn >= self.tail.end {
            true => self.next_life(at)?,
            false => self.later_block(at)?,
        };
        match later {
            Some(later) => Err(self.damaged(evidence_of(&later, self.lives[self.life].incarnation))),
            None => Ok(()),
        }
    }

    /// Fails if the log ends at a missing segment that must have existed. It must have existed if a later
    /// segment exists, or if the last block says that the log continues. The reason is that segments are made
    /// one after the other, and a segment is made before a block is written that names it.
    fn refuse_gap(&self, at: Lsn) -> Result<(), LogError> {
        let number = self.geometry.segment_of(at);
        let later = self.segments.live_from(number).first().copied().filter(|later| *later > number);
        // A file whose header a crash or decay has damaged may be the missing segment. Such a file holds no
        // block, so the segment was empty.
        let is_missing = self.segments.file(number).is_none() && self.segments.headless().is_empty();
        match later {
            _ if !is_missing => Ok(()),
            Some(later) => Err(self.damaged(format!("segment {later} was prepared, which is behind it"))),
            None if self.jumps => {
                Err(self.damaged("the block before says that the log goes on there".into()))
            }
            None => Ok(()),
        }
    }

    /// Returns a later valid block which proves that the log continued at `at`. Either it is of this life and
    /// knows `at` to be durable, or it is of a later life that the control file should know.
    fn later_block(&mut self, at: Lsn) -> Result<Option<BlockHeader>, LogError> {
        let step_bytes = self.scan_step_bytes(at);
        for number in self.segments.live_from(self.geometry.segment_of(at)) {
            let first = self.geometry.first_block(number);
            let end = self.geometry.segment_end(first);
            let mut place = first.max(at);
            while place < end {
                if let Some(header) = self.later_block_at(place, at)? {
                    return Ok(Some(header));
                }
                place = place.forward(step_bytes);
            }
        }
        Ok(None)
    }

    /// Returns a number of bytes: blocks after `at` begin at multiples of it. It comes from the sectors of
    /// the log's device, and from those of the last block, if the log's files come from another device.
    fn scan_step_bytes(&self, at: Lsn) -> u64 {
        let before_shift = self.sector_shift.map_or_else(|| at.get().trailing_zeros(), u32::from);
        let now_shift = self.segments.sector_bytes().trailing_zeros();
        (1 << before_shift.min(now_shift)).min(SCAN_STEP_BYTES_MAX)
    }

    /// Does the same as `later_block`, after a shutdown. A later life of the log begins here, or at the next
    /// boundary of the sectors of its device.
    fn next_life(&mut self, at: Lsn) -> Result<Option<BlockHeader>, LogError> {
        let shifts = LOG_SECTOR_BYTES_MIN.trailing_zeros()..=SEGMENT_HEADER_BYTES.trailing_zeros();
        let mut places: Vec<Lsn> = shifts.map(|shift| self.geometry.block_start(at, shift as u8)).collect();
        places.dedup();
        for place in places {
            if let Some(header) = self.later_block_at(place, at)? {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    fn later_block_at(&mut self, place: Lsn, at: Lsn) -> Result<Option<BlockHeader>, LogError> {
        let now = self.lives[self.life].incarnation;
        let Some(header) = self.sealed_block(place)? else { return Ok(None) };
        let life = header.epoch.incarnation;
        Ok(Some(header).filter(|header| life > now || (life == now && header.durable_before > at)))
    }

    fn damaged(&self, evidence: String) -> LogError {
        let at = self.tail.next;
        let number = self.geometry.segment_of(at);
        let file = self.segments.file(number).map_or_else(
            || format!("of segment {number}, which is missing in {}", self.segments.location()),
            |file| file.location().to_string(),
        );
        LogError::Damaged { at, file, offset: self.geometry.offset_of(at), evidence }
    }
}

fn evidence_of(later: &BlockHeader, now: u32) -> String {
    let (start, life) = (later.start, later.epoch.incarnation);
    if life > now {
        return format!(
            "the block at LSN {start} is of incarnation {life}, which the control file does not know"
        );
    }
    format!(
        "the block at LSN {start} was written when everything before LSN {} was durable",
        later.durable_before
    )
}

/// Iterates over the groups of a block.
pub(super) struct Groups<'a> {
    block: Lsn,
    at: Lsn,
    rest: &'a [u8],
}

impl<'a> Groups<'a> {
    pub(super) fn new(header: &BlockHeader, bytes: &'a [u8]) -> Groups<'a> {
        let rest = bytes.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        Groups { block: header.start, at: header.start.forward(BLOCK_HEADER_BYTES as u64), rest }
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = Result<Group<'a>, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let before_bytes = self.rest.len();
        let records = take_varint(&mut self.rest).and_then(|length| take_bytes(&mut self.rest, length));
        let Some(records) = records else {
            self.rest = &[];
            return Some(Err(LogError::Nonsense { at: self.at, why: RecordError::Overrun }));
        };
        let start = self.at;
        self.at = start.forward((before_bytes - self.rest.len()) as u64);
        Some(Ok(Group { block: self.block, start, end: self.at, records: Records::new(records) }))
    }
}

const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(SCAN_STEP_BYTES_MAX));

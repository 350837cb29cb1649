//! Reading the log after a crash, and telling its end from damage.
//!
//! 1. What is given out was sealed by this database, in the incarnation that owns that part of the stream.
//! 2. The log ends at the first place without a valid block, unless something proves that the log went on:
//!    a later incarnation, an LSN that the control file or a page knows, or a later block of the same
//!    incarnation that was written when this place was durable already. Then the log is damaged, which is an
//!    error and never a silent cut.
//! 3. What can't be proven: damage to the very last blocks before the crash, when no block was written
//!    after them, looks like an unfinished flush.
//!
//! Not known here: what records mean.

use varve_device::{AlignedBuf, BlockFile, Purpose};

use super::LogError;
use super::format::{BLOCK_HEADER_BYTES, BlockHeader, Epoch, Geometry, SEGMENT_HEADER_BYTES};
use super::record::{RecordError, Records, take_bytes, take_varint};
use super::segments::Segments;
use crate::lsn::Lsn;

/// One life of the database, from one opening to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Its incarnation.
    pub incarnation: u32,
    /// Where the next block of the life before would have started.
    pub after: Lsn,
    /// Start of its first block: `after`, or the next boundary of a larger sector.
    pub start: Lsn,
}

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// End of the last group, or the start of reading when there was none.
    pub end: Lsn,
    /// Where the next block starts.
    pub next: Lsn,
}

/// A group as found in the log.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Start of its block.
    pub block: Lsn,
    /// Its first byte.
    pub start: Lsn,
    /// After its last byte: the LSN of its changes.
    pub end: Lsn,
    /// Its records.
    pub records: Records<'a>,
}

const CHUNK_BYTES: usize = 256 << 10;
const SCAN_STEP_BYTES: u64 = 512;

/// A segment in memory, read as far as it was needed.
struct Window {
    number: u64,
    bytes: AlignedBuf,
    loaded: usize,
}

/// Reads blocks in order.
pub(crate) struct Reader<'a> {
    segments: &'a Segments,
    geometry: Geometry,
    database: u64,
    lives: &'a [Life],
    /// The life that the tail is in.
    life: usize,
    window: Option<Window>,
    tail: Tail,
}

impl<'a> Reader<'a> {
    /// Reads from `from`, the start of a block. `lives` are in order; the first one covers `from`.
    pub(crate) fn new(
        segments: &'a Segments,
        geometry: Geometry,
        database: u64,
        lives: &'a [Life],
        from: Lsn,
    ) -> Reader<'a> {
        let life = lives.iter().rposition(|life| life.start <= from);
        let life = life.unwrap_or_else(|| panic!("no incarnation covers LSN {from}"));
        let tail = Tail { end: from, next: from };
        Reader { segments, geometry, database, lives, life, window: None, tail }
    }

    /// Calls `visit` with every group up to the end of the log; then proves the end as well as possible.
    /// `known` is an LSN that was durable, with the words that say why.
    pub(crate) fn each_group<E: From<LogError>>(
        &mut self,
        known: (Lsn, &str),
        mut visit: impl FnMut(Group<'_>) -> Result<(), E>,
    ) -> Result<Tail, E> {
        if self.segments.file(self.geometry.segment_of(self.tail.next)).is_none() {
            return Err(self.damaged("the control file says that redo starts here".into()).into());
        }
        while let Some(header) = self.next_block()? {
            let bytes = self.block_bytes(&header);
            for group in Groups::new(&header, bytes) {
                visit(group?)?;
            }
        }
        self.prove_end(known)?;
        Ok(self.tail)
    }

    fn block_bytes(&self, header: &BlockHeader) -> &[u8] {
        let at = self.geometry.offset_of(header.start) as usize;
        match &self.window {
            Some(window) => &window.bytes[at..at + header.length_bytes as usize],
            None => &[],
        }
    }

    /// The block at the tail if it is valid; moves the tail past it.
    fn next_block(&mut self) -> Result<Option<BlockHeader>, LogError> {
        while let Some(next) = self.lives.get(self.life + 1).filter(|life| life.after == self.tail.next) {
            self.life += 1;
            self.tail.next = next.start;
        }
        let Some(header) = self.valid_block(self.tail.next)? else { return Ok(None) };
        self.tail = Tail { end: header.end(), next: header.next_start(self.geometry) };
        Ok(Some(header))
    }

    fn valid_block(&mut self, at: Lsn) -> Result<Option<BlockHeader>, LogError> {
        let epoch = Epoch { database: self.database, incarnation: self.lives[self.life].incarnation };
        let room_bytes = self.geometry.segment_end(at).since(at);
        let offset = self.geometry.offset_of(at) as usize;
        if room_bytes < BLOCK_HEADER_BYTES as u64 || !self.load(at, offset + BLOCK_HEADER_BYTES)? {
            return Ok(None);
        }
        let Some(header) = self.window_from(offset).and_then(BlockHeader::peek) else { return Ok(None) };
        if !header.claims(at, epoch, room_bytes) || !self.load(at, offset + header.length_bytes as usize)? {
            return Ok(None);
        }
        Ok(self.window_from(offset).filter(|bytes| header.is_sealed(bytes)).map(|_| header))
    }

    fn window_from(&self, offset: usize) -> Option<&[u8]> {
        self.window.as_ref()?.bytes.get(offset..)
    }

    /// Has the segment of `at` in memory up to byte `upto`; false when there is no such segment.
    fn load(&mut self, at: Lsn, upto: usize) -> Result<bool, LogError> {
        let number = self.geometry.segment_of(at);
        let Some(file) = self.segments.file(number) else {
            return self.refuse_headless(at).map(|()| false);
        };
        if self.window.as_ref().is_none_or(|window| window.number != number) {
            let bytes = AlignedBuf::new(self.geometry.segment_bytes() as usize);
            // The header was checked when the files were opened.
            let skipped = (self.geometry.offset_of(at) as usize / CHUNK_BYTES) * CHUNK_BYTES;
            self.window = Some(Window { number, bytes, loaded: skipped });
        }
        let window = self.window.as_mut().expect("set above");
        window.load(&*file, upto)?;
        Ok(true)
    }

    /// Fails if a file whose segment header is damaged holds a block of this log at `at`.
    fn refuse_headless(&self, at: Lsn) -> Result<(), LogError> {
        let offset = self.geometry.offset_of(at);
        let mut sector = AlignedBuf::new(SEGMENT_HEADER_BYTES as usize);
        let page_offset = offset / SEGMENT_HEADER_BYTES * SEGMENT_HEADER_BYTES;
        for file in self.segments.headless() {
            file.read_at(page_offset, &mut sector, Purpose::Log)?;
            let header = BlockHeader::peek(&sector[(offset - page_offset) as usize..]);
            let ours = |header: BlockHeader| header.start == at && header.epoch.database == self.database;
            if header.is_some_and(ours) {
                let evidence = format!("only the header of {} is damaged, it holds this LSN", file.name());
                return Err(self.damaged(evidence));
            }
        }
        Ok(())
    }

    /// Fails if something proves that the log went on after the tail.
    fn prove_end(&mut self, known: (Lsn, &str)) -> Result<(), LogError> {
        let at = self.tail.next;
        if let Some(life) = self.lives.get(self.life + 1) {
            let evidence = format!("the database was opened again with its log at LSN {}", life.start);
            return Err(self.damaged(evidence));
        }
        if known.0 > at {
            return Err(self.damaged(format!("{} LSN {}", known.1, known.0)));
        }
        match self.later_block(at)? {
            Some(later) => Err(self.damaged(format!(
                "the block at LSN {} was written when everything before LSN {} was durable",
                later.start, later.durable_before
            ))),
            None => Ok(()),
        }
    }

    /// A later valid block of this life that knows `at` to be durable.
    fn later_block(&mut self, at: Lsn) -> Result<Option<BlockHeader>, LogError> {
        for number in self.segments.live_from(self.geometry.segment_of(at)) {
            let first = self.geometry.first_block(number);
            let end = self.geometry.segment_end(first);
            let mut place = first.max(at);
            while place < end {
                if let Some(header) = self.valid_block(place)?.filter(|header| header.durable_before > at) {
                    return Ok(Some(header));
                }
                place = place.forward(SCAN_STEP_BYTES);
            }
        }
        Ok(None)
    }

    fn damaged(&self, evidence: String) -> LogError {
        let at = self.tail.next;
        let number = self.geometry.segment_of(at);
        let file = self.segments.file(number).map_or_else(
            || format!("of segment {number}, which is missing in {}", self.segments.location()),
            |file| file.name().to_string(),
        );
        LogError::Damaged { at, file, offset: self.geometry.offset_of(at), evidence }
    }
}

impl Window {
    fn load(&mut self, file: &dyn BlockFile, upto: usize) -> Result<(), LogError> {
        let upto = upto.min(self.bytes.len());
        while self.loaded < upto {
            let end = (self.loaded + CHUNK_BYTES).min(self.bytes.len());
            file.read_at(self.loaded as u64, &mut self.bytes[self.loaded..end], Purpose::Log)?;
            self.loaded = end;
        }
        Ok(())
    }
}

/// Iterates over the groups of a block.
struct Groups<'a> {
    block: Lsn,
    at: Lsn,
    rest: &'a [u8],
}

impl<'a> Groups<'a> {
    fn new(header: &BlockHeader, bytes: &'a [u8]) -> Groups<'a> {
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

const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(SCAN_STEP_BYTES));

//! What the frames of a backup say.
//!
//! | kind | contents |
//! |---|---|
//! | 1 start | magic "VARVEBAK" (8), version (4), page size (4), database (8), id of the backup (8), start LSN (8), bytes of a log segment (8), newest start of the database (16), id of the earlier backup or 0 (8), its start LSN (8), its newest start of the database (16), its end LSN (8), pages in use (8), time in microseconds since 1970 (8), 1 if data and rollback space are packed (1), program version: length (1) and text |
//! | 2 pages | space (2), zero (2), number of pages (4), page numbers (4 each), the sealed pages |
//! | 3 same | space (2), zero (2), number of ranges (4), ranges: first page (4), number of pages (4) |
//! | 4 log | whole blocks of the log, one after the other |
//! | 5 end | end LSN (8), next log block (8), number of copied pages (8), of unchanged pages (8), number of the next tablespace (4), number of spaces (4), spaces: number (2), length in pages (4); number of tablespaces (4), tablespaces (`control/tablespaces.rs`) |
//!
//! A start of the database is its id (8) and the LSN after which it began (8), as in `control/starts.rs`. Without
//! an earlier backup, all fields about it are 0.
//!
//! A backup that names an earlier one is *incremental*. Its unchanged pages are those whose page LSN is not
//! above the start LSN of the earlier backup. They are in that backup, or in a backup before it.
//!
//! This module does not know how frames are stored.

use std::fmt;

use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageNo, PageRange, SpaceId};
use crate::base::lsn::{LSN_MAX, Lsn};
use crate::control::tablespaces::{Listed, TablespacesInUse};
use crate::control::{LogStart, LogState};

pub(crate) const KIND_START: u8 = 1;
pub(crate) const KIND_PAGES: u8 = 2;
pub(crate) const KIND_SAME: u8 = 3;
pub(crate) const KIND_LOG: u8 = 4;
pub(crate) const KIND_END: u8 = 5;

const MAGIC: &[u8; 8] = b"VARVEBAK";
/// The version of the format of backups.
pub const BACKUP_VERSION: u32 = 2;
const SEGMENT_BYTES_MAX: u64 = 1 << 44;

/// The earlier backup on which an incremental backup is based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupBase {
    /// The id of the earlier backup.
    pub backup: u64,
    /// Its database.
    pub database: u64,
    /// Its start LSN.
    pub start: Lsn,
    /// The state that a restore of it gives.
    pub state: LogState,
}

impl fmt::Display for BackupBase {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogState { newest, end } = self.state;
        let numbers =
            [self.backup, self.database, self.start.get(), newest.id, newest.after.get(), end.get()];
        write!(to, "{}", numbers.map(|number| format!("{number:x}")).join("/"))
    }
}

impl BackupBase {
    /// Reads the text that `Display` writes: six hexadecimal numbers with slashes between them. They are the
    /// id of the backup, its database, its start LSN, id and LSN of its newest start, and its end LSN.
    pub fn parse(text: &str) -> Option<BackupBase> {
        let numbers = text.split('/').map(|part| u64::from_str_radix(part, 16).ok());
        let numbers: [u64; 6] = numbers.collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let [backup, database, start, id, after, end] = numbers;
        let lsn = |number: u64| (number <= LSN_MAX).then(|| Lsn::new(number));
        let state = LogState { newest: LogStart { id, after: lsn(after)? }, end: lsn(end)? };
        (backup != 0).then_some(BackupBase { backup, database, start: lsn(start)?, state })
    }
}

/// What a backup says at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupStart {
    /// Page size in bytes.
    pub page_size: u32,
    /// Identity of the database.
    pub database: u64,
    /// A random number, the identity of the backup.
    pub backup: u64,
    /// The LSN of the first log block in the backup. Each page has all earlier changes.
    pub start: Lsn,
    /// Bytes of a segment of the log.
    pub log_segment_bytes: u64,
    /// The newest start of the database. It is the same until the end of the backup.
    pub newest: LogStart,
    /// The earlier backup, of an incremental backup.
    pub base: Option<BackupBase>,
    /// Pages in use at the start, for reports of progress.
    pub pages: u64,
    /// The time at which the backup began, in microseconds since 1970, UTC.
    pub time_us: u64,
    /// Whether the data and the rollback space were packed.
    pub is_packed: bool,
    /// The version of the program that made the backup.
    pub program: String,
}

/// What a backup says at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupEnd {
    /// The LSN of the state that a restore of this backup gives.
    pub end: Lsn,
    /// Where the next block of the log would begin.
    pub(crate) next: Lsn,
    /// Number of pages in the backup.
    pub pages: u64,
    /// Number of pages that are in an earlier backup.
    pub same: u64,
    pub(crate) next_tablespace: u32,
    /// The lengths of the spaces.
    pub(crate) spaces: Vec<(SpaceId, u32)>,
    pub(crate) tablespaces: Vec<Listed>,
}

/// The pages of a frame.
pub(crate) struct Pages<'b> {
    pub(crate) space: SpaceId,
    numbers: &'b [u8],
    bytes: &'b [u8],
    page_size: usize,
}

impl<'b> Pages<'b> {
    pub(crate) fn each(&self) -> impl Iterator<Item = (PageId, &'b [u8])> {
        let space = self.space;
        let numbers = self.numbers.chunks_exact(4).map(|no| u32::from_le_bytes([no[0], no[1], no[2], no[3]]));
        numbers.map(move |no| PageId::new(space, PageNo(no))).zip(self.bytes.chunks_exact(self.page_size))
    }
}

/// Takes values from bytes.
pub(super) struct Taker<'b>(pub(super) &'b [u8]);

impl<'b> Taker<'b> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Option<bool> {
        self.u8().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn page_size(&mut self) -> Option<u32> {
        self.u32().filter(|size| size.is_power_of_two() && (4096..=65536).contains(size))
    }

    pub(super) fn segment_bytes(&mut self) -> Option<u64> {
        let is_length =
            |bytes: &u64| bytes.is_multiple_of(4096) && (8192..=SEGMENT_BYTES_MAX).contains(bytes);
        self.u64().filter(is_length)
    }

    pub(super) fn lsn(&mut self) -> Option<Lsn> {
        self.u64().filter(|lsn| *lsn <= LSN_MAX).map(Lsn::new)
    }

    fn log_start(&mut self) -> Option<LogStart> {
        Some(LogStart { id: self.u64()?, after: self.lsn()? })
    }

    fn space(&mut self) -> Option<SpaceId> {
        let space = self.array().map(u16::from_le_bytes).map(SpaceId)?;
        (SpaceId::DURABLE.contains(&space) || space.is_tablespace()).then_some(space)
    }
}

impl BackupStart {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&BACKUP_VERSION.to_le_bytes());
        out.extend_from_slice(&self.page_size.to_le_bytes());
        let numbers = [self.database, self.backup, self.start.get(), self.log_segment_bytes];
        let of_start = |start: LogStart| [start.id, start.after.get()];
        let of_base = self.base.map_or([0; 5], |BackupBase { backup, start, state, .. }| {
            [backup, start.get(), state.newest.id, state.newest.after.get(), state.end.get()]
        });
        let numbers = numbers.into_iter().chain(of_start(self.newest)).chain(of_base);
        out.extend(numbers.chain([self.pages, self.time_us]).flat_map(u64::to_le_bytes));
        let program = &self.program.as_bytes()[..self.program.len().min(255)];
        out.extend_from_slice(&[u8::from(self.is_packed), program.len() as u8]);
        out.extend_from_slice(program);
        out
    }

    pub(crate) fn decode(contents: &[u8]) -> Result<BackupStart> {
        let mut rest = Taker(contents);
        if rest.bytes(8) != Some(&MAGIC[..]) {
            return Err(PagerError::Incompatible { what: "this is not a backup of Varve".into() });
        }
        match rest.u32() {
            Some(BACKUP_VERSION) => {}
            version => {
                let version = version.unwrap_or_default();
                let what = format!(
                    "the backup has format {version}, and this program knows format {BACKUP_VERSION}: use the program that made it"
                );
                return Err(PagerError::Incompatible { what });
            }
        }
        BackupStart::fields(&mut rest).filter(|_| rest.0.is_empty()).ok_or_else(|| nonsense("start"))
    }

    fn fields(rest: &mut Taker<'_>) -> Option<BackupStart> {
        let page_size = rest.page_size()?;
        let (database, backup, start) = (rest.u64()?, rest.u64()?, rest.lsn()?);
        let log_segment_bytes = rest.segment_bytes()?;
        let newest = rest.log_start()?;
        let (backup_before, since) = (rest.u64()?, rest.lsn()?);
        let state = LogState { newest: rest.log_start()?, end: rest.lsn()? };
        let (pages, time_us, is_packed) = (rest.u64()?, rest.u64()?, rest.flag()?);
        let length = rest.u8()?;
        let program = String::from_utf8(rest.bytes(usize::from(length))?.to_vec()).ok()?;
        let base = BackupBase { backup: backup_before, database, start: since, state };
        let base = (backup_before != 0).then_some(base);
        let found = BackupStart {
            page_size,
            database,
            backup,
            start,
            log_segment_bytes,
            newest,
            base,
            pages,
            time_us,
            is_packed,
            program,
        };
        Some(found)
    }
}

impl BackupEnd {
    /// Returns the tablespaces at the end of the backup.
    pub(crate) fn listed_in_use(&self) -> TablespacesInUse {
        TablespacesInUse { next: self.next_tablespace, all: self.tablespaces.clone() }
    }

    /// Returns the names and the locations of the tablespaces.
    pub fn tablespaces(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tablespaces.iter().map(|one| (one.name.as_str(), one.location.as_str()))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = [self.end.get(), self.next.get(), self.pages, self.same];
        let mut out: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        out.extend_from_slice(&self.next_tablespace.to_le_bytes());
        out.extend_from_slice(&(self.spaces.len() as u32).to_le_bytes());
        for (space, pages) in &self.spaces {
            out.extend_from_slice(&space.0.to_le_bytes());
            out.extend_from_slice(&pages.to_le_bytes());
        }
        out.extend_from_slice(&(self.tablespaces.len() as u32).to_le_bytes());
        self.tablespaces.iter().for_each(|one| one.put(&mut out));
        out
    }

    pub(crate) fn decode(contents: &[u8]) -> Result<BackupEnd> {
        let mut rest = Taker(contents);
        BackupEnd::fields(&mut rest).filter(|_| rest.0.is_empty()).ok_or_else(|| nonsense("end"))
    }

    fn fields(rest: &mut Taker<'_>) -> Option<BackupEnd> {
        let (end, next, pages, same) = (rest.lsn()?, rest.lsn()?, rest.u64()?, rest.u64()?);
        let next_tablespace = rest.u32()?;
        let mut spaces = Vec::new();
        for _ in 0..rest.u32()? {
            spaces.push((rest.space()?, rest.u32()?));
        }
        let mut tablespaces = Vec::new();
        for _ in 0..rest.u32()? {
            tablespaces.push(Listed::take(&mut rest.0, next_tablespace)?);
        }
        let found = BackupEnd { end, next, pages, same, next_tablespace, spaces, tablespaces };
        Some(found)
    }
}

/// Returns the contents of a frame of pages. `bytes` has one page after the other.
pub(crate) fn encode_pages(space: SpaceId, numbers: &[PageNo], bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 4 * numbers.len() + bytes.len());
    out.extend_from_slice(&u32::from(space.0).to_le_bytes());
    out.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    out.extend(numbers.iter().flat_map(|no| no.0.to_le_bytes()));
    out.extend_from_slice(bytes);
    out
}

pub(crate) fn decode_pages(contents: &[u8], page_size: usize) -> Result<Pages<'_>> {
    let mut rest = Taker(contents);
    let mut read = || {
        let (space, zero) = (rest.space()?, rest.array::<2>()?);
        let count = rest.u32()? as usize;
        let numbers = rest.bytes(count.checked_mul(4)?)?;
        let is_whole = zero == [0, 0] && rest.0.len() == count.checked_mul(page_size)?;
        is_whole.then_some(Pages { space, numbers, bytes: rest.0, page_size })
    };
    read().ok_or_else(|| nonsense("pages"))
}

/// Returns the contents of a frame of unchanged pages.
pub(crate) fn encode_same(space: SpaceId, ranges: &[PageRange]) -> Vec<u8> {
    let mut out = u32::from(space.0).to_le_bytes().to_vec();
    out.extend_from_slice(&(ranges.len() as u32).to_le_bytes());
    for range in ranges {
        out.extend_from_slice(&range.first.no().0.to_le_bytes());
        out.extend_from_slice(&range.count.to_le_bytes());
    }
    out
}

pub(crate) fn decode_same(contents: &[u8]) -> Result<Vec<PageRange>> {
    let mut rest = Taker(contents);
    let mut read = || {
        let (space, _zero) = (rest.space()?, rest.array::<2>().filter(|zero| *zero == [0, 0])?);
        let mut ranges = Vec::new();
        for _ in 0..rest.u32()? {
            let (first, count) = (rest.u32()?, rest.u32()?);
            first.checked_add(count)?;
            ranges.push(PageRange { first: PageId::new(space, PageNo(first)), count });
        }
        rest.0.is_empty().then_some(ranges)
    };
    read().ok_or_else(|| nonsense("unchanged pages"))
}

fn nonsense(what: &str) -> PagerError {
    PagerError::Corrupt { what: format!("the backup is damaged: its frame of {what} makes no sense") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::compression::{Algorithm, Compression};
    use crate::control::InForce;
    use crate::control::tablespaces::TablespaceState;

    #[test]
    fn start_and_end_come_back_and_cuts_are_seen() {
        let newest = LogStart { id: 21, after: Lsn::new(4096) };
        let state = LogState { newest: LogStart { id: 20, after: Lsn::ZERO }, end: Lsn::new(8999) };
        let base = BackupBase { backup: 9, database: 5, start: Lsn::new(8192), state };
        let start = BackupStart {
            page_size: 8192,
            database: 5,
            backup: 7,
            start: Lsn::new(12288),
            log_segment_bytes: 1 << 20,
            newest,
            base: Some(base),
            pages: 11,
            time_us: 12,
            is_packed: true,
            program: "0.1".into(),
        };
        let bytes = start.encode();
        assert_eq!(BackupStart::decode(&bytes).unwrap(), start);
        let full = BackupStart { base: None, ..start };
        assert_eq!(BackupStart::decode(&full.encode()).unwrap(), full);
        assert_eq!(base.to_string(), "9/5/2000/14/0/2327");
        assert_eq!(BackupBase::parse("9/5/2000/14/0/2327"), Some(base));
        for wrong in ["", "9/5/2000", "0/5/2000/14/0/2327", "9/5/2000/14/0/2327/1", "9/5/x/14/0/2327"] {
            assert_eq!(BackupBase::parse(wrong), None, "{wrong}");
        }
        assert_eq!(BackupBase::parse("9/5/2000/14/0/ffffffffffffffff"), None, "an impossible LSN");
        let listed = Listed {
            id: SpaceId(17),
            state: TablespaceState::InUse,
            protection: InForce::Doublewrite,
            compression: Some(Compression::of(Algorithm::Zstd)),
            name: "fast".into(),
            location: "/fast".into(),
            note: vec![1, 2],
        };
        let end = BackupEnd {
            end: Lsn::new(20000),
            next: Lsn::new(20480),
            pages: 3,
            same: 4,
            next_tablespace: 18,
            spaces: vec![(SpaceId::DATA, 128), (SpaceId(17), 64)],
            tablespaces: vec![listed],
        };
        let of_end = end.encode();
        assert_eq!(BackupEnd::decode(&of_end).unwrap(), end);
        assert!((0..bytes.len()).all(|at| BackupStart::decode(&bytes[..at]).is_err()));
        assert!((0..of_end.len()).all(|at| BackupEnd::decode(&of_end[..at]).is_err()));
    }

    #[test]
    fn pages_come_back() {
        let contents = encode_pages(SpaceId::DATA, &[PageNo(3), PageNo(9)], &[7; 8192]);
        let pages = decode_pages(&contents, 4096).unwrap();
        let numbers: Vec<u32> = pages.each().map(|(id, _)| id.no().0).collect();
        assert_eq!(numbers, [3, 9]);
        assert!(decode_pages(&contents, 8192).is_err());
        let range = PageRange { first: PageId::new(SpaceId::DATA, PageNo(5)), count: 4 };
        assert_eq!(decode_same(&encode_same(SpaceId::DATA, &[range])).unwrap(), [range]);
    }
}

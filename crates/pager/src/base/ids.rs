//! The identities of the pager: space, page number, page id, owner.
//!
//! Invariants
//! 1. A [`PageId`] names one page of one space for the whole life of the database file.
//! 2. Space number 0 does not exist, so a page id of 0 never names a page.
//!
//! This module does not know where a page is stored on a device (`home/mod.rs`).

use std::fmt;

/// Number of a storage space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u16);

impl SpaceId {
    /// Tables and indexes.
    pub const DATA: SpaceId = SpaceId(1);
    /// Undo pages, which have older versions of rows.
    pub const ROLLBACK: SpaceId = SpaceId(2);
    /// Temporary data of queries, such as sort runs. It is never logged, and empty after each start.
    pub const TEMPORARY: SpaceId = SpaceId(3);
    /// The spaces that each database has, and that survive a restart.
    pub const DURABLE: [SpaceId; 2] = [SpaceId::DATA, SpaceId::ROLLBACK];
    /// The first number of a tablespace. Lower numbers are the pager's own.
    pub const FIRST_TABLESPACE: SpaceId = SpaceId(16);

    /// Returns the lower-case name for messages.
    pub fn name(self) -> &'static str {
        match self {
            SpaceId::DATA => "data",
            SpaceId::ROLLBACK => "rollback",
            SpaceId::TEMPORARY => "temporary",
            _ if self.is_tablespace() => "tablespace",
            _ => "unknown",
        }
    }

    /// Returns whether this is a further space for tables and indexes (decision 0212).
    pub const fn is_tablespace(self) -> bool {
        self.0 >= SpaceId::FIRST_TABLESPACE.0
    }

    /// Returns the space for messages, such as "the data space".
    pub fn title(self) -> String {
        match self.is_tablespace() {
            true => format!("tablespace {}", self.0),
            false => format!("the {} space", self.name()),
        }
    }

    /// Returns whether changes of the pages in this space are logged.
    pub fn is_logged(self) -> bool {
        self != SpaceId::TEMPORARY
    }
}

/// Number of a page within its space, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNo(pub u32);

/// Identity of a page. The upper 32 bits are the space, the lower 32 bits the page number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(u64);

impl PageId {
    /// The engine's root page: the first page of the data space that does not belong to the pager.
    pub const ROOT: PageId = PageId::new(SpaceId::DATA, PageNo(1));

    /// Returns the page `no` of `space`.
    pub const fn new(space: SpaceId, no: PageNo) -> PageId {
        PageId((space.0 as u64) << 32 | no.0 as u64)
    }

    /// Reads back a number that [`PageId::to_u64`] has returned. Returns `None` for 0 and for numbers that
    /// name no space.
    pub fn from_u64(raw: u64) -> Option<PageId> {
        let space = raw >> 32;
        (space != 0 && space <= u64::from(u16::MAX)).then_some(PageId(raw))
    }

    /// Returns the number stored in pages and log records.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Returns the space.
    pub const fn space(self) -> SpaceId {
        SpaceId((self.0 >> 32) as u16)
    }

    /// Returns the number within the space.
    pub const fn no(self) -> PageNo {
        PageNo(self.0 as u32)
    }

    /// Returns the page `count` pages further on in the same space.
    pub fn plus(self, count: u32) -> PageId {
        PageId::new(self.space(), PageNo(self.no().0 + count))
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (space, no) = (self.space(), self.no().0);
        match space.is_tablespace() {
            true => write!(f, "tablespace {}:{no}", space.0),
            false => write!(f, "{}:{no}", space.name()),
        }
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Pages `first .. first + count` of one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRange {
    /// First page.
    pub first: PageId,
    /// Number of pages.
    pub count: u32,
}

impl PageRange {
    /// Returns whether `id` lies in the range.
    pub fn contains(&self, id: PageId) -> bool {
        let end = self.first.to_u64() + u64::from(self.count);
        self.first <= id && id.to_u64() < end
    }

    /// Returns all pages of the range.
    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (0..self.count).map(move |at| self.first.plus(at))
    }
}

/// The kind of an access to a page. It decides how long the page stays in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A point access: the page will probably be used again.
    Random,
    /// The access is a part of a scan. The page is evicted early, and other pages are not evicted for it.
    Sequential,
}

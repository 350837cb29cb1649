//! Reads a backup and checks all of it: checksums of frames, pages and log blocks, and that nothing is
//! missing.
//!
//! Invariants
//! 1. The result is `Ok` only for a complete backup. It has the start frame first and the end frame last; its
//!    pages are whole; its log has no gap from the start LSN to the end LSN; and no page is newer than the
//!    end LSN.
//!
//! This module does not know where a backup is stored.

use std::io::Read;

use super::contents::{
    BackupBase, BackupEnd, BackupStart, KIND_END, KIND_LOG, KIND_PAGES, KIND_SAME, KIND_START, decode_pages,
    decode_same,
};
use super::frame::{Frame, FrameReader};
use crate::base::error::{PagerError, Result};
use crate::base::ids::{PageId, PageRange};
use crate::base::lsn::Lsn;
use crate::base::page;
use crate::control::LogState;
use crate::log::Group;
use crate::log::blocks::{BlockChain, BlockMark};
use crate::log::format::Geometry;

/// A backup that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// What it says at its start.
    pub start: BackupStart,
    /// What it says at its end.
    pub end: BackupEnd,
    /// The last block of its log, if its log has a block.
    pub(crate) last: Option<BlockMark>,
}

impl BackupSummary {
    /// Returns what an incremental backup that is based on this one says about it.
    pub fn as_base(&self) -> BackupBase {
        let BackupStart { backup, database, start, newest, .. } = self.start;
        BackupBase { backup, database, start, state: LogState { newest, end: self.end.end } }
    }

    /// Returns whether this backup is an incremental one, and `older` is the one that it needs next.
    pub fn is_based_on(&self, older: &BackupSummary) -> bool {
        self.start.base == Some(older.as_base()) && self.start.page_size == older.start.page_size
    }
}

/// Receives the contents of a backup while it is verified.
pub(crate) trait BackupVisitor {
    /// The backup has this page. Its checksum is right.
    fn page(&mut self, _id: PageId, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
    /// An earlier backup has these pages.
    fn same(&mut self, _range: PageRange) -> Result<()> {
        Ok(())
    }
    /// The next group of log records.
    fn group(&mut self, _group: Group<'_>) -> Result<()> {
        Ok(())
    }
}

/// Receives nothing.
pub(crate) struct OnlyVerify;

impl BackupVisitor for OnlyVerify {}

/// Verifies the bytes of a backup, which come in pieces.
#[derive(Default)]
pub struct BackupVerifier {
    frames: FrameReader,
    /// Bytes that are not a whole frame yet.
    pending: Vec<u8>,
    contents: Contents,
}

/// The state of the verification.
#[derive(Default)]
struct Contents {
    start: Option<(BackupStart, BlockChain)>,
    end: Option<BackupEnd>,
    pages: u64,
    same: u64,
    newest: Lsn,
}

impl BackupVerifier {
    /// Takes the next bytes of the backup.
    ///
    /// # Errors
    ///
    /// Fails if the backup is damaged, or was made by another version of the program.
    pub fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = self.frames.length_of(&self.pending[at..])? {
            let Some(frame) = self.pending[at..].get(..length) else { break };
            let frame = self.frames.take(frame)?;
            self.contents.frame(&frame, &mut OnlyVerify)?;
            at += length;
        }
        self.pending.drain(..at);
        Ok(())
    }

    /// Returns what the backup says at its start, when it has been taken.
    pub fn start(&self) -> Option<&BackupStart> {
        self.contents.start.as_ref().map(|(start, _)| start)
    }

    /// Returns the number of pages so far, and the number of pages that an earlier backup has.
    pub fn pages(&self) -> (u64, u64) {
        (self.contents.pages, self.contents.same)
    }

    /// Ends the verification. Fails if the backup is not complete.
    pub fn finish(self) -> Result<BackupSummary> {
        if self.pending.is_empty() { self.contents.finish() } else { Err(incomplete()) }
    }
}

/// Verifies a backup, and gives its contents to `visitor`.
pub(crate) fn read(from: &mut dyn Read, visitor: &mut dyn BackupVisitor) -> Result<BackupSummary> {
    let (mut frames, mut contents) = (FrameReader::default(), Contents::default());
    while let Some(frame) = frames.read(from)? {
        contents.frame(&frame, visitor)?;
    }
    contents.finish()
}

/// Verifies a backup.
pub fn verify_backup(from: &mut dyn Read) -> Result<BackupSummary> {
    read(from, &mut OnlyVerify)
}

impl Contents {
    fn frame(&mut self, frame: &Frame, visitor: &mut dyn BackupVisitor) -> Result<()> {
        if self.end.is_some() {
            return Err(damaged("something follows its end"));
        }
        let Some((start, chain)) = &mut self.start else {
            if frame.kind != KIND_START {
                return Err(PagerError::Incompatible { what: "this is not a backup of Varve".into() });
            }
            let start = BackupStart::decode(&frame.contents)?;
            let geometry = Geometry::new(start.log_segment_bytes);
            let chain = BlockChain::new(geometry, start.database, start.start);
            self.start = Some((start, chain));
            return Ok(());
        };
        match frame.kind {
            KIND_PAGES => {
                for (id, bytes) in decode_pages(&frame.contents, start.page_size as usize)?.each() {
                    page::verify(bytes, id).map_err(|damage| PagerError::DamagedPage { id, damage })?;
                    self.newest = self.newest.max(page::page_lsn(bytes));
                    self.pages += 1;
                    visitor.page(id, bytes)?;
                }
                Ok(())
            }
            KIND_SAME if start.base.is_some() => {
                decode_same(&frame.contents)?.into_iter().try_for_each(|range| {
                    self.same += u64::from(range.count);
                    visitor.same(range)
                })
            }
            KIND_LOG => chain.take(&frame.contents, |group| visitor.group(group)),
            KIND_END => {
                self.end = Some(BackupEnd::decode(&frame.contents)?);
                Ok(())
            }
            _ => Err(damaged("it has a frame of an unknown kind")),
        }
    }

    fn finish(self) -> Result<BackupSummary> {
        let (Some((start, chain)), Some(end)) = (self.start, self.end) else { return Err(incomplete()) };
        if (end.pages, end.same) != (self.pages, self.same) {
            return Err(damaged("pages are missing"));
        }
        if end.next != chain.next() || end.end != chain.end() {
            return Err(damaged("its log does not end where the backup ended"));
        }
        if self.newest > end.end {
            return Err(damaged("a page is newer than its log"));
        }
        Ok(BackupSummary { start, end, last: chain.last() })
    }
}

fn incomplete() -> PagerError {
    let what = "the backup is not complete: it was interrupted, or its end was cut off".into();
    PagerError::Corrupt { what }
}

fn damaged(why: &str) -> PagerError {
    PagerError::Corrupt { what: format!("the backup is damaged: {why}") }
}

//! The archived log after the end of a backup, up to a moment.
//!
//! Invariants
//! 1. The timeline has the last log block of the backup, byte for byte. So the log after it is of the same
//!    history as the backup.
//!
//! This module does not know pages.

use std::ops::ControlFlow;

use varve_device::reached;

use super::moment::{MomentFound, MomentSearch};
use super::store::TimelineName;
use super::timeline::Timeline;
use crate::backup::source::{ArchiveSource, BackupSource};
use crate::backup::verify::{self, BackupSummary, BackupVisitor};
use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::control::tablespaces::TablespacesInUse;
use crate::log::blocks::BlockMark;
use crate::log::notes::time::{NOTE_TIME, Timed};
use crate::log::{Group, Record};

/// The archived log between a backup and a moment.
pub(crate) struct LaterLog<'a> {
    timeline: Timeline<'a>,
    /// The last block of the backup's log.
    last: BlockMark,
    /// The end of the backup.
    end: Lsn,
    found: MomentFound,
    /// Timelines of the same database that begin after the moment.
    newer: Vec<TimelineName>,
}

/// Finds the newest time in the log of a backup.
#[derive(Default)]
struct TimeOfEnd(Option<u64>);

impl BackupVisitor for TimeOfEnd {
    fn group(&mut self, group: Group<'_>) -> Result<()> {
        for record in group.records {
            if let Ok(Record::Note { kind: NOTE_TIME, payload }) = record {
                let time_us = Timed::decode(payload).map(|(_, time_us)| time_us);
                self.0 = self.0.max(time_us);
            }
        }
        Ok(())
    }
}

fn not_possible(what: String) -> PagerError {
    PagerError::Backup { what }
}

impl<'a> LaterLog<'a> {
    /// Finds the log after the backup, and the position of the moment in it. All of it is verified.
    pub(crate) fn find(
        archive: ArchiveSource<'a>,
        newest: &dyn BackupSource,
        backup: &BackupSummary,
    ) -> Result<LaterLog<'a>> {
        let end = backup.end.end;
        let Some(last) = backup.last else {
            return Err(not_possible(format!(
                "{} has no log block by which its archive could be recognized: take a backup while the archive is \
                 configured",
                newest.name()
            )));
        };
        let mut time = TimeOfEnd::default();
        let unreadable = |error| not_possible(format!("{} cannot be read: {error}", newest.name()));
        verify::read(&mut *newest.open().map_err(unreadable)?, &mut time)?;
        MomentSearch::refuse_before_backup(archive.until, end, time.0)?;
        let timeline = choose(archive, backup, last)?;
        let found = search(&timeline, last, MomentSearch::new(archive.until, end, time.0))?;
        let all = Timeline::all(archive.store, backup.start.database)?;
        let newer = all.iter().filter(|one| one.start() > found.stop).map(|one| one.name).collect();
        Ok(LaterLog { timeline, last, end, found, newer })
    }

    /// Returns the timelines of the same database that begin after the moment. This backup does not reach
    /// them.
    pub(crate) fn newer(&self) -> &[TimelineName] {
        &self.newer
    }

    /// Returns the end of the last group.
    pub(crate) fn stop(&self) -> Lsn {
        self.found.stop
    }

    /// Returns the newest time in the log, if it has times.
    pub(crate) fn time_us(&self) -> Option<u64> {
        self.found.time_us
    }

    /// Returns the tablespaces at the moment, if they were changed since the backup.
    pub(crate) fn tablespaces(&self) -> Option<TablespacesInUse> {
        self.found.tablespaces.clone()
    }

    /// Calls `visit` with each group after the backup, up to the moment.
    pub(crate) fn each_group(&self, mut visit: impl FnMut(Group<'_>) -> Result<()>) -> Result<()> {
        self.timeline.each_block(self.last.start, |_, block| {
            for group in block.groups() {
                let group = group?;
                if group.end > self.found.stop {
                    return Ok(ControlFlow::Break(()));
                }
                if group.end > self.end {
                    visit(group)?;
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// Chooses the timeline that has the last block of the backup.
fn choose<'a>(archive: ArchiveSource<'a>, backup: &BackupSummary, last: BlockMark) -> Result<Timeline<'a>> {
    let database = backup.start.database;
    let all = Timeline::all(archive.store, database)?;
    let is_wanted = |one: &Timeline<'_>| archive.timeline.is_none_or(|wanted| wanted == one.name.timeline);
    let (mut fitting, mut others, mut unreadable) = (Vec::new(), Vec::new(), None);
    for timeline in all {
        match if is_wanted(&timeline) { timeline.has_block(last) } else { Ok(false) } {
            Ok(true) => fitting.push(timeline),
            Ok(false) => others.push(timeline),
            // Another timeline may be the one.
            Err(error) => unreadable = unreadable.or(Some((timeline.name, error))),
        }
    }
    if let (true, Some((name, error))) = (fitting.is_empty(), unreadable) {
        reached("restore: a timeline cannot be read");
        return Err(not_possible(format!(
            "{error}; timeline {name} may be the one that goes on from this backup. If it is another one, choose that one \
             with --timeline"
        )));
    }
    let place = archive.store.location();
    if fitting.len() > 1 {
        reached("restore: the timeline must be chosen");
        let names: Vec<String> = fitting.iter().map(|one| format!("{:016x}", one.name.timeline)).collect();
        return Err(not_possible(format!(
            "the log archive {place} has several timelines that go on from this backup: choose one of {}",
            names.join(", ")
        )));
    }
    fitting.pop().ok_or_else(|| {
        let first = others.iter().map(Timeline::start).filter(|start| *start > last.start).min();
        not_possible(match (others.is_empty(), first) {
            (true, _) => format!("the log archive {place} has no log of database {database:016x}"),
            (false, Some(first)) => format!(
                "the log archive {place} lacks the log from the end of the backup, LSN {}, to LSN {first}: use a later \
                 backup",
                backup.end.end
            ),
            (false, None) => format!(
                "the log archive {place} has no timeline that goes on from the end of the backup, LSN {}: the log there is of \
                 another history, or ends before",
                backup.end.end
            ),
        })
    })
}

/// Reads the timeline from the end of the backup to the moment.
fn search(timeline: &Timeline<'_>, last: BlockMark, mut search: MomentSearch) -> Result<MomentFound> {
    let mut next = last.start;
    let mut is_first = true;
    timeline.each_block(last.start, |_, block| {
        next = block.end();
        search.enter_life(block.incarnation());
        if std::mem::take(&mut is_first) {
            // The backup has this block.
            return Ok(ControlFlow::Continue(()));
        }
        for group in block.groups() {
            if search.group(group?)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    search.finish(next)
}

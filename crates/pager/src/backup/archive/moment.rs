//! Finds the position in an archived log that belongs to a moment.
//!
//! Invariants
//! 1. A restore to a time has each commit whose time, and that of each commit before it, is not later; and no
//!    other. A commit is acknowledged after its time.
//! 2. A time is refused if the log cannot say exactly which commits came before it: before the end of the
//!    backup, after the end of the archive, or where the database ran without an archive.
//!
//! This module does not know where the log is read from.

use std::ops::ControlFlow;

use varve_device::{planted, reached};

use crate::base::error::{PagerError, Result};
use crate::base::lsn::Lsn;
use crate::base::moment::Moment;
use crate::control::tablespaces::{NOTE_TABLESPACES, TablespacesInUse};
use crate::log::notes::time::{NOTE_TIME, Timed};
use crate::log::{Group, Record};

/// The moment to which a database is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The end of the archive.
    Latest,
    /// Everything that was committed up to this time, in microseconds since 1970, UTC.
    TimeUs(u64),
    /// Everything that was logged up to this LSN.
    Lsn(Lsn),
}

/// The state of the search for a moment: what was read so far.
pub(crate) struct MomentSearch {
    until: Until,
    /// The end of the last group that belongs to the state at the moment.
    stop: Lsn,
    /// The end of the last group that was read.
    read: Lsn,
    /// The newest time that was read, and the one before it.
    newest_us: Option<u64>,
    before_us: Option<u64>,
    /// The tablespaces at `stop`, and those that were named since then.
    tablespaces: Option<TablespacesInUse>,
    named: Option<TablespacesInUse>,
    incarnation: Option<u32>,
    /// Whether commits of the present life of the log have times.
    is_timed: bool,
    /// Whether there were commits without times since `newest_us`.
    has_untimed: bool,
    /// Whether the moment lies before a commit that was read.
    is_past: bool,
}

/// The state that is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MomentFound {
    /// The end of its last group.
    pub(crate) stop: Lsn,
    /// The newest time in it.
    pub(crate) time_us: Option<u64>,
    /// The tablespaces at this position, if the log has named them.
    pub(crate) tablespaces: Option<TablespacesInUse>,
}

fn not_possible(what: String) -> PagerError {
    PagerError::Backup { what }
}

impl MomentSearch {
    /// Begins behind a backup that ends at `end`, at the time `end_us` if that is known.
    pub(crate) fn new(until: Until, end: Lsn, end_us: Option<u64>) -> MomentSearch {
        MomentSearch {
            until,
            stop: end,
            read: end,
            newest_us: end_us,
            before_us: end_us,
            tablespaces: None,
            named: None,
            incarnation: None,
            is_timed: end_us.is_some(),
            has_untimed: false,
            is_past: false,
        }
    }

    /// Enters the life of the log to which the next groups belong.
    pub(crate) fn enter_life(&mut self, incarnation: u32) {
        if self.incarnation.is_some_and(|now| now != incarnation) {
            self.has_untimed |= !self.is_timed;
            self.is_timed = false;
        }
        self.incarnation = Some(incarnation);
    }

    /// Takes the next group. Breaks if the group does not belong to the state at the moment any more.
    pub(crate) fn group(&mut self, group: Group<'_>) -> Result<ControlFlow<()>> {
        let end = group.end;
        if matches!(self.until, Until::Lsn(until) if until < end) {
            self.is_past = true;
            return Ok(ControlFlow::Break(()));
        }
        let (mut tablespaces, mut has_time) = (None, false);
        for record in group.records {
            match record.map_err(|why| nonsense(end, &why.to_string()))? {
                Record::Note { kind: NOTE_TIME, payload } => {
                    let decoded = Timed::decode(payload);
                    let (what, time_us) = decoded.ok_or_else(|| nonsense(end, "its time cannot be read"))?;
                    if self.time(what, time_us)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    has_time = true;
                }
                Record::Note { kind: NOTE_TABLESPACES, payload } => {
                    let list = TablespacesInUse::decode(payload);
                    tablespaces = Some(list.ok_or_else(|| nonsense(end, "its tablespaces cannot be read"))?);
                }
                _ => {}
            }
        }
        self.read = end;
        self.named = tablespaces.or(self.named.take());
        // What follows the last time before a moment commits nothing.
        if has_time || !matches!(self.until, Until::TimeUs(_)) {
            self.stop = end;
            self.tablespaces = self.named.take().or(self.tablespaces.take());
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes the time of a group. Breaks if the moment is before this time.
    fn time(&mut self, what: Timed, time_us: u64) -> Result<ControlFlow<()>> {
        // A clock that was set back between two lives of the log must not bring a later commit before a
        // moment at which an earlier commit had not happened.
        let time_us = time_us.max(self.newest_us.unwrap_or(0));
        self.before_us = self.newest_us.replace(time_us);
        let is_later = match (self.until, what) {
            (Until::TimeUs(until_us), Timed::Commit)
                if planted("restore: the commit after the moment is taken") =>
            {
                self.before_us.is_some_and(|before_us| before_us > until_us)
            }
            (Until::TimeUs(until_us), _) => time_us > until_us,
            (Until::Latest | Until::Lsn(_), _) => false,
        };
        if is_later {
            self.is_past = true;
            if self.has_untimed {
                return Err(self.untimed(time_us));
            }
            if self.before_us.is_none() {
                return Err(self.too_early(time_us));
            }
            return Ok(ControlFlow::Break(()));
        }
        (self.is_timed, self.has_untimed) = (true, false);
        Ok(ControlFlow::Continue(()))
    }

    fn untimed(&self, time_us: u64) -> PagerError {
        reached("restore: a time without an archive");
        let since = self.before_us.map_or_else(|| "the backup".into(), |us| Moment(us).to_string());
        not_possible(format!(
            "between {since} and {} the server ran without an archive, so its commits have no times: choose another \
             time, or an LSN",
            Moment(time_us)
        ))
    }

    fn too_early(&self, time_us: u64) -> PagerError {
        not_possible(format!(
            "the time of the backup's end is not known, and the first time in the archive after it is {}: choose this or a \
             later time, or an LSN",
            Moment(time_us)
        ))
    }

    /// Ends the search at the end of the archive, or where it broke. `next` is where the archive would go on.
    pub(crate) fn finish(self, next: Lsn) -> Result<MomentFound> {
        let ends = || match self.newest_us {
            Some(us) => format!("LSN {} at {}", self.read, Moment(us)),
            None => format!("LSN {}", self.read),
        };
        match self.until {
            Until::Lsn(until) if !self.is_past && until > next.max(self.read) => Err(not_possible(format!(
                "the archive ends at {}, before LSN {until}: choose an earlier moment, or \"latest\"",
                ends()
            ))),
            Until::TimeUs(until_us) if !self.is_past && self.newest_us.is_none_or(|us| us < until_us) => {
                Err(not_possible(format!(
                    "the archive ends at {}, before {}: choose an earlier moment, or \"latest\"",
                    ends(),
                    Moment(until_us)
                )))
            }
            _ => Ok(MomentFound {
                stop: self.stop,
                time_us: if self.is_past { self.before_us } else { self.newest_us },
                tablespaces: self.tablespaces,
            }),
        }
    }

    /// Refuses a moment before the end of the backup.
    pub(crate) fn refuse_before_backup(until: Until, end: Lsn, end_us: Option<u64>) -> Result<()> {
        let is_before = match (until, end_us) {
            (Until::Lsn(until), _) => until < end,
            (Until::TimeUs(until_us), Some(end_us)) => until_us < end_us,
            (Until::TimeUs(_), None) | (Until::Latest, _) => false,
        };
        if !is_before {
            return Ok(());
        }
        let at = end_us.map_or_else(String::new, |us| format!(" at {}", Moment(us)));
        let what = format!(
            "the moment is before the end of the backup, which is LSN {end}{at}: use an earlier backup"
        );
        Err(not_possible(what))
    }
}

fn nonsense(at: Lsn, why: &str) -> PagerError {
    PagerError::Corrupt { what: format!("the log group that ends at LSN {at} makes no sense: {why}") }
}

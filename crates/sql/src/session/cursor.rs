//! Cursors: their rows, and the position of each cursor.
//!
//! Invariants
//! 1. A cursor's query runs once, at DECLARE, with the snapshot of that statement. Later changes of the
//!    transaction do not affect its rows.
//! 2. A cursor ends with its transaction, or with the rollback to an older savepoint. A cursor WITH HOLD
//!    remains after its transaction has committed.
//!
//! This module does not know how rows are stored (`crate::kept`).

use std::sync::Arc;

use varve_engine::Datum;

use super::Session;
use super::run::Ran;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::func::clock_us;
use crate::kept::KeptRows;
use crate::plan::Plan;
use crate::prepared::Body;
use crate::sink::{Column, CommandTag, Sink};
use crate::system::HeldCursor;
use crate::utility::cursor::{Declare, Direction};

/// An open cursor.
pub(super) struct OpenCursor {
    name: String,
    /// The cursor's entry in `pg_cursors`.
    shown: Arc<HeldCursor>,
    columns: Box<[Column]>,
    rows: KeptRows,
    /// The number of the row at the cursor's position. 0 is before the first row, and the number of rows plus
    /// 1 is after the last row.
    at: u64,
    goes_back: bool,
    /// The number of open savepoints when the cursor was declared. `None` after its transaction has
    /// committed.
    born: Option<usize>,
}

/// The way in which a cursor's transaction, or a part of it, ended.
pub(super) enum End {
    Committed,
    RolledBack,
    /// ROLLBACK TO the savepoint with this index.
    ToSavepoint(usize),
}

impl Session {
    /// Runs DECLARE. `is_block` says whether there is a transaction block, which a cursor without HOLD needs.
    pub(super) fn declare(
        &mut self,
        declare: &Declare,
        types: &[crate::oid::Oid],
        params: &[Datum<'_>],
        is_block: bool,
    ) -> Result<CommandTag> {
        if !declare.holds && !is_block {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message));
        }
        if self.cursors.iter().any(|c| c.name == declare.name) {
            let message = format!("cursor \"{}\" already exists", declare.name);
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
        }
        let opened = self.open_cursor(declare, types, params);
        let opened =
            opened.map_err(|e| SqlError { position: e.position.map(|p| p + declare.before), ..e })?;
        self.cursors.push(opened);
        Ok(CommandTag::Plain("DECLARE CURSOR"))
    }

    fn open_cursor(
        &mut self,
        declare: &Declare,
        types: &[crate::oid::Oid],
        params: &[Datum<'_>],
    ) -> Result<OpenCursor> {
        let mut prepared = self.prepare_any(&declare.query, types)?;
        let mut rows = self.kept_rows();
        loop {
            let Body::Plan(Plan::Select(select)) = &prepared.body else {
                return Err(SqlError::unsupported("DECLARE CURSOR for this statement"));
            };
            if select.lock.is_some() {
                check_updatable(declare)?;
            }
            match self.run(&prepared, params, 1, false, &mut rows)? {
                Ran::Done(_) => break,
                Ran::Stale => prepared = self.prepare_again(&declare.query, types)?,
            }
        }
        let goes_back = declare.scroll != Some(false);
        let shown = HeldCursor {
            name: declare.name.clone(),
            statement: std::mem::take(&mut self.message),
            is_holdable: declare.holds,
            is_binary: declare.is_binary,
            is_scrollable: goes_back,
            at_us: clock_us(),
        };
        Ok(OpenCursor {
            name: declare.name.clone(),
            shown: Arc::new(shown),
            columns: prepared.columns.clone().unwrap_or_default(),
            rows,
            at: 0,
            goes_back,
            born: Some(self.savepoints.len()),
        })
    }

    /// Returns the columns of an open cursor, and whether it is BINARY.
    pub fn cursor_columns(&self, name: &str) -> Option<(&[Column], bool)> {
        self.cursors.iter().find(|c| c.name == name).map(|c| (&*c.columns, c.shown.is_binary))
    }

    /// Returns the open cursors as `pg_cursors` shows them.
    pub(super) fn shown_cursors(&self) -> impl Iterator<Item = Arc<HeldCursor>> {
        self.cursors.iter().map(|c| Arc::clone(&c.shown))
    }

    /// Runs FETCH and MOVE.
    pub(super) fn fetch(
        &mut self,
        name: &str,
        direction: Direction,
        moves: bool,
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<CommandTag> {
        let cursor = self.cursors.iter_mut().find(|c| c.name == name).ok_or_else(|| no_cursor(name))?;
        if announce && !moves {
            if cursor.shown.is_binary {
                sink.binary_columns();
            }
            sink.columns(&cursor.columns)?;
        }
        let slice = cursor.go(direction)?;
        if moves {
            return Ok(CommandTag::Move(slice.count));
        }
        for n in 0..slice.count {
            self.facts.check_cancel()?;
            let number = if slice.is_backward { slice.first - n } else { slice.first + n };
            cursor.rows.give(number - 1, sink)?;
        }
        Ok(CommandTag::Fetch(slice.count))
    }

    /// Runs CLOSE. `None` means ALL.
    pub(super) fn close_cursors(&mut self, name: Option<&str>) -> Result<&'static str> {
        let Some(name) = name else {
            self.cursors.clear();
            return Ok("CLOSE CURSOR ALL");
        };
        let place = self.cursors.iter().position(|c| c.name == name).ok_or_else(|| no_cursor(name))?;
        self.cursors.remove(place);
        Ok("CLOSE CURSOR")
    }

    /// Moves the cursors that were declared after a savepoint to the savepoint (or transaction) around it,
    /// because the savepoint is released.
    pub(super) fn adopt_cursors(&mut self, savepoint: usize) {
        for born in self.cursors.iter_mut().filter_map(|c| c.born.as_mut()) {
            *born = savepoint.min(*born);
        }
        self.portals.adopt(savepoint);
    }

    /// Closes the cursors that end with their transaction or savepoint.
    pub(super) fn end_cursors(&mut self, end: &End) {
        self.portals.end(end);
        self.cursors.retain_mut(|c| match (end, c.born) {
            (_, None) => true,
            (End::Committed, Some(_)) => {
                c.born = None;
                c.shown.is_holdable
            }
            (End::RolledBack, Some(_)) => false,
            (End::ToSavepoint(index), Some(born)) => born <= *index,
        });
    }
}

/// A range of rows: the number of the first row, the number of rows, and the direction.
struct Slice {
    first: u64,
    count: u64,
    is_backward: bool,
}

impl OpenCursor {
    /// Moves the cursor, and returns the rows that it passes.
    fn go(&mut self, direction: Direction) -> Result<Slice> {
        match direction {
            Direction::Forward(count) => self.step(count),
            Direction::Relative(0) => self.step(0),
            Direction::Relative(count) => self.one(i128::from(self.at) + i128::from(count)),
            Direction::Absolute(number @ 0..) => self.one(i128::from(number)),
            Direction::Absolute(number) => {
                self.may_go_back(true)?;
                self.one(i128::from(self.rows.len()) + 1 + i128::from(number))
            }
        }
    }

    /// Moves to the row with this number, and returns this row only.
    fn one(&mut self, number: i128) -> Result<Slice> {
        self.may_go_back(number <= i128::from(self.at) && self.at > 0)?;
        let last = self.rows.len();
        self.at = number.clamp(0, i128::from(last) + 1) as u64;
        let is_row = (1..=last).contains(&self.at);
        Ok(Slice { first: self.at, count: u64::from(is_row), is_backward: false })
    }

    fn step(&mut self, count: i64) -> Result<Slice> {
        let (last, far) = (self.rows.len(), count.unsigned_abs());
        if count == 0 {
            let is_row = (1..=last).contains(&self.at);
            self.may_go_back(is_row)?;
            return Ok(Slice { first: self.at, count: u64::from(is_row), is_backward: false });
        }
        if count > 0 {
            let given = far.min(last.saturating_sub(self.at));
            let first = self.at + 1;
            self.at = if given < far { last + 1 } else { self.at + given };
            return Ok(Slice { first, count: given, is_backward: false });
        }
        self.may_go_back(true)?;
        let given = far.min(self.at.saturating_sub(1));
        let first = self.at.saturating_sub(1);
        self.at = if given < far { 0 } else { self.at - given };
        Ok(Slice { first, count: given, is_backward: true })
    }

    /// Fails with 55000 if a cursor would move backward but was not declared with SCROLL.
    fn may_go_back(&self, is_back: bool) -> Result<()> {
        if self.goes_back || !is_back {
            return Ok(());
        }
        Err(SqlError::new(SqlState::NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward")
            .with_hint("Declare it with SCROLL option to enable backward scan."))
    }
}

/// Refuses a cursor with FOR UPDATE that is WITH HOLD, SCROLL or INSENSITIVE.
fn check_updatable(declare: &Declare) -> Result<()> {
    let refused = |what: &str, why: &str| {
        let message = format!("DECLARE {what} ... FOR UPDATE is not supported");
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(why))
    };
    if declare.holds {
        return refused("CURSOR WITH HOLD", "Holdable cursors must be READ ONLY.");
    }
    if declare.scroll == Some(true) {
        return refused("SCROLL CURSOR", "Scrollable cursors must be READ ONLY.");
    }
    if declare.is_insensitive {
        let message = "DECLARE INSENSITIVE CURSOR ... FOR UPDATE is not valid";
        return Err(SqlError::new(SqlState::INVALID_CURSOR_DEFINITION, message)
            .with_detail("Insensitive cursors must be READ ONLY."));
    }
    Ok(())
}

/// Returns the error 34000: there is no cursor of this name.
fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

//! Transactions of a session: when they begin, end and fail. The invariants are in `session`.

use std::time::Duration;

use varve_engine::{Isolation, Transaction, plant_panic, planted_panic};

use super::cursor::End;
use super::log::Logging;
use super::{Block, Defaults, Probing, Savepoint, Session};
use crate::error::{Result, SqlError, SqlState};
use crate::exec::reference::Checker;
use crate::moment;
use crate::settings::{self, Settings};
use crate::utility::{Level, Modes};

/// Returns the defaults for new transactions in these settings.
pub(super) fn defaults(settings: &Settings) -> Defaults {
    let level =
        settings.get("default_transaction_isolation").ok().and_then(|name| settings::level_named(&name));
    let level = level.unwrap_or(Level::ReadCommitted);
    let duration = |name: &str| Some(settings.millis(name)).filter(|ms| *ms > 0).map(Duration::from_millis);
    let as_of = settings.get(moment::SETTING).ok().and_then(|value| moment::of_setting(&value));
    Defaults {
        level,
        read_only: settings.is_on("default_transaction_read_only") || as_of.is_some(),
        as_of,
        deferrable: settings.is_on("default_transaction_deferrable"),
        lock_timeout: duration("lock_timeout"),
        statement_timeout: duration("statement_timeout"),
        silence: duration("idle_session_timeout"),
        silence_in_block: duration("idle_in_transaction_session_timeout"),
        probing: Probing {
            idle_s: settings.millis("tcp_keepalives_idle") as u32,
            interval_s: settings.millis("tcp_keepalives_interval") as u32,
            count: settings.millis("tcp_keepalives_count") as u32,
            unanswered_ms: settings.millis("tcp_user_timeout") as u32,
        },
    }
}

fn isolation(level: Level) -> Isolation {
    match level {
        Level::ReadCommitted => Isolation::ReadCommitted,
        Level::RepeatableRead => Isolation::RepeatableRead,
        Level::Serializable => Isolation::Serializable,
    }
}

impl Session {
    /// Enters an implicit transaction. In the extended protocol it lasts until Sync.
    pub(super) fn enter_implicit(&mut self) {
        if self.block == Block::Idle {
            self.block = Block::Implicit;
        }
    }

    /// Returns the engine's transaction, and begins it if there is none.
    pub(super) fn begin_engine(&mut self) -> &mut Transaction {
        if self.txn.is_none() {
            self.start_engine();
        }
        match &mut self.txn {
            Some(txn) => txn,
            None => unreachable!("just begun"),
        }
    }

    fn start_engine(&mut self) {
        if !self.in_block() {
            // The clock is read when the transaction first needs the time.
            self.facts.now_us.set(None);
            self.take_defaults();
        }
        // A read-only SERIALIZABLE transaction begins as REPEATABLE READ, so the engine does not record what
        // it reads. `set_modes` raises the level if the transaction may write after all.
        let level = match self.level {
            Level::Serializable if self.read_only => Level::RepeatableRead,
            level => level,
        };
        let mut txn = self.shared.engine.begin_in(self.facts.database_id, isolation(level));
        txn.set_cancel(Some(self.facts.cancel.clone()));
        txn.set_session(&self.locks);
        if self.defaults.lock_timeout.is_some() {
            txn.set_lock_timeout(self.defaults.lock_timeout);
        }
        if self.wait_notice.is_some() {
            txn.set_wait_notice(self.wait_notice.clone());
        }
        self.txn = Some(txn);
    }

    pub(super) fn in_block(&self) -> bool {
        matches!(self.block, Block::Open | Block::Failed)
    }

    /// Sets the clock that `now()` shows until the transaction ends.
    fn note_start(&mut self) {
        self.facts.now_us.set(Some(crate::eval::func::clock_us()));
    }

    fn take_defaults(&mut self) {
        self.level = self.defaults.level;
        self.read_only = self.defaults.read_only;
        self.deferrable = self.defaults.deferrable;
    }

    /// Runs BEGIN.
    pub(super) fn begin(&mut self, modes: Modes) -> Result<()> {
        if self.in_block() {
            self.warn(SqlState::ACTIVE_TRANSACTION, "there is already a transaction in progress");
            return self.set_modes(modes);
        }
        if self.txn.is_none() {
            self.note_start();
            self.take_defaults();
        }
        self.set_modes(modes)?;
        self.block = Block::Open;
        Ok(())
    }

    /// Sets isolation level and access mode of the current transaction.
    pub(super) fn set_modes(&mut self, modes: Modes) -> Result<()> {
        let has_begun = self.txn.as_ref().is_some_and(Transaction::has_begun);
        if let Some(level) = modes.level {
            if !self.savepoints.is_empty() && level != self.level {
                let message = "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction";
                return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
            }
            if has_begun && level != self.level {
                let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
            }
            self.level = level;
        }
        if let Some(read_only) = modes.read_only {
            if self.read_only && !read_only && has_begun {
                let message = "transaction read-write mode must be set before any query";
                return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
            }
            self.read_only = read_only;
        }
        if let Some(deferrable) = modes.deferrable {
            if has_begun {
                let message = "SET TRANSACTION [NOT] DEFERRABLE must be called before any query";
                return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
            }
            self.deferrable = deferrable;
        }
        if let Some(txn) = self.txn.as_mut().filter(|_| !has_begun) {
            txn.set_isolation(isolation(self.level));
        }
        Ok(())
    }

    /// Runs the foreign key checks that are no longer deferred.
    pub(super) fn check_deferred(&mut self, is_commit: bool) -> Result<()> {
        let Some(txn) = self.txn.as_mut().filter(|_| !self.deferred.is_empty()) else { return Ok(()) };
        txn.start_statement();
        let due = self.deferred.take_due(&txn.catalog(), is_commit);
        let (facts, deferred) = (&self.facts, &mut self.deferred);
        Checker { txn, facts, deferred, is_commit, is_alone: false }.settle(due)
    }

    /// Commits the open transaction. Afterwards the session is idle, even after an error.
    pub(super) fn commit(&mut self) -> Result<()> {
        planted_panic("panic at commit");
        let result = match (self.check_deferred(true), self.txn.take()) {
            (Ok(()), Some(txn)) => txn.commit().map_err(SqlError::from),
            (Err(e), Some(txn)) => {
                // The client gets the error of the check. An error of the rollback itself is recorded in the
                // engine's health.
                let _ = txn.rollback();
                Err(e)
            }
            (checked, None) => checked,
        };
        self.block = Block::Idle;
        self.forget(&if result.is_ok() { End::Committed } else { End::RolledBack });
        match &result {
            Ok(()) => self.settings.commit(),
            Err(_) => self.settings.rollback(),
        }
        self.after_settings();
        result
    }

    /// Rolls back the open transaction.
    pub(super) fn rollback(&mut self) -> Result<()> {
        let result = match self.txn.take() {
            Some(txn) => txn.rollback().map_err(SqlError::from),
            None => Ok(()),
        };
        self.block = Block::Idle;
        self.forget(&End::RolledBack);
        self.settings.rollback();
        self.after_settings();
        result
    }

    fn forget(&mut self, end: &End) {
        if !self.cursors.is_empty() || !self.portals.is_empty() {
            self.end_cursors(end);
        }
        self.catalog = None;
        self.deferred.clear();
        if !self.savepoints.is_empty() {
            self.savepoints.clear();
        }
        if std::mem::take(&mut self.defines) {
            // If the transaction was rolled back, a later catalog may get the version number of its catalog.
            // So nothing that was made with this catalog may stay.
            self.path.version = 0;
            self.plans.clear();
        }
    }

    /// Updates the values that are derived from settings.
    pub(super) fn after_settings(&mut self) {
        if self.settings.take_changed() {
            self.facts.forms = self.settings.forms();
            self.facts.encoding = self.settings.encoding();
            self.facts.table_method = self.settings.table_method();
            self.facts.default_tablespace = self.settings.get("default_tablespace").unwrap_or_default();
            self.logging = Logging::of(&self.settings);
            self.wait_notice = self.lock_wait_notice();
            let application_name = self.settings.get("application_name").unwrap_or_default();
            plant_panic(&application_name);
            self.seat.rename(&application_name);
            self.defaults = defaults(&self.settings);
            self.facts.lock_timeout = self.defaults.lock_timeout;
            self.follow_identity();
            self.path.entries = None;
            // SET, RESET and the end of SET LOCAL change the lock time-out of the current transaction, too.
            if let Some(txn) = &mut self.txn {
                txn.set_lock_timeout(self.defaults.lock_timeout);
                txn.set_wait_notice(self.wait_notice.clone());
            }
            self.settings_changed = true;
        }
    }

    /// Changes the state of the transaction after an error.
    pub(super) fn after_error(&mut self) {
        let undone = self.caught("(rollback)", |session| {
            session.undo_after_error();
            Ok(())
        });
        if undone.is_err() {
            self.give_up();
        }
    }

    fn undo_after_error(&mut self) {
        planted_panic("panic at rollback");
        self.scratch.end_statement();
        match self.block {
            Block::Failed => {}
            Block::Open => {
                self.block = Block::Failed;
                self.undo_to_savepoint();
            }
            Block::Idle | Block::Implicit => {
                // The client gets the first error. An error of the rollback itself is recorded in the
                // engine's health.
                let _ = self.rollback();
            }
        }
    }

    fn undo_to_savepoint(&mut self) {
        self.catalog = None;
        self.path.version = 0;
        let undone = match (&mut self.txn, self.savepoints.last()) {
            (Some(txn), Some(savepoint)) => {
                self.deferred.restore(&savepoint.deferred);
                self.settings.rollback_to(savepoint.settings);
                self.read_only = savepoint.read_only;
                txn.rollback_to(savepoint.id)
            }
            _ => {
                self.settings.rollback();
                match self.txn.take() {
                    Some(txn) => txn.rollback(),
                    None => Ok(()),
                }
            }
        };
        self.after_settings();
        if undone.is_err() {
            self.txn = None;
            self.savepoints.clear();
        }
    }

    /// Removes the transaction from the session after a rollback has panicked. The engine undoes the rest in
    /// the background.
    fn give_up(&mut self) {
        if let Some(txn) = self.txn.take() {
            // An error or a panic of this rollback is in the log. The client already knows that the statement
            // failed.
            let _ = self.caught("(rollback)", |_| Ok(txn.rollback()?));
        }
        self.block = if self.in_block() { Block::Failed } else { Block::Idle };
        self.savepoints.clear();
        self.forget(&End::RolledBack);
        self.settings.rollback();
        self.after_settings();
    }

    fn savepoint_index(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
        })
    }

    pub(super) fn require_block(&self, command: &str) -> Result<()> {
        if self.in_block() {
            return Ok(());
        }
        let message = format!("{command} can only be used in transaction blocks");
        Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message))
    }

    /// Runs SAVEPOINT.
    pub(super) fn savepoint(&mut self, name: String) -> Result<()> {
        self.require_block("SAVEPOINT")?;
        let id = self.begin_engine().savepoint();
        let (deferred, settings) = (self.deferred.mark(), self.settings.mark());
        self.savepoints.push(Savepoint { name, id, deferred, settings, read_only: self.read_only });
        Ok(())
    }

    /// Runs RELEASE SAVEPOINT.
    pub(super) fn release(&mut self, name: &str) -> Result<()> {
        self.require_block("RELEASE SAVEPOINT")?;
        let index = self.savepoint_index(name)?;
        let id = self.savepoints[index].id;
        self.begin_engine().release(id)?;
        // SET TRANSACTION READ ONLY ends with its savepoint. Other settings stay.
        self.read_only = self.savepoints[index].read_only;
        self.savepoints.truncate(index);
        self.adopt_cursors(index);
        Ok(())
    }

    /// Runs ROLLBACK TO SAVEPOINT.
    pub(super) fn rollback_to(&mut self, name: &str) -> Result<()> {
        self.require_block("ROLLBACK TO SAVEPOINT")?;
        let index = self.savepoint_index(name)?;
        let id = self.savepoints[index].id;
        self.begin_engine().rollback_to(id)?;
        self.savepoints.truncate(index + 1);
        let savepoint = &self.savepoints[index];
        self.deferred.restore(&savepoint.deferred);
        self.settings.rollback_to(savepoint.settings);
        self.read_only = savepoint.read_only;
        self.after_settings();
        self.end_cursors(&End::ToSavepoint(index));
        self.catalog = None;
        self.path.version = 0;
        self.block = Block::Open;
        Ok(())
    }
}

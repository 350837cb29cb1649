//! Handles panics in statements. The statement fails, and the session continues.
//!
//! This module does not know how a panic is caught and logged (`crate::panics`).

use super::Session;
use crate::error::Result;
use crate::panics;

/// The hint after a panic in the storage engine.
const STOPPED: &str = "This is a bug in Varve, within its storage engine. The database takes no more changes: restart it, and it \
    recovers what was committed. Please report what the server's log says of it.";

impl Session {
    /// Runs a step of a statement. A panic in it becomes the statement's error.
    pub(super) fn caught<T>(&mut self, sql: &str, step: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let mut done = panics::caught(sql, || step(self));
        if let Err(error) = &mut done {
            self.tidy_up();
            if !self.shared.engine.pager().is_sound() {
                error.hint = Some(STOPPED.into());
            }
        }
        done.and_then(|step| step).map_err(|e| self.of_missing_relation(e))
    }

    /// Restores the session's state after a statement that did not end normally.
    fn tidy_up(&mut self) {
        self.facts.world = None;
        self.analysis = None;
        self.catalog = None;
        if let Some(txn) = &mut self.txn {
            txn.set_lock_timeout(self.facts.lock_timeout);
        }
    }
}

//! Portals that were made behind a savepoint: ROLLBACK TO ends them, as it does cursors.
//!
//! Does not know: names, rows (`crate::prepared`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::Session;
use super::cursor::End;
use crate::prepared::{Body, Portal, Prepared};
use crate::sink::Column;
use crate::utility::Utility;

/// How many savepoints were open when a portal was made; `ENDED` once they were rolled back.
#[derive(Debug)]
pub struct Life(AtomicUsize);

const ENDED: usize = usize::MAX;

impl Life {
    /// Whether its portal may run.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) != ENDED
    }
}

/// The lives of portals that are not as long as their transaction's.
#[derive(Debug, Default)]
pub(super) struct Portals(Vec<Weak<Life>>);

impl Portals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A savepoint is released.
    pub(super) fn adopt(&mut self, savepoint: usize) {
        for life in self.0.iter().filter_map(Weak::upgrade).filter(|life| life.is_open()) {
            life.0.fetch_min(savepoint, Ordering::Relaxed);
        }
    }

    pub(super) fn end(&mut self, end: &End) {
        let End::ToSavepoint(index) = end else { return self.0.clear() };
        for life in self.0.iter().filter_map(Weak::upgrade) {
            if life.0.load(Ordering::Relaxed) > *index {
                life.0.store(ENDED, Ordering::Relaxed);
            }
        }
    }
}

impl Session {
    /// A portal as Bind makes one: it ends with the savepoint that is open now.
    pub fn open_portal(&mut self) -> Portal {
        let depth = self.savepoints.len();
        let mut portal = Portal::default();
        if depth > 0 {
            let life = Arc::new(Life(AtomicUsize::new(depth)));
            self.portals.0.retain(|life| life.strong_count() > 0);
            self.portals.0.push(Arc::downgrade(&life));
            portal.life = Some(life);
        }
        portal
    }

    /// What a portal of a statement returns where only its making tells: FETCH and EXECUTE are of what has that name then.
    pub fn portal_columns(&self, prepared: &Prepared) -> Option<Option<Vec<Column>>> {
        match &prepared.body {
            Body::Utility(Utility::Fetch { name, moves: false, .. }) => {
                Some(self.cursor_columns(name).map(|(columns, _)| columns.to_vec()))
            }
            Body::Utility(Utility::Execute(name, _)) => {
                Some(self.statement(name).ok().and_then(|s| s.columns().map(<[_]>::to_vec)))
            }
            _ => None,
        }
    }
}

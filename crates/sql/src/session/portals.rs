//! ROLLBACK TO a savepoint ends the portals and cursors that were made after it. `pg_cursors` shows the
//! portals.
//!
//! This module does not know rows (`crate::prepared`).

use std::sync::{Arc, Weak};

use super::Session;
use super::cursor::End;
use crate::eval::func::clock_us;
use crate::prepared::{Body, Portal, PortalLife, Prepared};
use crate::sink::Column;
use crate::system::HeldCursor;
use crate::utility::Utility;

/// The portals of a session that savepoints and `pg_cursors` need.
#[derive(Debug, Default)]
pub(super) struct Portals {
    /// The portals that were made after a savepoint. They may end before their transaction.
    lives: Vec<Weak<PortalLife>>,
    /// The portals with a name.
    named: Vec<Weak<HeldCursor>>,
    /// The running unnamed portal, if its statement may read `pg_cursors`.
    running: Option<Arc<HeldCursor>>,
}

impl Portals {
    pub(super) fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// Moves the portals that were made after a savepoint to the savepoint or transaction around it, because
    /// the savepoint is released.
    pub(super) fn adopt(&mut self, savepoint: usize) {
        for life in self.lives.iter().filter_map(Weak::upgrade).filter(|life| life.is_open()) {
            life.adopt(savepoint);
        }
    }

    pub(super) fn end(&mut self, end: &End) {
        let End::ToSavepoint(index) = end else { return self.lives.clear() };
        for life in self.lives.iter().filter_map(Weak::upgrade) {
            life.end_behind(*index);
        }
    }
}

impl Portals {
    /// Returns the portals as `pg_cursors` shows them.
    pub(super) fn shown(&self) -> impl Iterator<Item = Arc<HeldCursor>> {
        self.named.iter().filter_map(Weak::upgrade).chain(self.running.clone())
    }

    /// Records that the statement that begins to run is not a portal.
    pub(super) fn end_running(&mut self) {
        self.running = None;
    }

    /// Records that a portal begins to run its statement.
    pub(super) fn begin(&mut self, portal: &Portal, prepared: &Prepared) {
        self.running = (prepared.reads_world && portal.shown.is_none()).then(|| shown("", prepared));
    }
}

fn shown(name: &str, prepared: &Prepared) -> Arc<HeldCursor> {
    Arc::new(HeldCursor {
        name: name.to_owned(),
        statement: prepared.sql.clone(),
        is_holdable: false,
        is_binary: false,
        is_scrollable: false,
        at_us: clock_us(),
    })
}

impl Session {
    /// Makes a portal for Bind. It ends with the savepoint that is open now.
    pub fn open_portal(&mut self, name: &str, prepared: &Prepared) -> Portal {
        let depth = self.savepoints.len();
        let mut portal = Portal::default();
        if depth > 0 {
            let life = Arc::new(PortalLife::new(depth));
            self.portals.lives.retain(|life| life.strong_count() > 0);
            self.portals.lives.push(Arc::downgrade(&life));
            portal.life = Some(life);
        }
        if !name.is_empty() {
            let shown = shown(name, prepared);
            self.portals.named.retain(|portal| portal.strong_count() > 0);
            self.portals.named.push(Arc::downgrade(&shown));
            portal.shown = Some(shown);
        }
        portal
    }

    /// Returns the result columns of a portal for FETCH and EXECUTE. They are known only when the portal is
    /// made, because they depend on the object that has the name then.
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

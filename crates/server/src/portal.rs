//! The portals of a connection. A portal is a statement with its parameters, ready to run.
//!
//! Invariants
//! 1. A named portal ends when it is closed, when its transaction ends, or when a savepoint older than the
//!    portal is rolled back. The unnamed portal also ends at the next Bind, which replaces it.

use std::collections::HashMap;
use std::sync::Arc;

use varve_engine::Value;
use varve_sql::Column;

use crate::error::WireError;
use crate::results::ColumnFormats;
use crate::session::{PortalState, Session, Statement};

/// A bound statement.
pub struct Portal<S: Session> {
    /// The statement.
    pub statement: Arc<S::Statement>,
    /// Its parameters.
    pub values: Vec<Value>,
    /// The columns, if they can be different each time, because a FETCH may read from another cursor.
    pub own_columns: Option<Option<Vec<Column>>>,
    /// The formats of its columns.
    pub formats: ColumnFormats,
    /// The state of the session's portal between two Execute messages.
    pub state: S::Portal,
    /// Whether it has returned all its rows.
    pub finished: bool,
}

impl<S: Session> Portal<S> {
    /// Returns the result columns, or `None` if there are none.
    pub fn columns(&self) -> Option<&[Column]> {
        match &self.own_columns {
            Some(own) => own.as_deref(),
            None => self.statement.columns(),
        }
    }
}

/// The portals, by name.
pub struct Portals<S: Session> {
    unnamed: Option<Portal<S>>,
    named: HashMap<Box<str>, Portal<S>>,
}

impl<S: Session> Default for Portals<S> {
    fn default() -> Self {
        Self { unnamed: None, named: HashMap::new() }
    }
}

impl<S: Session> Portals<S> {
    /// Adds a portal. The error is 42P03 if the name is in use.
    pub fn add(&mut self, name: &str, portal: Portal<S>) -> Result<(), WireError> {
        if name.is_empty() {
            self.unnamed = Some(portal);
            return Ok(());
        }
        if self.named.get(name).is_some_and(|portal| portal.state.is_open()) {
            return Err(WireError::error("42P03", format!("cursor \"{name}\" already exists")));
        }
        self.named.insert(name.into(), portal);
        Ok(())
    }

    /// Returns the portal with this name.
    pub fn get(&mut self, name: &str) -> Result<&mut Portal<S>, WireError> {
        let portal = if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) };
        portal
            .filter(|portal| portal.state.is_open())
            .ok_or_else(|| WireError::error("34000", format!("portal \"{name}\" does not exist")))
    }

    /// Removes the portal with this name, if there is one.
    pub fn close(&mut self, name: &str) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    /// Removes all portals when their transaction has ended.
    pub fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }
}

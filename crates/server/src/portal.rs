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
    /// Its columns, where the statement does not know them: what FETCH fetches from may be another cursor
    /// each time.
    pub own_columns: Option<Option<Vec<Column>>>,
    /// The formats of its columns.
    pub formats: ColumnFormats,
    /// What the session keeps between two Executes.
    pub state: S::Portal,
    /// Whether it ran to its end.
    pub finished: bool,
}

impl<S: Session> Portal<S> {
    /// The result columns; `None` if there are none.
    pub fn columns(&self) -> Option<&[Column]> {
        match &self.own_columns {
            Some(own) => own.as_deref(),
            None => self.statement.columns(),
        }
    }
}

/// The portals by name.
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
    /// Adds a portal; a name can't be taken twice.
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

    /// The portal of this name.
    pub fn get(&mut self, name: &str) -> Result<&mut Portal<S>, WireError> {
        let portal = if name.is_empty() { self.unnamed.as_mut() } else { self.named.get_mut(name) };
        portal
            .filter(|portal| portal.state.is_open())
            .ok_or_else(|| WireError::error("34000", format!("portal \"{name}\" does not exist")))
    }

    /// Forgets a portal, if there is one of this name.
    pub fn close(&mut self, name: &str) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.named.remove(name);
        }
    }

    /// Forgets all: their transaction ended.
    pub fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }
}

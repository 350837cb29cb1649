//! Computes the key of an index over expressions, and the condition of a partial index, from a row.
//!
//! Invariants
//! 1. A key depends only on its row, so no session is needed to compute it. `bind::index` refuses expressions
//!    that need a session.
//!
//! The engine calls this module for index entries. The modules `access` and `exec` call it for lookups.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bumpalo::Bump;
use varve_engine::{
    Catalog, DeriveKey, Derived, Deriver, Error as EngineError, IndexDef, KeyPart, RowRef, TableDef, Value,
};

use crate::bind::Binder;
use crate::error::{Result, SqlError};
use crate::eval::{Cx, Env, Expr, Input, NoSequences};
use crate::parse;

/// The expressions that a derived index computes for a row.
#[derive(Debug)]
pub struct Keys {
    /// The parts of its key.
    pub parts: Vec<Expr>,
    /// The condition that its rows fulfil.
    pub predicate: Option<Expr>,
}

impl Keys {
    /// Reads the expressions and the condition of an index from their texts.
    pub fn of(table: &TableDef, derived: &Derived) -> Result<Keys> {
        // These expressions depend on no session, so they name no objects of the catalog.
        let catalog = Catalog::empty();
        let read = |text: &str| {
            parse::on_deep_stack(text, || Binder::new(&catalog, "", &[])?.expression_of_index(table, text))
        };
        let part = |key: &KeyPart| match key {
            KeyPart::Column(ordinal) => Ok(Expr::Column(*ordinal)),
            KeyPart::Expression { text, .. } => Ok(read(text)?.expr),
        };
        let parts = derived.keys.iter().map(part).collect::<Result<_>>()?;
        let predicate = derived.predicate.as_deref().map(|text| Ok::<_, SqlError>(read(text)?.expr));
        Ok(Keys { parts, predicate: predicate.transpose()? })
    }

    /// Returns the values of a row's key, or `None` if the index does not include the row.
    pub fn values(&self, row: &Input<'_>) -> Result<Option<Vec<Value>>> {
        let (arena, cancel) = (Bump::new(), AtomicBool::new(false));
        let (random, now_us) = (Cell::new(1), Cell::new(Some(0)));
        let env = Env {
            now_us: &now_us,
            forms: &crate::time::PLAIN,
            encoding: crate::encoding::Encoding::UTF8,
            user: "",
            session_user: "",
            database: "",
            process_id: 0,
            random: &random,
            cancel: &cancel,
            world: None,
            sequences: &NoSequences,
            lists: Default::default(),
        };
        let cx = Cx { params: &[], arena: &arena, env: &env };
        if let Some(predicate) = &self.predicate
            && !predicate.is_true(row, &cx)?
        {
            return Ok(None);
        }
        let values = self.parts.iter().map(|part| Ok(part.eval(row, &cx)?.to_value()));
        values.collect::<Result<Vec<_>>>().map(Some)
    }
}

impl DeriveKey for Keys {
    fn derive(&self, row: RowRef<'_>) -> varve_engine::Result<Option<Vec<Value>>> {
        self.values(&Input::Row(row)).map_err(passed_on)
    }
}

/// Computes derived indexes for the engine. It is one of the options with which a database is opened.
pub fn deriver() -> Deriver {
    Arc::new(|table: &TableDef, index: &IndexDef| {
        let derived = index.derived.as_deref().cloned().unwrap_or_default();
        // The text was read without an error when the index was made.
        let keys = Keys::of(table, &derived).map_err(|e| EngineError::Corrupt {
            what: format!("index {} cannot be read: {}", index.name, e.message),
        })?;
        Ok(Arc::new(keys) as Arc<dyn DeriveKey>)
    })
}

fn passed_on(e: SqlError) -> EngineError {
    EngineError::Expression { sqlstate: e.sqlstate.0, message: e.message.into_string() }
}

//! Executes the functions of sequences within a transaction.
//!
//! This module does not know how values are stored (`engine`).

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use varve_engine::{Catalog, ColumnDef, Rights, SequenceDef, SequenceId, TableDef, Transaction};

use super::Facts;
use crate::advisory::AdvisoryCall;
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{NoSequences, Sequences};
use crate::nextval::draws_from;
use crate::path::Path;
use crate::rights::{Holder, Kind, Object, Who};
use crate::sequence_memory::{READ, SequenceMemory};
use crate::system::SystemContext;

/// A role needs one of these rights to take the next value.
const NEXT: &[Rights] = &[Rights::USAGE, Rights::UPDATE];
/// A role needs this right to set the next value.
const SET: &[Rights] = &[Rights::UPDATE];

/// The sequence functions for places where the transaction is not reading or changing a row.
pub struct InTransaction<'x> {
    txn: RefCell<&'x mut Transaction>,
    catalog: RefCell<&'x mut Option<Arc<Catalog>>>,
    memory: &'x SequenceMemory,
    who: Who,
    path: &'x Path,
    read_only: bool,
    /// The last sequence on which the role was found to have the rights, and these rights.
    allowed: Cell<Option<(SequenceId, Rights)>>,
}

impl<'x> InTransaction<'x> {
    /// Borrows the transaction. The role of `facts` takes the values.
    pub fn new(
        txn: &'x mut Transaction,
        catalog: &'x mut Option<Arc<Catalog>>,
        memory: &'x SequenceMemory,
        facts: &'x Facts,
    ) -> InTransaction<'x> {
        InTransaction {
            txn: RefCell::new(txn),
            catalog: RefCell::new(catalog),
            memory,
            who: facts.who,
            path: &facts.path,
            read_only: facts.read_only,
            allowed: Cell::new(None),
        }
    }

    /// Executes a function that an evaluation has asked for.
    pub fn answer(&self, wanted: &Wanted, world: Option<&SystemContext>) -> Result<i64> {
        match (wanted, world) {
            (Wanted::Next(name), _) => self.next(name),
            (Wanted::Lock(call), Some(world)) => world.lock(call).map(i64::from),
            (Wanted::Lock(_), None) => Err(SqlError::internal("a lock that was wanted without a world")),
        }
    }

    /// Lends the transaction to other code between two evaluations.
    pub fn with<T>(&self, f: impl FnOnce(&mut Transaction) -> T) -> T {
        f(&mut self.txn.borrow_mut())
    }

    /// Finds the sequence of this name. Fails with 42501 if the role has none of these rights on it.
    fn find(&self, name: &str, rights: &[Rights]) -> Result<Arc<SequenceDef>> {
        let found = self.named(name)?;
        let asked = rights.iter().fold(Rights::default(), |all, r| all.with(*r));
        if self.who.is_some() && self.allowed.get() != Some((found.id, asked)) {
            let catalog = self.txn.borrow_mut().catalog();
            check_rights(&catalog, self.who, &found, rights)?;
            self.allowed.set(Some((found.id, asked)));
        }
        Ok(found)
    }

    fn named(&self, name: &str) -> Result<Arc<SequenceDef>> {
        let mut catalog = self.catalog.borrow_mut();
        let catalog = catalog.get_or_insert_with(|| self.txn.borrow_mut().catalog());
        named(catalog, self.path, name)
    }
}

/// Finds the sequence of this name.
fn named(catalog: &Catalog, path: &Path, name: &str) -> Result<Arc<SequenceDef>> {
    let (schema, sequence) = path.find_text(catalog, name);
    catalog.sequence(&schema, &sequence).ok_or_else(|| {
        if catalog.table(&schema, &sequence).is_some() {
            let message = format!("\"{sequence}\" is not a sequence");
            return SqlError::new(SqlState::WRONG_OBJECT_TYPE, message);
        }
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    })
}

/// Fails with 42501 unless the role has one of these rights on the sequence.
fn check_rights(catalog: &Catalog, who: Who, sequence: &SequenceDef, rights: &[Rights]) -> Result<()> {
    let holder = Holder::of(catalog, who);
    let object = Object::new(sequence.id, Kind::Sequence, &sequence.name);
    if rights == NEXT && fills_identity(catalog, &holder, sequence) {
        return Ok(());
    }
    let fills_default = || rights == NEXT && fills_default(catalog, &holder, sequence);
    enters_schema(catalog, &holder, sequence).or_else(|e| if fills_default() { Ok(()) } else { Err(e) })?;
    if holder.may_any(catalog, &object, rights) { Ok(()) } else { Err(object.denied()) }
}

/// Fails with 22003 for a value outside of the sequence's bounds.
fn check_bounds(sequence: &SequenceDef, value: i64) -> Result<()> {
    if value < sequence.min || value > sequence.max {
        let message = format!(
            "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
            sequence.name, sequence.min, sequence.max
        );
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
    }
    Ok(())
}

/// The sequence functions for a statement whose transaction is reading rows. They take values outside of this
/// transaction.
pub struct Beside<'w>(pub &'w SystemContext);

impl Beside<'_> {
    fn find(&self, name: &str, rights: &[Rights]) -> Result<Arc<SequenceDef>> {
        let found = named(&self.0.catalog, &self.0.path, name)?;
        if self.0.who.is_some() {
            check_rights(&self.0.catalog, self.0.who, &found, rights)?;
        }
        Ok(found)
    }
}

impl Sequences for Beside<'_> {
    fn next(&self, name: &str) -> Result<i64> {
        let sequence = self.find(name, NEXT)?;
        check_writes(self.0.read_only, "nextval()")?;
        let value = self.0.drawer.next_value(&sequence).map_err(|e| beside(e, &sequence))?;
        self.0.drawn.note(sequence.id, value);
        Ok(value)
    }

    fn current(&self, name: &str) -> Result<i64> {
        self.0.drawn.current(&*self.find(name, READ)?)
    }

    fn last(&self) -> Result<i64> {
        self.0.drawn.last(&self.0.catalog, self.0.who)
    }

    fn set(&self, name: &str, value: i64, called: bool) -> Result<i64> {
        let sequence = self.find(name, SET)?;
        check_writes(self.0.read_only, "setval()")?;
        check_bounds(&sequence, value)?;
        self.0.drawer.set_value(&sequence, value, called).map_err(|e| beside(e, &sequence))?;
        if called {
            self.0.drawn.note(sequence.id, value);
        }
        Ok(value)
    }
}

/// A function that needs the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The next value of a sequence.
    Next(String),
    /// A function of advisory locks.
    Lock(AdvisoryCall),
}

/// The functions `nextval` and those of advisory locks for an evaluation while a row is being changed. The
/// row's page is latched then, and the transaction cannot be used. So the first evaluation records the
/// function that it needs, and fails. The caller executes the function, and evaluates the row again with the
/// values so far.
#[derive(Default)]
pub struct Drawn {
    /// The functions executed so far, with their values, in the order of evaluation.
    values: RefCell<Vec<(Wanted, i64)>>,
    next: Cell<usize>,
    wanted: RefCell<Option<Wanted>>,
}

impl Drawn {
    /// Begins another evaluation.
    pub fn start(&self) {
        self.next.set(0);
    }

    /// Takes the function whose missing value has made the evaluation fail.
    pub fn wanted(&self) -> Option<Wanted> {
        self.wanted.borrow_mut().take()
    }

    /// Adds the value of a function for the next evaluation.
    pub fn give(&self, wanted: Wanted, value: i64) {
        self.values.borrow_mut().push((wanted, value));
    }

    /// Returns the value of a function. If it is not there yet, records the function and fails.
    fn given(&self, wanted: Wanted) -> Result<i64> {
        let at = self.next.replace(self.next.get() + 1);
        let mut values = self.values.borrow_mut();
        match values.get(at) {
            Some((given, value)) if *given == wanted => Ok(*value),
            _ => {
                // The row may have changed since the last attempt, so the evaluation may need other functions
                // now.
                values.truncate(at);
                *self.wanted.borrow_mut() = Some(wanted);
                Err(SqlError::internal("what an evaluation wanted was not there"))
            }
        }
    }
}

impl Sequences for Drawn {
    fn next(&self, name: &str) -> Result<i64> {
        self.given(Wanted::Next(name.to_owned()))
    }

    fn current(&self, name: &str) -> Result<i64> {
        NoSequences.current(name)
    }

    fn last(&self) -> Result<i64> {
        NoSequences.last()
    }

    fn set(&self, name: &str, value: i64, called: bool) -> Result<i64> {
        NoSequences.set(name, value, called)
    }

    fn lock(&self, call: &AdvisoryCall, _: &SystemContext) -> Result<bool> {
        self.given(Wanted::Lock(*call)).map(|value| value != 0)
    }
}

/// Returns whether the sequence belongs to an identity column of a table that the role may insert into. This
/// right is enough to take a value.
fn fills_identity(catalog: &Catalog, holder: &Holder, sequence: &SequenceDef) -> bool {
    let Some((table, ordinal)) = sequence.owned_by else { return false };
    let Some(table) = catalog.table_by_id(table) else { return false };
    let is_identity = table.columns.get(ordinal).is_some_and(|c| c.identity.is_some());
    let object = Object::new(table.id, Kind::Table, &table.name);
    is_identity && holder.may_any(catalog, &object, &[Rights::INSERT])
}

/// Fails with 42501 unless the role has USAGE on the sequence's schema.
fn enters_schema(catalog: &Catalog, holder: &Holder, sequence: &SequenceDef) -> Result<()> {
    let Some(schema) = catalog.schemas().find(|s| s.name == sequence.schema) else { return Ok(()) };
    let schema = Object::schema(schema);
    if holder.may_any(catalog, &schema, &[Rights::USAGE]) { Ok(()) } else { Err(schema.denied()) }
}

/// Returns whether a default of a table that the role may fill takes values from the sequence. The default
/// refers to the sequence directly, so the rights on the schema are not checked again.
fn fills_default(catalog: &Catalog, holder: &Holder, sequence: &SequenceDef) -> bool {
    let fills = |table: &TableDef| {
        let object = Object::new(table.id, Kind::Table, &table.name);
        holder.may_any(catalog, &object, &[Rights::INSERT, Rights::UPDATE])
    };
    let draws = |column: &ColumnDef| column.default.as_deref().is_some_and(|d| draws_from(d, sequence));
    catalog.tables().any(|table| table.columns.iter().any(draws) && fills(table))
}

/// Fails with 25006 in a read-only transaction.
fn check_writes(is_read_only: bool, function: &str) -> Result<()> {
    if is_read_only { Err(SqlError::read_only(function)) } else { Ok(()) }
}

/// Returns the error of a call that takes a value outside of the transaction. Such a call cannot wait for
/// another transaction that alters the sequence.
fn beside(e: varve_engine::Error, sequence: &SequenceDef) -> SqlError {
    match e {
        varve_engine::Error::Undefined { .. } => {
            let message = format!("sequence \"{}\" is being altered by another transaction", sequence.name);
            SqlError::new(SqlState::OBJECT_IN_USE, message)
                .with_hint("Run the statement again when that one has ended.")
        }
        other => at_limit(other, sequence),
    }
}

/// Returns PostgreSQL's error for a sequence that has reached its limit.
fn at_limit(e: varve_engine::Error, sequence: &SequenceDef) -> SqlError {
    match e {
        varve_engine::Error::SequenceExhausted { name, limit } => {
            let bound = if sequence.increment > 0 { "maximum" } else { "minimum" };
            let message = format!("nextval: reached {bound} value of sequence \"{name}\" ({limit})");
            SqlError::new(SqlState::SEQUENCE_LIMIT, message)
        }
        other => other.into(),
    }
}

impl Sequences for InTransaction<'_> {
    fn next(&self, name: &str) -> Result<i64> {
        let sequence = self.find(name, NEXT)?;
        check_writes(self.read_only, "nextval()")?;
        let value = self.txn.borrow_mut().next_value(sequence.id).map_err(|e| at_limit(e, &sequence))?;
        self.memory.note(sequence.id, value);
        Ok(value)
    }

    fn current(&self, name: &str) -> Result<i64> {
        self.memory.current(&*self.find(name, READ)?)
    }

    fn last(&self) -> Result<i64> {
        self.memory.last(&self.txn.borrow_mut().catalog(), self.who)
    }

    fn set(&self, name: &str, value: i64, called: bool) -> Result<i64> {
        let sequence = self.find(name, SET)?;
        check_writes(self.read_only, "setval()")?;
        check_bounds(&sequence, value)?;
        self.txn.borrow_mut().set_value(sequence.id, value, called)?;
        if called {
            self.memory.note(sequence.id, value);
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a row changes between two attempts, the second attempt may use another sequence. In an earlier
    /// version it got the value of the first sequence.
    #[test]
    fn a_drawn_value_is_for_its_own_sequence() {
        let (drawn, named) = (Drawn::default(), |name: &str| Wanted::Next(name.to_owned()));
        assert!(drawn.next("a").is_err());
        drawn.give(drawn.wanted().unwrap(), 7);
        drawn.start();
        assert_eq!(drawn.next("a").unwrap(), 7);
        assert!(drawn.next("c").is_err() && drawn.wanted() == Some(named("c")));
        drawn.give(named("c"), 9);
        drawn.start();
        assert!(drawn.next("b").is_err() && drawn.wanted() == Some(named("b")));
        drawn.give(named("b"), 1);
        drawn.start();
        assert_eq!(drawn.next("b").unwrap(), 1);
        assert!(drawn.next("c").is_err(), "what was drawn behind another value is not kept");
    }
}

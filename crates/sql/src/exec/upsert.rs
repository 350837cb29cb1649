//! INSERT ... ON CONFLICT DO UPDATE: the row that is there is changed instead.
//!
//! Invariants
//! 1. The row is found and changed in its newest version; if it vanishes meanwhile, the insert is tried again.
//! 2. A statement changes no row that it has inserted or changed itself (21000).
//!
//! Does not know: uniqueness (the engine's insert says what is in conflict).

use std::collections::HashSet;

use varve_engine::{Change, Datum, Error as EngineError, Outcome, RowImage, Table, TableDef, Value};

use super::reference::{await_holders, same_value};
use super::sequence::InTransaction;
use super::sought::Sought;
use super::{Failure, Pending, Row};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Input};
use crate::plan::Upsert;

/// What became of a row.
pub(super) enum Upserted {
    /// It was inserted.
    Inserted,
    /// The one that is there has become this one.
    Changed(Vec<Value>),
    /// The condition does not hold for the one that is there.
    Left,
}

/// What a statement has to remember between its rows.
#[derive(Default)]
pub(super) struct Touched(HashSet<Vec<u8>>);

impl Touched {
    fn packed<'a>(table: &TableDef, key: &[usize], value: impl Fn(usize) -> Datum<'a>) -> Vec<u8> {
        let mut packed = Vec::new();
        key.iter().for_each(|c| table.push_key(&mut packed, *c, &value(*c)));
        packed
    }
}

/// Inserts a row, or changes the one whose key it has.
pub(super) fn upsert(
    plan: &Upsert,
    table: &Table,
    values: &[Datum<'_>],
    touched: &mut Touched,
    sequences: &InTransaction<'_>,
    pending: &mut Pending,
    cx: &Cx<'_>,
) -> Result<Upserted> {
    let def = table.def();
    let proposed: Vec<Value> = plan.key.iter().map(|c| values[*c].to_value()).collect();
    let packed = Touched::packed(def, &plan.key, |c| values[c]);
    loop {
        match sequences.with(|txn| txn.insert(table, values)) {
            Ok(()) => {
                touched.0.insert(packed);
                return Ok(Upserted::Inserted);
            }
            Err(EngineError::UniqueViolation { constraint, .. }) if constraint == plan.constraint => {}
            Err(e) => return Err(e.into()),
        }
        if touched.0.contains(&packed) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
            ));
        }
        let Some(sought) = Sought::of(def, &plan.key, &proposed) else {
            return Err(SqlError::internal("a row of other types than its table"));
        };
        let Some(found) = sequences.with(|txn| sought.find(txn, table))? else { continue };
        let mut change = Attempt { plan, def, values, old: Vec::new(), new: Vec::new(), is_left: false };
        let mut failure = Failure::default();
        let outcome = sequences.with(|txn| {
            txn.modify(table, &found, &mut |row| {
                let is_it = sought.is(&row);
                Ok(if is_it { failure.catch(change.decide(&row, cx), Change::Skip) } else { Change::Skip })
            })
        });
        match failure.resolve(outcome)? {
            Outcome::Changed => {
                touched.0.insert(Touched::packed(def, &plan.key, |c| change.new[c].as_datum()));
                change.note(table, &found, sequences, pending)?;
                return Ok(Upserted::Changed(change.new));
            }
            Outcome::Skipped if change.is_left => return Ok(Upserted::Left),
            Outcome::Skipped | Outcome::Missing => {}
        }
    }
}

/// One attempt to change the row that is there.
struct Attempt<'p> {
    plan: &'p Upsert,
    def: &'p TableDef,
    values: &'p [Datum<'p>],
    old: Vec<Value>,
    new: Vec<Value>,
    is_left: bool,
}

impl Attempt<'_> {
    fn decide(&mut self, row: &varve_engine::RowRef<'_>, cx: &Cx<'_>) -> Result<Change> {
        let width = self.def.columns.len();
        self.old = (0..width).map(|c| row.get(c).to_value()).collect();
        self.new.clone_from(&self.old);
        let both: Row<'_> = self.old.iter().map(Value::as_datum).chain(self.values.iter().copied()).collect();
        let input = Input::Slots(&both);
        self.is_left = !self.plan.filter.as_ref().map_or(Ok(true), |f| f.is_true(&input, cx))?;
        if self.is_left {
            return Ok(Change::Skip);
        }
        for (column, e) in &self.plan.assignments {
            self.new[*column] = e.eval(&input, cx)?.to_value();
        }
        let changed: Row<'_> = self.new.iter().map(Value::as_datum).collect();
        self.plan.rules.hold(self.def, &changed, cx)?;
        let image = RowImage::encode(self.def.row_schema(), &changed).map_err(EngineError::from)?;
        Ok(Change::Replace(image))
    }

    /// What foreign keys are about.
    fn note(
        &self,
        table: &Table,
        found: &[u8],
        sequences: &InTransaction<'_>,
        pending: &mut Pending,
    ) -> Result<()> {
        if self.plan.rules.refers {
            let row: Row<'_> = self.new.iter().map(Value::as_datum).collect();
            pending.wrote(self.def, &row, Some(&self.old));
        }
        let differs = self.old.iter().zip(&self.new).any(|(a, b)| !same_value(a, b));
        if self.plan.rules.is_referred && differs {
            sequences.with(|txn| await_holders(txn, table, found, &self.old))?;
            pending.took(self.def, self.old.clone(), Some(self.new.clone()));
        }
        Ok(())
    }
}

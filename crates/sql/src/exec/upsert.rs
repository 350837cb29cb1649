//! Executes INSERT ... ON CONFLICT DO UPDATE: if a row with the same key exists, the statement changes that
//! row.
//!
//! Invariants
//! 1. The existing row is changed in its newest version. If it is deleted in the meantime, the insert is
//!    tried again.
//! 2. A statement cannot change a row that it has inserted or changed itself (21000).
//!
//! This module does not know which keys exist (the engine's insert reports the conflict).

use std::collections::HashSet;

use varve_engine::{Change, Datum, Error as EngineError, Outcome, RowImage, Table, TableDef, Value};

use super::sequence::{Drawn, InTransaction};
use super::sought::Sought;
use super::{Failure, Pending, Row};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::{Cx, Env, Input};
use crate::plan::{Arbiter, Upsert};
use crate::planted::planted;

/// The result of INSERT ... ON CONFLICT DO UPDATE for one row.
pub(super) enum Upserted {
    /// The row was inserted.
    Inserted,
    /// The existing row was changed to this row.
    Changed(Vec<Value>),
    /// The existing row does not fulfil the condition, so it stays as it is.
    Left,
}

/// The keys of the rows that the statement has inserted or changed.
#[derive(Default)]
pub(super) struct Touched(HashSet<Vec<u8>>);

impl Touched {
    fn packed<'a>(table: &TableDef, key: &[usize], value: impl Fn(usize) -> Datum<'a>) -> Vec<u8> {
        let mut packed = Vec::new();
        key.iter().for_each(|c| table.push_key(&mut packed, *c, &value(*c)));
        packed
    }
}

/// Inserts a row, or changes the existing row with the same key.
pub(super) fn upsert(
    plan: &Upsert,
    table: &Table,
    (values, answers): (&[Datum<'_>], &[Datum<'_>]),
    touched: &mut Touched,
    sequences: &InTransaction<'_>,
    pending: &mut Pending,
    cx: &Cx<'_>,
) -> Result<Upserted> {
    let def = table.def();
    let key = &plan.arbiter.key;
    let packed = Touched::packed(def, key, |c| values[c]);
    loop {
        match sequences.with(|txn| txn.insert(table, values)) {
            Ok(()) => {
                touched.0.insert(packed);
                return Ok(Upserted::Inserted);
            }
            Err(e) if meets(&e, &plan.arbiter, table, values, sequences)? => {}
            Err(e) => return Err(e.into()),
        }
        if touched.0.contains(&packed) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message).with_hint(
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
            ));
        }
        let sought = sought_by(&plan.arbiter, def, values)?;
        let Some(found) = sequences.with(|txn| sought.find(&mut txn.newest_reader(), table))? else {
            continue;
        };
        let mut change =
            Attempt { plan, def, values, answers, old: Vec::new(), new: Vec::new(), is_left: false };
        let drawn = Drawn::default();
        let outcome = loop {
            let mut failure = Failure::default();
            let env = Env { sequences: &drawn, lists: Default::default(), ..*cx.env };
            let cx = Cx { env: &env, ..*cx };
            let outcome = sequences.with(|txn| {
                txn.modify(table, &found, &mut |row| {
                    drawn.start();
                    let is_it = sought.is(&row);
                    Ok(if is_it {
                        failure.catch(change.decide(&row, &cx), Change::Skip)
                    } else {
                        Change::Skip
                    })
                })
            });
            match drawn.wanted() {
                Some(wanted) => {
                    let value = sequences.answer(&wanted, cx.env.world)?;
                    drawn.give(wanted, value);
                }
                None => break failure.resolve(outcome)?,
            }
        };
        match outcome {
            Outcome::Changed => {
                touched.0.insert(Touched::packed(def, key, |c| change.new[c].as_datum()));
                change.note(sequences, pending);
                return Ok(Upserted::Changed(change.new));
            }
            Outcome::Skipped if change.is_left => return Ok(Upserted::Left),
            Outcome::Skipped | Outcome::Missing => {}
        }
    }
}

fn sought_by<'t>(arbiter: &'t Arbiter, def: &'t TableDef, values: &[Datum<'_>]) -> Result<Sought<'t>> {
    let proposed: Vec<Value> = arbiter.key.iter().map(|c| values[*c].to_value()).collect();
    Sought::of(def, &arbiter.key, &proposed)
        .ok_or_else(|| SqlError::internal("a row of other types than its table"))
}

/// Returns whether the error of an insert is a conflict in the arbiter. As in PostgreSQL, the arbiter comes
/// first. A row that violates the arbiter and another key counts as a conflict in the arbiter.
pub(super) fn meets(
    e: &EngineError,
    arbiter: &Arbiter,
    table: &Table,
    values: &[Datum<'_>],
    sequences: &InTransaction<'_>,
) -> Result<bool> {
    let EngineError::UniqueViolation { constraint, .. } = e else { return Ok(false) };
    if *constraint == arbiter.constraint {
        return Ok(true);
    }
    if arbiter.key.iter().any(|c| values[*c].is_null()) {
        return Ok(false);
    }
    let sought = sought_by(arbiter, table.def(), values)?;
    Ok(sequences.with(|txn| sought.find(&mut txn.newest_reader(), table))?.is_some())
}

/// Fails with 40001 if the transaction's snapshot does not see the existing row that is the reason why a row
/// is not inserted.
pub(super) fn check_seen(
    arbiter: &Arbiter,
    table: &Table,
    values: &[Datum<'_>],
    sequences: &InTransaction<'_>,
) -> Result<()> {
    let keeps = sequences.with(|txn| txn.isolation().keeps_snapshot());
    if !keeps {
        return Ok(());
    }
    let sought = sought_by(arbiter, table.def(), values)?;
    match sequences.with(|txn| sought.find(&mut txn.reader(), table))? {
        Some(_) => Ok(()),
        None => Err(EngineError::SerializationFailure.into()),
    }
}

/// One attempt to change the existing row.
struct Attempt<'p> {
    plan: &'p Upsert,
    def: &'p TableDef,
    values: &'p [Datum<'p>],
    answers: &'p [Datum<'p>],
    old: Vec<Value>,
    new: Vec<Value>,
    is_left: bool,
}

impl Attempt<'_> {
    fn decide(&mut self, row: &varve_engine::RowRef<'_>, cx: &Cx<'_>) -> Result<Change> {
        let width = self.def.columns.len();
        self.old = (0..width).map(|c| row.get(c).to_value()).collect();
        self.new.clone_from(&self.old);
        let both: Row<'_> = self
            .old
            .iter()
            .map(Value::as_datum)
            .chain(self.values.iter().chain(self.answers).copied())
            .collect();
        let input = Input::Slots(&both);
        self.is_left = !self.plan.filter.as_ref().map_or(Ok(true), |f| f.is_true(&input, cx))?;
        if self.is_left && !planted("sql: ON CONFLICT DO UPDATE forgets its WHERE") {
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

    /// Adds the foreign key checks for the change to `pending`.
    fn note(&self, sequences: &InTransaction<'_>, pending: &mut Pending) {
        if self.plan.rules.refers {
            let row: Row<'_> = self.new.iter().map(Value::as_datum).collect();
            pending.wrote(self.def, &row, Some(&self.old));
        }
        if self.plan.rules.is_referred {
            sequences.with(|txn| pending.took(self.def.id, &self.old, Some(&self.new), || txn.catalog()));
        }
    }
}

//! Executes INSERT.
//!
//! Invariants
//! 1. A row is evaluated completely before it is written. INSERT ... SELECT from a table reads all rows
//!    before it writes the first one.
//! 2. ON CONFLICT DO NOTHING ignores only error 23505 of the constraint that it names. DO UPDATE is in
//!    `upsert`.
//!
//! This module does not know defaults, which are in the plan.

use std::sync::Arc;

use bumpalo::Bump;
use varve_engine::{Datum, Table, TableDef, Value};

use super::reference::Pending;
use super::sequence::InTransaction;
use super::series::Series;
use super::upsert::{Touched, Upserted, check_seen, meets, upsert};
use super::watch::{At, Watch};
use super::{Exec, Facts, Opened, Row, Scratch, project};
use crate::error::{Result, SqlError};
use crate::eval::{Cx, Expr, Input};
use crate::plan::{Arbiter, Insert, InsertSource, OnConflict, Select, Source};
use crate::sink::Sink;

/// The state of an INSERT while it writes rows.
struct Writer<'w> {
    table: &'w Table,
    plan: &'w Insert,
    sequences: InTransaction<'w>,
    pending: &'w mut Pending,
    touched: Touched,
    count: u64,
}

impl Exec<'_> {
    /// Runs an INSERT. Returns the number of written rows.
    pub(super) fn insert(&mut self, plan: &Insert, opened: &Opened, sink: &mut dyn Sink) -> Result<u64> {
        let table = opened.table()?;
        self.tell(|meter| meter.begin(At::Change));
        match &plan.source {
            InsertSource::Values(rows) => self.insert_values(plan, table, rows, sink),
            InsertSource::Query(query, row) if streams(query) => {
                self.insert_series(plan, table, query, row, sink)
            }
            InsertSource::Query(query, row) => {
                self.insert_query(plan, table, query, &opened.sources, row, sink)
            }
            InsertSource::Queried(..) => Err(SqlError::internal("subqueries are a runner's")),
        }
    }

    fn insert_values(
        &mut self,
        plan: &Insert,
        table: &Table,
        rows: &[Box<[Expr]>],
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let facts = self.facts;
        let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, self.facts);
        let mut writer = writer(table, plan, sequences, &mut self.pending);
        let arena = &mut self.scratch.row_arena;
        let width = self.params.len() / self.group_count.max(1);
        if let Some(meter) = self.meter {
            meter.begin(At::Source);
            meter.gave(At::Source, (rows.len() * self.group_count) as u64);
            meter.enter(At::Change);
        }
        for group in 0..self.group_count {
            let params = &self.params[group * width..(group + 1) * width];
            for row in rows {
                writer.write(row, &Input::None, params, arena, facts, sink)?;
                arena.reset();
            }
        }
        Ok(writer.count)
    }

    /// Runs INSERT ... SELECT from generate_series. Each row is written at once.
    fn insert_series(
        &mut self,
        plan: &Insert,
        table: &Table,
        query: &Select,
        row: &[Expr],
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let Source::Series(bounds, ty) = &query.source else {
            return Err(SqlError::internal("a series was expected"));
        };
        let facts = self.facts;
        let params = self.params;
        let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, self.facts);
        let mut writer = writer(table, plan, sequences, &mut self.pending);
        let arena = &mut self.scratch.row_arena;
        let series = Series::new(bounds, *ty, params, arena, &facts.env(&super::NoSequences))?;
        let mut given = 0;
        for value in series {
            facts.check_cancel()?;
            let slot = [value];
            let env = facts.env(&super::NoSequences);
            let cx = Cx { params, arena, env: &env };
            let input = Input::Slots(&slot);
            if query.filter.as_ref().map_or(Ok(true), |f| f.is_true(&input, &cx))? {
                let values = project(&query.outputs, &input, &cx)?;
                given += 1;
                writer.write(row, &Input::Slots(&values), params, arena, facts, sink)?;
            }
            arena.reset();
        }
        let count = writer.count;
        // Each row was written at once, so the rows of the source are recorded only now.
        self.tell(|meter| {
            meter.begin(At::Source);
            meter.gave(At::Source, given);
        });
        Ok(count)
    }

    fn insert_query(
        &mut self,
        plan: &Insert,
        table: &Table,
        query: &Select,
        sources: &[Arc<Table>],
        row: &[Expr],
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let kept = Bump::new();
        let mut rows: Vec<&[Datum<'_>]> = Vec::new();
        self.select(query, sources, &mut |values| {
            let copied: Row<'_> = values.iter().map(|v| crate::eval::keep_in(&kept, *v)).collect();
            rows.push(kept.alloc_slice_copy(&copied));
            Ok(())
        })?;
        self.tell(|meter| meter.enter(At::Change));
        let facts = self.facts;
        let params = self.params;
        let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, self.facts);
        let mut writer = writer(table, plan, sequences, &mut self.pending);
        let Scratch { row_arena, .. } = &mut *self.scratch;
        for values in rows {
            writer.write(row, &Input::Slots(values), params, row_arena, facts, sink)?;
            row_arena.reset();
        }
        Ok(writer.count)
    }
}

impl Exec<'_> {
    /// Writes the rows of a general query. Returns the number of written rows.
    pub fn insert_found(
        &mut self,
        plan: &Insert,
        table: &Table,
        rows: &[Box<[Value]>],
        sink: &mut dyn Sink,
    ) -> Result<u64> {
        let facts = self.facts;
        let params = self.params;
        let sequences = InTransaction::new(self.txn, self.catalog, self.sequences, facts);
        let mut writer = writer(table, plan, sequences, &mut self.pending);
        let Scratch { row_arena, .. } = &mut *self.scratch;
        for values in rows {
            facts.check_cancel()?;
            let row = row_for(&plan.source, values)?;
            let values: Row<'_> = values.iter().map(Value::as_datum).collect();
            writer.write(row, &Input::Slots(&values), params, row_arena, facts, sink)?;
            row_arena.reset();
        }
        Ok(writer.count)
    }
}

/// Returns the expressions of the new row for a row of the query with these values.
fn row_for<'p>(source: &'p InsertSource, values: &[Value]) -> Result<&'p [Expr]> {
    let row = match (source, values.first()) {
        (InsertSource::Query(_, row), _) => Some(row),
        (InsertSource::Queried(_, rows), Some(Value::Int8(n))) => {
            usize::try_from(*n).ok().and_then(|n| rows.get(n))
        }
        _ => None,
    };
    row.map(AsRef::as_ref).ok_or_else(|| SqlError::internal("an INSERT of rows that no query gives"))
}

/// Returns whether the query reads only generate_series. Then each row can be written before the next one is
/// computed.
fn streams(q: &Select) -> bool {
    matches!(q.source, Source::Series(..))
        && q.aggregate.is_none()
        && !q.distinct
        && q.order.is_empty()
        && q.limit.is_none()
        && q.offset.is_none()
        && !q.general
}

fn writer<'w>(
    table: &'w Table,
    plan: &'w Insert,
    sequences: InTransaction<'w>,
    pending: &'w mut Pending,
) -> Writer<'w> {
    Writer { table, plan, sequences, pending, touched: Touched::default(), count: 0 }
}

impl Writer<'_> {
    /// Evaluates and writes one row.
    fn write(
        &mut self,
        row: &[Expr],
        input: &Input<'_>,
        params: &[Datum<'_>],
        arena: &Bump,
        facts: &Facts,
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let env = facts.env(&self.sequences);
        let cx = Cx { params, arena, env: &env };
        let mut values = Row::new();
        for e in row {
            values.push(e.eval(input, &cx)?);
        }
        let table = self.table;
        // The values of subqueries follow the columns of the row.
        let answers = values.drain(table.def().columns.len()..).collect::<Row<'_>>();
        self.plan.rules.hold(table.def(), &values, &cx)?;
        if let OnConflict::Update(plan) = &self.plan.on_conflict {
            let (sequences, pending) = (&self.sequences, &mut *self.pending);
            let done = upsert(plan, table, (&values, &answers), &mut self.touched, sequences, pending, &cx)?;
            let changed;
            let row = match &done {
                Upserted::Left => return Ok(()),
                Upserted::Inserted => {
                    if self.plan.rules.refers {
                        self.pending.wrote(table.def(), &values, None);
                    }
                    &values
                }
                Upserted::Changed(row) => {
                    let kept = row.iter().map(|v| crate::eval::keep_in(arena, v.as_datum()));
                    changed = kept.collect::<Row<'_>>();
                    &changed
                }
            };
            self.count += 1;
            return returned(self.plan, table.def(), row, &answers, &cx, sink);
        }
        match self.sequences.with(|txn| txn.insert(table, &values)) {
            Ok(()) => self.count += 1,
            Err(e) if self.is_ignored(&e, &values)? => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        if self.plan.rules.refers {
            self.pending.wrote(self.table.def(), &values, None);
        }
        returned(self.plan, table.def(), &values, &answers, &cx, sink)
    }

    fn is_ignored(&self, e: &varve_engine::Error, values: &[Datum<'_>]) -> Result<bool> {
        let OnConflict::Nothing(wanted) = &self.plan.on_conflict else { return Ok(false) };
        let varve_engine::Error::UniqueViolation { constraint, .. } = e else { return Ok(false) };
        let met = match wanted {
            Some(arbiter) if !meets(e, arbiter, self.table, values, &self.sequences)? => return Ok(false),
            Some(arbiter) => Some(arbiter.clone()),
            None => key_named(self.table.def(), constraint),
        };
        if let Some(arbiter) = met {
            check_seen(&arbiter, self.table, values, &self.sequences)?;
        }
        Ok(true)
    }
}

/// Finds a unique key of a table by its name.
fn key_named(def: &TableDef, name: &str) -> Option<Arbiter> {
    let primary = def.primary_key.as_ref().filter(|k| k.name == name).map(|k| k.columns.as_slice());
    let unique = || def.plain_indexes().find(|i| i.name == name).map(|i| i.columns.as_slice());
    let key = primary.or_else(unique)?;
    Some(Arbiter { constraint: name.to_owned(), key: key.into() })
}

/// Computes RETURNING for a row with these values.
fn returned<'v>(
    plan: &Insert,
    table: &TableDef,
    values: &[Datum<'v>],
    answers: &[Datum<'v>],
    cx: &Cx<'_>,
    sink: &mut dyn Sink,
) -> Result<()> {
    let Some(outputs) = &plan.returning else { return Ok(()) };
    assert_eq!(values.len(), table.columns.len(), "a value for each column");
    let whole: Row<'_> = values.iter().chain(answers).copied().collect();
    let shown = project(outputs, &Input::Slots(&whole), cx)?;
    sink.row(&shown)
}

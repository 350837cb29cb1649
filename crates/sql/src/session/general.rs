//! Queries that a runner of general queries takes over.
//!
//! Does not know: how they run (`crate::general`).

use std::sync::Arc;

use bumpalo::Bump;
use varve_engine::{Datum, Error as EngineError, Table, Transaction, Value};

use super::run::Ran;
use super::{Block, Session};
use crate::error::{Result, SqlError};
use crate::eval::{Cx, NoSequences};
use crate::exec::reference::Pending;
use crate::exec::{Exec, Row, shown};
use crate::general::{Around, General, OnlyRow, Query};
use crate::plan::{Plan, Select, Source};
use crate::prepared::Prepared;
use crate::sink::{CommandTag, Sink};

/// The tables of a query; `None` if a definition is out of date.
fn opened(txn: &mut Transaction, select: &Select) -> Result<Option<Vec<Arc<Table>>>> {
    let tables = select.tables().into_iter().map(|def| txn.table(&def));
    match tables.collect::<Result<_, EngineError>>() {
        Ok(tables) => Ok(Some(tables)),
        Err(EngineError::StaleDefinition { .. } | EngineError::Undefined { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

impl Session {
    fn general(&self, select: &Select) -> Result<Arc<dyn General>> {
        let what = match &select.source {
            _ if !select.distinct_on.is_empty() => "DISTINCT ON",
            Source::Join(_) => "a join",
            Source::Query(_) => "a subquery in FROM",
            Source::Set(set) => set.kind.name(),
            _ => "a subquery",
        };
        self.shared.general.clone().ok_or_else(|| SqlError::unsupported(what))
    }

    /// The plan of a general query, as EXPLAIN shows it.
    pub(super) fn explain_general(&mut self, select: &Select) -> Result<Vec<String>> {
        let general = self.general(select)?;
        let around = Arc::new(Around::new(&self.facts, &[]));
        let txn = self.begin_engine();
        txn.start_statement();
        let tables = opened(txn, select)?.ok_or_else(|| SqlError::internal("a plan that is out of date"))?;
        general.explain(Query { select, tables, txn, around, only: None })
    }

    /// Runs a statement that changes rows which a general query gives or finds; the statement has begun. All rows are found before
    /// the first is changed.
    pub(super) fn run_general_change(
        &mut self,
        prepared: &Prepared,
        plan: &Plan,
        query: &Select,
        params: &[Datum<'_>],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        let general = self.general(query)?;
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        let Some(tables) = opened(txn, query)? else { return Ok(Ran::Stale) };
        let target = match plan.changed_table().map(|def| txn.table(def)).transpose() {
            Ok(target) => target.ok_or_else(|| SqlError::internal("a change without its table"))?,
            Err(EngineError::StaleDefinition { .. } | EngineError::Undefined { .. }) => {
                return Ok(Ran::Stale);
            }
            Err(e) => return Err(e.into()),
        };
        if announce && let Some(columns) = &prepared.columns {
            sink.columns(columns)?;
        }
        let around = Arc::new(Around::new(&self.facts, params));
        let mut rows: Vec<Box<[Value]>> = Vec::new();
        let (opened, env) = (tables.clone(), around.clone());
        let whole = Query { select: query, tables: opened, txn, around: env, only: None };
        general.run(whole, &mut |row| {
            rows.push(row.iter().map(Datum::to_value).collect());
            Ok(())
        })?;
        let types = plan.found().map_or(&[][..], |found| &found.types);
        let mut again = |txn: &mut Transaction, values: Vec<Value>| {
            let only = Some(OnlyRow { values, types: types.to_vec() });
            let (tables, around) = (tables.clone(), around.clone());
            let mut given = None;
            general.run(Query { select: query, tables, txn, around, only }, &mut |row| {
                // The key comes first.
                given.get_or_insert_with(|| row[1..].iter().map(Datum::to_value).collect());
                Ok(())
            })?;
            Ok(given)
        };
        let mut exec = Exec {
            txn,
            catalog: &mut self.catalog,
            facts: &self.facts,
            scratch: &mut self.scratch,
            sequences: &self.sequences,
            params,
            group_count: 1,
            pending: Pending::default(),
            deferred: &mut self.deferred,
        };
        let tag = exec.run_found(plan, &target, rows, &mut again, sink)?;
        if self.block == Block::Open
            && let Some(txn) = &mut self.txn
        {
            txn.end_statement();
        }
        Ok(Ran::Done(tag))
    }

    /// Runs a general query; the statement has begun.
    pub(super) fn run_general(
        &mut self,
        prepared: &Prepared,
        select: &Select,
        params: &[Datum<'_>],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        let general = self.general(select)?;
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        let Some(tables) = opened(txn, select)? else { return Ok(Ran::Stale) };
        if announce && let Some(columns) = &prepared.columns {
            sink.columns(columns)?;
        }
        let around = Arc::new(Around::new(&self.facts, params));
        let query = Query { select, tables, txn, around, only: None };
        let env = self.facts.env(&NoSequences);
        let mut arena = Bump::new();
        let count = general.run(query, &mut |row| {
            let cx = Cx { params, arena: &arena, env: &env };
            let outputs = select.outputs.iter().zip(row);
            let values = outputs.map(|(o, value)| shown(o, *value, &cx)).collect::<Result<Row<'_>>>()?;
            sink.row(&values)?;
            drop(values);
            arena.reset();
            Ok(())
        })?;
        if self.block == Block::Open
            && let Some(txn) = &mut self.txn
        {
            txn.end_statement();
        }
        Ok(Ran::Done(CommandTag::Select(count)))
    }
}

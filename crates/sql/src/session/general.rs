//! Queries that a runner of general queries takes over.
//!
//! Does not know: how they run (`crate::general`).

use std::sync::Arc;

use bumpalo::Bump;
use varve_engine::{Datum, Error as EngineError, Table};

use super::run::Ran;
use super::{Block, Session};
use crate::error::{Result, SqlError};
use crate::eval::{Cx, NoSequences};
use crate::exec::{Exec, Row, shown};
use crate::general::{Around, Query};
use crate::plan::Select;
use crate::prepared::Prepared;
use crate::sink::{CommandTag, Sink};

impl Session {
    /// Runs a general query; the statement has begun.
    pub(super) fn run_general(
        &mut self,
        prepared: &Prepared,
        select: &Select,
        params: &[Datum<'_>],
        announce: bool,
        sink: &mut dyn Sink,
    ) -> Result<Ran> {
        let Some(general) = self.shared.general.clone() else { return Err(SqlError::unsupported("a join")) };
        let Some(txn) = &mut self.txn else { return Err(SqlError::internal("no transaction")) };
        let opened: Result<Vec<Arc<Table>>, EngineError> =
            select.tables().into_iter().map(|def| txn.table(def)).collect();
        let tables = match opened {
            Ok(tables) => tables,
            Err(EngineError::StaleDefinition { .. } | EngineError::Undefined { .. }) => return Ok(Ran::Stale),
            Err(e) => return Err(e.into()),
        };
        if announce && let Some(columns) = &prepared.columns {
            sink.columns(columns)?;
        }
        let mut exec = Exec {
            txn,
            catalog: &mut self.catalog,
            facts: &self.facts,
            scratch: &mut self.scratch,
            sequences: &self.sequences,
            params,
            group_count: 1,
        };
        let window = exec.window(select)?;
        let around = Arc::new(Around::new(&self.facts, params));
        let take = (window.take != u64::MAX).then_some(window.take);
        let query = Query { select, tables, txn, around, skip: window.skip, take };
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

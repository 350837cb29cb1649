//! Translates WITH queries. As in PostgreSQL, a WITH query becomes part of the query that reads it in two
//! cases. In the first case, the statement says NOT MATERIALIZED. In the second case, the WITH query is read
//! once and returns the same rows at each run. Any other WITH query runs once, and its rows are stored
//! (`crate::shared`).

use std::sync::Arc;

use datafusion::common::Result;
use varve_sql::general::{Recursion, Shared, SharedBody, SqlError, Ty};

use super::{Part, Translator};
use crate::error::wrapped;
use crate::shared::{Keeping, Maker, Reading, SharedTable, Then, WorkRows, WorkTable};

impl Translator<'_> {
    /// Translates a reference to a query of WITH.
    pub(super) fn shared_rows(&mut self, shared: &Arc<Shared>) -> Result<Part> {
        let uses = self.shared.borrow().uses.get(&Arc::as_ptr(shared)).copied().unwrap_or(1);
        let one = match (&shared.body, shared.materialized) {
            (SharedBody::Query(select), Some(false)) if !shared.varies => return self.subquery(select),
            (SharedBody::Query(select), None) if uses == 1 && !shared.varies => {
                return self.subquery(select);
            }
            _ => self.shared_table(shared, uses > 1)?,
        };
        self.scanned(Arc::new(Reading(one)), shared.types.to_vec())
    }

    fn shared_table(&mut self, shared: &Arc<Shared>, is_read_again: bool) -> Result<Arc<SharedTable>> {
        let known = self.shared.borrow().tables.get(&Arc::as_ptr(shared)).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        // A plan that runs several times reads the rows several times.
        let runs_again = self.around.is_within() || !self.turns.is_empty();
        let mut keeping = Keeping { keeps: is_read_again || runs_again, of_runs: None };
        let maker = match &shared.body {
            SharedBody::Query(select) => {
                let first = self.select(select)?.plan.build()?;
                Maker { first, then: None, around: self.around.clone() }
            }
            SharedBody::Recursive(recursion) => {
                let is_given = recursion.first.reads_outer() || recursion.then.reads_outer();
                keeping.of_runs = is_given.then(|| self.around.clone());
                self.recursion(recursion)?
            }
        };
        let table = Arc::new(SharedTable::new(shared.types.to_vec(), maker, keeping));
        self.assume(|assumed| assumed.shared.push(table.clone()));
        // The table is shared only if it is read several times and does not depend on outer values. Otherwise
        // another translation of the query may need a table with other properties.
        if is_read_again && table.is_of_statement() {
            self.shared.borrow_mut().tables.insert(Arc::as_ptr(shared), table.clone());
        }
        Ok(table)
    }

    fn recursion(&mut self, recursion: &Recursion) -> Result<Maker> {
        let first = self.select(&recursion.first)?.plan.build()?;
        let work = WorkRows::default();
        self.turns.push((recursion.id, work.clone()));
        let plan = self.select(&recursion.then);
        self.turns.pop();
        let plan = plan?.plan.build()?;
        let then = Some(Then { plan, work, all: recursion.all });
        Ok(Maker { first, then, around: self.around.clone() })
    }

    /// Returns the rows that the previous iteration of a recursive query has added.
    pub(super) fn work_rows(&mut self, id: usize, types: &[Ty]) -> Result<Part> {
        let Some((_, rows)) = self.turns.iter().rfind(|(n, _)| *n == id) else {
            return Err(wrapped(SqlError::internal("a recursive query is read outside of itself")));
        };
        let table = WorkTable::new(rows.clone(), types);
        self.scanned(Arc::new(table), types.to_vec())
    }
}

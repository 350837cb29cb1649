//! Subqueries in RETURNING and DO UPDATE of an INSERT.
//!
//! An INSERT takes its rows from a query. This query also computes the subqueries, before the first row is
//! written. So the subqueries see none of the statement's changes, as in PostgreSQL.
//!
//! Invariants
//! 1. A subquery may read a column of the new row. It then uses the expression that computes the column. If
//!    this expression uses a sequence, the statement is refused.
//! 2. The query returns the columns of the table first, then the results of the subqueries, in the order of
//!    the subqueries.
//!
//! This module does not know how the rows are written (`exec::insert`).

use super::value_rows::queried;
use crate::error::{Result, SqlError};
use crate::eval::Expr;
use crate::plan::{InsertSource, Output, Select, Source};
use crate::ty::Typed;

/// Subqueries over the new row. In them, `Column(n)` is the n-th column of the new row.
#[derive(Debug, Default)]
pub(super) struct Answers {
    subqueries: Vec<(Expr, Typed)>,
}

impl Answers {
    /// Moves the subqueries out of an expression. The result of the n-th subquery is then in column
    /// `first + n`. For a column in a subquery, `column` returns the column of the new row, or `None` if it
    /// is not a column of that row. Then the result is the error 0A000 for `what`.
    pub(super) fn take(
        &mut self,
        e: &mut Expr,
        first: usize,
        column: &dyn Fn(usize) -> Option<usize>,
        what: &str,
    ) -> Result<()> {
        if let Expr::Subquery(_, subquery) = e {
            let t = subquery.result();
            let mut taken = std::mem::replace(e, Expr::Column(first + self.subqueries.len()));
            let mut is_known = true;
            taken.walk_mut(&mut |e| {
                if let Expr::Column(n) = e {
                    match column(*n) {
                        Some(own) => *n = own,
                        None => is_known = false,
                    }
                }
            });
            if !is_known {
                return Err(SqlError::unsupported(what.to_owned()));
            }
            self.subqueries.push((taken, t));
            return Ok(());
        }
        let mut state = Ok(());
        e.children_mut(&mut |child| {
            if state.is_ok() {
                state = self.take(child, first, column, what);
            }
        });
        state
    }

    /// Returns the source with the results of the subqueries added to its rows.
    pub(super) fn asked_by(self, source: InsertSource) -> Result<InsertSource> {
        if self.subqueries.is_empty() {
            return Ok(source);
        }
        match source {
            InsertSource::Values(rows) => self.beside_values(rows),
            // Subqueries within the rows are already columns of the rows, and their results are read from
            // there.
            InsertSource::Queried(query, rows) => self.beside_query(query, rows),
            InsertSource::Query(query, row) => match self.beside_query(query, vec![row])? {
                InsertSource::Queried(query, mut rows) if rows.len() == 1 => {
                    Ok(InsertSource::Query(query, rows.remove(0)))
                }
                _ => Err(SqlError::internal("a query gives one kind of row")),
            },
        }
    }

    fn beside_values(self, rows: Vec<Box<[Expr]>>) -> Result<InsertSource> {
        let mut asked = Vec::with_capacity(rows.len());
        for row in rows {
            let mut row = row.into_vec();
            let answers =
                self.subqueries.iter().map(|(e, _)| over(e, &row)).collect::<Result<Vec<Expr>>>()?;
            row.extend(answers);
            asked.push(row.into_boxed_slice());
        }
        Ok(queried(asked))
    }

    fn beside_query(self, query: Box<Select>, rows: Vec<Box<[Expr]>>) -> Result<InsertSource> {
        let [row] = rows.as_slice() else {
            return Err(SqlError::unsupported("a subquery in RETURNING or DO UPDATE beside one in VALUES"));
        };
        if query.lock.is_some() {
            return Err(SqlError::unsupported("a subquery in RETURNING beside rows that are locked"));
        }
        let (count, mut row) = (query.visible, row.to_vec());
        let mut outputs: Vec<Output> = query.outputs[..count]
            .iter()
            .enumerate()
            .map(|(n, o)| Output::unpadded(Output::new(Expr::Column(n), o.t)))
            .collect();
        for (subquery, t) in &self.subqueries {
            let mut answer = over(subquery, &row)?;
            answer.walk_mut(&mut |e| {
                if let Expr::Slot(n) = e {
                    *e = Expr::Column(*n);
                }
            });
            outputs.push(Output::unpadded(Output::new(answer, *t)));
        }
        row.extend((count..outputs.len()).map(Expr::Slot));
        let select = Select {
            source: Source::Query(query),
            visible: outputs.len(),
            outputs: outputs.into(),
            ..Select::nothing()
        };
        Ok(InsertSource::Queried(Box::new(select), vec![row.into()]))
    }
}

/// Returns the subquery, with the expressions of the columns that it reads.
fn over(subquery: &Expr, row: &[Expr]) -> Result<Expr> {
    let mut subquery = subquery.clone();
    let mut is_certain = true;
    subquery.walk_mut(&mut |e| {
        if let Expr::Column(n) = e {
            let value = row.get(*n).cloned().unwrap_or(Expr::NULL);
            is_certain &= !value.is_volatile();
            *e = value;
        }
    });
    match is_certain {
        true => Ok(subquery),
        false => Err(SqlError::unsupported("a subquery that reads a column which a sequence fills")),
    }
}

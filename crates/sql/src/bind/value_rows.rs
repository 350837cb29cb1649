//! Rows of VALUES with subqueries. They become a query that computes the values.
//!
//! This module does not know into which table the rows are written.

use varve_engine::Value;

use crate::eval::Expr;
use crate::plan::{InsertSource, Output, Select, SortKey, Source};
use crate::ty::{Ty, Typed};

/// Splits rows of VALUES with subqueries. A general query computes only the subqueries. The executor computes
/// the rest of each value, because it draws the values of sequences.
pub(super) fn queried(mut rows: Vec<Box<[Expr]>>) -> InsertSource {
    let ordinal = Typed::plain(Ty::Int8);
    let (mut types, mut given) = (vec![ordinal], Vec::with_capacity(rows.len()));
    for (n, row) in rows.iter_mut().enumerate() {
        let mut values = vec![Some(Expr::Const(Value::Int8(n as i64)))];
        row.iter_mut().for_each(|e| into_columns(e, &mut types, &mut values));
        given.push(values);
    }
    let filled = |row: Vec<Option<Expr>>| {
        let missing = std::iter::repeat_with(|| None);
        row.into_iter().chain(missing).take(types.len()).map(|e| e.unwrap_or(Expr::NULL)).collect()
    };
    let source =
        Source::Values(given.into_iter().map(filled).collect(), types.iter().map(|t| t.ty).collect());
    let outputs: Box<[Output]> =
        types.iter().enumerate().map(|(n, t)| Output::new(Expr::Slot(n), *t)).map(Output::unpadded).collect();
    // Rows must be written in the order of VALUES, so they are sorted by their ordinal. The values of
    // sequences depend on this order.
    let order = [SortKey { output: 0, descending: false, nulls_first: false }];
    let select = Select { source, visible: outputs.len(), outputs, order: order.into(), ..Select::nothing() };
    InsertSource::Queried(Box::new(select), rows)
}

/// Moves each subquery of an expression into a column of the same type that has no value in this row yet.
fn into_columns(e: &mut Expr, types: &mut Vec<Typed>, row: &mut Vec<Option<Expr>>) {
    if let Expr::Subquery(_, subquery) = e {
        let t = subquery.result();
        let unused = |(n, other): &(usize, &Typed)| **other == t && !matches!(row.get(*n), Some(Some(_)));
        let place = types.iter().enumerate().find(unused).map_or(types.len(), |(n, _)| n);
        if place == types.len() {
            types.push(t);
        }
        if row.len() <= place {
            row.resize(place + 1, None);
        }
        row[place] = Some(std::mem::replace(e, Expr::Slot(place)));
        return;
    }
    e.children_mut(&mut |child| into_columns(child, types, row));
}

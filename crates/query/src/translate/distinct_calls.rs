//! Translates aggregates of distinct values, such as count(DISTINCT a). If all aggregates of a query have the
//! same argument, the rows are grouped twice: first by the keys and the argument, then by the keys. So each
//! value comes once to the aggregates, and both steps can spill. Otherwise the state of each group has the
//! values that were counted, in memory.

use datafusion::common::Result;
use datafusion::logical_expr::Expr as Logical;
use varve_sql::general::{AggCall, AggKind, Expr, Ty, Typed};

use super::{Grouping, Key, Part, Translator, aggregate, is_volatile, windows};
use crate::fold::Fold;

/// Returns the argument that all calls share, and its type. Returns `None` if they do not share one, or if a
/// call needs more than its distinct values.
fn shared_argument(calls: &[AggCall]) -> Option<(Expr, Ty)> {
    let [first, others @ ..] = calls else { return None };
    let argument = first.argument.as_ref()?;
    // Each call computes a volatile argument anew.
    if !others.is_empty() && is_volatile(argument) {
        return None;
    }
    // Expressions have no equality. Those with the same text are equal.
    let written = format!("{argument:?}");
    let shares = |call: &AggCall| {
        let is_plain = !call.kind.collects() && !call.kind.is_of_pairs() && call.filter.is_none();
        // Only count ignores the blanks at the end of a char(n).
        let has_no_blanks = call.kind == AggKind::Count || call.input != Ty::Char;
        let is_same = call.argument.as_ref().is_some_and(|other| format!("{other:?}") == written);
        call.distinct && is_plain && has_no_blanks && call.input == first.input && is_same
    };
    calls.iter().all(shares).then(|| (windows::without_blanks(argument.clone(), first.input), first.input))
}

impl Translator<'_> {
    /// Returns rows in which each value of the calls' argument is once in each group, the keys, and the calls
    /// over these rows. Returns `None` if the calls cannot be computed in two steps.
    pub(super) fn distinct_calls(
        &mut self,
        part: &Part,
        keys: &[Expr],
        types: &[Typed],
        calls: &[AggCall],
    ) -> Result<Option<Grouping>> {
        let Some((argument, input)) = shared_argument(calls) else { return Ok(None) };
        let columns = &part.columns;
        let by = keys.iter().zip(types).map(|(e, t)| self.key(e.clone(), *t, columns));
        let mut by: Vec<Key> = by.collect();
        by.push(Key::plain(self.computed(argument, input, columns), input));
        let rows = self.grouped(part.plan.clone(), by, Vec::new())?;
        let keys = types.iter().enumerate().map(|(n, t)| self.key(Expr::Column(n), *t, &rows.columns));
        let keys = keys.collect();
        let value = Logical::Column(rows.columns[types.len()].0.clone());
        let call = |call: &AggCall| {
            let fold = Fold::Call { kind: call.kind, distinct: false };
            (aggregate(fold, value.clone(), input, call.output, None), call.output)
        };
        Ok(Some(Grouping { rows, keys, calls: calls.iter().map(call).collect() }))
    }
}

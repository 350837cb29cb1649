//! Translates LIMIT, OFFSET and WITH TIES. Some limits are known before the query runs, others only while it
//! runs.
//!
//! Invariants
//! 1. A limit may be a subquery, or depend on an outer query. Such a limit can differ from run to run. The
//!    plan node `Apply` then runs the plan, and passes the limit to it as a value.
//! 2. WITH TIES also returns the rows that ORDER BY ranks equal to the last row.

use datafusion::common::Result;
use varve_engine::Value;
use varve_sql::general::Exclude;
use varve_sql::general::{
    CmpOp, Expr, Frame, FrameBound, FrameUnits, OrderKey, Select, SortKey, SqlError, Ty, Typed, WinCall,
    WinFunction,
};
use varve_sql::planted;

use super::{Part, Translator, as_usize, shown, sorted};
use crate::apply::{Answer, Window};
use crate::error::wrapped;
use crate::translate::subqueries::Ran;

/// A limit that is larger than the result of any query.
const EVERY_ROW: u64 = 1 << 62;

/// Returns whether LIMIT or OFFSET is known only when the query runs.
pub(super) fn is_found_late(select: &Select) -> bool {
    select.limit.iter().chain(&select.offset).any(|e| e.has_subquery() || e.reads_outer())
}

impl Translator<'_> {
    /// Translates LIMIT and OFFSET whose values are known now. The rows are already sorted in this order.
    pub(super) fn limited(&mut self, mut part: Part, select: &Select, order: &[SortKey]) -> Result<Part> {
        let (skip, take) = self.around.window(&select.limit, &select.offset).map_err(wrapped)?;
        self.assume(|assumed| {
            let window = (select.limit.clone(), select.offset.clone(), (skip, take));
            assumed.windows.push(window);
        });
        let take = take.map(|n| n.saturating_add(u64::from(planted("query: LIMIT takes one row more"))));
        match take {
            Some(count) if select.ties && count > 0 => return self.with_ties(part, order, skip, count),
            _ => {}
        }
        // DataFusion drops a sort below an OFFSET without LIMIT, but keeps a sort below a LIMIT. So a
        // subquery with OFFSET also gets a LIMIT. The sort of the whole statement needs no LIMIT, because
        // DataFusion always keeps it. Without a LIMIT, this sort can spill.
        let is_within = !std::ptr::eq(select, self.whole);
        let take = take.or_else(|| (skip > 0 && is_within && !order.is_empty()).then_some(EVERY_ROW));
        if skip > 0 || take.is_some() {
            part.plan = part.plan.limit(as_usize(skip), take.map(as_usize))?;
        }
        Ok(part)
    }

    /// Translates a query that is given the values of its LIMIT and OFFSET when it runs.
    pub(super) fn limited_late(&mut self, select: &Select) -> Result<Part> {
        if select.ties {
            return Err(wrapped(SqlError::unsupported("WITH TIES of a number that a subquery gives")));
        }
        let own = |e: &Option<Expr>| e.as_ref().map_or(Expr::NULL, |e| self.own(e));
        let mut values = [own(&select.limit), own(&select.offset)];
        let nothing = self.source(&varve_sql::general::Source::Nothing)?;
        let part = self.applied(nothing, &mut values)?;
        let part = self.computed_columns(part, values.into_iter().map(|e| (e, Ty::Int8)).collect())?;
        // The values that are given to this query are passed on to the inner plan.
        let first = self.around.statement_params();
        let mut types: Vec<Typed> = self.around.given_types().iter().map(|t| Typed::plain(*t)).collect();
        let mut given: Vec<Expr> = (0..types.len()).map(|n| Expr::Param(first + n)).collect();
        let own_count = types.len();
        given.extend([Expr::Column(0), Expr::Column(1)]);
        types.extend([Typed::plain(Ty::Int8); 2]);
        let mut inner = self.nested(types.iter().map(|t| t.ty));
        let rows = inner.source(&select.source)?;
        let rows = inner.ordered_rows(rows, select)?;
        let plan = shown(rows, select.visible)?;
        let around = inner.around.clone();
        let param = |n: usize| Some(Expr::Param(first + own_count + n));
        let window = Window { limit: param(0), offset: param(1) };
        let answer = Answer::Rows { outer: false };
        let ran = Ran {
            plan,
            around,
            types: &types,
            answer,
            members: Vec::new(),
            varies: true,
            window,
            guard: None,
        };
        let mut part = self.apply(part, given, ran)?;
        part.columns.drain(..2);
        shown(part, select.visible)
    }

    /// Translates FETCH ... WITH TIES: skips `skip` rows, returns the next `take` rows, and the rows that
    /// rank like the last of them.
    fn with_ties(&mut self, part: Part, order: &[SortKey], skip: u64, take: u64) -> Result<Part> {
        let width = part.columns.len();
        let key = |k: &SortKey| OrderKey {
            expr: Expr::Column(k.output),
            ty: part.columns[k.output].1,
            descending: k.descending,
            nulls_first: k.nulls_first,
        };
        let keys: Vec<OrderKey> = order.iter().map(key).collect();
        let calls = [WinFunction::RowNumber, WinFunction::Rank].map(|function| WinCall {
            function,
            arguments: Vec::new(),
            filter: None,
            partition: Vec::new(),
            order: keys.clone(),
            frame: Frame {
                units: FrameUnits::Range,
                start: FrameBound::Unbounded,
                end: FrameBound::Current,
                exclude: Exclude::Nothing,
            },
            output: Ty::Int8,
        });
        let part = self.windowed(part, &calls)?;
        let compared = |op: CmpOp, column: usize, with: u64| {
            let with = i64::try_from(with).unwrap_or(i64::MAX);
            Expr::Compare(op, Box::new((Expr::Column(column), Expr::Const(Value::Int8(with)))))
        };
        let behind = compared(CmpOp::Gt, width, skip);
        let among = compared(CmpOp::Le, width + 1, skip.saturating_add(take));
        let mut part = self.kept(part, vec![behind, among])?;
        part.columns.truncate(width);
        sorted(part, order)
    }
}

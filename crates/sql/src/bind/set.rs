//! Binds UNION, INTERSECT and EXCEPT.
//!
//! Invariants
//! 1. All sides get the same column types. As in PostgreSQL, the types are resolved pair by pair, from the
//!    innermost pair outwards.
//! 2. A chain of UNION is one operation with many sides, even if it is long.
//!
//! This module does not know how rows are compared.

use super::bound::{Bound, BoundQuery};
use super::coerce::{as_bpchar, with_blanks};
use super::items::Items;
use super::order::orderable;
use super::scope::{Relation, Scope};
use super::{Binder, lock};
use crate::ast::{self, SetExpr, SetOperator};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::plan::{Output, Select, SetKind, SetOperation, Source};
use crate::sink::Column;
use crate::ty::{Ty, Typed};

/// A set operation as written.
pub(super) struct WrittenSetOperation<'a> {
    pub(super) op: SetOperator,
    pub(super) all: bool,
    pub(super) left: &'a SetExpr,
    pub(super) right: &'a SetExpr,
}

impl Binder<'_> {
    /// Binds a set operation, and the clauses (ORDER BY, LIMIT) of the query `q` that it is the body of.
    pub(super) fn set_operation(
        &mut self,
        written: &WrittenSetOperation<'_>,
        q: &ast::Query,
    ) -> Result<BoundQuery> {
        let kind = set_kind(written.op);
        let name = kind.name();
        lock::refuse_on_set(q.locks.first().map(|lock| lock.strength))?;
        let all = written.all;
        let keeps = std::mem::replace(&mut self.keep_unknown, true);
        let was_in_from = std::mem::replace(&mut self.in_from, true);
        let written = operands(written);
        let sides: Result<Vec<BoundQuery>> =
            self.deeper(|b| written.iter().map(|side| b.side(side)).collect());
        (self.keep_unknown, self.in_from) = (keeps, was_in_from);
        let mut sides = sides?;
        let columns = sides.first_mut().map(|first| std::mem::take(&mut first.columns)).unwrap_or_default();
        let (sides, types) =
            self.matched(kind, kind == SetKind::Union, sides.into_iter().map(|side| side.select).collect())?;
        if !(all && kind == SetKind::Union) {
            types.iter().try_for_each(|t| orderable(*t, name))?;
        }
        self.over_set(SetOperation { kind, all, sides }, columns, &types, q)
    }

    /// Binds one side of a set operation.
    pub(super) fn side(&mut self, body: &SetExpr) -> Result<BoundQuery> {
        let bound = match body {
            SetExpr::Query(inner) => self.query(inner)?,
            body => self.query(&ast::Query::bare(body.clone()))?,
        };
        lock::refuse_on_set(bound.select.lock.as_ref().map(|lock| lock.strength))?;
        Ok(bound)
    }

    /// Casts the outputs of all sides to common types. The types of the first two sides are combined first,
    /// then the result with the third side, and so on. With `blanks`, char(n) values keep their blanks if the
    /// lengths differ.
    pub(super) fn matched(
        &mut self,
        kind: SetKind,
        blanks: bool,
        sides: Vec<Select>,
    ) -> Result<(Vec<Select>, Vec<Typed>)> {
        let mut sides = sides.into_iter();
        let mut done: Vec<Select> = sides.next().into_iter().collect();
        let mut types: Vec<Typed> = done.iter().flat_map(|s| &s.outputs[..s.visible]).map(|o| o.t).collect();
        for side in sides {
            types = pair_types(kind, &types, &side)?;
            if done.len() == 1 {
                let first = done.remove(0);
                done.push(self.brought_to(first, &types, blanks)?);
            }
            // As in PostgreSQL, a literal gets the type of its pair, even if a later side changes the common
            // type.
            done.push(self.brought_to(side, &types, blanks)?);
        }
        let done = done.into_iter().map(|side| self.brought_to(side, &types, blanks));
        let done = done.collect::<Result<_>>()?;
        Ok((done, types))
    }

    /// Returns the query with its outputs cast to `types`. With `blanks`, the casts keep the blanks of
    /// char(n).
    fn brought_to(&mut self, mut select: Select, types: &[Typed], blanks: bool) -> Result<Select> {
        self.settle_params(&mut select, types.iter().copied())?;
        let differs = |(o, t): (&Output, &Typed)| o.t.ty != t.ty || (t.ty == Ty::Char && o.t != *t);
        if !select.outputs.iter().zip(types).any(differs) {
            return Ok(select);
        }
        let is_literal = |(o, t): (&Output, &Typed)| o.t.ty == t.ty || matches!(o.expr, Expr::Const(_));
        let plain = matches!(select.source, Source::Nothing) && select.order.is_empty();
        if plain && select.outputs.iter().zip(types).all(is_literal) {
            for (output, t) in select.outputs.iter_mut().zip(types) {
                *output = self.side_output(output.expr.clone(), output.t, *t, blanks)?;
            }
            return Ok(select);
        }
        let written = select.outputs[..select.visible].iter().map(|o| o.t).zip(types).enumerate();
        let outputs = written
            .map(|(i, (from, to))| self.side_output(Expr::Column(i), from, *to, blanks))
            .collect::<Result<Box<[Output]>>>()?;
        let visible = select.visible;
        Ok(Select { source: Source::Query(Box::new(select)), outputs, visible, ..Select::nothing() })
    }

    /// Gives types to parameters that have no type yet and are outputs of the query: each gets the type of
    /// its column in `types`.
    pub(super) fn settle_params(
        &mut self,
        select: &mut Select,
        types: impl Iterator<Item = Typed>,
    ) -> Result<()> {
        for (output, t) in select.outputs.iter_mut().zip(types) {
            let is_open = matches!(output.expr, Expr::Param(_)) && output.t.ty == Ty::Unknown;
            if is_open && t.ty != Ty::Unknown {
                *output = self.output_as(output.expr.clone(), output.t, t)?;
            }
        }
        Ok(())
    }

    fn side_output(&mut self, expr: Expr, from: Typed, to: Typed, blanks: bool) -> Result<Output> {
        if blanks && to.may_have_blanks() && from.ty != Ty::Char {
            let b = as_bpchar(Bound { expr, t: from, at: None });
            return self.output_as(b.expr, b.t, to);
        }
        if from.ty != Ty::Char && to.ty == Ty::Char {
            // The length in `to` belongs to the other side's type. This cast must not cut the value to this
            // length, so it casts to char without a length.
            let plain = self.output_as(expr, from, Typed::plain(Ty::Char))?;
            return Ok(Output::new(plain.expr, to));
        }
        if (from.ty, to.ty) != (Ty::Char, Ty::Char) {
            return self.output_as(expr, from, to);
        }
        let b = Bound { expr, t: from, at: None };
        let b = match (from.length(), to.length()) {
            (Some(_), None) if blanks => with_blanks(b),
            (None, _) if !blanks => self.cast(b, Typed::plain(Ty::Text), false)?,
            _ => b,
        };
        Ok(Output::new(b.expr, to))
    }

    fn output_as(&mut self, expr: Expr, from: Typed, to: Typed) -> Result<Output> {
        if from.ty == to.ty || to.ty == Ty::Unknown {
            return Ok(Output::new(expr, from));
        }
        let cast = self.cast(Bound { expr, t: from, at: None }, to, false)?;
        Ok(Output::new(cast.expr, to))
    }

    /// Binds ORDER BY, LIMIT and OFFSET of a set operation. Its columns have the names of its left side's
    /// columns.
    fn over_set(
        &mut self,
        set: SetOperation,
        columns: Vec<Column>,
        types: &[Typed],
        q: &ast::Query,
    ) -> Result<BoundQuery> {
        let mut items = Items::default();
        let names = columns.iter().map(|c| c.name.to_string());
        let mut relation = Relation { columns: Vec::new(), ..Relation::unnamed() };
        for (i, (name, t)) in names.zip(types).enumerate() {
            items.outputs.push(Output::new(Expr::Slot(i), *t));
            items.written.push(None);
            relation.columns.push((name.clone(), *t));
            items.names.push(name);
        }
        let visible = types.len();
        let mut scope = Scope::of(relation);
        let order = self.order_by(q, &mut items, &mut scope, false)?;
        if items.outputs.len() > visible {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
            )
            .with_detail("Only result column names can be used, not expressions or functions.")
            .with_hint(
                "Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
            ));
        }
        let (limit, offset) = self.limits(q)?;
        let columns = items.names.iter().zip(&items.outputs).map(|(n, o)| o.column(n)).collect();
        let select = Select {
            source: Source::Set(Box::new(set)),
            outputs: items.outputs.into(),
            visible,
            order: order.into(),
            limit,
            offset,
            ties: q.with_ties,
            ..Select::nothing()
        };
        Ok(BoundQuery { select, columns })
    }
}

/// Returns the sides of a chain of UNION: `(a UNION b) UNION c` has the sides a, b and c, if both operators
/// are UNION ALL or both are plain UNION.
fn operands<'a>(written: &WrittenSetOperation<'a>) -> Vec<&'a SetExpr> {
    let (mut left, mut out) = (written.left, vec![written.right]);
    while let SetExpr::SetOperation { left: l, op, all, right } = left
        && (*op, written.op) == (SetOperator::Union, SetOperator::Union)
        && *all == written.all
    {
        out.push(right);
        left = l;
    }
    out.push(left);
    out.reverse();
    out
}

/// Returns the common types of columns with `types` and of the outputs of a query.
fn pair_types(kind: SetKind, types: &[Typed], side: &Select) -> Result<Vec<Typed>> {
    let name = kind.name();
    if types.len() != side.visible {
        let message = format!("each {name} query must have the same number of columns");
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let pair = |(l, r): (&Typed, &Output)| {
        let ty = crate::ty::common(l.ty, r.t.ty).ok_or_else(|| {
            let message = format!("{name} types {} and {} cannot be matched", l.ty.name(), r.t.ty.name());
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
        })?;
        // If both sides have an untyped literal, the column is text, even if a later side has another type.
        Ok(match ty {
            Ty::Unknown => Typed::plain(Ty::Text),
            _ if *l == r.t && ty == l.ty => *l,
            // INTERSECT and EXCEPT return rows of the left side unchanged, with their blanks.
            Ty::Char if kind != SetKind::Union && l.ty == Ty::Char => *l,
            _ => Typed::plain(ty),
        })
    };
    types.iter().zip(&side.outputs).map(pair).collect()
}

fn set_kind(op: SetOperator) -> SetKind {
    match op {
        SetOperator::Union => SetKind::Union,
        SetOperator::Intersect => SetKind::Intersect,
        SetOperator::Except => SetKind::Except,
    }
}

//! UNION, INTERSECT and EXCEPT.
//!
//! Invariants
//! 1. Both sides have the same types: those that PostgreSQL resolves for each pair of queries, from the innermost pair out.
//!
//! Does not know: how rows are compared.

use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier};

use super::items::Items;
use super::query::{BoundQuery, orderable};
use super::scope::{Relation, Scope};
use super::{Binder, Bound};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::plan::{Output, Select, SetKind, SetOperation, Source};
use crate::sink::Column;
use crate::ty::{Ty, Typed};

/// A set operation as written.
pub(super) struct Written<'a> {
    pub(super) op: SetOperator,
    pub(super) quantifier: SetQuantifier,
    pub(super) left: &'a SetExpr,
    pub(super) right: &'a SetExpr,
}

impl Binder<'_> {
    /// A set operation with the clauses of the query around it.
    pub(super) fn set_operation(&mut self, written: &Written<'_>, q: &ast::Query) -> Result<BoundQuery> {
        let kind = set_kind(written.op)?;
        let name = kind.name();
        if !q.locks.is_empty() {
            let message = "FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let all = match written.quantifier {
            SetQuantifier::All => true,
            SetQuantifier::None | SetQuantifier::Distinct => false,
            _ => return Err(SqlError::unsupported(format!("{name} BY NAME"))),
        };
        let keeps = std::mem::replace(&mut self.keep_unknown, true);
        let was_in_from = std::mem::replace(&mut self.in_from, true);
        let sides = self.deeper(|b| Ok((b.side(written.left)?, b.side(written.right)?)));
        (self.keep_unknown, self.in_from) = (keeps, was_in_from);
        let (mut left, mut right) = sides?;
        let types = self.matched(name, &mut left.select, &mut right.select)?;
        if !(all && kind == SetKind::Union) {
            types.iter().try_for_each(|t| orderable(*t, name))?;
        }
        let set = SetOperation { kind, all, left: left.select, right: right.select };
        self.over_set(set, left.columns, &types, q)
    }

    /// One side, without the clauses that stand around the whole.
    fn side(&mut self, body: &SetExpr) -> Result<BoundQuery> {
        let bound = match body {
            SetExpr::Query(inner) => self.query(inner)?,
            body => self.query(&bare(body.clone()))?,
        };
        if bound.select.lock.is_some() {
            let message = "FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        Ok(bound)
    }

    /// Brings the outputs of both sides to common types.
    fn matched(&mut self, name: &str, left: &mut Select, right: &mut Select) -> Result<Vec<Typed>> {
        if left.visible != right.visible {
            let message = format!("each {name} query must have the same number of columns");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut types = Vec::with_capacity(left.visible);
        for (l, r) in left.outputs[..left.visible].iter().zip(&right.outputs) {
            let ty = crate::ty::common(l.t.ty, r.t.ty).ok_or_else(|| {
                let message =
                    format!("{name} types {} and {} cannot be matched", l.t.ty.name(), r.t.ty.name());
                SqlError::new(SqlState::DATATYPE_MISMATCH, message)
            })?;
            let same = l.t == r.t && ty == l.t.ty;
            // A column of literals stays untyped for the next pair around, or for the column it goes into.
            types.push(if same { l.t } else { Typed::plain(ty) });
        }
        if !self.keep_unknown {
            types.iter_mut().filter(|t| t.ty == Ty::Unknown).for_each(|t| *t = Typed::plain(Ty::Text));
        }
        for side in [left, right] {
            let taken = std::mem::replace(side, Select::nothing());
            *side = self.brought_to(taken, &types)?;
        }
        Ok(types)
    }

    /// The query with its outputs cast.
    fn brought_to(&mut self, mut select: Select, types: &[Typed]) -> Result<Select> {
        let differs = |(o, t): (&Output, &Typed)| o.t.ty != t.ty;
        if !select.outputs.iter().zip(types).any(differs) {
            return Ok(select);
        }
        let is_literal = |(o, t): (&Output, &Typed)| o.t.ty == t.ty || matches!(o.expr, Expr::Const(_));
        let plain = matches!(select.source, Source::Nothing) && select.order.is_empty();
        if plain && select.outputs.iter().zip(types).all(is_literal) {
            for (output, t) in select.outputs.iter_mut().zip(types) {
                *output = self.output_as(output.expr.clone(), output.t, *t)?;
            }
            return Ok(select);
        }
        let written = select.outputs[..select.visible].iter().map(|o| o.t).zip(types).enumerate();
        let outputs = written
            .map(|(i, (from, to))| self.output_as(Expr::Column(i), from, *to))
            .collect::<Result<Box<[Output]>>>()?;
        let visible = select.visible;
        Ok(Select { source: Source::Query(Box::new(select)), outputs, visible, ..Select::nothing() })
    }

    fn output_as(&mut self, expr: Expr, from: Typed, to: Typed) -> Result<Output> {
        if from.ty == to.ty || to.ty == Ty::Unknown {
            return Ok(Output::new(expr, from));
        }
        let cast = self.cast(Bound { expr, t: from, at: None }, to, false)?;
        Ok(Output::new(cast.expr, to))
    }

    /// ORDER BY, LIMIT and OFFSET of a set operation, whose columns are called as those of its left side.
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
            ..Select::nothing()
        };
        Ok(BoundQuery { select, columns })
    }
}

/// A query of nothing but a body.
fn bare(body: SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

fn set_kind(op: SetOperator) -> Result<SetKind> {
    Ok(match op {
        SetOperator::Union => SetKind::Union,
        SetOperator::Intersect => SetKind::Intersect,
        SetOperator::Except => SetKind::Except,
        SetOperator::Minus => return Err(SqlError::unsupported("MINUS")),
    })
}

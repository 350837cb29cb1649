//! Binds the select list and ORDER BY, and names the outputs.
//!
//! This module does not know where rows come from.

use super::meaning::StarColumn;
use super::order::{is_descending, orderable};
use super::scope::{ColumnMatch, Merged, Relation, Scope};
use super::{Binder, limits};
use crate::ast::{self, Expr as Ast, Placed, SelectItem};
use crate::error::{Result, SqlError, SqlState};
use crate::eval::Expr;
use crate::names::fold;
use crate::output_name::output_name;
use crate::plan::{Output, SortKey};
use crate::sink::{Column, Origin};
use crate::ty::{Ty, Typed};

/// The outputs while they are collected.
#[derive(Default)]
pub(super) struct Items {
    pub(super) outputs: Vec<Output>,
    pub(super) names: Vec<String>,
    /// For each item of the select list: the origin of its values.
    origins: Vec<Option<Origin>>,
    /// The select list as written, for ORDER BY and GROUP BY by name or number.
    pub(super) written: Vec<Option<Ast>>,
}

impl Items {
    /// Returns the first `visible` columns. The client sees only these.
    pub(super) fn columns(&self, visible: usize) -> Vec<Column> {
        let named = self.names.iter().zip(&self.outputs).take(visible).enumerate();
        let column = |(n, (name, output)): (usize, (&String, &Output))| Column {
            origin: self.origins.get(n).copied().flatten(),
            ..output.column(name)
        };
        named.map(column).collect()
    }

    /// Returns whether two outputs are the same column or expression.
    fn are_one(&self, a: usize, b: usize) -> bool {
        match (&self.outputs[a].expr, &self.outputs[b].expr) {
            (Expr::Column(m), Expr::Column(n)) => m == n,
            _ => self.written[a].is_some() && self.written[a] == self.written[b],
        }
    }
}

impl Binder<'_> {
    pub(super) fn items(&mut self, projection: &[SelectItem], scope: &mut Scope) -> Result<Items> {
        let mut items = Items::default();
        for (n, item) in projection.iter().enumerate() {
            match item {
                SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => {
                    let name = match item {
                        SelectItem::ExprWithAlias { alias, .. } => fold(alias),
                        _ => output_name(e),
                    };
                    match scope.grouping.as_ref().and_then(|g| g.constant_of_item(n)) {
                        Some(slot) => {
                            self.note_known(e, scope, true);
                            key_item(e, slot, name, scope, &mut items);
                        }
                        None => self.item(e, name, scope, &mut items)?,
                    }
                }
                SelectItem::Wildcard(at) => self.star(None, *at, scope, &mut items)?,
                SelectItem::QualifiedWildcard(name) => {
                    self.star(Some(name.last()), name.place(), scope, &mut items)?;
                }
            }
        }
        limits::targets(items.outputs.len())?;
        Ok(items)
    }

    fn item(&mut self, e: &Ast, name: String, scope: &mut Scope, items: &mut Items) -> Result<()> {
        let b = self.expression(e, scope)?;
        let is_open = matches!(b.expr, Expr::Const(_) | Expr::Param(_));
        let b = if self.keep_unknown && is_open { b } else { self.known(b)? };
        items.origins.push(scope.origin(&b.expr, b.t).filter(|_| !matches!(e, Ast::Collate { .. })));
        items.outputs.push(Output::new(b.expr, b.t));
        items.names.push(name);
        items.written.push(Some(e.clone()));
        Ok(())
    }

    fn star(
        &mut self,
        table: Option<&str>,
        at: ast::TextPosition,
        scope: &mut Scope,
        items: &mut Items,
    ) -> Result<()> {
        if scope.relations.is_empty() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "SELECT * with no tables specified is not valid",
            ));
        }
        let asked = |r: &&Relation| table.is_none_or(|t| t == r.alias);
        let relations: Vec<Relation> = scope.relations.iter().filter(asked).cloned().collect();
        if relations.is_empty() {
            let message = format!("missing FROM-clause entry for table \"{}\"", table.unwrap_or_default());
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        }
        if relations.iter().any(|relation| relation.has_records) {
            return Err(SqlError::unsupported("a record as a value"));
        }
        let mut shown = Vec::new();
        for relation in &relations {
            if table.is_none() {
                let merged = scope.merged.iter().filter(|m| m.first == relation.first);
                shown.extend(merged.map(|m| StarColumn::Merged(&m.name)));
            }
            let columns = relation.columns.iter().zip(relation.first..);
            let columns = columns.filter(|(_, ordinal)| table.is_some() || !scope.is_merged(*ordinal));
            shown.extend(columns.map(|((name, _), _)| StarColumn::Of(relation, name)));
        }
        self.note_star(at.position(), &shown, scope);
        for relation in relations {
            if table.is_none() {
                self.merged_columns(relation.first, scope, items)?;
            }
            for ((name, t), ordinal) in relation.columns.iter().zip(relation.first..) {
                if table.is_none() && scope.is_merged(ordinal) {
                    continue;
                }
                let b = self.column_value(Expr::Column(ordinal), *t, name, None, scope)?;
                let parts = [&relation.alias, name].map(ast::Ident::new);
                let written = Ast::CompoundIdentifier(parts.into());
                items.origins.push(scope.origin(&b.expr, b.t));
                items.outputs.push(Output::new(b.expr, b.t));
                items.names.push(name.clone());
                items.written.push((!relation.is_ambiguous(name)).then_some(written));
            }
        }
        Ok(())
    }

    /// Adds the USING columns of a join that begins at this ordinal. `*` shows them first.
    fn merged_columns(&mut self, first: usize, scope: &mut Scope, items: &mut Items) -> Result<()> {
        let merged: Vec<_> = scope.merged.iter().filter(|m| m.first == first).cloned().collect();
        for Merged { name, expr, t, .. } in merged {
            let written = Ast::Identifier(ast::Ident::new(&name));
            // Another relation may have a column with this name, too. A key of groups is recognized by its
            // text.
            if scope.grouping.is_some() || scope.find(None, &name) != ColumnMatch::Several {
                self.item(&written, name, scope, items)?;
                continue;
            }
            items.outputs.push(Output::new(expr, t));
            items.names.push(name);
            items.written.push(None);
        }
        Ok(())
    }

    pub(super) fn order_by(
        &mut self,
        q: &ast::Query,
        items: &mut Items,
        scope: &mut Scope,
        distinct: bool,
    ) -> Result<Vec<SortKey>> {
        let visible = items.outputs.len();
        let mut keys = Vec::with_capacity(q.order_by.len());
        for item in &q.order_by {
            let output = self.order_item(&item.expr, visible, items, scope)?;
            if distinct && output >= visible {
                let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                return Err(
                    SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(self.at(&item.expr))
                );
            }
            orderable(items.outputs[output].t, "ORDER BY")?;
            let descending = is_descending(item.direction)?;
            let nulls_first = item.nulls_first.unwrap_or(descending);
            keys.push(SortKey { output, descending, nulls_first });
        }
        Ok(keys)
    }

    /// Returns the ordinals of the outputs that DISTINCT ON names. Those of them that ORDER BY lacks are
    /// added at the end of ORDER BY.
    pub(super) fn distinct_on(
        &mut self,
        written: &[Ast],
        order: &mut Vec<SortKey>,
        visible: usize,
        items: &mut Items,
        scope: &mut Scope,
    ) -> Result<Box<[usize]>> {
        let mut on = Vec::with_capacity(written.len());
        for e in written {
            let output = self.order_item(e, visible, items, scope)?;
            orderable(items.outputs[output].t, "DISTINCT ON")?;
            on.push(output);
        }
        let leading = order.iter().take_while(|k| on.contains(&k.output)).count();
        let missing = |o: &&usize| !order[..leading].iter().any(|k| k.output == **o);
        let missing: Vec<usize> = on.iter().filter(missing).copied().collect();
        if leading < order.len() && !missing.is_empty() {
            let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
                .at(written.first().and_then(|e| self.at(e))));
        }
        order.extend(missing.into_iter().map(|output| SortKey {
            output,
            descending: false,
            nulls_first: false,
        }));
        Ok(on.into())
    }

    /// Returns the ordinal of the output that an ORDER BY item names by a number, an output's name, or an
    /// expression.
    fn order_item(&mut self, e: &Ast, visible: usize, items: &mut Items, scope: &mut Scope) -> Result<usize> {
        if let Some(ordinal) = literal_position(e, "ORDER BY").map_err(|error| error.at(self.at(e)))? {
            let index = usize::try_from(ordinal - 1).ok();
            if let Some(index) = index.filter(|i| *i < visible) {
                return Ok(index);
            }
            let message = format!("ORDER BY position {ordinal} is not in select list");
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(self.at(e)));
        }
        if let Ast::Identifier(ident) = e {
            let name = fold(ident);
            let named = |from: usize| items.names[from..visible].iter().position(|n| *n == name);
            if let Some(found) = named(0) {
                let other = named(found + 1).map(|n| found + 1 + n);
                if other.is_some_and(|other| !items.are_one(found, other)) {
                    let message = format!("ORDER BY \"{name}\" is ambiguous");
                    return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).at(self.at(e)));
                }
                return Ok(found);
            }
        }
        if let Some(found) = items.written.iter().position(|w| w.as_ref() == Some(e)) {
            self.note_known(e, scope, false);
            return Ok(found);
        }
        if let Some(slot) = scope.grouping.as_ref().and_then(|g| g.constant_of(e)) {
            self.note_known(e, scope, true);
            key_item(e, slot, String::new(), scope, items);
            return Ok(items.outputs.len() - 1);
        }
        let b = self.expression(e, scope)?;
        let b = self.known(b)?;
        if let Expr::Column(c) = b.expr {
            let same = |o: &Output| matches!(o.expr, Expr::Column(n) if n == c);
            if let Some(found) = items.outputs.iter().position(same) {
                return Ok(found);
            }
        }
        items.outputs.push(Output::new(b.expr, b.t));
        items.names.push(String::new());
        items.written.push(Some(e.clone()));
        Ok(items.outputs.len() - 1)
    }
}

/// Adds an output that is a key of the groups.
fn key_item(e: &Ast, slot: usize, name: String, scope: &Scope, items: &mut Items) {
    let t = scope.grouping.as_ref().map_or(Typed::plain(Ty::Text), |g| g.keys[slot].1.t);
    items.origins.resize(items.outputs.len() + 1, None);
    items.outputs.push(Output::new(Expr::Slot(slot), t));
    items.names.push(name);
    items.written.push(Some(e.clone()));
}

/// Returns the number of an item like ORDER BY 2. No other constant is allowed there.
pub(super) fn literal_position(e: &Ast, clause: &str) -> Result<Option<i64>> {
    let (literal, sign) = match e {
        Ast::UnaryOp { op: ast::UnaryOperator::Minus, expr } => (expr.as_ref(), -1),
        _ => (e, 1),
    };
    let Ast::Value(constant) = literal else { return Ok(None) };
    let refused = || SqlError::new(SqlState::SYNTAX_ERROR, format!("non-integer constant in {clause}"));
    match &constant.value {
        ast::Value::Number(n) => n.parse::<i32>().map(|n| Some(i64::from(n) * sign)).map_err(|_| refused()),
        _ if sign < 0 => Ok(None),
        _ => Err(refused()),
    }
}
